"""The dispatcher under any order of events, by the machine of dispatching.py, and the steps that it once found."""

import pytest
from broker.dispatching import QUEUE, DispatcherMachine
from broker.harness import Bench
from hypothesis import settings
from profiles import examples

pytest.importorskip("lark")

DispatcherMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestDispatcher = DispatcherMachine.TestCase


def test_what_comes_back_takes_the_place_of_its_priority():
    bench = Bench()
    sender, taker = bench.peer(), bench.peer()
    taker.subscribe(QUEUE, ack="client", prefetch_count="9")
    for body, priority in (("low", "0"), ("usual", "4"), ("high", "9")):
        sender.put(QUEUE, body, priority=priority)
    assert taker.bodies() == [b"low", b"usual", b"high"]
    taker.lose()
    other = bench.peer()
    other.subscribe(QUEUE)
    assert other.bodies() == [b"high", b"usual", b"low"]


def test_others_look_again_when_the_owner_of_a_group_leaves():
    bench = Bench()
    sender, owner, other = bench.peer(), bench.peer(), bench.peer()
    owner.subscribe(QUEUE, ack="client", prefetch_count="1")
    other.subscribe(QUEUE, ack="client", prefetch_count="9")
    for body in ("1", "2", "3"):
        sender.put(QUEUE, body, JMSXGroupID="g")
    assert (owner.bodies(), other.bodies()) == ([b"1"], [])
    owner.lose()
    assert other.bodies() == [b"1", b"2", b"3"]


def test_a_group_without_an_owner_is_still_a_group():
    bench = Bench()
    sender, nobody, first, second = (bench.peer() for _ in range(4))
    nobody.subscribe(QUEUE, selector="color = 'none'")
    for body in ("1", "2"):
        sender.put(QUEUE, body, JMSXGroupID="g")
    nobody.lose()
    first.subscribe(QUEUE, ack="client", prefetch_count="1")
    second.subscribe(QUEUE, ack="client", prefetch_count="1")
    message = first.next("MESSAGE")
    assert (message.body, second.bodies()) == (b"1", [])
    first.ack(message)
    assert (first.bodies(), second.bodies()) == ([b"2"], [])
