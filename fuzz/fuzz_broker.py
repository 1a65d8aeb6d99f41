"""Invariant: whatever several peers send, whenever they go, time passes or the disk fails, the broker core raises
nothing, logs no fault of its own, and sends only frames that their sessions can read: each receipt once and in order,
nothing behind an ERROR. Its books agree: what queues hold is READY or UNACKED, in order, nothing is READY that somebody
could have, bounds hold, and in the end the store holds what is persistent, and nothing else."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from case import case_of
from engine import drive

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from broker.audit import difference
from broker.harness import Bench, FaultyStore, Peer

from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.sessions.transaction import Settling
from stompcodec.spec import VERSIONS, Limits

DESTINATIONS = (
    *("/queue/a", "/queue/b", "/topic/t", "/temp-queue/x", "/queue/DLQ.a", "plain", "/temp-topic/y", "/topic/u"),
)
MODES = ("auto", "client", "client-individual")
SECONDS = (0.1, 0.1, 0.2, 0.3, 0.9, 2.0, 40.0)
SMALL = {
    "limits": Limits(max_body=2000, max_headers=20, max_header_line=300),
    "first_limits": Limits(max_body=10, max_headers=8, max_header_line=100),
    **{"max_connections": 5, "max_subscriptions": 4, "max_transactions": 2, "max_transaction_octets": 3000},
    **{"max_unacked": 9, "prefetch": 3, "max_attempts": 3, "max_destinations": 7, "max_queue_messages": 6},
    **{"max_queue_octets": 2500, "topic_backlog": 3, "write_high": 400, "heart_beat": (500, 700)},
}
POLICIES = ("disconnect", "drop", "block")


class Faults(logging.Handler):
    """What the broker says is a fault of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        assert record.exc_info is None, self.format(record)


LOG = logging.getLogger("stompcodec.broker")
LOG.handlers, LOG.propagate = [Faults()], False
LOG.setLevel(logging.INFO)


class Script:
    """The wire of an input as orders: an octet says what, the next ones how."""

    def __init__(self, wire: bytes, **config: object) -> None:
        self.wire = iter(wire)
        self.bench = Bench(FaultyStore(background=len(wire) % 2 == 1), **SMALL, **config)
        self.peers: list[Peer] = []
        self.asked: dict[Peer, list[str]] = {}
        self.receipts = 0

    def octet(self) -> int:
        return next(self.wire, 0)

    def attach(self) -> Peer:
        peer = Peer(self.bench, VERSIONS[0], whole_frames=bool(len(self.bench.peers) % 2))
        peer.version = "1.2"
        return peer

    def run(self) -> None:
        orders: list[Callable[[int, Peer], None]] = [
            *(self.connect, self.subscribe, self.subscribe, self.send, self.send, self.send, self.ack, self.ack),
            *(self.nack, self.begin, self.commit, self.abort, self.unsubscribe, self.disconnect, self.raw),
            *(self.subscribe, self.send, self.ack, self.ack, self.ack, self.transport, self.lose, self.time, self.disk),
            *(self.turn, self.turn, self.turn),
        ]
        for number in range(3):
            self.peers.append(self.attach())
            self.renew(number)
        for number in self.wire:
            index = number // 3 % len(orders)
            orders[index](number % 3, self.peers[number % 3])
            if self.peers[number % 3].closed:
                self.lose(number % 3, self.peers[number % 3])
        for _ in range(3):
            self.turn(0, self.peers[0])

    # ---- orders ----

    def frame(self, peer: Peer, command: str, body: bytes = b"", **headers: str) -> None:
        how = self.octet()
        if peer.session.paused:  # nobody reads from it
            return
        if how % 3:
            self.receipts += 1
            odd = how % 2 and peer.parser.version is not None  # else nobody knows yet how it is written
            headers["receipt"] = f"r:{self.receipts}\\" if odd else f"r{self.receipts}"
        peer.version = peer.parser.version or "1.2"
        try:
            octets = peer.octets_of(command, body, **headers)
        except ValueError:  # this version cannot say that
            return
        if how % 3:
            self.asked.setdefault(peer, []).append(headers["receipt"])
        cut = how // 6 % max(len(octets), 1)
        peer.session.receive(memoryview(octets)[:cut], self.bench.now)
        peer.session.receive(octets[cut:], self.bench.now)

    def connect(self, _number: int, peer: Peer) -> None:
        how = self.octet()
        if peer.session.version and how < 240:
            return
        beats = {"heart_beat": f"{how * 100},{how * 7}"} if how % 4 == 0 else {}
        octets = peer.octets_of("CONNECT", accept_version=VERSIONS[how % 3], host="/", **beats)
        peer.session.receive(octets, self.bench.now)

    def subscribe(self, _number: int, peer: Peer) -> None:
        how, key = self.octet(), self.octet()
        window = {"prefetch_count": str(key % 5)} if how % 2 else {}
        destination = DESTINATIONS[how // 4 % 8]
        mode = MODES[how // 32 % 3] if key else "?"
        self.frame(peer, "SUBSCRIBE", id=f"{key % 40}", destination=destination, ack=mode, **window)

    def unsubscribe(self, _number: int, peer: Peer) -> None:
        how, keys = self.octet(), [consumer.key or "" for consumer in peer.session.consumers.values()]
        if keys or how > 250:
            self.frame(peer, "UNSUBSCRIBE", id=keys[how % len(keys)] if keys else "none")

    def transaction(self, peer: Peer) -> str:
        """The name of one that is open, mostly."""
        how, names = self.octet(), list(peer.session.transactions)
        return names[how % len(names)] if names and how < 250 else str(how % 3)

    def send(self, _number: int, peer: Peer) -> None:
        how, more = self.octet(), self.octet()
        headers = {"destination": DESTINATIONS[how % 8]}
        if how & 8:
            headers["persistent"] = "true"
        if how & 16 and (peer.session.transactions or more > 250):
            headers["transaction"] = self.transaction(peer)
        if how & 32:
            headers["expiration"] = str(more * 20)
        if how & 64:
            headers["reply_to"] = DESTINATIONS[more % 8]
        if how & 128:
            headers["odd"] = "a:b\\c\n"
        self.frame(peer, "SEND", b"\0x" * (more * 4 if more > 200 else more % 8), **headers)

    def ack(self, _number: int, peer: Peer, command: str = "ACK") -> None:
        how, consumers = self.octet(), peer.session.consumers.values()
        open_ = [(consumer, *item) for consumer in consumers for item in consumer.unacked.items()]
        inside = how % 4 == 0 and (peer.session.transactions or how > 250)
        headers = {"transaction": self.transaction(peer)} if inside else {}
        if how >= 250:
            self.frame(peer, command, id=f"{how % 3}-{how % 5}", message_id=f"e-{how}", subscription="1", **headers)
        elif open_:
            consumer, tag, message = open_[how // 4 % len(open_)]
            names = {"message_id": message.id, "subscription": consumer.key or "1"}
            self.frame(peer, command, id=f"{consumer.number}-{tag}", **names, **headers)

    def nack(self, number: int, peer: Peer) -> None:
        self.ack(number, peer, "NACK")

    def begin(self, _number: int, peer: Peer) -> None:
        self.frame(peer, "BEGIN", transaction=str(self.octet() % 50))

    def commit(self, _number: int, peer: Peer) -> None:
        if peer.session.transactions or self.octet() > 240:
            self.frame(peer, "COMMIT", transaction=self.transaction(peer))

    def abort(self, _number: int, peer: Peer) -> None:
        if peer.session.transactions or self.octet() > 240:
            self.frame(peer, "ABORT", transaction=self.transaction(peer))

    def disconnect(self, _number: int, peer: Peer) -> None:
        if self.octet() % 4 == 0:
            self.frame(peer, "DISCONNECT")

    def raw(self, _number: int, peer: Peer) -> None:
        octets = bytes(octet for octet, _ in zip(self.wire, range(self.octet() % 64)))
        peer.session.receive(octets, self.bench.now)

    def transport(self, _number: int, peer: Peer) -> None:
        peer.session.writable(bool(self.octet() % 2), self.bench.now)

    def lose(self, number: int, _peer: Peer) -> None:
        self.look()
        self.renew(number)

    def renew(self, number: int) -> None:
        """Another peer, mostly one that connects at once."""
        self.peers[number].session.lost(self.bench.now)
        self.peers[number] = self.attach()
        if self.octet() % 16:
            self.connect(number, self.peers[number])
            self.bench.turn()

    def time(self, _number: int, _peer: Peer) -> None:
        seconds = SECONDS[self.octet() % 7]
        self.bench.date += seconds
        self.bench.wait(seconds)
        self.look()

    def disk(self, _number: int, _peer: Peer) -> None:
        self.bench.store.faulty = not self.bench.store.faulty

    def turn(self, _number: int, _peer: Peer) -> None:
        if self.bench.store.job is not None and self.octet() % 2:
            self.bench.store.finish()
        self.bench.turn()
        self.look()

    # ---- what must hold ----

    def look(self) -> None:
        for peer in self.peers:
            self.look_at(peer)
        broker = self.bench.broker
        host = broker.virtual_host("/")
        queues = [*host.queues.values(), *(c.queue for t in host.topics.values() for c in t.consumers)]
        for queue in queues:
            self.look_at_queue(queue)
        assert difference(broker) == {}
        assert len(broker.sessions) <= SMALL["max_connections"]
        assert len(host.queues) + len(host.topics) <= SMALL["max_destinations"]

    def look_at(self, peer: Peer) -> None:
        frames = [frame for frame in peer.inbox if frame.command != "CONNECTED"]
        errors = [number for number, frame in enumerate(frames) if frame.command == "ERROR"]
        assert errors in ([], [len(frames) - 1]), f"something comes behind an ERROR: {frames[-3:]}"
        asked = iter(self.asked.get(peer, ()))
        for frame in frames:
            if frame.command == "RECEIPT":
                assert frame.headers["receipt-id"] in asked, "a receipt comes twice, out of order, or for nothing"

    def look_at_queue(self, queue: Queue) -> None:
        assert not queue.closed, queue
        unacked = [message for consumer in queue.consumers for message in consumer.unacked.values()]
        held = [message for o in self.held() if o.consumer.queue is queue for _, message in o.deliveries]
        assert queue.count == len(queue.messages) + len(unacked) + len(held)
        assert queue.octets == sum(message.size for message in (*queue.messages, *unacked, *held))
        order = [message.seq for message in queue.messages]
        assert order == sorted(order)
        if queue.messages:
            for consumer in queue.consumers:
                assert consumer.credit <= 0 or consumer.outbox.send_budget <= 0 or consumer.outbox.starved
        assert queue.count < 60

    def held(self) -> list[Settling]:
        """What is in transactions: open ones, and those whose commit is being written."""
        transactions = [t for session in self.bench.broker.sessions.values() for t in session.transactions.values()]
        journal = self.bench.broker.journal
        for batch in filter(None, (journal.batch, journal.busy)):
            applied = (getattr(action, "func", None) for action in batch.actions)
            transactions += [method.__self__ for method in applied if hasattr(method, "__self__")]
        return [operation for t in transactions for operation in t.operations if isinstance(operation, Settling)]

    def end(self) -> None:
        """Everybody goes, and the disk works."""
        self.bench.store.faulty = False
        for peer in self.peers:
            peer.session.lost(self.bench.now)
        for _ in range(4):
            if self.bench.store.job is not None:
                self.bench.store.finish()
            self.bench.turn()
            self.bench.wait(1.5)
        assert not self.bench.broker.sessions
        assert self.bench.store.job is None
        assert not self.bench.broker.journal.open
        queues = self.bench.broker.queues.values()
        kept = {message.seq for queue in queues for message in queue.messages if message.persistent}
        stored = {stored.seq for stored in self.bench.store.load()}
        if self.bench.broker.journal.failures:  # what somebody had got stays, though it was not stored
            assert stored <= kept
        else:
            assert stored == kept
        self.look()


def check(data: bytes) -> None:
    case = case_of(data)
    script = Script(case.wire[:3000], slow_consumer=POLICIES[case.plan % 3], transactional_acks=case.plan % 7 != 0)
    script.run()
    script.end()


if __name__ == "__main__":
    drive(check)
