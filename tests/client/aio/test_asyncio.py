"""What only the shell for asyncio has."""

import asyncio
import threading
import time

import pytest
from client.peer import Peer
from client.shells import QUICK
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.client.aio.waiting import AsyncDelivery


def test_asyncio_idioms(peer):
    async def main():
        client = await stomp.connect_async(peer.url)
        await asyncio.gather(*[client.send("/queue/a", b"%d" % number, receipt=True) for number in range(50)])
        got = []
        async with client.subscribe("/queue/a", ack="client") as subscription:
            async for message in subscription:
                got.append(int(message.body))
                if len(got) == 50:
                    await message.ack()
                    break
        assert got == list(range(50))
        waiting = asyncio.create_task(client.subscribe("/queue/b").get())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.request("/queue/nobody", b"?"), 0.05)
        await client.close()

    asyncio.run(main())


def test_a_busy_iterator_lets_other_tasks_run(peer):
    """Even where messages are there always, each batch lets the other tasks have a turn."""
    frame = Frame("MESSAGE", {"subscription": "s1", "message-id": "m", "destination": "/queue/a"}, b"x")

    async def main():
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with stomp.connect_async(peer.url) as client:
            subscription = await client.subscribe("/queue/a")
            counter = asyncio.create_task(count())
            await asyncio.sleep(0)
            before = turns
            for _ in range(5):
                with client._link.engine.lock:
                    client._link.core.inbound.receive(serialize(frame), time.monotonic())
                await subscription.__anext__()
            assert turns >= before + 5
            counter.cancel()

    asyncio.run(main())


def test_a_handler_task_may_close_its_client(peer):
    async def main():
        closed = asyncio.Event()

        async def handle(message):
            await client.close()
            closed.set()

        client = await stomp.connect_async(peer.url)
        await client.subscribe("/queue/a", handler=handle)
        peer.deliver("s1", b"x")
        await asyncio.wait_for(closed.wait(), patience(5))

    asyncio.run(main())


def test_a_refused_subscription_is_raised_from_the_first_message():
    async def main(peer):
        async with stomp.connect_async(peer.url) as client:
            with pytest.raises(stomp.RejectedError):
                await client.subscribe("/queue/a").__anext__()

    with Peer(rules={"SUBSCRIBE": lambda side, frame: side.error(frame)}) as peer:
        asyncio.run(main(peer))


async def awaited(subscription):
    await subscription


WAYS = {
    "get": lambda subscription: subscription.get(patience(20)),
    "iterate": lambda subscription: subscription.__anext__(),
    "await": awaited,
    "enter": lambda subscription: subscription.__aenter__(),
}


@pytest.mark.parametrize("take", WAYS)
def test_a_subscription_that_is_never_confirmed_is_raised(take):
    """Whichever way its user waits; and a time-out of `get` that is shorter is no error."""

    async def main(url):
        async with stomp.connect_async(url) as client:
            patient = client.subscribe("/queue/b", timeout=patience(60))
            assert await patient.get(0.01) is None
            subscription = client.subscribe("/queue/a", timeout=0.05)
            with pytest.raises(stomp.ReceiptTimeoutError, match="SUBSCRIBE to /queue/a"):
                await WAYS[take](subscription)

    with Peer(rules={"SUBSCRIBE": lambda side, frame: None}) as peer:
        asyncio.run(main(peer.url))


def test_a_client_may_be_entered_after_it_was_awaited(peer):
    async def main():
        client = await stomp.connect_async(peer.url)
        async with client as same:
            assert same is client is await client.open()
            await client.send("/queue/a", b"x", receipt=True)
        assert client.state == "closed"

    asyncio.run(main())
    assert len(peer.got("CONNECT")) == 1


def test_a_closed_loop_leaves_no_events_behind():
    """The client was not closed, so it connects again and again."""

    async def main(url):
        return await stomp.connect_async(url, reconnect=QUICK, on_state=lambda *_: None)

    with Peer() as peer:
        client = asyncio.run(main(peer.url))
        for number in range(2, 5):
            peer.cut()
            peer.wait(lambda peer, number=number: len(peer.got("CONNECT")) == number)
        engine, delivery = client._link.engine, client._link.delivery
        peer.cut()
        peer.wait(lambda peer: len(peer.got("CONNECT")) == 5)
        until = time.monotonic() + patience(30)
        while engine.look(lambda: len(delivery._noted)) > 1:
            assert time.monotonic() < until, delivery._noted
            time.sleep(0.001)
        engine.do(client._link.core.close, time.monotonic(), client._link.call("close", "", 1.0), 1.0)
        engine.join(patience(30))
        assert not delivery._noted


def test_states_do_not_overtake_each_other(peer, monkeypatch):
    """The I/O thread is held up before it tells the loop that the client is connected again; the loop closes it."""
    states, connected, closing = [], threading.Event(), threading.Event()
    deliver = AsyncDelivery.deliver

    def slow_deliver(delivery, news):
        if ("connected", None) in news.events and "reconnecting" in states:
            connected.set()
            closing.wait(patience(30))
        deliver(delivery, news)
        if ("closing", None) in news.events:
            closing.set()

    monkeypatch.setattr(AsyncDelivery, "deliver", slow_deliver)

    async def main():
        def on_state(state, _error):
            states.append(state)

        async with stomp.connect_async(peer.url, reconnect=QUICK, on_state=on_state):
            peer.cut()
            assert await asyncio.to_thread(connected.wait, patience(30))

    asyncio.run(main())
    assert states == ["connected", "reconnecting", "connected", "closing", "closed"]


def test_a_client_that_was_never_opened_closes():
    async def run():
        client = stomp.connect_async("stomp://127.0.0.1:1")
        await client.close()
        await client.close()
        return client.state

    assert asyncio.run(run()) == "closed"
