"""Every way to send, receive and settle passes the middleware once, in its order; and what becomes of its errors."""

import asyncio
import contextlib
import importlib
import itertools
import logging
import re
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from client.feeding import wait_for
from client.middleware.layers import AsyncNotes, Notes, layer_for
from client.shells import QUICK, Seen
from client.test_sent_on import ROADS
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.headers import REQUEST
from stompcodec.client.middleware import FIXED, PLACES, AsyncMiddleware, EditableHeaders
from stompcodec.errors import MissingExtraError

PAGE = Path(__file__).parents[3] / "docs" / "middleware.md"
LARGE = bytes(range(256)) * 64


class Refused(Exception):
    """What middleware raises here."""


def refuse(event):
    raise Refused("no")


def refuse_bad(event):
    if event.message.body == b"bad":
        raise Refused("no")


def stamp(event):
    event.headers.add("stamp", "1")


def change(event):
    event.headers["seen"] = "yes"
    event.body = event.body.upper() + b"!"


def subscribed(client, peer, *bodies, **options):
    subscription = client.subscribe("/queue/a", ack="client-individual", id="1", **options)
    for body in bodies:
        peer.deliver("1", body)
    return subscription


def in_transaction(client, work):
    with client.transaction() as transaction:
        work(transaction)


# ---- send ----
#: Those of any client, and those that only middleware tells apart.
SENDS = {
    **{name: send for name, send in ROADS.items() if name != "streamed"},
    "resend": lambda client, queue: client.send(queue, b"x", receipt=True, resend=True),
    "many, text": lambda client, queue: client.send_many([(queue, "x", {"a": "b"})]),
    "many, resend": lambda client, queue: client.send_many([(queue, b"x")], resend=True),
    "many, transaction": lambda client, queue: in_transaction(
        client, lambda t: client.send_many([(queue, b"x")], transaction=t)
    ),
}
MANY = {"frames", "block", *(name for name in SENDS if name.startswith("many"))}


@pytest.mark.parametrize("way", SENDS)
def test_what_is_sent_passes_once(shell, broker, queue, way):
    layer, is_many, body = layer_for(shell, before_send=stamp), way in MANY, b"x" * (way != "empty")
    client = shell.connect(broker.url, middleware=[layer])
    SENDS[way](client, queue)
    message = shell.connect(broker.url).subscribe(queue).get(patience(10))
    assert (message.body, message.headers.getall("stamp")) == (body, ["1"])
    (event,) = layer.of("send")
    assert (event.destination, event.body, event.is_text) == (queue, body, "text" in way)
    assert (event.by, event.transaction is not None) == ("many" if is_many else "send", "transaction" in way)
    assert (layer.notes.count("a>send_many"), event.batch and event.batch.messages) == (is_many, 1 if is_many else None)


STREAMED = {
    "send": lambda client, queue, source: client.send(queue, source, {"x": "1"}, receipt=True),
    "without receipt": lambda client, queue, source: client.send(queue, source, {"x": "1"}),
    "for receipt": lambda client, queue, source: client.send_for_receipt(queue, source, {"x": "1"}).wait(),
    "transaction": lambda client, queue, source: in_transaction(client, lambda t: t.send(queue, source, {"x": "1"})),
}


@pytest.mark.parametrize("way", STREAMED)
def test_a_streamed_body_can_be_measured_and_left(shell, broker, queue, tmp_path, way):
    def look(event):
        assert (event.is_streamed, event.is_text, event.size, event.by) == (True, False, len(LARGE), "send")
        assert (event.receipt, event.transaction is None) == (way in ("send", "for receipt"), way != "transaction")
        with pytest.raises(stomp.LocalProtocolError, match="streamed"):
            event.body  # noqa: B018
        event.headers["x"] = "2"

    (tmp_path / "body").write_bytes(LARGE)
    layer = layer_for(shell, before_send=look)
    client = shell.connect(broker.url, middleware=[layer])
    for source in (tmp_path / "body", iter([LARGE[:5], LARGE[5:]])):
        STREAMED[way](client, queue, source)
    subscription = client.subscribe(queue)
    for _ in range(2):
        message = subscription.get(patience(10))
        assert (message.body, message.headers["x"]) == (LARGE, "2")
    assert layer.steps.count("a<send") == 2


@pytest.mark.parametrize("step", ["before_send", "after_receive"])
def test_a_streamed_body_can_be_replaced_or_refused(shell, broker, queue, tmp_path, step):
    def replace(event):
        event.body = b"short"
        assert (event.is_streamed, event.size, event.body) == (False, 5, b"short")
        if "bad" in event.headers:
            refuse(event)

    (tmp_path / "body").write_bytes(LARGE)
    client = shell.connect(broker.url, middleware=[layer_for(shell, **{step: replace})], stream_over=4096)
    client.send(queue, tmp_path / "body", receipt=True)
    with client.subscribe(queue) as subscription:
        message = subscription.get(patience(10))
    with message.open() as reader:
        assert (message.is_streamed, message.body, message.size, reader.read()) == (False, b"short", 5, b"short")
    if step == "before_send":
        assert message.headers["content-length"] == "5"
        with (tmp_path / "body").open("rb") as file, pytest.raises(Refused):
            client.send(queue, file, {"bad": "1"})
        assert (client.epoch, client.receive(queue)) == (1, None)


class Translating(stomp.Middleware):
    @contextlib.contextmanager
    def _around(self, event):
        try:
            yield
        except Refused as error:
            raise PermissionError("not allowed") from error

    send = settle = _around


@pytest.mark.parametrize("step", ["before_send", "after_send", "before_settle", "after_settle"])
def test_send_and_ack_raise_it_or_what_outer_middleware_makes_of_it(shell, peer, step):
    client = shell.connect(peer.url, middleware=[Translating(), layer_for(shell, **{step: refuse})])
    message = subscribed(client, peer, b"body").get(patience(10))
    call, command = (message.ack, "ACK") if "settle" in step else (partial(client.send, "/queue/b", b"x"), "SEND")
    with pytest.raises(PermissionError, match="not allowed"):
        call()
    client.ping(patience(10))
    assert len(peer.got(command)) == step.startswith("after")


def test_send_many_names_the_message(shell, broker, queue):
    layer = layer_for(shell, before_send=lambda event: event.body == b"2" and refuse(event))
    client = shell.connect(broker.url, middleware=[layer])
    with pytest.raises(stomp.SendManyError, match="message 2 cannot be written: no") as info:
        client.send_many([(queue, b"%d" % number) for number in range(5)], receipt_every=1)
    assert isinstance(info.value.reason, Refused)
    assert [info.value.outcome(number) for number in range(5)] == ["accepted"] * 2 + ["unwritable"] + ["unsent"] * 2
    client = shell.connect(broker.url, middleware=[layer_for(shell, before_send_many=refuse)])
    with pytest.raises(Refused):
        client.send_many([(queue, b"1")])


# ---- receive ----
def test_a_message_that_is_sent_again_passes_once(shell, peer):
    layer = layer_for(shell, before_send=stamp)
    peer.rules["SEND"] = lambda side, frame: side.close() if side.number == 1 else side.receipt(frame)
    shell.connect(peer.url, middleware=[layer], reconnect=QUICK).send("/queue/a", b"body", receipt=True, resend=True)
    first, second = peer.got("SEND")
    assert first.headers.pairs() == second.headers.pairs()
    assert first.headers.getall("stamp") == ["1"]
    assert [note for note in layer.notes if note.endswith("send")] == ["a>send", "a<send"]
    wait_for(lambda: [note for note in layer.notes if "connect" in note] == ["a>connect", "a<connect"] * 2)


def take(subscription):
    messages = []
    while len(messages) < 3:
        messages += subscription.take(3, patience(10))
    return messages


#: The ways to take messages of a subscription.
TAKES = {
    "get": lambda subscription: [subscription.get(patience(10)) for _ in range(3)],
    **{"iteration": lambda subscription: list(itertools.islice(subscription, 3)), "take": take},
}


@pytest.mark.parametrize("way", [*TAKES, "receive"])
def test_what_is_received_passes_once(shell, broker, queue, way):
    layer = layer_for(shell, after_receive=change)
    client = shell.connect(broker.url, middleware=[layer])
    client.send_many([(queue, b"%d" % number) for number in range(3)])
    if way == "receive":
        messages = [client.receive(queue) for _ in range(3)]
        assert client.receive(queue) is None
    else:
        messages = TAKES[way](client.subscribe(queue, ack="client-individual"))
        messages[0].ack()  # it still knows how
    assert [(message.body, message.headers["content-length"]) for message in messages] == [
        (b"%d!" % number, "2") for number in range(3)
    ]
    assert {message.get("seen") for message in messages} == {"yes"}
    assert [each.by for each in layer.of("receive")] == ["receive" if way == "receive" else "taken"] * 3


def test_requests_and_replies_pass(shell, broker, queue):
    asking, answering, seen = *(layer_for(shell, before_send=stamp) for _ in range(2)), Seen()

    def answer(message):
        seen.add(message.headers.getall("stamp"))
        message.reply(b"answer")

    shell.connect(broker.url, middleware=[answering]).subscribe(queue, handler=shell.handler(answer))
    reply = shell.connect(broker.url, middleware=[asking]).request(queue, b"?", patience(10))
    assert (reply.body, reply.headers.getall("stamp"), seen.wait(1)) == (b"answer", ["1"], [["1"]])
    assert asking.steps == ["a>send", "a<send", "a>receive", "a<receive"]
    assert [each.by for each in asking.of("send") + asking.of("receive")] == ["request", "reply"]
    assert [each.by for each in answering.of("send")] == ["reply"]


@pytest.mark.parametrize("step", ["before_receive", "after_receive"])
def test_a_message_that_receive_refuses_is_refused_and_the_next_one_comes(shell, peer, caplog, step):
    peer.server = "stompcodec/1"  # an unknown broker gets no NACK
    layer = layer_for(shell, **{step: refuse_bad})
    subscription = subscribed(shell.connect(peer.url, middleware=[layer]), peer, b"bad", b"good")
    with caplog.at_level(logging.ERROR, "stompcodec.client"):
        assert subscription.get(patience(10)).body == b"good"
    peer.wait(lambda peer: peer.got("NACK", id="m1"))
    assert "middleware refused a message of /queue/a" in caplog.text
    assert layer.notes.count("a>settle") == 1


def test_get_ends_in_time_while_each_message_is_refused(shell, peer):
    late = time.monotonic() + patience(5)

    def refuse_for_long(event):
        if time.monotonic() < late:
            for _ in range(2):
                peer.deliver("1", b"bad")
            refuse(event)

    client = shell.connect(peer.url, middleware=[layer_for(shell, after_receive=refuse_for_long)])
    assert subscribed(client, peer, *[b"bad"] * 20).get(0.1) is None
    assert time.monotonic() < late


@pytest.mark.parametrize(("on_error", "command"), [("nack", "NACK"), ("ack", "ACK"), ("stop", None)])
def test_with_a_handler_its_policy_decides(shell, peer, on_error, command):
    peer.server, seen = "stompcodec/1", Seen()  # an unknown broker gets no NACK
    client = shell.connect(peer.url, middleware=[layer_for(shell, after_receive=refuse_bad)])
    handler = seen.handler(shell)
    subscription = subscribed(client, peer, b"bad", handler=handler, on_error=on_error, attempts=1)
    if command is None:
        with pytest.raises(Refused):
            subscription.join(patience(10))
        peer.wait(lambda peer: peer.got("UNSUBSCRIBE"))
        return
    peer.deliver("1", b"good")
    assert seen.wait(1) == [b"good"]
    peer.wait(lambda peer: peer.got(command, id="m1"))


def test_request_and_receive_raise_it(shell, broker, queue):
    shell.connect(broker.url).subscribe(queue, handler=shell.handler(lambda message: message.reply(b"bad")))
    client = shell.connect(broker.url, middleware=[layer_for(shell, after_receive=refuse_bad)])
    with pytest.raises(Refused):
        client.request(queue, b"?", patience(10))
    client.send(f"{queue}-one", b"bad", receipt=True)
    with pytest.raises(Refused):
        client.receive(f"{queue}-one")


def test_a_message_whose_taking_was_cancelled_comes_again(broker, queue):
    started, goes_on = asyncio.Event(), asyncio.Event()

    class Slow(AsyncMiddleware):
        @contextlib.asynccontextmanager
        async def receive(self, event):
            started.set()
            await goes_on.wait()
            yield

    async def main():
        async with stomp.connect_async(broker.url, middleware=[Slow()]) as client:
            await client.send_many([(queue, b"1"), (queue, b"2")])
            subscription = client.subscribe(queue, ack="client-individual")
            task = asyncio.create_task(subscription.get())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            goes_on.set()
            return [(await subscription.get(patience(10))).body for _ in range(2)]

    assert asyncio.run(main()) == [b"1", b"2"]


@pytest.mark.parametrize("headers", [{}, {"odd:\n": "a\\b\r"}])
def test_headers_of_a_body_in_a_file_can_be_changed(shell, broker, queue, headers):
    def look(event):
        assert (event.is_streamed, event.size) == (True, len(LARGE))
        with pytest.raises(stomp.LocalProtocolError, match="in a file"):
            event.body  # noqa: B018
        event.headers["seen"] = "yes"
        assert event.message.reader().read() == LARGE

    layer = layer_for(shell, after_receive=look)
    client = shell.connect(broker.url, middleware=[layer], stream_over=4096)
    expected = {**headers, "seen": "yes", "content-length": str(len(LARGE))}
    with client.subscribe(queue, ack="client-individual") as subscription:
        for _ in range(2):
            client.send(queue, LARGE, headers, receipt=True)
            message = subscription.get(patience(10))
            assert {name: message.headers[name] for name in expected} == expected
            with message.open() as reader:
                assert (message.is_streamed, message.size, reader.read()) == (True, len(LARGE), LARGE)
            message.ack(receipt=True)
        inner = subscription if shell.name == "sync" else subscription.target
        inbound = inner.link.core.inbound
        assert (inner.streamed, inner.inbox_octets, inbound.backlog, inbound.backlog_octets) == (0, 0, 0, 0)
    assert layer.steps.count("a<receive") == 2


def test_a_handler_is_inside_of_process_and_its_ack_behind(shell, broker, queue):
    layer, seen = layer_for(shell, after_receive=change), Seen()
    client = shell.connect(broker.url, middleware=[layer])
    client.send(queue, b"a", receipt=True)
    layer.notes.clear()
    client.subscribe(queue, ack="client-individual", handler=seen.handler(shell))
    assert seen.wait(1) == [b"A!"]
    wait_for(lambda: layer.of("settle"))
    assert layer.steps[:5] == ["a>receive", "a<receive", "a>process", "a<process", "a>settle"]
    assert [layer.of(place)[0].by for place in ("receive", "process")] == ["handler"] * 2
    assert layer.of("settle")[0].command == "ACK"


def in_block(client, message):
    with message.processing():
        pass


SETTLES = {
    "ack": ("ACK", lambda client, message: message.ack()),
    "ack, receipt": ("ACK", lambda client, message: message.ack(receipt=True)),
    "ack, headers": ("ACK", lambda client, message: message.ack({"mine": "1"})),
    "nack": ("NACK", lambda client, message: message.nack()),
    "block": ("ACK", in_block),
    "transaction, ack": ("ACK", lambda client, message: in_transaction(client, lambda t: t.ack(message))),
    "transaction, nack": ("NACK", lambda client, message: in_transaction(client, lambda t: t.nack(message))),
}


@pytest.mark.parametrize("way", SETTLES)
def test_what_is_settled_passes_once(shell, peer, way):
    command, settle = SETTLES[way]
    layer = layer_for(shell, before_settle=stamp)
    client = shell.connect(peer.url, middleware=[layer])
    message = subscribed(client, peer, b"body").get(patience(10))
    settle(client, message)
    assert layer.notes.count("a>settle") == 1
    if command == "ACK":
        message.ack()  # again: does nothing, and passes nothing
    peer.wait(lambda peer: peer.got(command))
    (frame,), (event,) = peer.got(command), layer.of("settle")
    assert frame.headers.getall("stamp") == ["1"]
    assert frame.get("mine") == ("1" if way == "ack, headers" else None)
    assert (event.command, event.receipt) == (command, way == "ack, receipt")
    assert (event.transaction is not None) is way.startswith("transaction")
    assert layer.notes.count("a>process") == (way == "block")


class Calm(stomp.Middleware):
    @contextlib.contextmanager
    def _around(self, event):
        with contextlib.suppress(Exception):
            yield

    send = process = settle = receive = _around


def test_only_process_may_suppress_an_error_and_the_message_is_acknowledged(shell, peer):
    client = shell.connect(peer.url, middleware=[Calm(), layer_for(shell, before_send=refuse)])
    subscribed(client, peer, b"body", handler=shell.handler(refuse))
    peer.wait(lambda peer: peer.got("ACK", id="m1"))
    other = client.subscribe("/queue/b", ack="client-individual", id="2")
    peer.deliver("2", b"body")
    with other.get(patience(10)).processing():
        raise Refused
    peer.wait(lambda peer: len(peer.got("ACK")) == 2)
    with pytest.raises(Refused):
        client.send("/queue/a", b"body")


# ---- connect ----
def test_behind_a_handler_it_is_logged(shell, peer, caplog):
    client, seen = shell.connect(peer.url, middleware=[layer_for(shell, before_settle=refuse)]), Seen()
    with caplog.at_level(logging.WARNING, "stompcodec.client"):
        subscribed(client, peer, b"1", b"2", handler=seen.handler(shell))
        assert seen.wait(2) == [b"1", b"2"]  # the worker goes on
    assert "not settled: no" in caplog.text
    assert peer.got("ACK") == []


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


def test_connect_raises_it_with_the_first_attempt(shell, peer):
    with pytest.raises(stomp.ConnectionLostError, match="no") as info:
        shell.connect(peer.url, middleware=[layer_for(shell, before_connect=refuse)])
    assert isinstance(info.value.__cause__, Refused)
    assert peer.got("CONNECT") == []
    layer = layer_for(shell)
    peer.rules["CONNECT"] = lambda side, frame: side.error(frame)
    with pytest.raises(stomp.RejectedError):
        shell.connect(peer.url, middleware=[layer])
    wait_for(lambda: layer.notes == ["a>connect", "a!connect RejectedError"])


def test_later_attempts_are_made_again_and_an_error_behind_connected_is_logged(shell, peer, caplog):
    def refuse_second(event):
        if len(layer.of("connect")) == 2:
            refuse(event)

    layer = layer_for(shell, before_connect=refuse_second, after_connect=refuse)
    client = shell.connect(peer.url, middleware=[layer], reconnect=QUICK)
    peer.cut()
    peer.wait(lambda peer: len(peer.got("CONNECT")) == 2)
    client.wait_connected(patience(10))
    assert len(layer.of("connect")) == 3
    client.send("/queue/a", b"body", receipt=True)
    wait_for(lambda: "middleware failed after the attempt to connect" in caplog.text)


# ---- which layers, in which order ----
def test_the_first_is_the_outermost_everywhere(shell, broker, queue):
    notes = []
    layers = [layer_for(shell, "a", notes), Notes("b", notes)]  # for asyncio both kinds in one list
    client = shell.connect(broker.url, middleware=layers)
    client.send_many([(queue, b"1")])
    with client.subscribe(queue, ack="client-individual").get(patience(10)).processing():
        notes.append("inside")
    wait_for(lambda: "a<connect" in notes)
    for place in PLACES:
        mine = [note for note in notes if note.endswith(place)]
        assert mine == [f"a>{place}", f"b>{place}", f"b<{place}", f"a<{place}"], place
    assert notes.index("b>process") < notes.index("inside") < notes.index("b<process") < notes.index("a>settle")


def test_without_middleware_nothing_is_in_the_way_and_the_sync_client_takes_no_async_one(broker):
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
    with pytest.raises(TypeError, match="AsyncMiddleware needs connect_async"):
        stomp.connect(broker.url, middleware=[AsyncNotes()])


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("otel", "opentelemetry", "otel"), ("prometheus", "prometheus_client", "metrics")]
)
def test_without_the_package_the_error_names_the_extra(monkeypatch, name, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"stompcodec.client.middleware.{name}", raising=False)
    with pytest.raises(MissingExtraError, match=rf"stompcodec\[{extra}\]"):
        importlib.import_module(f"stompcodec.client.middleware.{name}")


# ---- headers ----
@pytest.mark.parametrize("command", FIXED)
def test_a_forbidden_header_is_refused_with_its_name(command):
    for name in FIXED[command]:
        headers = EditableHeaders(command, [(name, "1")], FIXED[command])
        for edit in (
            lambda headers, name: headers.__setitem__(name, "2"),
            *(lambda headers, name: headers.__delitem__(name), lambda headers, name: headers.add(name, "2")),
            *(lambda headers, name: headers.update({name: "2"}), lambda headers, name: headers.pop(name)),
        ):
            with pytest.raises(stomp.LocalProtocolError, match=rf"the header {name} of {command}: "):
                edit(headers, name)
        assert (headers.pairs(), headers.changed) == ([(name, "1")], False)


def test_a_request_keeps_its_own_headers(shell, broker, queue):
    for name in REQUEST:
        layer = layer_for(shell, before_send=lambda event, name=name: event.headers.__setitem__(name, "1"))
        client = shell.connect(broker.url, middleware=[layer])
        with pytest.raises(stomp.LocalProtocolError, match=name):
            client.request(queue, b"?", 1)
        client.send(queue, b"1")
        assert client.receive(queue, timeout=patience(10)).headers[name] == "1"


def test_headers_are_a_mapping_of_text_and_bodies_are_bytes(broker, queue):
    layer = Notes(before_send=lambda event: setattr(event, "body", "text"))
    with stomp.connect(broker.url, middleware=[layer]) as client, pytest.raises(TypeError):
        client.send(queue, b"body")
    headers = EditableHeaders("SEND", [("a", "1"), ("b", "2"), ("a", "3")], {})
    assert (dict(headers), len(headers), "c" in headers, headers.get("c")) == ({"a": "1", "b": "2"}, 2, False, None)
    headers["a"] = "4"
    headers.add("b", "5")
    headers.setdefault("c", "6")
    assert headers.pairs() == [("a", "4"), ("b", "2"), ("b", "5"), ("c", "6")]
    del headers["b"]
    assert headers.pairs() == [("a", "4"), ("c", "6")]
    for error, edit in (
        *((KeyError, lambda: headers.__delitem__("b")), (TypeError, lambda: headers.__setitem__("n", 1))),
        (TypeError, lambda: headers.add(1, "n")),
    ):
        with pytest.raises(error):
            edit()
    assert "4" not in repr(headers)


@pytest.mark.skipif(not PAGE.exists(), reason="without the docs")
def test_the_page_has_the_places_and_the_headers():
    text = PAGE.read_text("utf-8")
    assert [place for place in PLACES if f"| `{place}` |" not in text] == []
    rows = dict(re.findall(r"^\| ([A-Z, ]+) \| (`.*`) \|$", text, re.MULTILINE))
    told = {command: set(re.findall(r"`([^`]+)`", names)) for row, names in rows.items() for command in row.split(", ")}
    assert told == {command: set(names) for command, names in FIXED.items()}
