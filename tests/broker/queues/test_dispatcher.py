"""Delivery where consumers differ: selectors, exclusive consumers, their priorities, message groups."""

import pytest
from broker.harness import Bench
from broker.moves import messages, put_all, taker
from broker.paged import QUEUE, queue_of

from stompcodec import Parser
from stompcodec.broker.queues import dispatcher

pytest.importorskip("lark")


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
def test_an_exclusive_consumer_that_goes_leaves_all_to_the_next_one(header):
    bench = Bench()
    plain = taker(bench)
    first, second = taker(bench, ack="client", **{header: "true"}), taker(bench, **{header: "true"})
    colours(bench.peer(), "a b c")
    assert (first.bodies(), plain.take() + second.take()) == ([b"a0", b"b1", b"c2"], [])
    first.lose()
    assert (plain.take(), second.bodies()) == ([], [b"a0", b"b1", b"c2"])


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
