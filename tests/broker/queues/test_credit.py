"""Windows: in messages, in octets, and credit that a client gives by itself."""

import pytest
from broker.harness import Bench

BODY = "x" * 1000


def filled(count=6, body=BODY, **config):
    bench = Bench(**config)
    sender = bench.peer()
    for _ in range(count):
        sender.put("/queue/a", body)
    return bench, bench.peer()


@pytest.mark.req("ART-FLW-01", "ART-FLW-02", "ART-FLW-03")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize(("size", "count"), [("0", 1), ("1", 1), ("1500", 2), ("2100", 3), ("-1", 6)])
def test_a_window_in_octets(size, count, version):
    bench, _ = filled()
    peer = bench.peer(version)
    peer.subscribe("/queue/a", ack="client-individual", consumer_window_size=size)
    messages = peer.take()
    assert len(messages) == count
    if count < 6:
        for _number, message in enumerate(messages):
            peer.ack(message)
            assert len(peer.take()) <= count
    assert bench.octets == bench.broker.queues["/", "/queue/a"].octets


@pytest.mark.req("ART-FLW-01")
@pytest.mark.parametrize("answer", ["ACK", "NACK"])
def test_a_window_opens_by_as_much_as_is_acknowledged(answer):
    _bench, peer = filled()
    peer.subscribe("/queue/a", ack="client-individual", consumer_window_size="1500")
    one, two = peer.take()
    peer.ack(one, answer)
    assert len(peer.take()) == 1
    peer.ack(two)
    assert len(peer.take()) == 1


def test_a_window_counts_what_a_transaction_gives_back():
    _bench, peer = filled()
    peer.subscribe("/queue/a", ack="client", consumer_window_size="1500")
    one, two = peer.take()
    peer.send("BEGIN", transaction="t")
    peer.ack(two, transaction="t")
    assert len(peer.take()) == 2
    peer.send("ABORT", transaction="t")
    assert peer.take() == []
    peer.ack(one)
    assert peer.take() == []


@pytest.mark.req("ART-FLW-04")
@pytest.mark.parametrize(
    ("headers", "count"),
    [
        ({"activemq.prefetchSize": "1500"}, 2),
        ({"activemq.prefetchSize": "-1", "consumer-window-size": "0"}, 1),
        ({"activemq.prefetchSize": "0", "consumer-window-size": "1500"}, 2),
        ({"consumer-window-size": "2500", "prefetch-count": "1"}, 1),
    ],
)
def test_prefetch_size_in_octets(headers, count):
    _bench, peer = filled(prefetch_octets=True)
    peer.subscribe("/queue/a", ack="client", **headers)
    assert len(peer.take()) == count


@pytest.mark.req("ART-FLW-05", "ART-FLW-06")
@pytest.mark.parametrize(
    ("ack", "headers", "count"),
    [
        ("auto", {}, 6),
        ("client", {}, 2),
        ("client-individual", {}, 2),
        ("client", {"consumer-window-size": "-1"}, 6),
        ("client", {"consumer-window-size": "0"}, 1),
        ("client", {"prefetch-count": "3"}, 3),
    ],
)
def test_the_default_window(ack, headers, count):
    _bench, peer = filled(window=1500)
    peer.subscribe("/queue/a", ack=ack, **headers)
    assert len(peer.take()) == count


@pytest.mark.parametrize("value", ["", "x", "-2", "1.5", "9" * 30])
def test_a_bad_window(value):
    peer = Bench().peer()
    peer.subscribe("/queue/a", ack="client", consumer_window_size=value)
    assert peer.error().headers["message"] == "bad consumer-window-size"


# ---- credit ----


def test_credit_in_octets_is_given_back_by_ack():
    _bench, peer = filled()
    peer.subscribe("/queue/a", ack="client-individual", credit="5,1500")
    one, _two = peer.take()
    peer.ack(one)
    assert len(peer.take()) == 1


def test_credit_that_only_the_client_gives():
    _bench, peer = filled()
    peer.subscribe("/queue/a", ack="client-individual", credit="2,100000,false")
    one, two = peer.take()
    peer.ack(one)
    assert peer.take() == []
    peer.ack(two, credit="3")
    assert len(peer.take()) == 2  # the window is two


def test_credit_of_octets_is_added():
    _bench, peer = filled()
    peer.subscribe("/queue/a", ack="client-individual", credit="4,1000,false")
    (one,) = peer.take()
    peer.ack(one, credit="0,900")
    assert len(peer.take()) == 1


def test_credit_in_auto_mode():
    _bench, peer = filled()
    peer.subscribe("/queue/a", credit="2,,false")
    assert len(peer.take()) == 2
    peer.send("ACK", id="0", subscription="1", credit="3", receipt="r")
    frames = peer.take()
    assert frames.pop(0).command == "RECEIPT"
    assert len(frames) == 3
    peer.send("ACK", id="0", subscription="1", credit="100")
    assert len(peer.take()) == 1


@pytest.mark.parametrize("value", ["x", "1,x", "1,2,maybe", "-1", "9" * 30])
def test_bad_credit(value):
    peer = Bench().peer()
    peer.subscribe("/queue/a", ack="client", credit=value)
    assert "bad" in peer.error().headers["message"]


def test_bad_credit_of_ack():
    _bench, peer = filled()
    peer.subscribe("/queue/a", ack="client", credit="1,,false")
    peer.ack(peer.next("MESSAGE"), credit="many")
    assert "bad" in peer.error().headers["message"]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_bad_credit_of_an_ack_whose_subscription_has_none(ack, persistent, version):
    bench = Bench()
    bench.peer().put("/queue/a", persistent=persistent)
    peer = bench.peer(version)
    peer.subscribe("/queue/a", ack=ack)
    peer.ack(peer.next("MESSAGE"), credit="many")
    assert "bad" in peer.error().headers["message"]
    assert bench.broker.queues["/", "/queue/a"].count == 1  # nothing was acknowledged
