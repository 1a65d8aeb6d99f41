"""stompcodec.client, by threads or by asyncio as STOMPCODEC_SHELL says: both have the same names."""

from __future__ import annotations

import inspect
import os
import time
from base64 import b64encode
from typing import Any

from adapter import serve

import stompcodec
import stompcodec.client as stomp

_CONNECT: Any = stomp.connect_async if os.environ["STOMPCODEC_SHELL"] == "asyncio" else stomp.connect


async def done(result: Any) -> Any:
    """What a call of either shell gives."""
    return await result if inspect.isawaitable(result) else result


class Link:
    def __init__(self, client: Any) -> None:
        self.client = client
        self.subscriptions: dict[str, Any] = {}
        self.transactions: dict[str, Any] = {}
        self.messages: list[Any] = []


class Program:
    def __init__(self) -> None:
        self.links: dict[str, Link] = {}

    async def about(self) -> dict[str, str]:
        return {"library": stompcodec.__version__}

    async def open(self, link, host, port, url, login, passcode, vhost, heart_beat, version):
        who = {"login": login, "passcode": passcode, "vhost": vhost}
        how = {"heart_beat": tuple(heart_beat), "versions": [version], "reconnect": None, "receipt_timeout": 15}
        client = await done(_CONNECT(url or f"stomp://{host}:{port}", **who, **how))
        self.links[link] = Link(client)
        return dict(client.connected.headers.pairs())

    async def send(self, link, destination, headers, body, text, transaction, receipt):
        made = self.links[link]
        content = body.decode() if text else body
        if transaction:
            await done(made.transactions[transaction].send(destination, content, headers))
        else:
            await done(made.client.send(destination, content, headers, receipt=receipt))

    async def subscribe(
        self, link: str, id: str, destination: str, ack: str, headers: dict[str, str], confirm: bool = True
    ) -> None:
        made = self.links[link]
        # The dialect of the client has its own words for `headers`.
        made.subscriptions[id] = await done(made.client.subscribe(destination, ack=ack, id=id, confirm=confirm))

    async def receive(self, link: str, id: str, count: int, seconds: float) -> dict[str, Any]:
        made, found = self.links[link], []
        end = time.monotonic() + seconds
        while len(found) < count:
            message = await done(made.subscriptions[id].get(max(0.0, end - time.monotonic())))
            if message is None:
                break
            made.messages.append(message)
            handle, headers = str(len(made.messages) - 1), dict(message.headers)
            found.append({"handle": handle, "headers": headers, "body": b64encode(message.body).decode()})
        return {"messages": found}

    async def ack(self, link: str, handle: str, transaction: str | None) -> None:
        await self._settle(link, "ack", handle, transaction)

    async def nack(self, link: str, handle: str, transaction: str | None) -> None:
        await self._settle(link, "nack", handle, transaction)

    async def _settle(self, link: str, verb: str, handle: str, transaction: str | None) -> None:
        made = self.links[link]
        message = made.messages[int(handle)]
        if transaction:
            await done(getattr(made.transactions[transaction], verb)(message))
            return
        try:
            await done(getattr(message, verb)())
        except stomp.LocalProtocolError:
            if verb == "ack":
                raise
            await done(message.nack(discard=True))  # the broker drops it, which has to be meant

    async def unsubscribe(self, link: str, id: str, destination: str) -> None:
        subscription = self.links[link].subscriptions[id]
        await done(
            subscription.unsubscribe(wait=subscription.confirm)
        )  # without a RECEIPT of SUBSCRIBE there is none here

    async def begin(self, link: str, transaction: str) -> None:
        made = self.links[link]
        made.transactions[transaction] = await done(made.client.transaction().begin())

    async def commit(self, link: str, transaction: str) -> None:
        await done(self.links[link].transactions.pop(transaction).commit())

    async def abort(self, link: str, transaction: str) -> None:
        await done(self.links[link].transactions.pop(transaction).abort())

    async def alive(self, link: str) -> dict[str, Any]:
        return {"alive": self.links[link].client.state == "connected"}

    async def close(self, link: str) -> None:
        await done(self.links.pop(link).client.close())


serve(Program())
