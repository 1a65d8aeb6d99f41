"""With Artemis the client says by headers which names are queues and which are topics, whatever the acceptor has."""

import logging

import pytest
from client.peer import Peer
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.client.outbox import Block
from stompcodec.errors import ConfigError

NAMES = {
    **dict.fromkeys(("/queue/a", "queue/a", "jms.queue.a", "queue://a", "/temp-queue/a", "temp-queue://a"), "ANYCAST"),
    **dict.fromkeys(("/topic/a", "topic/a", "jms.topic.a", "topic://a", "/temp-topic/a"), "MULTICAST"),
    **dict.fromkeys(("temp-topic://a", "/topic/#"), "MULTICAST"),
    "/queue/a.*": "ANYCAST",
    **dict.fromkeys(("a", "a.*", "#", "a::b", "/queue/a::b", "/exchange/a", "queue", "/queues/a", ""), None),
}


@pytest.fixture
def artemis():
    with Peer(server="ActiveMQ-Artemis/2.40.0 ActiveMQ Artemis Messaging Engine") as peer:
        yield peer


def in_transaction(client, name):
    with client.transaction() as transaction:
        transaction.send(name, b"x")


def by_block(client, name):
    octets = serialize(Frame("SEND", {"destination": name}, b"x"))
    client.send_many([Block(octets, 1, "1.2")])


ROADS = {
    "bytes": lambda client, name: client.send(name, b"x"),
    "bytes with receipt": lambda client, name: client.send(name, b"x", receipt=True),
    "text": lambda client, name: client.send(name, "x"),
    "headers": lambda client, name: client.send(name, b"x", {"n": "1"}),
    "streamed": lambda client, name: client.send(name, [b"x"]),
    "transaction": in_transaction,
    "many": lambda client, name: client.send_many([(name, b"x"), (name, "x"), (name, b"x", {"n": "1"})]),
    "frames": lambda client, name: client.send_many([Frame("SEND", {"destination": name}, b"x")]),
    "block": by_block,
}


def typed(frames):
    return {tuple(frame.headers.getall("destination-type")) for frame in frames}


@pytest.mark.parametrize("road", ROADS)
def test_each_way_to_send_writes_the_type_of_a_name_that_has_one(shell, artemis, road):
    client = shell.connect(artemis.url)
    for name in NAMES:
        if name:
            ROADS[road](client, name)
    client.ping()
    for name, kind in NAMES.items():
        if name:
            sent = artemis.got("SEND", destination=name)
            assert sent
            assert typed(sent) == {() if kind is None else (kind,)}, name


def test_a_subscription_names_the_type_and_the_one_in_headers_wins(shell, artemis):
    client = shell.connect(artemis.url)
    for name, kind in NAMES.items():
        if name:
            client.subscribe(name)
            (frame,) = artemis.got("SUBSCRIBE", destination=name)
            assert frame.get("subscription-type") == kind, name
    client.subscribe("/queue/own", headers={"subscription-type": "MULTICAST"})
    client.send("/queue/own", b"x", {"destination-type": "MULTICAST"}, receipt=True)
    assert artemis.got("SUBSCRIBE", destination="/queue/own")[0].headers.getall("subscription-type") == ["MULTICAST"]
    assert typed(artemis.got("SEND", destination="/queue/own")) == {("MULTICAST",)}


@pytest.mark.parametrize("way", ["option", "url", "another broker"])
def test_no_type_is_written_where_none_is_wanted(shell, artemis, way):
    options = {"artemis_types": False} if way == "option" else {}
    artemis.server = "ActiveMQ/6.3.1" if way == "another broker" else artemis.server
    client = shell.connect(artemis.url + ("?artemis_types=false" if way == "url" else ""), **options)
    for road in ROADS.values():
        road(client, "/queue/a")
    client.subscribe("/queue/a")
    client.ping()
    assert typed(artemis.got("SEND")) == {()}
    assert artemis.got("SUBSCRIBE")[0].get("subscription-type") is None


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
    told = [record.getMessage() for record in caplog.records if "destination-type" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("SEND to /queue/first has destination-type:ANYCAST from now on")
    assert "artemis_types=False" in told[0]


def test_a_queue_has_no_durable_subscription(shell, artemis):
    client = shell.connect(artemis.url, client_id="me")
    for name, headers in (("/queue/a", {}), ("a", {"subscription-type": "ANYCAST"})):
        with pytest.raises(ValueError, match="which is a queue"):
            client.subscribe(name, durable="d", headers=headers)
    assert not artemis.got("SUBSCRIBE")
    client.subscribe("/queue/a", durable="d", headers={"subscription-type": "MULTICAST"})
    other = shell.connect(artemis.url, client_id="me", artemis_types=False)
    other.subscribe("/queue/a", durable="d")


def test_each_client_has_a_queue_of_its_own_for_replies(shell, artemis):
    artemis.rules["SEND"] = lambda side, frame: (
        side.receipt(frame),
        side.deliver("/temp-queue/replies", b"y", {"correlation-id": frame.headers["correlation-id"]}),
    )
    names = set()
    for _ in range(2):
        client = shell.connect(artemis.url)
        assert client.request("/queue/a", b"x", patience(10)).body == b"y"
        assert client.request("/queue/a", b"x", patience(10)).body == b"y"
        names.add(artemis.got("SEND")[-1].headers["reply-to"])
    subscribed = {frame.headers["destination"]: frame.get("subscription-type") for frame in artemis.got("SUBSCRIBE")}
    assert subscribed == dict.fromkeys(names, "ANYCAST")
    assert len(names) == 2
    assert typed(artemis.got("SEND")) == {("ANYCAST",)}


def test_a_reply_goes_as_the_requester_has_subscribed_to_its_temporary_queue(shell, artemis):
    client = shell.connect(artemis.url)
    subscription = client.subscribe("/queue/asked")
    for name, expected in (("/temp-queue/r", ()), ("temp-topic://r", ()), ("/queue/r", ("ANYCAST",)), ("r", ())):
        artemis.deliver(subscription.id, b"?", headers={"reply-to": name, "destination-type": "ANYCAST"})
        subscription.get(patience(10)).reply(b"!", receipt=True)
        assert typed(artemis.got("SEND", destination=name)) == {expected}, name
