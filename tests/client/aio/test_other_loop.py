"""An asyncio client that is used from a second event loop says so at once."""

from __future__ import annotations

import asyncio

import pytest
from client.broker import BrokerThread
from patience import patience

import stompcodec.client as stomp

#: What waits, in the second loop: `c` is the client, `s` a subscription, `m` a message, `r` a receipt that was not
#: waited for, `t` an open transaction.
CALLS = {
    "open": lambda c, **_: c.open(),
    "block": lambda c, **_: c.__aenter__(),
    "send with a receipt": lambda c, **_: c.send("/queue/never", b"x", receipt=True),
    "send text": lambda c, **_: c.send("/queue/never", "x", {"a": "b"}, receipt=True),
    "send in pieces": lambda c, **_: c.send("/queue/never", [b"x"]),
    "send for a receipt": lambda c, **_: c.send_for_receipt("/queue/never", b"x"),
    "send many": lambda c, **_: c.send_many([("/queue/never", b"x")]),
    "send many without receipts": lambda c, **_: c.send_many([("/queue/never", b"x")], receipt_every=0),
    "request": lambda c, **_: c.request("/queue/never"),
    "receive": lambda c, **_: c.receive("/queue/a"),
    "ping": lambda c, **_: c.ping(),
    "wait for a connection": lambda c, **_: c.wait_connected(),
    "get": lambda s, **_: s.get(),
    "take": lambda s, **_: s.take(2),
    "iteration": lambda s, **_: s.__anext__(),
    "confirmation": lambda s, **_: s,
    "join": lambda s, **_: s.join(),
    "unsubscribe": lambda s, **_: s.unsubscribe(),
    "ack": lambda m, **_: m.ack(receipt=True),
    "nack": lambda m, **_: m.nack(receipt=True),
    "reply": lambda m, **_: m.reply(b"x", receipt=True),
    "receipt": lambda r, **_: r,
    "receipt, waited for": lambda r, **_: r.wait(),
    "begin": lambda c, **_: c.transaction().begin(),
    "commit": lambda t, **_: t.commit(),
    "abort": lambda t, **_: t.abort(),
    "drain": lambda c, **_: c.drain(),
    "close": lambda c, **_: c.close(),
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
    return {"c": client, "s": subscription, "m": message, "t": transaction, "r": receipt}


@pytest.mark.parametrize("is_over", [True, False], ids=["after the first", "beside the first"])
def test_every_call_that_waits_says_so(broker, is_over):
    first = asyncio.new_event_loop()
    objects = first.run_until_complete(opened(broker.url))
    if is_over:
        first.close()

    async def second():
        said = {}
        for name, call in CALLS.items():
            try:
                await asyncio.wait_for(call(**objects), patience(5))
            except stomp.LocalProtocolError as error:
                said[name] = "was opened in another event loop" in str(error)
        assert said == dict.fromkeys(CALLS, True)
        with pytest.raises(stomp.LocalProtocolError, match=r"open a client in each asyncio\.run"):
            objects["c"].subscribe("/queue/a", handler=print)
        async with stomp.connect_async(broker.url) as other:  # nothing was sent
            assert await other.receive("/queue/never") is None

    asyncio.run(second())
    if not is_over:
        assert objects["c"].state == "connected"
        first.run_until_complete(objects["c"].close())
        first.close()
        asyncio.run(objects["c"].close())  # to close again does nothing


def test_a_client_whose_loop_has_ended_can_be_closed(broker):
    client = asyncio.run(stomp.connect_async(broker.url).open())
    asyncio.run(client.send("/queue/sent", b"x"))  # the I/O thread sends it
    with pytest.raises(stomp.LocalProtocolError, match="another event loop"):
        asyncio.run(client.close())
    client._link.engine.join(patience(10))
    assert client.state == "closed"
    asyncio.run(client.close())


def test_a_client_may_be_made_before_its_loop(broker):
    client = stomp.connect_async(broker.url)

    async def main():
        async with client:
            await client.send("/queue/made", b"x", receipt=True)
            return await client.receive("/queue/made")

    assert asyncio.run(main()).body == b"x"
