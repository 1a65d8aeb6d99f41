"""`persistent=` of each call that sends, and of the client: the header that goes out, from threads and from asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import io
from typing import Any

import pytest

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.client.middleware.base import Middleware
from stompcodec.client.outbox import Block
from stompcodec.testing import StompBroker

QUEUE = "/queue/a"
FRAME = Frame("SEND", {"destination": QUEUE}, b"x")
#: What each call sends, by the argument; `client` and `tx` are those of either kind.
CALLS: dict[str, Any] = {
    "bytes": lambda client, tx, **how: client.send(QUEUE, b"x", **how),
    "receipt": lambda client, tx, **how: client.send(QUEUE, b"x", receipt=True, **how),
    "empty": lambda client, tx, **how: client.send(QUEUE, b"", receipt=True, **how),
    "text": lambda client, tx, **how: client.send(QUEUE, "x", **how),
    "headers": lambda client, tx, **how: client.send(QUEUE, b"x", {"n": "1"}, receipt=True, **how),
    "source": lambda client, tx, **how: client.send(QUEUE, io.BytesIO(b"x" * 9000), receipt=True, length=9000, **how),
    "for_receipt": lambda client, tx, **how: client.send_for_receipt(QUEUE, b"x", **how),
    "many": lambda client, tx, **how: client.send_many([(QUEUE, b"x")], **how),
    "many_frames": lambda client, tx, **how: client.send_many([FRAME], **how),
    "many_blocks": lambda client, tx, **how: client.send_many([Block(serialize(FRAME), 1, "1.2")], **how),
    "transaction": lambda client, tx, **how: tx.send(QUEUE, b"x", **how),
}


class Watching(Middleware):
    """Notes the header of each message. With it no call takes a fast path."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []

    @contextlib.contextmanager
    def send(self, event: Any) -> Any:
        self.seen.append(event.headers.get("persistent"))
        yield


def sent(broker: StompBroker, kind: str, call: str, option: bool | None, **how: Any) -> str | None:
    """Return the header `persistent` of the SEND that a call of a client with this option makes."""
    do, before, watching = CALLS[call], len(broker.frames), Watching()
    options: Any = {"persistent": option, "middleware": [watching] if kind == "middleware" else []}
    if kind != "asyncio":
        with stomp.connect(broker.url, **options) as client, client.transaction() as tx:
            do(client, tx, **how)
    else:

        async def main() -> None:
            async with stomp.connect_async(broker.url, **options) as client, client.transaction() as tx:
                await do(client, tx, **how)

        asyncio.run(main())
    frame = broker.expect("SEND", destination=QUEUE)
    assert len([each for each in broker.frames[before:] if each.command == "SEND"]) == 1
    assert watching.seen in ([], [frame.get("persistent")])
    return frame.get("persistent")


@pytest.mark.parametrize("kind", ["threads", "asyncio", "middleware"])
@pytest.mark.parametrize("call", CALLS)
def test_the_argument_wins_over_the_option_of_the_client(kind: str, call: str) -> None:
    with StompBroker() as broker:
        for option in (None, True, False):
            for argument in (None, True, False):
                wanted = option if argument is None else argument
                expected = None if wanted is None else str(wanted).lower()
                assert sent(broker, kind, call, option, persistent=argument) == expected, (option, argument)


def test_headers_of_the_program_win_over_the_option() -> None:
    """And over the argument of send_many, which is for messages that do not say. Two that differ are refused."""
    with StompBroker() as broker, stomp.connect(broker.url, persistent=True) as client:
        no = {"persistent": "false"}
        client.send(QUEUE, b"x", no)
        client.send_many([(QUEUE, b"x", no), Frame("SEND", {"destination": QUEUE, **no}, b"x")], persistent=True)
        found = [broker.expect("SEND").get("persistent") for _ in range(3)]
        assert found == ["false"] * 3
        client.send(QUEUE, b"x", no, persistent=False)
        with pytest.raises(ValueError, match="persistent is True, and headers= says 'false': give one"):
            client.send(QUEUE, b"x", no, persistent=True)


@pytest.mark.parametrize("value", ["true", 1, b"x"])
def test_another_value_is_refused_by_name(value: Any) -> None:
    with StompBroker() as broker, stomp.connect(broker.url) as client, client.transaction() as tx:
        for call in CALLS.values():
            with pytest.raises(TypeError, match=r"persistent is .*: it must be True, False or None"):
                call(client, tx, persistent=value)
        with pytest.raises(TypeError, match=r"persistent is .*: it must be True, False or None"):
            client.request(QUEUE, b"x", persistent=value)
    with pytest.raises(TypeError, match=r"persistent is .*: it must be True, False or None"):
        stomp.connect("stomp://127.0.0.1:1", persistent=value)


@pytest.mark.parametrize(("option", "argument", "header"), [
    *((None, None, "false"), (None, True, "true"), (True, None, "true"), (True, False, "false")),
])  # fmt: skip
def test_a_request_is_kept_in_memory_unless_told(option: bool | None, argument: bool | None, header: str) -> None:
    with StompBroker() as broker, stomp.connect(broker.url, persistent=option) as client:
        with pytest.raises(stomp.ReceiptTimeoutError):
            client.request(QUEUE, b"x", 0.05, persistent=argument)
        assert broker.expect("SEND", destination=QUEUE).get("persistent") == header
