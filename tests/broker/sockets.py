"""A broker on real sockets, and clients of it, for tests in one loop."""

import asyncio
import contextlib
import functools
import inspect
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from patience import patience
from transport.messages import TEXT, frame, request
from transport.wires import Raw

import stompcodec
from stompcodec import Frame
from stompcodec.broker.config import Config
from stompcodec.broker.server import Server, serve

CONFIG = Config(port=0)
CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0"
_CLIENTS: "list[Client]" = []


class Client:
    """A client with no sense: it sends octets and takes frames. `run` closes it at the end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.parser = reader, writer, stompcodec.Parser("1.2")
        self.frames, self.session_id = [], ""
        _CLIENTS.append(self)

    @classmethod
    async def open(cls, server: Any):
        return cls(*await asyncio.open_connection("127.0.0.1", server.port, limit=2**16))

    @classmethod
    async def connect(cls, server: Server, *headers: str):
        client = await cls.open(server)
        lines = ["CONNECT", "accept-version:1.2", "host:/", "login:guest", "passcode:guest", *headers, "", "\0"]
        answer = await client.ask("\n".join(lines))
        assert answer.command == "CONNECTED"
        client.session_id = answer.headers["session"]
        return client

    def send(self, text: str | bytes) -> None:
        self.writer.write(text.encode() if isinstance(text, str) else text)

    async def read(self) -> bool:
        data = await asyncio.wait_for(self.reader.read(65536), patience(20))
        self.frames += self.parser.feed(data)
        return bool(data)

    async def frame(self) -> Frame:
        while not self.frames:
            assert await self.read(), "the connection is closed"
        return self.frames.pop(0)

    async def rest(self) -> list[Frame]:
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


@contextlib.asynccontextmanager
async def browser(server: Server) -> AsyncIterator[Raw]:
    assert server.ws_port is not None
    async with Raw.to(server.ws_port) as raw:
        await raw.send(request())
        await raw.until(b"\r\n\r\n")
        await raw.send(frame(TEXT, CONNECT))
        await raw.until(b"\0")
        yield raw


def run(main: Callable[[Server], Awaitable[Any]], config: Config = CONFIG, **options: Any) -> Any:
    async def body() -> Any:
        async with serve(config, **options) as server:
            found = await asyncio.wait_for(main(server), patience(60))
            while _CLIENTS:
                await _CLIENTS.pop().close()
            return found

    _CLIENTS.clear()
    return asyncio.run(body())


def served(config: Config = CONFIG, **changes: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Make a test of a coroutine function, whose first argument is a server with this configuration."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def served_test(**arguments: Any) -> None:
            run(lambda server: test(server, **arguments), config.replace(**changes))

        signature = inspect.signature(test)
        served_test.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=list(signature.parameters.values())[1:]
        )
        return served_test

    return decorate


async def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + patience(20)
    while not condition():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.005)


def connect_frame(version: str = "1.2") -> bytes:
    """CONNECT; 1.0 has no accept-version."""
    if version == "legacy":
        return b"CONNECT\nusername: guest\npasscode: guest\n\n\0"
    lines = [] if version == "1.0" else [f"accept-version:{version}"]
    return "\n".join(["CONNECT", *lines, "host:/", "login:guest", "passcode:guest", "", "\0"]).encode()


def masked(data: bytes, opcode: int = 2, final: bool = True, length: int | None = None) -> bytes:
    """A frame of WebSocket, as a client writes it, with a mask of zeros; or its beginning, if the length is larger."""
    size = len(data) if length is None else length
    return struct.pack("!BBQI", opcode | (0x80 if final else 0), 0x80 | 127, size, 0) + data


class Probe:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), patience(60))
        self.socket.sendall(connect_frame())
        self._until(b"CONNECTED")
        self.socket.sendall(b"SUBSCRIBE\nid:0\nack:client-individual\ndestination:/queue/probe\nreceipt:s\n\n\0")
        self._until(b"receipt-id:s")
        self.number = 0

    def _until(self, text: bytes) -> bytes:
        got = b""
        while text not in got:
            data = self.socket.recv(65536)
            assert data, f"the broker has closed the connection: {got!r}"
            got += data
        return got

    def round(self) -> None:
        self.number += 1
        self.socket.sendall(b"SEND\ndestination:/queue/probe\n\nprobe %d\0" % self.number)
        got = self._until(b"probe %d\0" % self.number)
        ack = got.rpartition(b"\nack:")[2].partition(b"\n")[0]
        self.socket.sendall(b"ACK\nid:%b\nreceipt:%d\n\n\0" % (ack, self.number))
        self._until(b"receipt-id:%d\n" % self.number)

    def close(self) -> None:
        self.socket.close()
