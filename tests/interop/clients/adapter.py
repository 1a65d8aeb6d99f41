"""How a client program is driven: a line of JSON is an order, a line of JSON answers it.

Every program in this folder, whatever its language, obeys the same orders. Bodies travel as base64.

    open          link, host, port, url, login, passcode, vhost, heart_beat, version  -> what CONNECTED said, if shown
    send          link, destination, headers, body, text, transaction, receipt        -> when the receipt has come
    subscribe     link, id, destination, ack, headers
    receive       link, id, count, seconds  -> {"messages": [{"handle", "headers", "body"}]}, fewer after the seconds
    ack, nack     link, handle, transaction
    unsubscribe   link, id, destination
    begin, commit, abort   link, transaction
    alive         link  -> {"alive": whether the client thinks it is connected}
    close         link  as the client's users end a connection
    about         -> {"library": its version}

The answer is {"ok": {…}}, {"error": "why"} or {"na": "what the client has no name for"}.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import threading
import time
from base64 import b64decode, b64encode
from typing import Any


class NotThere(Exception):
    """The client has no such thing."""


class Inbox:
    """Messages of one link, by subscription, and the handles by which they are acknowledged."""

    def __init__(self) -> None:
        self._arrived = threading.Condition()
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        self._messages: dict[str, Any] = {}

    def put(self, subscription: str, message: Any, headers: dict[str, Any], body: bytes) -> None:
        """A message has come. It is kept: acknowledging it needs what the client handed out."""
        with self._arrived:
            handle = str(len(self._messages))
            self._messages[handle] = message
            shown = {str(name): str(value) for name, value in headers.items()}
            entry = {"handle": handle, "headers": shown, "body": b64encode(body).decode()}
            self._waiting.setdefault(subscription, []).append(entry)
            self._arrived.notify_all()

    def message(self, handle: str) -> Any:
        return self._messages[handle]

    def _take(self, subscription: str, count: int) -> list[dict[str, Any]]:
        waiting = self._waiting.get(subscription, [])
        taken, waiting[:] = waiting[:count], waiting[count:]
        return taken

    def receive(self, subscription: str, count: int, seconds: float) -> dict[str, Any]:
        """As many messages, or those that have come within the seconds."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self._waiting.get(subscription, [])) >= count, seconds)
            return {"messages": self._take(subscription, count)}

    async def receive_async(self, subscription: str, count: int, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while len(self._waiting.get(subscription, [])) < count and time.monotonic() < end:
            await asyncio.sleep(0.002)
        return {"messages": self._take(subscription, count)}


def _order(line: str) -> tuple[str, dict[str, Any]]:
    order = json.loads(line)
    if "body" in order:
        order["body"] = b64decode(order["body"])
    return order.pop("do"), order


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def _refusal(error: Exception) -> dict[str, Any]:
    if isinstance(error, NotThere):
        return {"na": str(error)}
    return {"error": f"{type(error).__name__}: {error}"[:2000]}


def serve(program: Any) -> None:
    """Obey the orders of standard input by the methods of the same names, coroutines or not, in one event loop."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            name, order = _order(line)
            try:
                result = getattr(program, name)(**order)
                _say({"ok": (await result if inspect.isawaitable(result) else result) or {}})
            except Exception as error:
                _say(_refusal(error))

    asyncio.run(run())
