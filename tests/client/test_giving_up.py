"""A handler that fails is called again with the same message, after pauses; then that is given up, never lost."""

import asyncio
import itertools
import json
import logging
import time
from collections import Counter, deque

import pytest
from client.peer import Peer
from client.shells import Seen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame, serialize
from stompcodec.client import Client, Options
from stompcodec.client.aio.waiting import AsyncPauses, call_handler
from stompcodec.client.dialects import BROKERS, row_of
from stompcodec.client.handlers import ATTEMPTS, Handling, Retries, copy_of, way_of
from stompcodec.client.messages import BaseMessage, Subscription
from stompcodec.client.sync import messages as module
from stompcodec.client.sync.waiting import Pauses, Receipt
from stompcodec.connection import Connection, Role
from stompcodec.errors import LocalProtocolError, ReceiptTimeoutError

pytestmark = pytest.mark.usefixtures("quiet")
#: Calling again may help with the first one; with the other one it never does.
NO, BAD = ValueError("no"), json.JSONDecodeError("bad", "", 0)
LONE = [0.1, 0.2, 0.4, 0.8, 1.6]
SERVERS = {
    **{"ours": "stompcodec/1", "ours as artemis": "stompcodec/1 as artemis", "activemq": "ActiveMQ/6.3.1"},
    **{"artemis": "ActiveMQ-Artemis/2.40.0 ActiveMQ Artemis Messaging Engine", "rabbitmq": "RabbitMQ/4.3.6"},
    **{"vertx": "vertx-stomp/5.0.7", "gostomp": "stompd/x.y.z", "hidden": ""},
}


class Desk:
    """A handler without threads and sockets, and a broker that has one queue, on a clock of its own. `run()` handles
    all messages of `put`, as far as they come. The broker delivers what is not settled again first. Pauses take no
    time: they move the clock, and call `at_pause`. With `behind`, as ActiveMQ, what comes back goes behind what came
    back before; both go before all others."""

    def __init__(self, monkeypatch, handler, *, server="stompcodec/1", prefetch=None, behind=False, **options):
        monkeypatch.setattr(Receipt, "wait", lambda receipt: self._wait(receipt))
        monkeypatch.setattr(Pauses, "rest", lambda _pauses, seconds, is_over: is_over() or self._rest(seconds))
        self.clock, self.pauses, self.at_pause = 0.0, [], lambda: None
        self.calls, self.fates, self.windows, self.frames = [], [], [], []
        self._handler, self._server_name, self._behind = handler, server, behind
        self._queue, self._back, self._unacked, self._window = deque(), deque(), {}, 0
        self._numbers = itertools.count(1)
        self._client = Client("stomp://localhost:1", Options(heart_beat=(0, 0)))
        self.link = self._client._link
        self.core = self.link.core
        self.connect()
        handling = Handling(self._call, **options).checked(self.core.link.dialect)
        self.subscription = self.link.subscription("/queue/a", handling.ack, prefetch, handler, id="s1")
        call = self.link.call("SUBSCRIBE", "SUBSCRIBE", None)
        self.core.inbound.subscribe(self.subscription, time.monotonic(), call)
        self.serve()
        self.work = self.subscription._work = module._Work(self.subscription, handling)
        self.subscription.wake = self.subscription._wake

    # ---- the program ----
    def _call(self, message):
        self.calls.append((message.id, message.attempt))
        return self._handler(message)

    def _rest(self, seconds):
        self.clock += seconds
        self.pauses.append(seconds)
        self.at_pause()
        self.serve()

    def _wait(self, receipt):
        self.serve()
        assert receipt.done, receipt
        if receipt._call.error is not None:
            raise receipt._call.error

    def run(self, until=float("inf")):
        self.serve()
        while self.subscription.inbox and self.clock < until and not self.work.stopped:
            message = self.link.engine.take_one(self.subscription)
            self.work._take(message)
            self.serve()
        return self

    def transaction(self):
        return self._client.transaction()

    def left(self):
        return [*sorted(self._unacked), *(number for number, _ in (*self._back, *self._queue))]

    # ---- the broker ----
    def put(self, count):
        self._queue.extend((f"m{next(self._numbers):04}", False) for _ in range(count))
        self._deliver()
        return self

    def connect(self):
        self._server = Connection(Role.SERVER, versions=["1.2"], heart_beat=(0, 0), now=0.0)
        self.core.link.opened(time.monotonic(), host="h", login=None, passcode=None, whole_frames=False)
        (_connect,) = self._server.receive(b"".join(self.core.link.take_output(0.0)), 0.0)
        self._server.accept({"server": self._server_name})
        self.core.inbound.receive(b"".join(self._server.take_output(0.0)), 0.0)

    def lose(self):
        self.serve()
        self._return()
        self.core.link.lost(None, time.monotonic())
        self.connect()
        self.serve()

    def serve(self):
        while chunks := self.core.link.take_output(0.0):
            for frame in self._server.receive(b"".join(chunks), 0.0):
                self.frames.append(frame)
                getattr(self, f"_on_{frame.command.lower()}", lambda frame: None)(frame)
                if frame.get("receipt") is not None:
                    self._write("RECEIPT", {"receipt-id": frame.headers["receipt"]})
                self._deliver()

    def _write(self, command, headers, body=b""):
        self.core.inbound.receive(serialize(Frame(command, headers, body), "1.2"), 0.0)

    def _deliver(self):
        while (self._back or self._queue) and len(self._unacked) < self._window:
            number, again = (self._back or self._queue).popleft()
            self._unacked[number] = again
            fixed = {"subscription": "s1", "destination": "/queue/a", "message-id": number, "ack": number}
            self._write("MESSAGE", {**fixed, "redelivered": "true" if again else "false"}, b"x")

    def _return(self):
        returned = [(number, True) for number in sorted(self._unacked)]
        self._back = deque([*self._back, *returned] if self._behind else [*returned, *self._back])
        self._unacked.clear()
        self._window = 0

    def _on_subscribe(self, frame):
        self._window = int(frame.get("prefetch-count") or frame.get("activemq.prefetchSize") or 1000)
        self.windows.append(self._window)

    def _on_unsubscribe(self, frame):
        self._return()

    def _on_ack(self, frame):
        if frame.get("transaction") is None:
            del self._unacked[frame.headers["id"]]
            self.fates.append((frame.headers["id"], "ACK"))

    def _on_nack(self, frame):
        number = frame.headers["id"]
        del self._unacked[number]
        self.fates.append((number, f"NACK {frame.get('requeue') or ''}".strip()))


# ---- how often, and when it is called again ----
def down(monkeypatch, *, until=0.0, bad=(), **options):
    def handle(message):
        if message.id in bad or desk.clock < until:
            raise NO

    desk = Desk(monkeypatch, handle, **options)
    return desk


#: What becomes of a transient message. The copy to a queue of dead letters comes before the ACK.
@pytest.mark.parametrize(("server", "fate"), [("ours", "NACK false"), ("activemq", "ACK"), ("rabbitmq", "ACK")])
def test_a_lone_bad_message_costs_three_seconds_and_is_given_up_after_six_calls(monkeypatch, caplog, server, fate):
    desk = down(monkeypatch, bad={"m0002"}, server=SERVERS[server]).put(3)
    with caplog.at_level(logging.WARNING, "stompcodec.client"):
        desk.run()
    assert desk.fates == [("m0001", "ACK"), ("m0002", fate), ("m0003", "ACK")]
    assert desk.calls == [("m0001", 1), *(("m0002", attempt) for attempt in range(1, 7)), ("m0003", 1)]
    assert desk.pauses == LONE
    first, last = caplog.records  # once with the exception, and once with the count
    assert (first.levelname, first.exc_info is None) == ("WARNING", False)
    assert "message m0002 is handled again in 0.1 s, 6 times in all" in first.getMessage()
    assert (last.levelname, last.exc_info) == ("ERROR", None)
    assert "failed 6 times: message m0002 is given up: ValueError('no')" in last.getMessage()


@pytest.mark.parametrize("attempts", [ATTEMPTS, 100])
def test_what_would_fail_again_is_given_up_at_once_ten_times_in_a_row_and_then_slowly(monkeypatch, caplog, attempts):
    def handle(message):
        if message.id not in good:
            raise BAD

    good = {"m0011"}
    desk = Desk(monkeypatch, handle, attempts=attempts).put(50)
    with caplog.at_level(logging.WARNING, "stompcodec.client"):
        desk.run()
    assert [number for number, fate in desk.fates if fate == "ACK"] == ["m0011"]
    assert (len(desk.fates), desk.windows) == (50, [100])
    assert desk.pauses == 29 * LONE  # of the 22nd message and those behind it: the 11th began anew
    said = [each.getMessage() for each in caplog.records]
    assert "failed once: message m0001 is given up: JSONDecodeError" in said[0]
    assert (caplog.records[0].levelname, caplog.records[0].exc_info[1]) == ("ERROR", BAD)
    braked = [each for each in said if "6 times in all at most (a brake after 10 such messages in a row" in each]
    assert len(braked) == 29


async def pieces(message):
    yield message


@pytest.mark.parametrize("left", [asyncio.sleep, lambda message: (yield message), pieces])
def test_what_a_handler_returned_and_nobody_runs_is_no_success(monkeypatch, left):
    desk = Desk(monkeypatch, lambda message: left(message)).put(1).run()
    assert (len(desk.calls), desk.fates) == (ATTEMPTS, [("m0001", "NACK false")])
    if left is not asyncio.sleep:
        with pytest.raises(TypeError, match="nobody runs"):
            asyncio.run(call_handler(left, None))


def test_one_that_is_away_for_ten_minutes_makes_a_handful_and_holds_no_window(monkeypatch):
    desk = down(monkeypatch, until=600.0, prefetch=50).put(200).run()
    assert [number for number, _ in desk.fates] == [f"m{number:04}" for number in range(1, 201)]
    assert 0 < sum(fate != "ACK" for _, fate in desk.fates) <= 6
    assert max(desk.pauses) == 30.0
    assert desk.windows == [50, 1, 50]  # again its own after the first success
    assert max(Counter(number for number, _ in desk.calls).values()) == ATTEMPTS


def test_the_order_is_kept_when_the_window_grows_again(monkeypatch):
    desk = down(monkeypatch, until=100.0, behind=True, server="ActiveMQ/5.18.6", prefetch=10).put(60).run()
    assert [number for number, _ in desk.fates] == [f"m{number:04}" for number in range(1, 61)]
    assert desk.windows == [10, 1, 10]


def test_a_message_that_may_be_committed_is_left_alone(monkeypatch):
    def handle(message):
        transaction = desk.transaction().begin()
        transaction.ack(message)
        transaction.end("unknown")  # COMMIT had no answer
        raise NO

    desk = Desk(monkeypatch, handle).put(1)
    desk.run()
    assert (len(desk.calls), desk.pauses) == (1, [])
    assert "NACK" not in [frame.command for frame in desk.frames]


def test_a_transaction_that_was_left_open_is_aborted_before_the_next_call(monkeypatch):
    def handle(message):
        transaction = desk.transaction().begin()
        transaction.send("/queue/b", b"x")
        transaction.ack(message)
        if len(desk.calls) == 1:
            raise NO
        transaction.commit()

    desk = Desk(monkeypatch, handle).put(1)
    desk.run()
    commands = [frame.command for frame in desk.frames if frame.get("transaction") is not None]
    assert commands == ["BEGIN", "SEND", "ACK", "ABORT", "BEGIN", "SEND", "ACK", "COMMIT"]


@pytest.mark.parametrize(
    ("options", "fates", "calls"),
    [
        *(({"on_error": "nack"}, ["NACK false"], 6), ({"on_error": "discard"}, ["NACK false"], 6)),
        *(({"on_error": "ack"}, ["ACK"], 6), ({"on_error": "ignore"}, [], 1), ({"on_error": "stop"}, [], 1)),
        ({"on_error": lambda message, error: {"6: no": "ack"}[f"{message.attempt}: {error}"]}, ["ACK"], 6),
        *(({"attempts": 1}, ["NACK"], 1), ({"attempts": 1, "on_error": lambda *_: "no such policy"}, [], 1)),
        ({"attempts": 1, "on_error": lambda *_: 1 / 0}, [], 1),
    ],
)
def test_a_policy_acts_when_a_message_is_given_up(monkeypatch, options, fates, calls):
    desk = down(monkeypatch, bad={"m0001"}, **options).put(1).run()
    assert (desk.fates, len(desk.calls)) == ([("m0001", fate) for fate in fates], calls)
    assert desk.subscription.closed is (options.get("on_error") == "stop")


@pytest.mark.parametrize(
    ("error", "options", "said"),
    [
        (ValueError, {"ack": "auto", "on_error": "nack"}, "on_error='nack' has no effect with ack='auto'"),
        (ValueError, {"ack": "auto", "on_error": print}, "on_error=.* has no effect with ack='auto'"),
        (LocalProtocolError, {"on_error": "requeue"}, "on_error='requeue': the NACK of artemis cannot requeue"),
    ],
)
def test_a_wrong_option_is_named(error, options, said):
    with pytest.raises(error, match=f"^{said}"):
        Handling(print, **options).checked(BROKERS["artemis"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    outcomes=st.lists(
        st.sampled_from(["ok", "fail", "fail", "json", "settle", "refuse", "lose", "lose ok"]), max_size=60
    ),
    pauses=st.lists(st.sampled_from(["", "", "lose", "drain"]), max_size=20),
    attempts=st.integers(1, 7),
    prefetch=st.integers(1, 5),
)
def test_each_message_is_acknowledged_given_up_or_left_and_in_order(monkeypatch, outcomes, pauses, attempts, prefetch):
    steps, breaks, failures = iter(outcomes), iter(pauses), Counter()

    def handle(message):
        step = next(steps, "ok")
        if "lose" in step:
            desk.lose()
        if step in ("settle", "refuse"):
            {"settle": message.ack, "refuse": message.nack}[step]()
        if "ok" not in step:
            failures[message.id] += 1
            raise BAD if step == "json" else ValueError(step)

    desk = Desk(monkeypatch, handle, attempts=attempts, prefetch=prefetch)
    acts = {"": lambda: None, "lose": desk.lose, "drain": lambda: desk.core.drain(0.0)}
    desk.at_pause = lambda: acts[next(breaks, "")]()
    desk.put(8).run()
    settled = [number for number, _ in desk.fates]
    assert settled == sorted(set(settled))  # once each, in order
    assert sorted(settled + desk.left()) == [f"m{number:04}" for number in range(1, 9)]
    assert not desk.left() or desk.subscription.deaf
    lost = sum("lose" in step for step in outcomes) if attempts == 1 else 0  # then the broker alone counts
    assert max(failures.values(), default=0) <= attempts + lost
    if desk.subscription.deaf:  # what was left does not keep a drain waiting
        assert desk.subscription.open == 0


# ---- how each broker gives a message up ----
def message_of(source="/queue/a", persistent=True, body=b"x", more=(), **options):
    subscription = Subscription(source, id="s1", ack=options.pop("ack", "client-individual"), **options)
    pairs = [("destination", source), ("message-id", "m1"), ("subscription", "s1"), ("ack", "m1"), *more]
    subscription.seq = subscription.open = 1
    return BaseMessage(Frame("MESSAGE", [*pairs, *[("persistent", "true")] * persistent], body), subscription, 1, 1)


#: Broker -> how it gives up a persistent message of a queue, another one, and one of a topic; "" if there is no way.
TABLE = {
    **{"ours": ("NACK", "NACK", "NACK"), "ours as artemis": ("DLQ", "DLQ", "DLQ")},
    **{"activemq": ("NACK", "/queue/ActiveMQ.DLQ", "/queue/ActiveMQ.DLQ"), "artemis": ("DLQ", "DLQ", "DLQ")},
    "rabbitmq": ("/queue/DLQ.a", "/queue/DLQ.a", "/queue/DLQ.a"),
    **dict.fromkeys(("vertx", "gostomp", "hidden"), ("", "", "")),
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
        *(("ours", "/queue/a", "/queue/a"), ("rabbitmq", "/queue/a", "/amq/queue/a")),
        *(("activemq", "/queue/a", "a"), ("activemq", "/queue/b,/queue/a", "/queue/a")),
        *(("activemq", "/queue/a?consumer.priority=1", "/queue/a"), ("artemis", "a::a", "a")),
        ("hidden", "/queue/a::b", "a"),
    ],
)
def test_a_dead_letter_queue_that_is_the_source_is_refused(broker, source, dead_letter):
    row = row_of("auto", SERVERS[broker])
    with pytest.raises(ValueError, match="is the same queue"):
        Subscription(source, id="s1", dead_letter=dead_letter).check(row, None)
    with pytest.raises(ValueError, match="dead_letter is empty"):
        Subscription(source, id="s1", dead_letter="")


def test_a_copy_says_where_it_comes_from_and_takes_no_effect_twice():
    row = BROKERS["artemis"]
    more = [("n", "1"), ("expires", "9"), ("delay", "5"), ("destination-type", "MULTICAST"), ("receipt", "r1")]
    message = message_of(more=[*more, ("correlation-id", "c"), ("idempotency-key", "k"), ("priority", "7")])
    copy = dict(copy_of(message, row, "DLQ", ValueError("no\nsuch"), None))
    origin = {"original-destination": "/queue/a", "original-message-id": "m1"}
    kept = {"n": "1", "correlation-id": "c", "priority": "7", "persistent": "true"}
    renamed = {"original-expires": "9", "original-delay": "5", "original-idempotency-key": "k"}
    own = {"destination": "DLQ", "destination-type": "ANYCAST", "dead-letter-reason": "ValueError('no\\nsuch')"}
    assert copy == {**own, **origin, **kept, **renamed}


def test_the_key_of_a_copy_is_that_of_the_message_and_its_consumers():
    row = BROKERS["stompcodec"]

    def key(message, to="/queue/dead", client_id=None):
        return dict(copy_of(message, row, to, ValueError(), client_id)).get("idempotency-key")

    assert key(message_of()) == key(message_of(more=[("redelivered", "true")])) is not None
    others = [key(message_of("/queue/b")), key(message_of(), "/queue/c")]
    others += [key(message_of("/topic/a", durable=name), client_id="me") for name in ("one", "two")]
    assert len({key(message_of()), *others}) == 5
    assert key(message_of("/topic/a")) is None  # no later delivery is of the same message


class Letters(Desk):
    """A desk whose broker takes or refuses copies: `answers` are "yes", "no" (ERROR), "lost", "silent", and "here" for
    a copy that fails before it is sent."""

    def __init__(self, monkeypatch, handler, answers, persistent=True, *, lasting=False, **options):
        self.answers, self.letters, self.persistent = deque(answers), [], persistent
        self.lasting, self.keys = lasting, {}  # message-ids of Artemis, with the same number in each delivery
        self.bad, self.wrong, self.sent, self.open = (), [], None, set()
        super().__init__(monkeypatch, handler, **options)
        self._copy, self.link.copy = self.link.copy, self._fail_or_copy

    def _fail_or_copy(self, *given):
        if self.answers and self.answers[0] == "here":
            self.answers.popleft()
            raise OSError("no room")
        return self._copy(*given)

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
            raise BAD

    options = {"server": SERVERS[broker], "attempts": attempts, "prefetch": 3}
    options["lasting"] = lasting and broker == "artemis"
    desk = Letters(monkeypatch, handle, answers, persistent, **options)
    desk.bad = {f"m{number:04}" for number in bad}
    desk.subscription.dead_letter = dead_letter
    desk.at_pause = lambda: desk.lose() if len(desk.pauses) % 4 == 0 else None
    desk.put(6).run(until=3600.0)
    fates = dict(desk.fates)
    assert desk.wrong == []
    if desk.work.stopped:  # the broker has no place for dead letters, and the error says so
        assert dead_letter is None
        assert desk.subscription.closed
        assert isinstance(desk.subscription.error, json.JSONDecodeError)
        return
    assert set(fates) == {f"m{number:04}" for number in range(1, 7)}
    made = {number for number, fate in fates.items() if fate.startswith("NACK")}
    assert made | set(desk.letters) == desk.bad
    assert made <= desk.bad
    assert not made or dead_letter is None or ((broker.startswith("ours") or broker == "rabbitmq") and attempts == 1)


# ---- copies and refusals, with both shells ----
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
    told = [(copy.body, copy.get("content-length"), copy.get("content-type")) for copy in copies]
    assert told == [(large.encode(), None, None), (bytes(5000), "5000", None)]


@pytest.mark.parametrize(("how", "body"), [("no receipt", b"1"), ("refused", b"1"), ("no receipt", bytes(5000))])
@pytest.mark.usefixtures("long_pauses")
def test_a_copy_without_receipt_leaves_the_message_and_pauses_the_subscription(shell, artemis, how, body, monkeypatch):
    artemis.rules["SEND"] = lambda side, frame: how == "refused" and (side.error(frame), side.close())
    seen, said = Seen(), Seen()
    monkeypatch.setattr(logging.getLogger("stompcodec.client"), "error", lambda words, *_, **__: said.add(words))
    client = shell.connect(artemis.url, receipt_timeout=0.05, close_timeout=0.1, stream_over=4096)
    handler = shell.handler(lambda message: seen.add(message.size) or 1 / 0)
    subscription = client.subscribe("/queue/a", handler=handler, attempts=1, timeout=patience(30))
    artemis.do(lambda: artemis.side().deliver("s1", body, count=2))
    assert "stays unsettled" in said.wait(2)[1]
    client.close()
    subscription.join(patience(10))
    assert seen.bodies == [len(body)]
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
            raise NO
        return super().receive(event)


def test_what_middleware_refuses_is_given_up_where_nack_would_drop_it(shell, artemis):
    client = shell.connect(artemis.url, middleware=[Refusing()])
    subscription = client.subscribe("/queue/a", ack="client-individual")
    artemis.deliver("s1", b"2")
    client.ping()  # it is there
    assert subscription.get(0.2) is None
    artemis.wait(lambda peer: peer.got("ACK"))
    assert [frame.get("destination") for frame in artemis.got("SEND")] == ["DLQ"]
    assert not artemis.got("NACK")


@pytest.mark.parametrize(("server", "refuses"), [("artemis", True), ("ours", True), ("vertx", False)])
def test_what_failed_is_not_settled_by_a_later_ack_in_mode_client(shell, server, refuses):
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


# ---- pauses, with both shells ----
@pytest.fixture
def pauses(monkeypatch):
    made = Seen()

    async def rest(_pauses, seconds, is_over):
        made.add(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(Pauses, "rest", lambda _pauses, seconds, is_over: made.add(seconds))
    monkeypatch.setattr(AsyncPauses, "rest", rest)
    return made


@pytest.fixture
def long_pauses(monkeypatch):
    begun = Seen()
    monkeypatch.setattr(Retries, "pause", lambda _retries, *_: begun.add(b"") or patience(600.0))
    return begun


@pytest.mark.parametrize(("server", "windows"), [("rabbitmq", ["100", "100"]), ("hidden", ["100"])])
def test_a_window_stays_where_its_messages_would_not_come_again(shell, pauses, server, windows, monkeypatch):
    """RabbitMQ keeps them for the connection. Behind the outage it gets the window that a new connection lacks."""
    monkeypatch.setattr(Retries, "pause", lambda _retries, *_: 30.0)
    with Peer(server=SERVERS[server]) as peer:
        client, seen = shell.connect(peer.url), Seen()
        client.send("/queue/a", b"x")
        client.subscribe("/queue/a", handler=seen.handler(shell, lambda body: len(seen.bodies) < 3))
        peer.wait(lambda peer: peer.got("ACK"))
        peer.wait(lambda peer: len(peer.got("SUBSCRIBE")) == len(windows))
        assert [frame.get("prefetch-count") for frame in peer.got("SUBSCRIBE")] == windows


@pytest.mark.parametrize("options", [{}, {"key": lambda message: message.body}])
def test_only_the_worker_of_a_message_pauses(shell, peer, long_pauses, options):
    client, seen = shell.connect(peer.url, close_timeout=0.1), Seen()
    client.subscribe("/queue/a", handler=seen.handler(shell, b"0".__eq__), concurrency=2, **options)
    peer.deliver("s1", b"0")
    long_pauses.wait(1)
    others = [b"%d" % number for number in range(1, 20) if hash(b"%d" % number) % 2 != hash(b"0") % 2 or not options]
    for body in others:
        peer.deliver("s1", body)
    assert seen.wait(1 + len(others))[1:] == others
    peer.wait(lambda peer: len(peer.got("ACK")) == len(others))


@pytest.mark.parametrize("end", ["unsubscribe", "close", "drain", "lose"])
def test_the_end_does_not_wait_for_a_pause_and_leaves_the_message(shell, peer, long_pauses, end):
    client, seen = shell.connect(peer.url, close_timeout=patience(30)), Seen()
    subscription = client.subscribe("/queue/a", handler=seen.handler(shell, bool))
    peer.deliver("s1", b"bad")
    long_pauses.wait(1)
    if end == "lose":
        peer.cut()
    {"unsubscribe": subscription.unsubscribe, "drain": client.drain}.get(end, client.close)()
    subscription.join(patience(30))
    assert seen.bodies == [b"bad"]
    assert not peer.got("ACK") + peer.got("NACK")


def test_messages_without_ack_header_count_as_acknowledged_which_is_said_once(shell, peer, pauses, caplog):
    client, seen = shell.connect(peer.url), Seen()
    with caplog.at_level(logging.WARNING, "stompcodec.client"):
        client.subscribe("/queue/a", handler=seen.handler(shell, b"bad".__eq__))
        for number, body in enumerate((b"1", b"bad", b"2")):
            bare = {"subscription": "s1", "message-id": f"b{number}", "destination": "/queue/a"}
            peer.do(lambda bare=bare, body=body: peer.side().send("MESSAGE", bare, body))
        assert seen.wait(8) == [b"1", *[b"bad"] * 6, b"2"]
        client.drain(patience(10))
    assert not peer.got("ACK") + peer.got("NACK")
    assert caplog.text.count("without an ack header") == 1
    assert "not settled" not in caplog.text
