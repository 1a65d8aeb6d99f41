"""stompman, over TCP or WebSocket. It speaks 1.2 only."""

import asyncio
import contextlib
from importlib.metadata import version as version_of
from typing import Any
from urllib.parse import urlsplit

import adapter
import stompman
from adapter import NotThere
from stompman.connection_ws import WebSocketConnection

_SECONDS = 30  # that a busy machine may take; the library's own waits are of 2 and 3 s


class Link(adapter.Link):
    async def open(self, host, port, url, login, passcode, heart_beat, **_rest):
        where: dict[str, Any] = {"host": host, "port": port}
        options: dict[str, Any] = {}
        if url:
            parts = urlsplit(url)
            where = {"host": parts.hostname, "port": parts.port, "ws_uri_path": parts.path}
            options = {"connection_class": WebSocketConnection, "read_max_chunk_size": 4 << 20}
        if heart_beat != [0, 0]:
            options["heartbeat"] = stompman.Heartbeat(*heart_beat)
        else:
            options["check_server_alive_interval_factor"] = _SECONDS  # of its own heart-beats, one each second
        options |= {"connect_retry_attempts": 1, "connection_confirmation_timeout": _SECONDS}
        server = stompman.ConnectionParameters(login=login, passcode=passcode, **where)
        self.client = stompman.Client(servers=[server], **options)
        # In a task of its own: its context is left where it was entered.
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.end = asyncio.Event()
        self.task = asyncio.create_task(self._run())
        await self.ready

    async def _run(self):
        try:
            async with self.client:
                self.ready.set_result(None)
                await self.end.wait()
        except Exception as error:
            if self.ready.done():
                raise
            self.ready.set_exception(error)

    async def send(self, destination, headers, body, text, transaction, receipt):
        if transaction:
            await self.transactions[transaction][1].send(body, destination, headers=headers)
        else:
            wait = 10 if receipt else None
            await self.client.send(body, destination, headers=headers, receipt_timeout=wait)

    async def subscribe(self, id, destination, ack, headers):
        async def keep(frame):
            self.put(id, frame, dict(frame.headers), frame.body)

        self.subscriptions[id] = await self.client.subscribe_with_manual_ack(
            destination, keep, ack=ack, headers=headers, receipt_timeout=10
        )

    def settle(self, verb, frame, transaction):
        if transaction:
            raise NotThere("its transactions only send")
        return getattr(frame, verb)()

    def unsubscribe(self, id, destination):
        return self.subscriptions.pop(id).unsubscribe()

    async def begin(self, transaction):
        context = self.client.begin()
        self.transactions[transaction] = context, await context.__aenter__()

    def commit(self, transaction):
        return self.transactions.pop(transaction)[0].__aexit__(None, None, None)

    async def abort(self, transaction):
        reason = RuntimeError("an exception inside the transaction aborts it")
        with contextlib.suppress(RuntimeError):
            await self.transactions.pop(transaction)[0].__aexit__(RuntimeError, reason, None)

    def alive(self):
        return {"alive": self.client.is_alive()}

    async def close(self):
        for subscription in self.subscriptions.values():
            await subscription.unsubscribe()
        self.end.set()
        await asyncio.wait_for(self.task, 10)


adapter.serve(Link, version_of("stompman"))
