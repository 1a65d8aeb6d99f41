"""Bridges between brokers in this process: moving, mirroring, draining, cuts, refusals, loops, other brokers."""

import asyncio
import random

import pytest
from bridge.running import Running, call_itself, carry, end, fill, request, take_all
from client.feeding import wait_for
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.bridge import BridgeError, Mapping, Request, Rule, UnsuitableError
from stompcodec.bridge.bridge import _Session
from stompcodec.bridge.headers import may_be_one
from stompcodec.bridge.sources import Lane
from stompcodec.testing import FaultProxy, StompBroker

DEAD = "/queue/bridge-dead-letters"


def numbers(messages):
    return [int(message.body) for message in messages]


def test_move_keeps_order_headers_and_bodies(one, other):
    with stomp.connect(one.url) as client:
        client.send("/queue/a", b"\0\xff", {"kind": "x:y\n", "content-type": "image/png"}, receipt=True)
    fill(one.url, "/queue/a", 300, first=1, persistent="true")
    tally = carry(one.url, other.url, "/queue/a")
    assert (tally.carried, tally.refused, tally.destinations) == (301, 0, {"/queue/a": 301})
    first, *rest = take_all(other.url, "/queue/a")
    assert numbers(rest) == list(range(1, 301))
    assert (first.body, first.get("kind"), first.get("content-type")) == (b"\0\xff", "x:y\n", "image/png")
    assert first.get("original-destination") == "/queue/a"
    assert first.get("bridge-path").endswith(f":{one.port}")
    assert {message.get("persistent") for message in rest} == {"true"}
    assert take_all(one.url, "/queue/a") == []


def test_a_count_ends_a_drain_of_many_queues(one, other, monkeypatch):
    monkeypatch.setattr("stompcodec.bridge.bridge._MOST_LANES", 1)
    for number in range(4):
        fill(one.url, f"/queue/{number}", 2)
    with Running(one.url, other.url, request("/queue/*", drain=True), most=3) as running:
        assert running.result().carried == 3
        assert running.bridge.source.epoch == 2  # two queues were enough


def test_more_subscriptions_than_a_session_may_have_are_refused_by_name(other):
    with StompBroker(max_subscriptions=2) as one:
        for number in range(3):
            fill(one.url, f"/queue/{number}", 1)
        with pytest.raises(BridgeError, match="FROM does not allow 3 subscriptions at a time: map fewer"):
            carry(one.url, other.url, "/queue/*", drain=False)


def test_a_copy_is_complete_before_the_bridge_ends(one, other, monkeypatch):
    """All messages are taken at once; the target takes its time."""
    monkeypatch.setattr("stompcodec.bridge.bridge._GRACE", 0.0)
    fill(one.url, "/queue/a", 20)
    other.faults.delay("RECEIPT", 0.3)
    assert carry(one.url, other.url, "/queue/a", mirror=True).carried == 20


def test_destinations_that_come_later(one, other, monkeypatch):
    monkeypatch.setattr("stompcodec.bridge.bridge._LIST", 0.02)
    fill(one.url, "/queue/first", 1)
    with Running(one.url, other.url, request("/queue/*")):
        other.wait_queued("/queue/first", 1)
        fill(one.url, "/queue/later", 1)
        other.wait_queued("/queue/later", 1)


def test_names_from_elsewhere(one, other):
    fill(one.url, "/queue/a", 1)
    fill(one.url, "/queue/b", 1)
    tally = carry(one.url, other.url, "/queue/*", names=("/queue/a", "/topic/x"))
    assert tally.destinations == {"/queue/a": 1}


def test_it_is_acknowledged_only_after_the_receipt(one, other):
    fill(one.url, "/queue/a", 5)
    other.faults.lose("RECEIPT", times=None)
    with Running(one.url, other.url, request("/queue/a")) as running:
        other.wait_queued("/queue/a", 5)
        wait_for(lambda: running.bridge.waiting == 5)
        assert one.queued("/queue/a") == 5
        assert not any(frame.command == "ACK" for frame in one.frames)
        other.faults.clear()
        other.cut()
        wait_for(lambda: running.tally.carried == 5)
        one.wait_queued("/queue/a", 0)
    assert numbers(take_all(other.url, "/queue/a")) == [0, 1, 2, 3, 4]  # sent twice, stored once


@pytest.mark.long
@pytest.mark.parametrize("batch", [0, 7])
def test_cuts_at_both_ends(one, other, batch):
    """Each message is stored once, in its order, however often the connections are cut."""
    fill(one.url, "/queue/a", 1500, persistent="true")
    fill(one.url, "/queue/b", 1500)
    chance = random.Random(5)
    with FaultProxy(("127.0.0.1", one.port)) as near, FaultProxy(("127.0.0.1", other.port)) as far:
        ends = end(f"stomp://127.0.0.1:{near.port}"), end(f"stomp://127.0.0.1:{far.port}")
        with Running(*ends, request("/queue/*", drain=True), prefetch=50, batch=batch) as running:
            for _ in range(12):
                proxy = chance.choice([near, far])
                proxy.rules.up.cut_after = proxy.rules.down.cut_after = (200, 20_000)
                before = proxy.cuts
                wait_for(lambda proxy=proxy, before=before: proxy.cuts > before or running.tally.carried == 3000)
                proxy.rules.up.cut_after = proxy.rules.down.cut_after = None
            tally = running.result()
        assert near.cuts + far.cuts >= 3
    assert tally.carried == 3000
    for queue in ("/queue/a", "/queue/b"):
        assert numbers(take_all(other.url, queue)) == list(range(1500))
        assert one.queued(queue) == 0


def test_two_bridges_share_a_queue(one, other):
    fill(one.url, "/queue/a", 500)
    what = request("/queue/a", drain=True, shared=True)
    with Running(one.url, other.url, what, prefetch=5) as a, Running(one.url, other.url, what, prefetch=5) as b:
        assert a.result().carried + b.result().carried == 500
    assert sorted(numbers(take_all(other.url, "/queue/a"))) == list(range(500))


def test_one_bridge_stands_by_for_another(one, other):
    """Only one consumer at a time keeps the order, also while the broker has not noticed that a connection is lost."""
    what = request("/queue/a")
    with Running(one.url, other.url, what) as first:
        wait_for(lambda: first.bridge.is_ready)
        with Running(one.url, other.url, what) as second:
            wait_for(lambda: second.bridge.is_ready)
            fill(one.url, "/queue/a", 10)
            wait_for(lambda: first.tally.carried == 10)
            first.bridge.stop()
            first.result()
            fill(one.url, "/queue/a", 10, first=10)
            wait_for(lambda: second.tally.carried == 10)
    assert numbers(take_all(other.url, "/queue/a")) == list(range(20))


def test_order_is_kept_beside_a_connection_that_is_not_known_to_be_lost(one, other, monkeypatch):
    """Messages that a silent connection holds come before later ones."""
    monkeypatch.setattr("stompcodec.bridge.bridge._GRACE", 0.1)
    fill(one.url, "/queue/a", 50)
    with FaultProxy(("127.0.0.1", one.port)) as proxy:
        other.faults.lose("RECEIPT", times=None)
        source = end(f"stomp://127.0.0.1:{proxy.port}")
        with Running(source, other.url, request("/queue/a"), prefetch=10) as silent:
            other.wait_queued("/queue/a", 10)
            proxy.rules.up.swallow = proxy.rules.down.swallow = True
            other.faults.clear()
            with Running(end(one.url, name=source.name), other.url, request("/queue/a")) as running:
                wait_for(lambda: running.bridge.is_ready)
                assert running.tally.carried == 0
                proxy.cut()
                wait_for(lambda: running.tally.carried == 50)
            silent.bridge.stop()
    assert numbers(take_all(other.url, "/queue/a")) == list(range(50))


def test_back_pressure(one):
    """A target that is full is waited for, and the bridge holds no more than it may."""
    fill(one.url, "/queue/a", 3000)
    full, what = StompBroker(max_queue_messages=20), request("/queue/a", drain=True)
    with full, Running(one.url, full.url, what, prefetch=5000) as running:
        wait_for(lambda: full.queued("/queue/a") >= 20 and running.bridge.waiting == 1000)
        assert one.queued("/queue/a") >= 1900
        with stomp.connect(full.url) as client, client.subscribe("/queue/a", ack="client") as subscription:
            for number in range(3000):
                message = subscription.get(patience(20))
                assert int(message.body) == number
                message.ack()
        assert running.result().refused == 0


def test_what_the_target_refuses_goes_to_the_dead_letters(one, other):
    fill(one.url, "/queue/a", 10, persistent="true", expires="0")
    other.faults.error("SEND", "no such colour", nth=4, times=1)
    tally = carry(one.url, other.url, "/queue/a=/queue/b", way={"batch": 0})
    assert (tally.carried, tally.refused) == (9, 1)
    assert numbers(take_all(other.url, "/queue/b")) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    (letter,) = take_all(one.url, DEAD)
    assert letter.body == b"3"
    assert "no such colour" in letter.get("dead-letter-reason")
    assert letter.get("original-destination") == "/queue/a"
    assert letter.get("bridge-target") == "/queue/b"
    assert letter.get("persistent") == "true"
    assert one.queued("/queue/a") == 0


def test_dead_letters_do_not_configure_their_queue(one, other):
    """The x- headers of a SEND are arguments of its queue: letters would be dropped by those of the first one."""
    fill(one.url, "/queue/a", 3, **{"x-max-length": "3", "x-message-ttl": "3600000"})
    other.faults.error("SEND", "no", times=None)
    assert carry(one.url, other.url, "/queue/a").refused == 3
    fill(one.url, DEAD, 1, first=3)
    letters = take_all(one.url, DEAD)
    assert numbers(letters) == [0, 1, 2, 3]
    assert (letters[0].get("original-x-max-length"), letters[0].get("x-max-length")) == ("3", None)


@pytest.mark.parametrize(
    ("kind", "batch", "reason"),
    [
        ("of a transaction", 8, "bad colour"),
        ("without a receipt", 0, "bad colour"),
        ("without an ERROR", 0, "the connection ended 5 times when it was sent"),
    ],
)
def test_the_culprit_is_found(one, other, kind, batch, reason):
    """RabbitMQ's ERRORs name no message: those under way are sent one by one, until one ends its connection again."""

    def unsigned(frame):
        return Frame("ERROR", [pair for pair in frame.headers.pairs() if pair[0] != "receipt-id"], frame.body)

    fill(one.url, "/queue/a", 30)
    fill(one.url, "/queue/a", 1, first=30, bad="yes")
    fill(one.url, "/queue/a", 30, first=31)
    if kind == "without an ERROR":
        other.faults.cut("SEND", times=None, bad="yes")
    else:
        other.faults.error("SEND", "bad colour", times=None, bad="yes")
    if kind == "without a receipt":
        other.faults.change("ERROR", unsigned, times=None)
    tally = carry(one.url, other.url, "/queue/a", way={"batch": batch})
    assert (tally.carried, tally.refused) == (60, 1)
    assert numbers(take_all(other.url, "/queue/a")) == [*range(30), *range(31, 61)]
    (letter,) = take_all(one.url, DEAD)
    assert (letter.body, reason in letter.get("dead-letter-reason")) == (b"30", True)


def test_a_target_that_shuts_down_blames_no_message(one, other, tmp_path):
    """Its ERROR, broker is shutting down, is about no message, however often it comes."""
    fill(one.url, "/queue/a", 300, persistent="true")
    with StompBroker(data=tmp_path) as away, Running(one.url, away.url, request("/queue/a"), prefetch=5) as running:
        for number in range(1, 4):
            wait_for(lambda number=number: running.tally.carried >= number * 20)
            away.stop()
            away.start()
        wait_for(lambda: running.tally.carried == 300)
        assert running.tally.refused == 0
        assert numbers(take_all(away.url, "/queue/a")) == list(range(300))


def test_a_refusal_that_passes_is_waited_for(one, other):
    fill(one.url, "/queue/a", 5)
    other.faults.error("SEND", "the disk is full", nth=3, times=3)
    tally = carry(one.url, other.url, "/queue/a")
    assert (tally.carried, tally.refused) == (5, 0)
    assert numbers(take_all(other.url, "/queue/a")) == [0, 1, 2, 3, 4]


def test_a_target_that_refuses_everything_ends_it(one, other):
    fill(one.url, "/queue/a", 20)
    other.faults.error("SEND", "not allowed", times=None)
    with pytest.raises(BridgeError, match=r"3 messages in a row were refused, the last one because of: .*not allowed"):
        carry(one.url, other.url, "/queue/a", way={"most_refused": 3})
    assert one.queued("/queue/a") + one.queued(DEAD) == 20
    assert one.queued(DEAD) <= 3


def test_dead_letters_that_the_source_refuses_end_it(one, other):
    fill(one.url, "/queue/a", 2)
    other.faults.error("SEND", "no", times=1)
    one.faults.error("SEND", "not there", times=None)
    with pytest.raises(BridgeError, match=r"was refused by the source: .*not there"):
        carry(one.url, other.url, "/queue/a")
    one.faults.clear()
    one.wait_queued("/queue/a", 2)


def test_a_loop_is_refused(one, other):
    """Also the other way round under other names: then a message comes round once, and not again."""
    fill(one.url, "/queue/a", 3)
    assert carry(one.url, other.url, "/queue/a").carried == 3
    tally = carry(other.url, one.url, "/queue/a")
    assert (tally.carried, tally.refused) == (0, 3)
    assert one.queued("/queue/a") == other.queued("/queue/a") == 0
    letters = take_all(other.url, DEAD)
    assert {message.get("dead-letter-reason").partition(":")[0] for message in letters} == {"loop"}
    fill(one.url, "/queue/b", 1)
    carry(one.url, other.url, "/queue/b")
    carry(end(other.url, name="x"), end(one.url, name="y"), "/queue/b")
    tally = carry(one.url, other.url, "/queue/b")
    assert (tally.carried, tally.refused) == (0, 1)


def test_topics_in_both_directions_come_to_rest(one, other):
    with Running(one.url, other.url, request("/topic/t", mirror=True)) as there:
        one.wait_subscribed("/topic/t")
        with Running(other.url, one.url, request("/topic/t", mirror=True)) as back:
            other.wait_subscribed("/topic/t")
            with stomp.connect(other.url) as client, client.subscribe("/topic/t") as subscription:
                other.wait_subscribed("/topic/t", count=2)
                fill(one.url, "/topic/t", 5)
                assert [int(subscription.get(patience(10)).body) for _ in range(5)] == [0, 1, 2, 3, 4]
                wait_for(lambda: back.tally.looped == 5)
                assert subscription.get(0.05) is None
            assert (there.tally.carried, back.tally.carried) == (5, 0)


def test_mirror_leaves_the_messages(one, other):
    fill(one.url, "/queue/a", 10)
    with Running(one.url, other.url, request("/queue/a", mirror=True)) as running:
        other.wait_queued("/queue/a", 10)
        fill(one.url, "/queue/a", 5, first=10)
        other.wait_queued("/queue/a", 15)
        one.cut()
        fill(one.url, "/queue/a", 5, first=15)
        other.wait_queued("/queue/a", 20)
        wait_for(lambda: running.tally.carried == 20)  # from where it was
    assert one.queued("/queue/a") == 20
    assert numbers(take_all(other.url, "/queue/a")) == list(range(20))
    assert carry(one.url, other.url, "/queue/a", mirror=True).carried == 20  # again: known by their keys
    assert other.queued("/queue/a") == 0


def test_what_a_drain_leaves_is_counted(one, other):
    fill(one.url, "/queue/a", 3)
    fill(one.url, "/queue/a", 2, first=3, delay="3600000")
    fill(one.url, "/queue/other", 5)
    tally = carry(one.url, other.url, "/queue/a", way={"idle": 0.1})
    assert (tally.carried, tally.left, tally.counts()["left"]) == (3, 2, 2)
    assert carry(one.url, other.url, "/queue/other").left == 0
    fill(one.url, DEAD, 1)
    assert carry(one.url, other.url, "/queue/*", way={"idle": 0.1}).left == 2


def test_stop_ends_in_good_order(one, other):
    fill(one.url, "/queue/a", 2000)
    with Running(one.url, other.url, request("/queue/a")) as running:
        wait_for(lambda: running.tally.carried > 10)
        running.bridge.stop()
        tally = running.result()
    one.wait_queued("/queue/a", 2000 - tally.carried)
    assert other.queued("/queue/a") == tally.carried  # nothing is at both


def test_a_body_over_the_limit_stays_at_the_source(one, other):
    with stomp.connect(one.url) as client:
        client.send("/queue/a", bytes(5000), receipt=True)
    with pytest.raises(BridgeError, match="max_body"):
        carry(end(one.url, max_body=1000), other.url, "/queue/a")
    assert one.queued("/queue/a") == 1


def test_a_subscription_that_is_refused_is_an_error(one, other):
    one.faults.error("SUBSCRIBE", "not yours")
    with pytest.raises(BridgeError, match=r"the source refused a subscription: .*not yours"):
        carry(one.url, other.url, "/queue/a")


@pytest.mark.parametrize("name", ["purge", "none"])
def test_no_message_becomes_a_request_to_manage(one, other, name):
    """Whoever may send to FROM could give orders with the rights of the bridge; and answers would replace messages."""
    fill(other.url, "/queue/kept", 3)
    body = '{"destination": "/queue/kept"}'
    with stomp.connect(one.url) as client:
        client.send("/queue/a", body, {"reply-to": "/queue/answers"}, receipt=True)
    tally = carry(one.url, other.url, f"/queue/a=/management/{name}")
    assert (tally.carried, tally.refused) == (0, 1)
    assert (other.queued("/queue/kept"), other.queued("/queue/answers")) == (3, 0)
    (refused,) = take_all(one.url, "/queue/bridge-dead-letters")
    assert refused.body.decode() == body
    assert "a request cannot come through a bridge" in refused.headers["dead-letter-reason"]


# ---- brokers of other people, as which ours appears here ----


def test_a_broker_that_does_not_count_is_browsed(one, other):
    call_itself(one, "ActiveMQ/5.17.2")
    fill(one.url, "/queue/a", 3)
    with Running(one.url, other.url, request("/queue/a", "/topic/b", drain=True)) as running:
        assert running.result().carried == 3
    browsed = [frame for frame in one.frames if frame.command == "SUBSCRIBE" and frame.headers.get("browser")]
    assert {frame.headers["destination"] for frame in browsed} == {"/queue/a"}  # a topic holds nothing


@pytest.mark.parametrize(
    "server", ["ActiveMQ/5.17.2", "apache-activemq-artemis/2.31.2 ActiveMQ Artemis Messaging Engine"]
)
def test_a_durable_subscription_without_the_client_id_that_the_broker_requires(one, other, server):
    call_itself(one, server)
    with pytest.raises(UnsuitableError, match="give one with --client-id"):
        carry(one.url, other.url, "/topic/a", durable="x")
    assert carry(end(one.url, client_id="me"), other.url, "/topic/a", durable="x", way={"idle": 0.1}).carried == 0


@pytest.mark.parametrize(
    ("server", "options", "maps", "what"),
    [
        ("SomeBroker/1", {}, "/topic/a", "has no durable subscriptions"),
        ("stompcodec/1.0", {"versions": ["1.0"]}, "/topic/a\nb", "cannot be written"),
    ],
)
def test_a_subscription_that_cannot_be_asked_for_ends_the_bridge(one, other, server, options, maps, what):
    """To connect again would not help."""
    call_itself(one, server)
    rules = Mapping([Rule(maps, "/topic/b")])
    running = Running(end(one.url, **options), other.url, Request(rules, durable="x"))
    with running, pytest.raises(BridgeError, match=what):
        running.result()


def test_dead_letters_of_a_broker_whose_acks_take_no_part_in_transactions(one, other):
    call_itself(one, "SomeBroker/1")
    fill(one.url, "/queue/a", 2)
    other.faults.error("SEND", "no", times=1)
    tally = carry(one.url, other.url, "/queue/a", way={"idle": 0.1})
    assert (tally.carried, tally.refused, one.queued("/queue/a")) == (1, 1, 0)
    (letter,) = take_all(one.url, DEAD)
    assert letter.get("original-destination") == "/queue/a"


def test_a_queue_of_which_a_browser_sees_something_is_not_empty(one, other):
    call_itself(one, "ActiveMQ/5.17.2")

    async def look(client):
        bridge = Running(one.url, other.url, request("/queue/a", "/queue/b")).bridge
        bridge._session = _Session(client)
        bridge._session.subscribed = [Lane("/queue/a", None), Lane("/queue/b", None)]
        return await bridge._has_more()

    async def look_anew():
        async with stomp.connect_async(one.url) as client:
            return await look(client)

    assert not asyncio.run(look_anew())
    fill(one.url, "/queue/b", 1)
    assert asyncio.run(look_anew())


# ---- one broker at both ends ----


@pytest.fixture
def near(monkeypatch):
    """Have bridges look at their ends, in spite of `apart`."""
    monkeypatch.setattr("stompcodec.bridge.bridge.may_be_one", may_be_one)


@pytest.mark.parametrize("which", ["there", "back", "virtual hosts"])
def test_two_ports_or_virtual_hosts_of_one_broker(near, one, which):
    fill(one.url, "/queue/a", 3)
    ends = {"there": (one.url, one.ws_url), "back": (one.ws_url, one.url), "virtual hosts": (one.url, f"{one.url}/b")}
    with pytest.raises(UnsuitableError, match=r"FROM and TO are the same broker: a message to .* arrived from "):
        carry(*ends[which], "/queue/a=/queue/b")
    assert numbers(take_all(one.url, "/queue/a")) == [0, 1, 2]
    assert one.queued("/queue/b") == 0


def test_two_brokers_on_one_machine(near, one, other):
    fill(one.url, "/queue/a", 3)
    assert carry(one.url, other.url, "/queue/a").carried == 3
    (probe,) = [frame for frame in other.frames if frame.command == "SEND" and "probe" in frame.headers["destination"]]
    assert probe.headers["destination"].startswith("/topic/bridge-probe-")


@pytest.mark.parametrize("refusal", ["SUBSCRIBE", "SEND", "PING"])
def test_a_broker_that_refuses_to_be_looked_at_counts_as_another(near, one, other, refusal):
    fill(one.url, "/queue/a", 3)
    (other if refusal == "SEND" else one).faults.error(refusal, "not yours", times=1)
    assert carry(one.url, other.url, "/queue/a").carried == 3
