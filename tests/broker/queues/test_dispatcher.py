"""Delivery where consumers differ: selectors, exclusive consumers, their priorities, message groups."""

import pytest
from broker.harness import Bench

from stompcodec import Parser
from stompcodec.broker.queues import dispatcher

pytest.importorskip("lark")


def queue_of(bench, name="/queue/a"):
    return bench.broker.queues["/", name]


def colours(sender, words, **headers):
    for number, word in enumerate(words.split()):
        sender.put("/queue/a", f"{word}{number}", color=word, **headers)


# ---- selectors ----


@pytest.mark.req("ART-SEL-01", "S10-SUB-06")
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize("before", [True, False])
def test_each_gets_what_it_selects(ack, before):
    bench = Bench()
    sender, red, blue = bench.peer(), bench.peer(), bench.peer("1.1")
    if before:
        colours(sender, "red blue green red blue red")
    red.subscribe("/queue/a", ack=ack, selector="color = 'red'")
    blue.subscribe("/queue/a", ack=ack, selector="color = 'blue'")
    if not before:
        colours(sender, "red blue green red blue red")
    assert red.bodies() == [b"red0", b"red3", b"red5"]
    assert blue.bodies() == [b"blue1", b"blue4"]
    everything = bench.peer()
    everything.subscribe("/queue/a")
    assert everything.bodies() == [b"green2"]
    sender.put("/queue/a", "x", color="blue")
    assert len(blue.take() + everything.take()) == 1


def test_places_to_look_at_again_are_bounded(monkeypatch):
    monkeypatch.setattr(dispatcher, "_MOST_REVISITED", 5)
    bench = Bench()
    sender, keeper, stuck = bench.peer(), bench.peer(), bench.peer()
    colours(sender, "red " * 30)
    stuck.subscribe("/queue/a", "s", ack="client-individual", selector="color = 'red'", prefetch_count="1")
    held = stuck.next("MESSAGE")
    keeper.subscribe("/queue/a", ack="client", selector="color = 'red'")
    taken = keeper.take()
    assert len(taken) == 29
    cursor = queue_of(bench).dispatcher._cursors[stuck.session.consumers["id:s"]]
    cursor.place = (9, 10**9)  # as if it had come to the end
    keeper.lose()
    assert len(cursor.revisit) <= 5
    stuck.ack(held)
    for expected in range(1, 30):
        message = stuck.next("MESSAGE")
        assert message.body == f"red{expected}".encode()
        stuck.ack(message)


# ---- exclusive consumers, and their priorities ----


@pytest.mark.parametrize("header", ["exclusive", "activemq.exclusive"])
def test_one_exclusive_consumer_gets_all_until_it_goes(header):
    bench = Bench()
    sender, plain, first, second = (bench.peer() for _ in range(4))
    plain.subscribe("/queue/a")
    first.subscribe("/queue/a", ack="client", **{header: "true"})
    second.subscribe("/queue/a", **{header: "true"})
    colours(sender, "a b c")
    assert first.bodies() == [b"a0", b"b1", b"c2"]
    assert plain.take() + second.take() == []
    first.lose()
    assert [(frame.body, frame.get("redelivered")) for frame in second.take()] == [
        (b"a0", "true"),
        (b"b1", "true"),
        (b"c2", "true"),
    ]
    sender.put("/queue/a", "d")
    assert second.bodies() == [b"d"]
    second.lose()
    sender.put("/queue/a", "e")
    assert plain.bodies() == [b"e"]


@pytest.mark.parametrize("header", ["consumer-priority", "activemq.priority", "x-priority"])
def test_consumers_of_higher_priority_come_first(header):
    bench = Bench()
    sender, low, high, other = (bench.peer() for _ in range(4))
    low.subscribe("/queue/a")
    high.subscribe("/queue/a", ack="client", prefetch_count="2", **{header: "5"})
    other.subscribe("/queue/a", ack="client", prefetch_count="1", **{header: "5"})
    colours(sender, "a b c d e")
    assert len(high.take()) == 2
    assert len(other.take()) == 1
    assert low.bodies() == [b"d3", b"e4"]


# ---- groups ----


@pytest.mark.parametrize("header", ["message_group", "JMSXGroupID"])
def test_a_group_goes_to_one_consumer(header):
    bench = Bench()
    sender, one, two = (bench.peer() for _ in range(3))
    one.subscribe("/queue/a", ack="client")
    two.subscribe("/queue/a", ack="client")
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
    sender, one, two = (bench.peer() for _ in range(3))
    one.subscribe("/queue/a", ack="client", prefetch_count="1")
    sender.put("/queue/a", "g1", JMSXGroupID="g")
    for number in range(2, 6):
        sender.put("/queue/a", f"g{number}", JMSXGroupID="g", **({"JMSXGroupSeq": "-1"} if number == 2 else {}))
    two.subscribe("/queue/a", ack="client")
    assert two.take() == []
    one.ack(one.next("MESSAGE"))
    assert one.bodies() == [b"g2"]
    assert two.bodies() == [b"g3", b"g4", b"g5"]


def test_many_groups_take_no_memory():
    bench = Bench()
    sender, one, two = (bench.peer() for _ in range(3))
    one.subscribe("/queue/a")
    two.subscribe("/queue/a")
    for number in range(4100):
        sender.session.receive(b"SEND\ndestination:/queue/a\nmessage_group:%d\n\n\0" % number, bench.now)
    bench.turn()
    assert len(one.take()) + len(two.take()) == 4100
    assert len(queue_of(bench).dispatcher._owners) <= 4096


def test_receive_takes_nothing_from_an_exclusive_consumer():
    bench = Bench(commands=("RECEIVE",))
    sender, owner, other = (bench.peer() for _ in range(3))
    owner.subscribe("/queue/a", ack="client", prefetch_count="1", exclusive="true")
    colours(sender, "a b")
    octets = b"RECEIVE\ndestination:/queue/a\nid:1\n\n\0"
    other.parser = Parser("1.2", commands=["EMPTY"])
    other.raw(octets)
    assert [frame.body for frame in other.take() if frame.command == "MESSAGE"] == []
    assert queue_of(bench).count == 2
    owner.lose()
    other.raw(octets)
    assert other.next("MESSAGE").body == b"a0"


# ---- the only consumer, which has a selector ----


@pytest.mark.parametrize("change", ["another", "exclusive", "group", "unsubscribe", "slow"])
def test_a_consumer_that_picked_alone_has_no_more_rights_than_others_when_that_changes(change):
    bench = Bench()
    sender, red, other = bench.peer(), bench.peer(), bench.peer()
    red.subscribe("/queue/a", id="red", selector="color = 'red'")
    colours(sender, "red red")
    assert red.bodies() == [b"red0", b"red1"]
    if change == "another":
        other.subscribe("/queue/a")
    elif change == "exclusive":
        other.subscribe("/queue/a", exclusive="true")
    elif change == "group":
        other.subscribe("/queue/a", consumer_priority="5")
        sender.put("/queue/a", "grouped", color="red", JMSXGroupID="g")
        assert other.bodies() == [b"grouped"]
    elif change == "unsubscribe":
        red.send("UNSUBSCRIBE", id="red")
        other.subscribe("/queue/a")
    else:
        red.session.outbox.send_budget = 0
    colours(sender, "red red red red")
    got = {"another": ([b"red0", b"red2"], [b"red1", b"red3"]), "slow": ([], [])}.get(
        change, ([], [b"red0", b"red1", b"red2", b"red3"])
    )
    taken = red.bodies(), other.bodies()
    assert taken == got or (change == "another" and taken == got[::-1])
