"""Streamed bodies pass the middleware with both shells, and asyncio's `send` sends at once with it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools

import pytest
from client.broker import BrokerThread
from client.middleware.layers import Notes, layer_for
from client.peer import Peer
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.aio.waiting import Begun, Sent
from stompcodec.errors import LocalProtocolError

NUMBERS = itertools.count()
BODY = bytes(range(256)) * 64


@pytest.fixture(scope="module")
def broker():
    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def queue():
    return f"/queue/streamed-{next(NUMBERS)}"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "body"
    path.write_bytes(BODY)
    return path


def body_of(message):
    with message.open() as reader:
        return reader.read()


def transacted(client, queue, source):
    with client.transaction() as transaction:
        transaction.send(queue, source, {"x": "1"})


SENDS = {
    "send": lambda client, queue, source: client.send(queue, source, {"x": "1"}, receipt=True),
    "without receipt": lambda client, queue, source: client.send(queue, source, {"x": "1"}),
    "for receipt": lambda client, queue, source: client.send_for_receipt(queue, source, {"x": "1"}).wait(),
    "transaction": transacted,
}


@pytest.mark.parametrize("way", SENDS)
def test_a_sent_body_can_be_measured_and_left(shell, broker, queue, path, way):
    def change(event):
        assert (event.is_streamed, event.size, event.by) == (True, len(BODY), "send")
        assert (event.receipt, event.transaction is None) == (way in ("send", "for receipt"), way != "transaction")
        with pytest.raises(LocalProtocolError, match="streamed"):
            event.body  # noqa: B018
        event.headers["x"] = "2"

    notes = layer_for(shell, before_send=change)
    client = shell.connect(broker.url, middleware=[notes])
    SENDS[way](client, queue, path)
    SENDS[way](client, queue, iter([BODY[:5], BODY[5:]]))
    subscription = client.subscribe(queue)
    for _ in range(2):
        message = subscription.get(patience(10))
        assert (message.body, message.headers["x"]) == (BODY, "2")
    assert notes.steps.count("a<send") == 2


def test_a_sent_body_can_be_replaced_or_refused(shell, broker, queue, path):
    def replace(event):
        event.body = b"short"
        assert (event.is_streamed, event.size, event.body) == (False, 5, b"short")
        if "bad" in event.headers:
            raise PermissionError("no")

    client = shell.connect(broker.url, middleware=[layer_for(shell, before_send=replace)])
    client.send(queue, path)
    message = client.receive(queue, timeout=patience(10))
    assert (message.body, message.headers["content-length"]) == (b"short", "5")
    with path.open("rb") as file, pytest.raises(PermissionError):
        client.send(queue, file, {"bad": "1"})
    assert client.epoch == 1
    assert client.receive(queue) is None


@pytest.mark.parametrize("headers", [{}, {"odd:\n": "a\\b\r"}])
def test_headers_of_a_received_body_can_be_changed(shell, broker, queue, headers):
    def change(event):
        assert (event.is_streamed, event.size) == (True, len(BODY))
        with pytest.raises(LocalProtocolError, match="in a file"):
            event.body  # noqa: B018
        event.headers["seen"] = "yes"
        assert event.message.reader().read() == BODY

    notes = layer_for(shell, after_receive=change)
    client = shell.connect(broker.url, middleware=[notes], stream_over=4096)
    client.send(queue, BODY, headers, receipt=True)
    client.send(queue, BODY, headers, receipt=True)
    with client.subscribe(queue, ack="client-individual") as subscription:
        for _ in range(2):
            message = subscription.get(patience(10))
            expected = {**headers, "seen": "yes", "content-length": str(len(BODY))}
            assert {name: message.headers[name] for name in expected} == expected
            assert (message.is_streamed, message.size, body_of(message)) == (True, len(BODY), BODY)
            message.ack(receipt=True)
        inner = subscription if shell.name == "sync" else subscription.target
        inbound = inner.link.core.inbound
        assert (inner.streamed, inner.inbox_octets, inbound.backlog, inbound.backlog_octets) == (0, 0, 0, 0)
    assert notes.steps.count("a<receive") == 2


def test_a_received_body_can_be_replaced(shell, broker, queue):
    def replace(event):
        event.body = b"short"
        assert (event.is_streamed, event.size) == (False, 5)

    client = shell.connect(broker.url, middleware=[layer_for(shell, after_receive=replace)], stream_over=4096)
    client.send(queue, BODY, receipt=True)
    message = client.subscribe(queue).get(patience(10))
    assert (message.is_streamed, message.body, message.size, body_of(message)) == (False, b"short", 5, b"short")


def test_spans_and_counters_have_the_size(shell, broker, queue, path):
    pytest.importorskip("opentelemetry.sdk")
    pytest.importorskip("prometheus_client")
    from client.middleware.test_otel import Telemetry
    from prometheus_client import CollectorRegistry

    from stompcodec.client.middleware.prometheus import Prometheus

    telemetry, registry = Telemetry(), CollectorRegistry()
    client = shell.connect(broker.url, middleware=[telemetry.layer, Prometheus(registry)], stream_over=4096)
    client.send(queue, path, receipt=True)
    message = client.subscribe(queue, ack="client-individual").get(patience(10))
    with message.processing():
        assert "traceparent" in message.headers
        assert body_of(message) == BODY
    sizes = {
        span.attributes["messaging.operation.type"]: span.attributes.get("messaging.message.body.size")
        for span in telemetry.spans()
    }
    assert sizes == {"send": len(BODY), "receive": len(BODY), "process": len(BODY), "settle": None}
    for name in ("sent", "received"):
        value = registry.get_sample_value(f"stompcodec_client_{name}_bytes_total", {"destination": queue})
        assert value == len(BODY)


# ---- asyncio: at once ----


def run(work, *middleware, **options):
    async def main(peer) -> None:
        more = {"heart_beat": (0, 0), "receipt_timeout": 60.0, **options}
        async with stomp.connect_async(peer.url, middleware=middleware, **more) as client:
            await work(client, peer)

    with Peer() as peer:
        asyncio.run(main(peer))
        return [frame.body for frame in peer.got("SEND")]


@pytest.mark.parametrize("middleware", [[], [Notes()]], ids=["without", "with"])
def test_the_order_of_all_kinds_is_that_of_the_calls(path, middleware) -> None:
    async def work(client, peer) -> None:
        sends = [
            client.send("/queue/a", b"1", {"a": "b"}),
            client.send("/queue/a", path),
            client.send("/queue/a", b"2"),
            client.send("/queue/a", [b"3", b""], receipt=True, length=1),
            client.send("/queue/a", b"4", receipt=True),
            client.send("/queue/a", "5"),
        ]
        await asyncio.gather(*reversed(sends))
        await client.send("/queue/a", b"6", receipt=True)

    assert run(work, *middleware) == [b"1", BODY, b"2", b"3", b"4", b"5", b"6"]


def test_it_is_sent_before_it_is_awaited() -> None:
    notes = Notes()

    async def work(client, peer) -> None:
        held = []
        peer.rules["SEND"] = lambda side, frame: held.append((side, frame))
        assert type(client.send("/queue/a", b"1")) is Sent
        begun = client.send("/queue/a", b"2", receipt=True)
        assert type(begun) is Begun
        assert asyncio.iscoroutine(begun)
        assert notes.steps == ["a>send", "a<send", "a>send"]
        await asyncio.to_thread(peer.wait, lambda _: len(peer.got("SEND")) == 2)
        peer.do(lambda: held[1][0].receipt(held[1][1]))
        assert await asyncio.create_task(begun) is None
        assert notes.steps[-1] == "a<send"

    assert run(work, notes) == [b"1", b"2"]


def test_errors_come_when_it_is_awaited() -> None:
    def refuse(event) -> None:
        if event.body == b"bad":
            raise PermissionError("no")

    async def work(client, peer) -> None:
        sends = [client.send("/queue/a", body) for body in (b"bad", b"good", 5)]
        found = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(each) for each in found] == [PermissionError, type(None), TypeError]

    assert run(work, Notes(before_send=refuse)) == [b"good"]


def test_a_cancelled_send_leaves_the_middleware() -> None:
    notes = Notes()

    async def work(client, peer) -> None:
        peer.rules["SEND"] = lambda side, frame: None
        task = asyncio.create_task(client.send("/queue/a", b"1", receipt=True))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert notes.steps[-1] == "a!send CancelledError"
        client.send("/queue/a", b"2", receipt=True).close()
        assert notes.steps[-1] == "a!send GeneratorExit"

    run(work, notes)


def test_each_send_has_a_context_of_its_own() -> None:
    depth = contextvars.ContextVar("depth", default=0)
    seen = []

    class Deeper(stomp.Middleware):
        @contextlib.contextmanager
        def send(self, event):
            seen.append(depth.get())
            token = depth.set(depth.get() + 1)
            yield
            depth.reset(token)

    async def work(client, peer) -> None:
        await asyncio.gather(*[client.send("/queue/a", b"%d" % number, receipt=True) for number in range(3)])
        assert depth.get() == 0

    assert run(work, Deeper()) == [b"0", b"1", b"2"]
    assert seen == [0, 0, 0]


def test_middleware_that_awaits_begins_in_the_task_that_awaits_it() -> None:
    tasks = []

    class Entered(stomp.AsyncMiddleware):
        @contextlib.asynccontextmanager
        async def send(self, event):
            tasks.append(asyncio.current_task())
            yield

    async def work(client, peer) -> None:
        send = client.send("/queue/a", b"1")
        assert not tasks
        task = asyncio.create_task(send)
        await task
        assert tasks == [task]

    assert run(work, Entered()) == [b"1"]
