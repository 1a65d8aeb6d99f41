"""Who gets which message, step by step: selectors, exclusive consumers, priorities, groups, over any order of events.

Nothing is foretold. After each step, what came and what is READY is held against what has to be true at rest: nothing
is lost or doubled, everybody gets only what it may have, first what is first, and what is READY nobody can take.
"""

from contextlib import ExitStack
from typing import NamedTuple
from unittest.mock import patch

import pytest
from broker.audit import difference
from broker.harness import Bench
from broker.paged import QUEUE
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from profiles import examples

from stompcodec.broker.queues import dispatcher

pytest.importorskip("lark")

SELECTORS = {
    None: lambda message: True,
    "color = 'red'": lambda message: message.color == "red",
    "n > 3": lambda message: message.n > 3,
    "color <> 'red' OR n IN (1, 5)": lambda message: message.color != "red" or message.n in (1, 5),
    "color = 'none'": lambda message: False,
}


class Sent(NamedTuple):
    """A message, as its sender knows it."""

    number: int
    color: str
    n: int
    group: str | None
    priority: int
    persistent: bool

    @property
    def rank(self):
        return 9 - self.priority, self.number

    @property
    def headers(self):
        """Those of its SEND, without a destination."""
        headers = {"color": self.color, "n": str(self.n), "priority": str(self.priority), "JMSXGroupID": self.group}
        headers["persistent"] = "true" if self.persistent else None
        plain = {"priority": "4"}
        return {name: value for name, value in headers.items() if value not in (None, plain.get(name))}


class Taker:
    """A subscription, with a session of its own."""

    def __init__(self, peer, selector, mode, window, exclusive, priority):
        self.peer, self.selects, self.mode, self.window = peer, SELECTORS[selector], mode, window
        self.exclusive, self.priority, self.flowing = exclusive, priority, True
        #: Ack id to message, in order.
        self.unacked = {}
        headers = {"selector": selector, "exclusive": "true" if exclusive else None}
        headers["consumer_priority"] = str(priority) if priority else None
        asked = {name: value for name, value in headers.items() if value is not None}
        peer.subscribe(QUEUE, ack=mode, prefetch_count=str(window), **asked)

    @property
    def consumer(self):
        return self.peer.session.consumers["id:1"]

    @property
    def is_able(self):
        return self.flowing and (self.mode == "auto" or len(self.unacked) < self.window)


class DispatcherMachine(RuleBasedStateMachine):
    @initialize(
        looks=st.sampled_from([2, 1000]),
        again=st.sampled_from([1, 1000]),
        write_high=st.sampled_from([1, 10**6]),
        window=st.sampled_from([1, 3, 100]),
    )
    def start(self, looks, again, write_high, window):
        self.patches = ExitStack()
        self.patches.enter_context(patch.object(dispatcher, "MOST_LOOKS", looks))
        self.patches.enter_context(patch.object(dispatcher, "_MOST_REVISITED", again))
        self.bench = Bench(max_attempts=10**6, write_high=write_high, window_messages=window)
        self.sender = self.bench.peer()
        self.takers, self.messages, self.gone, self.owners = [], {}, set(), {}

    def teardown(self):
        if hasattr(self, "patches"):
            self.patches.close()

    # ---- what is true at rest ----

    @property
    def queue(self):
        return self.bench.broker.queues.get(("/", QUEUE))

    def owner(self, group):
        if group is None or self.queue is None or self.queue.dispatcher is None:
            return None
        consumer = self.queue.dispatcher._owners.get(dispatcher.place_of(group.encode()))
        return next((taker for taker in self.takers if taker.consumer is consumer), None)

    def may(self, taker, message):
        """Whether a taker may have a message: the exclusive one of the highest priority keeps others from it."""
        exclusive = [taker for taker in self.takers if taker.exclusive]
        holder = max(exclusive, key=lambda taker: taker.priority, default=None)
        owner = self.owner(message.group)
        foreign = owner is not None and owner is not taker and owner.selects(message)
        return taker.selects(message) and holder in (None, taker) and not foreign

    def look(self):
        """Everything that came since the last step, held against the rules."""
        came = []
        for taker in self.takers:
            for frame in taker.peer.take():
                assert frame.command == "MESSAGE", frame
                message = self.messages[int(frame.body)]
                assert message.number not in self.gone
                assert message not in self.held, "delivered twice"
                assert self.may(taker, message), message
                if taker.mode == "auto":
                    self.gone.add(message.number)
                else:
                    taker.unacked[frame.headers["ack"]] = message
                    assert len(taker.unacked) <= taker.window
                came.append((taker, message))
        ready = self.ready()
        for taker, message in came:
            for other in ready:  # what is first comes first
                assert other.rank > message.rank or not self.may(taker, other), (other.number, message.number)
        for message in ready:
            able = [taker for taker in self.takers if taker.is_able and self.may(taker, message)]
            assert not able, f"{message.number} could be with another"
        for group in {message.group for message in self.messages.values()} - {None}:
            owner, before = self.owner(group), self.owners.get(group)
            assert before not in self.takers or owner is before, "a group stays where it is"
            self.owners[group] = owner
        for taker, message in came:
            if message.group is not None:
                owner = self.owner(message.group)
                assert owner is taker or not owner.selects(message)

    @property
    def held(self):
        return [message for taker in self.takers for message in taker.unacked.values()]

    def ready(self):
        if self.queue is None:
            return []
        paging = self.queue.paging
        ready = [self.messages[int(message.frame.body)] for message in self.queue.messages]
        if paging is None:
            return ready
        held = {message.number for message in self.held}
        everything = [m for m in self.messages.values() if m.number not in self.gone and m.number not in held]
        assert paging.count + len(ready) == len(everything)
        assert set(ready) <= set(everything)
        return sorted(everything, key=lambda message: message.rank)

    @invariant()
    def nothing_is_lost(self):
        if not hasattr(self, "bench"):
            return
        ready = self.ready()
        assert ready == sorted(ready, key=lambda message: message.rank)
        there = ready + self.held
        assert sorted(message.number for message in there) == sorted(set(self.messages) - self.gone)
        if self.queue is not None:
            assert (self.queue.total, self.queue.octets) == (len(there), self.bench.octets)
            assert difference(self.bench.broker) == {}
        stored = sorted(int(stored.tail[:-1].rpartition(b"\n")[2]) for stored in self.bench.store.load())
        assert stored == sorted(message.number for message in there if message.persistent)

    # ---- steps ----

    @rule(
        color=st.sampled_from(["red", "blue"]),
        n=st.integers(0, 6),
        group=st.sampled_from([None, None, None, None, "g", "h"]),
        priority=st.sampled_from([4, 4, 4, 4, 9, 0]),
        persistent=st.sampled_from([False, False, True]),
    )
    def put(self, color, n, group, priority, persistent):
        number = len(self.messages) + 1
        message = self.messages[number] = Sent(number, color, n, group, priority, persistent)
        self.sender.put(QUEUE, str(number), **message.headers)
        assert not self.sender.take()
        self.look()

    @precondition(lambda self: len(self.takers) < 4)
    @rule(
        selector=st.sampled_from(list(SELECTORS)),
        mode=st.sampled_from(["auto", "client", "client-individual", "client-individual"]),
        window=st.integers(1, 3),
        exclusive=st.sampled_from([False, False, False, True]),
        priority=st.sampled_from([0, 0, 0, 1, -1]),
    )
    def subscribe(self, **how):
        self.takers.append(Taker(self.bench.peer(), **how))
        self.look()

    @precondition(lambda self: self.takers)
    @rule(data=st.data(), how=st.sampled_from(["UNSUBSCRIBE", "lose"]))
    def leave(self, data, how):
        taker = data.draw(st.sampled_from(self.takers))
        self.takers.remove(taker)
        if how == "lose":
            taker.peer.lose()
        else:
            taker.peer.send("UNSUBSCRIBE", id="1")
        self.look()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), command=st.sampled_from(["ACK", "ACK", "ACK", "NACK"]))
    def settle(self, data, command):
        taker = data.draw(st.sampled_from([taker for taker in self.takers if taker.unacked]))
        covered = list(taker.unacked)
        ack_id = data.draw(st.sampled_from(covered))
        covered = covered[: covered.index(ack_id) + 1] if taker.mode == "client" else [ack_id]
        for key in covered:
            message = taker.unacked.pop(key)
            if command == "ACK":
                self.gone.add(message.number)
        taker.peer.send(command, id=ack_id)
        self.look()

    @precondition(lambda self: self.takers)
    @rule(data=st.data(), yes=st.booleans())
    def transport(self, data, yes):
        taker = data.draw(st.sampled_from(self.takers))
        taker.flowing = yes
        taker.peer.session.writable(yes, self.bench.now)
        self.bench.turn()
        self.look()


DispatcherMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestDispatcher = DispatcherMachine.TestCase
