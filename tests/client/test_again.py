"""A handler that fails is called again with the same message, in place, after pauses; then the message is given up."""

import json
import logging
from collections import Counter, deque

import pytest
from client.desk import Desk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stompcodec.client.handlers import ATTEMPTS
from stompcodec.errors import ContentError

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


def test_a_database_that_is_away_for_two_seconds_makes_no_dead_letter(monkeypatch):
    desk = Down(monkeypatch, away=[(0.0, 2.0), (10.0, 12.0)]).desk.put(50)
    desk.run()
    desk.clock = 10.0
    desk.put(50).run()
    assert (len(desk.fates), dead(desk)) == (100, [])


def test_one_that_is_away_for_ten_minutes_makes_a_handful_and_holds_no_window(monkeypatch):
    desk = Down(monkeypatch, away=[(0.0, 600.0)], prefetch=50).desk.put(200).run()
    assert [number for number, _ in desk.fates] == [f"m{number:04}" for number in range(1, 201)]
    assert 0 < len(dead(desk)) <= 6
    assert max(desk.pauses) == 30.0
    assert desk.windows == [50, 1, 50]  # again its own after the first success
    assert max(Counter(number for number, _ in desk.calls).values()) == ATTEMPTS


def test_one_in_a_hundred_with_bad_json_takes_less_than_ten_seconds_of_a_thousand(monkeypatch):
    def handle(message):
        json.loads("{" if message.id.endswith("50") else "{}")

    desk = Desk(monkeypatch, handle).put(1000).run()
    assert (len(desk.fates), len(dead(desk)), desk.clock) == (1000, 10, 0.0)


def test_one_in_a_hundred_that_raises_takes_less_than_a_minute_of_a_thousand(monkeypatch):
    bad = {f"m{number:04}" for number in range(50, 1001, 100)}
    desk = Down(monkeypatch, bad=bad).desk.put(1000).run()
    assert (len(desk.fates), set(dead(desk))) == (1000, bad)
    assert desk.clock < 60


@pytest.mark.parametrize("error", [ContentError, lambda text: UnicodeDecodeError("utf-8", b"", 0, 1, text), KeyError])
def test_what_another_call_would_raise_again_is_given_up_at_once(monkeypatch, error):
    options = {"give_up": KeyError} if error is KeyError else {}
    desk = Down(monkeypatch, bad={"m0001"}, error=error, **options).desk.put(2).run()
    assert (desk.calls, dead(desk), desk.pauses) == ([("m0001", 1), ("m0002", 1)], ["m0001"], [])


def test_a_dead_letter_that_its_broker_keeps_is_no_busy_loop(monkeypatch):
    """Our broker requeues what is refused in a dead letter queue."""
    down = Down(monkeypatch, bad={"m0001"}, destination="/queue/DLQ.a")
    down.desk.requeues = True
    down.desk.put(1).run(until=600.0)
    assert len(down.desk.calls) < 50


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


def test_a_message_that_the_handler_has_settled_is_left_alone(monkeypatch):
    def handle(message):
        message.nack(requeue=True)
        raise ValueError("no")

    desk = Desk(monkeypatch, handle).put(2).run()
    assert (desk.calls, desk.pauses) == ([("m0001", 1), ("m0002", 1)], [])
    assert desk.fates == [("m0001", "NACK"), ("m0002", "NACK")]


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


def test_a_transaction_of_another_part_of_the_program_stays_open(monkeypatch):
    desk = Down(monkeypatch, bad={"m0001"}).desk
    transaction = desk.transaction().begin()
    desk.put(1).run()
    assert transaction.state == "open"


# ---- policies ----


@pytest.mark.parametrize(
    ("policy", "fates", "calls"),
    [
        ("nack", [("m0001", "NACK false")], 6),
        ("discard", [("m0001", "NACK false")], 6),
        ("ack", [("m0001", "ACK")], 6),
        ("ignore", [], 1),
        ("stop", [], 1),
    ],
)
def test_a_policy_acts_when_a_message_is_given_up(monkeypatch, policy, fates, calls):
    desk = Down(monkeypatch, bad={"m0001"}, on_error=policy).desk.put(1).run()
    assert (desk.fates, len(desk.calls)) == (fates, calls)
    assert desk.subscription.closed is (policy == "stop")


def test_a_function_is_asked_once_with_the_last_error(monkeypatch):
    asked = []

    def on_error(message, error):
        asked.append((message.attempt, str(error)))
        return "ack"

    desk = Down(monkeypatch, bad={"m0001"}, on_error=on_error).desk.put(1).run()
    assert asked == [(6, "no")]
    assert desk.fates == [("m0001", "ACK")]


def test_with_one_attempt_the_broker_is_asked_for_the_next_one(monkeypatch):
    desk = Down(monkeypatch, bad={"m0001"}, attempts=1).desk.put(1).run()
    assert (desk.fates, desk.pauses) == ([("m0001", "NACK")], [])


def test_earlier_messages_are_acknowledged_before_the_first_pause(monkeypatch):
    desk = Down(monkeypatch, bad={"m0002"}, ack="client").desk
    found = []
    desk.at_pause = lambda: found.append(list(desk.fates))
    desk.put(3).run()
    assert found[0] == [("m0001", "ACK")]


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
