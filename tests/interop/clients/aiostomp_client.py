"""aiostomp. It speaks 1.1, and has no receipts and no transactions."""

from __future__ import annotations

import asyncio
import uuid
from importlib.metadata import version
from typing import Any

from adapter import Inbox, NotThere, serve
from aiostomp import AioStomp


class Link:
    def __init__(self, host: str, port: int, heart_beat: list[int]) -> None:
        self.inbox = Inbox()
        self.subscriptions: dict[str, Any] = {}
        self.refused = ""
        first, second = heart_beat
        self.client = AioStomp(
            host,
            port,
            heartbeat=heart_beat != [0, 0],
            heartbeat_interval_cx=first,
            heartbeat_interval_cy=second,
            reconnect_max_attempts=1,
            error_handler=self._failed,
        )

    async def _failed(self, error: Exception) -> None:
        self.refused = str(error) or type(error).__name__

    def subscribe(self, id: str, destination: str, ack: str, headers: dict[str, str]) -> None:
        async def keep(frame: Any, body: bytes | None) -> bool:
            self.inbox.put(id, frame, frame.headers, body or b"")
            return True

        self.subscriptions[id] = self.client.subscribe(
            destination, ack=ack, extra_headers=headers, handler=keep, auto_ack=False
        )

    async def settle(self) -> None:
        """It does not say when it is connected: a message that goes round does."""
        name = f"/queue/aiostomp-{uuid.uuid4().hex}"
        self.subscribe(name, name, "auto", {})
        self.client.send(name, b"round")
        for _ in range(5000):
            came = await self.inbox.receive_async(name, 1, 0.002)
            if self.refused:
                self.client.close()
                raise ConnectionError(self.refused)
            if came["messages"]:
                self.client.unsubscribe(self.subscriptions.pop(name))
                return
        raise TimeoutError("nothing came back")


class Program:
    def __init__(self) -> None:
        self.links: dict[str, Link] = {}

    async def about(self) -> dict[str, str]:
        return {"library": version("aiostomp")}

    async def open(self, link, host, port, url, login, passcode, vhost, heart_beat, version):
        made = Link(host, port, heart_beat)
        await made.client.connect(login, passcode)
        await made.settle()
        self.links[link] = made

    async def send(self, link, destination, headers, body, text, transaction, receipt):
        if receipt:
            raise NotThere("it passes RECEIPT over")
        self.links[link].client.send(destination, body, headers=headers)

    async def subscribe(self, link: str, id: str, destination: str, ack: str, headers: dict[str, str]) -> None:
        self.links[link].subscribe(id, destination, ack, headers)

    async def receive(self, link: str, id: str, count: int, seconds: float) -> dict[str, Any]:
        return await self.links[link].inbox.receive_async(id, count, seconds)

    async def ack(self, link: str, handle: str, transaction: str | None) -> None:
        made = self.links[link]
        made.client.ack(made.inbox.message(handle))

    async def nack(self, link: str, handle: str, transaction: str | None) -> None:
        made = self.links[link]
        made.client.nack(made.inbox.message(handle))

    async def unsubscribe(self, link: str, id: str, destination: str) -> None:
        made = self.links[link]
        made.client.unsubscribe(made.subscriptions.pop(id))

    async def begin(self, link: str, transaction: str) -> None:
        raise NotThere("it has no transactions")

    commit = abort = begin

    async def alive(self, link: str) -> dict[str, Any]:
        made = self.links[link]
        return {"alive": made.client._connected and not made.refused}

    async def close(self, link: str) -> None:
        self.links.pop(link).client.close()
        await asyncio.sleep(0)


serve(Program())
