"""Conversations while fields of compiled objects get odd values; the process must not end. Arguments: seed, count."""

import gc
import logging
import random
import sys
from contextlib import suppress
from types import GetSetDescriptorType
from typing import Any

from broker.harness import Bench, FaultyStore
from twins import wire

from stompcodec.broker import hot

VALUES: tuple[Any, ...] = (
    *(None, 10**30, -(10**30), -1, 0, 7, 2**63 - 1, -(2**63), 1.5, float("nan"), True),
    *([], [1], [None], {}, {1: 2}, (), (None,), b"", b"\xff", bytearray(b"x"), "", "x", set(), object(), int, len),
)
#: The range of a loop when an ACK in mode client looks at each number up to it, which would take for ever.
KEPT = {"last", "oldest"}


def fields() -> dict[type, list[str]]:
    modules = [module for name, module in sys.modules.items() if name.removeprefix("stompcodec.broker.") in hot.MODULES]
    classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    found = {
        each: [name for name, what in vars(each).items() if isinstance(what, GetSetDescriptorType) and name[:2] != "__"]
        for each in classes
        if each.__module__.startswith("stompcodec.broker.")
    }
    return {each: names for each, names in found.items() if names}


def converse(seed: int, known: dict[type, list[str]]) -> int:
    """Hold one conversation. Return how many values were accepted."""
    chosen, accepted = random.Random(seed), 0
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
    objects = [each for each in gc.get_objects() if type(each).__mro__[-2] in known or type(each) in known]
    for _ in range(12):
        some = chosen.choice(objects)
        names = [name for each in type(some).__mro__ for name in known.get(each, ()) if name not in KEPT]
        if names and chosen.random() < 0.6:
            with suppress(TypeError, OverflowError, ValueError, AttributeError):
                setattr(some, chosen.choice(names), chosen.choice(VALUES))
                accepted += 1
        acks = [ack for frame in two.inbox if (ack := frame.get("ack"))]
        peer = two if acks and chosen.random() < 0.5 else one
        with suppress(Exception):
            peer.session.receive(b"".join(wire(chosen, acks) for _ in range(chosen.randrange(1, 4))), bench.now)
        with suppress(Exception):
            for session in bench.broker.turn(bench.now):
                if session in bench.peers:
                    bench.peers[session].flush()
        if chosen.random() < 0.1:
            gc.collect()
    return accepted


def main() -> None:
    first, count = map(int, sys.argv[1:3])
    assert hot.COMPILED
    logging.disable()  # of the faults that these are for the broker
    known, accepted = fields(), 0
    for seed in range(first, first + count):
        print(seed, end=" ", file=sys.stderr, flush=True)
        accepted += converse(seed, known)
    print(f"{len(known)} classes, {sum(map(len, known.values()))} fields, {accepted} values")


if __name__ == "__main__":
    main()
