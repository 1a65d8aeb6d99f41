"""Whether a message that was delivered comes again without `redelivered:true`: no end of the broker loses the mark."""

import shutil
import sqlite3
from contextlib import suppress

import pytest
from broker.harness import Bench
from broker.moves import transaction
from broker.storage.storing import inline

from stompcodec.errors import StoreError

_ACKS = {"ack": "client-individual"}
#: Headers of SEND, of SUBSCRIBE, and the version of the consumer, by the road that a message takes.
ROADS = {
    **{"plain": ({}, _ACKS, "1.2"), "1.1": ({}, {"ack": "client"}, "1.1")},
    "group": ({"message_group": "g"}, _ACKS, "1.2"),
    "selector": ({"color": "red"}, {"selector": "color = 'red'", **_ACKS}, "1.2"),
    **{"priority": ({"priority": "9"}, _ACKS, "1.2"), "expiring": ({"expiration": "900000"}, _ACKS, "1.2")},
    **{"delayed": ({"delay": "1000"}, _ACKS, "1.2"), "transaction": ({}, _ACKS, "1.2")},
    **{"durable": ({}, {"durable_subscription_name": "d", **_ACKS}, "1.2"), "receive": ({}, {}, "1.2")},
}
#: What becomes of the delivery before the end. The ACK comes last, and is not stored.
WAYS = {
    **{"held": lambda peer, message: None, "refused": lambda peer, message: peer.nack(message)},
    "lost": lambda peer, message: peer.lose(),
    "unsubscribed": lambda peer, message: peer.send("UNSUBSCRIBE", id="1"),
    "in a transaction": lambda peer, message: (peer.send("BEGIN", transaction="t"), peer.ack(message, transaction="t")),
    "acknowledged": lambda peer, message: peer.ack(message),
}
#: How the broker ends, once or more. "early" is before a commit that follows the deliveries, and at "full" the disk is
#: full from then on.
BODIES = (b"first", b"second".ljust(2000, b"."), b"third")
ENDS = ("kill", "early kill", "kill kill", "kill stop", "stop", "stop kill", "stop stop", "full", "full kill")


def copied(source: str, target: str) -> None:
    """Copy a file that a thread may remove meanwhile."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


class Folder:
    """A data folder with a broker whose process ends in some way. Each start has the other of two windows."""

    def __init__(self, path, window):
        self.path, self.window, self.runs, self.date = path, window, 0, 1e6
        self.start()

    def start(self):
        self.data = self.path / str(self.runs)
        self.bench = Bench(inline(self.data), large=1000, data=str(self.data), window_messages=self.window)
        self.window = 4001 - self.window
        self.bench.date = self.date = self.date + 100

    def end(self, how):
        before = self.data
        if how == "kill":  # what was written is there, and nothing else
            self.runs += 1
            shutil.copytree(before, self.path / str(self.runs), copy_function=copied)
        else:
            self.bench.broker.stop(self.bench.now)
            self.bench.turn()
            with suppress(StoreError):
                self.bench.store.close()
        self.start()

    def fill(self):
        """Have each commit fail as on a full disk, which leaves the connection as it is."""
        writer = self.bench.store._writer
        full = sqlite3.OperationalError("database or disk is full")
        writer.write = lambda batch: writer._undo(batch, full)


def _name(road, way):
    return f"/{'topic' if road == 'durable' else 'queue'}/{way.replace(' ', '-')}"


def _send(bench, road, way, body):
    sender, headers = bench.peer(), {"persistent": "true", **ROADS[road][0]}
    if road == "transaction":
        with transaction(sender, receipt="r"):
            sender.put(_name(road, way), body, transaction="t", **headers)
    else:
        sender.put(_name(road, way), body, receipt="r", **headers)
    assert sender.next("RECEIPT")


def _consumer(bench, road, way):
    _headers, asked, version = ROADS[road]
    peer = bench.client(version, **({"client_id": way} if road == "durable" else {}))
    if road == "receive":
        peer.raw(b"RECEIVE\ndestination:%b\nid:1\nack:client-individual\n\n\0" % _name(road, way).encode())
    else:
        peer.subscribe(_name(road, way), prefetch_count="1", **asked)
    return peer


def _left(bench, road, way):
    """All that is there."""
    taken, peer = [], _consumer(bench, "plain" if road == "receive" else road, way)
    bench.wait(2.0)
    while peer.inbox:
        taken.append(peer.next("MESSAGE"))
        peer.ack(taken[-1])
    return taken


@pytest.mark.parametrize(("road", "end"), [(road, end) for at, road in enumerate(ROADS) for end in ENDS[at % 2 :: 2]])
def test_no_end_of_the_broker_loses_the_mark_of_a_delivery(road, end, tmp_path):
    folder = Folder(tmp_path, 1 + 3999 * (len(road + end) % 2))
    bench = folder.bench
    for way in WAYS:
        if road == "durable":
            _consumer(bench, road, way).lose()
        for body in BODIES:
            _send(bench, road, way, body)
    bench.date += 2
    bench.wait(2.0)
    if "full" in end:
        folder.fill()
    seen = {}
    for way, act in WAYS.items():
        if "early" in end or (way == "acknowledged" and "full" not in end):
            bench.store.commit_later = lambda done, call_soon: None
        peer = _consumer(bench, road, way)
        message = peer.next("MESSAGE")
        assert (message.body, message.get("redelivered")) == (b"first", None)
        act(peer, message)
        seen[way] = {message.body, *(each.body for each in peer.take() if each.command == "MESSAGE")}
    vars(bench.store).pop("commit_later", None)
    for how in end.split():
        if how != "early":
            folder.end(how)
    for way in WAYS:
        came = _left(folder.bench, road, way)
        assert {each.body for each in came if each.get("redelivered") is None} & seen[way] == set(), way
        assert {each.body for each in came} | seen[way] == set(BODIES), way


@pytest.mark.parametrize("road", ["plain", "group", "selector"])
def test_the_end_of_the_broker_is_one_attempt_of_a_message(road, tmp_path):
    """What one session gives back is not delivered to those that end next."""
    folder = Folder(tmp_path, 4000)
    peers = [_consumer(folder.bench, road, "held") for _ in range(4)]
    _send(folder.bench, road, "held", b"first")
    assert sum(len(peer.take()) for peer in peers) >= 1
    folder.bench.broker.stop(folder.bench.now)
    folder.bench.turn()
    assert [frame.command for peer in peers for frame in peer.take()] == ["ERROR"] * 4
    folder.bench.store.close()
    folder.start()
    (message,) = _left(folder.bench, road, "held")
    assert message.get("redelivery-count") == "1"
