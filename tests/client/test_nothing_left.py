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
        act, *expected = STATES[state]
        act(self)
        assert (self.core.link.state, self.core.link.phase) == tuple(expected or ("connected", "up"))

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


#: How the client gets into a state, and the words for it of the core.
STATES = {
    "up": (lambda driven: None,),
    "connecting": (lambda driven: (driven.lose(), driven.open(), driven.frames()), "reconnecting", "connecting"),
    "restoring": (lambda driven: (driven.lose(), driven.connect(confirm=False)), "reconnecting", "restoring"),
    "full": (Driven.full,),
    "uploading": (Driven.uploading,),
    "reconnecting": (Driven.lose, "reconnecting", "down"),
    "closing": (lambda driven: driven.core.close(driven.now, driven.call("close")), "closing", "up"),
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


def sends(method):
    """The calls of a method that sends."""
    for what, odd, work in (
        ("destination", NAME, lambda send, v: send(v, b"x")),
        ("headers", HEADERS, lambda send, v: send("/queue/a", b"x", headers=v)),
        ("text, headers", HEADERS, lambda send, v: send("/queue/a", "x", headers=v)),
        ("body", [*BODY, None], lambda send, v: send("/queue/a", v)),
        ("timeout", SECONDS, lambda send, v: send("/queue/a", b"x", timeout=v)),
        ("content_encoding", ENCODING, lambda send, v: send("/queue/a", b"x", content_encoding=v)),
    ):
        yield f"{method}({what})", (lambda d, v, work=work: work(getattr(d.client, method), v), odd)


def subscribes(name, odd, **more):
    """A call of `subscribe` with one odd argument."""
    known = {"destination": "/queue/a", "ack": "client-individual", "prefetch": 7, "selector": "a", **more}
    return lambda d, v: d.client.subscribe(**{**known, name: v}), odd


#: What is called with odd arguments, and these.
CALLS = {
    **dict(itertools.chain(*map(sends, ("send", "send_for_receipt", "request")))),
    "send(receipt, timeout)": (lambda d, v: d.client.send("/queue/a", b"x", receipt=True, timeout=v), SECONDS),
    "send(resend)": (lambda d, v: d.client.send("/queue/a", b"x", resend=v), [True]),
    "send(source, headers)": (
        lambda d, v: d.client.send("/queue/a", [b"x"], length=1, headers=v),
        [*HEADERS, {"content-length": "1"}],
    ),
    "send(source, timeout)": (lambda d, v: d.client.send("/queue/a", [b"x"], length=1, timeout=v), SECONDS),
    "send(source, length)": (lambda d, v: d.client.send("/queue/a", [b"x"], length=v), ["x", -1, 1.5, True]),
    "send_many(messages)": (
        lambda d, v: d.client.send_many(v),
        [5, [5], [("a",)], [("a", b"x", {}, 1)], [Frame("ACK", {"id": "x"})], [Frame("SEND", {"x": "y"})]],
    ),
    "send_many(destination)": (lambda d, v: d.client.send_many([(v, b"x")]), NAME),
    "send_many(body)": (lambda d, v: d.client.send_many([("/queue/a", v)]), [*BODY, None]),
    "send_many(headers)": (lambda d, v: d.client.send_many([("/queue/a", b"x", v)]), [v for v in HEADERS if v]),
    "send_many(receipt_every)": (
        lambda d, v: d.client.send_many([("/queue/a", b"x")], receipt_every=v),
        ["a", 1.5, -1, None, []],
    ),
    "send_many(timeout)": (lambda d, v: d.client.send_many([("/queue/a", b"x")], timeout=v), SECONDS),
    "send_many(transaction)": (lambda d, v: d.client.send_many([("/queue/a", b"x")], transaction=v), OBJECT[1:]),
    "transaction(timeout)": (lambda d, v: d.client.transaction(timeout=v), SECONDS),
    "transaction.send(headers)": (lambda d, v: d.transaction.send("/queue/a", b"x", v), HEADERS),
    "transaction.send(timeout)": (lambda d, v: d.transaction.send("/queue/a", b"x", timeout=v), SECONDS),
    "transaction.ack": (lambda d, v: d.transaction.ack(v), OBJECT),
    "transaction.nack": (lambda d, v: d.transaction.nack(v), OBJECT),
    "transaction.commit": (lambda d, v: d.transaction.commit(v), SECONDS),
    "transaction.abort": (lambda d, v: d.transaction.abort(timeout=v), SECONDS),
    "subscribe(destination)": subscribes("destination", NAME),
    "subscribe(id)": subscribes("id", [*TEXT, "kept"]),
    "subscribe(selector)": subscribes("selector", TEXT),
    "subscribe(durable)": subscribes("durable", TEXT),
    "subscribe(headers)": subscribes("headers", SUBSCRIBED),
    "subscribe(headers, unconfirmed)": subscribes("headers", SUBSCRIBED, confirm=False),
    "subscribe(ack)": subscribes("ack", [mode for mode in MODE if mode is not None]),
    "subscribe(prefetch)": subscribes("prefetch", NUMBER),
    "subscribe(timeout)": subscribes("timeout", SECONDS),
    "subscribe(handler)": subscribes("handler", FUNCTION),
    "subscribe(on_error)": subscribes("on_error", POLICY, handler=print),
    "subscribe(concurrency)": subscribes("concurrency", [*NUMBER, 10_001], handler=print),
    "subscribe(key)": subscribes("key", FUNCTION, handler=print, concurrency=2),
    "subscribe(attempts)": subscribes("attempts", [None, *NUMBER, 10_001], handler=print),
    "subscribe(give_up)": subscribes("give_up", ["no", 5, None, [ValueError], (5,)], handler=print),
    "on_message(destination)": (lambda d, v: d.client.on_message(v)(print), NAME),
    "on_message()(handler)": (lambda d, v: d.client.on_message("/queue/a")(v), [None, *FUNCTION]),
    "receive(destination)": (lambda d, v: d.client.receive(v), NAME),
    "receive(headers)": (lambda d, v: d.client.receive("/queue/a", selector="a", headers=v), SUBSCRIBED[:-2]),
    "receive(selector)": (lambda d, v: d.client.receive("/queue/a", selector=v), TEXT),
    "receive(id)": (lambda d, v: d.client.receive("/queue/a", id=v), TEXT),
    "receive(ack)": (lambda d, v: d.client.receive("/queue/a", ack=v), MODE),
    "receive(timeout)": (lambda d, v: d.client.receive("/queue/a", timeout=v), SECONDS),
    "message.ack(headers)": (lambda d, v: d.message.ack(v), [*HEADERS, {"id": "x"}]),
    "message.ack(timeout)": (lambda d, v: d.message.ack(receipt=True, timeout=v), SECONDS),
    "message.nack(timeout)": (lambda d, v: d.message.nack(receipt=True, timeout=v), SECONDS),
    "message.reply(headers)": (lambda d, v: d.message.reply(b"x", v), HEADERS),
    "message.reply(body)": (lambda d, v: d.message.reply(v), [*BODY, None]),
    "subscription.get(timeout)": (lambda d, v: d.kept.get(v), SECONDS),
    "subscription.take(most)": (lambda d, v: d.kept.take(v), ["x", [], None, b"1"]),
    "subscription.take(timeout)": (lambda d, v: d.kept.take(1, v), SECONDS),
    "subscription.unsubscribe(timeout)": (lambda d, v: d.kept.unsubscribe(timeout=v), SECONDS),
    "subscription.join(timeout)": (lambda d, v: d.kept.join(v), SECONDS),
    "wait_connected(timeout)": (lambda d, v: d.client.wait_connected(v), SECONDS),
    "ping(timeout)": (lambda d, v: d.client.ping(v), SECONDS),
    "drain(timeout)": (lambda d, v: d.client.drain(v), SECONDS),
    "close(timeout)": (lambda d, v: d.client.close(v), SECONDS),
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
    for name, (work, odd) in CALLS.items():
        for value in odd:
            before = driven.account()
            with pytest.raises((TypeError, ValueError, stomp.StompError)):
                driven.wait_for(work(driven, value))
            assert driven.account() == before, (name, value)
    driven.survives()
