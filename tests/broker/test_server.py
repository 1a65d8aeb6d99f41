"""The broker over real sockets: turns, receipts that follow the disk, back-pressure, deadlines, and a tidy end."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from broker.sockets import CONFIG, Client, run, send, subscribe, until
from patience import patience

from stompcodec import Frame
from stompcodec.broker.server import Server, serve
from stompcodec.broker.storage.store import MemoryStore
from stompcodec.errors import StoreError


class CountingStore(MemoryStore):
    """Counts commits, and fails or waits on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[int] = []
        self.fails = False
        self.later = 0.0
        self.closed = False

    def commit_later(self, done: Any, call_soon: Any) -> None:
        """At once, or `later` seconds from now."""
        self.commits.append(self.pending)
        self.commit()
        error = StoreError("the disk is full") if self.fails else None
        if self.later:
            asyncio.get_running_loop().call_later(self.later, done, error)
        else:
            done(error)

    def close(self) -> None:
        self.closed = True
        super().close()


class Spy:
    """A wire whose writes are counted."""

    def __init__(self, wire: Any, writes: list[int]) -> None:
        self.wire = wire
        self.writes = writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wire, name)

    def write(self, chunks: list[bytes]) -> None:
        self.writes.append(len(chunks))
        self.wire.write(chunks)


# ---- turns ----


def test_memory_is_given_back_for_what_the_journal_lets_go_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(server: Server) -> None:
        seen: list[int] = []
        monkeypatch.setattr(server._heap, "look", seen.append)
        server.broker.journal.charge(server.broker.journal.batch, 77)
        server.turn()
        server._tick(True)
        assert (server._heap._most, seen) == (77, [77])

    run(main)


def test_no_receipt_without_the_disk() -> None:
    store = CountingStore()

    async def main(server: Server) -> None:
        store.fails = True
        client, other = await Client.connect(server), await Client.connect(server)
        answer = await client.ask(send("/queue/a", "x", "persistent:true", "receipt:r"))
        assert answer.command == "ERROR"
        assert answer.get("receipt-id") in (None, "r")
        assert await client.rest() == []
        assert (await other.ask(send("/queue/b", "x", "persistent:false", "receipt:r"))).command == "RECEIPT"
        store.fails = False
        assert (await other.ask(send("/queue/b", "x", "persistent:true", "receipt:r2"))).headers["receipt-id"] == "r2"
        assert (await other.ask(subscribe("/queue/a"))).command == "RECEIPT"
        assert (await other.ask(send("/queue/a", "second"))).body == b"second"
        for each in (client, other):
            await each.close()

    run(main, store=store)


def test_a_full_queue_stops_its_producer_only() -> None:
    async def main(server: Server) -> None:
        producer, other = await Client.connect(server), await Client.connect(server)
        producer.send(send("/queue/full", "x" * 1000) * 40_000)
        flooding = asyncio.ensure_future(producer.writer.drain())
        await until(lambda: any(peer.paused for peer in server.peers.values()))
        assert (await other.ask(send("/queue/b", "x", "receipt:r"))).command == "RECEIPT"
        assert not flooding.done()
        await other.ask(subscribe("/queue/full"))
        for _ in range(40_000):
            assert (await other.frame()).body == b"x" * 1000
        await flooding
        await until(lambda: not any(peer.paused for peer in server.peers.values()))
        for client in (producer, other):
            await client.close()

    run(main, CONFIG.replace(max_queue_messages=500))


def test_tls(tmp_path: Path) -> None:
    """Its own port, with the certificate of the config; a client that does not trust it gets nothing."""
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def main(server: Server) -> None:
        assert server.tls_port not in (None, server.port)
        client = Client(*await asyncio.open_connection("127.0.0.1", server.tls_port, ssl=trusting))
        assert (await client.ask("CONNECT\naccept-version:1.2\nhost:/\n\n\0")).command == "CONNECTED"
        assert [peer.listener for peer in server.peers.values()] == ["tls"]
        body = "x" * 1_000_000
        await client.ask(subscribe("/queue/a"))
        assert (await client.ask(send("/queue/a", body))).body == body.encode()
        await client.close()
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", server.tls_port, ssl=ssl.create_default_context())

    run(main, CONFIG.replace(tls_port=0, tls_cert=str(cert), tls_key=str(key)))


def test_a_slow_disk_holds_up_those_who_store_only() -> None:
    """Their receipts follow the commit, in the background; others are answered meanwhile; memory stays bounded."""
    store = CountingStore()
    store.later = 0.2

    async def main(server: Server) -> None:
        durable, transient = await Client.connect(server), await Client.connect(server)
        began = time.monotonic()
        for number in range(3):  # three batches, unless the first two are one
            durable.send(send("/queue/a", "x", "persistent:true", f"receipt:{number}"))
            for _ in range(20):
                assert (
                    await transient.ask(send("/queue/b", "x", "persistent:false", "receipt:r"))
                ).command == "RECEIPT"
        assert not durable.frames
        assert [(await durable.frame()).headers["receipt-id"] for _ in range(3)] == ["0", "1", "2"]
        assert time.monotonic() - began >= 0.2
        assert len(store.commits) in (2, 3)
        durable.send("".join(send("/queue/a", "x", "persistent:true") for _ in range(50_000)))
        await until(lambda: any(peer.paused for peer in server.peers.values()))
        assert (await transient.ask(send("/queue/b", "x", "persistent:false", "receipt:r"))).command == "RECEIPT"
        store.later = 0.0
        durable.send(send("/queue/a", "x", "persistent:true", "receipt:last"))
        assert (await durable.frame()).headers["receipt-id"] == "last"
        for client in (durable, transient):
            await client.close()

    run(main, store=store)
    assert sum(store.commits) == 50_004


def test_stop_waits_for_the_disk() -> None:
    """What was on its way to the disk when the broker was told to stop gets there, and its receipt to the sender."""
    store = CountingStore()
    store.later = 0.2

    async def main() -> list[Frame]:
        async with serve(CONFIG, store=store) as server:
            client = await Client.connect(server)
            client.send(send("/queue/a", "x", "persistent:true", "receipt:r"))
            await until(lambda: bool(store.commits))
        assert store.closed
        frames = await client.rest()
        await client.close()
        return frames

    assert [frame.command for frame in asyncio.run(main())] == ["RECEIPT", "ERROR"]


# ---- start and stop ----


def test_stop_does_not_wait_for_who_does_not_read() -> None:
    """A peer with megabytes in front of it, that reads nothing, is cut off after the time to drain."""

    async def main() -> float:
        async with serve(CONFIG.replace(drain_timeout=0.3)) as server:
            deaf = await Client.connect(server)
            await deaf.ask(subscribe("/queue/a"))
            deaf.writer.transport.pause_reading()
            producer = await Client.connect(server)
            await producer.ask(send("/queue/a", "x" * 20_000_000, "receipt:r"))
            began = time.monotonic()
        took = time.monotonic() - began
        assert not server.peers
        for client in (deaf, producer):
            await client.close()
        return took

    assert asyncio.run(main()) < patience(5)


def test_the_ready_file(tmp_path: Path) -> None:
    file = tmp_path / "ready"
    file.write_text("of an earlier broker")
    seen = []

    async def main(server: Server) -> None:
        seen.append(json.loads(file.read_text()))
        seen.append((server.port, server.ws_port))
        assert [path.name for path in tmp_path.iterdir()] == ["ready"]

    pytest.importorskip("websockets")
    run(main, CONFIG.replace(ws_port=0), ready=file)
    (port, ws_port) = seen[1]
    assert seen[0] == {
        "pid": os.getpid(),
        "host": "127.0.0.1",
        "port": port,
        "ws_port": ws_port,
        "tls_port": None,
        "legacy_port": None,
    }
    assert port != ws_port


def test_a_port_in_use_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither an open listener nor a locked store nor a ready file."""
    config = CONFIG.replace(data=str(tmp_path / "data"))

    async def main(server: Server) -> None:
        taken = config.replace(port=server.port)
        for _ in range(2):
            with pytest.raises(OSError, match=str(server.port)):
                await serve(taken, ready=tmp_path / "ready").start()
        assert not (tmp_path / "ready").exists()
        async with serve(config):
            with pytest.raises(StoreError):
                await serve(config).start()

    run(main)
