"""A call that raised leaves nothing behind: all calls, odd arguments, and the states in which a client can be."""

import asyncio
import inspect
import itertools
import time
from operator import attrgetter

import pytest
from client.scripted import Scripted, outcome

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.client.engine import News
from stompcodec.client.outbox import Upload


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
        link = self.core.link
        if link.state == "closing":
            return
        self.again()
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
    **{"full": (Driven.full,), "uploading": (Driven.uploading,)},
    "reconnecting": (Driven.lose, "reconnecting", "down"),
    "closing": (lambda driven: driven.core.close(driven.now, driven.call("close")), "closing", "up"),
}
NAME = [None, "", 1]
HEADERS = [5, "ab", ["a b"], {"x": 5}, {5: "x"}, [("a",)], [("a", "b", "c")], [([], "x")], {"x": None}, {"x": "\ud800"}]
HEADERS += [{"receipt": "r"}, [("transaction", "t")], {"message-id": "m"}]
SUBSCRIBED = [*HEADERS, {"id": "x"}, {"ack": "client"}, {"destination": "d"}]
SUBSCRIBED += [{"prefetch-count": "9"}, {"selector": "b"}]
NUMBER = [10**30, 0, -1]
SECONDS = ["a", "5", float("nan"), 10**400, [], b"1", 1j, {}]
BODY = [5, None]
SENDS = ("send", "send_for_receipt", "request")


def call(path, *args, odd="timeout", **options):
    def work(driven, value):
        method = attrgetter(path)(driven)
        assert odd in inspect.signature(method).parameters, path  # else each value would be a TypeError
        return method(*args, **options, **{odd: value})

    return work


KNOWN = {"destination": "/queue/a", "ack": "client-individual", "prefetch": 7, "selector": "a"}


def subscribes(odd, **more):
    return lambda d, v: d.client.subscribe(**{**KNOWN, **more, odd: v})


#: Odd values, and the calls that get them.
CALLS = [
    (SECONDS, [call(f"client.{name}") for name in ("wait_connected", "ping", "drain", "close", "transaction")]),
    (SECONDS, [call(f"kept.{name}") for name in ("get", "unsubscribe", "join")] + [call("kept.take", 1)]),
    (SECONDS, [call("transaction.commit"), call("transaction.abort"), call("transaction.send", "/queue/a", b"x")]),
    (SECONDS, [call("message.ack", receipt=True), call("message.nack", receipt=True), subscribes("timeout")]),
    (SECONDS, [call(f"client.{name}", "/queue/a", b"x") for name in SENDS]),
    (SECONDS, [call("client.send", "/queue/a", b"x", receipt=True), call("client.send", "/queue/a", [b"x"], length=1)]),
    (SECONDS, [call("client.send_many", [("/queue/a", b"x")]), call("client.receive", "/queue/a")]),
    (HEADERS, [call(f"client.{name}", "/queue/a", body, odd="headers") for name in SENDS for body in (b"x", "x")]),
    (HEADERS, [call("transaction.send", "/queue/a", b"x", odd="headers"), call("message.reply", b"x", odd="headers")]),
    (HEADERS, [call("client.send", "/queue/a", [b"x"], length=1, odd="headers")]),
    ([{"correlation-id": "c"}, {"reply-to": "/queue/a"}], [call("client.request", "/queue/a", odd="headers")]),
    ([{"content-length": "1"}], [call("client.send", "/queue/a", [b"x"], length=1, odd="headers")]),
    ([v for v in HEADERS if v], [lambda d, v: d.client.send_many([("/queue/a", b"x", v)])]),
    ([*HEADERS, {"id": "x"}], [call("message.ack", odd="headers")]),
    (SUBSCRIBED, [subscribes("headers"), subscribes("headers", confirm=False)]),
    (SUBSCRIBED[:-2], [call("client.receive", "/queue/a", selector="a", odd="headers")]),
    (NAME, [call(f"client.{name}", odd="destination") for name in (*SENDS, "receive")] + [subscribes("destination")]),
    (NAME, [lambda d, v: d.client.send_many([(v, b"x")]), lambda d, v: d.client.on_message(v)(print)]),
    (BODY, [call(f"client.{name}", "/queue/a", odd="body") for name in SENDS] + [call("message.reply", odd="body")]),
    (BODY, [lambda d, v: d.client.send_many([("/queue/a", v)])]),
    (["zip"], [call(f"client.{name}", "/queue/a", b"x", odd="content_encoding") for name in SENDS]),
    (["gzip"], [call("client.send", "/queue/a", [b"x"], odd="content_encoding")]),
    ([True], [call("client.send", "/queue/a", b"x", odd="resend")]),
    (["x", -1, 1.5, True], [call("client.send", "/queue/a", [b"x"], odd="length")]),
    ([5, [5], [("a",)], [("a", b"x", {}, 1)]], [call("client.send_many", odd="messages")]),
    ([[Frame("ACK", {"id": "x"})], [Frame("SEND", {"x": "y"})]], [call("client.send_many", odd="messages")]),
    ([-1], [call("client.send_many", [("/queue/a", b"x")], odd="receipt_every")]),
    (["kept"], [subscribes("id")]),
    (["no"], [call("client.receive", "/queue/a", odd="ack"), subscribes("ack"), subscribes("on_error", handler=print)]),
    (NUMBER, [subscribes("prefetch")]),
    ([*NUMBER, 10_001], [subscribes("concurrency", handler=print), subscribes("attempts", handler=print)]),
    ([5, None], [lambda d, v: d.client.on_message("/queue/a")(v)]),
    ([KeyboardInterrupt, (5,)], [subscribes("give_up", handler=print)]),
]
KINDS = {"sync": stomp.Client, "async": stomp.AsyncClient}


class Accepted(Exception):
    """A call waits for its outcome, so it was accepted."""


@pytest.fixture
def impatient(monkeypatch):
    def wait(self):
        raise Accepted(repr(self))

    monkeypatch.setattr(stomp.Receipt, "wait", wait)
    monkeypatch.setattr(stomp.AsyncReceipt, "wait", wait)


@pytest.mark.parametrize(
    ("kind", "state"),
    [*(("async", state) for state in STATES), *(("sync", state) for state in ("up", "reconnecting", "uploading"))],
)
def test_each_odd_argument(kind, state, impatient):
    driven = Driven(KINDS[kind]).prepare()
    driven.enter(state)
    for row, (values, works) in enumerate(CALLS):
        for work, value in itertools.product(works, values):
            before = driven.account()
            with pytest.raises((TypeError, ValueError, stomp.StompError)):
                driven.wait_for(work(driven, value))
            assert driven.account() == before, (row, works.index(work), value)
    driven.survives()
