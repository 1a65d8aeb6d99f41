"""What each way to send writes: `persistent`, types of Artemis, headers of a delivery, and those the client owns."""

import io
import logging

import pytest
from client.peer import Peer
from client.scripted import Scripted
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, FrameError, serialize
from stompcodec.client.dialects import BROKERS
from stompcodec.client.headers import LEFT
from stompcodec.client.outbox import Block
from stompcodec.errors import ConfigError


@pytest.fixture
def client(shell, broker):
    return shell.connect(broker.url)


def in_transaction(client, name, headers=None, **how):
    with client.transaction() as transaction:
        transaction.send(name, b"x", headers, **how)


#: Each way to send. The last two take frames, whose headers are written as they are.
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
    "frames": lambda client, name, **how: client.send_many([Frame("SEND", {"destination": name}, b"x")], **how),
    "block": lambda client, name, **how: client.send_many(
        [Block(serialize(Frame("SEND", {"destination": name}, b"x")), 1, "1.2")], **how
    ),
}


@pytest.mark.parametrize("layers", [[], [stomp.Middleware()]])  # with middleware no call takes a fast path
@pytest.mark.parametrize("option", [None, True, False])
def test_the_argument_wins_over_the_option_of_the_client(shell, peer, option, layers):
    client = shell.connect(peer.url, persistent=option, middleware=layers)
    for road, send in ROADS.items():
        for argument in (None, True, False):
            wanted, name = option if argument is None else argument, f"/queue/{road}-{argument}"
            send(client, name, persistent=argument)
            client.ping()
            (frame,) = peer.got("SEND", destination=name)
            assert frame.get("persistent") == (None if wanted is None else str(wanted).lower()), (road, argument)


def test_headers_of_the_program_win_over_the_option(shell, peer):
    client, no = shell.connect(peer.url, persistent=True), {"persistent": "false"}
    client.send("/queue/a", b"x", no)
    client.send_many([("/queue/a", b"x", no), Frame("SEND", {"destination": "/queue/a", **no}, b"x")], persistent=True)
    client.send("/queue/a", b"x", no, persistent=False, receipt=True)
    assert [frame.get("persistent") for frame in peer.got("SEND")] == ["false"] * 4
    with pytest.raises(ValueError, match="persistent is True, and headers= says 'false': give one"):
        client.send("/queue/a", b"x", no, persistent=True)


@pytest.mark.parametrize(
    ("option", "argument", "header"),
    [(None, None, "false"), (None, True, "true"), (True, None, "true"), (True, False, "false")],
)
def test_a_request_is_kept_in_memory_unless_told(shell, peer, option, argument, header):
    client = shell.connect(peer.url, persistent=option)
    peer.rules["SEND"] = lambda side, frame: side.deliver(frame.get("reply-to"))
    client.request("/queue/a", b"x", patience(20), persistent=argument)
    assert peer.got("SEND")[0].get("persistent") == header


ANYCAST = ("/queue/a", "queue/a", "jms.queue.a", "queue://a", "/temp-queue/a", "temp-queue://a", "/queue/a.*")
MULTICAST = ("/topic/a", "topic/a", "jms.topic.a", "topic://a", "/temp-topic/a", "temp-topic://a", "/topic/#")
UNTYPED = ("a", "a.*", "#", "a::b", "/queue/a::b", "/exchange/a", "queue", "/queues/a")


@pytest.fixture
def artemis(peer):
    peer.server = "ActiveMQ-Artemis/2.40.0 ActiveMQ Artemis Messaging Engine"
    return peer


def typed(frames):
    return {tuple(frame.headers.getall("destination-type")) for frame in frames}


def test_a_subscription_names_the_type_and_the_one_in_headers_wins(shell, artemis):
    client = shell.connect(artemis.url)
    for names, kind in ((ANYCAST, "ANYCAST"), (MULTICAST, "MULTICAST"), (UNTYPED, None)):
        for name in names:
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


#: The name of a broker -> what reply-to holds, with the destination of the reply and its types.
ANSWERED = {
    "ActiveMQ-Artemis/2.40.0": [
        ("/temp-queue/1", "/temp-queue/1", ()),
        ("/queue/2", "/queue/2", ("ANYCAST",)),
        ("3", "3", ()),
        ("queue://4", "4", ("ANYCAST",)),
        ("topic://5", "5", ("MULTICAST",)),
        ("temp-queue://6", "6", ()),  # a type would create it where it is gone
        ("temp-topic://7", "7", ()),
    ],
    "ActiveMQ/6.3.1": [
        *((f"{kind}://{kind}", f"/{kind}/{kind}", ()) for kind in ("queue", "topic")),
        *((f"{kind}://ID:1", f"/remote-{kind}/ID:1", ()) for kind in ("temp-queue", "temp-topic")),
        ("/remote-temp-queue/ID:2", "/remote-temp-queue/ID:2", ()),
    ],
}


@pytest.mark.parametrize("server", ANSWERED)
def test_a_reply_goes_where_the_requester_is_and_has_no_type_where_it_subscribed_itself(shell, server):
    with Peer(server=server) as peer:
        client = shell.connect(peer.url)
        subscription = client.subscribe("/queue/asked")
        for name, destination, types in ANSWERED[server]:
            peer.deliver(subscription.id, b"?", headers={"reply-to": name, "destination-type": "ANYCAST"})
            subscription.get(patience(10)).reply(b"!", receipt=True)
            assert typed(peer.got("SEND", destination=destination)) == {types}, name
        peer.deliver(subscription.id, b"?", headers={"reply-to": "queue://own"})
        message = subscription.get(patience(10))
        message.reply(b"!", {"destination-type": "MULTICAST"}, receipt=True)
        assert peer.got("SEND")[-1].headers.getall("destination-type") == ["MULTICAST"]
        peer.deliver(subscription.id, b"?", headers={"reply-to": "amqp://a"})
        count = len(peer.got("SEND"))
        with pytest.raises(stomp.LocalProtocolError, match="a scheme that the dialect 'a"):
            subscription.get(patience(10)).reply(b"!")
        assert len(peer.got("SEND")) == count


def test_a_frame_of_its_headers_keeps_the_destination(shell, peer):
    client = shell.connect(peer.url)
    subscription = client.subscribe("/queue/source")
    written = {"destination", "message-id", "subscription", "content-length"}
    peer.deliver(subscription.id, b"x", headers={**dict.fromkeys(LEFT - written, "theirs"), "n": "1"})
    client.send_many([Frame("SEND", subscription.get(patience(10)).headers, b"x")])
    (frame,) = peer.got("SEND")
    assert (frame.headers["destination"], frame.headers["n"]) == ("/queue/source", "1")
    assert all(value != "theirs" for _, value in frame.headers.pairs())


def test_a_message_that_was_sent_again_is_no_duplicate_where_it_is_sent_on(client, queue):
    """A key that the program itself gives counts, and drops the second one."""
    subscription = client.subscribe(queue, ack="client-individual")
    client.send(queue, b"1", {"n": "1"}, receipt=True, resend=True)
    message = subscription.get(patience(10))
    assert message.get("idempotency-key") is not None
    client.send(queue, b"2", message.headers, receipt=True)
    assert subscription.get(patience(10)).get("n") == "1"
    for body in (b"3", b"again"):
        client.send(queue, body, {"idempotency-key": queue}, receipt=True)
    client.send(queue, b"4", receipt=True)
    assert [subscription.get(patience(10)).body for _ in range(2)] == [b"3", b"4"]


#: Header -> values that the broker does not take, and some that it takes.
ARTEMIS = {
    "priority": (["12", "-1", "10", "high", "", " 5", "4.0"], ["0", "9", "+5"]),
    "expires": (["abc", "", "-1", "1.5", "9223372036854775808"], ["0", "4102444800000"]),
    **{"AMQ_SCHEDULED_DELAY": (["abc", "", "1.5"], ["0", "-1"]), "AMQ_SCHEDULED_TIME": (["abc"], ["0"])},
    "destination-type": (["ANY", "anycast", ""], ["ANYCAST", "MULTICAST"]),
    **{"_AMQ_INGRESS_TIMESTAMP": (["abc"], ["5"]), "_AMQ_ROUTING_TYPE": (["7", "0"], [])},
    **{"_AMQ_ROUTE_TO": (["a"], []), "_AMQ_BRIDGE_DUP": (["a"], [])},
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
    **{"JMSExpiration": (["abc", ""], ["0"]), "JMSPriority": (["abc", ""], ["5", "99"])},
    **{"JMSTimestamp": (["abc", ""], ["5"]), "JMSXDeliveryCount": (["abc", "3000000000"], ["1", "-1"])},
    "JMSXGroupSeq": (["abc", "", "99999999999"], ["-1"]),
}
VALUES = {"ActiveMQ-Artemis/2.40.0": ARTEMIS, "ActiveMQ/6.3.1": ACTIVEMQ, "stompcodec/1": {}}


@pytest.mark.parametrize("server", VALUES)
def test_a_value_by_which_the_broker_loses_the_message_is_refused(server):
    assert set(ARTEMIS) == set(BROKERS["artemis"].values)
    assert set(ACTIVEMQ) == set(BROKERS["activemq"].values)
    with Peer(server=server) as peer, stomp.connect(peer.url) as client:
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


# ---- headers= that belong to the client: none is overwritten, in any call ----
SEND = {"destination", "message-id", "receipt", "subscription", "transaction"}


def shapes(name):
    return {name: "mine"}, [("n", "1"), (name, "mine")], iter([(name, "mine")]), Frame("SEND", {name: "mine"}).headers


def refused(call, name, *args, **options):
    for headers in shapes(name):
        with pytest.raises(ValueError, match=f"'{name}', which belongs to the client: "):
            call(*args, headers=headers, **options)


def test_a_reply(client):
    client.send("/queue/asked", b"x", {"reply-to": "/queue/answers", "correlation-id": "k"}, receipt=True)
    message = client.subscribe("/queue/asked").get(patience(5))
    for name in SEND:
        refused(message.reply, name, b"y")
    with pytest.raises(ValueError, match="'correlation-id' as 'other'"):
        message.reply(b"y", {"correlation-id": "other"})
    message.reply(b"y", {"correlation-id": "k", "reply-to": "/queue/asked", "n": "1"}, receipt=True)
    answer = client.subscribe("/queue/answers").get(patience(5))
    assert (answer.body, answer.headers["correlation-id"], answer.headers["n"]) == (b"y", "k", "1")


def fails(client, messages, words, **options):
    with pytest.raises(stomp.SendManyError, match=words) as caught:
        client.send_many(messages, **options)
    assert isinstance(caught.value.reason, ValueError)
    return caught.value.outcomes


@pytest.mark.parametrize("name", sorted(SEND))
def test_send_many(client, name):
    words = f"'{name}', which belongs to the client"
    for last in [*(("/queue/many", "x", headers) for headers in shapes(name)), ("/queue/many", b"x", {name: "m"})]:
        fails(client, [("/queue/many", b"0"), last], words)
    if name in ("receipt", "transaction"):
        frame = Frame("SEND", {"destination": "/queue/many", name: "mine"})
        assert fails(client, [frame], words) == [(range(1), "unwritable")]


def test_frames_may_name_the_transaction_that_they_are_sent_in(client):
    def frame(transaction):
        return Frame("SEND", {"destination": "/queue/framed", "transaction": transaction}, b"x")

    with client.transaction() as transaction:
        client.send_many([frame(transaction.id)], transaction=transaction)
        fails(client, [frame("t")], "use client", transaction=transaction)
    assert client.subscribe("/queue/framed").get(patience(5)).body == b"x"


@pytest.mark.parametrize(
    ("arguments", "same", "other"),
    [
        ({"selector": "a = 1"}, {"selector": "a = 1"}, {"selector": "a = 2"}),
        ({"prefetch": 5}, {"prefetch-count": "5"}, {"prefetch-count": "6"}),
        ({"durable": "daily"}, {"durable": "true"}, {"durable": "false"}),
        ({"durable": "daily"}, {"auto-delete": "false"}, {"auto-delete": "true"}),
    ],
)
def test_a_header_that_an_argument_writes(arguments, same, other):
    scripted = Scripted(server="stompcodec/0.1").connect()
    with pytest.raises(ValueError, match="give one of them"):
        scripted.subscribe("client-individual", headers=other, **arguments)
    assert (scripted.frames(), scripted.core.inbound.subscriptions) == ([], {})
    for options in ({"headers": same, **arguments}, {"headers": other}):
        scripted.subscribed("client-individual", **options)
    both, alone = [frame for _, frame in scripted.seen if frame.command == "SUBSCRIBE"]
    assert [both.headers.getall(name) for name in same] == [[value] for value in same.values()]
    assert [alone.headers.getall(name) for name in other] == [[value] for value in other.values()]


@pytest.mark.parametrize(
    "row", [row for row in BROKERS.values() if row.prefetch or row.window], ids=lambda row: row.name
)
def test_a_header_wins_over_the_usual_prefetch_only(row):
    (name, _), *_ = row.prefetch_headers(1)
    scripted = Scripted(server=row.server).connect()
    scripted.subscribe("client", usual=100, headers={name: "7"})
    assert [frame.headers.getall(name) for frame in scripted.frames()] == [["7"]]
    with pytest.raises(ValueError, match="prefetch= writes it"):
        scripted.subscribe("client", prefetch=100, headers={name: "7"})
    assert (row.beside(9, [(name, "7")]), row.beside(9, {"x": "7"}.items())) == (None, 9)


@pytest.mark.req("S12-CT-03", "S12-CT-04")
def test_a_body_has_one_encoding(client):
    with pytest.raises(ValueError, match="content_encoding is 'gzip', and headers= says 'deflate'"):
        client.send("/queue/encoded", b"x", {"content-encoding": "deflate"}, content_encoding="gzip")
    client.send("/queue/encoded", b"x", {"content-encoding": "gzip"}, content_encoding="gzip", receipt=True)
    client.send("/queue/encoded", "y" * 10_000, {"content-type": "text/x"}, content_encoding="gzip", receipt=True)
    subscription = client.subscribe("/queue/encoded")
    first, second = subscription.get(patience(5)), subscription.get(patience(5))
    assert (first.content(), first.headers.getall("content-encoding")) == (b"x", ["gzip"])
    assert (len(second.body) < 200, second.content(), second.get("content-type")) == (True, b"y" * 10_000, "text/x")
    with pytest.raises(FrameError, match="max_size"):
        second.content(9_999)


@pytest.mark.parametrize(
    ("header", "option", "value", "other"),
    [
        *(("host", "vhost", "a", "b"), ("login", "login", "ann", "bob")),
        *(("passcode", "passcode", "s3cret", "0ther"), ("client-id", "client_id", "me", "you")),
        *(("heart-beat", "heart_beat", (1000, 2000), "0,0"), ("accept-version", "versions", ["1.1", "1.2"], "1.2")),
    ],
)
def test_connect(peer, header, option, value, other):
    with pytest.raises(ValueError, match=f"'{header}', and {option}= is another value") as caught:
        stomp.Options(headers={header: other}, **{option: value})
    assert not any(secret in str(caught.value) for secret in ("s3cret", "0ther"))
    same = value if isinstance(value, str) else ",".join(map(str, value))
    for options in ({option: value}, {}):
        stomp.connect(peer.url, headers={header: same}, **options).close()
    assert [frame.headers.getall(header) for frame in peer.got("CONNECT")] == [[same]] * 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"headers": {"receipt": "r"}}, "'receipt', which belongs to the client"),
        ({"headers": {"transaction": "r"}}, "'transaction', which belongs to the client"),
        ({"headers": {"login": "ann"}, "login": lambda: "ann"}, "login= is another value"),
        ({"headers": {"username": "a"}, "login": "b", "versions": ["legacy"]}, "'username', and login="),
    ],
)
def test_connect_has_no_receipt_and_one_login(options, words):
    with pytest.raises(ValueError, match=words):
        stomp.Options(**options)
    stomp.Options(headers={"username": "ann"}, login="bob")
