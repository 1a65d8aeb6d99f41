"""Both shells: receiving, settling, handlers, and `receive`, which is never None while a message waits."""

import contextlib
import logging
import threading
from types import SimpleNamespace

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from client.scripted import Scripted
from client.shells import Seen
from patience import patience

import stompcodec.client as stomp


@pytest.fixture(scope="module")
def broker():
    with BrokerThread() as broker:
        yield broker


# ---- receiving ----


@pytest.mark.req("S12-SUB-01", "S12-SUB-05", "S12-SUB-06", "S12-SUB-07", "S12-SUB-09", "S12-UNS-01")
def test_iterate_and_acknowledge(shell, peer):
    client = shell.connect(peer.url)
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
    assert [command for command in peer.commands() if "ACK" in command] == ["ACK", "NACK", "NACK"]


def test_a_message_that_processing_cannot_settle_is_logged(shell, peer, caplog):
    def close_and_fail():
        client.close()
        raise ZeroDivisionError

    caplog.set_level(logging.INFO, "stompcodec.client")
    client = shell.connect(peer.url)
    client.send("/queue/a", b"x")
    message = client.subscribe("/queue/a", ack="client-individual").get(5)
    with pytest.raises(ZeroDivisionError), message.processing():
        close_and_fail()
    assert any(record.getMessage().startswith("not settled: ") for record in caplog.records)


def test_get_and_take(shell, peer):
    client = shell.connect(peer.url)
    subscription = client.subscribe("/queue/a")
    assert subscription.get(0.01) is None
    peer.deliver("s1", b"x", count=5)
    client.ping()  # all five are there
    assert len(subscription.take(3, patience(5))) == 3
    assert len(subscription.take(10, patience(5))) == 2
    assert subscription.take(10, 0.01) == []
    subscription.unsubscribe()
    assert subscription.get() is None


def test_a_refused_subscription(shell):
    with Peer(rules={"SUBSCRIBE": lambda side, frame: side.error(frame, "access refused")}) as peer:
        client = shell.connect(peer.url)
        with pytest.raises(stomp.RejectedError, match="access refused"):
            client.subscribe("/queue/a")
        client.wait_connected()
        assert len(peer.got("SUBSCRIBE")) == 1


def test_an_error_of_nobody_is_raised_from_the_iterator(shell):
    with Peer(versions=["1.1"]) as peer:
        client = shell.connect(peer.url)
        subscription = client.subscribe("/queue/a")
        error = b"ERROR\nmessage:something is wrong\n\n\0"
        peer.do(lambda: peer.side().sock.sendall(error))
        with pytest.raises(stomp.RejectedError, match="something is wrong"):
            next(subscription)
        peer.deliver("s1", b"still here")
        assert next(subscription).body == b"still here"


def test_reply(shell, peer):
    service = shell.connect(peer.url)
    client = shell.connect(peer.url)

    def answer(message):
        message.reply(message.body.upper())

    service.subscribe("/queue/service", handler=shell.handler(answer))
    assert client.request("/queue/service", b"hello", patience(5)).body == b"HELLO"
    assert client.request("/queue/service", "again", timeout=patience(5)).body == b"AGAIN"
    assert len(peer.got("SUBSCRIBE", destination="/temp-queue/replies")) == 1
    with pytest.raises(stomp.ReceiptTimeoutError):
        client.request("/queue/nobody", b"", 0.1)
    message = client.request("/queue/service", b"x", patience(5))
    with pytest.raises(stomp.LocalProtocolError, match="reply-to"):
        message.reply(b"")


# ---- handlers ----


@pytest.mark.parametrize(
    ("policy", "commands"),
    [
        ("nack", ["NACK", "ACK"]),
        ("ignore", ["ACK"]),
        (lambda message, error: "ack" if "first" in str(error) else "nack", ["ACK", "ACK"]),
        (lambda message, error: "no such policy", ["ACK"]),
        (lambda message, error: 1 / 0, ["ACK"]),
    ],
)
def test_errors_of_handlers_stay_where_they_are(shell, peer, policy, commands, caplog):
    peer.server = "stompcodec/1"  # an unknown broker gets no NACK
    client = shell.connect(peer.url)
    seen = Seen()

    def fail_first(message):
        seen.add(message.body)
        if message.body == b"first":
            raise ValueError("first fails")

    client.subscribe(
        "/queue/a", ack="client-individual", handler=shell.handler(fail_first), on_error=policy, attempts=1
    )
    with caplog.at_level(logging.ERROR, "stompcodec.client"):
        peer.deliver("s1", b"first")
        peer.deliver("s1", b"second")
        seen.wait(2)
        peer.wait(lambda peer: len([1 for command in peer.commands() if "ACK" in command]) == len(commands))
    assert [command for command in peer.commands() if "ACK" in command] == commands
    assert "first fails" in caplog.text
    assert client.state == "connected"


def test_concurrency_and_keys(shell, peer):
    client = shell.connect(peer.url)
    both, seen = threading.Barrier(2, timeout=patience(10)), Seen()

    def meet(message):
        both.wait()  # passes only if two handlers run at once
        seen.add(message.body)

    client.subscribe("/queue/a", handler=shell.handler(meet), concurrency=2)
    peer.deliver("s1", b"x", count=4)
    seen.wait(4)

    keyed = Seen()
    handler = shell.handler(lambda message: keyed.add((message.get("k"), int(message.body))))
    client.subscribe("/queue/b", handler=handler, concurrency=3, key=lambda message: message.get("k"))
    for number in range(60):
        peer.do(lambda number=number: peer.side().deliver("s2", b"%d" % number, {"k": str(number % 5)}))
    pairs = keyed.wait(60)
    for key in "01234":
        mine = [number for name, number in pairs if name == key]
        assert mine == sorted(mine)
    with pytest.raises(ValueError, match="concurrency"):
        client.subscribe("/queue/c", handler=handler, concurrency=0)


def test_an_ack_for_several_and_concurrency_exclude_each_other(shell, peer):
    """The ACK of one message would cover those that other calls of the handler have not finished."""
    client, seen = shell.connect(peer.url), Seen()
    handler = shell.handler(lambda message: seen.add(message.body))
    with pytest.raises(ValueError, match="ack='client-individual'"):
        client.subscribe("/queue/a", ack="client", handler=handler, concurrency=2)
    client.subscribe("/queue/a", ack="client", handler=handler)
    client.send("/queue/a", b"x")
    assert seen.wait(1) == [b"x"]


@pytest.mark.parametrize("end", ["unsubscribe", "close"])
def test_messages_that_wait_for_their_key_return_to_the_broker(end, shell, peer):
    client, dealt, begun, go = shell.connect(peer.url), Seen(), Seen(), threading.Event()

    def work(message):
        begun.add(message.body)
        go.wait(patience(10))

    for _ in range(5):
        client.send("/queue/a", b"x")
    subscription = client.subscribe(
        "/queue/a", ack="client-individual", handler=shell.handler(work), concurrency=2, key=lambda _: dealt.add(1)
    )
    begun.wait(1)
    dealt.wait(5)
    threading.Timer(0.1, go.set).start() if end == "close" else None  # closing waits for handlers
    (subscription.unsubscribe if end == "unsubscribe" else client.close)()
    go.set()
    subscription.join(patience(10))
    assert begun.wait(1) == [b"x"]


def test_a_handler_may_use_the_client(shell, peer):
    client = shell.connect(peer.url, close_timeout=0.5)
    done = Seen()

    def forward(message):
        client.send("/queue/out", message.body, receipt=True)
        if message.body == b"last":
            client.close()
        done.add(message.body)

    client.subscribe("/queue/a", handler=shell.handler(forward))
    peer.deliver("s1", b"first")
    peer.deliver("s1", b"last")
    assert done.wait(2) == [b"first", b"last"]
    assert client.state == "closed"


def test_on_message(peer):
    """In order, each acknowledged; the function stays what it is."""
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


class Refusing(stomp.Middleware):
    """Middleware that raises for the first message, before or after the program would have it."""

    def __init__(self, after):
        self.after = after
        self.refused = 0

    @contextlib.contextmanager
    def receive(self, event):
        if self.after:
            yield
        if not self.refused:
            self.refused += 1
            raise ValueError("not this one")
        if not self.after:
            yield


def test_receive_from_the_own_durable_subscription(shell, broker):
    name, topic = f"d-{shell.name}", f"/topic/{shell.name}"
    client, producer = shell.connect(broker.url, client_id=name), shell.connect(broker.url)
    with pytest.raises(stomp.RejectedError, match="no such durable subscription"):
        client.receive(topic, durable=name)
    client.wait_connected()
    subscription = client.subscribe(topic, durable=name, ack="client-individual")
    with pytest.raises(stomp.LocalProtocolError, match="exists already"):
        client.receive(topic, durable=name)
    subscription.unsubscribe()
    producer.send(topic, b"1", receipt=True)
    with pytest.raises(stomp.RejectedError, match="no such durable subscription"):
        client.receive(topic, headers={"durable-subscription-name": name})
    client.wait_connected()
    message = client.receive(topic, durable=name, ack="client-individual")
    assert message.body == b"1"
    message.ack(receipt=True)
    assert client.receive(topic, durable=name) is None


# ---- text ----


def received(body, **headers):
    client = Scripted().connect()
    return client.deliver(client.subscribed(), body=body, **{name.replace("_", "-"): v for name, v in headers.items()})
