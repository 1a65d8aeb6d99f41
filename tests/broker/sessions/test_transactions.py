"""Transactions: what takes effect when, atomically, and what is left of those that do not."""

import pytest
from broker.harness import Bench, bench_with_two


def left(bench, name="/queue/a"):
    peer = bench.peer()
    peer.subscribe(name)
    return [frame.body.decode() for frame in peer.take()]


@pytest.mark.req("S12-TX-01", "S12-TX-02", "S12-TX-03", "S11-TX-03", "S10-TX-03", "S10-SND-03", "S12-SND-02")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("end", ["COMMIT", "ABORT", "DISCONNECT", "lose", "error"])
def test_sends(version, end):
    bench = Bench()
    peer, other = bench.peer(version), bench.peer()
    other.subscribe("/queue/a")
    other.subscribe("/topic/a", "2")
    peer.send("BEGIN", transaction="t")
    peer.put("/queue/a", "1", transaction="t", receipt="r")
    assert peer.next("RECEIPT").headers["receipt-id"] == "r"
    peer.put("/topic/a", "2", transaction="t")
    peer.put("/queue/a", "out")
    peer.put("/queue/a", "3", transaction="t")
    assert other.bodies() == [b"out"]
    if end == "lose":
        peer.lose()
    elif end == "error":
        peer.send("COMMIT", transaction="u")
    elif end == "DISCONNECT":
        peer.send("DISCONNECT")
    else:
        peer.send(end, transaction="t")
    assert sorted(other.bodies()) == ([b"1", b"2", b"3"] if end == "COMMIT" else [])
    if end in ("COMMIT", "ABORT"):
        peer.send("BEGIN", transaction="t")  # the name is free again
        assert not peer.closed
        assert peer.session.memory.transactions == 0


@pytest.mark.parametrize(
    ("command", "transactions", "why"),
    [
        ("ACK", ["t"], "no such transaction"),
        ("NACK", ["t"], "no such transaction"),
        ("ACK", ["u", "v"], "no such delivery"),  # it is in one transaction only
    ],
)
def test_an_ack_that_cannot_be_in_a_transaction_leaves_the_message(command, transactions, why):
    bench = Bench()
    peer = bench.peer()
    peer.put("/queue/a", "1")
    peer.subscribe("/queue/a", ack="client")
    message = peer.next("MESSAGE")
    for name in ("u", "v"):
        peer.send("BEGIN", transaction=name)
    for name in transactions:
        peer.ack(message, command, transaction=name, receipt=name)
    error = peer.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == (why, transactions[-1])
    assert left(bench) == ["1"]


def test_a_commit_that_is_refused_does_nothing():
    bench, peer, other = bench_with_two(max_destinations=2)
    peer.put("/queue/a", "0")
    peer.subscribe("/queue/a", ack="client")
    message = peer.next("MESSAGE")
    peer.send("BEGIN", transaction="t")
    peer.ack(message, transaction="t")
    peer.put("/queue/a", "1", transaction="t")
    peer.session.forget_targets()
    peer.put("/queue/b", "2", transaction="t")
    bench.wait(100)  # /queue/b is idle, and goes
    other.put("/queue/c", "x")
    peer.send("COMMIT", transaction="t", receipt="c")
    assert peer.error().headers["message"] == "too many destinations"
    assert left(bench) == ["0"]
