"""Every way to send, receive and settle passes the middleware, once, in its order, with both shells."""

from __future__ import annotations

import itertools
import threading

import pytest
from client.feeding import wait_for
from client.middleware.layers import AsyncNotes, Notes, layer_for, stamp
from client.shells import QUICK, Seen
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.client.middleware import PLACES


def transacted(client, queue):
    with client.transaction() as transaction:
        transaction.send(queue, b"body")


def many_transacted(client, queue):
    with client.transaction() as transaction:
        client.send_many([(queue, b"body")], transaction=transaction)


SENDS = {
    "plain": lambda client, queue: client.send(queue, b"body"),
    "text": lambda client, queue: client.send(queue, "body"),
    "receipt": lambda client, queue: client.send(queue, b"body", receipt=True),
    "resend": lambda client, queue: client.send(queue, b"body", receipt=True, resend=True),
    "later": lambda client, queue: client.send_for_receipt(queue, b"body").wait(),
    "many": lambda client, queue: client.send_many([(queue, b"body")]),
    "many, text": lambda client, queue: client.send_many([(queue, "body", {"a": "b"})]),
    "many, frames": lambda client, queue: client.send_many([Frame("SEND", {"destination": queue}, b"body")]),
    "many, resend": lambda client, queue: client.send_many([(queue, b"body")], resend=True),
    "transaction": transacted,
    "many, transaction": many_transacted,
}


@pytest.mark.parametrize("way", SENDS)
def test_what_is_sent_passes_once(shell, broker, queue, way):
    layer = layer_for(shell, before_send=stamp)
    client = shell.connect(broker.url, middleware=[layer])
    SENDS[way](client, queue)
    message = shell.connect(broker.url).subscribe(queue).get(patience(10))
    assert (message.body, message.headers.getall("stamp")) == (b"body", ["1"])
    (event,) = layer.of("send")
    assert (event.destination, event.body) == (queue, b"body")
    assert event.by == ("many" if way.startswith("many") else "send")
    assert (event.transaction is not None) is ("transaction" in way)
    assert (event.batch is not None) is way.startswith("many")
    assert event.is_text is ("text" in way)
    assert layer.notes.count("a>send_many") == way.startswith("many")
    if event.batch is not None:
        assert event.batch.messages == 1


def test_requests_and_replies_pass(shell, broker, queue):
    asking, answering = (layer_for(shell, before_send=stamp) for _ in range(2))
    seen = Seen()
    service = shell.connect(broker.url, middleware=[answering])

    def answer(message):
        seen.add(message.headers.getall("stamp"))
        message.reply(b"answer")

    service.subscribe(queue, handler=shell.handler(answer))
    reply = shell.connect(broker.url, middleware=[asking]).request(queue, b"?", patience(10))
    assert (reply.body, reply.headers.getall("stamp"), seen.wait(1)) == (b"answer", ["1"], [["1"]])
    assert asking.steps == ["a>send", "a<send", "a>receive", "a<receive"]
    assert [each.by for each in asking.of("send") + asking.of("receive")] == ["request", "reply"]
    assert [each.by for each in answering.of("send")] == ["reply"]


def takes(subscription):
    taken = []
    while len(taken) < 3:
        taken += subscription.take(3, patience(10))
    return taken


#: The ways to take messages.
TAKES = {
    "get": lambda subscription: [subscription.get(patience(10)) for _ in range(3)],
    "iteration": lambda subscription: list(itertools.islice(subscription, 3)),
    "take": takes,
}


def change(event):
    event.headers["seen"] = "yes"
    event.body = event.body.upper() + b"!"


@pytest.mark.parametrize("way", TAKES)
def test_what_is_received_passes_once(shell, broker, queue, way):
    layer = layer_for(shell, after_receive=change)
    client = shell.connect(broker.url, middleware=[layer])
    client.send_many([(queue, b"%d" % number) for number in range(3)])
    messages = TAKES[way](client.subscribe(queue, ack="client-individual"))
    assert [message.body for message in messages] == [b"0!", b"1!", b"2!"]
    assert [message.headers["content-length"] for message in messages] == ["2"] * 3
    assert {message.get("seen") for message in messages} == {"yes"}
    assert [each.by for each in layer.of("receive")] == ["taken"] * 3
    messages[0].ack()  # it still knows how


def test_receive_passes(shell, broker, queue):
    layer = layer_for(shell, after_receive=change)
    client = shell.connect(broker.url, middleware=[layer])
    client.send(queue, b"a", receipt=True)
    assert client.receive(queue).body == b"A!"
    assert client.receive(queue) is None
    assert [each.by for each in layer.of("receive")] == ["receive"]


def test_a_handler_is_inside_of_process_and_its_ack_behind(shell, broker, queue):
    done = threading.Event()
    layer = layer_for(shell, after_receive=change, after_settle=lambda event: done.set())
    client = shell.connect(broker.url, middleware=[layer])
    seen = Seen()
    client.send(queue, b"a", receipt=True)
    layer.notes.clear()
    layer.events.clear()
    client.subscribe(queue, ack="client-individual", handler=shell.handler(lambda message: seen.add(message.body)))
    assert seen.wait(1) == [b"A!"]
    assert done.wait(patience(10))
    assert layer.steps[:5] == ["a>receive", "a<receive", "a>process", "a<process", "a>settle"]
    assert [layer.of(place)[0].by for place in ("receive", "process")] == ["handler"] * 2
    assert layer.of("settle")[0].command == "ACK"


def in_block(client, message):
    with message.processing():
        pass


def in_transaction(command):
    def settle(client, message):
        with client.transaction() as transaction:
            getattr(transaction, command)(message)

    return settle


SETTLES = {
    "ack": ("ACK", lambda client, message: message.ack()),
    "ack, receipt": ("ACK", lambda client, message: message.ack(receipt=True)),
    "ack, headers": ("ACK", lambda client, message: message.ack({"mine": "1"})),
    "nack": ("NACK", lambda client, message: message.nack()),
    "block": ("ACK", in_block),
    "transaction, ack": ("ACK", in_transaction("ack")),
    "transaction, nack": ("NACK", in_transaction("nack")),
}


@pytest.mark.parametrize("way", SETTLES)
def test_what_is_settled_passes_once(shell, peer, way):
    command, settle = SETTLES[way]
    layer = layer_for(shell, before_settle=stamp)
    client = shell.connect(peer.url, middleware=[layer])
    subscription = client.subscribe("/queue/a", ack="client-individual", id="1")
    peer.deliver("1", b"body")
    message = subscription.get(patience(10))
    settle(client, message)
    message_again = layer.notes.count("a>settle")
    if command == "ACK":
        message.ack()  # again: does nothing, and passes nothing
    peer.wait(lambda peer: peer.got(command))
    (frame,) = peer.got(command)
    assert frame.headers.getall("stamp") == ["1"]
    assert frame.get("mine") == ("1" if way == "ack, headers" else None)
    assert (message_again, layer.notes.count("a>settle")) == (1, 1)
    (event,) = layer.of("settle")
    assert (event.command, event.receipt) == (command, way == "ack, receipt")
    assert (event.transaction is not None) is way.startswith("transaction")
    assert layer.notes.count("a>process") == (way == "block")


def test_the_first_is_the_outermost_everywhere(shell, broker, queue):
    notes = []
    layers = [layer_for(shell, name, notes) for name in "ab"]
    if shell.name == "async":
        layers[1] = Notes("b", notes)  # both kinds in one list
    client = shell.connect(broker.url, middleware=layers)
    client.send_many([(queue, b"1")])
    subscription = client.subscribe(queue, ack="client-individual")
    with subscription.get(patience(10)).processing():
        notes.append("inside")
    wait_for(lambda: "a<connect" in notes)
    found = [note for note in notes if note != "inside"]
    for place in PLACES:
        mine = [note for note in found if note.endswith(place)]
        assert mine == [f"a>{place}", f"b>{place}", f"b<{place}", f"a<{place}"], place
    assert notes.index("b>process") < notes.index("inside") < notes.index("b<process") < notes.index("a>settle")


def test_a_message_that_is_sent_again_passes_once(shell, peer):
    layer = layer_for(shell, before_send=stamp)
    peer.rules["SEND"] = lambda side, frame: side.close() if side.number == 1 else side.receipt(frame)
    client = shell.connect(peer.url, middleware=[layer], reconnect=QUICK)
    client.send("/queue/a", b"body", receipt=True, resend=True)
    first, second = peer.got("SEND")
    assert first.headers.pairs() == second.headers.pairs()
    assert first.headers.getall("stamp") == ["1"]
    assert [note for note in layer.notes if note.endswith("send")] == ["a>send", "a<send"]
    wait_for(lambda: [note for note in layer.notes if "connect" in note] == ["a>connect", "a<connect"] * 2)


def test_a_message_that_comes_again_passes_again(shell, peer):
    layer = layer_for(shell)
    client = shell.connect(peer.url, middleware=[layer], reconnect=QUICK)
    subscription = client.subscribe("/queue/a", ack="client-individual", id="1")
    peer.deliver("1", b"1")
    stale = subscription.get(patience(10))
    peer.cut()
    peer.wait(lambda peer: len(peer.sides) == 2 and peer.sides[1].subscriptions)
    peer.deliver("1", b"1", redelivered="true")
    assert subscription.get(patience(10)).redelivered
    assert layer.notes.count("a>receive") == 2
    with pytest.raises(stomp.StaleAckError):
        stale.ack()
    assert layer.steps[-1] == "a!settle StaleAckError"


def test_connect_adds_headers_and_sees_connected(shell, peer):
    def add(event):
        event.headers["token"] = event.headers["plain"] + "-" + event.address.host

    layer = layer_for(shell, before_connect=add)
    client = shell.connect(peer.url, middleware=[layer], headers={"plain": "1"})
    assert peer.got("CONNECT")[0].headers["token"] == "1-127.0.0.1"
    client.close()
    wait_for(lambda: layer.notes == ["a>connect", "a<connect"])
    assert layer.of("connect")[0].server.headers["server"] == "test/1"
    assert client.options.headers == {"plain": "1"}


def test_without_middleware_nothing_is_in_the_way(broker):
    """Each place has only the middleware that overrides it."""

    class Sending(stomp.Middleware):
        def send(self, event):
            return Notes(before_send=stamp).send(event)

    with stomp.connect(broker.url) as client:
        assert client._link.layers is None
        assert not client._link.core.link.is_watched
        assert client._link.engine.send("/queue/fast", b"body")
    with stomp.connect(broker.url, middleware=[Sending()]) as client:
        assert {place for place, layers in client._link.layers.items() if layers} == {"send"}
        assert client._link.core.link.is_watched
        assert not client._link.engine.send("/queue/fast", b"body")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (AsyncNotes(), "AsyncMiddleware needs connect_async"),
        *((each, "give instances of Middleware") for each in (Notes, object(), "signing")),
    ],
)
def test_other_objects_are_refused(peer, wrong, text):
    with pytest.raises(TypeError, match=text):
        stomp.connect(peer.url, middleware=[wrong])
