"""What only the shell for asyncio has."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from client.broker import BrokerThread
from client.calls import CALLS
from client.peer import Peer
from client.shells import QUICK
from patience import patience

import stompcodec.client as stomp


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
    """Or is refused; whichever way its user waits. A time-out of `get` that is shorter is no error."""

    async def main(peer):
        async with stomp.connect_async(peer.url) as client:
            patient = client.subscribe("/queue/b", timeout=patience(60))
            assert await patient.get(0.01) is None
            subscription = client.subscribe("/queue/a", timeout=0.05)
            with pytest.raises(stomp.ReceiptTimeoutError, match="SUBSCRIBE to /queue/a"):
                await WAYS[take](subscription)
            peer.rules["SUBSCRIBE"] = lambda side, frame: side.error(frame)
            with pytest.raises(stomp.RejectedError):
                await WAYS[take](client.subscribe("/queue/a"))

    with Peer(rules={"SUBSCRIBE": lambda side, frame: None}) as peer:
        asyncio.run(main(peer))


def test_a_client_may_be_entered_after_it_was_awaited(peer):
    """Or be closed before it was ever opened; and it may be made before its loop."""
    client, unopened = stomp.connect_async(peer.url), stomp.connect_async(peer.url)

    async def main():
        assert await client is client
        async with client as same:
            assert same is client is await client.open()
            await client.send("/queue/a", b"x", receipt=True)
        for _ in range(2):
            await unopened.close()
        assert (client.state, unopened.state) == ("closed", "closed")

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


#: What waits beside the others.
OTHERS = {
    "open": lambda o: o.client.open(),
    "block": lambda o: o.client.__aenter__(),
    "iteration": lambda o: o.subscription.__anext__(),
    "confirmation": lambda o: o.subscription,
    "receipt": lambda o: o.receipt,
    "close": lambda o: o.client.close(),
}


@pytest.fixture(scope="module")
def broker():
    with BrokerThread() as broker:
        yield broker


async def opened(url):
    client = await stomp.connect_async(url)
    await client.send("/queue/a", b"x", {"reply-to": "/queue/never"}, receipt=True)
    message = await client.subscribe("/queue/a", ack="client-individual").get(patience(10))
    transaction = await client.transaction().begin()
    subscription = client.subscribe("/queue/b")
    receipt = await client.send_for_receipt("/queue/c", b"x")
    await client.ping()  # both have come
    receipt._call.done = subscription.receipt._call.done = False  # as if they had not come
    objects = {"client": client, "subscription": subscription, "handled": subscription, "message": message}
    return SimpleNamespace(**objects, transaction=transaction, receipt=receipt)


@pytest.mark.parametrize("is_over", [True, False], ids=["after the first", "beside the first"])
def test_every_call_that_waits_says_so(broker, is_over):
    first = asyncio.new_event_loop()
    objects = first.run_until_complete(opened(broker.url))
    if is_over:
        first.close()

    waits = {**CALLS, **OTHERS}
    del waits["send"], waits["ack"], waits["send in a transaction"]  # these wait for nothing

    async def second():
        said = {}
        for name, call in waits.items():
            try:
                await asyncio.wait_for(call(objects), patience(5))
            except stomp.LocalProtocolError as error:
                said[name] = "was opened in another event loop" in str(error)
        assert said == dict.fromkeys(waits, True)
        with pytest.raises(stomp.LocalProtocolError, match=r"open a client in each asyncio\.run"):
            objects.client.subscribe("/queue/a", handler=print)
        async with stomp.connect_async(broker.url) as other:  # nothing was sent
            assert await other.receive("/queue/never") is None

    asyncio.run(second())
    if not is_over:
        assert objects.client.state == "connected"
        first.run_until_complete(objects.client.close())
        first.close()
        asyncio.run(objects.client.close())  # to close again does nothing


def test_a_client_whose_loop_has_ended_can_be_closed(broker):
    client = asyncio.run(stomp.connect_async(broker.url).open())
    asyncio.run(client.send("/queue/sent", b"x"))  # the I/O thread sends it
    with pytest.raises(stomp.LocalProtocolError, match="another event loop"):
        asyncio.run(client.close())
    client._link.engine.join(patience(10))
    assert client.state == "closed"
    asyncio.run(client.close())
