"""A broker on real sockets, and clients of it, for tests in one loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from patience import patience

import stompcodec
from stompcodec import Frame
from stompcodec.broker.config import Config
from stompcodec.broker.server import Server, serve

CONFIG = Config(port=0)


class Client:
    """A client with no sense: it sends octets and takes frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.parser = stompcodec.Parser("1.2", heartbeats=True)
        self.frames: list[Frame] = []
        self.beats = 0
        self.session_id = ""

    @classmethod
    async def open(cls, server: Server) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", server.port, limit=2**16))

    @classmethod
    async def connect(cls, server: Server, *headers: str) -> Client:
        client = await cls.open(server)
        lines = ["CONNECT", "accept-version:1.2", "host:/", "login:guest", "passcode:guest", *headers, "", "\0"]
        client.send("\n".join(lines))
        answer = await client.frame()
        assert answer.command == "CONNECTED"
        client.session_id = answer.headers["session"]
        return client

    def send(self, text: str | bytes) -> None:
        self.writer.write(text.encode() if isinstance(text, str) else text)

    async def read(self) -> bool:
        data = await asyncio.wait_for(self.reader.read(65536), patience(20))
        for frame in self.parser.feed(data):
            if frame is stompcodec.HEARTBEAT:
                self.beats += 1
            else:
                self.frames.append(frame)
        return bool(data)

    async def frame(self) -> Frame:
        while not self.frames:
            assert await self.read(), "the connection is closed"
        return self.frames.pop(0)

    async def rest(self) -> list[Frame]:
        """All frames up to the end of the stream."""
        while await self.read():
            pass
        frames, self.frames = self.frames, []
        return frames

    async def ask(self, text: str) -> Frame:
        self.send(text)
        return await self.frame()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def send(destination: str, body: str = "", *headers: str) -> str:
    return "\n".join(["SEND", f"destination:{destination}", *headers, "", f"{body}\0"])


def subscribe(destination: str, *headers: str) -> str:
    return "\n".join(["SUBSCRIBE", "id:0", f"destination:{destination}", "receipt:s", *headers, "", "\0"])


def run(main: Callable[[Server], Awaitable[Any]], config: Config = CONFIG, **options: Any) -> Any:
    """Run a test with a server, and end that."""

    async def body() -> Any:
        async with serve(config, **options) as server:
            return await asyncio.wait_for(main(server), patience(60))

    return asyncio.run(body())


async def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + patience(20)
    while not condition():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.005)
