"""Acknowledgements, what brokers call things, and their traps that the client names or refuses."""

import contextlib
import logging
from types import SimpleNamespace

import pytest
from client.scripted import Scripted, outcome

from stompcodec import Frame
from stompcodec.broker.config import DIALECTS
from stompcodec.client import dialects, handlers
from stompcodec.client.dialects import BROKERS, row_of
from stompcodec.client.messages import Subscription
from stompcodec.errors import LocalProtocolError

# ---- acknowledgements ----


@pytest.mark.req("S12-ACK-01", "S12-NAK-01", "S11-ACK-01", "S11-ACK-02", "S11-NAK-01", "S10-ACK-01")
@pytest.mark.parametrize(
    ("version", "command", "headers"),
    [
        ("1.2", "ACK", {"id": "am1"}),
        ("1.2", "NACK", {"id": "am1"}),
        ("1.1", "ACK", {"message-id": "m1", "subscription": "s1"}),
        ("1.1", "NACK", {"message-id": "m1", "subscription": "s1"}),
        ("1.0", "ACK", {"message-id": "m1"}),
    ],
)
def test_each_version_names_the_message_in_its_way(version, command, headers):
    client = Scripted(version=version).connect()
    subscription = client.subscribed("client")
    client.ack(client.deliver(subscription), command)
    (frame,) = client.frames()
    assert (frame.command, dict(frame.headers)) == (command, headers)


def test_an_ack_that_waits_when_the_connection_goes_is_stale(client):
    subscription = client.subscribed("client-individual")
    message = client.deliver(subscription)
    client.core.link.writable(False)
    call = client.call("ACK", command="ACK")
    client.ack(message, call=call)
    client.lose()
    client.connect()
    assert outcome(call) == "StaleAckError"
    assert client.frames() == []


@pytest.mark.parametrize("mode", ["client-individual", "auto"])
def test_settling_twice(client, mode):
    message = client.deliver(client.subscribed(mode))
    client.ack(message)
    call = client.call()
    client.ack(message, call=call)
    assert outcome(call) == "accepted"
    with pytest.raises(LocalProtocolError):
        client.ack(message, "NACK")
    assert client.commands() == ["ACK"] * (mode != "auto")


@pytest.mark.req("S11-SUB-08")
def test_an_ack_in_client_mode_covers_what_came_before(client):
    subscription = client.subscribed("client")
    messages = [client.deliver(subscription, f"m{number}") for number in range(4)]
    client.ack(messages[2])
    assert subscription.open == 1
    for message in (messages[0], messages[3]):
        client.ack(message)
    assert [frame.headers["id"] for frame in client.frames()] == ["am2", "am3"]
    assert subscription.open == 0


def test_a_server_that_sends_no_ack_header_gets_no_ack(client):
    subscription = client.subscribed("client-individual")
    pairs = {"subscription": subscription.id, "message-id": "m", "destination": "d"}
    client.answer("MESSAGE", pairs)
    client.answer("MESSAGE", pairs)
    first, second = client.take(subscription)
    client.ack(first)
    with pytest.raises(LocalProtocolError, match=r"NACK not possible: .* without an ack header"):
        client.ack(first, "NACK")
    client.lose()
    client.connect()
    client.ack(second)  # nothing is to come again
    assert {"ACK", "NACK"}.isdisjoint(frame.command for _, frame in client.seen)


# ---- what brokers call things ----

_COUNT = {"prefetch-count": "5", "durable": "true", "auto-delete": "false"}
_ACTIVEMQ = {"activemq.prefetchSize": "5", "activemq.subscriptionName": "daily"}
_ARTEMIS = {"consumer-window-size": "8388608", "durable-subscription-name": "daily", "subscription-type": "MULTICAST"}
_DISCARD, _REFUSED = {"requeue": "false"}, "activemq does not support NACK in a transaction"
#: Server: a durable subscription, with 5 messages ahead, and what one without a client-id lacks; NACK with requeue
#: (None is refused) and without; what is sent at once of a NACK in a transaction; whether text has a content-length.
WORDS = {
    "stompcodec/1": (_COUNT, None, {}, _DISCARD, ["NACK"], True),
    "stompcodec/1 as stompcodec": (_COUNT, None, {}, _DISCARD, ["NACK"], True),
    "stompcodec/1 as rabbitmq": (_COUNT, None, {}, _DISCARD, ["NACK"], True),
    "stompcodec/1 as activemq": (_ACTIVEMQ, "client_id", {}, _DISCARD, ["NACK"], False),
    "stompcodec/1 as artemis": (_ARTEMIS, "client_id", {}, _DISCARD, [], False),
    "RabbitMQ/3.10.8": (_COUNT, None, {"requeue": "true"}, _DISCARD, ["NACK"], True),
    "ActiveMQ/6.1": (_ACTIVEMQ, "client_id", None, {}, _REFUSED, False),
    "ActiveMQ-Artemis/2.40": (_ARTEMIS, "client_id", None, {}, [], False),
    "?": ({}, "durable", {}, {}, ["NACK"], True),
}


@pytest.mark.parametrize("server", WORDS)
def test_everything_in_the_words_of_the_broker(server):
    durable, lacks, requeue, discard, within, counted = WORDS[server]

    def refused(said):
        return pytest.raises(LocalProtocolError, match=said) if said else contextlib.nullcontext()

    client = Scripted(server=server, client_id="me").connect()
    with refused(not durable and lacks):
        client.subscribe("client-individual", prefetch=5, durable="daily", destination="/topic/news")
    given = {"id": "daily", "destination": "/topic/news", "ack": "client-individual", "receipt": "r1"}
    assert [dict(frame.headers) for frame in client.frames()] == [{**given, **durable}] * bool(durable)
    client = Scripted(server=server).connect()
    with refused(lacks):
        client.subscribe(durable="daily")
    assert len(client.frames()) == len(client.core.inbound.subscriptions) == (lacks is None)
    for again, headers in ((True, requeue), (False, discard)):
        client = Scripted(server=server).connect()
        message = client.deliver(client.subscribed("client-individual"))
        with refused(headers is None and "cannot requeue"):
            client.ack(message, "NACK", requeue=again)
        sent = [dict(frame.headers) for frame in client.frames()]
        assert sent == [{"id": "am1", **headers}] if headers is not None else not sent
    client = Scripted(server=server).connect()
    message = client.deliver(client.subscribed("client-individual", prefetch=1))
    transaction = client.begin()
    client.frames()
    with refused(within == _REFUSED and _REFUSED):
        client.ack(message, "NACK", transaction=transaction)
    if within == _REFUSED:
        client.ack(message, "ACK", transaction=transaction)
    assert client.commands() == (["ACK"] if within == _REFUSED else within)
    assert client.core.send(Frame("SEND", {"destination": "/queue/a"}, b"text"), client.now, None, text=True)
    assert (b"content-length" in b"".join(client.core.link.take_output(client.now))) is counted


@pytest.mark.parametrize(
    ("before", "after", "names", "expected"),
    [
        ("test/1", "ActiveMQ/5.17.2", ("prefetch-count", "activemq.prefetchSize"), [("7", None), (None, "7")]),
        ("RabbitMQ/4.2.0", "RabbitMQ/4.3.1", ("prefetch-count", "exclusive"), [("7", None), ("7", "true")]),
    ],
)
def test_a_reconnect_to_another_broker_uses_its_words(before, after, names, expected):
    client = Scripted(server=before).connect()
    client.subscribed(prefetch=7, destination="/topic/a")
    client.server_name = after
    client.lose()
    client.connect()
    asked = [frame for _, frame in client.seen if frame.command == "SUBSCRIBE"]
    assert [tuple(frame.get(name) for name in names) for frame in asked] == expected


def test_each_subscription_and_connection_has_a_durable_queue_of_its_own():
    """A shared queue would halve the messages."""
    with pytest.raises(ValueError, match="topic_queues is 'quorum': use auto, transient, exclusive, durable"):
        Scripted(topic_queues="quorum")
    client = Scripted(server="RabbitMQ/4.3.0", topic_queues="durable").connect()
    for _ in range(2):
        client.subscribed(destination="/topic/a")
    client.lose()
    client.connect()
    names = [frame.get("x-queue-name") for _, frame in client.seen if frame.command == "SUBSCRIBE"]
    assert len(names) == len(set(names)) == 4


@pytest.mark.parametrize(
    ("server", "count", "attempt"),
    [("stompcodec/1 as artemis", "3", 4), ("stompcodec/1", "9" * 5000, 2), ("ActiveMQ/5", "7", 2)],
    ids=["ours", "odd", "others"],
)
def test_which_attempt_it_is(server, count, attempt):
    client = Scripted(server=server).connect()
    first = client.deliver(client.subscribed())
    message = client.deliver(client.subscribed(), redelivered="true", **{"redelivery-count": count})
    assert (first.attempt, message.attempt) == (1, attempt)
    message.count_calls(2)
    assert message.attempt == attempt + 2


# ---- which row it is ----


@pytest.mark.parametrize(
    ("server", "name"),
    [
        *((f"stompcodec/12.3.dev4+g1 as {name}", name) for name in DIALECTS),
        ("stompcodec/0.1.0 as something-new", "stompcodec"),
        *((f"{name}/2.31.0", "artemis") for name in ("ActiveMQ-Artemis", "Apache-Artemis", "Artemis")),
        *((name, "unknown") for name in ("a broker as artemis", "notrabbitmq/1", "", None)),
    ],
)
def test_the_server_header_chooses_the_row(server, name):
    assert row_of("auto", server).name == name


def test_the_option_wins_and_our_own_broker_keeps_its_nack():
    row = Scripted(server="stompcodec/1", dialect="activemq", client_id="me").connect().core.link.dialect
    assert (row.durable, row.discard) == (BROKERS["activemq"].durable, (("requeue", "false"),))


# ---- which queue stands behind a topic ----

_EXCLUSIVE = {"exclusive": "true"}
_OWN = ("durable", "persistent", "auto-delete", "exclusive", "x-queue-type")
_NAMED, _DURABLE = {"x-queue-name": "mine"}, {"durable": "true", "auto-delete": "true", "x-queue-name": "key1"}


@pytest.mark.parametrize(
    ("server", "choice", "given", "expected"),
    [
        *((f"RabbitMQ{version}", "auto", {}, {}) for version in ("", "/4.2.9", "/" + "9" * 5000 + ".1")),
        *((f"RabbitMQ/{version}", "auto", {}, _EXCLUSIVE) for version in ("4.3.0-rc.1", "4.12", "10.0.0")),
        ("RabbitMQ/4.3.0", "transient", {}, {}),
        ("RabbitMQ/3.10.8", "exclusive", {}, _EXCLUSIVE),
        ("RabbitMQ/3.10.8", "durable", {}, _DURABLE),
        *(("RabbitMQ/4.3.0", choice, _NAMED, {**_DURABLE, **_NAMED}) for choice in ("durable", "auto")),
        *(
            ("RabbitMQ/4.3.0", choice, {name: "true"}, {name: "true"})
            for choice, name in zip(("auto", "exclusive", "durable") * 2, _OWN)
        ),
        ("stompcodec/4.3 as rabbitmq", "auto", {}, {}),
        ("stompcodec/0.1 as rabbitmq", "exclusive", {}, _EXCLUSIVE),
        ("ActiveMQ/6.1", "exclusive", {}, {}),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else None,
)
def test_the_queue_behind_a_topic(server, choice, given, expected):
    client = Scripted(server=server, topic_queues=choice).connect()
    for destination in ("/topic/a", "/queue/a", "/temp-queue/a", "/exchange/a/b"):
        subscription = Subscription(destination, id=destination, headers=given)
        client.core.inbound.subscribe(subscription, client.now, client.call())
        (frame,) = client.frames()
        asked = {name: value for name, value in frame.headers.items() if name in (*_OWN, "x-queue-name")}
        assert asked == (expected if destination == "/topic/a" else given)


# ---- ending a durable subscription for good ----


def deleting(client, subscription):
    call = client.call("UNSUBSCRIBE", 30.0, "UNSUBSCRIBE")
    client.core.inbound.unsubscribe(subscription, client.now, call, delete=True)
    return call


@pytest.mark.parametrize("loss", ["before", "sent", "unsent"])
def test_a_durable_subscription_is_not_deleted_by_a_frame_without_receipt(loss):
    client = Scripted(server="RabbitMQ/3.10").connect()
    subscription = client.subscribed("client", durable="daily")
    if loss == "before":
        client.lose()
    client.core.link.writable(loss != "unsent")
    call = deleting(client, subscription)
    if loss != "before":
        client.frames() if loss == "sent" else None
        client.lose()
    assert (outcome(call), call.error.sent) == ("ConnectionLostError", loss == "sent")
    assert ("'daily' was not deleted" in str(call.error)) == (loss == "before")


def test_a_durable_subscription_is_deleted_once():
    client = Scripted(server="ActiveMQ/5.17.2", client_id="me").connect()
    subscription, left = (client.subscribed("client", durable=name) for name in ("daily", "weekly"))
    client.core.inbound.unsubscribe(left, client.now)
    client.frames()
    assert outcome(deleting(client, left)) == "LocalProtocolError"  # it is unsubscribed
    first = deleting(client, subscription)
    assert [frame.get("activemq.subscriptionName") for frame in client.confirm_all()] == [None, "daily"]
    assert [outcome(call) for call in (first, deleting(client, subscription))] == ["accepted"] * 2
    assert client.frames() == []


# ---- traps ----


@pytest.fixture(autouse=True)
def unnamed(monkeypatch):
    monkeypatch.setattr(dialects, "_warned", set())


@pytest.mark.parametrize(
    ("server", "version", "warns"),
    [
        ("unheard of", "1.0", True),  # Artemis says nothing in 1.0
        ("stompcodec/1 as activemq", "1.0", False),
        ("ActiveMQ/6.1", "1.1", False),
    ],
)
def test_a_session_of_1_0_warns_once_where_senders_can_forge_headers(caplog, server, version, warns):
    for _ in range(2):
        Scripted(version=version, server=server, versions=(version,), reconnect=None).connect()
    assert caplog.text.count("1.1 or 1.2") == warns


@pytest.mark.parametrize(("server", "says"), [("ActiveMQ/6.1", "activemq drops what waits"), ("stompcodec/1", None)])
def test_a_durable_name_with_a_selector_says_that_it_must_be_deleted_first(caplog, server, says):
    """Where a changed selector is neither refused nor unknown."""
    caplog.set_level(logging.INFO, "stompcodec.client")
    here = Scripted(server=server, client_id="me").connect()
    here.subscribed(durable="plain", destination="/topic/a")
    assert "unsubscribe(delete=True)" not in caplog.text
    here.subscribed(durable="daily", selector="n = '1'", destination="/topic/a")
    assert ("unsubscribe(delete=True)" in caplog.text) is (says is not None)
    assert f"'daily' has a selector: if it or the destination changes, {says}" in caplog.text or says is None


def test_a_selector_that_breaks_others_is_refused_at_the_call():
    converts = {"selector": "convert_string_expressions:n > 9"}
    for given in (converts, {"headers": converts}):
        here = Scripted(server="ActiveMQ/6.1").connect()
        with pytest.raises(LocalProtocolError, match="breaks 'n > 9' for all clients of activemq"):
            here.subscribe(**given)
        assert here.commands() == []
        for server in ("ActiveMQ-Artemis/2.40", "stompcodec/1 as activemq"):
            Scripted(server=server).connect().subscribed(**given)


def test_a_queue_of_artemis_without_its_type_has_a_wide_window():
    """It counts in bytes."""
    for options, headers in (({"artemis_types": False}, {}), ({}, {"subscription-type": "MULTICAST"})):
        client = Scripted(server="ActiveMQ-Artemis/2.40", **options).connect()
        subscription = client.subscribed("client-individual", prefetch=5, destination="/queue/a", headers=headers)
        assert int(dict(subscription.asked)["consumer-window-size"]) >= 2**23


def test_the_calls_with_a_message_are_counted_over_its_deliveries():
    """Its message-id is another one in each of them, and not all are said to be redelivered."""
    retries = handlers.Retries(handlers.Handling(print, "client-individual", None, 1, None, 4, ()))
    first = SimpleNamespace(id="1,7", identity="7 5", redelivered=False, subscription=SimpleNamespace(destination="a"))
    again = SimpleNamespace(id="2,7", identity="7 5", redelivered=False)
    retries.keep(first, 3)
    assert retries.calls_of(again) == 3
