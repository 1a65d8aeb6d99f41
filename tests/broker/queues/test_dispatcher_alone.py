"""The short road to the only consumer, which has a selector: it gets the same messages as on the long one."""

import pytest
from broker.harness import Bench

from stompcodec.broker.selectors import selector as selector_module

pytest.importorskip("lark")


def colours(sender, words):
    for number, word in enumerate(words.split()):
        sender.put("/queue/a", f"{word}{number}", color=word)


def test_a_consumer_that_picks_alone_is_asked_once_for_each_message(monkeypatch):
    bench = Bench()
    sender, red = bench.peer(), bench.peer()
    red.subscribe("/queue/a", id="red", selector="color = 'red'")
    asked = []
    plain = selector_module.Selector.matches
    monkeypatch.setattr(
        selector_module.Selector, "matches", lambda self, message: (asked.append(message.seq), plain(self, message))[1]
    )
    colours(sender, "red blue red blue red")
    assert red.bodies() == [b"red0", b"red2", b"red4"]
    assert len(asked) == 5
    other = bench.peer()
    other.subscribe("/queue/a")
    assert other.bodies() == [b"blue1", b"blue3"]


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_consumer_that_picks_alone_and_acknowledges(version, ack):
    bench = Bench()
    sender, red = bench.peer(), bench.peer(version)
    red.subscribe("/queue/a", ack=ack, selector="color = 'red'", prefetch_count="3")
    colours(sender, "red red red red red")
    frames = red.take()
    assert [frame.body for frame in frames] == [b"red0", b"red1", b"red2"]
    red.ack(frames[0])
    assert red.bodies() == [b"red3"]
    red.lose()
    assert bench.broker.queues["/", "/queue/a"].count == 4


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
    got = {
        "another": ([b"red0", b"red2"], [b"red1", b"red3"]),
        "slow": ([], []),
    }.get(change, ([], [b"red0", b"red1", b"red2", b"red3"]))
    taken = red.bodies(), other.bodies()
    assert taken == got or (change == "another" and taken == got[::-1])


def test_a_consumer_that_picked_alone_gets_nothing_behind_its_end():
    bench = Bench()
    sender, red, busy = bench.peer(), bench.peer(), bench.peer()
    busy.subscribe("/queue/a", ack="client", selector="color = 'red'", prefetch_count="1")
    colours(sender, "red")
    red.subscribe("/queue/a", selector="color = 'red'")
    colours(sender, "red red")
    assert red.bodies() == [b"red0", b"red1"]
    red.send("UNSUBSCRIBE", id="1")
    colours(sender, "red")
    assert (red.bodies(), busy.bodies()) == ([], [b"red0"])
    busy.lose()
    last = bench.peer()
    last.subscribe("/queue/a")
    assert last.bodies() == [b"red0", b"red0"]
