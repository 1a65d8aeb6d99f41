"""`send` of asyncio sends at once; what it returns only waits."""

from __future__ import annotations

import asyncio
import inspect
from unittest import mock

import pytest
from client.middleware.layers import Notes
from client.peer import Peer
from patience import patience

import stompcodec.client as stomp
from stompcodec.errors import LocalProtocolError

OPTIONS = {"heart_beat": (0, 0), "receipt_timeout": 60.0}


def run(work, *middleware):
    async def main(peer) -> None:
        async with stomp.connect_async(peer.url, middleware=middleware, **OPTIONS) as client:
            await work(client, peer)

    with Peer() as peer:
        asyncio.run(main(peer))
        return [frame.body for frame in peer.got("SEND")]


def test_all_ways_to_await_it() -> None:
    async def work(client, peer) -> None:
        await client.send("/queue/a", b"1")
        task = asyncio.create_task(client.send("/queue/a", b"2"))
        assert isinstance(task, asyncio.Task)
        assert repr(task)
        assert await task is None
        assert await asyncio.gather(client.send("/queue/a", b"3"), client.send("/queue/a", b"4")) == [None, None]
        assert await asyncio.wait_for(client.send("/queue/a", b"5"), patience(60)) is None
        assert await asyncio.shield(client.send("/queue/a", b"6")) is None
        loop, sent = asyncio.get_running_loop(), client.send("/queue/a", b"7")
        future = await loop.run_in_executor(None, lambda: asyncio.run_coroutine_threadsafe(sent, loop))
        assert await asyncio.wrap_future(future) is None
        assert asyncio.iscoroutine(sent)
        sent.close()
        with pytest.raises(KeyError):
            sent.throw(KeyError("x"))
        await client.send("/queue/a", b"8", receipt=True)

    assert run(work) == [b"%d" % number for number in range(1, 9)]


@pytest.mark.parametrize("middleware", [[], [Notes()]], ids=["without", "with"])
def test_the_order_of_all_kinds_is_that_of_the_calls(middleware, tmp_path) -> None:
    (tmp_path / "body").write_bytes(b"3")

    async def work(client, peer) -> None:
        sends = [
            client.send("/queue/a", b"1", {"a": "b"}),
            client.send("/queue/a", b"2"),
            client.send("/queue/a", tmp_path / "body"),
            client.send("/queue/a", [b"4", b""], receipt=True, length=1),
            client.send("/queue/a", "5"),
            client.send("/queue/a", b"6", receipt=True, resend=True),
        ]
        await asyncio.gather(*reversed(sends))
        await client.send("/queue/a", b"7", receipt=True)

    assert run(work, *middleware) == [b"%d" % number for number in range(1, 8)]


def test_errors_come_when_it_is_awaited() -> None:
    def refuse(event) -> None:
        if event.body == b"bad":
            raise PermissionError("no")

    async def work(client, peer) -> None:
        found = await asyncio.gather(
            client.send("/queue/a", 5),
            client.send("/queue/a", b"bad"),
            client.send("/queue/a", b"x", timeout=float("nan")),
            client.send("/queue/a", b"x", resend=True),
            client.send("/queue/a", b"good", receipt=True),
            return_exceptions=True,
        )
        errors = [TypeError, PermissionError, ValueError, LocalProtocolError, type(None)]
        if not layers:
            errors[1] = type(None)
        assert [type(each) for each in found] == errors
        await client.close()
        refused = client.send("/queue/a", b"x")
        with pytest.raises(LocalProtocolError):
            await refused

    for layers, sent in (([], [b"bad", b"good"]), ([Notes(before_send=refuse)], [b"good"])):
        assert run(work, *layers) == sent


def test_it_still_looks_like_a_coroutine_function() -> None:
    assert asyncio.iscoroutinefunction(stomp.AsyncClient.send)
    double = mock.create_autospec(stomp.AsyncClient, instance=True)
    result = double.send("/queue/a", b"x")
    assert inspect.iscoroutine(result)
    result.close()


# ---- with middleware ----


def test_a_cancelled_send_leaves_the_middleware() -> None:
    notes = Notes()

    async def work(client, peer) -> None:
        peer.rules["SEND"] = lambda side, frame: None
        task = asyncio.create_task(client.send("/queue/a", b"1", receipt=True))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert notes.steps[-1] == "a!send CancelledError"
        client.send("/queue/a", b"2", receipt=True).close()
        assert notes.steps[-1] == "a!send GeneratorExit"

    run(work, notes)
