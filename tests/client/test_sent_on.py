"""The headers of a received message are sent on without what belongs to its delivery; values that lose a message."""

import json
import types

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.client.dialects import BROKERS
from stompcodec.client.headers import LEFT

#: What a MESSAGE may have beside the headers that the scripted server writes.
DELIVERED = {name: "theirs" for name in sorted(LEFT - {"destination", "message-id", "subscription", "content-length"})}
OWN = {"n": "1", "priority": "4", "correlation-id": "k", "reply-to": "/queue/r"}


@pytest.fixture
def received(shell, peer):
    client = shell.connect(peer.url)
    subscription = client.subscribe("/queue/source")
    peer.deliver(subscription.id, b"x", headers={**DELIVERED, **OWN})
    return client, subscription.get(patience(10))


COPIES = {
    "as they are": lambda headers: headers,
    "a dict": dict,
    "pairs": lambda headers: headers.pairs(),
    "an iterator": lambda headers: iter(headers.pairs()),
    "a proxy": lambda headers: types.MappingProxyType(dict(headers)),
    "JSON": lambda headers: json.loads(json.dumps(dict(headers))),
}


def in_transaction(client, headers):
    with client.transaction() as transaction:
        transaction.send("/queue/target", b"x", headers)


ROADS = {
    "send": lambda client, headers: client.send("/queue/target", b"x", headers, receipt=True),
    "send, text": lambda client, headers: client.send("/queue/target", "x", headers),
    "send, streamed": lambda client, headers: client.send("/queue/target", [b"x"], headers),
    "send_for_receipt": lambda client, headers: client.send_for_receipt("/queue/target", b"x", headers).wait(),
    "send_many": lambda client, headers: client.send_many([("/queue/target", b"x", headers)]),
    "transaction": in_transaction,
}


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("road", ROADS)
def test_a_copy_has_nothing_of_the_delivery(received, peer, road, copy):
    client, message = received
    ROADS[road](client, COPIES[copy](message.headers))
    client.ping()
    (frame,) = peer.got("SEND")
    assert frame.headers["destination"] == "/queue/target"
    left = {name: frame.get(name) for name in LEFT - {"destination", "content-length", "transaction", "receipt"}}
    assert left == dict.fromkeys(left)
    assert "theirs" not in frame.headers.getall("receipt") + frame.headers.getall("transaction")
    assert {name: frame.get(name) for name in OWN} == OWN


def test_a_frame_of_its_headers_keeps_the_destination(received, peer):
    client, message = received
    client.send_many([Frame("SEND", message.headers, b"x")])
    (frame,) = peer.got("SEND")
    assert frame.headers["destination"] == "/queue/source"
    assert all(value != "theirs" for _, value in frame.headers.pairs())


def test_a_request_and_a_reply_have_the_names_of_their_own(shell, received, peer):
    client, message = received
    peer.rules["SEND"] = lambda side, frame: (
        side.receipt(frame),
        side.deliver("/temp-queue/replies", b"y", {"correlation-id": frame.headers["correlation-id"]}),
    )
    assert client.request("/queue/a", b"x", patience(10), message.headers).body == b"y"
    (asked,) = peer.got("SEND")
    assert asked.headers.getall("reply-to") == ["/temp-queue/replies"]
    assert len(asked.headers.getall("correlation-id")) == 1
    subscription = client.subscribe("/queue/other")
    del peer.rules["SEND"]
    peer.deliver(subscription.id, b"?", headers={"correlation-id": "k2", "reply-to": "/queue/r2"})
    subscription.get(patience(10)).reply(b"!", message.headers, receipt=True)
    (reply,) = peer.got("SEND", destination="/queue/r2")
    assert reply.headers.getall("correlation-id") == ["k2"]


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
def test_a_value_by_which_the_broker_loses_the_message_is_refused(shell, server):
    """And it is not sent, while the values that the broker takes are; other brokers judge themselves."""
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
                elif name in VALUES[server] or server == "stompcodec/1":
                    client.send(destination, b"x", headers, receipt=True)
                    before += 1
                assert len(peer.got("SEND")) == before


def test_a_subscription_to_a_bare_prefix_is_refused(shell):
    with Peer(server="ActiveMQ/6.3.1") as peer:
        client = shell.connect(peer.url)
        for name in ("/queue/", "/topic/"):
            with pytest.raises(ValueError, match="the header 'destination'"):
                client.subscribe(name)
        assert not peer.got("SUBSCRIBE")
