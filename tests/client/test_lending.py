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
