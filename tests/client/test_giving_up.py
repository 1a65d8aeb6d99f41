"""A message that cannot be handled becomes a dead letter, or stays unsettled: no exception loses one."""

import json
import logging
from collections import deque

import pytest
from client.desk import Desk
from client.peer import Peer
from client.shells import Seen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.client.dialects import BROKERS, row_of
from stompcodec.client.handlers import copy_of, text_of, way_of
from stompcodec.client.messages import BaseMessage, Subscription
from stompcodec.client.outbox import KEPT
from stompcodec.errors import LocalProtocolError, ReceiptTimeoutError

SERVERS = {
    "ours": "stompcodec/1",
    "ours as artemis": "stompcodec/1 as artemis",
    "activemq": "ActiveMQ/6.3.1",
    "artemis": "ActiveMQ-Artemis/2.40.0 ActiveMQ Artemis Messaging Engine",
    "rabbitmq": "RabbitMQ/4.3.6",
    "vertx": "vertx-stomp/5.0.7",
    "gostomp": "stompd/x.y.z",
    "hidden": "",
}


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("stompcodec.client").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("stompcodec.client").setLevel(logging.NOTSET)


def message_of(source="/queue/a", persistent=True, body=b"x", more=(), **options):
    subscription = Subscription(source, id="s1", ack=options.pop("ack", "client-individual"), **options)
    pairs = [("destination", source), ("message-id", "m1"), ("subscription", "s1"), ("ack", "m1"), *more]
    if persistent:
        pairs.append(("persistent", "true"))
    subscription.seq = subscription.open = 1
    return BaseMessage(Frame("MESSAGE", pairs, body), subscription, 1, 1)


# ---- the table ----

#: Broker -> how it gives up a persistent message of a queue, another one, and one of a topic; "" if there is no way.
TABLE = {
    "ours": ("NACK", "NACK", "NACK"),
    "ours as artemis": ("NACK", "NACK", "NACK"),
    "activemq": ("NACK", "/queue/ActiveMQ.DLQ", "/queue/ActiveMQ.DLQ"),
    "artemis": ("DLQ", "DLQ", "DLQ"),
    "rabbitmq": ("/queue/DLQ.a", "/queue/DLQ.a", "/queue/DLQ.a"),
    "vertx": ("", "", ""),
    "gostomp": ("", "", ""),
    "hidden": ("", "", ""),
}


@pytest.mark.parametrize("broker", TABLE)
def test_each_broker_has_its_way(broker):
    row = row_of("auto", SERVERS[broker])
    messages = message_of(), message_of(persistent=False), message_of("/topic/a")
    ways = [way_of(message, row, "1.2", None) for message in messages]
    assert tuple(way.to or way.command for way in ways) == TABLE[broker]
    assert [bool(way.why) for way in ways] == [not each for each in TABLE[broker]]
    for message in messages:  # a named queue is that of all brokers, and 1.0 has no NACK
        assert way_of(message, row, "1.2", "/queue/dead") == ("SEND", "/queue/dead", "")
        assert way_of(message, row, "1.0", None).command != "NACK"
    later = message_of(ack="client")
    later.seq = later.subscription.seq = 2  # it would settle an earlier message
    assert way_of(later, row, "1.2", "/queue/dead").command == ""


@pytest.mark.parametrize("broker", ["activemq", "artemis", "rabbitmq"])
def test_a_message_that_is_in_the_dead_letter_queue_stays_there(broker):
    """NACK would delete it on ActiveMQ; a copy would come back for ever."""
    row = row_of("auto", SERVERS[broker])
    named = None if broker != "rabbitmq" else "/queue/dead"
    for source in (named or row.letters, "/queue/>"):
        message = message_of(source, more=[("destination", named or row.letters)])
        message.frame = Frame("MESSAGE", [("destination", named or row.letters), *message.headers.pairs()], b"")
        assert way_of(message, row, "1.2", named).command == ""


@pytest.mark.parametrize(
    ("broker", "source", "dead_letter"),
    [
        ("ours", "/queue/a", "/queue/a"),
        ("rabbitmq", "/queue/a", "/amq/queue/a"),
        ("activemq", "/queue/a", "a"),
        ("activemq", "/queue/b,/queue/a", "/queue/a"),
        ("activemq", "/queue/a?consumer.priority=1", "/queue/a"),
        ("artemis", "a", "/queue/a"),
        ("artemis", "a::a", "a"),
        ("hidden", "/queue/a::b", "a"),
    ],
)
def test_a_dead_letter_queue_that_is_the_source_is_refused(broker, source, dead_letter):
    row = row_of("auto", SERVERS[broker])
    with pytest.raises(ValueError, match="is the same queue"):
        Subscription(source, id="s1", dead_letter=dead_letter).check(row, None)
    with pytest.raises(ValueError, match="dead_letter is empty"):
        Subscription(source, id="s1", dead_letter="")


# ---- the copy ----


def test_a_copy_says_where_it_comes_from_and_takes_no_effect_twice():
    row = BROKERS["artemis"]
    more = [("n", "1"), ("expires", "9"), ("delay", "5"), ("destination-type", "MULTICAST"), ("receipt", "r1")]
    message = message_of(more=[*more, ("correlation-id", "c"), ("idempotency-key", "k"), ("priority", "7")])
    pairs = dict(copy_of(message, row, "DLQ", ValueError("no\nsuch"), None))
    assert pairs == {
        "destination": "DLQ",
        "n": "1",
        "original-expires": "9",
        "original-delay": "5",
        "correlation-id": "c",
        "original-idempotency-key": "k",
        "priority": "7",
        "persistent": "true",
        "destination-type": "ANYCAST",
        "original-destination": "/queue/a",
        "original-message-id": "m1",
        "dead-letter-reason": "ValueError('no\\nsuch')",
    }


@pytest.mark.parametrize(
    ("body", "more", "text"),
    [("ü".encode(), [], KEPT), (b"\xc3", [], False), (b"a\0b", [], False), (b"x", [("content-length", "1")], False)],
)
def test_a_copy_is_text_as_its_message(body, more, text):
    assert text_of(message_of(body=body, more=more), BROKERS["activemq"]) == text


def test_the_key_of_a_copy_is_that_of_the_message_and_its_consumers():
    row = BROKERS["stompcodec"]

    def key(message, to="/queue/dead", client_id=None):
        return dict(copy_of(message, row, to, ValueError(), client_id)).get("idempotency-key")

    assert key(message_of()) == key(message_of(more=[("redelivered", "true")])) is not None
    others = [key(message_of("/queue/b")), key(message_of(), "/queue/c")]
    others += [key(message_of("/topic/a", durable=name), client_id="me") for name in ("one", "two")]
    assert len({key(message_of()), *others}) == 5
    assert key(message_of("/topic/a")) is None  # no later delivery is of the same message


# ---- whatever happens ----


class Letters(Desk):
    """A desk whose broker takes or refuses copies: `answers` are "yes", "no" (ERROR), "lost", "silent", and "here" for
    a copy that fails before it is sent.
    """

    def __init__(self, monkeypatch, handler, answers, persistent=True, *, lasting=False, **options):
        self.answers, self.letters, self.persistent = deque(answers), [], persistent
        self.lasting, self.keys = lasting, {}  # message-ids of Artemis, with the same number in each delivery
        self.bad, self.wrong, self.sent, self.open = (), [], None, set()
        super().__init__(monkeypatch, handler, **options)
        copy = self.link.copy
        self.link.copy = lambda *given: self._fail() if self._is_next("here") else copy(*given)

    def _is_next(self, answer):
        return self.answers and self.answers[0] == answer and self.answers.popleft()

    def _fail(self):
        raise OSError("no room")

    def _wait(self, receipt):
        self.serve()
        if not receipt.done:
            raise ReceiptTimeoutError("no answer", sent=True)
        super()._wait(receipt)

    def connect(self):
        self.open = set()
        super().connect()

    def _write(self, command, headers, body=b""):
        if command == "MESSAGE" and self.persistent:
            headers = {**headers, "persistent": "true"}
        if command == "MESSAGE" and self.lasting:
            id = f"{len(self.windows)},{headers['ack'][1:]}"
            headers = {**headers, "message-id": id, "timestamp": "1795935891986"}
        if command == "RECEIPT" and self.sent is not None:
            number, receipt = self.sent
            self.sent, answer = None, self.answers.popleft() if self.answers else "yes"
            if answer in ("yes", "here"):
                self.letters.append(number)
            elif answer == "silent":
                return
            else:
                if answer == "no":
                    super()._write("ERROR", {"message": "no", "receipt-id": receipt})
                self.lose()
                return
        super()._write(command, headers, body)

    def _on_send(self, frame):
        number = "m" + frame.headers["original-message-id"].lstrip("m").rpartition(",")[2]
        self.sent = number, frame.headers["receipt"]
        key = frame.get("idempotency-key" if self.core.link.dialect.name == "stompcodec" else "_AMQ_DUPL_ID")
        self.wrong += [f"two copies of {number} on one connection"] * (number in self.open and key is None)
        self.wrong += [f"two keys of {number}"] * (self.keys.setdefault(number, key) != key)
        self.open.add(number)

    def _on_ack(self, frame):
        number = frame.headers["id"]
        self.wrong += [f"no copy of {number}"] * (number in self.bad and number not in self.letters)
        super()._on_ack(frame)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80, deadline=None)
@given(
    broker=st.sampled_from(list(SERVERS)),
    bad=st.sets(st.integers(1, 6)),
    answers=st.lists(st.sampled_from(["yes", "no", "lost", "silent", "here"]), max_size=8),
    persistent=st.booleans(),
    dead_letter=st.sampled_from([None, "/queue/dead"]),
    attempts=st.integers(1, 3),
    lasting=st.booleans(),
)
def test_no_exception_of_a_handler_loses_a_message(
    monkeypatch, broker, bad, answers, persistent, dead_letter, attempts, lasting
):
    def handle(message):
        if message.get("ack") in desk.bad:
            raise json.JSONDecodeError("bad", "", 0)

    options = {"server": SERVERS[broker], "attempts": attempts, "prefetch": 3}
    options["lasting"] = lasting and broker == "artemis"
    desk = Letters(monkeypatch, handle, answers, persistent, **options)
    desk.bad = {f"m{number:04}" for number in bad}
    desk.subscription.dead_letter = dead_letter
    desk.at_pause = lambda: desk.lose() if len(desk.pauses) % 4 == 0 else None
    desk.put(6).run(until=3600.0)
    fates = dict(desk.fates)
    assert desk.wrong == []
    made = {number for number, fate in fates.items() if fate.startswith("NACK")}
    if desk.work.stopped:  # the broker has no place for dead letters, and the error says so
        assert dead_letter is None
        assert desk.subscription.closed
        assert isinstance(desk.subscription.error, json.JSONDecodeError)
        return
    assert set(fates) == {f"m{number:04}" for number in range(1, 7)}
    assert made | set(desk.letters) == desk.bad
    assert made <= desk.bad
    if made:
        assert dead_letter is None or broker.startswith("ours") or broker == "rabbitmq"
        assert attempts == 1 or dead_letter is None


# ---- both shells ----


@pytest.fixture
def artemis():
    with Peer(server=SERVERS["artemis"]) as peer:
        yield peer


@pytest.mark.parametrize("layers", [[], [stomp.Middleware()]])
@pytest.mark.parametrize("stream_over", [None, 4096])
@pytest.mark.parametrize("server", ["artemis", "hidden"])
def test_text_stays_text_and_bytes_stay_bytes_also_in_a_file(shell, server, stream_over, layers):
    large, copies = "ü" * 5000, []
    with Peer(server=SERVERS[server]) as peer:
        peer.rules["SEND"] = lambda side, frame: (copies.append(frame), side.receipt(frame))
        client = shell.connect(peer.url, stream_over=stream_over, dead_letter="/queue/dead", middleware=layers)
        subscription = client.subscribe("/queue/a", ack="client-individual")
        side = peer.side()
        head = "MESSAGE\nsubscription:s1\ndestination:/queue/a\n"
        octets = f"{head}message-id:1\nack:1\n\n{large}\0".encode()
        octets += f"{head}content-length:5000\nmessage-id:2\nack:2\n\n".encode() + bytes(5000) + b"\0"
        side.unacked.update({"1": None, "2": None})
        peer.do(lambda: side.sock.sendall(octets))
        for _ in range(2):
            message = subscription.get(patience(10))
            assert message.is_streamed is (stream_over is not None)
            with pytest.raises(KeyError), message.processing():
                raise KeyError("no")
        peer.wait(lambda peer: len(peer.got("ACK")) == 2)
    assert [copy.body for copy in copies] == [large.encode(), bytes(5000)]
    assert [copy.get("content-length") for copy in copies] == [None, "5000"]
    assert [copy.get("content-type") for copy in copies] == [None, None]


def failing(shell, seen=None):
    def handle(message):
        if seen is not None:
            seen.add(message.body)
        raise json.JSONDecodeError("bad", "", 0)

    return shell.handler(handle)


@pytest.mark.parametrize("how", ["no receipt", "refused"])
def test_a_copy_without_receipt_leaves_the_message_and_pauses_the_subscription(shell, artemis, how, monkeypatch):
    if how == "refused":
        artemis.rules["SEND"] = lambda side, frame: (side.error(frame), side.close())
    else:
        artemis.rules["SEND"] = lambda side, frame: None
    seen, said = Seen(), Seen()
    monkeypatch.setattr(logging.getLogger("stompcodec.client"), "error", lambda words, *_, **__: said.add(words))
    client = shell.connect(artemis.url, receipt_timeout=0.05, close_timeout=0.1)
    subscription = client.subscribe("/queue/a", handler=failing(shell, seen), timeout=patience(30))
    artemis.do(lambda: artemis.side().deliver("s1", b"1", count=2))
    assert "stays unsettled" in said.wait(2)[1]
    client.close()
    subscription.join(patience(10))
    assert seen.bodies == [b"1"]
    assert not artemis.got("ACK") + artemis.got("NACK")


@pytest.mark.parametrize("server", ["artemis", "vertx"])
def test_nack_by_hand_is_refused_where_it_drops_the_message_unless_that_is_meant(shell, server):
    with Peer(server=SERVERS[server]) as peer:
        client = shell.connect(peer.url)
        subscription = client.subscribe("/queue/a", ack="client-individual")
        peer.deliver("s1", b"x", count=2)
        message = subscription.get(patience(10))
        for options in ({}, {"requeue": False}):
            with pytest.raises(LocalProtocolError, match="drops the message: say discard=True"):
                message.nack(**options)
        with pytest.raises(LocalProtocolError, match="drops the message"), message.processing(requeue=False):
            pass
        with client.transaction() as transaction, pytest.raises(LocalProtocolError, match="drops the message"):
            transaction.nack(message)
        with pytest.raises(ValueError, match="give one of them"):
            message.nack(requeue=True, discard=True)
        assert not peer.got("NACK")
        message.nack(discard=True, receipt=True)
        assert len(peer.got("NACK")) == 1


class Refusing(stomp.Middleware):
    def receive(self, event):
        if event.body == b"2":
            raise ValueError("no")
        return super().receive(event)


def test_what_middleware_refuses_is_given_up_where_nack_would_drop_it(shell, artemis):
    subscription = shell.connect(artemis.url, middleware=[Refusing()]).subscribe("/queue/a", ack="client-individual")
    artemis.deliver("s1", b"2")
    assert subscription.get(0.2) is None
    artemis.wait(lambda peer: peer.got("ACK"))
    assert [frame.get("destination") for frame in artemis.got("SEND")] == ["DLQ"]
    assert not artemis.got("NACK")


@pytest.mark.parametrize(("server", "refuses"), [("artemis", True), ("ours", True), ("vertx", False)])
def test_what_failed_is_not_settled_by_a_later_ack_in_mode_client(shell, server, refuses):
    """What middleware refuses, too: the program gets the next message, and cannot know of the one before it."""
    with Peer(server=SERVERS[server]) as peer:
        client = shell.connect(peer.url, middleware=[Refusing()] * refuses)
        subscription = client.subscribe("/queue/a", ack="client")
        for body in (b"1", b"2", b"3"):
            peer.deliver("s1", body)
        first, *failed, third = [subscription.get(patience(10)) for _ in range(3 - refuses)]
        for message in failed:
            with pytest.raises(KeyError), message.processing():
                raise KeyError
        assert (first.body, third.body) == (b"1", b"3")
        with pytest.raises(LocalProtocolError, match="settle an earlier message of /queue/a that failed"):
            third.ack(receipt=True)
        assert not peer.got("ACK")
        for message in [first, *failed, *[third][refuses:]]:
            message.ack(receipt=True)
        assert len(peer.got("ACK")) == (1 if refuses else 3)
        assert not peer.got("NACK") + peer.got("SEND")
