"""What becomes of a message when middleware raises: one row for each place, as docs/middleware.md has them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from pathlib import Path

import pytest
from client.feeding import wait_for
from client.middleware.layers import Notes, layer_for
from client.shells import QUICK, Seen
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.headers import REQUEST
from stompcodec.client.middleware import FIXED, PLACES, AsyncMiddleware, EditableHeaders

PAGE = Path(__file__).parents[3] / "docs" / "middleware.md"


class Refused(Exception):
    """What middleware raises here."""


def refuse(event):
    raise Refused("no")


def refuse_bad(event):
    if event.message.body == b"bad":
        raise Refused("no")


# ---- send ----


@pytest.mark.parametrize(("step", "receipt"), [("before_send", False), ("before_send", True), ("after_send", True)])
def test_send_raises_it_and_sent_nothing_if_it_came_before(shell, broker, queue, step, receipt):
    notes = []
    outer = Notes("outer", notes)
    client = shell.connect(broker.url, middleware=[outer, layer_for(shell, "inner", notes, **{step: refuse})])
    with pytest.raises(Refused):
        client.send(queue, b"body", receipt=receipt)
    assert outer.steps[-1] == "outer!send Refused"
    assert client.ping(patience(10)) > 0  # the connection goes on, behind what was sent
    message = client.receive(queue)
    assert (message is None) is (step == "before_send")


def test_send_many_names_the_message(shell, broker, queue):
    def refuse_third(event):
        if event.body == b"2":
            raise Refused("no")

    client = shell.connect(broker.url, middleware=[layer_for(shell, before_send=refuse_third)])
    with pytest.raises(stomp.SendManyError, match="message 2 cannot be written: no") as info:
        client.send_many([(queue, b"%d" % number) for number in range(5)], receipt_every=1)
    assert isinstance(info.value.reason, Refused)
    assert [info.value.outcome(number) for number in range(5)] == ["accepted"] * 2 + ["unwritable"] + ["unsent"] * 2
    client = shell.connect(broker.url, middleware=[layer_for(shell, before_send_many=refuse)])
    with pytest.raises(Refused):
        client.send_many([(queue, b"1")])


def test_send_sees_the_brokers_error_and_may_replace_it(shell, peer):
    class Translating(stomp.Middleware):
        @contextlib.contextmanager
        def send(self, event):
            try:
                yield
            except stomp.RejectedError as error:
                raise PermissionError("not allowed") from error

    layer = layer_for(shell)
    peer.rules["SEND"] = lambda side, frame: side.error(frame)
    client = shell.connect(peer.url, middleware=[Translating(), layer])
    with pytest.raises(PermissionError, match="not allowed"):
        client.send("/queue/a", b"body", receipt=True)
    assert layer.steps[-1] == "a!send RejectedError"


# ---- receive ----


@pytest.mark.parametrize("step", ["before_receive", "after_receive"])
def test_a_message_that_receive_refuses_is_refused_and_the_next_one_comes(shell, peer, caplog, step):
    peer.server = "stompcodec/1"  # an unknown broker gets no NACK
    layer = layer_for(shell, **{step: refuse_bad})
    client = shell.connect(peer.url, middleware=[layer])
    subscription = client.subscribe("/queue/a", ack="client-individual", id="1")
    for body in (b"bad", b"good"):
        peer.deliver("1", body)
    with caplog.at_level(logging.ERROR, "stompcodec.client"):
        assert subscription.get(patience(10)).body == b"good"
    peer.wait(lambda peer: peer.got("NACK", id="m1"))
    assert "middleware refused a message of /queue/a" in caplog.text
    assert layer.notes.count("a>settle") == 1


def test_get_ends_in_time_while_each_message_is_refused(shell, peer):
    """There is always a next one, as from a broker that delivers what is refused again."""
    late = time.monotonic() + patience(5)

    def refuse_for_long(event):
        if time.monotonic() < late:
            for _ in range(2):
                peer.deliver("1", b"bad")
            raise Refused("no")

    client = shell.connect(peer.url, middleware=[layer_for(shell, after_receive=refuse_for_long)])
    subscription = client.subscribe("/queue/a", ack="client-individual", id="1")
    for _ in range(20):
        peer.deliver("1", b"bad")
    assert subscription.get(0.1) is None
    assert time.monotonic() < late


@pytest.mark.parametrize(("on_error", "command"), [("nack", "NACK"), ("ack", "ACK"), ("stop", None)])
def test_with_a_handler_its_policy_decides(shell, peer, on_error, command):
    peer.server = "stompcodec/1"  # an unknown broker gets no NACK
    client = shell.connect(peer.url, middleware=[layer_for(shell, after_receive=refuse_bad)])
    seen = Seen()
    handler = shell.handler(lambda message: seen.add(message.body))
    subscription = client.subscribe(
        "/queue/a", ack="client-individual", id="1", handler=handler, on_error=on_error, attempts=1
    )
    peer.deliver("1", b"bad")
    if command is None:
        with pytest.raises(Refused):
            subscription.join(patience(10))
        peer.wait(lambda peer: peer.got("UNSUBSCRIBE"))
        return
    peer.deliver("1", b"good")
    assert seen.wait(1) == [b"good"]
    peer.wait(lambda peer: peer.got(command, id="m1"))


def test_request_and_receive_raise_it(shell, broker, queue):
    service = shell.connect(broker.url)
    service.subscribe(queue, handler=shell.handler(lambda message: message.reply(b"bad")))
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


# ---- process ----


def taken(client, peer):
    subscription = client.subscribe("/queue/b", ack="client-individual", id="2")
    peer.deliver("2", b"body")
    return subscription.get(patience(10))


class Calm(stomp.Middleware):
    """Suppresses each error."""

    @contextlib.contextmanager
    def _around(self, event):
        with contextlib.suppress(Exception):
            yield

    send = process = settle = receive = _around


def test_only_process_may_suppress_an_error_and_the_message_is_acknowledged(shell, peer):
    """Else `send` would return as if the message had been sent."""
    client = shell.connect(peer.url, middleware=[Calm(), layer_for(shell, before_send=refuse)])

    def fail(message):
        raise ValueError(message)

    client.subscribe("/queue/a", ack="client-individual", id="1", handler=shell.handler(fail))
    peer.deliver("1", b"body")
    peer.wait(lambda peer: peer.got("ACK", id="m1"))
    with taken(client, peer).processing():
        raise ValueError
    peer.wait(lambda peer: len(peer.got("ACK")) == 2)
    with pytest.raises(Refused):
        client.send("/queue/a", b"body")


# ---- settle ----


@pytest.mark.parametrize("step", ["before_settle", "after_settle"])
def test_ack_raises_it(shell, peer, step):
    client = shell.connect(peer.url, middleware=[layer_for(shell, **{step: refuse})])
    message = taken(client, peer)
    with pytest.raises(Refused):
        message.ack()
    client.ping(patience(10))
    assert len(peer.got("ACK")) == (step == "after_settle")


def test_behind_a_handler_it_is_logged(shell, peer, caplog):
    client = shell.connect(peer.url, middleware=[layer_for(shell, before_settle=refuse)])
    seen = Seen()
    handler = shell.handler(lambda message: seen.add(message.body))
    with caplog.at_level(logging.WARNING, "stompcodec.client"):
        client.subscribe("/queue/a", ack="client-individual", id="1", handler=handler)
        for body in (b"1", b"2"):
            peer.deliver("1", body)
        assert seen.wait(2) == [b"1", b"2"]  # the worker goes on
    assert "not settled: no" in caplog.text
    assert peer.got("ACK") == []


# ---- connect ----


def test_connect_raises_it_with_the_first_attempt(shell, peer):
    """It sees a refused login, too."""
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
    attempts = []

    def refuse_second(event):
        attempts.append(event)
        if len(attempts) == 2:
            raise Refused("no")

    layer = layer_for(shell, before_connect=refuse_second, after_connect=refuse)
    client = shell.connect(peer.url, middleware=[layer], reconnect=QUICK)
    peer.cut()
    peer.wait(lambda peer: len(peer.got("CONNECT")) == 2)
    client.wait_connected(patience(10))
    assert len(attempts) == 3
    client.send("/queue/a", b"body", receipt=True)
    wait_for(lambda: "middleware failed after the attempt to connect" in caplog.text)


# ---- forbidden headers ----


@pytest.mark.parametrize("command", FIXED)
def test_a_forbidden_header_is_refused_with_its_name(command):
    for name in FIXED[command]:
        headers = EditableHeaders(command, [(name, "1")], FIXED[command])
        for change in (
            lambda headers, name: headers.__setitem__(name, "2"),
            lambda headers, name: headers.__delitem__(name),
            lambda headers, name: headers.add(name, "2"),
            lambda headers, name: headers.update({name: "2"}),
            lambda headers, name: headers.pop(name),
        ):
            with pytest.raises(stomp.LocalProtocolError, match=rf"the header {name} of {command}: "):
                change(headers, name)
        assert (headers.pairs(), headers.changed) == ([(name, "1")], False)


def test_a_request_keeps_its_own_headers(shell, broker, queue):
    for name in REQUEST:
        layer = layer_for(shell, before_send=lambda event, name=name: event.headers.__setitem__(name, "1"))
        client = shell.connect(broker.url, middleware=[layer])
        with pytest.raises(stomp.LocalProtocolError, match=name):
            client.request(queue, b"?", 1)
        client.send(queue, b"1")
        assert client.receive(queue, timeout=patience(10)).headers[name] == "1"


def test_headers_and_bodies_of_other_types_are_refused(broker, queue):
    for wrong in (
        lambda event: event.headers.__setitem__("n", 1),
        lambda event: event.headers.add(1, "n"),
        lambda event: setattr(event, "body", "text"),
    ):
        with stomp.connect(broker.url, middleware=[Notes(before_send=wrong)]) as client, pytest.raises(TypeError):
            client.send(queue, b"body")


def test_headers_are_a_mapping():
    headers = EditableHeaders("SEND", [("a", "1"), ("b", "2"), ("a", "3")], {})
    assert (dict(headers), len(headers), "c" in headers, headers.get("c")) == ({"a": "1", "b": "2"}, 2, False, None)
    headers["a"] = "4"
    headers.add("b", "5")
    headers.setdefault("c", "6")
    assert headers.pairs() == [("a", "4"), ("b", "2"), ("b", "5"), ("c", "6")]
    del headers["b"]
    assert headers.pairs() == [("a", "4"), ("c", "6")]
    with pytest.raises(KeyError):
        del headers["b"]
    assert "4" not in repr(headers)


@pytest.mark.skipif(not PAGE.exists(), reason="without the docs")
def test_the_page_has_the_places_and_the_headers():
    text = PAGE.read_text("utf-8")
    assert [place for place in PLACES if f"| `{place}` |" not in text] == []
    rows = dict(re.findall(r"^\| ([A-Z, ]+) \| (`.*`) \|$", text, re.MULTILINE))
    told = {command: set(re.findall(r"`([^`]+)`", names)) for row, names in rows.items() for command in row.split(", ")}
    assert told == {command: set(names) for command, names in FIXED.items()}
