"""Durable subscriptions and the store: what survives, what waits for the disk, and what a failure leaves behind."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from broker.durables import NAME, TOPIC, client, leave, names, subscribe
from broker.harness import Bench, FaultyStore
from patience import patience

import stompcodec
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.storage.store import MemoryStore


@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.req("ART-SEL-01")
def test_with_a_selector_only_those_are_kept_and_stored(transaction):
    pytest.importorskip("lark")
    store = MemoryStore()
    bench = Bench(store)
    sender, peer = bench.peer(), client(bench)
    subscribe(peer, selector="n > 1")
    leave(peer)
    inside = {"transaction": "t"} if transaction else {}
    if transaction:
        sender.send("BEGIN", transaction="t")
    for number in range(4):
        sender.put(TOPIC, str(number), n=str(number), persistent="true", **inside)
    if transaction:
        sender.send("COMMIT", transaction="t")
    assert [found.tail[-2:-1] for found in store.load()] == [b"2", b"3"]
    again = Bench(store)
    again.peer().put(TOPIC, "4", n="1")
    again.peer().put(TOPIC, "5", n="5")
    peer = client(again)
    subscribe(peer, selector="n > 1")
    assert peer.bodies() == [b"2", b"3", b"5"]


def test_a_receipt_between_two_turns_comes_after_its_message_is_stored():
    """A commit that ends between two turns begins the next: it has all that the sessions were promised."""
    store = MemoryStore()
    bench = Bench(store)
    sender, peer = bench.peer(), client(bench)
    subscribe(peer)
    leave(peer)
    sender.session.receive(sender.octets_of("SEND", b"x", destination=TOPIC, persistent="true", receipt="r"), 0.0)
    for session in bench.broker.settle(bench.now):
        bench.peers[session].flush()
    assert [frame.command for frame in sender.inbox] == ["RECEIPT"]
    assert [found.tail[-2:-1] for found in store.load()] == [b"x"]


def test_persistent_ones_survive_and_others_do_not():
    store = MemoryStore()
    bench = Bench(store)
    sender, peer = bench.peer(), client(bench)
    subscribe(peer)
    subscribe(peer, "wild", "/topic/b", "2")
    leave(peer)
    for number in range(4):
        sender.put(TOPIC, str(number), **({"persistent": "true"} if number % 2 else {}))
    again = Bench(store)
    assert names(again) == ["c.n", "c.wild"]
    again.peer().put(TOPIC, "4")
    peer = client(again)
    subscribe(peer)
    assert peer.bodies() == [b"1", b"3", b"4"]
    assert list(store.load()) == []


def test_nothing_is_stored_for_topics_without():
    bench = Bench()
    sender, peer = bench.peer(), bench.peer()
    peer.subscribe(TOPIC)
    sender.put(TOPIC, "1", persistent="true")
    assert list(bench.store.load()) == []


def test_a_pattern():
    store = MemoryStore()
    bench = Bench(store, wildcards="artemis")
    sender, peer = bench.peer(), client(bench)
    subscribe(peer, destination="/topic/#")
    leave(peer)
    for name in ("/topic/b", "/topic/a", "/topic/b.c"):
        sender.put(name, name, persistent="true")
    again = Bench(store, wildcards="artemis")
    again.peer().put("/topic/d", "d", persistent="true")
    peer = client(again)
    subscribe(peer, destination="/topic/#")
    assert peer.bodies() == [b"/topic/b", b"/topic/a", b"/topic/b.c", b"d"]


def test_the_receipt_waits_for_the_store():
    store = FaultyStore(background=True)
    bench = Bench(store)
    sender, peer = bench.peer(), client(bench)
    for frame in (
        partial(subscribe, peer, receipt="s", ack="client-individual"),
        partial(sender.put, TOPIC, "1", persistent="true", receipt="r"),
    ):
        frame()
        assert [got.command for got in (*peer.take(), *sender.take())] in ([], ["MESSAGE"])
        store.finish()
        bench.turn()
        assert "RECEIPT" in [got.command for got in (*peer.take(), *sender.take())]


def test_one_that_could_not_be_stored_is_not_there():
    store = FaultyStore()
    bench = Bench(store)
    peer = client(bench)
    store.faulty = True
    subscribe(peer, receipt="s")
    assert "stored" in peer.error().headers["message"]
    assert names(bench) == []
    store.faulty = False
    bench.peer().put("/queue/x", "1", persistent="true")
    assert list(store.subscriptions()) == []


def test_an_end_that_could_not_be_stored_is_stored_later():
    store = FaultyStore()
    bench = Bench(store)
    peer = client(bench)
    subscribe(peer)
    store.faulty = True
    peer.send("UNSUBSCRIBE", id="1", receipt="r", **{NAME: "n"})
    assert "stored" in peer.error().headers["message"]
    assert len(list(store.subscriptions())) == 1
    store.faulty = False
    bench.wait(5)
    assert list(store.subscriptions()) == []


def test_what_was_sent_before_it_is_not_for_it():
    """A transaction is on its way to the store when somebody subscribes."""
    store = FaultyStore(background=True)
    bench = Bench(store)
    sender, peer, listener = bench.peer(), client(bench), bench.peer()
    listener.subscribe(TOPIC)
    sender.send("BEGIN", transaction="t")
    sender.put(TOPIC, "1", transaction="t")
    sender.put("/queue/q", "1", transaction="t", persistent="true")
    sender.send("COMMIT", transaction="t")
    subscribe(peer, ack="client")
    while store.job is not None:
        store.finish()
        bench.turn()
    sender.put(TOPIC, "2")
    assert [frame.body for frame in peer.take()] == [b"2"]
    assert listener.bodies() == [b"1", b"2"]


def test_a_transaction_that_outlives_it_leaves_nothing_behind():
    store = FaultyStore(background=True)
    bench = Bench(store)
    sender, peer = bench.peer(), client(bench)
    subscribe(peer)
    store.finish()
    bench.turn()
    sender.send("BEGIN", transaction="t")
    sender.put(TOPIC, "1", transaction="t", persistent="true")
    sender.send("COMMIT", transaction="t")
    peer.send("UNSUBSCRIBE", id="1", **{NAME: "n"})
    while store.job is not None:
        store.finish()
        bench.turn()
    bench.peer().put("/queue/x", "x", persistent="true")
    while store.job is not None:
        store.finish()
        bench.turn()
    assert [found.destination for found in store.load()] == ["/queue/x"]
    assert list(store.subscriptions()) == []


def settle(bench):
    """Until all is on the disk."""
    give_up = time.monotonic() + patience(20)
    journal = bench.broker.journal
    while (journal.open or journal.busy is not None or bench.soon) and time.monotonic() < give_up:
        bench.turn()
        time.sleep(0.001)


def test_it_survives_in_a_file(tmp_path):
    for run in range(3):
        store = SqliteStore(tmp_path)
        bench = Bench(store)
        sender = bench.peer()
        if run == 0:
            peer = client(bench)
            subscribe(peer)
            subscribe(peer, "gone", id="2")
            peer.send("UNSUBSCRIBE", id="2", **{NAME: "gone"})
        assert names(bench) == ["c.n"]
        sender.put(TOPIC, str(run), persistent="true")
        settle(bench)
        if run == 0:
            assert peer.bodies() == [b"0"]
            leave(peer)
        settle(bench)
        store.close()
    store = SqliteStore(tmp_path)
    peer = client(Bench(store))
    subscribe(peer)
    assert peer.bodies() == [b"1", b"2"]
    store.close()


CHILD = """
import asyncio, sys
from stompcodec.broker import Config, run
run(Config(port=0, data=sys.argv[1]), ready=sys.argv[2], uvloop=False)
"""


def start(folder):
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    paths = [str(Path(stompcodec.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    process = subprocess.Popen([sys.executable, "-c", CHILD, str(folder / "data"), str(ready)], env=environment)
    give_up = time.monotonic() + patience(60)
    while not ready.exists():
        assert process.poll() is None
        assert time.monotonic() < give_up
        time.sleep(0.005)
    return process, json.loads(ready.read_text())["port"]


class Link:
    """A client with the client-id "c"."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.parser = stompcodec.Parser("1.2")
        self.bodies = []
        self.socket.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nclient-id:c\n\n\0")
        self.read()

    def read(self):
        """Return the frames that came, except the messages."""
        data = self.socket.recv(65536)
        assert data, "the connection is closed"
        frames = list(self.parser.feed(data))
        self.bodies += [frame.body for frame in frames if frame.command == "MESSAGE"]
        assert all(frame.command != "ERROR" for frame in frames), frames
        return [frame.command for frame in frames]

    def done(self, frame):
        """A frame and its receipt."""
        self.socket.sendall(frame.encode())
        while "RECEIPT" not in self.read():
            pass


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing can be killed at once here")
def test_what_has_a_receipt_survives_a_kill(tmp_path):
    """Each broker is killed right after its receipts; the next one goes on."""
    expected = []
    for run in range(3):
        process, port = start(tmp_path)
        try:
            link = Link(port)
            if run == 0:
                link.done(f"SUBSCRIBE\nid:1\ndestination:{TOPIC}\n{NAME}:n\nreceipt:s\nack:client\n\n\0")
            for number in range(20):
                body = f"{run}-{number}"
                link.done(f"SEND\ndestination:{TOPIC}\npersistent:true\nreceipt:s\n\n{body}\0")
                expected.append(body.encode())
        finally:
            process.kill()
            process.wait(patience(20))
            link.socket.close()
    process, port = start(tmp_path)
    try:
        link = Link(port)
        link.socket.sendall(f"SUBSCRIBE\nid:1\ndestination:{TOPIC}\n{NAME}:n\nack:client\n\n\0".encode())
        while len(link.bodies) < len(expected):
            link.read()
        assert link.bodies == expected
        link.socket.close()
    finally:
        process.kill()
        process.wait(patience(20))
