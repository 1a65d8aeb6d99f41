"""Kill other people's brokers (kill -9) under our client, and count what was lost, came twice, or came out of order.

    python scripts/kill_peers.py [--rounds 20] [artemis activemq6 rabbitmq4 ...]

Each is one of scripts/peers. Programs send persistent messages with receipts to a queue and to a durable subscription,
take them with confirmed ACKs, and ask questions that a handler answers. Exit status 1: something was lost or reordered.
"""

import argparse
import itertools
import logging
import random
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parent)

from peers import PEERS, PeerError, Server

import stompcodec.client as stomp
from stompcodec.client import Backoff, StompError

#: Seconds in which work goes on after a start, and everything comes in the end.
_PATIENCE = 120.0
#: Seconds without a message after which nothing more comes.
_QUIET = 10.0
_IN_FLIGHT = 10
_KINDS = ("queue", "durable")


class Work:
    """The programs that use one broker, and their results."""

    def __init__(self, url: str) -> None:
        self.url, self.word = url, uuid.uuid4().hex[:8]
        self.ending, self.answers_end, self.ready = threading.Event(), threading.Event(), threading.Semaphore(0)
        self.receipted: defaultdict[str, set[int]] = defaultdict(set)
        self.acked: defaultdict[str, set[str]] = defaultdict(set)
        self.first: defaultdict[str, list[int]] = defaultdict(list)
        self.unknown, self.again, self.after_ack = Counter[str](), Counter[str](), Counter[str]()
        self.last = time.monotonic()
        self.asked = self.answered = self.wrong = 0
        self.problems: list[str] = []

    @property
    def done(self) -> int:
        """A number that grows as long as each program goes on."""
        return min(self.answered, *(len(each[kind]) for each in (self.receipted, self.first) for kind in _KINDS))

    def name(self, kind: str) -> str:
        return f"/{'topic' if kind == 'durable' else 'queue'}/kills-{self.word}-{kind}"

    def connect(self, who: str) -> Any:
        backoff = Backoff(first=0.05, most=1.0)
        rest: dict[str, Any] = {"reconnect": backoff, "startup_timeout": _PATIENCE, "receipt_timeout": _PATIENCE}
        return stomp.connect(self.url, client_id=f"{who}-{self.word}", **rest)

    def send(self, kind: str) -> None:
        """Send numbers, several at a time. One of unknown outcome is not sent again."""
        numbers = itertools.count()
        with self.connect(f"send-{kind}") as client:
            while not self.ending.is_set():
                some = list(itertools.islice(numbers, _IN_FLIGHT))
                headers = {"persistent": "true"}
                with suppress(StompError):
                    receipts = [(n, client.send_for_receipt(self.name(kind), b"%d" % n, headers)) for n in some]
                    for number, receipt in receipts:
                        try:
                            receipt.wait()
                            self.receipted[kind].add(number)
                        except StompError:
                            self.unknown[kind] += 1
                if len(self.receipted[kind]) - len(self.first[kind]) > 500:
                    time.sleep(0.05)

    def take(self, kind: str) -> None:
        """Take the numbers until all have come."""
        options = {"durable": "kills"} if kind == "durable" else {}
        seen: set[int] = set()
        with self.connect(f"take-{kind}") as client:
            subscription = client.subscribe(self.name(kind), ack="client-individual", prefetch=20, **options)
            self.ready.release()
            while not (self.ending.is_set() and self.is_over()):
                message = subscription.get(0.5)
                if message is None:
                    continue
                self.last, number = time.monotonic(), int(message.body)
                if number in seen:
                    self.again[kind] += 1
                    self.after_ack[kind] += message.id in self.acked[kind]
                else:
                    seen.add(number)
                    self.first[kind].append(number)
                with suppress(StompError):
                    message.ack(receipt=True)
                    self.acked[kind].add(message.id)

    def is_over(self) -> bool:
        missing = any(self.receipted[kind] - set(self.first[kind]) for kind in _KINDS)
        return time.monotonic() - self.last > (_PATIENCE if missing else _QUIET)

    def serve(self) -> None:
        """Answer questions as long as somebody asks."""
        with self.connect("serve") as client:
            client.subscribe(self.name("ask"), handler=lambda message: message.reply(b"re " + message.body))
            self.ready.release()
            self.answers_end.wait()

    def ask(self) -> None:
        """Ask again until there is an answer."""
        with self.connect("ask") as client:
            while not self.ending.is_set():
                self.asked += 1
                question = b"%d" % self.asked
                until = time.monotonic() + _PATIENCE
                while time.monotonic() < until:
                    with suppress(StompError):
                        self.wrong += client.request(self.name("ask"), question, 5.0).body != b"re " + question
                        self.answered += 1
                        break
                time.sleep(0.01)

    def judge(self) -> None:
        """Add what is wrong to the problems."""
        for kind in _KINDS:
            if lost := sorted(self.receipted[kind] - set(self.first[kind])):
                self.problems.append(f"{kind}: {len(lost)} lost, as {lost[:5]}")
            if breaks := [two for two in itertools.pairwise(self.first[kind]) if two[0] > two[1]]:
                self.problems.append(f"{kind}: {len(breaks)} out of order, as {breaks[:5]}")
            if self.after_ack[kind]:
                self.problems.append(f"{kind}: {self.after_ack[kind]} came again after the RECEIPT of their ACK")
        if self.wrong or self.asked - self.answered:
            self.problems.append(f"requests: {self.wrong} wrong answers, {self.asked - self.answered} unanswered")

    def figures(self) -> str:
        parts = [f"requests: {self.answered} of {self.asked} answered"]
        for kind in _KINDS:
            counts = f"{len(self.receipted[kind])} receipted, {self.unknown[kind]} unknown, {self.again[kind]} again"
            parts.append(f"{kind}: {counts}")
        return "; ".join(parts)


def kill_rounds(name: str, rounds: int) -> Work:
    """Kill one broker `rounds` times while programs use it. Before each kill all of them have made progress."""
    with Server(name, limit=_PATIENCE) as server, ThreadPoolExecutor(6) as pool:
        work = Work(server.url)
        takers = [*(pool.submit(work.take, kind) for kind in _KINDS), pool.submit(work.serve)]
        for _ in takers:
            work.ready.acquire(timeout=_PATIENCE)
        rest = [*(pool.submit(work.send, kind) for kind in _KINDS), pool.submit(work.ask)]
        try:
            for number in range(1, rounds + 1):
                if not _goes_on(work, random.randint(3, 40), [*takers, *rest]):
                    break
                time.sleep(random.uniform(0.0, 0.5))
                server.kill()
                server.start()
                print(f"{name}: kill {number}; {work.figures()}", flush=True)
            _goes_on(work, 3, [*takers, *rest])
        finally:  # also when it does not start again: else the programs would go on
            work.last = time.monotonic()
            for event, programs in ((work.ending, rest), (work.answers_end, takers)):
                event.set()
                work.problems += [f"a program ended: {error!r}" for each in programs if (error := each.exception())]
    work.judge()
    return work


def _goes_on(work: Work, steps: int, programs: list[Future[None]]) -> bool:
    """Wait until each program has made `steps` more steps. Return False, and note a problem, if one has not in time."""
    enough, until = work.done + steps, time.monotonic() + _PATIENCE
    while work.done < enough:
        if any(each.done() for each in programs) or time.monotonic() > until:
            work.problems.append(f"a program has stopped: {work.figures()}")
            return False
        time.sleep(0.05)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", default=["artemis", "activemq6", "rabbitmq4"], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=20, help="times that each broker is killed")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in PEERS]:
        parser.error(f"no such server: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    logging.disable(logging.CRITICAL)  # each lost connection
    bad = False
    for name in options.names:
        try:
            work = kill_rounds(name, options.rounds)
            problems, figures = work.problems, work.figures()
        except PeerError as error:
            problems, figures = [str(error)], "none"
        bad |= bool(problems)
        print(f"{name}: {options.rounds} kills; {figures}", *problems, sep="\n  ", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
