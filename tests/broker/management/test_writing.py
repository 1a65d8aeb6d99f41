"""Answers over STOMP are written without dicts for rows: the bytes are those that `json` writes of the answer."""

import json
from collections.abc import Generator
from typing import Any

import pytest
from broker.management.managing import Managed

from stompcodec.broker.loop_quota import Line, LoopQuota, Work
from stompcodec.broker.management import management as writing
from stompcodec.broker.management.management import Writer, named
from stompcodec.broker.management.questions import Clock, sort_key
from stompcodec.broker.management.schema import MOVING, OF_QUEUE, QUESTIONS, REQUESTS, ROWS_AT_ONCE, SORTS, Asker

NAMES = ["/queue/%s", '/queue/"\\', "/queue/ä\u2028\U0001f600", "/queue/a\nb", "/topic/a%", "/queue/" + "x" * 3000]
ROW = ("/queue/a", "queue", None, *(0 for _ in OF_QUEUE[:-MOVING]), None, None, None)


@pytest.fixture
def bench() -> Managed:
    bench = Managed()
    sender, taker = bench.peer(), bench.peer(connect=False)
    taker.connect(client_id="c%")
    for name in NAMES:
        sender.put(name, b"%d\n", priority="7")
    taker.subscribe("/queue/%s", id="1%", ack="client", prefetch_count="1", selector="n > 1 OR TRUE")
    taker.subscribe("/topic/a%", id="2", durable_subscription_name='d"%')
    taker.subscribe("/temp-queue/mine", id="3")
    sender.send("BEGIN", transaction="t%")
    return bench


def both(bench: Managed, request: str, **fields: Any) -> tuple[bytes, bytes]:
    answers = []

    def steps() -> Generator[Line, None, None]:
        asker = Asker(bench.broker.virtual_host("/"), "a test")
        answer = yield from bench.management.answering(request, fields, asker)
        answers.append((yield from bench.over_stomp._writer.json(answer)))
        answers.append(json.dumps(named(answer), separators=(",", ":")).encode())

    Work(steps()).take_turn(bench.now)
    bench.turn()
    return answers[0], answers[1]


@pytest.mark.parametrize("question", [each.name for each in QUESTIONS])
def test_the_bytes_are_those_of_json(bench: Managed, question: str) -> None:
    fields = {"destination": NAMES[1]} if question == "messages" else {}
    for seconds in (0.0, 2.0, 2.0):  # the texts of rows are kept from the first time on
        bench.wait(seconds)
        found, wanted = both(bench, question, **fields)
        assert found == wanted
        assert not REQUESTS[question].is_list or b'"rows":[{' in found
    bench.peer().put("/queue/%s", b"x")
    found, wanted = both(bench, question, **fields)
    assert found == wanted
    assert both(bench, question, limit=0)[0].startswith(b'{"ask":"' + question.encode() + b'","time":')


def kept(writer: Writer) -> dict[tuple[Any, ...], str]:
    return writer._forms["destinations"]._kept


def written(writer: Writer, rows: list[tuple[Any, ...]]) -> int:
    """Write an answer with these rows, and return how many turns were left to others."""
    answer = {"ask": "destinations", "time": 1.5, "rows": rows, "next": None}
    found = []

    def steps() -> Generator[Line, None, None]:
        found.append((yield from writer.json(answer)))

    turns = len(list(steps()))
    assert found[0] == json.dumps(named(answer), separators=(",", ":")).encode()
    return turns


def test_what_is_kept_is_bounded_and_ends_when_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_MOST_KEPT", 10)
    bench = Managed()
    writer = bench.over_stomp._writer
    for number in range(100):
        written(writer, [(f"/queue/{number}", *ROW[1:]), ("/queue/" + "x" * 1024, *ROW[1:])])
        assert 0 < len(kept(writer)) <= 10
        assert all(len(text) <= 1024 for text in kept(writer).values())
    for _ in range(5):
        bench.wait(1.0)
    assert kept(writer)
    for _ in range(10):
        bench.wait(1.0)
    assert not kept(writer)


def test_many_rows_are_written_in_turns() -> None:
    rows = [(f"/queue/{number}", *ROW[1:]) for number in range(2 * ROWS_AT_ONCE)]
    assert written(Writer(LoopQuota()), rows) == 1
    assert written(Writer(LoopQuota()), rows[:ROWS_AT_ONCE]) == 0


@pytest.fixture(scope="module")
def numbered() -> Managed:
    bench, sender, taker, slow = Managed.with_peers(3)
    for number in range(1, 6):
        for _ in range(number):
            sender.put(f"/queue/{number}", b"x" * number)
    taker.subscribe("/queue/3", id="3", ack="client-individual", prefetch_count="2")
    taker.subscribe("/queue/5", id="5", ack="client-individual", prefetch_count="1")
    taker.subscribe("/topic/a", id="a")
    slow.subscribe("/topic/a", id="a", ack="client")
    slow.subscribe("/topic/b", id="b")
    for _ in range(3):
        sender.put("/topic/a", b"xyz")
    sender.put("/queue/late", b"x", AMQ_SCHEDULED_DELAY="100000")
    message = next(frame for frame in taker.inbox if frame.get("destination") == "/queue/5")
    taker.nack(message)
    return bench


@pytest.mark.parametrize("column", SORTS)
def test_a_key_is_what_the_row_says_and_the_highest_are_first_on_all_pages(numbered: Managed, column: str) -> None:
    bench = numbered
    for _ in range(3):  # the rates are known from the second time on
        host, now = bench.broker.virtual_host("/"), bench.broker.now
        rows = {row["destination"]: row for row in bench.result("destinations")}
        clock = Clock(now, bench.management.ages)
        for things in (host.queues, host.topics):
            for name, thing in things.items():
                assert sort_key(thing, column, clock) == (rows[name][column] or 0), (name, column)
        found = bench.result("destinations", sort=column, limit=3)
        values = [row[column] or 0 for row in found]
        assert values == sorted(values, reverse=True)
        assert sorted(row["destination"] for row in found) == sorted(rows)
        bench.now += 2.0
        bench.turn()
