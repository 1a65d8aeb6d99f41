"""Bridges between brokers in this process: moving, mirroring, draining, cuts, refusals, loops, other brokers."""

import asyncio
import random
import time

import pytest
from bridge.running import Running, call_itself, carry, end, fill, request, take_all
from client.feeding import wait_for

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.bridge import BridgeError, Mapping, Request, Rule, UnsuitableError
from stompcodec.bridge.bridge import _Session
from stompcodec.bridge.headers import may_be_one
from stompcodec.bridge.sources import Lane
from stompcodec.errors import SilentFeedError
from stompcodec.testing import FaultProxy, StompBroker

A, DEAD = "/queue/a", "/queue/bridge-dead-letters"
ARTEMIS = "apache-activemq-artemis/2.31.2 ActiveMQ Artemis Messaging Engine"


def taken(broker, queue=A):
    return [int(message.body) for message in take_all(broker.url, queue)]


def test_move_keeps_order_headers_and_bodies(one, other):
    with stomp.connect(one.url) as client:
        client.send(A, b"\0\xff", {"kind": "x:y\n", "content-type": "image/png"}, receipt=True)
    fill(one.url, A, 300, first=1, persistent="true")
    tally = carry(one.url, other.url, A)
    assert (tally.carried, tally.refused, tally.destinations) == (301, 0, {A: 301})
    first, *rest = take_all(other.url, A)
    assert [(int(each.body), each.get("persistent")) for each in rest] == [(n, "true") for n in range(1, 301)]
    assert (first.body, first.get("kind"), first.get("content-type")) == (b"\0\xff", "x:y\n", "image/png")
    assert first.get("original-destination") == A
    assert first.get("bridge-path").endswith(f":{one.port}")
    assert take_all(one.url, A) == []


def test_it_is_acknowledged_only_after_the_receipt(one, other):
    fill(one.url, A, 5)
    other.faults.lose("RECEIPT", times=None)
    with Running(one.url, other.url, request(A), expect=0.5) as running:
        other.wait_queued(A, 5)
        wait_for(lambda: running.bridge.waiting == 5)
        time.sleep(0.7)  # FROM is not silent: it waits for the ACKs
        assert one.queued(A) == 5
        assert not any(frame.command == "ACK" for frame in one.frames)
        other.faults.clear()
        other.cut()
        with pytest.raises(SilentFeedError):
            running.result()
        one.wait_queued(A, 0)
    assert taken(other) == [0, 1, 2, 3, 4]  # sent twice, stored once


@pytest.mark.long
@pytest.mark.parametrize("batch", [0, 7])
def test_cuts_at_both_ends(one, other, batch):
    fill(one.url, A, 1500, persistent="true")
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
            assert running.result().carried == 3000
        assert near.cuts + far.cuts >= 3
    for queue in (A, "/queue/b"):
        assert (taken(other, queue), one.queued(queue)) == ([*range(1500)], 0)


def test_order_is_kept_beside_a_connection_that_is_not_known_to_be_lost(one, other, monkeypatch):
    """Messages that a silent connection holds come before later ones."""
    monkeypatch.setattr("stompcodec.bridge.bridge._GRACE", 0.1)
    fill(one.url, A, 50)
    with FaultProxy(("127.0.0.1", one.port)) as proxy:
        other.faults.lose("RECEIPT", times=None)
        source = end(f"stomp://127.0.0.1:{proxy.port}")
        with Running(source, other.url, request(A), prefetch=10) as silent:
            other.wait_queued(A, 10)
            proxy.rules.up.swallow = proxy.rules.down.swallow = True
            other.faults.clear()
            with Running(end(one.url, name=source.name), other.url, request(A)) as running:
                wait_for(lambda: running.bridge.is_ready)
                assert running.tally.carried == 0
                proxy.cut()
                wait_for(lambda: running.tally.carried == 50)
            silent.bridge.stop()
    assert taken(other) == [*range(50)]


@pytest.mark.parametrize("server", [None, "SomeBroker/1"])  # whose ACKs take no part in transactions
def test_what_the_target_refuses_goes_to_the_dead_letters(one, other, server):
    if server is not None:
        call_itself(one, server)
    fill(one.url, A, 10, persistent="true", expires="0")
    other.faults.error("SEND", "no such colour", nth=4, times=1)
    tally = carry(one.url, other.url, "/queue/a=/queue/b", way={"batch": 0, "idle": 0.1 if server else None})
    assert (tally.carried, tally.refused) == (9, 1)
    assert taken(other, "/queue/b") == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    (letter,) = take_all(one.url, DEAD)
    wanted = {"original-destination": A, "bridge-target": "/queue/b", "persistent": "true"}
    assert dict(letter.headers.pairs()).items() >= wanted.items()
    assert (letter.body, "no such colour" in letter.get("dead-letter-reason"), one.queued(A)) == (b"3", True, 0)


def test_dead_letters_do_not_configure_their_queue(one, other):
    """The x- headers of a SEND are arguments of its queue: letters would be dropped by those of the first one."""
    fill(one.url, A, 3, **{"x-max-length": "3", "x-message-ttl": "3600000"})
    other.faults.error("SEND", "no", times=None)
    assert carry(one.url, other.url, A).refused == 3
    fill(one.url, DEAD, 1, first=3)
    letters = take_all(one.url, DEAD)
    assert [letter.body for letter in letters] == [b"0", b"1", b"2", b"3"]
    assert (letters[0].get("original-x-max-length"), letters[0].get("x-max-length")) == ("3", None)


@pytest.mark.parametrize(
    ("kind", "batch", "reason"),
    [
        *(("of a transaction", 8, "bad colour"), ("without a receipt", 0, "bad colour")),
        ("without an ERROR", 0, "the connection ended 5 times when it was sent"),
    ],
)
def test_the_culprit_is_found(one, other, kind, batch, reason):
    """RabbitMQ's ERRORs name no message: those under way are sent one by one, until one ends its connection again."""

    def unsigned(frame):
        return Frame("ERROR", [pair for pair in frame.headers.pairs() if pair[0] != "receipt-id"], frame.body)

    fill(one.url, A, 30)
    fill(one.url, A, 1, first=30, bad="yes")
    fill(one.url, A, 30, first=31)
    if kind == "without an ERROR":
        other.faults.cut("SEND", times=None, bad="yes")
    else:
        other.faults.error("SEND", "bad colour", times=None, bad="yes")
    if kind == "without a receipt":
        other.faults.change("ERROR", unsigned, times=None)
    tally = carry(one.url, other.url, A, way={"batch": batch})
    assert (tally.carried, tally.refused, taken(other)) == (60, 1, [*range(30), *range(31, 61)])
    assert not batch or sum(frame.command == "COMMIT" for frame in other.frames) > 4  # transactions again behind it
    (letter,) = take_all(one.url, DEAD)
    assert (letter.body, reason in letter.get("dead-letter-reason")) == (b"30", True)


def test_a_target_that_shuts_down_or_refuses_for_a_while_blames_no_message(one, other, tmp_path):
    """Its ERROR, broker is shutting down, is about no message, however often it comes."""
    fill(one.url, A, 5)
    other.faults.error("SEND", "the disk is full", nth=3, times=3)
    tally = carry(one.url, other.url, A)
    assert (tally.carried, tally.refused, taken(other)) == (5, 0, [0, 1, 2, 3, 4])
    fill(one.url, A, 300, persistent="true")
    with StompBroker(data=tmp_path) as away, Running(one.url, away.url, request(A), prefetch=5) as running:
        for number in range(1, 4):
            wait_for(lambda number=number: running.tally.carried >= number * 20)
            away.stop()
            away.start()
        wait_for(lambda: running.tally.carried == 300)
        assert (running.tally.refused, taken(away)) == (0, [*range(300)])


DURABLE = {"durable": "x", "drain": False}


@pytest.mark.parametrize(
    ("faults", "server", "source", "what", "why"),
    [
        ("to SEND no", None, {}, {"way": {"most_refused": 3}}, "3 messages in a row were refused, .* because of: .*no"),
        ("to SEND no; from SEND gone", None, {}, {}, "was refused by the source: .*gone"),
        ("from SUBSCRIBE not", None, {}, {}, "the source refused a subscription: .*not"),
        ("", None, {"max_body": 0}, {}, "max_body"),
        ("", "SomeBroker/1", {}, {"maps": "/topic/a", **DURABLE}, "has no durable subscriptions"),
        ("", "stompcodec/1.0", {"versions": ["1.0"]}, {"maps": "/topic/a\nb", **DURABLE}, "cannot be written"),
        ("", "ActiveMQ/5.17.2", {}, {"maps": "/topic/a", **DURABLE}, "give one with --client-id"),
        ("", ARTEMIS, {}, {"maps": "/topic/a", **DURABLE}, "give one with --client-id"),
    ],
)
def test_what_ends_a_bridge_though_it_could_connect_again(one, other, faults, server, source, what, why):
    if server is not None:
        call_itself(one, server)
    fill(one.url, A, 20)
    for fault in filter(None, faults.split("; ")):
        at, command, text = fault.split()
        (one if at == "from" else other).faults.error(command, text, times=None)
    what = {"maps": A, "way": {}, "drain": True, **what}
    maps, way = what.pop("maps"), what.pop("way")
    rules = Request(Mapping([Rule(maps, maps.partition("\n")[0])]), **what)
    with Running(end(one.url, **source), other.url, rules, **way) as running, pytest.raises(BridgeError, match=why):
        running.result()
    one.faults.clear()
    wait_for(lambda: one.queued(A) + one.queued(DEAD) == 20)
    assert one.queued(DEAD) <= 3


def test_more_subscriptions_than_a_session_may_have_are_refused_by_name(other):
    with StompBroker(max_subscriptions=2) as one:
        for number in range(3):
            fill(one.url, f"/queue/{number}", 1)
        with pytest.raises(BridgeError, match="FROM does not allow 3 subscriptions at a time: map fewer"):
            carry(one.url, other.url, "/queue/*", drain=False)


@pytest.mark.parametrize("name", ["purge", "none"])
def test_no_message_becomes_a_request_to_manage(one, other, name):
    """Whoever may send to FROM could give orders with the rights of the bridge; and answers would replace messages."""
    fill(other.url, "/queue/kept", 3)
    body = '{"destination": "/queue/kept"}'
    with stomp.connect(one.url) as client:
        client.send(A, body, {"reply-to": "/queue/answers"}, receipt=True)
    tally = carry(one.url, other.url, f"{A}=/management/{name}")
    assert (tally.carried, tally.refused) == (0, 1)
    assert (other.queued("/queue/kept"), other.queued("/queue/answers")) == (3, 0)
    (refused,) = take_all(one.url, DEAD)
    assert refused.body.decode() == body
    assert "a request cannot come through a bridge" in refused.headers["dead-letter-reason"]


def test_a_loop_is_refused(one, other):
    """Also the other way round under other names: then a message comes round once, and not again."""
    fill(one.url, A, 3)
    assert carry(one.url, other.url, A).carried == 3
    tally = carry(other.url, one.url, A)
    assert (tally.carried, tally.refused, one.queued(A), other.queued(A)) == (0, 3, 0, 0)
    assert [letter.get("dead-letter-reason")[:5] for letter in take_all(other.url, DEAD)] == ["loop:"] * 3
    fill(one.url, "/queue/b", 1)
    carry(one.url, other.url, "/queue/b")
    carry(end(other.url, name="x"), end(one.url, name="y"), "/queue/b")
    tally = carry(one.url, other.url, "/queue/b")
    assert (tally.carried, tally.refused) == (0, 1)


def test_mirror_leaves_the_messages(one, other):
    fill(one.url, A, 10)
    with Running(one.url, other.url, request(A, mirror=True)) as running:
        other.wait_queued(A, 10)
        fill(one.url, A, 5, first=10)
        other.wait_queued(A, 15)
        one.cut()
        fill(one.url, A, 5, first=15)
        other.wait_queued(A, 20)
        wait_for(lambda: running.tally.carried == 20)  # from where it was
    assert (one.queued(A), taken(other)) == (20, [*range(20)])
    assert carry(one.url, other.url, A, mirror=True).carried == 20  # again: known by their keys
    assert other.queued(A) == 0


def test_what_a_drain_leaves_is_counted(one, other):
    fill(one.url, A, 3)
    fill(one.url, A, 2, first=3, delay="3600000")
    fill(one.url, "/queue/other", 5)
    tally = carry(one.url, other.url, A, way={"idle": 0.1})
    assert (tally.carried, tally.left, tally.counts()["left"]) == (3, 2, 2)
    assert carry(one.url, other.url, "/queue/other").left == 0
    fill(one.url, DEAD, 1)
    assert carry(one.url, other.url, "/queue/*", way={"idle": 0.1}).left == 2


def test_a_broker_that_does_not_count_is_browsed(one, other):
    call_itself(one, "ActiveMQ/5.17.2")

    async def has_more():
        async with stomp.connect_async(one.url) as client:
            bridge = Running(one.url, other.url, request(A, "/queue/b")).bridge
            bridge._session = _Session(client)
            bridge._session.subscribed = [Lane(A, None), Lane("/queue/b", None)]
            return await bridge._has_more()

    assert not asyncio.run(has_more())
    fill(one.url, "/queue/b", 1)
    assert asyncio.run(has_more())
    before = len(one.frames)
    fill(one.url, A, 3)
    assert carry(one.url, other.url, A, "/topic/b").carried == 3
    browsed = [frame for frame in one.frames[before:] if frame.command == "SUBSCRIBE" and frame.get("browser")]
    assert {frame.headers["destination"] for frame in browsed} == {A}  # a topic holds nothing


@pytest.fixture
def near(monkeypatch):
    """Have bridges look at their ends, in spite of `apart`."""
    monkeypatch.setattr("stompcodec.bridge.bridge.may_be_one", may_be_one)


@pytest.mark.parametrize("which", ["there", "back", "virtual hosts"])
def test_two_ports_or_virtual_hosts_of_one_broker(near, one, which):
    fill(one.url, A, 3)
    ends = {"there": (one.url, one.ws_url), "back": (one.ws_url, one.url), "virtual hosts": (one.url, f"{one.url}/b")}
    with pytest.raises(UnsuitableError, match=r"FROM and TO are the same broker: a message to .* arrived from "):
        carry(*ends[which], f"{A}=/queue/b")
    assert (taken(one), one.queued("/queue/b")) == ([0, 1, 2], 0)


@pytest.mark.parametrize("refusal", [None, "SUBSCRIBE", "SEND", "PING"])
def test_two_brokers_on_one_machine_though_one_refuses_to_be_looked_at(near, one, other, refusal):
    fill(one.url, A, 3)
    if refusal is not None:
        (other if refusal == "SEND" else one).faults.error(refusal, "not yours", times=1)
    assert carry(one.url, other.url, A).carried == 3
    probes = [frame for frame in other.frames if frame.command == "SEND" and "probe" in frame.headers["destination"]]
    assert all(probe.headers["destination"].startswith("/topic/bridge-probe-") for probe in probes)
    assert len(probes) == 1 or refusal is not None
