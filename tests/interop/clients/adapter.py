"""How a client program is driven: a line of JSON is an order, a line of JSON answers it.

Every program in this folder, whatever its language, obeys the same orders. Bodies travel as base64.

    open          link, host, port, url, login, passcode, vhost, heart_beat, version  -> what CONNECTED said, if shown
    send          link, destination, headers, body, text, transaction, receipt        -> when the receipt has come
    subscribe     link, id, destination, ack, headers
    receive       link, id, count, seconds  -> {"messages": [{"handle", "headers", "body"}]}, as many as have come;
                  programs that read only when they are asked to may wait so many seconds
    ack, nack     link, handle, transaction
    unsubscribe   link, id, destination
    begin, commit, abort   link, transaction
    alive         link  -> {"alive": whether the client thinks it is connected}
    close         link  as the client's users end a connection
    about         -> {"library": its version}

The answer is {"ok": {…}}, {"error": "why"} or {"na": "what the client has no name for"}.
"""

import asyncio
import inspect
import json
import sys
from base64 import b64decode, b64encode
from typing import Any


class NotThere(Exception):
    """The client has no such thing."""


class Link:
    """One connection: its methods, coroutines or not, are the orders of the same names."""

    def __init__(self) -> None:
        self.messages: list[Any] = []  # by handle: acknowledging one needs what the client handed out
        self.waiting: dict[str, list[dict[str, Any]]] = {}
        self.subscriptions: dict[str, Any] = {}
        self.transactions: dict[str, Any] = {}

    def put(self, subscription: str, message: Any, headers: dict[str, Any], body: bytes) -> None:
        """A message has come; any thread may say so."""
        self.messages.append(message)
        shown = {str(name): str(value) for name, value in headers.items()}
        entry = {"handle": str(len(self.messages) - 1), "headers": shown, "body": b64encode(body).decode()}
        self.waiting.setdefault(subscription, []).append(entry)

    async def receive(self, id: str, count: int, seconds: float) -> dict[str, Any]:
        waiting = self.waiting.setdefault(id, [])
        taken, waiting[:count] = waiting[:count], []
        return {"messages": taken}

    def ack(self, handle: str, transaction: str | None) -> Any:
        return self.settle("ack", self.messages[int(handle)], transaction)

    def nack(self, handle: str, transaction: str | None) -> Any:
        return self.settle("nack", self.messages[int(handle)], transaction)

    def settle(self, verb: str, message: Any, transaction: str | None) -> Any:
        raise NotImplementedError


async def done(result: Any) -> Any:
    """Return what a call gives, or a coroutine."""
    return await result if inspect.isawaitable(result) else result


def serve(make: type[Link], library: str) -> None:
    """Obey the orders of standard input, in one event loop; `library` is a version."""
    links: dict[str, Any] = {}

    async def obey(do: str, link: str = "", **order: Any) -> Any:
        if do == "about":
            return {"library": library}
        if do == "open":
            links[link] = make()
        if "body" in order:
            order["body"] = b64decode(order["body"])
        return await done(getattr(links.pop(link) if do == "close" else links[link], do)(**order))

    async def run() -> None:
        while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
            try:
                answer = {"ok": await obey(**json.loads(line)) or {}}
            except NotThere as error:
                answer = {"na": str(error)}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
            print(json.dumps(answer), flush=True)

    asyncio.run(run())
