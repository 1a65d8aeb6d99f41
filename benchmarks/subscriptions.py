"""Count the machine instructions of a SUBSCRIBE and an UNSUBSCRIBE beside 1,000 others and beside 50,000.

    python benchmarks/subscriptions.py [--only topic queue] [--few 1000] [--many 50000]

Whoever subscribes pays for itself alone: the last subscription may cost 1.3 times the first ones. What is counted is
`Session.receive` and `Broker.turn`, under valgrind's callgrind as in instructions.py; while the others subscribe,
callgrind does not count, which takes a tenth of the time. The subscriptions belong to
sessions of 1,000 each; those that are counted are made one by one by a session of their own, and ended again. Python's
collector of cycles is off while they are counted: it looks at all objects each time their number has grown by a
quarter, so that its share of each does not grow, but one such pass within the count would be all that is seen.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from instructions import callgrind, count

from stompcodec.broker.config.config import Config
from stompcodec.broker.core import Broker
from stompcodec.broker.sessions.session import Session

#: The headers of a SUBSCRIBE of each kind; `{}` is its number.
KINDS = {
    "topic": "destination:/topic/a\n",
    "topics": "destination:/topic/{}\n",
    "pattern": "destination:/topic/a.*\n",
    "patterns": "destination:/topic/a.*.{}.>\n",
    "queue": "destination:/queue/a\n",
    "queues": "destination:/queue/{}\n",
    "selecting": "destination:/topic/a\nselector:a = {}\n",
    "durable": "destination:/topic/a\ndurable-subscription-name:{}\n",
    "temporary": "destination:/temp-queue/{}\n",
}
LIMIT = 1.3
#: Subscriptions that are counted, and how many a session of the others has.
COUNTED, EACH = 100, 1000


class Crowd:
    """A broker with many subscriptions.

    Args:
        kind: a key of `KINDS`.
    """

    def __init__(self, kind: str) -> None:
        self._headers = KINDS[kind]
        config = Config(
            **dict.fromkeys(
                ("max_connections", "max_destinations", "session_destinations", "user_destinations"), 10**6
            ),
            max_subscriptions=10**6,
            wildcards="activemq",
            memory=2**40,
        )
        self.broker = Broker(config, wall=lambda: 1e9, epoch="e", call_soon=None)
        self.broker.open(0.0)
        self.count = 0
        self._one = self._session()
        self._session_of_many = self._one

    def grow(self, size: int) -> None:
        """Subscribe until there are so many."""
        while self.count < size:
            if self.count % EACH == 0:
                self._session_of_many = self._session()
            self.count += 1
            self._do(self._session_of_many, self._frame("SUBSCRIBE", self.count))

    def pairs(self) -> list[bytes]:
        """SUBSCRIBE and UNSUBSCRIBE, for each of those that are counted."""
        numbers = range(10**6, 10**6 + COUNTED)
        return [self._frame(command, number) for number in numbers for command in ("SUBSCRIBE", "UNSUBSCRIBE")]

    def run(self, frames: list[bytes]) -> None:
        """Do each in a turn of its own (counted)."""
        for frame in frames:
            self._do(self._one, frame)

    def _frame(self, command: str, number: int) -> bytes:
        return f"{command}\nid:{number}\nreceipt:{number}\n{self._headers.format(number)}\n\0".encode()

    def _session(self) -> Session:
        session = self.broker.attach(0.0)
        head = f"CONNECT\naccept-version:1.2\nhost:/\nclient-id:{len(self.broker.sessions)}\n\n\0"
        session.receive(head.encode(), 0.0)
        self._turn()
        return session

    def _do(self, session: Session, frame: bytes) -> None:
        session.receive(frame, 0.0)
        written = self._turn()
        assert written.startswith(b"RECEIPT"), written

    def _turn(self) -> bytes:
        return b"".join(b"".join(dirty.take_output()) for dirty in self.broker.turn(0.0))


def child(kind: str, sizes: list[int]) -> None:
    """Count beside each number of others; runs under valgrind."""
    crowd = Crowd(kind)
    for size in sizes:
        crowd.grow(size)
        frames = crowd.pairs()
        crowd.run(frames)  # what is made once, and caches
        gc.disable()
        count("on")
        os.getpgrp()
        crowd.run(frames)
        os.getppid()
        count("off")
        gc.enable()


def measure(sizes: list[int], kind: str) -> list[float]:
    """Instructions of a SUBSCRIBE and its UNSUBSCRIBE beside each number of others."""
    command = [sys.executable, __file__, "--child", "--only", kind, "--few", str(sizes[0]), "--many", str(sizes[1])]
    return [total / COUNTED for total in callgrind(command, len(sizes), "summary")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=tuple(KINDS), default=list(KINDS), metavar="KIND", help="some kinds"
    )
    parser.add_argument("--few", type=int, default=1000, help="subscriptions at first (1000)")
    parser.add_argument("--many", type=int, default=50_000, help="subscriptions at last (50000)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = [args.few, args.many]
    if args.child:
        child(args.only[0], sizes)
        return 0
    if not shutil.which("valgrind"):
        print("subscriptions: skipped, valgrind is not installed")
        return 0
    print(f"instructions of SUBSCRIBE and UNSUBSCRIBE {args.few:>12,}{args.many:>12,}  ratio", flush=True)
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for kind, counts in zip(args.only, pool.map(partial(measure, sizes), args.only)):
            ratio = counts[1] / counts[0]
            failed += ratio > LIMIT
            verdict = "" if ratio <= LIMIT else f"  more than {LIMIT}"
            print(f"{kind:41}{counts[0]:12,.0f}{counts[1]:12,.0f}{ratio:7.2f}{verdict}", flush=True)
    print(f"subscriptions: {'failed' if failed else 'passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
