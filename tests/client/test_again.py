"""A handler that fails is called again with the same message, in place, after pauses; then the message is given up."""

import asyncio
import json
import logging
from collections import Counter, deque

import pytest
from client.broker import BrokerThread
from client.desk import Desk
from client.peer import Peer
from client.shells import Seen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import patience

from stompcodec.client.aio.waiting import AsyncPauses
from stompcodec.client.dialects import BROKERS
from stompcodec.client.handlers import ATTEMPTS, Handling, Retries
from stompcodec.client.sync.waiting import Pauses
from stompcodec.errors import LocalProtocolError

LONE = [0.1, 0.2, 0.4, 0.8, 1.6]
#: What becomes of a transient message. The copy to a queue of dead letters comes before the ACK.
GIVEN_UP = {"stompcodec/1": "NACK false", "ActiveMQ/5.17.2": "ACK", "RabbitMQ/3.10.8": "ACK"}


@pytest.fixture(autouse=True)
def quiet():
    logging.getLogger("stompcodec.client").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("stompcodec.client").setLevel(logging.NOTSET)


class Down:
    """A database that is away at times, by the clock of a desk; `bad` are messages that always fail."""

    def __init__(self, monkeypatch, *, away=(), bad=(), error=ValueError, **options):
        self.away, self.bad, self.error = away, bad, error
        self.desk = Desk(monkeypatch, self.handle, **options)

    def handle(self, message):
        if message.id in self.bad or any(start <= self.desk.clock < end for start, end in self.away):
            raise self.error("no")


def dead(desk):
    return [number for number, fate in desk.fates if fate != "ACK"]


# ---- how often, and when ----


@pytest.mark.parametrize("server", GIVEN_UP)
def test_a_lone_bad_message_costs_three_seconds_and_is_given_up_after_six_calls(monkeypatch, server):
    desk = Down(monkeypatch, bad={"m0002"}, server=server).desk.put(3).run()
    assert desk.fates == [("m0001", "ACK"), ("m0002", GIVEN_UP[server]), ("m0003", "ACK")]
    assert desk.calls == [("m0001", 1), *(("m0002", attempt) for attempt in range(1, 7)), ("m0003", 1)]
    assert desk.pauses == LONE


def test_one_that_is_away_for_ten_minutes_makes_a_handful_and_holds_no_window(monkeypatch):
    desk = Down(monkeypatch, away=[(0.0, 600.0)], prefetch=50).desk.put(200).run()
    assert [number for number, _ in desk.fates] == [f"m{number:04}" for number in range(1, 201)]
    assert 0 < len(dead(desk)) <= 6
    assert max(desk.pauses) == 30.0
    assert desk.windows == [50, 1, 50]  # again its own after the first success
    assert max(Counter(number for number, _ in desk.calls).values()) == ATTEMPTS


class Behind(Desk):
    """As ActiveMQ: what comes back goes behind what came back before, and both before all others."""

    def __init__(self, *args, **options):
        self._back = deque()
        super().__init__(*args, **options)

    def _return(self):
        self._back.extend((number, True) for number in sorted(self._unacked))
        self._unacked.clear()
        self._window = 0

    def _deliver(self):
        while self._back and len(self._unacked) < self._window:
            self._queue.appendleft(self._back.popleft())
            window, self._window = self._window, len(self._unacked) + 1
            super()._deliver()
            self._window = window
        super()._deliver()


def test_the_order_is_kept_when_the_window_grows_again(monkeypatch):
    def handle(message):
        if desk.clock < 100.0:
            raise ValueError("no")

    desk = Behind(monkeypatch, handle, server="ActiveMQ/5.18.6", prefetch=10).put(60)
    desk.run()
    handled = [number for number, _ in desk.fates]
    assert handled == sorted(handled)
    assert len(handled) == 60
    assert desk.windows == [10, 1, 10]


# ---- not called again ----


def test_a_message_whose_connection_has_ended_comes_again_with_the_calls_that_are_left(monkeypatch):
    desk = Down(monkeypatch, bad={"m0001"}).desk.put(2)
    lost = iter([None, desk.lose])
    desk.at_pause = lambda: (next(lost, None) or (lambda: None))()
    desk.run()
    assert desk.fates == [("m0001", "NACK false"), ("m0002", "ACK")]
    assert desk.calls == [*(("m0001", attempt) for attempt in (1, 2, 2, 3, 4, 5)), ("m0002", 2)]


def test_a_message_that_may_be_committed_is_left_alone(monkeypatch):
    def handle(message):
        transaction = desk.transaction().begin()
        transaction.ack(message)
        transaction.end("unknown")  # COMMIT had no answer
        raise ValueError("no")

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
            raise ValueError("no")
        transaction.commit()

    desk = Desk(monkeypatch, handle).put(1)
    desk.run()
    commands = [frame.command for frame in desk.frames if frame.get("transaction") is not None]
    assert commands == ["BEGIN", "SEND", "ACK", "ABORT", "BEGIN", "SEND", "ACK", "COMMIT"]


# ---- policies ----


@pytest.mark.parametrize(
    ("options", "fates", "calls"),
    [
        ({"on_error": "nack"}, ["NACK false"], 6),
        ({"on_error": "discard"}, ["NACK false"], 6),
        ({"on_error": "ack"}, ["ACK"], 6),
        ({"on_error": "ignore"}, [], 1),
        ({"on_error": "stop"}, [], 1),
        ({"on_error": lambda message, error: {"6: no": "ack"}[f"{message.attempt}: {error}"]}, ["ACK"], 6),
        ({"attempts": 1}, ["NACK"], 1),
    ],
)
def test_a_policy_acts_when_a_message_is_given_up(monkeypatch, options, fates, calls):
    desk = Down(monkeypatch, bad={"m0001"}, **options).desk.put(1).run()
    assert (desk.fates, len(desk.calls)) == ([("m0001", fate) for fate in fates], calls)
    assert desk.subscription.closed is (options.get("on_error") == "stop")


@pytest.mark.parametrize(
    ("error", "options", "said"),
    [
        (ValueError, {"attempts": 0}, "attempts is 0"),
        (TypeError, {"attempts": 1.5}, r"attempts is 1\.5"),
        (TypeError, {"attempts": None}, "attempts is None"),
        (TypeError, {"give_up": "ValueError"}, "give_up is "),
        (TypeError, {"give_up": (ValueError("x"),)}, "give_up is "),
        (TypeError, {"give_up": KeyboardInterrupt}, "give_up is "),
        (ValueError, {"ack": "auto", "on_error": "nack"}, "on_error='nack' has no effect with ack='auto'"),
        (ValueError, {"ack": "auto", "on_error": "stop"}, "on_error='stop' has no effect with ack='auto'"),
        (ValueError, {"ack": "auto", "on_error": print}, "on_error=.* has no effect with ack='auto'"),
        (LocalProtocolError, {"on_error": "requeue"}, "on_error='requeue': the NACK of artemis cannot requeue"),
    ],
)
def test_a_wrong_option_is_named(error, options, said):
    with pytest.raises(error, match=f"^{said}"):
        Handling(print, **options).checked(BROKERS["artemis"])


def test_automatic_messages_are_handled_again_too(monkeypatch):
    desk = Down(monkeypatch, away=[(0.0, 2.0)], ack="auto").desk.put(2).run()
    assert [number for number, _ in desk.calls] == ["m0001"] * 6 + ["m0002"]
    assert desk.fates == []


def test_it_is_said_once_with_the_exception_and_once_with_the_count(monkeypatch, caplog):
    desk = Down(monkeypatch, bad={"m0001", "m0002"}).desk.put(3)
    with caplog.at_level(logging.WARNING, "stompcodec.client"):
        desk.run()
    words = [(record.levelname, record.exc_info is not None, record.getMessage()) for record in caplog.records]
    assert [each[:2] for each in words] == [("WARNING", True), ("ERROR", False), ("WARNING", False), ("ERROR", False)]
    assert "message m0001 is handled again in 0.1 s, 6 times in all" in words[0][2]
    assert "failed 6 times: message m0001 is given up: ValueError('no')" in words[1][2]


# ---- whatever happens ----


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
        if step == "settle":
            message.ack()
        elif step == "refuse":
            message.nack()
        if "ok" not in step:
            failures[message.id] += 1
            raise json.JSONDecodeError("bad", "", 0) if step == "json" else ValueError(step)

    def at_pause():
        step = next(breaks, "")
        if step == "lose":
            desk.lose()
        elif step == "drain":
            desk.core.drain(0.0)

    desk = Desk(monkeypatch, handle, attempts=attempts, prefetch=prefetch)
    desk.at_pause = at_pause
    desk.put(8).run()
    settled = [number for number, _ in desk.fates]
    assert settled == sorted(set(settled))  # once each, in order
    assert sorted(settled + desk.left()) == [f"m{number:04}" for number in range(1, 9)]
    assert not desk.left() or desk.subscription.deaf
    assert max(failures.values(), default=0) <= attempts
    if desk.subscription.deaf:  # what was left does not keep a drain waiting
        assert desk.subscription.open == 0


# ---- both shells ----


@pytest.fixture
def pauses(monkeypatch):
    """The pauses, which take no time."""
    made = Seen()

    async def rest(_pauses, seconds, is_over):
        made.add(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(Pauses, "rest", lambda _pauses, seconds, is_over: made.add(seconds))
    monkeypatch.setattr(AsyncPauses, "rest", rest)
    return made


@pytest.fixture
def long_pauses(monkeypatch):
    """Each pause lasts longer than any test."""
    begun = Seen()
    monkeypatch.setattr(Retries, "pause", lambda _retries, before: begun.add(b"") or patience(600.0))
    return begun


@pytest.fixture(scope="module")
def ours():
    with BrokerThread() as broker:
        yield broker


def failing(shell, seen, *bad):
    def handle(message):
        seen.add(message.body)
        if message.body in bad:
            raise ValueError("no")

    return shell.handler(handle)


def test_our_broker_makes_a_dead_letter_of_it_after_six_calls_in_all(shell, ours, pauses):
    client, seen = shell.connect(ours.url), Seen()
    queue = f"/queue/six-{shell.name}"
    client.send_many([(queue, b"1"), (queue, b"bad"), (queue, b"2")])
    client.subscribe(queue, handler=failing(shell, seen, b"bad"))
    assert seen.wait(8) == [b"1", *[b"bad"] * 6, b"2"]
    letter = client.subscribe(f"/queue/DLQ.six-{shell.name}").get(patience(10))
    assert (letter.body, letter.headers["dead-letter-reason"]) == (b"bad", "rejected")
    assert pauses.bodies == [0.1, 0.2, 0.4, 0.8, 1.6]


def failing_twice(shell, calls):
    def handle(message):
        calls.add(message.body)
        if len(calls.bodies) < 3:
            raise ValueError("no")

    return shell.handler(handle)


@pytest.mark.parametrize(("server", "windows"), [("RabbitMQ/3.10.8", ["100", "100"]), ("other/1", ["100"])])
def test_a_window_stays_where_its_messages_would_not_come_again(shell, pauses, server, windows, monkeypatch):
    """RabbitMQ keeps them for the connection. Behind the outage it gets the window that a new connection lacks."""
    monkeypatch.setattr(Retries, "pause", lambda _retries, before: 30.0)
    with Peer(server=server) as peer:
        client, calls = shell.connect(peer.url), Seen()
        client.send("/queue/a", b"x")
        client.subscribe("/queue/a", handler=failing_twice(shell, calls))
        peer.wait(lambda peer: peer.got("ACK"))
        peer.wait(lambda peer: len(peer.got("SUBSCRIBE")) == len(windows))
        assert [frame.get("prefetch-count") for frame in peer.got("SUBSCRIBE")] == windows


# ---- what pauses, and what goes on ----


@pytest.mark.parametrize("options", [{}, {"key": lambda message: message.body}])
def test_only_the_worker_of_a_message_pauses(shell, peer, long_pauses, options):
    client, seen = shell.connect(peer.url, close_timeout=0.1), Seen()
    handler = failing(shell, seen, b"0")
    client.subscribe("/queue/a", handler=handler, concurrency=2, **options)
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
    subscription = client.subscribe("/queue/a", handler=failing(shell, seen, b"bad"))
    peer.deliver("s1", b"bad")
    long_pauses.wait(1)
    if end == "lose":
        peer.cut()
        client.close()
    else:
        {"unsubscribe": subscription.unsubscribe, "close": client.close, "drain": client.drain}[end]()
    subscription.join(patience(30))
    assert seen.bodies == [b"bad"]
    assert not peer.got("ACK") + peer.got("NACK")


# ---- the defaults of `subscribe` ----


def bare(peer, *bodies):
    """Messages without an ack header, whatever the mode of the subscription."""
    side = peer.side()
    for number, body in enumerate(bodies):
        more = {"subscription": "s1", "message-id": f"b{number}", "destination": "/queue/a"}
        peer.do(lambda more=more, body=body: side.send("MESSAGE", more, body))


def test_messages_without_ack_header_count_as_acknowledged_which_is_said_once(shell, peer, pauses, caplog):
    client, seen = shell.connect(peer.url), Seen()
    with caplog.at_level(logging.WARNING, "stompcodec.client"):
        client.subscribe("/queue/a", handler=failing(shell, seen, b"bad"))
        bare(peer, b"1", b"bad", b"2")
        assert seen.wait(8) == [b"1", *[b"bad"] * 6, b"2"]
        client.drain(patience(10))
    assert not peer.got("ACK") + peer.got("NACK")
    assert caplog.text.count("without an ack header") == 1
    assert "not settled" not in caplog.text
