"""What only some brokers offer: RECEIVE and PING, typed headers, the older worker dialect; and our broker offers it."""

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from client.scripted import Scripted
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.client.subscription import Subscription
from stompcodec.content import typed_headers


@pytest.fixture(scope="module")
def broker():
    with BrokerThread(detect_legacy=True, version_header=True) as broker:
        yield broker


# ---- RECEIVE ----


@pytest.mark.req("WISH-RCV-01", "WISH-RCV-02")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_receive_fetches_one_message_or_none(shell, broker, version):
    client = shell.connect(broker.url, versions=[version])
    name = f"/queue/receive-{shell.name}-{version}"
    assert client.receive(name) is None
    for body in (b"1", b"2", b"3"):
        client.send(name, body, receipt=True)
    assert client.receive(name).body == b"1"
    message = client.receive(name, ack="client-individual")
    assert (message.body, message.destination, message.redelivered) == (b"2", name, False)
    assert client.receive(name).body == b"3"
    assert client.receive(name) is None
    message.ack(receipt=True)
    client.close()


def test_what_is_not_acknowledged_comes_again(shell, broker):
    name = f"/queue/again-{shell.name}"
    client = shell.connect(broker.url)
    client.send(name, b"1", receipt=True)
    client.receive(name, ack="client-individual").nack(receipt=True)
    assert client.receive(name, ack="client-individual").attempt == 2
    client.close()
    client = shell.connect(broker.url)
    with client.transaction() as transaction:
        message = client.receive(name, ack="client-individual")
        assert message.attempt == 3
        transaction.ack(message)
    assert client.receive(name) is None


def test_a_refused_receive_is_an_error_of_the_call(shell, broker):
    client = shell.connect(broker.url)
    with pytest.raises(stomp.RejectedError, match="RECEIVE from"):
        client.receive("/queue/a", headers={"browser": "true"})
    with pytest.raises(ValueError, match="ack is"):
        client.receive("/queue/a", ack="perhaps")


def test_a_broker_that_does_not_offer_it(shell):
    with Peer() as peer:
        client = shell.connect(peer.url)
        with pytest.raises(stomp.LocalProtocolError, match="does not offer RECEIVE"):
            client.receive("/queue/a")
        assert client.ping() < patience(5)
        assert [frame.command for _number, frame in peer.frames][-2:] == ["BEGIN", "ABORT"]


@pytest.mark.req("WISH-PNG-01")
def test_ping_takes_what_the_broker_offers(shell, broker):
    frames = []
    client = shell.connect(broker.url, on_frame=lambda way, frame: frames.append((way, frame.command)))
    assert 0 < client.ping() < patience(5)
    client.close()
    assert [each for each in frames if each[1] in ("PING", "PONG", "BEGIN")] == [("out", "PING"), ("in", "PONG")]


class Offering(Scripted):
    """A server that offers RECEIVE, and answers only as a test says."""

    def connect(self, confirm=True):
        self.open()
        self.frames()
        self.server.accept({"server": "x", "session": "1", "commands": "RECEIVE,PING"})
        self.pump()
        return self

    def open(self):
        super().open()
        self.server._commands = frozenset(("RECEIVE", "PING", "PONG", "EMPTY"))

    def fetch(self, ack="auto"):
        subscription = Subscription("/queue/a", id=f"f{next(self._names)}", ack=ack)
        call = self.core.link.calls.make("RECEIVE", 5.0)
        assert self.core.fetch(subscription, self.now, call)
        (frame,) = self.frames()
        assert (frame.command, frame.headers["receipt"]) == ("RECEIVE", call.id)
        return call, subscription

    def message(self, subscription, body=b"x"):
        pairs = {"subscription": subscription.id, "message-id": "m", "destination": "/queue/a", "ack": "a"}
        self.server.send(Frame("MESSAGE", pairs, body))


def test_answers_find_their_calls_in_any_order_and_nothing_is_restored():
    client = Offering().connect()
    one, two = client.fetch(), client.fetch("client-individual")
    client.message(two[1], b"2")
    client.server.send(Frame("RECEIPT", {"receipt-id": two[0].id}))
    client.server.send(Frame("EMPTY", {"subscription": one[1].id, "destination": "/queue/a"}))
    client.server.send(Frame("RECEIPT", {"receipt-id": one[0].id}))
    client.message(two[1], b"late")
    client.pump()
    assert (one[0].result, two[0].result.body) == (None, b"2")
    assert (one[0].done, client.core.inbound.fetches, client.core.inbound.subscriptions) == (True, {}, {})


def test_a_message_that_came_is_not_lost_with_its_receipt():
    client = Offering().connect()
    (one, first), (two, _second) = client.fetch(), client.fetch()
    client.message(first)
    client.pump()
    client.core.link.lost(OSError("cut"), client.now)
    assert (one.error, one.result.body) == (None, b"x")
    assert isinstance(two.error, stomp.ConnectionLostError)
    assert client.core.inbound.fetches == {}


# ---- typed headers ----


@pytest.mark.req("WISH-JSN-01", "WISH-JSN-02", "WISH-JSN-03", "WISH-JSN-04", "WISH-JSN-05", "WISH-JSN-06")
def test_typed_headers_come_back_as_they_were(shell, broker):
    name = f"/queue/typed-{shell.name}"
    values = {
        "n": 9,
        "f": 1.5,
        "yes": True,
        "none": None,
        "list": [1, "a"],
        "map": {"a": [None]},
        "text": "9",
        "t": "é",
    }
    client = shell.connect(broker.url)
    client.send(name, b"", typed_headers(values), receipt=True)
    message = client.receive(name)
    assert {key: message.value(key) for key in values} == values
    assert (message.get("n"), message.value("no such"), message.value("no such", 7)) == ("9", None, 7)


# ---- content-encoding and transformations ----


@pytest.mark.req("WISH-ENC-01", "WISH-ENC-02", "WISH-TRF-01", "WISH-TYP-01")
def test_a_client_asks_for_a_coding_and_a_form(shell, broker):
    pytest.importorskip("defusedxml")
    name = f"/queue/coded-{shell.name}"
    client = shell.connect(broker.url)
    client.send(name, b"hello", content_encoding="gzip", receipt=True)
    message = client.receive(name, headers={"content-encoding": "base64"})
    assert (message.body, message.content()) == (b"aGVsbG8=", b"hello")
    client.send(name, '{"a":1}', {"transformation": "jms-map-json"}, receipt=True)
    message = client.receive(name, headers={"transformation": "jms-map-xml"})
    assert message.get("message-type") == "jms-map-xml"
    assert message.text() == "<map><entry><string>a</string><int>1</int></entry></map>"


# ---- negotiation by the header version; the older worker dialect ----


@pytest.mark.req("WISH-NEG-01", "WISH-NEG-03")
def test_the_highest_version_in_the_header_version(shell, broker):
    client = shell.connect(broker.url, headers={"version": "1.1"})
    assert client.version == "1.1"


@pytest.mark.req(
    "LEG-CON-01", "LEG-CON-02", "LEG-CON-05", "LEG-CMD-04", "LEG-RCP-01", "LEG-SUB-01", "LEG-DIS-01", "LEG-UTF-02"
)
def test_a_worker_of_the_older_dialect(shell, broker):
    name = f"/queue/legacy-{shell.name}"
    frames = []
    options = {"versions": ["legacy"], "login": "fred", "passcode": "xyzzy"}
    client = shell.connect(broker.url, on_frame=lambda way, frame: frames.append((way, frame)), **options)
    assert client.version == "legacy"
    with client.transaction() as transaction:
        transaction.send(name, "grüße")
    subscription = client.subscribe(name, ack="client-individual")
    message = subscription.get(patience(5))
    assert (message.body, message.text()) == ("grüße".encode(), "grüße")
    with pytest.raises(stomp.LocalProtocolError, match="no NACK"):
        message.nack()
    message.ack(receipt=True)
    subscription.unsubscribe()
    assert client.receive(name) is None
    assert client.ping() < patience(5)
    client.close()
    sent = [frame for way, frame in frames if way == "out"]
    assert sent[0].command == "CONNECT"
    assert {"username", "passcode"} <= set(sent[0].headers)
    assert sent[-1].command == "DISCONNECT"


@pytest.mark.req("LEG-RCP-03")
def test_receipts_may_come_in_another_order():
    client = Scripted(versions=["legacy"], version="legacy", login="ann", passcode="x").connect()
    calls = []
    for number in range(3):
        call = client.core.link.calls.make(f"SEND {number}", 5.0, "SEND")
        client.core.send(Frame("SEND", {"destination": "/queue/a", "receipt": call.id}), client.now, call)
        calls.append(call)
    assert len(client.frames()) == 3
    for at, done in ((2, [False, False, True]), (0, [True, False, True]), (1, [True, True, True])):
        client.server.send(Frame("RECEIPT", {"receipt-id": calls[at].id}))
        client.pump()
        assert [call.done for call in calls] == done
        assert not calls[at].error


@pytest.mark.parametrize("versions", [["legacy", "1.2"], "legacy", ["1.3"]])
def test_the_dialect_stands_alone(versions):
    with pytest.raises(ValueError, match="legacy alone"):
        stomp.Options(versions=versions)
