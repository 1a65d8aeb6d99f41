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


@pytest.mark.req("ART-SEL-01", "S10-SUB-06")
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("before", [True, False])
def test_each_gets_what_it_selects(ack, before):
    bench = Bench()
    sender = bench.peer()
    colours(sender, "red blue green red blue red" if before else "")
    red = taker(bench, ack=ack, selector="color = 'red'")
    blue = taker(bench, version="1.1", ack=ack, selector="color = 'blue'")
    colours(sender, "" if before else "red blue green red blue red")
    assert red.bodies() == [b"red0", b"red3", b"red5"]
    assert blue.bodies() == [b"blue1", b"blue4"]
    everything = taker(bench)
    assert everything.bodies() == [b"green2"]
    sender.put(QUEUE, "x", color="blue")
    assert len(blue.take() + everything.take()) == 1


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


@pytest.mark.parametrize("header", ["message_group", "JMSXGroupID"])
def test_a_group_goes_to_one_consumer(header):
    bench = Bench()
    sender, one, two = bench.peer(), taker(bench, ack="client"), taker(bench, ack="client")
    for number in range(12):
        name = "abc"[number % 3]
        sender.raw(f"SEND\ndestination:/queue/a\n{header}:{name}\n\n{name}{number}\0".encode())
    first, second = one.bodies(), two.bodies()
    assert len(first) + len(second) == 12
    assert first
    assert second
    assert not {body[:1] for body in first} & {body[:1] for body in second}
    assert first == sorted(first, key=lambda body: int(body[1:]))


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
