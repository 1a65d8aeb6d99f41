"""Invariant: whatever octets several peers send and whenever they go, time passes or the disk fails, the broker raises
nothing, logs no fault of its own, sends only frames that can be read and none behind an ERROR; its account is what it
holds, and in the end the store holds what is persistent. And whatever frames they send, whole or cut, it does what its
model does: `tests/broker/test_state_machine.py`, whose choices are the octets."""

from __future__ import annotations

import logging

from case import VERSIONS, case_of, drive, pieces, rolls

# isort: split
from broker.harness import Bench, FaultyStore, Peer
from broker.test_state_machine import BrokerMachine
from hypothesis import settings
from hypothesis.stateful import get_state_machine_test

from stompcodec.spec import Limits

SMALL = {
    "limits": Limits(max_body=2000, max_headers=20, max_header_line=300),
    "first_limits": Limits(max_body=10, max_headers=8, max_header_line=100),
    **{"max_connections": 5, "max_subscriptions": 4, "max_transactions": 2, "max_transaction_octets": 3000},
    **{"max_unacked": 9, "prefetch": 3, "max_attempts": 3, "max_destinations": 7, "max_queue_messages": 6},
    **{"max_queue_octets": 2500, "topic_backlog": 3, "write_high": 400, "heart_beat": (500, 700)},
}
POLICIES = ("disconnect", "drop", "block")
SECONDS = (0.1, 0.3, 0.9, 2.0, 40.0)


class Faults(logging.Handler):
    """What the broker says is a fault of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        assert record.exc_info is None, self.format(record)


LOG = logging.getLogger("stompcodec.broker")
LOG.handlers, LOG.propagate = [Faults()], False
LOG.setLevel(logging.INFO)
machine = get_state_machine_test(BrokerMachine, settings=settings(database=None)).hypothesis.fuzz_one_input


def check(data: bytes) -> None:
    if data[:1] >= b"\x80":
        machine(data[1:])
        return
    case = case_of(data)
    bench = Bench(FaultyStore(background=case.plan % 2 == 1), slow_consumer=POLICIES[case.plan % 3], **SMALL)
    peers = [attached(bench, number) for number in range(3)]
    for piece, roll in zip(pieces(case.wire[:6000], case.plan), rolls(case.plan)):
        number = roll % 3
        peers[number].session.receive(piece, bench.now)
        happen(bench, peers[number], roll // 3)
        bench.turn()
        look(bench, peers[number])
        if peers[number].closed:
            peers[number].lose()
            peers[number] = attached(bench, roll)
    end(bench, peers)


def attached(bench: Bench, roll: int) -> Peer:
    """A peer, mostly one that has connected."""
    peer = Peer(bench, VERSIONS[roll % 3], whole_frames=roll % 2 == 1)
    if roll % 7 != 6:
        peer.raw(peer.octets_of("CONNECT", accept_version=peer.version, host="/"))
    return peer


def happen(bench: Bench, peer: Peer, roll: int) -> None:
    """Now and then, let a commit end, a peer go, the disk fail or recover, or time pass."""
    if bench.store.job is not None and roll % 2:
        bench.store.finish()
    if roll > 80:
        peer.session.lost(bench.now)
        peer.closed = True
    elif roll > 75:
        bench.store.faulty = not bench.store.faulty
    elif roll > 70:
        seconds = SECONDS[roll % 5]
        bench.date += seconds
        bench.wait(seconds)
    elif roll > 65:
        peer.session.writable(roll % 2 == 0, bench.now)


def look(bench: Bench, peer: Peer) -> None:
    """Check what a peer got, and the limits of the broker. `Bench.turn` checks the account."""
    commands = [frame.command for frame in peer.inbox]
    assert "ERROR" not in commands[:-1], f"something comes behind an ERROR: {commands}"
    host = bench.broker.virtual_host("/")
    assert len(bench.broker.sessions) <= SMALL["max_connections"]
    assert len(host.queues) + len(host.topics) <= SMALL["max_destinations"]


def end(bench: Bench, peers: list[Peer]) -> None:
    """Everybody goes, and the disk works."""
    bench.store.faulty = False
    for peer in peers:
        peer.session.lost(bench.now)
    for _ in range(4):
        if bench.store.job is not None:
            bench.store.finish()
        bench.turn()
        bench.wait(1.5)
    assert not bench.broker.sessions
    assert not bench.broker.journal.open
    kept = {message.seq for queue in bench.broker.queues.values() for message in queue.messages if message.persistent}
    stored = {stored.seq for stored in bench.store.load()}
    # What somebody had got stays, though it was not stored.
    assert stored <= kept if bench.broker.journal.failures else stored == kept


if __name__ == "__main__":
    drive(check)
