"""The client's rows of instructions.py: what a message costs the program that sends or takes it, without sockets.

Counted are the client's shell, its engine and its core, in the program's thread and in the I/O thread. The server is
bytes that are prepared before: CONNECTED and MESSAGE frames. Output is taken from the core after each message.
"""

from __future__ import annotations

import time
from typing import Any

from broker_rows import joined

from stompcodec.codec import Frame, Parser, serialize

#: Each row, and what one message of it is.
ROWS = {
    "client_send": "Client.send of bytes, without headers or receipt",
    "client_headers": "Client.send of bytes with two headers",
    "client_many": "a message with a header in Client.send_many, without receipts",
    "client_receive": "MESSAGE received and taken (ack: auto)",
    "client_ack": "MESSAGE received, taken and acknowledged (client-individual)",
    "client_handler": "MESSAGE received, passed to a handler and acknowledged (client-individual)",
}
#: Messages that `Row.run` is about.
MESSAGES = 1000
_PER_READ = 25
_BODY = b"x" * 256
_HEADERS = {"symbol": "ACME", "sequence": "0000000"}


class Row:
    """One row, a key of `ROWS`: a client with a session, which is used always in the same way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._taken = 0

    def __enter__(self) -> Row:
        # Here, and not when rows of the codec are counted: under valgrind this takes longer than they do.
        from stompcodec.client import Client, Options
        from stompcodec.client.handlers import Handling
        from stompcodec.client.sync.messages import _Work

        self._client = Client("stomp://localhost:1", Options(heart_beat=(0, 0)))
        core = self._core = self._client._link.core
        core.link.opened(time.monotonic(), host="h", login=None, passcode=None, whole_frames=False)
        self._written()
        core.inbound.receive(b"CONNECTED\nversion:1.2\n\n\0", time.monotonic())
        ack = "auto" if self.name == "client_receive" else "client-individual"
        subscription = self._client._link.subscription("/queue/a", ack, None, id="1", confirm=False)
        core.inbound.subscribe(subscription, time.monotonic(), self._client._link.call("SUBSCRIBE", "", None))
        self._work = _Work(subscription, Handling(self._count))
        self._subscription = subscription
        self._written()
        return self

    def __exit__(self, *_: object) -> None:
        self._core.link.end(None)

    def _count(self, message: Any) -> None:
        self._taken += 1

    def prepare(self) -> tuple[Any, Any]:
        """Make the state from which `run` starts, and return its arguments."""
        self._written()
        if self.name in ("client_send", "client_headers"):
            return self._send, [_BODY] * MESSAGES
        if self.name == "client_many":
            return self._send_many, [("/queue/a", _BODY, _HEADERS)] * MESSAGES
        return self._receive, joined(self._messages(), _PER_READ)

    def run(self, work: Any, pieces: list[Any]) -> int:
        """Send or take all messages (counted), and return their number."""
        return work(pieces)

    def _send(self, bodies: list[bytes]) -> int:
        send, link = self._client.send, self._core.link
        headers = _HEADERS if self.name == "client_headers" else None
        for body in bodies:
            send("/queue/a", body, headers)
            link.take_output(0.0)
        return len(bodies)

    def _send_many(self, messages: list[Any]) -> int:
        return self._client.send_many(messages, receipt_every=0)

    def _receive(self, pieces: list[bytes]) -> int:
        core, subscription, name = self._core, self._subscription, self.name
        batch, call, taken = subscription.batch, self._work.call, 0
        for piece in pieces:
            core.inbound.receive(piece, 0.0)
            core.inbound.take(subscription)
            while batch:
                message = batch.popleft()
                taken += 1
                if name == "client_ack":
                    message.ack()
                elif name == "client_handler":
                    call(message)
            core.link.take_output(0.0)
        return taken

    def check(self) -> None:
        """Do what `run` does, and see that each message of it did what the row says."""
        work, pieces = self.prepare()
        link, written = type(self._core.link), []
        take_output = link.take_output
        # Not in the instance: that would make each access to it slower.
        link.take_output = lambda link, now: written.extend(take_output(link, now)) or written
        try:
            assert self.run(work, pieces) == MESSAGES
            self._core.link.take_output(0.0)
        finally:
            link.take_output = take_output
        frames = [frame.command for frame in Parser("1.2").feed(b"".join(written))]
        sent = {"client_receive": [], "client_ack": ["ACK"], "client_handler": ["ACK"]}.get(self.name, ["SEND"])
        assert frames == sent * MESSAGES
        assert self._taken == (MESSAGES if self.name == "client_handler" else 0)
        assert self._subscription.open == (MESSAGES if self.name == "client_receive" else 0)

    def _messages(self) -> list[bytes]:
        fixed = [("subscription", "1"), ("destination", "/queue/a"), *_HEADERS.items()]
        return [
            serialize(Frame("MESSAGE", [*fixed, ("message-id", f"m{n:04}"), ("ack", f"a{n:04}")], _BODY), "1.2")
            for n in range(MESSAGES)
        ]

    def _written(self) -> None:
        while self._core.link.take_output(0.0):
            pass
