"""Habits of other brokers, which the dialects share with them. What RabbitMQ 3.10 and ActiveMQ 5.17 did is expected."""

import pytest
from broker.harness import Bench, bench_with_two

from stompcodec.broker.config import DIALECTS

SWAPPED = {
    **{None: "0,0", "0,0": "0,0", "1000,0": "0,1000", "0,1000": "1000,0", "1000,1000": "1000,1000"},
    "10000,20000": "20000,10000",
}
HUGE = 2**63
#: Dialect -> offered in CONNECT -> answered in CONNECTED. Those of RabbitMQ and ActiveMQ were observed; Artemis' are
#: by its documentation. None: the broker refuses the offer.
BEATS = {
    "stompcodec": dict.fromkeys([*SWAPPED, "1,1", f"{HUGE},{HUGE}"], "500,1000"),
    "rabbitmq": {
        **SWAPPED,
        **{"1,1": "1000,1000", "200,300": "1000,1000", "2500,0": "0,2000"},
        **{"2147483647,2147483647": "2147483000,2147483000", "4294967295,4294967296": "4294967000,4294967000"},
        "99999999999999999999,99999999999999999999": "99999999999999999000,99999999999999999000",
    },
    "activemq": {
        **SWAPPED,
        "1,1": "100,100",  # not observed: ActiveMQ answers 1,1, and so promises an octet each millisecond
        **{"200,300": "300,200", "2147483647,2147483647": "2147483647,2147483647"},
        **{"4294967295,4294967296": "4294967296,4294967295", f"{HUGE - 1},0": f"0,{HUGE - 1}", f"{HUGE},0": None},
        "99999999999999999999,99999999999999999999": None,
    },
    "artemis": {
        **{None: "0,0", "0,0": "0,0", "1000,0": "0,1000", "0,1000": "1000,0", "1000,1000": "1000,1000"},
        **{"0,100": "500,0", "100,0": "0,500"},
    },
}


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])  # 1.0 has none
@pytest.mark.parametrize(
    ("dialect", "offered", "answered"), [(name, *pair) for name, pairs in BEATS.items() for pair in pairs.items()]
)
def test_heart_beats_are_answered_as_that_broker_does(dialect, offered, answered, version):
    assert list(BEATS) == list(DIALECTS)
    peer = Bench(**DIALECTS[dialect]).peer(version, connect=False)
    headers = {} if offered is None else {"heart_beat": offered}
    if answered is None and version != "1.0":
        peer.send("CONNECT", accept_version=version, host="/", **headers)
        assert "heart-beat" in peer.error().headers["message"]
    else:
        assert peer.connect(**headers).headers["heart-beat"] == ("0,0" if version == "1.0" else answered)


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
    bench = Bench(**{**DIALECTS["rabbitmq"], "prefetch": 40, "max_unacked": 40})
    sender, peer = bench.peer(), bench.peer()
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
