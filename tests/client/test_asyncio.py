"""What only asyncio has: `send` at once, loops that end, and the event loop that reads the socket itself."""

import asyncio
import contextlib
import inspect
import os
import time
from unittest import mock

import pytest
from client.calls import CALLS, objects_async
from client.middleware.layers import Notes
from client.peer import Peer
from client.shells import QUICK, busy_hub
from client.test_forks import child
from patience import patience

import stompcodec.client as stomp
from stompcodec.client import engine
from stompcodec.client.aio import waiting
from stompcodec.errors import LocalProtocolError

LONG = 60.0


def run(work, *middleware, **options):
    """Run `work` with a client and a server; return the bodies that were sent."""
    options = {"heart_beat": (0, 0), "receipt_timeout": LONG, "reconnect": QUICK, **options}

    async def main(peer):
        async with stomp.connect_async(peer.url, middleware=middleware, **options) as client:
            await work(client, peer)

    with Peer() as peer:
        asyncio.run(main(peer))
        return [frame.body for frame in peer.got("SEND")]


async def wait_for(done):
    until = time.monotonic() + patience(LONG)
    while not done():
        assert time.monotonic() < until
        await asyncio.sleep(0)


# ---- a missing `await` ----
@pytest.mark.parametrize("middleware", [(), (stomp.Middleware(),)], ids=["alone", "through middleware"])
@pytest.mark.parametrize("body", [b"1", [b"1"], {"a": 1}], ids=["bytes", "a source", "an error"])
def test_a_missing_await_is_named_by_the_method_of_the_program(middleware, body):
    async def work(client, peer):
        peer.rules["SEND"] = lambda side, frame: None
        with pytest.warns(RuntimeWarning, match=r"coroutine 'AsyncClient\.send' was never awaited"):
            client.send("/queue/a", body, receipt=True)

    run(work, *middleware)


@pytest.mark.parametrize("middleware", [(), (stomp.Middleware(),)], ids=["alone", "through middleware"])
@pytest.mark.parametrize(
    "call",
    [
        *(lambda client: client.send("/queue/a", b""), lambda client: client.send("/queue/a", b"", receipt=True)),
        *(lambda client: client.send_for_receipt("/queue/a"), lambda client: client.request("/queue/a")),
        *(lambda client: client.send_many([("/queue/a", b"")]), lambda client: client.receive("/queue/a")),
        *(lambda client: client.ping(), lambda client: client.wait_connected()),
    ],
)
def test_a_client_that_was_not_awaited_says_so(peer, call, middleware):
    async def main():
        with pytest.raises(LocalProtocolError, match="not open: write `await` before connect_async"):
            await call(stomp.connect_async(peer.url, middleware=middleware))

    asyncio.run(main())
    assert not peer.frames


# ---- what `send` returns only waits: the message is sent at once ----
def test_all_ways_to_await_it():
    async def work(client, peer):
        await client.send("/queue/a", b"1")
        task = asyncio.create_task(client.send("/queue/a", b"2"))
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
    assert asyncio.iscoroutinefunction(stomp.AsyncClient.send)
    result = mock.create_autospec(stomp.AsyncClient, instance=True).send("/queue/a", b"x")
    assert inspect.iscoroutine(result)
    result.close()


@pytest.mark.parametrize("middleware", [[], [Notes()]], ids=["without", "with"])
def test_the_order_of_all_kinds_is_that_of_the_calls(middleware, tmp_path):
    (tmp_path / "body").write_bytes(b"3")

    async def work(client, peer):
        sends = [
            *(client.send("/queue/a", b"1", {"a": "b"}), client.send("/queue/a", b"2")),
            client.send("/queue/a", tmp_path / "body"),
            *(client.send("/queue/a", [b"4", b""], receipt=True, length=1), client.send("/queue/a", "5")),
            client.send("/queue/a", b"6", receipt=True, resend=True),
        ]
        await asyncio.gather(*reversed(sends))
        await client.send("/queue/a", b"7", receipt=True)

    assert run(work, *middleware) == [b"%d" % number for number in range(1, 8)]


def test_a_cancelled_send_leaves_the_middleware():
    notes = Notes()

    async def work(client, peer):
        peer.rules["SEND"] = lambda side, frame: None
        task = asyncio.create_task(client.send("/queue/a", b"1", receipt=True))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert notes.steps[-1] == "a!send CancelledError"
        client.send("/queue/a", b"2", receipt=True).close()
        assert notes.steps[-1] == "a!send GeneratorExit"

    run(work, notes)


async def awaited(subscription):
    await subscription


WAYS = {
    "get": lambda subscription: subscription.get(patience(20)),
    **{"iterate": lambda subscription: subscription.__anext__(), "await": awaited},
    "enter": lambda subscription: subscription.__aenter__(),
}


@pytest.mark.parametrize("take", WAYS)
def test_a_subscription_that_is_never_confirmed_is_raised(take):
    async def work(client, peer):
        peer.rules["SUBSCRIBE"] = lambda side, frame: None
        assert await client.subscribe("/queue/b", timeout=patience(60)).get(0.01) is None
        with pytest.raises(stomp.ReceiptTimeoutError, match="SUBSCRIBE to /queue/a"):
            await WAYS[take](client.subscribe("/queue/a", timeout=0.05))
        peer.rules["SUBSCRIBE"] = lambda side, frame: side.error(frame)
        with pytest.raises(stomp.RejectedError):
            await WAYS[take](client.subscribe("/queue/a"))

    run(work)


def test_a_client_may_be_entered_after_it_was_awaited(peer):
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


def test_a_client_whose_opening_is_cancelled_is_closed(peer):
    client = stomp.connect_async(peer.url)
    peer.rules["CONNECT"] = lambda side, frame: None

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.open(), 0.05)
        assert (client.state, asyncio.all_tasks()) == ("closed", {asyncio.current_task()})

    asyncio.run(main())


#: What waits beside the others.
OTHERS = {
    **{"open": lambda o: o.client.open(), "block": lambda o: o.client.__aenter__()},
    **{"iteration": lambda o: o.subscription.__anext__(), "confirmation": lambda o: o.subscription},
    **{"receipt": lambda o: o.receipt, "close": lambda o: o.client.close()},
}


def test_a_closed_loop_leaves_no_events_behind(peer):
    """The client was not closed, so it connects again and again."""

    async def main():
        return await stomp.connect_async(peer.url, reconnect=QUICK, on_state=lambda *_: None)

    client = asyncio.run(main())
    for number in range(2, 6):
        peer.cut()
        peer.wait(lambda peer, number=number: len(peer.got("CONNECT")) == number)
    engine, delivery = client._link.engine, client._link.delivery
    asyncio.run(wait_for(lambda: engine.look(lambda: len(delivery._noted)) <= 1))
    engine.do(client._link.core.close, time.monotonic(), client._link.call("close", "", 1.0), 1.0)
    engine.join(patience(30))
    assert not delivery._noted


async def opened(url):
    return await objects_async(await stomp.connect_async(url))


@pytest.mark.parametrize("is_over", [True, False], ids=["after the first", "beside the first"])
def test_every_call_that_waits_says_so(broker, is_over):
    first = asyncio.new_event_loop()
    objects = first.run_until_complete(opened(broker.url))
    if is_over:
        first.close()
    for_nothing = {"send", "ack", "send in a transaction"}  # these wait for nothing
    waits = {name: call for name, call in (CALLS | OTHERS).items() if name not in for_nothing}

    async def second():
        said = {}
        for name, call in waits.items():
            try:
                await asyncio.wait_for(call(objects), patience(5))
            except LocalProtocolError as error:
                said[name] = "was opened in another event loop" in str(error)
        assert said == dict.fromkeys(waits, True)
        with pytest.raises(LocalProtocolError, match=r"open a client in each asyncio\.run"):
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
    with pytest.raises(LocalProtocolError, match="another event loop"):
        asyncio.run(client.close())
    client._link.engine.join(patience(10))
    assert client.state == "closed"
    asyncio.run(client.close())


lends = pytest.mark.skipif(not hasattr(os, "fork"), reason="loops of Windows do not watch sockets")


@pytest.fixture
def kept(monkeypatch):
    """A lent socket stays with the event loop, and callers always write themselves."""
    monkeypatch.setattr(engine, "_IDLE", 1e9)
    monkeypatch.setattr(engine, "_GATHER", -1.0)


async def talk(client):
    """Have a conversation until the event loop reads."""
    until, io = time.monotonic() + patience(LONG), client._link.engine
    while not io.look(lambda: (owner := io._owner) and owner.wire.is_lent):
        assert time.monotonic() < until
        await client.send("/queue/a", b"x", receipt=True)


@lends
@pytest.mark.parametrize("how", ["closed", "cancelled", "given up"])
def test_nothing_is_left_in_the_loop(kept, how):
    async def work(client, peer):
        await talk(client)
        selector = client._link.delivery.selector
        number = selector.fileno()
        if how == "given up":
            peer.cut()
        else:
            closing = asyncio.ensure_future(client.close())
            await asyncio.sleep(0)
            if how == "cancelled":
                closing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await closing
        await wait_for(lambda: selector.get_map() is None)
        assert not asyncio.get_running_loop().remove_reader(number)

    run(work, reconnect=None)


@lends
@pytest.mark.parametrize("error", [NotImplementedError, ValueError, OSError, None])
def test_a_loop_that_cannot_watch_sockets(error, monkeypatch, caplog):
    """As that of Windows; or none of the process's descriptors is left, for the loop or (None) for the selector."""
    refuse = mock.Mock(side_effect=error or OSError)

    async def work(client, peer):
        where = (waiting.selectors, "DefaultSelector") if error is None else (asyncio.get_running_loop(), "add_reader")
        monkeypatch.setattr(*where, refuse)
        for _ in range(5):
            await client.send("/queue/a", b"x", receipt=True)
        assert client._link.delivery.selector is None
        assert not [record for record in caplog.records if record.levelname == "ERROR"]
        monkeypatch.undo()

    run(work)


@lends
def test_a_bug_leaves_nobody_waiting(kept, monkeypatch, caplog):
    async def work(client, peer):
        await talk(client)
        monkeypatch.setattr(client._link.core.inbound, "receive", mock.Mock(side_effect=RuntimeError("a bug")))
        with pytest.raises(stomp.ConnectionLostError):
            await client.send("/queue/a", b"x", receipt=True)
        assert "a bug" in caplog.text

    run(work)


@lends
def test_a_child_process_leaves_it_to_its_parent(kept):
    async def work(client, peer):
        await talk(client)

        def leave():
            client._link.engine.read()
            client._link.engine.let_go()
            return "left"

        assert child(leave) == "left"
        with busy_hub():
            await client.send("/queue/a", b"x", receipt=True)

    run(work)
