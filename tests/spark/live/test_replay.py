"""The source with replay=broker: what docs/spark-semantics.md promises of it, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from patience import patience

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from spark.live_making import LiveBroker, Rows, publish, running, wait_for
from spark.read_back import ADMISSION

import stompcodec.client as stomp
from stompcodec.errors import ConnectionLostError
from stompcodec.spark.live.replay import (
    Numbered,
    ReplayError,
    ReplayReader,
    ReplayStreamReader,
    _browse,
    messages_of,
    numbered,
)
from stompcodec.spark.options.options import OptionError
from stompcodec.spark.options.replay import parse_replay
from stompcodec.spark.reading.schema import frame_schema
from stompcodec.testing.faults import FaultProxy

SCHEMA = "n int, pos long, spool string, `message-id` string, body binary"


@pytest.fixture(scope="module")
def broker():
    with LiveBroker() as broker:
        yield broker


def options(broker: LiveBroker, queue: str, **more: str) -> dict[str, str]:
    return {"url": broker.url, "destination": queue, "replay": "broker", **more}


def read(reader: ReplayReader | ReplayStreamReader, partitions: Any) -> list[dict[str, Any]]:
    """The rows of partitions, as dictionaries. No Spark is needed for that."""
    return [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]


# ---- the readers by themselves ----


def test_partitions_have_what_lies_between_two_numbers(broker, queue: str) -> None:
    publish(broker.url, queue, 30, body=b"\0x\n")
    reader = ReplayStreamReader(options(broker, queue, splits="4"), frame_schema())
    try:
        end = reader.latestOffset({}, reader.getDefaultReadLimit())
        rows = read(reader, reader.partitions({}, end))
        assert [row["pos"] for row in rows] == sorted({row["pos"] for row in rows})
        assert rows[-1]["pos"] == end[queue]
        assert [dict(row["headers"])["n"] for row in rows] == [str(number) for number in range(30)]
        assert {(row["spool"], row["body"], row["destination"]) for row in rows} == {(queue, b"\0x\n", queue)}
        middle = {queue: rows[11]["pos"]}
        first = read(reader, reader.partitions({}, middle))
        assert len(first) == 12
        assert first + read(reader, reader.partitions(middle, end)) == rows
        assert reader.partitions(end, end) == []
        assert broker.count(queue) == 30, "looking takes nothing out"
    finally:
        reader.stop()


def test_messages_leave_once_spark_is_done_with_them(broker, queue: str) -> None:
    publish(broker.url, queue, 10)
    reader = ReplayStreamReader(options(broker, queue), frame_schema())
    try:
        limit = reader.getDefaultReadLimit()
        end = reader.latestOffset({}, limit)
        assert broker.count(queue) == 10
        rows = read(reader, reader.partitions({}, end))
        publish(broker.url, queue, 5, first=10)
        later = reader.latestOffset({queue: rows[3]["pos"]}, limit)
        assert broker.count(queue) == 11
        assert reader.latestOffset(end, limit) == later
        assert broker.count(queue) == 5
        assert len(read(reader, reader.partitions(end, later))) == 5
        assert reader.latestOffset(later, limit) == later
        assert broker.count(queue) == 0
        assert reader.latestOffset(later, limit) == later, "an empty queue goes on with its numbers"
    finally:
        reader.stop()


def test_nothing_leaves_without_release(broker, queue: str) -> None:
    publish(broker.url, queue, 7)
    for _ in range(2):
        reader = ReplayStreamReader(options(broker, queue, release="false"), frame_schema())
        end = reader.latestOffset({}, reader.getDefaultReadLimit())
        assert len(read(reader, reader.partitions({}, end))) == 7
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
        reader.stop()
    assert broker.count(queue) == 7


def test_a_batch_reads_all_that_is_there_and_leaves_it(broker, queue: str) -> None:
    publish(broker.url, queue, 12)
    publish(broker.url, f"{queue}-2", 3)
    reader = ReplayReader(options(broker, f"{queue},{queue}-2"), frame_schema())
    rows = read(reader, reader.partitions())
    assert sorted(row["spool"] for row in rows) == [queue] * 12 + [f"{queue}-2"] * 3
    assert (broker.count(queue), broker.count(f"{queue}-2")) == (12, 3)


class _One:
    """A subscription that gives one message, again and again."""

    destination = "/queue/a"

    def __init__(self, message: Any) -> None:
        self.message = message

    def get(self, timeout: float) -> Any:
        return self.message


def test_a_broker_without_numbers_is_told(broker, queue: str) -> None:
    publish(broker.url, queue, 1)
    with stomp.connect(broker.url) as client, client.subscribe(queue) as subscription:
        plain = subscription.get(timeout=patience(10))
    with pytest.raises(ReplayError, match="needs stompcodec's own broker"):
        list(numbered(_One(plain), Numbered(queue, 0, 9), 0, 1.0))


def test_a_number_that_comes_twice_is_told(broker, queue: str) -> None:
    publish(broker.url, queue, 3)
    with stomp.connect(broker.url) as client, _browse(client, queue, "1") as subscription:
        message = subscription.get(timeout=patience(10))
    with pytest.raises(ReplayError, match="came after"):
        list(numbered(_One(message), Numbered(queue, 0, 2**40), 0, 1.0))


def test_a_broker_that_says_nothing_is_told() -> None:
    with pytest.raises(ReplayError, match=r"for 0\.5 s"):
        list(numbered(_One(None), Numbered("/queue/a", 0, 1), 0, 0.5))


def test_a_connection_that_breaks_is_made_again(broker, queue: str) -> None:
    """Cut in the middle of the messages, in both directions, and refused for a while."""
    publish(broker.url, queue, 300, body=b"x" * 2000)
    with FaultProxy(("127.0.0.1", broker.port)) as proxy:
        given = {**options(broker, queue), "url": f"stomp://127.0.0.1:{proxy.port}"}
        reader = ReplayStreamReader(given, frame_schema())
        try:
            end = reader.latestOffset({}, reader.getDefaultReadLimit())
            rows = []
            for number, octets in enumerate(messages_of(reader._options, Numbered(queue, 0, end[queue]))):
                rows.append(octets)
                if number in (50, 180):
                    proxy.cut()
            assert len(rows) == len(set(rows)) == 300
            proxy.cut()
            assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
            assert broker.count(queue) == 0
        finally:
            reader.stop()


def test_a_broker_that_stays_away_ends_the_query(broker, queue: str) -> None:
    publish(broker.url, queue, 1)
    with FaultProxy(("127.0.0.1", broker.port)) as proxy:
        proxy.rules.refuse = True
        given = {**options(broker, queue, timeout="300ms"), "url": f"stomp://127.0.0.1:{proxy.port}"}
        reader = ReplayStreamReader(given, frame_schema())
        with pytest.raises(ConnectionLostError):
            reader.latestOffset({}, reader.getDefaultReadLimit())
        with pytest.raises(ConnectionLostError):
            list(messages_of(reader._options, Numbered(queue, 0, 1)))


def test_options() -> None:
    good = {"url": "stomp://h", "destination": "/queue/a", "replay": "Broker"}
    assert parse_replay(good).splits == 1
    for name, value, what in (
        ("spoolDir", "/x", "unknown option"),
        ("maxBytesPerTrigger", "1m", "maxFramesPerTrigger"),
        ("timeout", "0", "more than 0"),
        ("passcode", "s3cr3t", "passcodeEnv"),
    ):
        with pytest.raises(OptionError, match=what) as caught:
            parse_replay({**good, name: value})
        assert "s3cr3t" not in str(caught.value)


# ---- Spark ----


def test_a_batch_that_failed_comes_again_as_it_was(spark, broker, queue: str, tmp_path: Path) -> None:
    publish(broker.url, queue, 20)
    sink, again = Rows(), Rows()
    sink.fail = True
    given = options(broker, queue)
    with running(spark, tmp_path, sink, given, schema=SCHEMA, spool=False) as query:
        wait_for(query.exception)
    assert len(sink.rows) == 20
    publish(broker.url, queue, 5, first=20)
    with running(spark, tmp_path, again, given, schema=SCHEMA, spool=False) as query:
        wait_for(lambda: len(again.rows) == 25, query)
        wait_for(lambda: broker.count(queue) == 0, query)
    assert again.rows[:20] == sink.rows
    assert again.column() == list(range(25))


@pytest.mark.slow
def test_each_message_once_over_restarts_of_query_and_broker(spark, tmp_path: Path) -> None:
    """availableNow, four times, with a broker that is stopped in between: what it has stored keeps its numbers."""
    sinks, first = [], 0
    for count in (40, 1, 0, 25):
        with LiveBroker(data=str(tmp_path / "data")) as broker:
            with stomp.connect(broker.url) as client:
                for number in range(first, first + count):
                    client.send("/queue/a", b"x", {"n": str(number), "persistent": "true"})
                client.ping()
            first += count
            sinks.append(Rows())
            given = options(broker, "/queue/a", maxFramesPerTrigger="16")
            with running(spark, tmp_path, sinks[-1], given, schema=SCHEMA, spool=False, availableNow=True) as query:
                assert query.awaitTermination(patience(120))
                assert query.exception() is None
    assert [number for sink in sinks for number in sink.column()] == list(range(66))
    places = [place for sink in sinks for place in sink.column(1)]
    assert places == sorted(set(places))


@pytest.mark.slow
@pytest.mark.parametrize("splits", [1, 3])
def test_batches_are_as_large_as_asked_for(spark, broker, queue: str, tmp_path: Path, splits: int) -> None:
    publish(broker.url, queue, 50)
    sink = Rows()
    given = options(broker, queue, maxFramesPerTrigger="20", splits=str(splits))
    with running(spark, tmp_path, sink, given, schema=SCHEMA, spool=False) as query:
        wait_for(lambda: len(sink.rows) == 50, query)
    if ADMISSION:  # else the first batch takes what there is
        assert max(len(rows) for rows in sink.batches.values()) <= 20
    assert sorted(sink.column()) == list(range(50))
