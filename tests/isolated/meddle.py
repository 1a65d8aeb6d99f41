"""Conversations on the plain road in C, during which Python takes away what C looks at. Arguments: seed, how many.

Whatever the broker answers is right, or an exception; the process must not end. At calls of Python by the road, and
before each frame, a field of one of the broker's objects is deleted or set to something else.
"""

from __future__ import annotations

import gc
import logging
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from broker.harness import Bench, FaultyStore

from stompcodec import Frame, serialize
from stompcodec.broker.queues.backlog import Fifo
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.sessions import plain
from stompcodec.broker.sessions.outbox import Outbox
from stompcodec.broker.sessions.subscribe import PendingCommit
from stompcodec.broker.sessions.transaction import Target, Transaction
from stompcodec.broker.storage.journal import Journal

VALUES: tuple[Any, ...] = (None, 10**30, -1, [], [1], {}, (), b"", "x", object(), 2**63 - 1, tuple.__new__(Target, ()))
KEPT = "last"  # A field that stays: an ACK in mode client looks at each number up to it, which would take for ever.
#: Methods that the road calls, or that are called within those calls: around them fields change.
CALLED: tuple[tuple[type, str], ...] = (
    *((Queue, name) for name in ("block", "put", "put_plain", "enqueue", "dispatch", "release_blocked", "offer")),
    *((Outbox, "schedule_flush"), (Fifo, "append"), (Fifo, "popleft"), (Fifo, "__len__"), (Fifo, "__getitem__")),
    *((Transaction, "send"), (Journal, "settle"), (Journal, "append"), (Journal, "append_more")),
)


class Meddler:
    """What changes the fields, when it is its turn."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.objects: list[Any] = []
        self.left = 0

    def __call__(self) -> None:
        if self.left <= 0 or not self.objects or self.random.random() < 0.5:
            return
        self.left -= 1
        some = self.random.choice(self.objects)
        names = [name for each in type(some).__mro__ for name in getattr(each, "__slots__", ()) if name[:2] != "__"]
        name = self.random.choice([name for name in names if name != KEPT])
        with suppress(Exception):
            if self.random.random() < 0.5:
                delattr(some, name)
            else:
                setattr(some, name, self.random.choice(VALUES))
        if self.random.random() < 0.1:
            gc.collect()


class Matches:
    """A selector, a tally or a bound that meddles when it is asked."""

    def __init__(self, meddler: Meddler) -> None:
        object.__setattr__(self, "meddler", meddler)

    def matches(self, _message: object) -> bool:
        self.meddler()
        return self.meddler.random.random() < 0.7

    def __getattr__(self, _name: str) -> Matches:
        self.meddler()
        return self

    def __add__(self, _other: object) -> Matches:
        return self

    def __setattr__(self, _name: str, _value: object) -> None:
        self.meddler()

    def __call__(self) -> bool:
        self.meddler()
        return True

    def __bool__(self) -> bool:
        self.meddler()
        return True


def wrapped(method: Callable[..., Any], current: list[Meddler]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        for meddler in current:
            meddler()
        try:
            return method(*args, **named)
        finally:
            for meddler in current:
                meddler()

    return call


def frames(chosen: random.Random) -> bytes:
    """Some frames of a client."""
    headers = {"destination": chosen.choice(("/queue/a", "/queue/b", "/topic/t"))}
    some = (("receipt", "r1"), ("persistent", "true"), ("transaction", "t"), ("x", "y"))
    headers |= {name: value for name, value in some if chosen.random() < 0.4}
    return serialize(Frame("SEND", headers, b"x" * chosen.choice((0, 5, 200))))


def plant(chosen: random.Random, odd: Matches, queues: list[Any], consumers: list[Any]) -> None:
    """Put the object that meddles where the road calls Python."""
    for queue in queues:
        if chosen.random() < 0.3:
            queue.tally = odd
        if chosen.random() < 0.2:
            queue.overflow = odd
    for consumer in consumers:
        if consumer.selector is not None:
            consumer.selector = odd


def converse(seed: int, current: list[Meddler]) -> None:
    chosen, meddler = random.Random(seed), Meddler(seed)
    settings = chosen.choice(({}, {"max_queue_messages": 3, "max_queue_octets": 900}, {"window_messages": 2}))
    bench = Bench(FaultyStore(), **settings)
    one, two = bench.peer(), bench.peer(whole_frames=chosen.random() < 0.3)
    for destination in ("/queue/a", "/queue/b", "/topic/t"):
        one.put(destination, "first", persistent=chosen.choice(("true", "false")))
    for number, mode in enumerate(chosen.sample(("auto", "client-individual", "client-individual", "client"), 3)):
        selector = {"selector": "x = 'y'"} if chosen.random() < 0.2 else {}
        where = chosen.choice(("/queue/a", "/queue/a", "/topic/t"))
        two.subscribe(where, id=str(number), ack=mode, prefetch_count=chosen.choice(("1", "9")), **selector)
    one.send("BEGIN", transaction="t")
    broker, odd = bench.broker, Matches(meddler)
    queues = list(broker.queues.values())
    sessions = [one.session, two.session]
    consumers = [each for queue in queues for each in queue.consumers]
    meddler.objects = [*queues, *consumers, *sessions, *(each.outbox for each in sessions), broker.account]
    meddler.objects += [each for session in sessions for each in (*session.transactions.values(), session.memory)]
    meddler.objects += [
        each for each in (*(queue.messages for queue in queues), *(queue.bound for queue in queues)) if each
    ]
    plant(chosen, odd, queues, consumers)
    meddler.left = chosen.randrange(1, 6)
    current[:] = [meddler]
    for _ in range(12):
        acks = [frame.get("ack") for frame in two.inbox if frame.get("ack")]
        wire = b"".join(frames(chosen) for _ in range(chosen.randrange(1, 4)))
        if acks:
            wire = serialize(Frame("ACK", {"id": acks[0], "receipt": "a"}))
            del two.inbox[:]
        peer = two if acks else one
        with suppress(Exception):
            peer.session.receive(wire, bench.now)
        with suppress(Exception):
            for session in broker.turn(bench.now):
                if session in bench.peers:
                    bench.peers[session].flush()
        for pending in (
            [each for each in gc.get_objects() if type(each) is PendingCommit] if chosen.random() < 0.02 else ()
        ):
            meddler.objects.append(pending)
        meddler()
    current.clear()


def main() -> None:
    first, count = map(int, sys.argv[1:3])
    assert plain.EXTENSION is not None
    logging.disable()  # of the faults that these are for the broker
    current: list[Meddler] = []
    for owner, name in CALLED:
        if name in owner.__dict__:
            setattr(owner, name, wrapped(owner.__dict__[name], current))
    for seed in range(first, first + count):
        print(seed, end=" ", file=sys.stderr)
        converse(seed, current)
    print("end")


if __name__ == "__main__":
    main()
