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
