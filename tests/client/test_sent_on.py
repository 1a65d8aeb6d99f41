"""What each way to send writes: `persistent`, the type of a name of Artemis, headers without those of a delivery."""

import io
import logging

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from client.shells import Shell
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.client.dialects import BROKERS
from stompcodec.client.headers import LEFT
from stompcodec.client.outbox import Block
from stompcodec.errors import ConfigError


def in_transaction(client, name, headers=None, **how):
    with client.transaction() as transaction:
        transaction.send(name, b"x", headers, **how)


#: Each way to send.
ROADS = {
    "bytes": lambda client, name, **how: client.send(name, b"x", **how),
    "receipt": lambda client, name, **how: client.send(name, b"x", receipt=True, **how),
    "empty": lambda client, name, **how: client.send(name, b"", receipt=True, **how),
    "text": lambda client, name, **how: client.send(name, "x", **how),
    "headers": lambda client, name, **how: client.send(name, b"x", **{"headers": {"n": "1"}, **how}),
    "streamed": lambda client, name, **how: client.send(name, io.BytesIO(b"x" * 9000), length=9000, **how),
    "for receipt": lambda client, name, **how: client.send_for_receipt(name, b"x", **how).wait(),
    "many": lambda client, name, headers=None, **how: client.send_many([(name, b"x", headers)], **how),
    "transaction": in_transaction,
}
#: Those that take frames, whose headers are written as they are.
FRAMES = {
    "frames": lambda client, name, **how: client.send_many([Frame("SEND", {"destination": name}, b"x")], **how),
    "block": lambda client, name, **how: client.send_many(
        [Block(serialize(Frame("SEND", {"destination": name}, b"x")), 1, "1.2")], **how
    ),
}
ALL = {**ROADS, **FRAMES}


# ---- persistent ----


@pytest.mark.parametrize("layers", [[], [stomp.Middleware()]])  # with middleware no call takes a fast path
@pytest.mark.parametrize("option", [None, True, False])
def test_the_argument_wins_over_the_option_of_the_client(shell, peer, option, layers):
    client = shell.connect(peer.url, persistent=option, middleware=layers)
    for road in ALL:
        for argument in (None, True, False):
            wanted, name = option if argument is None else argument, f"/queue/{road}-{argument}"
            ALL[road](client, name, persistent=argument)
            client.ping()
            (frame,) = peer.got("SEND", destination=name)
            assert frame.get("persistent") == (None if wanted is None else str(wanted).lower()), (road, argument)


def test_headers_of_the_program_win_over_the_option(shell, peer):
    """And over the argument of send_many, which is for messages that do not say. Two that differ are refused."""
    client, no = shell.connect(peer.url, persistent=True), {"persistent": "false"}
    client.send("/queue/a", b"x", no)
    client.send_many([("/queue/a", b"x", no), Frame("SEND", {"destination": "/queue/a", **no}, b"x")], persistent=True)
    client.send("/queue/a", b"x", no, persistent=False, receipt=True)
    assert [frame.get("persistent") for frame in peer.got("SEND")] == ["false"] * 4
    with pytest.raises(ValueError, match="persistent is True, and headers= says 'false': give one"):
        client.send("/queue/a", b"x", no, persistent=True)


@pytest.mark.parametrize("value", ["true", 1])
def test_another_value_of_persistent_is_refused_by_name(shell, peer, value):
    client = shell.connect(peer.url)
    for call in (*ALL.values(), lambda client, name, **how: client.request(name, b"x", **how)):
        with pytest.raises(TypeError, match=r"persistent is .*: it must be True, False or None"):
            call(client, "/queue/a", persistent=value)
    with pytest.raises(TypeError, match=r"persistent is .*: it must be True, False or None"):
        stomp.Options(persistent=value)


@pytest.mark.parametrize(
    ("option", "argument", "header"),
    [(None, None, "false"), (None, True, "true"), (True, None, "true"), (True, False, "false")],
)
def test_a_request_is_kept_in_memory_unless_told(shell, peer, option, argument, header):
    client = shell.connect(peer.url, persistent=option)
    with pytest.raises(stomp.ReceiptTimeoutError):
        client.request("/queue/a", b"x", 0.05, persistent=argument)
    assert peer.got("SEND")[0].get("persistent") == header


# ---- types of Artemis ----

NAMES = {
    **dict.fromkeys(("/queue/a", "queue/a", "jms.queue.a", "queue://a", "/temp-queue/a", "temp-queue://a"), "ANYCAST"),
    **dict.fromkeys(("/topic/a", "topic/a", "jms.topic.a", "topic://a", "/temp-topic/a"), "MULTICAST"),
    **dict.fromkeys(("temp-topic://a", "/topic/#"), "MULTICAST"),
    "/queue/a.*": "ANYCAST",
    **dict.fromkeys(("a", "a.*", "#", "a::b", "/queue/a::b", "/exchange/a", "queue", "/queues/a"), None),
}


@pytest.fixture
def artemis():
    with Peer(server="ActiveMQ-Artemis/2.40.0 ActiveMQ Artemis Messaging Engine") as peer:
        yield peer


def typed(frames):
    return {tuple(frame.headers.getall("destination-type")) for frame in frames}


def test_a_subscription_names_the_type_and_the_one_in_headers_wins(shell, artemis):
    client = shell.connect(artemis.url)
    for name, kind in NAMES.items():
        client.subscribe(name)
        (frame,) = artemis.got("SUBSCRIBE", destination=name)
        assert frame.get("subscription-type") == kind, name
    client.subscribe("/queue/own", headers={"subscription-type": "MULTICAST"})
    client.send("/queue/own", b"x", {"destination-type": "MULTICAST"}, receipt=True)
    assert artemis.got("SUBSCRIBE", destination="/queue/own")[0].headers.getall("subscription-type") == ["MULTICAST"]
    assert typed(artemis.got("SEND", destination="/queue/own")) == {("MULTICAST",)}


def test_the_url_takes_true_and_false():
    for fault in ("no", "", "1"):
        with pytest.raises(ConfigError, match="artemis_types: it must be true or false"):
            stomp.connect(f"stomp://127.0.0.1:1?artemis_types={fault}")
    with pytest.raises(TypeError, match="artemis_types is 'no'"):
        stomp.Options(artemis_types="no")


def test_the_first_send_to_a_queue_is_logged_once(shell, artemis, caplog):
    caplog.set_level(logging.INFO, "stompcodec.client")
    client = shell.connect(artemis.url)
    for name in ("/topic/a", "/queue/first", "/queue/second"):
        client.send(name, b"x", receipt=True)
    (told,) = [record.getMessage() for record in caplog.records if "destination-type" in record.getMessage()]
    assert told.startswith("SEND to /queue/first has destination-type:ANYCAST from now on")
    assert "artemis_types=False" in told


def test_a_queue_has_no_durable_subscription(shell, artemis):
    client = shell.connect(artemis.url, client_id="me")
    for name, headers in (("/queue/a", {}), ("a", {"subscription-type": "ANYCAST"})):
        with pytest.raises(ValueError, match="which is a queue"):
            client.subscribe(name, durable="d", headers=headers)
    assert not artemis.got("SUBSCRIBE")
    client.subscribe("/queue/a", durable="d", headers={"subscription-type": "MULTICAST"})
    shell.connect(artemis.url, client_id="me", artemis_types=False).subscribe("/queue/a", durable="d")


def replies(side, frame):
    side.receipt(frame)
    side.deliver("/temp-queue/replies", b"y", {"correlation-id": frame.headers["correlation-id"]})


def test_a_reply_goes_as_the_requester_has_subscribed_to_its_temporary_queue(shell, artemis):
    client = shell.connect(artemis.url)
    subscription = client.subscribe("/queue/asked")
    for name, expected in (("/temp-queue/r", ()), ("temp-topic://r", ()), ("/queue/r", ("ANYCAST",)), ("r", ())):
        artemis.deliver(subscription.id, b"?", headers={"reply-to": name, "destination-type": "ANYCAST"})
        subscription.get(patience(10)).reply(b"!", receipt=True)
        assert typed(artemis.got("SEND", destination=name)) == {expected}, name


# ---- headers of a received message ----

#: What a MESSAGE may have beside the headers that the scripted server writes.
DELIVERED = {name: "theirs" for name in sorted(LEFT - {"destination", "message-id", "subscription", "content-length"})}
OWN = {"n": "1", "priority": "4", "correlation-id": "k", "reply-to": "/queue/r"}


@pytest.fixture
def received(shell, peer):
    client = shell.connect(peer.url)
    subscription = client.subscribe("/queue/source")
    peer.deliver(subscription.id, b"x", headers={**DELIVERED, **OWN})
    return client, subscription.get(patience(10))


def test_a_frame_of_its_headers_keeps_the_destination(received, peer):
    client, message = received
    client.send_many([Frame("SEND", message.headers, b"x")])
    (frame,) = peer.got("SEND")
    assert frame.headers["destination"] == "/queue/source"
    assert all(value != "theirs" for _, value in frame.headers.pairs())


def test_a_message_that_was_sent_again_is_no_duplicate_where_it_is_sent_on(shell):
    """A key that the program itself gives counts, and drops the second one."""
    with BrokerThread() as broker:
        client = shell.connect(broker.url)
        subscription = client.subscribe("/queue/a", ack="client-individual")
        client.send("/queue/a", b"1", {"n": "1"}, receipt=True, resend=True)
        message = subscription.get(patience(10))
        assert message.get("idempotency-key") is not None
        client.send("/queue/a", b"2", message.headers, receipt=True)
        assert subscription.get(patience(10)).get("n") == "1"
        for body in (b"3", b"again"):
            client.send("/queue/a", body, {"idempotency-key": "mine"}, receipt=True)
        client.send("/queue/a", b"4", receipt=True)
        assert [subscription.get(patience(10)).body for _ in range(2)] == [b"3", b"4"]


# ---- values ----

#: Header -> values that the broker does not take, and some that it takes.
ARTEMIS = {
    "priority": (["12", "-1", "10", "high", "", " 5", "4.0"], ["0", "9", "+5"]),
    "expires": (["abc", "", "-1", "1.5", "9223372036854775808"], ["0", "4102444800000"]),
    "AMQ_SCHEDULED_DELAY": (["abc", "", "1.5"], ["0", "-1"]),
    "AMQ_SCHEDULED_TIME": (["abc"], ["0"]),
    "destination-type": (["ANY", "anycast", ""], ["ANYCAST", "MULTICAST"]),
    "_AMQ_INGRESS_TIMESTAMP": (["abc"], ["5"]),
    "_AMQ_ROUTING_TYPE": (["7", "0"], []),
    "_AMQ_ROUTE_TO": (["a"], []),
    "_AMQ_BRIDGE_DUP": (["a"], []),
}
ACTIVEMQ = {
    "destination": (["/queue/", "/topic/", "/queue/ "], ["/temp-queue/"]),
    "priority": (["high", "", " 5", "99999999999"], ["12", "-1", "9"]),
    "expires": (["abc", "", "9223372036854775808"], ["-1", "0"]),
    "timestamp": (["abc", "", "1.5"], ["-1", "5"]),
    "reply-to": (["/queue/", "/topic/"], ["/queue/a", "abc", ""]),
    "AMQ_SCHEDULED_DELAY": (["abc", "", "-1", "1.5"], ["0", "1000"]),
    "AMQ_SCHEDULED_PERIOD": (["abc", "", "-1"], ["0", "3000000000"]),
    "AMQ_SCHEDULED_REPEAT": (["abc", "", "-1", "3000000000"], ["0", "3"]),
    "AMQ_SCHEDULED_CRON": (["abc", "* * * *", ""], ["* * * * *", "*/5 * * * *"]),
    "JMSDeliveryMode": (["abc", ""], ["2", "NON_PERSISTENT", "persistent"]),
    "JMSExpiration": (["abc", ""], ["0"]),
    "JMSPriority": (["abc", ""], ["5", "99"]),
    "JMSTimestamp": (["abc", ""], ["5"]),
    "JMSXDeliveryCount": (["abc", "3000000000"], ["1", "-1"]),
    "JMSXGroupSeq": (["abc", "", "99999999999"], ["-1"]),
}
VALUES = {"ActiveMQ-Artemis/2.40.0": ARTEMIS, "ActiveMQ/6.3.1": ACTIVEMQ, "stompcodec/1": {}}


def test_each_rule_has_examples():
    assert set(ARTEMIS) == set(BROKERS["artemis"].values)
    assert set(ACTIVEMQ) == set(BROKERS["activemq"].values)


@pytest.mark.parametrize("server", VALUES)
def test_a_value_by_which_the_broker_loses_the_message_is_refused(server):
    """And it is not sent, while the values that the broker takes are; other brokers judge themselves."""
    shell = Shell("sync")
    with Peer(server=server) as peer:
        client = shell.connect(peer.url)
        for name, (lost, taken) in {**ARTEMIS, **ACTIVEMQ, **VALUES[server]}.items():
            for value in lost + taken:
                destination, headers = (value, {}) if name == "destination" else ("/queue/a", {name: value})
                before = len(peer.got("SEND"))
                if name in VALUES[server] and value in lost:
                    for call in (client.send, client.send_for_receipt):
                        with pytest.raises(ValueError, match=f"the header '{name}' is .*: with a"):
                            call(destination, b"x", headers)
                    with pytest.raises(stomp.SendManyError) as caught:
                        client.send_many([(destination, b"x", headers)])
                    assert isinstance(caught.value.reason, ValueError)
                    if name == "destination" and value != "/queue/ ":
                        with pytest.raises(ValueError, match="the header 'destination'"):
                            client.subscribe(destination)
                elif name in VALUES[server] or server == "stompcodec/1":
                    client.send(destination, b"x", headers, receipt=True)
                    before += 1
                assert len(peer.got("SEND")) == before
        assert not peer.got("SUBSCRIBE")
        shell.stop()
