"""Heart-beats that are offered, many subscriptions of a session, and habits of the dialects."""

import pytest
from broker.harness import Bench, bench_with_two

from stompcodec.broker.config import DIALECTS


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])  # 1.0 has none
@pytest.mark.parametrize("offered", [None, "0,0", "1000,0", "1,1", f"{2**63},{2**63}"])
def test_heart_beats_are_those_of_the_configuration_in_our_dialect(offered, version):
    """What other dialects answer is in the recorded answers of their brokers."""
    headers = {} if offered is None else {"heart_beat": offered}
    answer = Bench().peer(version, connect=False).connect(**headers)
    assert answer.headers["heart-beat"] == ("0,0" if version == "1.0" else "500,1000")


@pytest.mark.long
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_the_defaults_serve_many_subscriptions_of_a_session(dialect, mode):
    _bench, sender, peer = bench_with_two(**DIALECTS[dialect])
    for number in range(50):
        peer.subscribe(f"/queue/{number}", str(number), ack=mode)
        sender.put(f"/queue/{number}", "first")
        sender.put(f"/queue/{number}", "second")
    got, messages = [], peer.take()
    assert not peer.closed, messages[-1]
    while messages:  # Artemis counts octets: a second one may wait for the ACK of the first
        got += [(message.headers["subscription"], message.body) for message in messages]
        if mode != "auto":
            for message in messages:
                peer.ack(message)
        messages = peer.take()
    assert sorted(got) == sorted((str(number), body) for number in range(50) for body in (b"first", b"second"))


@pytest.mark.parametrize("asked", [{}, {"prefetch_count": "0"}, {"prefetch_count": "100000"}, {"credit": "0"}])
def test_a_session_divides_its_allowance(asked):
    _bench, sender, peer = Bench.with_peers(2, **{**DIALECTS["rabbitmq"], "prefetch": 40, "max_unacked": 40})
    for number in range(5):
        peer.subscribe(f"/queue/{number}", str(number), ack="client-individual", **asked)
    for number in range(5):
        for _ in range(50):
            sender.put(f"/queue/{number}", str(number))
    got = peer.take()
    counts = [sum(frame.headers["subscription"] == str(number) for frame in got) for number in range(5)]
    assert sum(counts) <= 40
    assert min(counts) == 5
    for number in range(4):
        peer.send("UNSUBSCRIBE", id=str(number))
    rest = [frame for frame in peer.take() if frame.headers["subscription"] == "4"]
    assert counts[4] + len(rest) == 40  # alone, it has all of it again


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize(("dialect", "at_once"), [("rabbitmq", []), ("activemq", ["r", "s"])])
@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_where_the_receipts_of_a_transaction_wait_for_commit(dialect, at_once, end, persistent):
    peer = Bench(**DIALECTS[dialect]).peer()
    peer.send("BEGIN", transaction="t")
    peer.put("/queue/a", "x", transaction="t", receipt="r", persistent=persistent)
    peer.put("/queue/a", "x", transaction="t", receipt="s", persistent=persistent, expiration="99999")
    assert [frame.headers["receipt-id"] for frame in peer.take()] == at_once
    peer.send(end, transaction="t", receipt="e")
    waited = [] if at_once or end == "ABORT" else ["r", "s"]
    assert [frame.headers["receipt-id"] for frame in peer.take()] == [*waited, "e"]


def test_a_nack_in_a_transaction_is_refused_where_it_has_no_effect():
    peer = Bench(**DIALECTS["activemq"]).peer()
    peer.subscribe("/queue/a", ack="client-individual")
    peer.put("/queue/a", "x")
    peer.send("BEGIN", transaction="t")
    peer.nack(peer.next("MESSAGE"), transaction="t")
    assert peer.error().headers["message"] == "a NACK in a transaction"


def test_activemq_delivers_a_page_of_waiting_messages_before_the_first_ack():
    _bench, sender, peer = bench_with_two(**DIALECTS["activemq"])
    for number in range(1500):
        sender.put("/queue/a", str(number))
    peer.subscribe("/queue/a", ack="client-individual")
    first = peer.take()
    peer.ack(first[0])
    assert (len(first), len(peer.take())) == (200, 1)


@pytest.mark.parametrize(("window", "count"), [(None, 3), ("-1", 3), ("9", 1), ("0", 1)])
def test_artemis_counts_a_window_in_mode_auto_too(window, count):
    _bench, sender, peer = bench_with_two(dialect="artemis")
    peer.subscribe("/queue/a", **({} if window is None else {"consumer-window-size": window}))
    for _ in range(3):
        sender.put("/queue/a", "x")
    assert len(peer.take()) == count


@pytest.mark.parametrize("dialect", ["activemq", "artemis"])
def test_text_that_would_change_is_refused(dialect):
    peer = Bench(dialect=dialect).peer()
    peer.raw(b"SEND\ndestination:/queue/a\ncontent-length:2\n\n\xff\xfe\0SEND\ndestination:/queue/a\n\n\xff\xfe\0")
    assert peer.error().headers["message"] == "the body is not UTF-8"
