"""The fast path of SENDs with a transaction or a reply-to: with it and without it, clients and books are the same."""

from __future__ import annotations

from typing import Any

import pytest
from broker.harness import Bench, FaultyStore, Peer
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from stompcodec.broker.sessions import commands
from stompcodec.broker.storage.store import MemoryStore


def frame(command: str, *lines: str, body: str = "") -> bytes:
    return "\n".join([command, *lines, "", body]).encode() + b"\0"


def send(destination: str, lines: list[str], body: str) -> bytes:
    return frame("SEND", f"destination:{destination}", *lines, body=body)


LINKS = ["transaction:t", "transaction:u", "reply-to:/queue/b", "reply-to:/temp-queue/x", "reply-to:/temp-queue/a\\cb"]
OTHERS = ["receipt:7", "x:y", "priority:9", "delay:5", "expires:1", "idempotency-key:k", "retain:set", "JMSXGroupID:g"]
WRONG = ["transaction:none", "content-length:2", "message-id:forged", "reply-to:"]
destinations = st.sampled_from(["/queue/a", "/queue/a", "/queue/b", "/topic/t", "a", "/temp-queue/x"])
bodies = st.sampled_from(["hi", "", "x" * 900])
usual = st.builds(
    lambda destination, link, persistent, body: send(destination, [link, *persistent], body),
    *(destinations, st.sampled_from(LINKS), st.sampled_from([[], ["persistent:true"]]), bodies),
)
mixed = st.lists(st.sampled_from([*LINKS, *OTHERS, "persistent:true"]), max_size=4)
wrong = st.builds(lambda line: [line], st.sampled_from(WRONG))
special = st.builds(send, destinations, st.one_of(mixed, mixed, mixed, wrong), bodies)
ends = st.builds(
    lambda command, name, lines: frame(command, f"transaction:{name}", *lines) + frame("BEGIN", f"transaction:{name}"),
    *(
        st.sampled_from(["COMMIT", "COMMIT", "ABORT"]),
        st.sampled_from(["t", "u"]),
        st.sampled_from([[], ["receipt:9"]]),
    ),
)
reads = st.lists(st.one_of(usual, usual, usual, usual, special, ends), max_size=8)
EVENTS = ["turn", "written", "fails", "full", "room"]
steps = st.lists(st.one_of(reads, reads, reads, reads, st.sampled_from(EVENTS)), max_size=10)
configs = st.fixed_dictionaries(
    {
        "max_transaction_octets": st.sampled_from([3000, 2**24]),
        "max_queue_messages": st.sampled_from([None, 20]),
        "dialect": st.sampled_from(["stompcodec", "stompcodec", "rabbitmq"]),
    }
)


class World:
    """A broker with a sender and a consumer. Without `fast`, every SEND takes `_send_any`."""

    def __init__(self, config: dict[str, Any], fast: bool, background: bool) -> None:
        self.store = FaultyStore(background)
        self.bench = Bench(self.store, **config)
        self.bench.broker._entropy = bytes  # the ids of sessions are the same each time
        if not fast:
            self.bench.broker.handlers = {**commands.HANDLERS, "SEND": commands._send_any}
        self.consumer = self.bench.peer()
        self.begin()
        self.consumer.subscribe("/queue/a", ack="client-individual", prefetch_count="2")
        self.consumer.subscribe("/topic/t", id="2")

    def begin(self) -> None:
        """Let a new sender begin two transactions. Its destinations are cached from now on."""
        self.sender = self.bench.peer()
        for destination in ("/queue/a", "/queue/b", "/topic/t"):
            self.sender.put(destination, "first")
        self.sender.raw(frame("BEGIN", "transaction:t") + frame("BEGIN", "transaction:u"))

    def step(self, what: Any) -> None:
        bench = self.bench
        if what == "written":
            if self.store.job is not None:
                self.store.finish()
        elif what == "fails":
            self.store.faulty = not self.store.faulty
        elif what in ("full", "room"):
            bench.broker.journal.short = what == "full"
        elif what != "turn":
            self.sender.raw(b"".join(what))
        bench.turn()
        if self.sender.closed:
            self.begin()

    def seen(self) -> Any:
        """What clients see, and what the books say."""
        account, peers = self.bench.broker.account, (self.sender, self.consumer)
        queues = {
            name: [(each.id, each.tail, each.persistent) for each in queue.messages]
            for name, queue in self.bench.broker.queues.items()
        }
        held = [(each.session.memory.transactions, each.session.paused) for each in peers]
        stored = [(each.queue, each.id, each.tail) for each in self.store.load()]
        return [peer.octets for peer in peers], queues, held, stored, account.used, account.held


@given(configs, st.booleans(), steps)
@settings(max_examples=examples(200))
def test_it_is_the_same_with_and_without(config: dict[str, Any], background: bool, steps: Any) -> None:
    fast, slow = (World(config, fast, background) for fast in (True, False))
    for what in steps:
        fast.step(what)
        slow.step(what)
        assert fast.seen() == slow.seen()


@pytest.mark.parametrize("line", ["transaction:t", "reply-to:/queue/b", "reply-to:/temp-queue/mine"])
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_it_is_taken(line: str, persistent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(MemoryStore())
    peer, consumer = bench.peer(), bench.peer()
    consumer.subscribe("/queue/a")
    peer.put("/queue/a", "first")
    peer.send("BEGIN", transaction="t")
    monkeypatch.setattr(commands, "_send_any", None)  # whoever calls it fails
    peer.raw(frame("SEND", "destination:/queue/a", f"persistent:{persistent}", line, body="hi"))
    peer.send("COMMIT", transaction="t")
    assert consumer.bodies() == [b"first", b"hi"]


def begun(store: MemoryStore) -> tuple[Bench, Peer, Peer]:
    """A consumer of two queues, and a sender that has sent to both and has begun a transaction."""
    bench = Bench(store)
    peer, consumer = bench.peer(), bench.peer()
    for number, name in enumerate(("/queue/a", "/queue/b")):
        consumer.subscribe(name, id=str(number))
        peer.put(name, "first")
    peer.send("BEGIN", transaction="t")
    consumer.take()
    return bench, peer, consumer


def test_what_is_stored_is_delivered_after_its_commit_and_later_sends_stay_behind() -> None:
    store = FaultyStore(background=True)
    bench, peer, consumer = begun(store)
    peer.put("/queue/a", "1", transaction="t", persistent="true")
    peer.send("COMMIT", transaction="t", receipt="r")
    peer.put("/queue/a", "2", **{"reply-to": "/queue/b"})
    assert consumer.bodies() == []
    assert peer.take() == []
    store.finish()
    bench.turn()
    assert consumer.bodies() == [b"1", b"2"]
    assert peer.next("RECEIPT").headers["receipt-id"] == "r"


def test_each_message_goes_to_its_own_destination() -> None:
    _, peer, consumer = begun(MemoryStore())
    for number, name in enumerate(("/queue/a", "/queue/b", "/queue/b", "/queue/a")):
        peer.put(name, str(number), transaction="t")
    peer.send("COMMIT", transaction="t")
    found = {frame.body: frame.headers["subscription"] for frame in consumer.take()}
    assert found == {b"0": "0", b"1": "1", b"2": "1", b"3": "0"}


@pytest.mark.parametrize("headers", [{"transaction": "t"}, {"reply-to": "/queue/b"}])
def test_the_disk_is_full(headers: dict[str, str]) -> None:
    bench, peer, _ = begun(MemoryStore())
    bench.broker.journal.short = True
    peer.put("/queue/a", "1", persistent="true", **headers)
    assert "the disk is full" in peer.error().headers["message"]
