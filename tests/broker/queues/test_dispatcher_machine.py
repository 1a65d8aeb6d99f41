"""Who gets which message, step by step: selectors, exclusive consumers, priorities, groups, over any order of events.

Nothing is foretold. After each step, what came and what is READY is held against what has to be true at rest: nothing
is lost or doubled, everybody gets only what it may have, first what is first, and what is READY nobody can take.
"""

from unittest.mock import patch

import pytest
from broker.audit import difference
from broker.harness import Bench
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from profiles import examples

from stompcodec.broker.queues import dispatcher

pytest.importorskip("lark")

QUEUE = "/queue/a"
SELECTORS = {
    None: lambda message: True,
    "color = 'red'": lambda message: message.color == "red",
    "n > 3": lambda message: message.n > 3,
    "color <> 'red' OR n IN (1, 5)": lambda message: message.color != "red" or message.n in (1, 5),
    "color = 'none'": lambda message: False,
}


class Sent:
    """A message, as its sender knows it."""

    def __init__(self, number, color, n, group, priority, persistent):
        self.number, self.color, self.n = number, color, n
        self.group, self.priority, self.persistent = group, priority, persistent

    @property
    def rank(self):
        return 9 - self.priority, self.number

    @property
    def headers(self):
        """Those of its SEND, without a destination."""
        headers = {"color": self.color, "n": str(self.n)}
        if self.priority != 4:
            headers["priority"] = str(self.priority)
        if self.group is not None:
            headers["JMSXGroupID"] = self.group
        if self.persistent:
            headers["persistent"] = "true"
        return headers


class Taker:
    """A subscription, with a session of its own."""

    def __init__(self, peer, selector, mode, window, exclusive, priority):
        self.peer, self.selector, self.mode, self.window = peer, selector, mode, window
        self.exclusive, self.priority = exclusive, priority
        #: Ack id to message, in order.
        self.unacked = {}
        self.flowing = True

    @property
    def consumer(self):
        return self.peer.session.consumers["id:1"]

    def selects(self, message):
        return SELECTORS[self.selector](message)

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
        self.patches = [
            patch.object(dispatcher, "MOST_LOOKS", looks),
            patch.object(dispatcher, "_MOST_REVISITED", again),
        ]
        for one in self.patches:
            one.start()
        self.bench = Bench(max_attempts=10**6, write_high=write_high, window_messages=window)
        self.sender = self.bench.peer()
        self.takers = []
        self.messages = {}
        self.gone = set()
        self.owners = {}

    def teardown(self):
        for one in getattr(self, "patches", []):
            one.stop()

    # ---- what is true at rest ----

    @property
    def queue(self):
        return self.bench.broker.queues.get(("/", QUEUE))

    def holder(self):
        """The exclusive one of the highest priority; of those, the first."""
        return max((taker for taker in self.takers if taker.exclusive), key=lambda taker: taker.priority, default=None)

    def owner(self, message):
        if message.group is None or self.queue is None or self.queue.dispatcher is None:
            return None
        consumer = self.queue.dispatcher._owners.get(dispatcher.place_of(message.group.encode()))
        return next((taker for taker in self.takers if taker.consumer is consumer), None)

    def may(self, taker, message):
        owner = self.owner(message)
        foreign = owner is not None and owner is not taker and owner.selects(message)
        return taker.selects(message) and self.holder() in (None, taker) and not foreign

    def look(self):
        """Everything that came since the last step, held against the rules."""
        came = []
        for taker in self.takers:
            for frame in taker.peer.take():
                assert frame.command == "MESSAGE", frame
                message = self.messages[int(frame.body)]
                assert message.number not in self.gone
                assert all(message not in other.unacked.values() for other in self.takers), "delivered twice"
                assert self.may(taker, message), (taker.selector, message)
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
            assert not able, f"{message.number} could be with {able[0].selector}"
        for group in {message.group for message in self.messages.values()} - {None}:
            owner = self.owner(Sent(0, "", 0, group, 4, False))
            before = self.owners.get(group)
            assert before not in self.takers or owner is before, "a group stays where it is"
            self.owners[group] = owner
        for taker, message in came:
            if message.group is not None:
                owner = self.owner(message)
                assert owner is taker or not owner.selects(message)

    def ready(self):
        if self.queue is None:
            return []
        paging = self.queue.paging
        ready = [self.messages[int(message.frame.body)] for message in self.queue.messages]
        if paging is None:
            return ready
        unacked = {message.number for taker in self.takers for message in taker.unacked.values()}
        everything = [m for m in self.messages.values() if m.number not in self.gone and m.number not in unacked]
        assert paging.count + len(ready) == len(everything)
        assert {message.number for message in ready} <= {message.number for message in everything}
        return sorted(everything, key=lambda message: message.rank)

    @invariant()
    def nothing_is_lost(self):
        if not hasattr(self, "bench"):
            return
        ready = [message.number for message in self.ready()]
        assert ready == [message.number for message in sorted(self.ready(), key=lambda message: message.rank)]
        unacked = [message.number for taker in self.takers for message in taker.unacked.values()]
        assert sorted(ready + unacked) == sorted(set(self.messages) - self.gone)
        if self.queue is not None:
            assert self.queue.total == len(ready) + len(unacked)
            assert self.queue.octets == self.bench.octets
            assert difference(self.bench.broker) == {}
        stored = sorted(int(stored.tail[:-1].rpartition(b"\n")[2]) for stored in self.bench.store.load())
        assert stored == sorted(number for number in ready + unacked if self.messages[number].persistent)

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
    def subscribe(self, selector, mode, window, exclusive, priority):
        taker = Taker(self.bench.peer(), selector, mode, window, exclusive, priority)
        self.takers.append(taker)
        headers = {} if selector is None else {"selector": selector}
        if exclusive:
            headers["exclusive"] = "true"
        if priority:
            headers["consumer_priority"] = str(priority)
        taker.peer.subscribe(QUEUE, ack=mode, prefetch_count=str(window), **headers)
        self.look()

    def some(self, data, condition=lambda taker: True):
        takers = [taker for taker in self.takers if condition(taker)]
        return data.draw(st.sampled_from(takers)) if takers else None

    @rule(data=st.data(), how=st.sampled_from(["UNSUBSCRIBE", "lose"]))
    def leave(self, data, how):
        taker = self.some(data)
        if taker is not None:
            self.takers.remove(taker)
            if how == "lose":
                taker.peer.lose()
            else:
                taker.peer.send("UNSUBSCRIBE", id="1")
            self.look()

    @rule(data=st.data(), command=st.sampled_from(["ACK", "ACK", "ACK", "NACK"]))
    def settle(self, data, command):
        taker = self.some(data, lambda taker: taker.unacked)
        if taker is None:
            return
        ack_id = data.draw(st.sampled_from(list(taker.unacked)))
        covered = list(taker.unacked)
        covered = covered[: covered.index(ack_id) + 1] if taker.mode == "client" else [ack_id]
        for key in covered:
            message = taker.unacked.pop(key)
            if command == "ACK":
                self.gone.add(message.number)
        taker.peer.send(command, id=ack_id)
        self.look()

    @rule(data=st.data(), yes=st.booleans())
    def transport(self, data, yes):
        taker = self.some(data)
        if taker is not None:
            taker.flowing = yes
            taker.peer.session.writable(yes, self.bench.now)
            self.bench.turn()
            self.look()


DispatcherMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestDispatcher = DispatcherMachine.TestCase
