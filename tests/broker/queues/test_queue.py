"""Queues: order, who gets what, credit, back-pressure, priorities, expiry, and what is left when nobody listens."""

import pytest
from broker.harness import Bench, FaultyStore
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.broker.queues import paging as ready_messages
from stompcodec.broker.queues.backlog import Backlog, Fifo


@pytest.mark.req("S12-SUB-02", "S12-MSG-01", "S12-MSG-02", "S12-MSG-03", "S12-MSG-04", "S12-MSG-06", "S12-SND-04")
def test_a_message_goes_through():
    bench = Bench()
    peer = bench.peer()
    peer.subscribe("/queue/a", "s:1%b%d")
    peer.put("/queue/a", b"a\0b", x="a:b\n\\", content_type="text/plain", receipt="r")
    receipt = peer.inbox.pop()
    message = peer.next("MESSAGE")
    assert receipt.command == "RECEIPT"
    headers = dict(message.headers)
    assert headers.pop("message-id")
    assert headers == {
        "subscription": "s:1%b%d",
        "destination": "/queue/a",
        "x": "a:b\n\\",
        "content-type": "text/plain",
        "content-length": "3",
    }
    assert message.body == b"a\0b"


@pytest.mark.req("S12-HDR-02", "S12-HDR-05")
def test_what_the_broker_says_cannot_be_said_by_a_sender():
    bench = Bench()
    peer, old = bench.peer(), bench.peer("1.0")
    forged = {"message_id": "x", "subscription": "x", "ack": "x", "redelivered": "true", "redelivery_count": "9"}
    peer.put("/queue/a", **forged, receipt="r")
    peer.next("RECEIPT")
    peer.subscribe("/queue/a", ack="client")
    message = peer.next("MESSAGE")
    assert {name: message.headers.getall(name) for name in ("message-id", "subscription", "ack", "redelivered")} == {
        "message-id": ["e-1"],
        "subscription": ["1"],
        "ack": ["1-1"],
        "redelivered": [],
    }
    assert message.get("receipt") is None
    old.raw(b"SUBSCRIBE\ndestination:/queue/b\n\n\0")
    peer.put("/queue/b", **forged)
    message = old.next("MESSAGE")
    assert message.get("subscription") is None
    assert message.get("redelivery-count") is None


@pytest.mark.parametrize("sessions", [1, 2])
def test_round_robin(sessions):
    """Over two sessions, or two subscriptions of one session."""
    bench = Bench()
    peer, one, two = bench.peer(), bench.peer(), bench.peer()
    one.subscribe("/queue/a", "1")
    (two if sessions == 2 else one).subscribe("/queue/a", "2")
    for number in range(10):
        peer.put("/queue/a", str(number))
    frames = [*one.take(), *two.take()]
    for key, first in (("1", 0), ("2", 1)):
        mine = [frame.body for frame in frames if frame.headers["subscription"] == key]
        assert mine == [b"%d" % number for number in range(first, 10, 2)]


@pytest.mark.req("S12-UNS-02", "S11-UNS-02", "S10-UNS-02")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_unsubscribe(version):
    bench = Bench()
    peer, other = bench.peer(version), bench.peer()
    peer.subscribe("/queue/a")
    peer.send("UNSUBSCRIBE", id="1", receipt="u")
    peer.next("RECEIPT")
    other.put("/queue/a", "x")
    assert peer.take() == []
    peer.subscribe("/queue/a")
    assert peer.bodies() == [b"x"]
    peer.send("UNSUBSCRIBE", id="2")
    assert peer.error().headers["message"] == "no such subscription"


@pytest.mark.req("S10-UNS-01", "S10-SUB-07", "S10-SUB-08")
def test_1_0_without_ids():
    bench = Bench()
    peer = bench.peer("1.0")
    peer.raw(b"SUBSCRIBE\ndestination: /queue/a\nack: client\n\n\0SEND\ndestination: /queue/a \nx: v\n\nhi\0")
    message = peer.next("MESSAGE")
    assert (message.get("subscription"), message.headers["destination"]) == (None, "/queue/a")
    assert message.headers["x"] == " v"
    peer.raw(b"ACK\nmessage-id: %b \nreceipt: r\n\n\0" % message.headers["message-id"].encode())
    assert peer.next("RECEIPT").headers["receipt-id"] == "r"
    peer.raw(b"UNSUBSCRIBE\ndestination: /queue/a\n\n\0")
    peer.put("/queue/a", "x")
    assert peer.take() == []
    peer.raw(b"SUBSCRIBE\ndestination:/queue/a\n\n\0SUBSCRIBE\ndestination:/queue/a\n\n\0")
    assert peer.error().headers["message"] == "subscription exists"


@pytest.mark.req("S12-SUB-06", "S11-SUB-05", "S12-SUB-03", "S11-SUB-03", "S12-SUB-07", "S11-SUB-06")
@pytest.mark.parametrize(("mode", "says"), [("auto", "subscription exists"), ("sometimes", "unknown ack mode")])
def test_an_id_in_use_and_an_unknown_ack_mode(mode, says):
    peer = Bench().peer()
    peer.subscribe("/queue/a")
    peer.subscribe("/queue/b", ack=mode)
    assert peer.error().headers["message"] == says


# ---- versions ----


@pytest.mark.req("S12-MSG-06")
def test_headers_an_older_version_cannot_carry_are_left_out():
    bench = Bench()
    peer = bench.peer()
    peer.send("SEND", b"x", destination="/queue/a", lf="a\nevil:yes", cr="a\rb", colon="a:b", back="a\\b")
    old = bench.peer("1.0")
    old.subscribe("/queue/a")
    message = old.next("MESSAGE")
    assert message.get("evil") is None
    assert message.get("lf") is None
    assert (message.headers["colon"], message.headers["back"]) == ("a:b", "a\\b")
    peer.send("SEND", b"x", destination="/queue/a", lf="a\nb", colon="a:b")
    old.send("UNSUBSCRIBE", id="1")
    middle = bench.peer("1.1")
    peer.send("SEND", b"x", destination="/queue/a", lf="a\nb", colon="a:b")
    middle.subscribe("/queue/a")
    message = middle.next("MESSAGE")
    assert (message.headers["lf"], message.headers["colon"]) == ("a\nb", "a:b")


text = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8)


@given(
    versions=st.tuples(st.sampled_from(["1.1", "1.2"]), st.sampled_from(["1.0", "1.1", "1.2"])),
    headers=st.dictionaries(text.filter(bool).map("x-".__add__), text, max_size=4),
    body=st.binary(max_size=20),
    ack=st.sampled_from(["auto", "client", "client-individual"]),
)
def test_what_is_sent_arrives_in_any_version(versions, headers, body, ack):
    sending, receiving = versions
    if sending == "1.1":
        headers = {name: value for name, value in headers.items() if "\r" not in name + value}
    bench = Bench()
    sender, receiver = bench.peer(sending), bench.peer(receiving)
    receiver.subscribe("/queue/a", ack=ack)
    sender.send("SEND", body, destination="/queue/a", **{f"{name}_": value for name, value in headers.items()})
    message = receiver.next("MESSAGE")
    assert message.body == body
    sent = {name.rstrip("_").replace("_", "-"): value for name, value in ((f"{n}_", v) for n, v in headers.items())}
    for name, value in sent.items():
        fits = receiving == "1.2" or (receiving == "1.1" and "\r" not in name + value)
        fits = fits or (receiving == "1.0" and "\n" not in name + value and ":" not in name)
        if fits and "\r" not in name + value:
            assert message.get(name) == value
        elif not fits:
            assert message.get(name) in (None, value)


# ---- credit ----


@pytest.mark.parametrize(
    ("headers", "count"),
    [
        ({}, 100),
        ({"prefetch_count": "3"}, 3),
        ({"activemq.prefetchSize": "1"}, 1),
        ({"activemq.prefetchSize": "-1"}, 120),
        ({"credit": "7,1000"}, 7),
        ({"consumer_window_size": "0"}, 1),
        ({"consumer_window_size": "-1"}, 120),
        ({"prefetch_count": "0"}, 120),
    ],
)
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_prefetch(headers, count, version):
    bench = Bench()
    peer, other = bench.peer(version), bench.peer()
    for number in range(120):
        other.put("/queue/a", str(number))
    peer.subscribe("/queue/a", ack="client-individual", **headers)
    messages = peer.take()
    assert len(messages) == count
    for message in messages[:2]:
        peer.ack(message)
    assert len(peer.take()) == min(2, count, 120 - count)


def test_a_consumer_whose_transport_is_full_leaves_the_rest_to_others():
    bench = Bench()
    peer, stuck, eager = bench.peer(), bench.peer(), bench.peer()
    stuck.subscribe("/queue/a")
    eager.subscribe("/queue/a")
    stuck.session.writable(False, bench.now)
    for number in range(100):
        peer.put("/queue/a", str(number))
    assert stuck.take() == []
    assert len(eager.bodies()) == 100
    eager.session.writable(False, bench.now)
    peer.put("/queue/a", "last")
    stuck.session.writable(True, bench.now)
    bench.turn()
    assert stuck.bodies() == [b"last"]


# ---- back-pressure ----


@pytest.mark.parametrize("limit", [{"max_queue_messages": 10}, {"max_queue_octets": 10 * 60}])
def test_the_sender_to_a_full_queue_waits(limit):
    bench = Bench(**limit)
    peer, other, consumer = bench.peer(), bench.peer(), bench.peer()
    name = "/queue/a"
    size = 0
    while not peer.session.paused:
        peer.put(name, "x" * 10)
        size += 1
    queue = bench.broker.queues["/", name]
    assert queue.count == size
    assert queue.full
    assert (queue.count - 1 <= 10) or "max_queue_messages" not in limit
    assert bench.octets == queue.octets > 0
    assert not other.session.paused
    consumer.subscribe(name, ack="client-individual")
    messages = consumer.take()
    released = 0
    for message in messages:  # UNACKED counts too, so that a consumer that never acknowledges bounds it
        consumer.ack(message)
        if not peer.session.paused:
            released = released or queue.count
    assert 0 < released < size
    assert bench.octets == queue.octets == 0


def test_a_session_that_waits_and_goes():
    bench = Bench(max_queue_messages=1)
    peer, consumer = bench.peer(), bench.peer()
    peer.put("/queue/a")
    peer.put("/queue/a")
    assert peer.session.paused
    peer.lose()
    assert not bench.broker.queues["/", "/queue/a"].blocked
    consumer.subscribe("/queue/a")
    assert len(consumer.bodies()) == 2


def test_who_consumes_the_queue_is_refused_instead():
    bench = Bench(max_queue_messages=2)
    peer = bench.peer()
    peer.subscribe("/queue/a", ack="client")
    for _ in range(3):
        peer.put("/queue/a")
    assert not peer.session.paused
    messages = peer.take()
    assert len(messages) == 3
    peer.ack(messages[0])  # still possible, and makes room
    peer.put("/queue/a")
    peer.put("/queue/a", receipt="r")
    frames = peer.take()
    assert (frames[-1].headers["message"], frames[-1].headers["receipt-id"]) == ("the queue is full", "r")
    assert bench.broker.queues["/", "/queue/a"].count == 3


# ---- names ----


@pytest.mark.parametrize(
    ("config", "queues", "topics"),
    [
        ({}, ("a", "/queue/a", "queue/a", "/other/a"), ("/topic/a",)),
        ({"queue_prefixes": ("q/",), "topic_prefixes": ("t/", "q/t/")}, ("q/a", "/topic/a"), ("t/a", "q/t/a")),
    ],
)
def test_names_without_prefix_are_queues_of_their_own(config, queues, topics):
    bench = Bench(**config)
    peer = bench.peer()
    for name in (*queues, *topics):
        peer.put(name, name)
    for number, name in enumerate((*topics, *queues)):
        peer.subscribe(name, str(number))
    assert [(frame.body.decode(), frame.headers["destination"]) for frame in peer.take()] == [(n, n) for n in queues]


def test_idle_queues_go_and_come_back():
    bench = Bench()
    peer, sender = bench.peer(), bench.peer()
    sender.put("/queue/a", "1")
    peer.subscribe("/queue/a", ack="client")
    bench.wait(100)
    peer.ack(peer.next("MESSAGE"))
    peer.send("UNSUBSCRIBE", id="1")
    assert len(bench.broker.queues) == 1
    bench.wait(100)
    assert len(bench.broker.queues) == 0
    sender.put("/queue/a", "2")  # whoever remembered the old one finds the new one
    peer.subscribe("/queue/a")
    assert peer.bodies() == [b"2"]


# ---- priorities ----


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


# ---- expiry ----


@pytest.mark.parametrize("headers", [{"expires": "1000005000"}, {"expiration": "5000"}])
def test_expired_messages_are_dropped(headers):
    bench = Bench()
    peer = bench.peer()
    for number in range(3):
        peer.put("/queue/a", str(number), **(headers if number % 2 == 0 else {}))
    bench.date += 4.9
    bench.wait(2.0)
    queue = bench.broker.queues["/", "/queue/a"]
    assert queue.count == 3
    bench.date += 0.2
    if headers.get("expires"):
        bench.wait(2.0)  # found by the sweep
        assert queue.count == 1
    peer.subscribe("/queue/a")  # or when it is to be delivered
    assert peer.bodies() == [b"1"]
    assert queue.count == queue.octets == bench.octets == 0


@pytest.mark.parametrize("value", ["0", str(2**63 - 1)])
def test_zero_and_the_latest_time_never_expire(value):
    bench = Bench()
    peer = bench.peer()
    peer.put("/queue/a", "x", expires=value, expiration=value)
    bench.date += 10**6
    bench.wait(100)
    peer.subscribe("/queue/a")
    assert peer.bodies() == [b"x"]


def test_expired_messages_become_dead_letters():
    bench = Bench(dead_letter_expired=True)
    peer = bench.peer()
    peer.put("/queue/a", "x", expiration="1", persistent="true", k="v")
    bench.date += 1
    bench.wait(2.0)
    peer.subscribe("/queue/DLQ.a")
    message = peer.next("MESSAGE")
    assert (message.body, message.headers["k"], message.get("expiration")) == (b"x", "v", None)
    assert message.headers["dead-letter-reason"] == "expired"
    assert message.headers["original-destination"] == "/queue/a"
    assert list(bench.store.load()) == []


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_nobody_gets_what_has_expired_when_it_comes(persistent):
    bench = Bench()
    peer, sender = bench.peer(), bench.peer()
    peer.subscribe("/queue/a", ack="client-individual")
    sender.put("/queue/a", "late", expires="1", persistent=persistent)
    sender.put("/queue/a", "in time", persistent=persistent)
    assert peer.bodies() == [b"in time"]
    assert bench.broker.queues["/", "/queue/a"].count == 1
    assert len(list(bench.store.load())) == (persistent == "true")


@pytest.mark.parametrize("headers", [{}, {"selector": "1 = 1"}, {"exclusive": "true"}, {"consumer_priority": "3"}])
@pytest.mark.parametrize("how", ["ack", "nack", "unsubscribe", "lose"])
def test_an_expired_message_may_be_acknowledged_and_is_not_delivered_again(headers, how):
    bench = Bench(dead_letter_expired=True)
    peer, other, sender = bench.peer(), bench.peer(), bench.peer()
    peer.subscribe("/queue/a", ack="client-individual", **headers)
    sender.put("/queue/a", "x", expiration="1000")
    message = peer.next("MESSAGE")
    other.subscribe("/queue/a", **headers)
    bench.date += 1.1
    if how == "lose":
        peer.lose()
    elif how == "unsubscribe":
        peer.send("UNSUBSCRIBE", id="1")
    else:
        peer.ack(message, how.upper())
    assert (peer.bodies(), other.bodies()) == ([], [])
    assert bench.broker.queues["/", "/queue/a"].count == 0
    other.subscribe("/queue/DLQ.a", id="2")
    assert [frame.headers["dead-letter-reason"] for frame in other.take()] == ["expired"] * (how != "ack")
    assert bench.octets == 0
