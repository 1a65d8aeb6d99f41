"""Both shells: receiving, settling, handlers; and what only some brokers offer: RECEIVE, PING, typed headers."""

import logging
import threading
from collections import deque
from functools import partial
from types import SimpleNamespace

import pytest
from client.broker import BrokerThread
from client.feeding import wait_for
from client.scripted import Scripted
from client.shells import Seen
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.client.messages import Subscription
from stompcodec.content import typed_headers
from stompcodec.testing import StompBroker
from stompcodec.uri import parse_uri


@pytest.fixture(scope="module")
def broker():
    with BrokerThread(version_header=True) as broker:
        yield broker


@pytest.fixture
def client(shell, peer):
    return shell.connect(peer.url)


def settled(peer):
    return [command for command in peer.commands() if "ACK" in command]


@pytest.mark.req("S12-SUB-01", "S12-SUB-05", "S12-SUB-06", "S12-SUB-07", "S12-SUB-09", "S12-UNS-01")
def test_iterate_and_acknowledge(client, peer):
    for number in range(5):
        client.send("/queue/a", b"%d" % number)
    with client.subscribe("/queue/a", ack="client-individual", prefetch=10) as subscription:
        for number, message in zip(range(5), subscription):
            assert (message.body, message.destination) == (b"%d" % number, "/queue/a")
            message.ack(receipt=number == 4)
    peer.wait(lambda peer: peer.got("UNSUBSCRIBE"))
    assert len(peer.got("ACK")) == 5
    (asked,) = peer.got("SUBSCRIBE")
    assert (asked.headers["ack"], asked.headers["prefetch-count"]) == ("client-individual", "10")
    assert list(subscription) == []


@pytest.mark.req("S12-SUB-12")
def test_processing_settles(shell, peer):
    peer.server = "stompcodec/1"  # an unknown broker gets no NACK
    client = shell.connect(peer.url)
    for body in (b"good", b"bad", b"own", b"none"):
        client.send("/queue/a", body)
    subscription = client.subscribe("/queue/a", ack="client-individual")
    with subscription.get(patience(5)).processing():
        pass
    with pytest.raises(ZeroDivisionError), subscription.get(patience(5)).processing():
        raise ZeroDivisionError
    with subscription.get(patience(5)).processing() as message:
        message.nack()
    client.ping()
    assert settled(peer) == ["ACK", "NACK", "NACK"]


def test_a_message_that_processing_cannot_settle_is_logged(client, caplog):
    def close_and_fail():
        client.close()
        raise ZeroDivisionError

    caplog.set_level(logging.INFO, "stompcodec.client")
    client.send("/queue/a", b"x")
    message = client.subscribe("/queue/a", ack="client-individual").get(5)
    with pytest.raises(ZeroDivisionError), message.processing():
        close_and_fail()
    (said,) = [each for each in caplog.records if each.getMessage().startswith("not settled: ")]
    assert said.levelname == "WARNING"


@pytest.mark.parametrize("layers", [[], [stomp.Middleware()]])
def test_get_and_take(shell, peer, layers):
    client = shell.connect(peer.url, middleware=layers)
    subscription = client.subscribe("/queue/a")
    assert subscription.get(0.01) is None
    peer.deliver("s1", b"x", count=6)
    client.ping()  # all six are there
    assert subscription.get(0).body == b"x"
    assert [len(subscription.take(most, patience(5))) for most in (3, 10)] == [3, 2]
    assert subscription.take(10, 0.01) == []
    waiters = vars(getattr(subscription, "target", subscription)._waiters)

    def unsubscribe():
        wait_for(lambda: waiters.get("_locks") or waiters.get("_futures"))
        subscription.unsubscribe()

    end = threading.Thread(target=unsubscribe)
    end.start()
    assert subscription.get(patience(30)) is None  # it was under way
    end.join()
    assert subscription.get() is None
    for call in (lambda: subscription.get(1), lambda: subscription.take(3, 1)):  # a loop of these would spin
        with pytest.raises(stomp.LocalProtocolError, match="the subscription was closed"):
            call()
    assert [*subscription] == []


def test_get_after_the_end_sees_what_another_thread_has_moved(peer):
    class Moving(deque):
        def __bool__(self):  # as if the other thread did it now
            subscription.batch.append(message)
            return False

    with stomp.connect(peer.url) as client:
        subscription = client.subscribe("/queue/a")
        peer.deliver("s1", b"x")
        message = subscription.get(patience(5))
        subscription.unsubscribe()
        subscription.inbox = Moving()
        assert subscription.get(0) is message


def test_reply(shell, client, peer):
    service = shell.connect(peer.url)
    service.subscribe("/queue/service", handler=shell.handler(lambda message: message.reply(message.body.upper())))
    assert client.request("/queue/service", b"hello", patience(5)).body == b"HELLO"
    assert client.request("/queue/service", "again", timeout=patience(5)).body == b"AGAIN"
    (frame,) = [frame for frame in peer.got("SUBSCRIBE") if frame.get("id") == frame.get("destination")]
    assert frame.headers["id"].startswith("/temp-queue/replies.")
    with pytest.raises(stomp.ReceiptTimeoutError):
        client.request("/queue/nobody", b"", 0.1)
    message = client.request("/queue/service", b"x", patience(5))
    with pytest.raises(stomp.LocalProtocolError, match="reply-to"):
        message.reply(b"")


# ---- handlers ----
def test_concurrency_and_keys(shell, client, peer):
    keyed = Seen()
    handler = shell.handler(lambda message: keyed.add((message.get("k"), int(message.body))))
    client.subscribe("/queue/b", handler=handler, concurrency=3, key=lambda message: message.get("k"))
    for number in range(60):
        peer.deliver("s1", b"%d" % number, headers={"k": str(number % 5)})
    pairs = keyed.wait(60)
    for key in "01234":
        mine = [number for name, number in pairs if name == key]
        assert mine == sorted(mine)
    with pytest.raises(ValueError, match="ack='client-individual'"):  # an ACK would cover what other calls still handle
        client.subscribe("/queue/c", ack="client", handler=handler, concurrency=2)


def test_messages_that_wait_for_their_key_return_to_the_broker(shell, client):
    dealt, begun, go = Seen(), Seen(), threading.Event()

    def work(message):
        begun.add(message.body)
        go.wait(patience(10))

    for _ in range(5):
        client.send("/queue/a", b"x")
    options = {"handler": shell.handler(work), "concurrency": 2, "key": lambda _: dealt.add(1)}
    subscription = client.subscribe("/queue/a", ack="client-individual", **options)
    begun.wait(1)
    dealt.wait(5)
    subscription.unsubscribe()
    go.set()
    subscription.join(patience(10))
    assert begun.wait(1) == [b"x"]


def test_a_handler_may_use_the_client(shell, peer):
    client, done = shell.connect(peer.url, close_timeout=0.5), Seen()

    def forward(message):
        client.send("/queue/out", message.body, receipt=True)
        if message.body == b"last":
            client.close()
        done.add(message.body)

    client.subscribe("/queue/a", handler=shell.handler(forward))
    for body in (b"first", b"last"):
        peer.deliver("s1", body)
    assert (done.wait(2), client.state) == ([b"first", b"last"], "closed")


def test_on_message(peer):
    seen = Seen()
    with stomp.connect(peer.url) as client:

        @client.on_message("/queue/a", ack="client-individual")
        def handle(message):
            seen.add(message.body)

        peer.do(lambda: [peer.side().deliver("s1", b"%d" % number) for number in range(50)])
        assert [int(body) for body in seen.wait(50)] == list(range(50))
        peer.wait(lambda peer: len(peer.got("ACK")) == 50)
        handle(SimpleNamespace(body=b"direct"))
        assert seen.bodies[-1] == b"direct"


# ---- RECEIVE and PING ----
def test_receive_from_the_own_durable_subscription(shell, broker):
    name, topic = f"d-{shell.name}", f"/topic/{shell.name}"
    client, producer = shell.connect(broker.url, client_id=name), shell.connect(broker.url)

    def fails(error, words, **options):
        with pytest.raises(error, match=words):
            client.receive(topic, **options)
        client.wait_connected()

    fails(stomp.RejectedError, "no such durable subscription", durable=name)
    subscription = client.subscribe(topic, durable=name, ack="client-individual")
    fails(stomp.LocalProtocolError, "exists already", durable=name)
    subscription.unsubscribe()
    producer.send(topic, b"1", receipt=True)
    fails(stomp.RejectedError, "no such durable subscription", headers={"durable-subscription-name": name})
    message = client.receive(topic, durable=name, ack="client-individual")
    assert message.body == b"1"
    message.ack(receipt=True)
    assert client.receive(topic, durable=name) is None


def test_a_broker_that_does_not_offer_it(client, peer):
    with pytest.raises(stomp.LocalProtocolError, match="does not offer RECEIVE"):
        client.receive("/queue/a")
    assert client.ping() < patience(5)
    peer.wait(lambda peer: peer.commands()[-2:] == ["BEGIN", "ABORT"])


@pytest.mark.req("WISH-PNG-01", "WISH-NEG-01", "WISH-NEG-03")
def test_what_the_broker_offers_is_taken(shell, broker):
    frames = []
    options = {"on_frame": lambda way, frame: frames.append((way, frame.command)), "headers": {"version": "1.1"}}
    client = shell.connect(broker.url, **options)
    assert client.version == "1.1"
    assert 0 < client.ping() < patience(5)
    with pytest.raises(stomp.RejectedError, match="RECEIVE from"):
        client.receive("/queue/a", headers={"browser": "true"})
    client.close()
    assert [each for each in frames if each[1] in ("PING", "PONG", "BEGIN")] == [("out", "PING"), ("in", "PONG")]


class Offering(Scripted):
    def __init__(self, headers=()):
        super().__init__()
        self.more = dict(headers)

    def connect(self, confirm=True):
        self.open()
        self.server._commands = frozenset(("RECEIVE", "PING", "PONG", "EMPTY"))
        self.frames()
        self.server.accept({"server": "x", "session": "1", "commands": "RECEIVE,PING", **self.more})
        self.pump()
        return self

    def put(self, id="f"):
        subscription = Subscription("/queue/a", id=id, ack="client-individual")
        call = self.core.link.calls.make("RECEIVE", 5.0)
        assert self.core.fetch(subscription, self.now, call)
        return call

    def fetch(self, id="f"):
        call = self.put(id)
        (frame,) = self.frames()
        assert (frame.command, frame.headers["receipt"]) == ("RECEIVE", call.id)
        return call

    def give(self, call, number, id="f"):
        pairs = {"subscription": id, "message-id": f"m{number}", "destination": "/queue/a", "ack": f"a{number}"}
        self.server.send(Frame("MESSAGE", pairs, b"%d" % number))
        self.server.send(Frame("RECEIPT", {"receipt-id": call.id}))


def test_a_receive_that_was_not_sent_is_forgotten_with_its_call():
    client = Offering().connect()
    client.core.link.is_writable = False
    calls = [client.put() for _ in range(2)]
    client.core.abandon(client.now, calls[0])
    client.wait(6)
    assert [call.error.sent for call in calls] == [False, False]
    client.core.link.is_writable = True
    assert (client.frames(), client.core.inbound.fetches) == ([], {})


def test_answers_under_one_id_come_in_the_order_of_their_calls():
    client = Offering().connect()
    calls = [client.fetch() for _ in range(4)]
    for call in calls[:2]:
        client.core.abandon(client.now, call)
    client.server.send(Frame("EMPTY", {"subscription": "f", "destination": "/queue/a"}))
    for number, call in enumerate(calls[1:], 1):
        client.give(call, number)
    client.pump()
    assert [frame.headers["id"] for frame in client.frames()] == ["a1"]
    assert ([call.result.body for call in calls[2:]], client.core.inbound.fetches) == ([b"2", b"3"], {})


@pytest.mark.parametrize("command", ["PING", "RECEIVE"])
def test_a_relay_that_passes_on_what_the_broker_offers_and_does_not_know_it(command):
    """As Spring's: its ERROR names no receipt, and ends the session."""
    client = Offering().connect()
    call = client.call(command, 5.0, command)
    subscription = Subscription("/queue/a", id="f")
    assert client.core.ping(client.now, call) if command == "PING" else client.core.fetch(subscription, 100.0, call)
    other = client.send(receipt=True)
    client.frames()
    client.error(message=f"No enum constant org.springframework.messaging.simp.stomp.StompCommand.{command}")
    assert (type(call.error), type(other.error)) == (stomp.RejectedError, stomp.ConnectionLostError)
    client.connect()
    again = client.call(command, 5.0, command)
    if command == "PING":
        assert client.core.ping(client.now, again)
        (begin,) = client.frames()
        client.receipt(begin)
        (abort,) = client.frames()
        assert (begin.command, abort.command, again.error) == ("BEGIN", "ABORT", None)
    else:
        with pytest.raises(stomp.LocalProtocolError, match="does not offer RECEIVE"):
            client.core.fetch(subscription, client.now, again)
        assert client.frames() == []


@pytest.mark.parametrize(
    ("answer", "commands"),
    [
        *(("receipt", ["BEGIN", "ABORT"]), ("late", ["BEGIN", "ABORT"])),
        *(("refused", ["BEGIN"]), ("lost", ["BEGIN"]), ("unsent", []), ("closed", ["BEGIN", "DISCONNECT"])),
    ],
)
def test_a_ping_without_ping_aborts_its_transaction_if_that_may_be_open(answer, commands):
    client = Scripted(version="1.1").connect()
    client.core.link.writable(answer != "unsent")
    assert client.core.ping(client.now, client.call("PING", 5.0, "PING"))
    sent = client.frames()
    if answer == "closed":
        client.core.close(client.now, client.call("close", 60.0))
    if answer in ("receipt", "refused", "closed"):
        {"refused": client.error}.get(answer, client.receipt)(sent[0])
    if answer == "lost":
        client.again()
    client.wait(6.0 if answer in ("late", "unsent") else 0.0)
    client.core.link.writable(True)
    assert [frame.command for frame in sent] + client.commands() == commands


@pytest.mark.parametrize(
    ("url", "headers", "offers"),
    [("stomp://h", {}, "PING"), ("ws://h", {}, "RECEIVE"), ("ws://h", {"user-name": "ann"}, "none")],
)
def test_no_command_is_tried_where_a_relay_may_not_know_it(url, headers, offers):
    """A WebSocket may end at a relay. Spring's adds `user-name` to CONNECTED if its user has a name."""
    client = Offering(headers).connect()
    client.core.link.address = parse_uri(url)[0]
    assert client.core.ping(client.now, client.call("PING", 5.0, "PING"))
    assert client.commands() == ["PING" if offers == "PING" else "BEGIN"]
    fetch = partial(client.core.fetch, Subscription("/queue/a", id="f"), client.now, client.call())
    if offers == "none":
        with pytest.raises(stomp.LocalProtocolError, match="does not offer RECEIVE"):
            fetch()
    else:
        assert fetch()


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


# ---- typed headers, and receipts of the older worker dialect ----
@pytest.mark.req("WISH-JSN-01", "WISH-JSN-02", "WISH-JSN-03", "WISH-JSN-04", "WISH-JSN-05", "WISH-JSN-06")
def test_typed_headers_come_back_as_they_were(shell, broker):
    values = {
        **{"n": 9, "f": 1.5, "yes": True, "none": None, "list": [1, "a"], "map": {"a": [None]}, "text": "9"},
        "t": "é",
    }
    name, client = f"/queue/typed-{shell.name}", shell.connect(broker.url)
    client.send(name, b"", typed_headers(values), receipt=True)
    message = client.receive(name)
    assert {key: message.value(key) for key in values} == values
    assert (message.get("n"), message.value("no such"), message.value("no such", 7)) == ("9", None, 7)


@pytest.mark.req("LEG-RCP-03")
def test_receipts_may_come_in_another_order():
    client = Scripted(versions=["legacy"], version="legacy", login="ann", passcode="x").connect()
    calls = [client.send(receipt=True) for _ in range(3)]
    assert len(client.frames()) == 3
    for at, done in ((2, [False, False, True]), (0, [True, False, True]), (1, [True, True, True])):
        client.answer("RECEIPT", {"receipt-id": calls[at].id})
        assert [call.done for call in calls] == done
        assert not calls[at].error
