"""The headers by which the client keeps account: none is overwritten by `headers=`, in any call."""

import pytest
from client.broker import BrokerThread
from client.scripted import Scripted
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.client.dialects import BROKERS

#: The headers that belong to the client, by what is sent.
SEND = {"destination", "message-id", "receipt", "subscription", "transaction"}
REQUEST = SEND | {"correlation-id", "reply-to"}
SUBSCRIBE = SEND | {"ack", "id"}
ACK = {"id", "message-id", "receipt", "subscription", "transaction"}


@pytest.fixture(scope="module")
def broker():
    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def client(shell, broker):
    return shell.connect(broker.url)


def shapes(name):
    """One header, in the shapes that `headers=` takes."""
    yield {name: "mine"}
    yield [("n", "1"), (name, "mine")]
    yield iter([(name, "mine")])
    yield Frame("SEND", {name: "mine"}).headers


def refused(call, name, *args, **options):
    for headers in shapes(name):
        with pytest.raises(ValueError, match=f"'{name}', which belongs to the client: "):
            call(*args, headers=headers, **options)


def in_transaction(client, name):
    with client.transaction() as transaction:
        refused(transaction.send, name, "/queue/a", b"x")
        refused(transaction.send, name, "/queue/a", [b"x"], length=1)


SENDS = {
    "send": lambda client, name: refused(client.send, name, "/queue/a", b"x", receipt=True),
    "send, text": lambda client, name: refused(client.send, name, "/queue/a", "x"),
    "send, streamed": lambda client, name: refused(client.send, name, "/queue/a", [b"x"]),
    "send, compressed": lambda client, name: refused(client.send, name, "/queue/a", b"x", content_encoding="gzip"),
    "send_for_receipt": lambda client, name: refused(client.send_for_receipt, name, "/queue/a", b"x"),
    "transaction.send": in_transaction,
}


def test_a_request_and_a_subscription(client):
    def on_message(destination, **options):
        client.on_message(destination, **options)(print)

    for name in REQUEST:
        refused(client.request, name, "/queue/a", b"x", 5)
    for name in SUBSCRIBE:
        for call in (client.subscribe, client.receive, on_message):
            refused(call, name, "/queue/a")


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


def test_send_many(client):
    for name in SEND:
        frames = [Frame("SEND", {"destination": "/queue/many", name: "mine"})]
        for last in [*(("/queue/many", "x", headers) for headers in shapes(name)), ("/queue/many", b"x", {name: "m"})]:
            with pytest.raises(stomp.SendManyError, match=f"'{name}', which belongs to the client") as caught:
                client.send_many([("/queue/many", b"0"), last])
            assert isinstance(caught.value.reason, ValueError)
        if name in ("receipt", "transaction"):
            with pytest.raises(stomp.SendManyError, match=f"'{name}', which belongs to the client") as caught:
                client.send_many(frames)
            assert (caught.value.outcomes, type(caught.value.reason)) == ([(range(1), "unwritable")], ValueError)


def test_frames_may_name_the_transaction_that_they_are_sent_in(client):
    with client.transaction() as transaction:
        frame = Frame("SEND", {"destination": "/queue/framed", "transaction": transaction.id}, b"x")
        client.send_many([frame], transaction=transaction)
        with pytest.raises(stomp.SendManyError, match="use client"):
            client.send_many(
                [Frame("SEND", {"destination": "/queue/framed", "transaction": "t"})], transaction=transaction
            )
    assert client.subscribe("/queue/framed").get(patience(5)).body == b"x"


# ---- headers that an argument merely writes ----

WRITTEN = [
    ({"selector": "a = 1"}, {"selector": "a = 1"}, {"selector": "a = 2"}),
    ({"prefetch": 5}, {"prefetch-count": "5"}, {"prefetch-count": "6"}),
    ({"durable": "daily"}, {"durable": "true"}, {"durable": "false"}),
    ({"durable": "daily"}, {"auto-delete": "false"}, {"auto-delete": "true"}),
]


@pytest.mark.parametrize(("arguments", "same", "other"), WRITTEN)
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


def test_a_body_has_one_encoding(client):
    with pytest.raises(ValueError, match="content_encoding is 'gzip', and headers= says 'deflate'"):
        client.send("/queue/encoded", b"x", {"content-encoding": "deflate"}, content_encoding="gzip")
    client.send("/queue/encoded", b"x", {"content-encoding": "gzip"}, content_encoding="gzip", receipt=True)
    client.send("/queue/encoded", "y", {"content-type": "text/x"}, content_encoding="gzip", receipt=True)
    subscription = client.subscribe("/queue/encoded")
    first, second = subscription.get(patience(5)), subscription.get(patience(5))
    assert (first.content(), first.headers.getall("content-encoding")) == (b"x", ["gzip"])
    assert (second.content(), second.headers["content-type"]) == (b"y", "text/x")


CONNECTS = [
    ("host", "vhost", "a", "b"),
    ("login", "login", "ann", "bob"),
    ("passcode", "passcode", "s3cret", "0ther"),
    ("client-id", "client_id", "me", "you"),
    ("heart-beat", "heart_beat", (1000, 2000), "0,0"),
    ("accept-version", "versions", ["1.1", "1.2"], "1.2"),
]


@pytest.mark.parametrize(("header", "option", "value", "other"), CONNECTS)
def test_connect(peer, header, option, value, other):
    with pytest.raises(ValueError, match=f"'{header}', and {option}= is another value") as caught:
        stomp.Options(headers={header: other}, **{option: value})
    assert not any(secret in str(caught.value) for secret in ("s3cret", "0ther"))
    same = value if isinstance(value, str) else ",".join(map(str, value))
    with stomp.connect(peer.url, headers={header: same}, **{option: value}):
        pass
    with stomp.connect(peer.url, headers={header: same}):  # alone
        pass
    assert [frame.headers.getall(header) for _, frame in peer.frames if frame.command == "CONNECT"] == [[same]] * 2


def test_connect_has_a_mapping_and_no_receipt():
    for name in ("receipt", "transaction"):
        with pytest.raises(ValueError, match=f"'{name}', which belongs to the client"):
            stomp.Options(headers={name: "r"})
    with pytest.raises(TypeError, match="headers is list"):
        stomp.Options(headers=[("a", "b")])
    with pytest.raises(TypeError, match="header 'x' must be str, not int"):
        stomp.Options(headers={"x": 5})
    with pytest.raises(ValueError, match="login= is another value"):
        stomp.Options(headers={"login": "ann"}, login=lambda: "ann")
    with pytest.raises(ValueError, match="'username', and login="):
        stomp.Options(headers={"username": "ann"}, login="bob", versions=["legacy"])
    stomp.Options(headers={"username": "ann"}, login="bob")
