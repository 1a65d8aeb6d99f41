"""Header names with capitals over the legacy dialect, which folds them: every dialect of the broker hears each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.harness import Bench, Peer
from broker.sessions.test_legacy import Worker

from stompcodec import Frame, Parser
from stompcodec.broker import message
from stompcodec.broker.config import DIALECTS
from stompcodec.broker.selectors import _ALIASES
from stompcodec.broker.sessions import commands
from stompcodec.broker.sessions.session import NAMES
from stompcodec.connection import Connection

DOORS = ("legacy", "tcp")
Q = "/queue/q"


def bench_of(dialect: str, door: str, store: Any = None, **config: Any) -> Bench:
    return Bench(store, dialect=dialect, detect_legacy=door == "tcp", **config)


def worker(bench: Bench, door: str = "legacy") -> Worker:
    """A legacy session with a client-id, by a port of its own or told by its first frame."""
    peer = Worker(bench, listener=door)
    peer.raw(b"connect\nUsername: guest\nPasscode: guest\nClient-Id: me\n\n\0")
    assert peer.next("CONNECTED") is not None
    return peer


def send(peer: Peer, *lines: str, body: str = "x", destination: str = Q) -> None:
    peer.raw("\n".join(["SEND", f"destination:{destination}", *lines, "", f"{body}\0"]).encode())


def subscribe(peer: Peer, *lines: str, id: str = "1", ack: str = "client", destination: str = Q) -> None:
    head = ["SUBSCRIBE", f"destination:{destination}", f"id:{id}", f"ack:{ack}"]
    peer.raw("\n".join([*head, *lines, "", "\0"]).encode())


def groups(bench: Bench, peer: Peer, name: str) -> None:
    """Messages of a group go to one consumer."""
    subscribe(peer, id="1")
    subscribe(peer, id="2")
    for number in range(6):
        send(peer, f"{name}:g", body=str(number))
    assert len({frame.headers["subscription"] for frame in peer.take()}) == 1


def closes_group(bench: Bench, peer: Peer, name: str) -> None:
    """Behind the last message of a group, another consumer may get the next ones."""
    subscribe(peer, id="1", ack="client-individual")
    send(peer, "message_group:g", f"{name}:-1")
    assert all(peer.take())
    queue = bench.broker.queues["/", Q]
    assert all(
        message.closes_group for consumer in peer.session.consumers.values() for message in consumer.unacked.values()
    )
    assert queue.count == 1


def delays(bench: Bench, peer: Peer, name: str) -> None:
    """A message waits."""
    subscribe(peer)
    send(peer, f"{name}:5000")
    assert peer.take() == []
    bench.date += 5
    bench.wait(5.0)
    assert peer.bodies() == [b"x"]


def is_sent_once(bench: Bench, peer: Peer, name: str) -> None:
    """A second SEND with the key is not stored."""
    subscribe(peer)
    for _ in range(2):
        send(peer, f"{name}:k")
    assert peer.bodies() == [b"x"]


def bounds(bench: Bench, peer: Peer, name: str) -> None:
    """The prefetch of a subscription: a number of messages or, in the dialect artemis, of bytes."""
    subscribe(peer, f"{name}:1")
    for _ in range(3):
        send(peer)
    assert peer.bodies() == [b"x"]


def names_a_durable(bench: Bench, peer: Peer, name: str) -> None:
    """A durable subscription gets what was sent while its client was away."""
    topic = {"artemis": "q"}.get(bench.config.dialect, "/topic/q")
    subscribe(peer, f"{name}:mine", destination=topic)
    peer.lose()
    send(bench.peer(), destination=topic)
    again = worker(bench)
    subscribe(again, f"{name}:mine", destination=topic)
    assert again.bodies() == [b"x"]


def pauses(bench: Bench, peer: Peer, name: str) -> None:
    """The subscription asks for a pause after a NACK, which this version does not have."""
    subscribe(peer, f"{name}:5000")
    assert [consumer.request.redelivery_delay for consumer in peer.session.consumers.values()] == [5000]


#: Name -> what shows that it is heard.
EFFECTS: dict[str, Callable[[Bench, Peer, str], None]] = {
    "JMSXGroupID": groups,
    "JMSXGroupSeq": closes_group,
    "AMQ_SCHEDULED_DELAY": delays,
    "_AMQ_DUPL_ID": is_sent_once,
    "activemq.prefetchSize": bounds,
    "activemq.subscriptionName": names_a_durable,
    "activemq.redeliveryDelay": pauses,
}


def test_each_name_has_an_effect_that_is_tested() -> None:
    assert set(EFFECTS) == set(NAMES)
    selected = {header for headers in _ALIASES.values() for header in headers if header != header.lower()}
    assert selected <= set(NAMES)


@pytest.mark.req("LEG-HDR-05")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_heard(name: str, dialect: str, door: str) -> None:
    bench = bench_of(dialect, door)
    EFFECTS[name](bench, worker(bench, door), name)


class Heard:
    """A frame that notes which headers it was asked for."""

    asked: set[str]

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def __getattr__(self, name: str) -> Any:
        return getattr(self.frame, name)

    def get(self, name: str, *default: Any) -> Any:
        self.asked.add(name)
        return self.frame.get(name, *default)

    def has_any(self, *names: str) -> bool:
        self.asked.update(names)
        return self.frame.has_any(*names)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_other_name_with_a_capital_is_asked_for(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()
    receive = Connection.receive

    def heard(self: Connection, data: Any, now: float) -> Iterator[Any]:
        for frame in receive(self, data, now):
            yield type("Heard", (Heard,), {"asked": asked})(frame) if frame.body is not None else frame

    def real(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda frame, *values, **named: function(getattr(frame, "frame", frame), *values, **named)

    monkeypatch.setattr(Connection, "receive", heard)
    for module in (commands, message):
        monkeypatch.setattr(module, "serialize_tail", real(module.serialize_tail))
    bench = Bench(dialect=dialect, transactional_acks=True)
    peer = bench.peer(connect=False)
    peer.parser = Parser(None, commands=("PONG", "EMPTY"))
    peer.connect(client_id="me")
    topic = {"artemis": "q"}.get(dialect, "/topic/q")
    for ack in ("auto", "client", "client-individual"):
        subscribe(peer, id=ack, ack=ack)
    subscribe(peer, "durable-subscription-name:d", id="d", destination=topic)
    send(peer)
    send(peer, *("message_group:g", "delay:1", "priority:5", "expires:0", "persistent:true", "idempotency-key:k"))
    send(peer, "reply-to:/temp-queue/a", "transformation:jms-map-json")
    peer.raw(b"BEGIN\ntransaction:t\n\n\0")
    send(peer, "transaction:t")
    for frame in [frame for frame in peer.take() if frame.get("ack")]:
        peer.raw(b"ACK\nid:%b\ntransaction:t\n\n\0" % frame.headers["ack"].encode())
    peer.raw(b"COMMIT\ntransaction:t\n\n\0RECEIVE\ndestination:/queue/q\n\n\0PING\n\n\0")
    peer.raw(b"UNSUBSCRIBE\nid:auto\n\n\0UNSUBSCRIBE\nid:d\n\n\0DISCONNECT\nreceipt:1\n\n\0")
    assert peer.take()[-1].get("receipt-id") == "1"
    assert asked > {"destination", "receipt", "heart-beat", "transaction", "id"}
    assert {name for name in asked if name != name.lower()} == set(NAMES)


# ---- what else knows the names ----


def test_other_versions_and_selectors_see_the_usual_spelling() -> None:
    bench = Bench()
    reader = bench.peer()
    subscribe(reader, "selector:JMSXGroupID = 'g'", ack="auto")
    sender = worker(bench)
    send(sender, "JmsXGroupId:g", "Colour:red")
    (got,) = reader.take()
    assert (got.headers["JMSXGroupID"], got.headers["colour"]) == ("g", "red")
    send(sender, "JMSXGROUPID:other")
    subscribe(sender)
    assert b"\njmsxgroupid:other\n" in sender.octets


def test_other_versions_are_left_alone() -> None:
    bench = Bench()
    early = bench.peer(connect=False)
    early.raw(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0SEND\ndestination:/queue/q\namq_scheduled_delay:5000\n\nx\0")
    peer = bench.peer()
    subscribe(peer)
    send(peer, "amq_scheduled_delay:5000")
    assert peer.bodies() == [b"x", b"x"]


def test_behind_connect_in_one_read_and_in_a_transaction() -> None:
    bench = Bench()
    peer = Worker(bench, listener="legacy")
    sends = b"".join(b"send\ndestination:/queue/q\ntransaction:t\n_AMQ_DUPL_ID:%b\n\nx\0" % key for key in (b"k", b"k"))
    once = b"send\ndestination:/queue/q\n_AMQ_DUPL_ID:l\n\nx\0"
    peer.raw(b"connect\nusername:a\npasscode:b\n\n\0" + once * 2 + b"begin\ntransaction:t\n\n\0" + sends)
    assert bench.broker.queues["/", Q].count == 1
    peer.raw(b"commit\ntransaction:t\n\n\0")
    assert bench.broker.queues["/", Q].count == 2


def test_a_large_message() -> None:
    """Its SEND comes ahead of its body."""
    bench = Bench(large=10)
    peer = worker(bench)
    subscribe(peer)
    for _ in range(2):
        send(peer, "content-length:20", "_AMQ_DUPL_ID:k", "AMQ_SCHEDULED_DELAY:5000", body="x" * 20)
    assert peer.take() == []
    bench.date += 5
    bench.wait(5.0)
    assert len(peer.take()) == 1


def test_a_message_that_waits_still_waits_after_a_restart() -> None:
    bench = bench_of("stompcodec", "legacy")
    send(worker(bench), "AMQ_SCHEDULED_DELAY:5000", "JMSXGroupID:g", "persistent:true")
    again = Bench(bench.store)
    peer = again.peer()
    subscribe(peer)
    assert peer.take() == []
    again.date += 5
    again.wait(5.0)
    assert peer.bodies() == [b"x"]
