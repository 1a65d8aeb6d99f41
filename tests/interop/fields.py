"""One check for each field of the client's table of brokers.

Each runs against the broker that the row describes.
"""

import contextlib
import logging.handlers
import threading
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from interop.brokers import UNKNOWN, server_of
from interop.checks import same
from interop.driver import Failed, Target
from patience import patience

import stompcodec.client as stomp
from stompcodec.client import dialects
from stompcodec.client.dialects import BROKERS, BrokerDialect

_SECONDS = 20  # Seconds in which everything comes that is on its way, on a quiet machine.


class Place(NamedTuple):
    """A broker, and how clients connect to it."""

    name: str  # The row that the client has to choose.
    connect: Callable[..., Any]  # Takes options of `stompcodec.client.connect`; the client.
    own: bool = False  # It is our own broker, in the dialect of that name.
    version: str = "1.2"  # The version that the connections speak.

    # What is known of the broker, not read off the row that is to be tested.

    @property
    def jms(self) -> bool:
        return self.name in ("activemq", "artemis")

    @property
    def counts(self) -> bool:
        return self.requeues and (self.own or self.name == "rabbitmq")

    @property
    def takes_nack_in_transactions(self) -> bool:
        return self.nacks and self.name != "activemq"

    @property
    def nacks(self) -> bool:
        return self.version not in ("1.0", "legacy")

    @property
    def tells_text(self) -> bool:
        """Whether a message can be a text message: in the legacy dialect every SEND has a content-length."""
        return self.jms and self.version != "legacy"

    @property
    def always_counts(self) -> bool:
        """Whether every MESSAGE with a body has a content-length, those of text too, as Artemis does from 1.1 on."""
        return self.name == "artemis" and not self.own

    @property
    def requeues(self) -> bool:
        return self.nacks and self.name not in ("activemq", "artemis")

    def row(self, client: Any) -> BrokerDialect:
        row: BrokerDialect = client._link.core.link.dialect
        return row


FIELDS: dict[str, Callable[[Place], None]] = {}


def field(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Enter a function as the check of fields: it gets a client and a name. Connections are closed behind it."""

    def enter(function: Callable[..., None]) -> Callable[..., None]:
        def check(place: Place) -> None:
            with contextlib.ExitStack() as stack:

                def connect(**options: Any) -> Any:
                    client = place.connect(**options)
                    stack.callback(client.close)
                    return client

                function(place._replace(connect=connect), connect(), fresh())

        FIELDS.update(dict.fromkeys(names, check))
        return function

    return enter


KEPT = {"persistent": "true"}


def put(client: Any, name: str, *bodies: bytes, **headers: str) -> None:
    for body in bodies:
        client.send(name, body, headers, receipt=True)


def got(subscription: Any) -> Any:
    return subscription.get(patience(_SECONDS))


def fresh(kind: str = "queue") -> str:
    return f"/{kind}/field-{uuid.uuid4().hex[:12]}"


def bodies(subscription: Any, count: int) -> list[bytes]:
    """Return the bodies of so many messages, which stay unacknowledged."""
    found = [got(subscription) for _ in range(count)]
    return [message.body if message is not None else b"nothing" for message in found]


def refused(call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Fail unless the client itself says that this broker cannot do it."""
    try:
        call(*arguments, **options)
    except stomp.LocalProtocolError:
        return
    raise Failed("the client asked for what the row says this broker cannot do")


@field("name", "server", "pieces")
def recognised(place: Place, client: Any, name: str) -> None:
    """The `server` header of CONNECTED chooses the row, and how large frames go over WebSocket."""
    same(client.dialect, place.name, "dialect")
    takes = "fragments" if place.own or place.name in ("rabbitmq", "artemis") else "messages"
    same(client._link.core.link.pieces, "whole" if place.name == "activemq" and not place.own else takes, "pieces")


@field("prefetch", "window")
def prefetch(place: Place, client: Any, name: str) -> None:
    """No more messages come unacknowledged than `prefetch` allows, and the next one once they are settled."""
    for most in (1, 2):
        name = fresh()
        put(client, name, *(b"%d" % number + bytes(1100) for number in range(4)))
        subscription = client.subscribe(name, ack="client-individual", prefetch=most)
        first = [got(subscription) for _ in range(most)]
        client.ping()  # what the broker had to send was sent before the answer
        if most == 1 or not place.row(client).window:  # bytes, and messages of fewer are more messages
            same(subscription.get(0.01), None, f"a message beyond prefetch={most}")
        for message in first:
            message.ack()
        same(got(subscription).body[:1], b"%d" % most, "the next message")
        subscription.unsubscribe()


def _identity(place: Place, client: Any) -> dict[str, str]:
    """Return the options without which this broker has no durable subscriptions."""
    return {"client_id": f"field-{uuid.uuid4().hex[:8]}"} if place.row(client).client_id else {}


@field("durable", "delete_apart")
def durable(place: Place, client: Any, name: str) -> None:
    """A durable subscription gets what was sent meanwhile, across connections, until it is deleted."""
    options, name = _identity(place, client), fresh("topic")
    client = place.connect(**options)
    client.subscribe(name, durable="daily").unsubscribe()
    put(client, name, b"meanwhile", **KEPT)
    client.close()
    client = place.connect(**options)
    subscription = client.subscribe(name, durable="daily", ack="client-individual")
    message = got(subscription)
    same(None if message is None else message.body, b"meanwhile", "what was sent meanwhile")
    message.ack(receipt=True)
    subscription.unsubscribe(delete=True)
    put(client, name, b"lost", **KEPT)
    subscription = client.subscribe(name, durable="daily")
    put(client, name, b"after")
    same(bodies(subscription, 1), [b"after"], "what comes after the deletion")
    subscription.unsubscribe(delete=True)


@field("client_id")
def client_id(place: Place, client: Any, name: str) -> None:
    """A durable subscription needs a client-id where the row says so, and nowhere else."""
    client, name = place.connect(reconnect=None), fresh("topic")
    row = place.row(client)
    if not row.client_id:
        client.subscribe(name, durable="daily").unsubscribe(delete=True)
    else:
        refused(client.subscribe, name, durable="daily")
    if row.client_id and place.own:  # ActiveMQ makes up a client-id, by which nobody finds the subscription again
        headers = dict(row.durable_headers("daily", "any"))
        try:
            client.subscribe(name, id="daily", headers=headers)
        except (stomp.RejectedError, stomp.ConnectionLostError):
            pass
        else:
            raise Failed("the broker needs no client-id, though the row says so")


@field("names_causes")
def names_causes(place: Place, client: Any, name: str) -> None:
    """What a handler sends says which message it works on, where the broker reads that; consumers never see it."""
    answers = fresh()
    headers = {"reply-to": answers, "persistent": "true"}
    client.send(name, b"question", headers, receipt=True)
    message = got(client.subscribe(name, ack="client-individual"))
    message.reply(b"answer", receipt=True)
    message.ack(receipt=True)
    same(place.row(client).names_causes, place.own, "whether it names causes")
    answer = got(client.subscribe(answers, id="other"))
    same((answer.body, answer.get("ack")), (b"answer", None), "the answer")


@field("aliases")
def aliases(place: Place, client: Any, name: str) -> None:
    """A name with the prefix of queues and one without mean the same queue of our broker where the row says so."""
    bare = name.removeprefix("/queue/")
    if place.own:
        put(client, name, b"x")
        subscription = client.subscribe(bare)
        client.ping()
        same(subscription.get(0.01) is not None, place.row(client).is_same(name, bare), "whether both are one queue")


@field("requeue")
def requeue(place: Place, client: Any, name: str) -> None:
    """`nack(requeue=True)` brings the message back; where the row says that it cannot, nothing is sent."""
    put(client, name, b"first", **KEPT)
    subscription = client.subscribe(name, ack="client-individual", prefetch=1)
    message = got(subscription)
    if not place.requeues:
        refused(message.nack, requeue=True)
        message.ack(receipt=True)
    else:
        message.nack(requeue=True)
        again = got(subscription)
        same((again.body, again.redelivered), (b"first", True), "what comes again")
        again.ack(receipt=True)


@field("discard")
def discard(place: Place, client: Any, name: str) -> None:
    """`nack(discard=True)` frees the way for the next message, in every ack mode."""
    for mode in ("client", "client-individual"):
        name = fresh()
        subscription = client.subscribe(name, ack=mode, prefetch=1)
        for body in (b"1", b"2"):
            client.send(name, body, {"persistent": "true"}, receipt=True)
        message = got(subscription)
        if place.nacks:
            message.nack(discard=True)
        else:
            refused(message.nack, discard=True)
            message.ack()
        message = got(subscription)
        same(message.body, b"2", "what follows a discarded message")
        message.ack(receipt=True)
        subscription.unsubscribe()


@field("nacked")
def nacked(place: Place, client: Any, name: str) -> None:
    """`nack()` brings the message back where the row says so, and is refused where it would drop the message."""
    put(client, name, b"x", **KEPT)
    message = got(client.subscribe(name, ack="client-individual", prefetch=1))
    says = place.row(client).nacked if place.nacks else ""
    if says == "drops":
        refused(message.nack)
    elif says:
        same(place.requeues, True, "whether the broker requeues")
        message.nack()
    client.close()
    if says:
        same(bodies(place.connect().subscribe(name), 1), [b"x"], "what comes again")


@field("gives_up", "letters", "queue_type")
def gives_up(place: Place, client: Any, name: str) -> None:
    """A message that is given up is a dead letter, persistent or not, and the next one is handled."""
    for persistent in ("true", "false"):
        name, calls, done = fresh(), list[tuple[int, bytes]](), threading.Event()

        def handle(message: Any, calls: list[tuple[int, bytes]] = calls, done: threading.Event = done) -> None:
            calls.append((message.epoch, message.body))
            if message.body == b"1":
                raise KeyError("no")
            done.set()

        for body in (b"1", b"2"):
            client.send(name, body, {"persistent": persistent}, receipt=True)
        client.subscribe(name, prefetch=1, give_up=KeyError, handler=handle)
        same(done.wait(patience(_SECONDS)), True, "whether the next message was handled")
        last = {body: epoch for epoch, body in calls}  # after a lost connection a message may come again
        same([body for epoch, body in calls if epoch == last[body]], [b"1", b"2"], f"the calls by connection, {calls}")
        letters, found = client.subscribe(place.row(client).letters_of(name)), None
        while found is None or found.get("original-destination") != name:
            found = got(letters)
            same(found is not None, True, "whether there is a dead letter")
        same(found.body, b"1", "the dead letter")
        letters.unsubscribe()


@field("marks")
def marks(place: Place, client: Any, name: str) -> None:
    """Behind these the name of a queue stays the same one."""
    for mark in place.row(client).marks.split():
        name = fresh()
        said = {"?": f"{name}?consumer.prefetchSize=1", ",": f"{fresh()},{name}", "::": f"{name}::{name[7:]}"}[mark]
        subscription = client.subscribe(said)
        put(client, name, b"x")
        if mark == "::" and subscription.get(1) is None:  # an acceptor without prefixes: all of it is the queue's name
            subscription.unsubscribe()
            subscription = client.subscribe(f"{name}::{name}")
        put(client, name, b"x")
        same(bodies(subscription, 1), [b"x"], f"what {said} gets")
        subscription.unsubscribe()


@field("unsubscribed")
def unsubscribed(place: Place, client: Any, name: str) -> None:
    """UNSUBSCRIBE returns what is unacknowledged, where the row says so."""
    put(client, name, b"x", **KEPT)
    subscription = client.subscribe(name, ack="client-individual")
    same(bodies(subscription, 1), [b"x"], "the message")
    subscription.unsubscribe()
    if place.row(client).unsubscribed in ("returns", "behind"):
        same(bodies(client.subscribe(name), 1), [b"x"], "what comes again")


@field("nack_transacted")
def nack_transacted(place: Place, client: Any, name: str) -> None:
    """A NACK in a transaction takes effect with it; where the row says that it cannot, nothing is sent."""
    put(client, name, b"1", b"2", **KEPT)
    subscription = client.subscribe(name, ack="client-individual", prefetch=1)
    message = got(subscription)
    with client.transaction() as transaction:
        if place.takes_nack_in_transactions:
            transaction.nack(message, discard=True)
        else:
            refused(transaction.nack, message, discard=True)
            transaction.ack(message)
    message = got(subscription)
    same(message.body, b"2", "what follows")
    message.ack(receipt=True)


@field("unbounded")
def unbounded(place: Place, client: Any, name: str) -> None:
    """In mode `auto` all messages come, whatever their size and `prefetch`."""
    put(client, name, *(b"%d" % number + bytes(3000) for number in range(4)))
    subscription = client.subscribe(name, ack="auto", prefetch=1)
    same([body[:1] for body in bodies(subscription, 4)], [b"0", b"1", b"2", b"3"], "what came")


@field("shared")
def shared(place: Place, client: Any, name: str) -> None:
    """A program that holds fewer messages than its `prefetch` gets the next one, whatever their size."""
    typed = dict(place.row(client).shared)
    sent = {"destination-type": "ANYCAST"} if typed else {}
    for number in range(5):
        client.send(name, b"%d" % number + bytes(20_000), sent, receipt=True)
    subscription = client.subscribe(name, ack="client", prefetch=5, headers=typed)
    same([body[:1] for body in bodies(subscription, 5)], [b"0", b"1", b"2", b"3", b"4"], "what is held")


@field("least")
def least(place: Place, client: Any, name: str) -> None:
    """The client refuses windows with which no messages would come."""
    row = place.row(client)
    if row.least is not None:
        window = row.window or row.prefetch[0]
        for value in (str(row.least - 1), "abc", "99999999999"):
            try:
                client.subscribe(name, ack="client", headers={window: value})
            except ValueError:
                continue
            raise Failed(f"{window}:{value} was sent")


@field("acks_transacted")
def acks_transacted(place: Place, client: Any, name: str) -> None:
    """What an aborted transaction acknowledges comes again on the next connection, what a committed one does not."""
    put(client, name, b"1", b"2", **KEPT)
    subscription = client.subscribe(name, ack="client-individual", prefetch=2)
    first, second = (got(subscription) for _ in range(2))
    kept, dropped = client.transaction().begin(), client.transaction().begin()
    kept.ack(first)
    dropped.ack(second)
    kept.commit()
    dropped.abort()
    client.close()
    client = place.connect()
    subscription = client.subscribe(name, ack="client-individual", prefetch=2)
    same(bodies(subscription, 1), [b"2"], "what comes again")


@field("attempts")
def attempts(place: Place, client: Any, name: str) -> None:
    """`message.attempt` counts deliveries, where the broker tells; else it is 2 for what comes again."""
    headers = {"x-queue-type": "quorum"} if place.name == "rabbitmq" and not place.own else {}
    subscription = client.subscribe(name, ack="client-individual", headers=headers)
    put(client, name, b"x", **KEPT)
    message = got(subscription)
    same((message.attempt, message.redelivered), (1, False), "the first delivery")
    if not place.counts:
        client.close()
        client = place.connect()
        message = got(client.subscribe(name, ack="client-individual"))
        same((message.attempt, message.redelivered), (2, True), "what comes again")
    else:
        for number in (2, 3):
            message.nack(requeue=True)
            message = got(subscription)
            same((message.attempt, message.redelivered), (number, True), f"delivery {number}")
    message.ack(receipt=True)


@field("jms", "counts_text")
def jms(place: Place, client: Any, name: str) -> None:
    """Text and bytes stay two kinds of messages where content-length tells them apart, as with JMS."""
    client.send(name, "text", receipt=True)
    put(client, name, b"octets")
    subscription = client.subscribe(name)
    found = [got(subscription) for _ in range(2)]
    same([message.body for message in found], [b"text", b"octets"], "bodies")
    expected = ["4" if not place.tells_text or place.always_counts else None, "6"]
    same([message.get("content-length") for message in found], expected, "content-length of MESSAGE")
    copies = [place.row(client).body_of(message.frame) for message in found]
    same(copies, ["text" if place.tells_text else b"text", b"octets"], "what is sent on")


@field("emptied", "ending")
def emptied(place: Place, client: Any, name: str) -> None:
    """What the broker cannot write of JMS messages is named: a body that it leaves out, a header at which it closes."""
    row, said = place.row(client), logging.handlers.BufferingHandler(100)
    for header, when in row.ending:
        try:
            put(client, fresh(), b"{}", **{header: "jms-map-json"})
        except stomp.ConnectionLostError as error:
            same(f"closes without ERROR at the header {header} {when}" in str(error), True, f"the reason in {error}")
        else:
            raise Failed(f"the broker took {header}")
    dialects._warned.discard(row.emptied)
    dialects.log.addHandler(said)
    subscription = client.subscribe(name)
    put(client, name, b"")
    same(got(subscription).body, b"", "an empty message")
    dialects.log.removeHandler(said)
    warned = any("has no body" in record.getMessage() for record in said.buffer)
    same(warned, bool(row.emptied), "the warning")


@field("schemes", "powers")
def schemes(place: Place, client: Any, name: str) -> None:
    """A reply goes where the reply-to of a JMS client says; none to a scheme or power that a stranger has chosen."""
    row, requests = place.row(client), client.subscribe(name, ack="client-individual")
    powers = {"rabbitmq": "/exchange/a/b", "activemq": "/queue/ActiveMQ.a", "artemis": "queue://activemq.management"}
    for wrong in ("http://a", "/management/a" if place.own else powers.get(place.name, "")):
        same(row.fault_of(wrong) is None, False, f"whether {wrong} is answered")
    same(bool(row.schemes), place.jms and not place.own, "whether it knows schemes")
    if row.schemes:
        answers = client.subscribe(row.schemes["queue"] + f"{name[7:]}.to", id="answers", headers=row.shared)
        client.send(name, b"?", {"reply-to": f"queue://{name[7:]}.to"}, receipt=True)
        got(requests).reply(b"!", receipt=True)
        same(bodies(answers, 1), [b"!"], "the answer")


@field("implicit_replies", "replies", "rights")
def replies(place: Place, client: Any, name: str) -> None:
    """Requests are answered, by however the broker brings replies."""
    service = place.connect()
    requests = service.subscribe(name)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(client.request(name, b"ping", patience(_SECONDS))))
    asking.start()
    got(requests).reply(b"pong")
    asking.join(patience(_SECONDS))
    same([answer.body for answer in answers], [b"pong"], "the answer")


@field("duplicate")
def duplicate(place: Place, client: Any, name: str) -> None:
    """What may be sent twice bears a key, which the broker takes and hands on."""
    subscription = client.subscribe(name)
    for body in (b"1", b"2"):
        client.send(name, body, receipt=True, resend=True)
    keys = [got(subscription).get(place.row(client).duplicate) for _ in range(2)]
    if None in keys or keys[0] == keys[1]:
        raise Failed(f"the keys are {keys}")


@field("knows_keys")
def knows_keys(place: Place, client: Any, name: str) -> None:
    """A second SEND with the same key is confirmed, and dropped where the row says so."""
    subscription, row = client.subscribe(name), place.row(client)
    for key in (name, name, f"{name}-2"):
        client.send(name, b"x", {row.duplicate: key}, receipt=True)
    keys = [got(subscription).get(row.duplicate)]
    while keys[-1] == name:
        keys.append(got(subscription).get(row.duplicate))
    same(len(keys), 2 if row.knows_keys else 3, f"the messages with the keys {keys}")


@field("lasting")
def lasting(place: Place, client: Any, name: str) -> None:
    """Two deliveries of a message have one identity, and two messages have two, where the row says so."""
    for _ in range(2):
        put(client, name, b"x", **KEPT)
    told = []
    for _ in range(2):
        subscription = client.subscribe(name, ack="client-individual" if place.nacks else "client")
        told.append([got(subscription).identity for _ in range(2)])
        kind = place.row(client).lasting
        client.close()
        client = place.connect()
    same(told[1], told[0], "the identities when they come again")
    same(len(set(told[0])), 2 if kind else 1, f"identities of two messages: {told}")
    same(None in told[0], not kind, "there is none")


@field("forged")
def forged(place: Place, client: Any, name: str) -> None:
    """A sender can put a header into messages to STOMP 1.0 sessions where the row says so, and nowhere else."""
    if not place.nacks:
        return  # senders of these versions write no line feeds
    sender, reader = place.connect(artemis_types=False), place.connect(versions=["1.0"])
    subscription = reader.subscribe(name)
    sender.send(name, b"x", {"path": "a\nadmin:true"}, receipt=True)
    message = got(subscription)
    same(message.get("admin") is not None, place.row(reader).forged, "whether a header was forged")


@field("changed")
def changed(place: Place, client: Any, name: str) -> None:
    """A durable name that comes with another selector drops what waits, or keeps the old one, as the row says."""
    client, name = place.connect(client_id=f"field-{uuid.uuid4().hex[:8]}"), fresh("topic")
    does = place.row(client).changed
    if does:
        client.subscribe(name, durable="daily", selector="n = '1'").unsubscribe()
        for number in "12":
            client.send(name, number, {"n": number, "persistent": "true"}, receipt=True)
        subscription = client.subscribe(name, durable="daily", selector="n = '2'")
        for number in "12":
            client.send(name, f"later {number}", {"n": number, "persistent": "true"}, receipt=True)
        expected = [b"later 2"] if does == "drops what waits" else [b"1", b"later 1"]
        same(bodies(subscription, len(expected)), expected, "what comes by a changed selector")
        subscription.unsubscribe(delete=True)


@field("poisoned")
def poisoned(place: Place, client: Any, name: str) -> None:
    """A selector that breaks those of other clients is refused by ours, and does break them on the broker."""
    plain = f"n{uuid.uuid4().hex[:8]} = 7"
    prefix = place.row(client).poisoned
    if prefix:
        refused(client.subscribe, name, selector=prefix + plain)
        client.subscribe(name, selector=plain)
        for selector in (prefix + plain, plain):
            stranger = place.connect(dialect="stompcodec", reconnect=None)
            try:
                stranger.subscribe(name, selector=selector)
            except (stomp.RejectedError, stomp.ConnectionLostError):
                continue
            raise Failed(f"the broker takes {selector}")


@field("only_true")
def only_true(place: Place, client: Any, name: str) -> None:
    """A message that is not persistent leaves its queue to all; told otherwise, it would not where the row says so."""
    sender, reader = client, place.connect(reconnect=None)
    sender.send(name, b"x", persistent=False, receipt=True)
    same(bodies(reader.subscribe(name), 1), [b"x"], "the message, by another connection")
    if place.row(sender).only_true:
        stranger = place.connect(dialect="stompcodec", reconnect=None)
        try:
            stranger.send(name, b"x", persistent=False, receipt=True)
        except stomp.StompError:
            pass
        else:
            raise Failed("the broker takes persistent:false for a queue of others")


@field("login_refused", "unescapes")
def login_refused(place: Place, client: Any, name: str) -> None:
    """A wrong login is refused in words that the row knows, which have the login as it was given, if they name it.

    A broker that takes any login has none to refuse."""
    try:
        client = place.connect(login="gu\\nest", passcode="wrong", dialect="auto" if place.own else place.name)
    except stomp.RejectedError as error:
        row = dialects.row_of(place.name, "stompcodec/1" if place.own else None)
        same(row.refuses_login(str(error)), True, f"a refused login is recognised: {error}")
        same("gu" in str(error), "gu\\nest" in str(error), f"its backslash came through: {error}")
    else:
        client.close()


@field("topics", "topic_queue")
def topics(place: Place, client: Any, name: str) -> None:
    """Every subscription to a topic gets its own copy, with each kind of queue that can be asked for."""
    for choice in ("auto", "transient", "exclusive", "durable"):
        clients = [place.connect(topic_queues=choice) for _ in range(2)]
        if choice != "transient" or place.row(clients[0]).topic_queue == choice:
            name = fresh("topic")
            subscriptions = [client.subscribe(name) for client in clients]
            clients[0].send(name, b"to all", receipt=True)
            same([bodies(each, 1) for each in subscriptions], [[b"to all"]] * 2, f"copies with topic_queues={choice}")
            subscriptions[0].unsubscribe()
            # RabbitMQ 4.3 may cut a sender with receipts when a subscriber of its topic leaves.
            clients[0].send(name, b"to one", receipt=place.name != "rabbitmq")
            same(bodies(subscriptions[1], 1), [b"to one"], f"what the other one gets with topic_queues={choice}")
        for client in clients:
            client.close()


@field("types")
def types(place: Place, client: Any, name: str) -> None:
    """A queue keeps what comes before its consumers, which share it; each subscriber of a topic gets all."""
    other = place.connect()
    put(client, name, b"0", b"1")
    both = [each.subscribe(name, ack="client-individual", prefetch=1) for each in (client, other)]
    same(sorted(bodies(each, 1)[0] for each in both), [b"0", b"1"], "what two consumers of a queue get")
    name = fresh("topic")
    both = [each.subscribe(name) for each in (client, other)]
    put(client, name, b"2")
    same([bodies(each, 1) for each in both], [[b"2"]] * 2, "what two subscribers of a topic get")


@field("values")
def values(place: Place, client: Any, name: str) -> None:
    """A value by which the broker would lose the message or end the connection is refused, and the next one comes."""
    subscription = client.subscribe(name)
    for header in place.row(client).values:
        value = "/queue/" if header in ("destination", "reply-to") else "no value"
        destination, headers = (value, {}) if header == "destination" else (name, {header: value})
        try:
            client.send(destination, b"lost", headers)
        except ValueError:
            continue
        raise Failed(f"{header}:{value} was sent")
    put(client, name, b"sound")
    same(bodies(subscription, 1), [b"sound"], "what comes after refused values")


@field("offset")
def offset(place: Place, client: Any, name: str) -> None:
    """A subscription to a stream goes on behind what was acknowledged, on the next connection."""
    header = place.row(client).offset
    if header:
        headers = {"x-queue-type": "stream", header: "first"}
        subscription = client.subscribe(name, ack="client-individual", prefetch=4, headers=headers)
        put(client, name, b"0", b"1", b"2")
        for number in (0, 1):
            message = got(subscription)
            same((message.body, message.get(header)), (b"%d" % number, str(number)), "what comes")
            message.ack()
        client.send("/nowhere/", b"", receipt=False)  # ends the session
        same(bodies(subscription, 1), [b"2"], "what comes on the next connection")


@field("closes", "largest")
def closes(place: Place, client: Any, name: str) -> None:
    """A sender whose connection is closed without ERROR is told why."""
    row, name, why = place.row(client), fresh("topic"), "closes without ERROR"
    for _ in range(20 if row.closes else 0):  # RabbitMQ 4.3 closes most of these
        client.subscribe(name).unsubscribe()
        try:
            client.send(name, b"x", receipt=True)
        except stomp.ConnectionLostError as error:
            same("a subscriber of the topic leaves" in str(error), True, f"the reason in {error}")
            break
    for octets in row.largest[:1]:
        put(client, fresh(), bytes(octets - 1000))
        try:
            put(client, fresh(), bytes(octets))
        except stomp.ConnectionLostError as error:
            same(f"{why} at more than {octets} bytes" in str(error), True, f"the reason in {error}")
        else:
            raise Failed(f"a frame of more than {octets} bytes was taken")


def place_of(target: Target) -> Place | None:
    """Return how the client for threads connects to a broker; None if the table has no row for it."""
    server = server_of(target)
    product, _, manner = server.lower().partition(" as ")
    own = product.startswith("stompcodec/")
    row = (manner or "stompcodec") if own else target.name
    silent = {"dialect": row} if server == UNKNOWN else {}  # it does not say what it is: users have to

    def connect(**options: Any) -> stomp.Client:
        url = f"stomp://{target.host}:{target.port}"
        options = {"login": target.login, "passcode": target.passcode, "vhost": target.vhost, **silent, **options}
        return stomp.connect(url, **options)

    return Place(row, connect, own) if row in BROKERS else None
