"""What a client sees is the same with a window of one message, of three, and with all messages in memory."""

import pytest
from broker.harness import Bench, FaultyStore
from broker.moves import client, transaction
from broker.paged import QUEUE

from stompcodec import Parser
from stompcodec.broker.config import DIALECTS

#: All messages are in memory.
ALL = 100_000

SCRIPTS = []


def script(function):
    SCRIPTS.append(function)
    return function


class Stage:
    """A broker with a window, its restarts, and what its clients see."""

    def __init__(self, most, config):
        self.config = {"window_messages": most, **config}
        #: What clients saw, and whether messages were paged.
        self.store, self.seen, self.paged = FaultyStore(), [], False
        self.bench = Bench(self.store, **self.config)

    def peer(self, client_id=""):
        return client(self.bench, client_id)

    def fill(self, count=30, destination=QUEUE, **headers):
        """Send numbers. A header of several words gives each message the next one of them."""
        sender = self.peer()
        for number in range(count):
            values = {name: words.split()[number % len(words.split())] for name, words in headers.items()}
            sender.put(destination, str(number), **{"persistent": "true", **values})
        self.look()
        return sender

    def look(self):
        self.paged = self.paged or bool(self.bench.broker.journal.paged)

    def restart(self):
        self.finish()
        date = self.bench.date
        self.bench = Bench(self.store, **self.config)
        self.bench.date = date
        self.look()

    def finish(self):
        """Let the store write what it has to."""
        while self.store.job is not None:
            self.store.finish(at_once=True)
            self.bench.turn()

    def wait(self, seconds):
        for _ in range(round(seconds * 2)):
            self.bench.date += 0.5
            self.bench.wait(0.5)

    def see(self, peer, note=""):
        """Note what a client has got, and return its messages."""
        frames = peer.take()
        told = [(frame.command, frame.body, frame.get("redelivered"), frame.get("message")) for frame in frames]
        self.seen.append((note, told))
        return [frame for frame in frames if frame.command == "MESSAGE"]

    def settle(self, peer, rounds, command="ACK"):
        """Settle each message that comes."""
        for _ in range(rounds):
            for frame in self.see(peer):
                peer.ack(frame, command)

    def drain(self, note="", destination=QUEUE, **headers):
        peer = self.peer()
        peer.subscribe(destination, **headers)
        self.see(peer, note)
        return peer


@script
def dead_letters_are_paged_too(stage):
    stage.fill(20)
    taker = stage.peer()
    taker.subscribe(QUEUE, ack="client-individual", prefetch_count="3")
    stage.settle(taker, 120, "NACK")
    stage.look()
    stage.restart()
    stage.drain("dead", "/queue/DLQ.a", ack="client-individual", prefetch_count="3")


@script
def selectors(stage):
    stage.fill(color="red blue blue green", priority="4 4 4 4 4 4 9 0")
    stage.drain("none", selector="color = 'black'")
    stage.drain("red", selector="color = 'red'", ack="client-individual", prefetch_count="2").lose()
    stage.drain("green", selector="color = 'green'")
    stage.restart()
    stage.drain("red", selector="color = 'red'")
    stage.drain("rest")


@script
def groups(stage):
    stage.fill(JMSXGroupID="a b c")
    stage.restart()
    first = stage.drain(ack="client-individual", prefetch_count="3")
    stage.settle(first, 4)
    second = stage.drain("has no group", ack="client-individual", prefetch_count="3")
    first.lose()
    stage.settle(second, 30)


@script
def browsers(stage):
    stage.fill()
    stage.drain("all", browser="true", **{"browser-end": "true"})
    stage.drain("from", browser="true", **{"browser-end": "true", "from-seq": "17"})
    stage.drain("some", browser="true", selector="1 = 0")
    follower = stage.drain("follows", browser="true", **{"browser-end": "false", "from-seq": "28"})
    stage.fill(5)
    stage.see(follower, "more")
    stage.drain()
    stage.see(follower)


@script
def received_one_by_one(stage):
    stage.fill(10, color="red blue")
    stage.restart()
    peer = stage.peer()
    peer.parser = Parser(None, commands=("EMPTY",))
    for selector in (*("selector:color = 'blue'\n", "", "selector:color = 'red'\n", "selector:1 = 0\n"), *[""] * 8):
        peer.raw(b"RECEIVE\ndestination:/queue/a\n%b\n\0" % selector.encode())
        stage.see(peer, selector)


@script
def expiry(stage):
    stage.fill(30, expiration="1000 60000 5000")
    stage.wait(3)
    stage.restart()
    stage.wait(3)
    stage.drain()
    stage.drain("dead", "/queue/DLQ.a")


@script
def transactions(stage):
    sender = stage.fill(10)
    for end in ("COMMIT", "ABORT", "COMMIT"):
        with transaction(sender, end):
            for number in range(10):
                sender.put(QUEUE, f"{end} {number}", persistent="true", transaction="t")
            sender.put(QUEUE, f"before {end}", persistent="true")
    taker = stage.drain(ack="client-individual", prefetch_count="6")
    for end in ("ABORT", "COMMIT", "ABORT", "COMMIT"):
        frames = stage.see(taker)
        with transaction(taker, end):
            for frame in frames:
                taker.ack(frame, transaction="t")
    taker.lose()
    stage.drain("rest")


@script
def durable_subscriptions(stage):
    durable = {"durable-subscription-name": "n", "activemq.subscriptionName": "n", "durable": "true"}
    durable |= {"auto-delete": "false", "persistent": "true"}
    for selector in ({}, {"selector": "color = 'red'"}):
        reader = stage.peer("ada")
        reader.subscribe("/topic/t", id="n", **durable, **selector)
        reader.lose()
        stage.fill(30, "/topic/t", color="red blue")
        reader = stage.peer("ada")
        reader.subscribe("/topic/t", id="n", ack="client-individual", prefetch_count="4", **durable, **selector)
        stage.settle(reader, 1)
        reader.lose()
        stage.restart()
        reader = stage.peer("ada")
        reader.subscribe("/topic/t", id="n", **durable, **selector)
        stage.see(reader)
        reader.send("UNSUBSCRIBE", id="n", **durable)
        reader.lose()


@script
def a_queue_that_expires(stage):
    stage.fill(20, **{"x-expires": "3000"})
    stage.fill(10, delay="60000", **{"x-expires": "3000"})
    stage.wait(40)
    assert stage.config.get("queue_arguments") or not list(stage.store.load())
    stage.fill(5)
    stage.drain()


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_client_sees_the_same(script, dialect):
    config = {"max_attempts": 3, "dead_letter_expired": True, **DIALECTS[dialect]}
    stages = [Stage(most, config) for most in (ALL, 1, 3)]
    for stage in stages:
        script(stage)
        stage.finish()
    assert not stages[0].paged
    assert stages[1].paged
    assert any(frames for frames in stages[0].seen)
    assert stages[1].seen == stages[0].seen
    assert stages[2].seen == stages[0].seen
    assert [message[:4] for message in stages[1].store.load()] == [message[:4] for message in stages[0].store.load()]
