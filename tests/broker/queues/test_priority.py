"""Messages of higher priority come first, those of one priority in their order; and nothing changes for the others."""

import pytest
from broker.harness import Bench, FaultyStore

from stompcodec.broker.queues import paging as ready_messages
from stompcodec.broker.queues.backlog import Backlog, Fifo


def put_all(sender, priorities, **headers):
    for number, priority in enumerate(priorities):
        options = {} if priority == "-" else {"priority": priority}
        sender.put("/queue/a", f"{priority}{number}", **options, **headers)


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
@pytest.mark.parametrize("priority", [True, False])
def test_higher_ones_come_first_if_priorities_count(ack, priority):
    bench = Bench(priority=priority)
    sender, peer = bench.peer(), bench.peer()
    put_all(sender, "-09-490")
    peer.subscribe("/queue/a", ack=ack)
    first, then = [b"92", b"95", b"-0", b"-3", b"44", b"01", b"06"], [b"-0", b"01", b"92", b"-3", b"44", b"95", b"06"]
    assert peer.bodies() == (first if priority else then)


def test_messages_without_a_priority_never_change_the_order():
    bench = Bench()
    sender = bench.peer()
    put_all(sender, "---4x")
    assert type(bench.broker.queues["/", "/queue/a"].messages.line) is Fifo


def test_what_comes_back_has_its_place():
    bench = Bench()
    sender, peer, other = bench.peer(), bench.peer(), bench.peer()
    put_all(sender, "1917")
    peer.subscribe("/queue/a", ack="client")
    assert len(peer.take()) == 4
    put_all(sender, "58")
    peer.lose()
    other.subscribe("/queue/a")
    assert [body[:1] for body in other.bodies()] == [b"9", b"8", b"7", b"5", b"1", b"1"]
    assert bench.broker.queues["/", "/queue/a"].count == 0


@pytest.mark.parametrize("few", [0, 10])
def test_the_order_is_plain_again_when_it_can_be(monkeypatch, few):
    monkeypatch.setattr(ready_messages, "_FEW", few)
    bench = Bench()
    sender, peer = bench.peer(), bench.peer()
    put_all(sender, "---")
    peer.subscribe("/queue/a", browser="true")
    queue = bench.broker.queues["/", "/queue/a"]
    assert type(queue.messages.line) is Backlog
    peer.send("UNSUBSCRIBE", id="1")
    assert type(queue.messages.line) is (Fifo if few else Backlog)
    put_all(sender, "-")
    peer.take()
    peer.subscribe("/queue/a", ack="client")
    assert peer.bodies() == [b"-0", b"-1", b"-2", b"-0"]
    bench.wait(2)
    assert type(queue.messages.line) is Fifo


@pytest.mark.parametrize("header", [{"priority": "9"}, {"JMSXGroupID": "a"}])
def test_a_message_that_came_late_has_its_place_before_priorities_count(header):
    """A transaction waits for the store, others send meanwhile, and then its second message changes the queue."""
    bench = Bench(FaultyStore(background=True))
    sender, other, peer = bench.peer(), bench.peer(), bench.peer()
    sender.send("BEGIN", transaction="t")
    sender.put("/queue/a", "early", transaction="t", persistent="true")
    sender.put("/queue/a", "second", transaction="t", persistent="true", **header)
    sender.send("COMMIT", transaction="t")
    for number in range(3):
        other.put("/queue/a", f"late {number}")
    while bench.store.job is not None:
        bench.store.finish()
        bench.turn()
    peer.subscribe("/queue/a", ack="client")
    late = [b"late 0", b"late 1", b"late 2"]
    first = [b"second", b"early"] if "priority" in header else [b"early", b"second"]
    assert peer.bodies() == [*first, *late]
