"""Windows: in messages, in bytes, and credit that a client gives by itself."""

import pytest
from broker.harness import Bench

BODY = "x" * 1000


def filled(version="1.2", **config):
    bench = Bench(**config)
    sender = bench.peer()
    for _ in range(6):
        sender.put("/queue/a", BODY)
    return bench, bench.peer(version)


@pytest.mark.req("ART-FLW-01", "ART-FLW-02", "ART-FLW-03", "ART-FLW-04", "ART-FLW-05", "ART-FLW-06")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize(
    ("config", "ack", "headers", "count"),
    [
        ({}, "client-individual", {"consumer-window-size": "0"}, 1),
        ({}, "client-individual", {"consumer-window-size": "1"}, 1),
        ({}, "client-individual", {"consumer-window-size": "1500"}, 2),
        ({}, "client-individual", {"consumer-window-size": "2100"}, 3),
        ({}, "client-individual", {"consumer-window-size": "-1"}, 6),
        ({"prefetch_octets": True}, "client", {"activemq.prefetchSize": "1500"}, 2),
        ({"prefetch_octets": True}, "client", {"activemq.prefetchSize": "-1", "consumer-window-size": "0"}, 1),
        ({"prefetch_octets": True}, "client", {"activemq.prefetchSize": "0", "consumer-window-size": "1500"}, 2),
        ({"prefetch_octets": True}, "client", {"consumer-window-size": "2500", "prefetch-count": "1"}, 1),
        ({"window": 1500}, "auto", {}, 6),
        ({"window": 1500}, "client", {}, 2),
        ({"window": 1500}, "client-individual", {}, 2),
        ({"window": 1500}, "client", {"consumer-window-size": "-1"}, 6),
        ({"window": 1500}, "client", {"consumer-window-size": "0"}, 1),
        ({"window": 1500}, "client", {"prefetch-count": "3"}, 3),
    ],
)
def test_a_window(config, ack, headers, count, version):
    bench, peer = filled(version, **config)
    peer.subscribe("/queue/a", ack=ack, **headers)
    messages = peer.take()
    assert len(messages) == count
    if ack == "client-individual" and count < 6:
        for message in messages:
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


@pytest.mark.parametrize(
    ("credit", "first", "given", "then"),
    [
        ("5,1500", 2, {}, 1),
        ("2,100000,false", 2, {}, 0),
        ("2,100000,false", 2, {"credit": "3"}, 1),  # the window is two, and one of them is not acknowledged
        ("4,1000,false", 1, {"credit": "0,900"}, 1),
    ],
)
def test_credit(credit, first, given, then):
    """An ACK gives it back, or only what the client says."""
    _bench, peer = filled()
    peer.subscribe("/queue/a", ack="client-individual", credit=credit)
    messages = peer.take()
    assert len(messages) == first
    peer.ack(messages[0], **given)
    assert len(peer.take()) == then


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


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        *(("consumer-window-size", value, "bad consumer-window-size") for value in ("", "x", "-2", "1.5", "9" * 30)),
        *(("prefetch-count", value, "bad prefetch-count") for value in ("", "x", "-1", "9999999999", "1.5", "\u0663")),
        *(("credit", value, "bad") for value in ("x", "1,x", "1,2,maybe", "-1", "9" * 30)),
    ],
)
def test_a_bad_window(name, value, says):
    peer = Bench().peer()
    peer.subscribe("/queue/a", ack="client", **{name: value})
    message = peer.error().headers["message"]
    assert message == says or (name == "credit" and says in message)


@pytest.mark.parametrize("own", [{}, {"credit": "1,,false"}], ids=["of a window", "of the client"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_bad_credit_of_an_ack(persistent, version, own):
    bench = Bench()
    bench.peer().put("/queue/a", persistent=persistent)
    peer = bench.peer(version)
    peer.subscribe("/queue/a", ack="client", **own)
    peer.ack(peer.next("MESSAGE"), credit="many")
    assert "bad" in peer.error().headers["message"]
    assert bench.broker.queues["/", "/queue/a"].count == 1  # nothing was acknowledged
