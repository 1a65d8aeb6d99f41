"""What only some brokers offer: RECEIVE and PING, typed headers, the older worker dialect; and our broker offers it."""

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from client.scripted import Scripted
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.client.messages import Subscription
from stompcodec.content import typed_headers
from stompcodec.testing import StompBroker


@pytest.fixture(scope="module")
def broker():
    with BrokerThread(detect_legacy=True, version_header=True) as broker:
        yield broker


# ---- RECEIVE ----


def test_a_broker_that_does_not_offer_it(shell):
    with Peer() as peer:
        client = shell.connect(peer.url)
        with pytest.raises(stomp.LocalProtocolError, match="does not offer RECEIVE"):
            client.receive("/queue/a")
        assert client.ping() < patience(5)
        assert [frame.command for _number, frame in peer.frames][-2:] == ["BEGIN", "ABORT"]


@pytest.mark.req("WISH-PNG-01", "WISH-NEG-01", "WISH-NEG-03")
def test_what_the_broker_offers_is_taken(shell, broker):
    """PING, RECEIVE and the highest version in the header `version`."""
    frames = []
    options = {"on_frame": lambda way, frame: frames.append((way, frame.command)), "headers": {"version": "1.1"}}
    client = shell.connect(broker.url, **options)
    assert client.version == "1.1"
    assert 0 < client.ping() < patience(5)
    with pytest.raises(stomp.RejectedError, match="RECEIVE from"):
        client.receive("/queue/a", headers={"browser": "true"})
    with pytest.raises(ValueError, match="ack is"):
        client.receive("/queue/a", ack="perhaps")
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

    def fetch(self, ack="auto", id=None):
        subscription = Subscription("/queue/a", id=id or f"f{next(self._names)}", ack=ack)
        call = self.core.link.calls.make("RECEIVE", 5.0)
        assert self.core.fetch(subscription, self.now, call)
        (frame,) = self.frames()
        assert (frame.command, frame.headers["receipt"]) == ("RECEIVE", call.id)
        return call, subscription

    def message(self, subscription, body=b"x"):
        number = body.decode()
        pairs = {"subscription": subscription.id, "message-id": f"m{number}", "destination": "/queue/a"}
        if subscription.explicit:
            pairs["ack"] = f"a{number}"
        self.server.send(Frame("MESSAGE", pairs, body))


def test_a_receive_that_was_not_sent_is_forgotten_with_its_call():
    client = Offering().connect()
    client.core.link.is_writable = False
    calls = []
    for _ in range(2):
        subscription = Subscription("/queue/a", id="f", ack="client-individual")
        calls.append(client.core.link.calls.make("RECEIVE", 5.0))
        assert client.core.fetch(subscription, client.now, calls[-1])
    client.core.abandon(client.now, calls[0])
    client.wait(6)
    assert [call.error.sent for call in calls] == [False, False]
    client.core.link.is_writable = True
    assert (client.frames(), client.core.inbound.fetches) == ([], {})


def test_answers_under_one_id_come_in_the_order_of_their_calls():
    client = Offering().connect()
    calls = [client.fetch("client-individual", id="x") for _ in range(4)]
    client.core.abandon(client.now, calls[0][0])
    client.core.abandon(client.now, calls[1][0])
    (subscription,) = {each.id: each for _call, each in calls}.values()
    client.server.send(Frame("EMPTY", {"subscription": "x", "destination": "/queue/a"}))
    for number, (call, _subscription) in enumerate(calls[1:], 1):
        client.message(subscription, b"%d" % number)
        client.server.send(Frame("RECEIPT", {"receipt-id": call.id}))
    client.pump()
    assert [frame.headers["id"] for frame in client.frames()] == ["a1"]
    assert [call.result.body for call, _subscription in calls[2:]] == [b"2", b"3"]
    assert client.core.inbound.fetches == {}


def test_a_drain_waits_for_what_was_received_and_a_loss_ends_it_all():
    client = Offering().connect()
    call, subscription = client.fetch("client-individual")
    client.fetch("client-individual")
    client.message(subscription)
    client.server.send(Frame("RECEIPT", {"receipt-id": call.id}))
    client.pump()
    client.wait(6)  # the other one is late
    assert not client.core.is_quiet()
    client.core.link.lost(OSError("cut"), client.now)
    assert client.core.is_quiet()
    assert client.core.inbound.fetches == {}


def test_a_streamed_message_that_comes_too_late_is_refused_and_its_body_dropped(shell):
    body = bytes(500_000)
    with StompBroker() as broker:
        client = shell.connect(broker.url, stream_over=4096)
        client.send("/queue/a", body, receipt=True)
        broker.faults.delay("MESSAGE", 1)
        with pytest.raises(stomp.ReceiptTimeoutError):
            client.receive("/queue/a", ack="client-individual", timeout=0.1)
        assert broker.expect("NACK", timeout=patience(10))
        fetched = client.receive("/queue/a")
        assert fetched.attempt == 2
        with fetched.open() as reader:
            assert reader.read() == body


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


# ---- negotiation by the header version; the older worker dialect ----


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
