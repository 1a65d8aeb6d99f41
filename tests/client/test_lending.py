"""The event loop reads the socket itself while a conversation goes on; the I/O thread takes it back when it must."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

import pytest
from client.busy import busy_hub
from client.peer import Peer
from client.test_forks import child
from patience import patience

import stompcodec.client as stomp
from stompcodec.client import engine
from stompcodec.client.aio import waiting
from stompcodec.errors import StompError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="loops of Windows do not watch sockets")
LONG = 60.0
OPTIONS = {"heart_beat": (0, 0), "receipt_timeout": LONG, "reconnect": stomp.Backoff(first=0.01, most=0.02)}


@pytest.fixture
def kept(monkeypatch):
    """A lent socket stays with the event loop, and callers always write themselves."""
    monkeypatch.setattr(engine, "_IDLE", 1e9)
    monkeypatch.setattr(engine, "_GATHER", -1.0)


def is_lent(client) -> bool:
    return client._link.engine.look(lambda: (owner := client._link.engine._owner) and owner.wire.is_lent)


async def talk(client) -> None:
    """Have a conversation until the event loop reads."""
    until = time.monotonic() + patience(LONG)
    while not is_lent(client):
        assert time.monotonic() < until
        await client.send("/queue/a", b"x", receipt=True)


async def wait_for(done) -> None:
    until = time.monotonic() + patience(LONG)
    while not done():
        assert time.monotonic() < until
        await asyncio.sleep(0)


def run(work, **options):
    """Run `work` with a client and a server."""

    async def main(peer) -> None:
        async with stomp.connect_async(peer.url, **{**OPTIONS, **options}) as client:
            await work(client, peer)

    with Peer() as peer:
        asyncio.run(main(peer))


def test_a_conversation_needs_no_other_thread(kept) -> None:
    async def work(client, peer) -> None:
        subscription = await client.subscribe("/queue/b", id="s")
        await talk(client)
        with busy_hub():
            for number in range(3):
                await client.send("/queue/a", b"x", receipt=True)
                peer.deliver("s", b"%d" % number)
                assert (await subscription.get(timeout=patience(LONG))).body == b"%d" % number

    run(work)


def test_a_blocked_loop_gives_the_socket_back() -> None:
    """The I/O thread reads, though the loop did nothing to allow it: else heart-beats would be missed."""

    async def work(client, peer) -> None:
        subscription = await client.subscribe("/queue/b", id="s")
        await talk(client)
        peer.deliver("s", b"x", count=3)
        until = time.monotonic() + patience(LONG)
        while is_lent(client) or client._link.engine.look(lambda: client._link.core.inbound.backlog) < 3:
            assert time.monotonic() < until  # the loop does nothing else meanwhile
        assert [(await subscription.get()).body for _ in range(3)] == [b"x"] * 3

    run(work)


def test_a_full_inbox_ends_it_and_nothing_more_is_read(kept) -> None:
    async def work(client, peer) -> None:
        subscription = await client.subscribe("/queue/b", id="s")
        await talk(client)
        inbound = client._link.core.inbound
        with busy_hub():
            peer.deliver("s", b"0", count=20)
            await wait_for(lambda: inbound.paused)
            before = inbound.backlog
            peer.deliver("s", b"1", count=20)
            for _ in range(500):
                await asyncio.sleep(0)
            assert inbound.backlog == before
        await wait_for(lambda: not is_lent(client))
        assert [int((await subscription.get()).body) for _ in range(40)] == [0] * 20 + [1] * 20

    run(work, inbox_messages=10)


@pytest.mark.parametrize("why", ["not watched", "much to read"])
def test_the_io_thread_goes_on_without_the_loop(kept, monkeypatch, why) -> None:
    async def work(client, peer) -> None:
        await talk(client)
        if why == "not watched":
            client._link.delivery._unwatch()
        else:
            monkeypatch.setattr(engine, "_MUCH", 0)
        for _ in range(3):
            await client.send("/queue/a", b"x", receipt=True)
            await wait_for(lambda: not is_lent(client))

    run(work)


def test_a_lost_connection_is_followed_by_another(kept) -> None:
    """The next socket often has the number of the last one."""

    async def work(client, peer) -> None:
        for number in range(1, 4):
            await talk(client)
            peer.cut()
            await wait_for(lambda number=number: client.epoch > number)
            await client.wait_connected()
        await talk(client)
        with busy_hub():
            await client.send("/queue/a", b"last", receipt=True)

    run(work)


@pytest.mark.parametrize("how", ["closed", "cancelled", "given up"])
def test_nothing_is_left_in_the_loop(kept, how) -> None:
    async def work(client, peer) -> None:
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


@pytest.mark.parametrize("error", [NotImplementedError, ValueError, OSError, None])
def test_a_loop_that_cannot_watch_sockets(error, monkeypatch, caplog) -> None:
    """As that of Windows; or none of the process's descriptors is left, for the loop or for the selector."""

    def refuse(*_):
        raise error or OSError

    async def work(client, peer) -> None:
        if error is None:
            monkeypatch.setattr(waiting.selectors, "DefaultSelector", refuse)
        else:
            monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
        for _ in range(5):
            await client.send("/queue/a", b"x", receipt=True)
        assert client._link.delivery.selector is None
        assert not [record for record in caplog.records if record.levelname == "ERROR"]
        monkeypatch.undo()

    run(work)


def test_frames_are_shown_in_their_order(kept) -> None:
    """So the event loop does not read if there is an `on_frame`."""

    async def work(client, peer) -> None:
        for _ in range(10):
            await client.send("/queue/a", b"x", receipt=True)
            assert not is_lent(client)

    run(work, on_frame=lambda direction, frame: None)


def test_an_interrupt_loses_the_connection_and_no_more(kept, monkeypatch) -> None:
    """Half a frame that was lost would make nonsense of the next ones."""
    loop = asyncio.new_event_loop()

    async def begin(peer):
        client = await stomp.connect_async(peer.url, **OPTIONS)
        await talk(client)
        return client

    def interrupt(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    with Peer() as peer, contextlib.closing(loop):
        client = loop.run_until_complete(begin(peer))
        monkeypatch.setattr(client._link.core.inbound, "receive", interrupt)
        call = loop.create_task(client.ping())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(call)
        with contextlib.suppress(StompError):
            loop.run_until_complete(call)
        loop.run_until_complete(wait_for(lambda: client.epoch == 2))
        loop.run_until_complete(client.send("/queue/a", b"last", receipt=True))
        loop.run_until_complete(client.close())


def test_a_bug_leaves_nobody_waiting(kept, monkeypatch, caplog) -> None:
    async def work(client, peer) -> None:
        await talk(client)

        def fail(*_):
            raise RuntimeError("a bug")

        monkeypatch.setattr(client._link.core.inbound, "receive", fail)
        with pytest.raises(stomp.ConnectionLostError):
            await client.send("/queue/a", b"x", receipt=True)
        assert "a bug" in caplog.text

    run(work)


def test_a_child_process_leaves_it_to_its_parent(kept) -> None:
    async def work(client, peer) -> None:
        await talk(client)

        def leave() -> str:
            client._link.engine.read()
            client._link.engine.let_go()
            return "left"

        assert child(leave) == "left"
        with busy_hub():
            await client.send("/queue/a", b"x", receipt=True)

    run(work)
