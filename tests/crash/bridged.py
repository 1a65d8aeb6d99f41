"""Rounds of kills around a bridge: of its source, its target, and of the bridge itself."""

import itertools
import json
import random
import threading
import time
from collections import Counter
from contextlib import suppress

from crash.ledger import Books
from crash.process import BrokerProcess, Verb
from patience import patience

import stompcodec.client as stomp
from stompcodec.client import Backoff, StompError
from stompcodec.testing.faults import FaultProxy

QUEUES = ("/queue/bridged.a", "/queue/bridged.b")


class Findings(Books):
    """Compare the messages that a target holds with those that the source has accepted."""

    def __init__(self, accepted: dict[str, int], got: dict[str, list[int]], left: int) -> None:
        self.accepted = sum(accepted.values())
        firsts = map(first_of_each, got.values())
        counts = {
            "lost": sum(len(set(range(accepted[queue])) - set(got[queue])) for queue in accepted),
            "stored twice": sum(len(numbers) - len(set(numbers)) for numbers in got.values()),
            "out of order": sum(late < early for numbers in firsts for early, late in itertools.pairwise(numbers)),
            "left": left,
        }
        super().__init__(Counter({name: count for name, count in counts.items() if count}))
        self.starts = 0

    def counts(self) -> dict[str, int]:
        return {"accepted": self.accepted, "starts of the bridge": self.starts}

    __str__ = Books.figures


def first_of_each(numbers: list[int]) -> list[int]:
    """The numbers where they come first: the order that a consumer sees that skips duplicates."""
    return list(dict.fromkeys(numbers))


class _Producer(threading.Thread):
    def __init__(self, url: str, queue: str, pace: float) -> None:
        super().__init__(daemon=True)
        self.url, self.queue, self.pace = url, queue, pace
        self.ending, self.accepted = threading.Event(), 0
        self.fault = None

    def run(self) -> None:
        try:
            patient = {"receipt_timeout": 900.0, "startup_timeout": 900.0}
            again = Backoff(first=0.02, most=0.2)
            with stomp.connect(self.url, resend=True, reconnect=again, **patient) as client:
                while not self.ending.is_set():
                    rows, headers = range(self.accepted, self.accepted + 20), {"persistent": "true"}
                    client.send_many([(self.queue, b"%d" % number, headers) for number in rows], receipt_every=10)
                    self.accepted += 20
                    time.sleep(self.pace)
        except Exception as error:
            self.fault = error


def read_all(url: str, queue: str) -> list[int]:
    """The numbers that a queue of our broker holds, in its order."""
    with stomp.connect(url, startup_timeout=900.0) as client:
        subscription = client.subscribe(queue, ack="client-individual", prefetch=100_000)
        numbers = []
        for _ in range(held(client, queue)):
            message = subscription.get(patience(60))
            assert message is not None
            numbers.append(int(message.body))
        return numbers


def bridge_rounds(folder, kills, *, seed=0, arguments=(), config="", window=4000, progress=lambda _: None):
    """Kill the source, the target and the bridge at random, under load; then have the bridge drain the source."""
    chance = random.Random(seed)
    common = f"[sessions]\nmax_unacked = 100000\n[queues]\nwindow = {window}\n"
    with (
        BrokerProcess(folder / "source", config=common) as source,
        BrokerProcess(folder / "target", config=common + config) as target,
        FaultProxy(("127.0.0.1", source.port), seed=seed) as near,
        FaultProxy(("127.0.0.1", target.port), seed=seed) as far,
    ):
        here, there = f"stomp://127.0.0.1:{near.port}", f"stomp://127.0.0.1:{far.port}"
        maps = ["--map", "/queue/bridged.*=/queue/carried.*"]
        bridge = Verb("bridge", here, there, *maps, "--json", *arguments, log=folder / "bridge.log")
        producers = [_Producer(here, queue, chance.choice([0.01, 0.03])) for queue in QUEUES]
        for producer in producers:
            producer.start()
        try:
            for number in range(kills):
                _until_moved(bridge, producers, chance.randint(20, 400), chance.uniform(0.05, 1.0))
                _kill_one(chance.choice(("source", "target", "bridge")), source, target, near, far, bridge)
                progress(number + 1)
            _until_moved(bridge, producers, 1, 0.0)  # the bridge that is asked to end is one that carries
            for producer in producers:
                producer.ending.set()
                producer.join(patience(120))
                assert (producer.fault, producer.is_alive()) == (None, False)
            _drain(bridge, here)
            assert bridge.end() == 0
        finally:
            bridge.kill()
        accepted = {queue: producer.accepted for queue, producer in zip(QUEUES, producers)}
        got = {queue: read_all(there, queue.replace("bridged", "carried")) for queue in QUEUES}
        findings = Findings(accepted, got, sum(len(read_all(here, queue)) for queue in QUEUES))
    findings.starts = bridge.starts
    return findings


def _until_moved(bridge: Verb, producers: list[_Producer], messages: int, seconds: float) -> None:
    enough, until = sum(p.accepted for p in producers) + messages, time.monotonic() + seconds
    give_up = time.monotonic() + patience(30)
    while sum(p.accepted for p in producers) < enough or time.monotonic() < until:
        assert time.monotonic() < give_up
        if any(p.accepted for p in producers):  # before, no queue matches
            bridge.keep()
        time.sleep(0.01)


def _kill_one(which, source, target, near, far, bridge):
    if which == "bridge":
        bridge.kill()
        return
    broker, proxy = (source, near) if which == "source" else (target, far)
    broker.kill()
    broker.start()
    proxy.upstream = ("127.0.0.1", broker.port)


def _drain(bridge: Verb, url: str) -> None:
    give_up = time.monotonic() + patience(120)
    while time.monotonic() < give_up:
        bridge.keep()
        time.sleep(0.1)
        with suppress(StompError), stomp.connect(url) as client:
            if not any(held(client, queue) for queue in QUEUES):
                return
    raise AssertionError("the source was not drained")


def held(client: stomp.Client, queue: str) -> int:
    """Return the number of messages in a queue of our broker, with those that wait for an ACK."""
    answer = client.receive(queue, headers={"browser": "names"})
    return sum(row["messages"] for row in json.loads(answer.body)["destinations"])
