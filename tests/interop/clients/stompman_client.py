"""stompman, over TCP or WebSocket. It speaks 1.2 only."""

from __future__ import annotations

import asyncio
import contextlib
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import stompman
from adapter import Inbox, NotThere, serve
from stompman.connection_ws import WebSocketConnection

_SECONDS = 30  # How long a busy machine may take; the library's own waits are of 2 and 3 s.


class Link:
    """A client lives in a task of its own: its context is left where it was entered."""

    def __init__(self, client: stompman.Client) -> None:
        self.client = client
        self.inbox = Inbox()
        self.subscriptions: dict[str, Any] = {}
        self.transactions: dict[str, Any] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._end = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with self.client:
                self._ready.set_result(None)
                await self._end.wait()
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def ready(self) -> None:
        await self._ready

    async def close(self) -> None:
        for subscription in self.subscriptions.values():
            await subscription.unsubscribe()
        self._end.set()
        await asyncio.wait_for(self._task, 10)


class Program:
    def __init__(self) -> None:
        self.links: dict[str, Link] = {}

    async def about(self) -> dict[str, str]:
        return {"library": version("stompman")}

    async def open(self, link, host, port, url, login, passcode, vhost, heart_beat, version):
        parts = urlsplit(url) if url else None
        server = stompman.ConnectionParameters(
            host=parts.hostname if parts else host,
            port=parts.port if parts else port,
            login=login,
            passcode=passcode,
            ws_uri_path=parts.path if parts else None,
        )
        options: dict[str, Any] = (
            {"connection_class": WebSocketConnection, "read_max_chunk_size": 4 << 20} if url else {}
        )
        if heart_beat != [0, 0]:
            options["heartbeat"] = stompman.Heartbeat(*heart_beat)
        else:
            options["check_server_alive_interval_factor"] = _SECONDS  # of its own heart-beats, one each second
        client = stompman.Client(
            servers=[server], connect_retry_attempts=1, connection_confirmation_timeout=_SECONDS, **options
        )
        self.links[link] = Link(client)
        await self.links[link].ready()

    async def send(self, link, destination, headers, body, text, transaction, receipt):
        made = self.links[link]
        if transaction:
            await made.transactions[transaction][1].send(body, destination, headers=headers)
        else:
            wait = 10 if receipt else None
            await made.client.send(body, destination, headers=headers, receipt_timeout=wait)

    async def subscribe(self, link: str, id: str, destination: str, ack: str, headers: dict[str, str]) -> None:
        made = self.links[link]

        async def keep(frame: stompman.AckableMessageFrame) -> None:
            made.inbox.put(id, frame, dict(frame.headers), frame.body)

        made.subscriptions[id] = await made.client.subscribe_with_manual_ack(
            destination, keep, ack=ack, headers=headers, receipt_timeout=10
        )

    async def receive(self, link: str, id: str, count: int, seconds: float) -> dict[str, Any]:
        return await self.links[link].inbox.receive_async(id, count, seconds)

    async def ack(self, link: str, handle: str, transaction: str | None) -> None:
        if transaction:
            raise NotThere("its transactions only send")
        await self.links[link].inbox.message(handle).ack()

    async def nack(self, link: str, handle: str, transaction: str | None) -> None:
        await self.links[link].inbox.message(handle).nack()

    async def unsubscribe(self, link: str, id: str, destination: str) -> None:
        await self.links[link].subscriptions.pop(id).unsubscribe()

    async def begin(self, link: str, transaction: str) -> None:
        made = self.links[link]
        context = made.client.begin()
        made.transactions[transaction] = (context, await context.__aenter__())

    async def commit(self, link: str, transaction: str) -> None:
        await self.links[link].transactions.pop(transaction)[0].__aexit__(None, None, None)

    async def abort(self, link: str, transaction: str) -> None:
        context = self.links[link].transactions.pop(transaction)[0]
        reason = RuntimeError("an exception inside the transaction aborts it")
        with contextlib.suppress(RuntimeError):
            await context.__aexit__(RuntimeError, reason, None)

    async def alive(self, link: str) -> dict[str, Any]:
        return {"alive": self.links[link].client.is_alive()}

    async def close(self, link: str) -> None:
        await self.links.pop(link).close()


serve(Program())
