"""The broker over real sockets: turns, receipts that follow the disk, back-pressure, deadlines, and a tidy end."""

import asyncio
import json
import os
import ssl
import time

import pytest
from broker.sockets import CONFIG, Client, run, send, served, subscribe, until
from patience import patience

from stompcodec.broker.server import serve
from stompcodec.broker.storage.store import MemoryStore
from stompcodec.errors import StoreError


class CountingStore(MemoryStore):
    """Counts commits, and fails or waits on demand."""

    def __init__(self, later=0.0):
        super().__init__()
        self.commits, self.fails, self.later, self.closed = [], False, later, False

    def commit_later(self, done, call_soon):
        """At once, or `later` seconds from now."""
        self.commits.append(self.pending)
        self.commit()
        error = StoreError("the disk is full") if self.fails else None
        if self.later:
            asyncio.get_running_loop().call_later(self.later, done, error)
        else:
            done(error)

    def close(self):
        self.closed = True
        super().close()


async def clients(server, count=2):
    return [await Client.connect(server) for _ in range(count)]


async def received(client, *frame):
    """The receipt of a SEND."""
    answer = await client.ask(send(*frame))
    assert answer.command == "RECEIPT", answer
    return answer.headers["receipt-id"]


@served()
async def test_memory_is_given_back_for_what_the_journal_lets_go_too(server, monkeypatch):
    seen = []
    monkeypatch.setattr(server._heap, "look", seen.append)
    server.broker.journal.charge(server.broker.journal.batch, 77)
    server.turn()
    server._tick(True)
    assert (server._heap._most, seen) == (77, [77])


def test_no_receipt_without_the_disk():
    store = CountingStore()

    async def main(server):
        store.fails = True
        client, other = await clients(server)
        answer = await client.ask(send("/queue/a", "x", "persistent:true", "receipt:r"))
        assert answer.command == "ERROR"
        assert answer.get("receipt-id") in (None, "r")
        assert await client.rest() == []
        assert await received(other, "/queue/b", "x", "persistent:false", "receipt:r")
        store.fails = False
        assert await received(other, "/queue/b", "x", "persistent:true", "receipt:r2") == "r2"
        assert (await other.ask(subscribe("/queue/a"))).command == "RECEIPT"
        assert (await other.ask(send("/queue/a", "second"))).body == b"second"

    run(main, store=store)


@served(max_queue_messages=500)
async def test_a_full_queue_stops_its_producer_only(server):
    producer, other = await clients(server)
    producer.send(send("/queue/full", "x" * 1000) * 40_000)
    flooding = asyncio.ensure_future(producer.writer.drain())
    await until(lambda: any(peer.paused for peer in server.peers.values()))
    assert await received(other, "/queue/b", "x", "receipt:r")
    assert not flooding.done()
    await other.ask(subscribe("/queue/full"))
    for _ in range(40_000):
        assert (await other.frame()).body == b"x" * 1000
    await flooding
    await until(lambda: not any(peer.paused for peer in server.peers.values()))


def test_tls(certificate):
    """Its own port, with the certificate of the config; a client that does not trust it gets nothing."""

    @served(tls_port=0, tls_cert=certificate.cert, tls_key=certificate.key)
    async def main(server):
        assert server.tls_port not in (None, server.port)
        client = Client(*await asyncio.open_connection("127.0.0.1", server.tls_port, ssl=certificate.trusting))
        assert (await client.ask("CONNECT\naccept-version:1.2\nhost:/\n\n\0")).command == "CONNECTED"
        assert [peer.listener for peer in server.peers.values()] == ["tls"]
        body = "x" * 1_000_000
        await client.ask(subscribe("/queue/a"))
        assert (await client.ask(send("/queue/a", body))).body == body.encode()
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", server.tls_port, ssl=ssl.create_default_context())

    main()


def test_a_slow_disk_holds_up_those_who_store_only():
    """Their receipts follow the commit, in the background; others are answered meanwhile; memory stays bounded."""
    store = CountingStore(later=0.2)

    async def main(server):
        durable, transient = await clients(server)
        began = time.monotonic()
        for number in range(3):  # three batches, unless the first two are one
            durable.send(send("/queue/a", "x", "persistent:true", f"receipt:{number}"))
            for _ in range(20):
                assert await received(transient, "/queue/b", "x", "persistent:false", "receipt:r")
        assert not durable.frames
        assert [(await durable.frame()).headers["receipt-id"] for _ in range(3)] == ["0", "1", "2"]
        assert time.monotonic() - began >= 0.2
        assert len(store.commits) in (2, 3)
        durable.send(send("/queue/a", "x", "persistent:true") * 50_000)
        await until(lambda: any(peer.paused for peer in server.peers.values()))
        assert await received(transient, "/queue/b", "x", "persistent:false", "receipt:r")
        store.later = 0.0
        assert await received(durable, "/queue/a", "x", "persistent:true", "receipt:last") == "last"

    run(main, store=store)
    assert sum(store.commits) == 50_004


# ---- start and stop ----


def test_stop_waits_for_the_disk():
    """What was on its way to the disk when the broker was told to stop gets there, and its receipt to the sender."""
    store = CountingStore(later=0.2)

    async def main():
        async with serve(CONFIG, store=store) as server:
            client = await Client.connect(server)
            client.send(send("/queue/a", "x", "persistent:true", "receipt:r"))
            await until(lambda: bool(store.commits))
        assert store.closed
        assert [frame.command for frame in await client.rest()] == ["RECEIPT", "ERROR"]
        await client.close()

    asyncio.run(main())


def test_stop_does_not_wait_for_who_does_not_read():
    """A peer with megabytes in front of it, that reads nothing, is cut off after the time to drain."""

    async def main():
        async with serve(CONFIG.replace(drain_timeout=0.3)) as server:
            deaf, producer = await clients(server)
            await deaf.ask(subscribe("/queue/a"))
            deaf.writer.transport.pause_reading()
            await received(producer, "/queue/a", "x" * 20_000_000, "receipt:r")
            began = time.monotonic()
        took = time.monotonic() - began
        assert not server.peers
        for client in (deaf, producer):
            await client.close()
        return took

    assert asyncio.run(main()) < patience(5)


def test_the_ready_file(tmp_path):
    pytest.importorskip("websockets")
    file = tmp_path / "ready"
    file.write_text("of an earlier broker")

    async def main(server):
        assert server.port != server.ws_port
        address = {"host": "127.0.0.1", "port": server.port, "ws_port": server.ws_port}
        assert json.loads(file.read_text()) == {"pid": os.getpid(), **address, "tls_port": None, "legacy_port": None}
        assert [path.name for path in tmp_path.iterdir()] == ["ready"]

    run(main, CONFIG.replace(ws_port=0), ready=file)


def test_a_port_in_use_leaves_nothing_behind(tmp_path):
    """Neither an open listener nor a locked store nor a ready file."""
    config = CONFIG.replace(data=str(tmp_path / "data"))

    async def main(server):
        taken = config.replace(port=server.port)
        for _ in range(2):
            with pytest.raises(OSError, match=str(server.port)):
                await serve(taken, ready=tmp_path / "ready").start()
        assert not (tmp_path / "ready").exists()
        async with serve(config):
            with pytest.raises(StoreError):
                await serve(config).start()

    run(main)
