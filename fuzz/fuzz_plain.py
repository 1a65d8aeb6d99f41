"""Invariant: brokers with the plain road in C, without it, and with it now and then, answer the same octets to whatever
their sessions send, however it is cut, and their books are the same after each piece."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from case import Case, case_of, pieces, rolls
from engine import drive

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from broker.harness import Bench, FaultyStore, Peer

from stompcodec.broker.sessions import plain

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"write_high": 300},
    {"max_queue_messages": 4, "max_queue_octets": 2000},
    {"window_messages": 2, "transient": "spool"},
)
#: Subscriptions, of which an octet chooses the first ones: destination, mode, window.
SUBSCRIPTIONS = (
    ("/queue/a", "auto", "9"),
    ("/queue/a", "client-individual", "3"),
    ("/topic/t", "auto", "9"),
    ("/queue/b", "client-individual", "100"),
    ("/queue/a", "client", "2"),
)
DESTINATIONS = (b"/queue/a", b"/queue/b", b"/topic/t")
assert plain.EXTENSION is not None, "the plain road is not built, or switched off"
switch = plain.EXTENSION.switch


class World:
    """A broker with a sender and a consumer. The clock goes on with each look if it is told to."""

    def __init__(self, how: int, ticks: bool) -> None:
        self.bench = Bench(FaultyStore(), **SETTINGS[how % 4])
        self.bench.broker._entropy = bytes  # session ids are the same
        self.peers = [self.bench.peer("1.1" if how // 4 % 4 == 3 else "1.2"), self.bench.peer(whole_frames=how > 127)]
        for destination in DESTINATIONS:  # from now on they are cached
            self.peers[0].put(destination.decode(), "first")
        for number, (destination, mode, window) in enumerate(SUBSCRIPTIONS[: how // 16 % 6]):
            self.peers[1].subscribe(destination, id=str(number), ack=mode, prefetch_count=window)
        if ticks:
            self.bench.broker.quota.clock = self._clock

    def _clock(self) -> float:
        self.bench.now += 1
        return self.bench.now

    def give(self, peer: Peer, piece: bytes, turns: bool) -> Any:
        """Give octets to a session; what is seen then."""
        peer.session.receive(piece, self.bench.now)
        if turns:
            self.bench.turn()
        broker = self.bench.broker
        queues = {name: (queue.count, queue.octets, len(queue.ring)) for name, queue in broker.queues.items()}
        sessions = [(each.octets, b"".join(each.session.outbox.chunks), each.session.paused) for each in self.peers]
        return sessions, queues, broker.seq, broker.account.used, broker.account.held


def given(case: Case) -> list[tuple[int, bytes, int]]:
    """The wire as pieces: frames that begin with ACK or NACK go to the consumer, in octets as they are cut."""
    streams = [b"", b""]
    for frame in case.wire.split(b"\0"):
        streams[frame.lstrip(b"\r\n")[:1] in (b"A", b"N")] += frame + b"\0"
    roll = rolls(case.plan + 1)
    first, second = ([(at, piece) for piece in pieces(stream, case.plan)] for at, stream in enumerate(streams))
    return [(at, piece, next(roll)) for at, piece in [*first, *second]]


def check(data: bytes) -> None:
    case, how = case_of(data), int.from_bytes(data[:2], "little")
    ticks = case.plan % 2 == 1
    worlds = [World(how, ticks) for _ in range(3)]
    for at, piece, roll in given(case):
        seen = []
        for world, on in zip(worlds, (True, False, roll % 2 == 0)):
            switch(on)
            seen.append(world.give(world.peers[at], piece, roll % 4 != 0))
        assert seen[0] == seen[1], f"it differs with the road: {how}, {piece!r}\n{seen[0]}\n{seen[1]}"
        assert seen[2] == seen[1], f"it differs where the road comes and goes: {how}, {piece!r}\n{seen[2]}\n{seen[1]}"


if __name__ == "__main__":
    drive(check)
