"""A call that raised leaves nothing behind: all calls, odd arguments, and the states in which a client can be.

The property drives the clients themselves, with their core on a fake clock: no I/O thread runs, so that what the core
keeps account of can be compared before and after.
"""

import asyncio
import inspect
import itertools
import time

import pytest
from client.scripted import Scripted, outcome

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.client.engine import News
from stompcodec.client.outbox import Upload

# ---- the states ----


class Driven(Scripted):
    """A client of one of the shells, whose I/O a test does itself. It has something of everything to lose."""

    def __init__(self, kind):
        super().__init__()
        self.now = time.monotonic()
        options = stomp.Options(heart_beat=(0, 0), outbox_frames=8, outbox_full="raise", receipt_timeout=60.0)
        self.client = kind("stomp://127.0.0.1:1", options)
        self.link = self.client._link
        self.core = self.link.core

    def wait_for(self, value):
        async def result():
            return await value

        return asyncio.run(result()) if inspect.isawaitable(value) else value

    def prepare(self):
        self.connect()
        self.core.link.server = Frame("CONNECTED", {"version": "1.2", "commands": "PING,RECEIVE"})
        self.kept = self.link.subscription("/queue/kept", "client", 5, id="kept")
        self.core.inbound.subscribe(self.kept, self.now, self.call("SUBSCRIBE", 60.0, "SUBSCRIBE"))
        self.confirm_all()
        self.settled, self.message = self.deliver(self.kept, "m1"), self.deliver(self.kept, "m2", **{"reply-to": "/q"})
        self.transaction = self.client.transaction()
        self.core.begin(self.transaction, self.now)
        self.core.settle(self.settled, "ACK", self.now, transaction=self.transaction)
        self.unanswered = self.send(receipt=True)
        self.frames()
        return self

    def enter(self, state):
        link = self.core.link
        STATES[state](self)
        assert (link.state, link.phase) == _STATES.get(state, ("connected", "up"))

    def full(self):
        self.core.link.writable(False)
        while self.core.link.outbox.has_room(1):
            self.send()

    def uploading(self):
        upload = Upload("SEND", [("destination", "/queue/a")], 9, 60.0)
        self.core.upload(upload, self.now)
        self.core.link.take_output(self.now)
        assert self.core.link.upload is upload

    def account(self):
        """All that the core keeps account of."""
        News(self.core)  # what the I/O thread would tell those who wait
        link, inbound = self.core.link, self.core.inbound
        waiting = [call for queue in link.calls.deadlines._queues.values() for call in queue if not call.done]
        every = {*inbound.subscriptions.values(), *inbound._to_restore, *inbound.late, self.kept}
        return {
            "state": (link.state, link.phase, link.epoch, link.is_writable, link.broken, link.upload),
            "subscriptions": list(inbound.subscriptions),
            "each": {each.id: {k: v for k, v in vars(each).items() if isinstance(v, int | str)} for each in every},
            "inboxes": {each.id: (list(each.inbox), list(each.batch)) for each in every},
            "restoring": (list(inbound._to_restore), dict(inbound._restoring), list(inbound.late)),
            "outbox": (list(link.outbox), link.outbox.frames, link.outbox.octets),
            "output": None if link.connection is None else list(link.connection.output),
            "calls": (list(link.calls.sent), sorted(call.id for call in waiting), link.calls.deadlines.next()),
            "waiters": [call for call in (*link.waiters, *(call for call, *_ in link.room)) if not call.done],
            "closers": list(link.closers),
            "transactions": {k: (each.state, list(each.settled)) for k, each in link.transactions.items()},
            "replies": (inbound.reply_subscription, dict(inbound.replies)),
            "fetches": (dict(inbound.fetches), list(inbound.fetched)),
            "messages": [(each.settled, each.epoch) for each in (self.settled, self.message)],
            "handled": list(self.client._subscriptions),
        }

    def survives(self):
        """The next connection restores the other subscription."""
        link = self.core.link
        if link.state == "closing":
            return
        self.lose()
        self.connect()
        self.frames()  # the outbox flows
        assert (link.state, link.phase) == ("connected", "up")
        (asked,) = [frame for at, frame in self.seen if at == self.connections and frame.get("id")]
        assert asked.headers["id"] == "kept"
        assert self.deliver(self.kept, "again").body == b"x"
        assert outcome(self.unanswered) == "ConnectionLostError"


_STATES = {
    "connecting": ("reconnecting", "connecting"),
    "restoring": ("reconnecting", "restoring"),
    "reconnecting": ("reconnecting", "down"),
    "closing": ("closing", "up"),
}
STATES = {
    "up": lambda driven: None,
    "connecting": lambda driven: (driven.lose(), driven.open(), driven.frames()),
    "restoring": lambda driven: (driven.lose(), driven.connect(confirm=False)),
    "full": Driven.full,
    "uploading": Driven.uploading,
    "reconnecting": Driven.lose,
    "closing": lambda driven: driven.core.close(driven.now, driven.call("close")),
}

# ---- the calls ----

TEXT = [1, b"x", [], 3.5, True, {}]
NAME = [None, *TEXT]
MODE = ["no", 5, None, [], b"auto"]
HEADERS = [5, "ab", ["a b"], {"x": 5}, {5: "x"}, [("a",)], [("a", "b", "c")], [([], "x")], {"x": None}, {"x": "\ud800"}]
HEADERS += [{"receipt": "r"}, [("transaction", "t")], {"message-id": "m"}]
SUBSCRIBED = [*HEADERS, {"id": "x"}, {"ack": "client"}, {"destination": "d"}]
SUBSCRIBED += [{"prefetch-count": "9"}, {"selector": "b"}]
NUMBER = ["a", True, 10**30, 0, -1, 1.5, [], b"1"]
SECONDS = ["a", "5", float("nan"), 10**400, [], b"1", 1j, {}]
FUNCTION = [5, "x", []]
POLICY = ["no", 5, [], {}, b"nack"]
BODY = [5, 1.5, True]
ENCODING = [5, "zip", b"gzip", ["gzip"]]
OBJECT = [None, 5, "m", []]


def subscribe(name, odd, **more):
    known = {"ack": "client-individual", "prefetch": 7, "selector": "a", **more}
    return [(lambda d, v=v: d.client.subscribe(**{"destination": "/queue/a", **known, name: v})) for v in odd]


def call(work, odd):
    return [(lambda d, v=v: work(d, v)) for v in odd]


def sends(method, *, with_timeout=True):
    """The calls of a method that sends."""
    yield f"{method}(destination)", call(lambda d, v: getattr(d.client, method)(v, b"x"), NAME)
    yield f"{method}(headers)", call(lambda d, v: getattr(d.client, method)("/queue/a", b"x", headers=v), HEADERS)
    yield f"{method}(text, headers)", call(lambda d, v: getattr(d.client, method)("/queue/a", "x", headers=v), HEADERS)
    yield f"{method}(body)", call(lambda d, v: getattr(d.client, method)("/queue/a", v), [*BODY, None])
    yield f"{method}(timeout)", call(lambda d, v: getattr(d.client, method)("/queue/a", b"x", timeout=v), SECONDS)
    encoded = call(lambda d, v: getattr(d.client, method)("/queue/a", b"x", content_encoding=v), ENCODING)
    yield f"{method}(content_encoding)", encoded


def streamed(d, value, **more):
    return d.client.send("/queue/a", [b"x"], **{"length": 1, **more}, **value)


CALLS = {
    **dict(itertools.chain(*map(sends, ("send", "send_for_receipt", "request")))),
    "send(receipt, timeout)": call(lambda d, v: d.client.send("/queue/a", b"x", receipt=True, timeout=v), SECONDS),
    "send(resend)": call(lambda d, v: d.client.send("/queue/a", b"x", resend=v), [True]),
    "send(source, headers)": call(lambda d, v: streamed(d, {"headers": v}), [*HEADERS, {"content-length": "1"}]),
    "send(source, timeout)": call(lambda d, v: streamed(d, {"timeout": v}), SECONDS),
    "send(source, length)": call(lambda d, v: d.client.send("/queue/a", [b"x"], length=v), ["x", -1, 1.5, True]),
    "send_many(messages)": call(
        lambda d, v: d.client.send_many(v),
        [5, [5], [("a",)], [("a", b"x", {}, 1)], [Frame("ACK", {"id": "x"})], [Frame("SEND", {"x": "y"})]],
    ),
    "send_many(destination)": call(lambda d, v: d.client.send_many([(v, b"x")]), NAME),
    "send_many(body)": call(lambda d, v: d.client.send_many([("/queue/a", v)]), [*BODY, None]),
    "send_many(headers)": call(lambda d, v: d.client.send_many([("/queue/a", b"x", v)]), [v for v in HEADERS if v]),
    "send_many(receipt_every)": call(
        lambda d, v: d.client.send_many([("/queue/a", b"x")], receipt_every=v), ["a", 1.5, -1, None, []]
    ),
    "send_many(timeout)": call(lambda d, v: d.client.send_many([("/queue/a", b"x")], timeout=v), SECONDS),
    "send_many(transaction)": call(lambda d, v: d.client.send_many([("/queue/a", b"x")], transaction=v), OBJECT[1:]),
    "transaction(timeout)": call(lambda d, v: d.client.transaction(timeout=v), SECONDS),
    "transaction.send(headers)": call(lambda d, v: d.transaction.send("/queue/a", b"x", v), HEADERS),
    "transaction.send(timeout)": call(lambda d, v: d.transaction.send("/queue/a", b"x", timeout=v), SECONDS),
    "transaction.ack": call(lambda d, v: d.transaction.ack(v), OBJECT),
    "transaction.nack": call(lambda d, v: d.transaction.nack(v), OBJECT),
    "transaction.commit": call(lambda d, v: d.transaction.commit(v), SECONDS),
    "transaction.abort": call(lambda d, v: d.transaction.abort(timeout=v), SECONDS),
    "subscribe(destination)": subscribe("destination", NAME),
    "subscribe(id)": subscribe("id", [*TEXT, "kept"]),
    "subscribe(selector)": subscribe("selector", TEXT),
    "subscribe(durable)": subscribe("durable", TEXT),
    "subscribe(headers)": subscribe("headers", SUBSCRIBED),
    "subscribe(headers, unconfirmed)": subscribe("headers", SUBSCRIBED, confirm=False),
    "subscribe(ack)": subscribe("ack", [mode for mode in MODE if mode is not None]),
    "subscribe(prefetch)": subscribe("prefetch", NUMBER),
    "subscribe(timeout)": subscribe("timeout", SECONDS),
    "subscribe(handler)": subscribe("handler", FUNCTION),
    "subscribe(on_error)": subscribe("on_error", POLICY, handler=print),
    "subscribe(concurrency)": subscribe("concurrency", [*NUMBER, 10_001], handler=print),
    "subscribe(key)": subscribe("key", FUNCTION, handler=print, concurrency=2),
    "subscribe(attempts)": subscribe("attempts", [None, *NUMBER, 10_001], handler=print),
    "subscribe(give_up)": subscribe("give_up", ["no", 5, None, [ValueError], (5,)], handler=print),
    "on_message(destination)": call(lambda d, v: d.client.on_message(v)(print), NAME),
    "on_message()(handler)": call(lambda d, v: d.client.on_message("/queue/a")(v), [None, *FUNCTION]),
    "receive(destination)": call(lambda d, v: d.client.receive(v), NAME),
    "receive(headers)": call(lambda d, v: d.client.receive("/queue/a", selector="a", headers=v), SUBSCRIBED[:-2]),
    "receive(selector)": call(lambda d, v: d.client.receive("/queue/a", selector=v), TEXT),
    "receive(id)": call(lambda d, v: d.client.receive("/queue/a", id=v), TEXT),
    "receive(ack)": call(lambda d, v: d.client.receive("/queue/a", ack=v), MODE),
    "receive(timeout)": call(lambda d, v: d.client.receive("/queue/a", timeout=v), SECONDS),
    "message.ack(headers)": call(lambda d, v: d.message.ack(v), [*HEADERS, {"id": "x"}]),
    "message.ack(timeout)": call(lambda d, v: d.message.ack(receipt=True, timeout=v), SECONDS),
    "message.nack(timeout)": call(lambda d, v: d.message.nack(receipt=True, timeout=v), SECONDS),
    "message.reply(headers)": call(lambda d, v: d.message.reply(b"x", v), HEADERS),
    "message.reply(body)": call(lambda d, v: d.message.reply(v), [*BODY, None]),
    "subscription.get(timeout)": call(lambda d, v: d.kept.get(v), SECONDS),
    "subscription.take(most)": call(lambda d, v: d.kept.take(v), ["x", [], None, b"1"]),
    "subscription.take(timeout)": call(lambda d, v: d.kept.take(1, v), SECONDS),
    "subscription.unsubscribe(timeout)": call(lambda d, v: d.kept.unsubscribe(timeout=v), SECONDS),
    "subscription.join(timeout)": call(lambda d, v: d.kept.join(v), SECONDS),
    "wait_connected(timeout)": call(lambda d, v: d.client.wait_connected(v), SECONDS),
    "ping(timeout)": call(lambda d, v: d.client.ping(v), SECONDS),
    "drain(timeout)": call(lambda d, v: d.client.drain(v), SECONDS),
    "close(timeout)": call(lambda d, v: d.client.close(v), SECONDS),
}
KINDS = {"sync": stomp.Client, "async": stomp.AsyncClient}


class Accepted(Exception):
    """A call waits for its outcome, so it was accepted."""


@pytest.fixture
def impatient(monkeypatch):
    """No call waits: there is no I/O thread."""

    def wait(self):
        raise Accepted(repr(self))

    monkeypatch.setattr(stomp.Receipt, "wait", wait)
    monkeypatch.setattr(stomp.AsyncReceipt, "wait", wait)


@pytest.mark.parametrize(
    ("kind", "state"),
    [*(("async", state) for state in STATES), *(("sync", state) for state in ("up", "reconnecting", "uploading"))],
)
def test_each_odd_argument(kind, state, impatient):
    """In each state; the thread has the code of the event loop."""
    driven = Driven(KINDS[kind]).prepare()
    driven.enter(state)
    for name, works in CALLS.items():
        for work in works:
            before = driven.account()
            with pytest.raises((TypeError, ValueError, stomp.StompError)):
                driven.wait_for(work(driven))
            assert driven.account() == before, (name, works.index(work))
    driven.survives()
