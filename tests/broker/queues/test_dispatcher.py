"""Who gets which message, over any order of events: what came and what is READY is held against what has to be true."""

from contextlib import ExitStack
from typing import NamedTuple
from unittest.mock import patch

import pytest
from broker.audit import difference
from broker.harness import Bench
from broker.moves import QUEUE, messages, put_all, queue_of, taker
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from profiles import examples

from stompcodec import Parser
from stompcodec.broker.queues import dispatcher

pytest.importorskip("lark")
SELECTORS = {
    **{None: lambda message: True, "color = 'red'": lambda message: message.color == "red"},
    "n > 3": lambda message: message.n > 3,
    "color <> 'red' OR n IN (1, 5)": lambda message: message.color != "red" or message.n in (1, 5),
    "color = 'none'": lambda message: False,
}


class Sent(NamedTuple):
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
        for one in self.takers:
            for frame in one.peer.take():
                assert frame.command == "MESSAGE", frame
                message = self.messages[int(frame.body)]
                assert message.number not in self.gone
                assert message not in self.held, "delivered twice"
                assert self.may(one, message), message
                if one.mode == "auto":
                    self.gone.add(message.number)
                else:
                    one.unacked[frame.headers["ack"]] = message
                    assert len(one.unacked) <= one.window
                came.append((one, message))
        ready = self.ready()
        for one, message in came:
            for other in ready:  # what is first comes first
                assert other.rank > message.rank or not self.may(one, other), (other.number, message.number)
        for message in ready:
            able = [taker for taker in self.takers if taker.is_able and self.may(taker, message)]
            assert not able, f"{message.number} could be with another"
        for group in {message.group for message in self.messages.values()} - {None}:
            owner, before = self.owner(group), self.owners.get(group)
            assert before not in self.takers or owner is before, "a group stays where it is"
            self.owners[group] = owner
        for one, message in came:
            if message.group is not None:
                owner = self.owner(message.group)
                assert owner is one or not owner.selects(message)

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


# ---- by name, and at bounds ----
def colours(sender, words):
    for number, word in enumerate(words.split()):
        sender.put(QUEUE, f"{word}{number}", color=word)


def test_places_to_look_at_again_are_bounded(monkeypatch):
    monkeypatch.setattr(dispatcher, "_MOST_REVISITED", 5)
    bench = Bench()
    colours(bench.peer(), "red " * 30)
    stuck = taker(bench, id="s", ack="client-individual", selector="color = 'red'", prefetch_count="1")
    held = stuck.next("MESSAGE")
    keeper = taker(bench, ack="client", selector="color = 'red'")
    assert len(keeper.take()) == 29
    cursor = queue_of(bench).dispatcher._cursors[stuck.session.consumers["id:s"]]
    cursor.place = (9, 10**9)  # as if it had come to the end
    keeper.lose()
    assert len(cursor.revisit) <= 5
    stuck.ack(held)
    for expected in range(1, 30):
        message = stuck.next("MESSAGE")
        assert message.body == f"red{expected}".encode()
        stuck.ack(message)


@pytest.mark.parametrize("header", ["exclusive", "activemq.exclusive"])
def test_one_exclusive_consumer_gets_all_until_it_goes(header):
    bench = Bench()
    sender, plain = bench.peer(), taker(bench)
    first, second = taker(bench, ack="client", **{header: "true"}), taker(bench, **{header: "true"})
    colours(sender, "a b c")
    assert first.bodies() == [b"a0", b"b1", b"c2"]
    assert plain.take() + second.take() == []
    first.lose()
    again = [(frame.body, frame.get("redelivered")) for frame in second.take()]
    assert again == [(b"a0", "true"), (b"b1", "true"), (b"c2", "true")]
    sender.put(QUEUE, "d")
    assert second.bodies() == [b"d"]
    second.lose()
    sender.put(QUEUE, "e")
    assert plain.bodies() == [b"e"]


@pytest.mark.parametrize("header", ["consumer-priority", "activemq.priority", "x-priority"])
def test_consumers_of_higher_priority_come_first(header):
    bench = Bench()
    low = taker(bench)
    high = taker(bench, ack="client", prefetch_count="2", **{header: "5"})
    other = taker(bench, ack="client", prefetch_count="1", **{header: "5"})
    colours(bench.peer(), "a b c d e")
    assert (len(high.take()), len(other.take()), low.bodies()) == (2, 1, [b"d3", b"e4"])


def test_a_group_that_closes_lets_go_of_what_others_passed_by():
    bench = Bench()
    sender, one = bench.peer(), taker(bench, ack="client", prefetch_count="1")
    sender.put(QUEUE, "g1", JMSXGroupID="g")
    sender.put(QUEUE, "g2", JMSXGroupID="g", JMSXGroupSeq="-1")
    put_all(sender, ("g3", "g4", "g5"), JMSXGroupID="g")
    two = taker(bench, ack="client")
    assert two.take() == []
    one.ack(one.next("MESSAGE"))
    assert (one.bodies(), two.bodies()) == ([b"g2"], [b"g3", b"g4", b"g5"])


def test_many_groups_take_no_memory():
    bench = Bench()
    sender, one, two = bench.peer(), taker(bench), taker(bench)
    for number in range(4100):
        sender.session.receive(b"SEND\ndestination:/queue/a\nmessage_group:%d\n\n\0" % number, bench.now)
    bench.turn()
    assert len(one.take()) + len(two.take()) == 4100
    assert len(queue_of(bench).dispatcher._owners) <= 4096


def test_receive_takes_nothing_from_an_exclusive_consumer():
    bench = Bench(commands=("RECEIVE",))
    owner, other = taker(bench, ack="client", prefetch_count="1", exclusive="true"), bench.peer()
    colours(bench.peer(), "a b")
    octets = b"RECEIVE\ndestination:/queue/a\nid:1\n\n\0"
    other.parser = Parser("1.2", commands=["EMPTY"])
    other.raw(octets)
    assert (messages(other), queue_of(bench).count) == ([], 2)
    owner.lose()
    other.raw(octets)
    assert other.next("MESSAGE").body == b"a0"


@pytest.mark.parametrize("change", ["another", "exclusive", "group", "unsubscribe", "slow"])
def test_a_consumer_that_picked_alone_has_no_more_rights_than_others_when_that_changes(change):
    bench = Bench()
    sender, red, other = bench.peer(), taker(bench, id="red", selector="color = 'red'"), bench.peer()
    colours(sender, "red red")
    assert red.bodies() == [b"red0", b"red1"]
    if change == "unsubscribe":
        red.send("UNSUBSCRIBE", id="red")
    if change == "slow":
        red.session.outbox.send_budget = 0
    else:
        headers = {"exclusive": {"exclusive": "true"}, "group": {"consumer_priority": "5"}}
        other.subscribe(QUEUE, **headers.get(change, {}))
    if change == "group":
        sender.put(QUEUE, "grouped", color="red", JMSXGroupID="g")
        assert other.bodies() == [b"grouped"]
    colours(sender, "red red red red")
    halves = ([b"red0", b"red2"], [b"red1", b"red3"])
    expected = {"another": (halves, halves[::-1]), "slow": (([], []),)}
    assert (red.bodies(), other.bodies()) in expected.get(change, (([], [b"red0", b"red1", b"red2", b"red3"]),))
