"""`send` of asyncio sends at once; what it returns only waits."""

from __future__ import annotations

import asyncio
import inspect
from unittest import mock

import pytest
from client.peer import Peer
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.aio.waiting import Sent
from stompcodec.errors import LocalProtocolError

OPTIONS = {"heart_beat": (0, 0), "receipt_timeout": 60.0}


def run(work, **options):
    async def main(peer) -> None:
        async with stomp.connect_async(peer.url, **{**OPTIONS, **options}) as client:
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


def test_gathered_sends_make_no_tasks() -> None:
    async def work(client, peer) -> None:
        sends = [client.send("/queue/a", b"%d" % number) for number in range(100)]
        assert {type(send) for send in sends} == {Sent}
        before = len(asyncio.all_tasks())
        gathered = asyncio.gather(*sends)
        assert len(asyncio.all_tasks()) == before
        await gathered
        await client.send("/queue/a", b"last", receipt=True)

    assert run(work) == [*(b"%d" % number for number in range(100)), b"last"]


def test_the_order_of_all_kinds_is_that_of_the_calls() -> None:
    async def work(client, peer) -> None:
        await asyncio.gather(
            client.send("/queue/a", b"1", {"a": "b"}),
            client.send("/queue/a", b"2"),
            client.send("/queue/a", b"3", receipt=True),
            client.send("/queue/a", "4"),
            client.send("/queue/a", b"5", receipt=True, resend=True),
            client.send("/queue/a", b"6"),
        )
        await client.send("/queue/a", b"7", receipt=True)

    assert run(work) == [b"%d" % number for number in range(1, 8)]


def test_errors_come_when_it_is_awaited() -> None:
    async def work(client, peer) -> None:
        found = await asyncio.gather(
            client.send("/queue/a", 5),
            client.send("/queue/a", b"x", timeout=float("nan")),
            client.send("/queue/a", b"x", resend=True),
            client.send("/queue/a", b"good", receipt=True),
            return_exceptions=True,
        )
        assert [type(each) for each in found] == [TypeError, ValueError, LocalProtocolError, type(None)]
        await client.close()
        refused = client.send("/queue/a", b"x")
        with pytest.raises(LocalProtocolError):
            await refused

    assert run(work) == [b"good"]


def test_a_cancelled_wait_leaves_the_receipt_to_others() -> None:
    async def work(client, peer) -> None:
        held = []
        peer.rules["SEND"] = lambda side, frame: held.append((side, frame))
        receipt = await client.send_for_receipt("/queue/a", b"x")
        waits = [asyncio.create_task(receipt.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waits[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits[1]
        peer.wait(lambda _: held)
        peer.do(lambda: held[0][0].receipt(held[0][1]))
        await asyncio.gather(waits[0], waits[2])
        assert await receipt is None
        assert receipt.done

    run(work)


def test_it_still_looks_like_a_coroutine_function() -> None:
    assert asyncio.iscoroutinefunction(stomp.AsyncClient.send)
    double = mock.create_autospec(stomp.AsyncClient, instance=True)
    result = double.send("/queue/a", b"x")
    assert inspect.iscoroutine(result)
    result.close()
