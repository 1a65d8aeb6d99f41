"""The live source as Spark sees it: what docs/spark-semantics.md promises, line by line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from patience import interval, patience

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from spark.live_making import LiveBroker, Rows, publish, runner, running, wait_for
from spark.read_back import ADMISSION

from stompcodec.capture import Capture
from stompcodec.spark.live.receiver import Receiver
from stompcodec.spark.live.source import LiveReader
from stompcodec.spark.reading.schema import FRAME_SCHEMA
from stompcodec.testing.faults import Direction, FaultProxy

SECRET = "s3cr3t-Pa55"
#: How often a query without new data shows progress, in ms.
IDLE = "spark.sql.streaming.noDataProgressEventInterval"


@pytest.fixture(scope="module")
def broker():
    with LiveBroker() as broker:
        yield broker


@pytest.mark.parametrize("mode", ["spool", pytest.param("batch", marks=pytest.mark.slow)])
def test_an_idle_stream_acknowledges_all(spark, broker, queue: str, tmp_path: Path, mode: str) -> None:
    """Far more messages than the prefetch, and then nothing: all come, and all are acknowledged, without a new one."""
    publish(broker.url, queue, 150)
    sink = Rows()
    options = {"url": broker.url, "destination": queue, "prefetch": 40, "ackMode": mode}
    with running(spark, tmp_path, sink, options) as query:
        wait_for(lambda: len(sink.rows) == 150, query)
        wait_for(lambda: broker.count(queue) == 0, query)
    assert sink.column() == list(range(150))


def test_a_batch_that_failed_comes_again_as_it_was(spark, broker, queue: str, tmp_path: Path) -> None:
    """The rows of the unfinished batch come from the spool, though the broker is away; that ends the query then."""
    publish(broker.url, queue, 20)
    sink, again = Rows(), Rows()
    sink.fail = True
    with FaultProxy(("127.0.0.1", broker.port)) as proxy:
        url = f"stomp://127.0.0.1:{proxy.port}"
        options = {"url": url, "destination": queue, "reconnectTimeout": "500ms", "ackMode": "batch"}
        schema = "n int, spool string, pos long, received_at timestamp, message_id string"
        with running(spark, tmp_path, sink, options, schema=schema) as query:
            wait_for(query.exception)
        assert "the sink fails" in str(query.exception())
        assert sink.rows
        assert broker.count(queue) == 20
        proxy.rules.refuse = True
        with running(spark, tmp_path, again, options, schema=schema) as query:
            wait_for(query.exception)
        assert "reconnectTimeout" in str(query.exception())
    assert {key: rows for key, rows in again.batches.items() if rows} == {
        key: rows for key, rows in sink.batches.items() if rows
    }


@pytest.mark.slow
def test_what_is_delivered_again_after_a_restart_is_dropped(spark, broker, queue: str, tmp_path: Path) -> None:
    """The ACKs of the first run get lost: the broker has all of it when the second one begins."""
    sink = Rows()
    with FaultProxy(("127.0.0.1", broker.port)) as proxy:
        options = {"url": f"stomp://127.0.0.1:{proxy.port}", "destination": queue}
        with running(spark, tmp_path, sink, options) as query:
            publish(broker.url, queue, 1)
            wait_for(lambda: len(sink.rows) == 1 and broker.count(queue) == 0, query)
            proxy.rules.up = Direction(swallow=True)
            publish(broker.url, queue, 29, first=1)
            wait_for(lambda: len(sink.rows) == 30, query)
            assert broker.count(queue) == 29
    publish(broker.url, queue, 5, first=30)
    with running(spark, tmp_path, sink, {**options, "url": broker.url}) as query:
        wait_for(lambda: len(sink.rows) >= 35 and broker.count(queue) == 0, query)
    assert sorted(sink.column()) == list(range(35))


@pytest.mark.slow
def test_a_second_query_on_a_spool_is_refused(spark, broker, queue: str, tmp_path: Path) -> None:
    sink = Rows()
    options = {"url": broker.url, "destination": queue}
    with running(spark, tmp_path, sink, options) as query:
        publish(broker.url, queue, 1)
        wait_for(lambda: len(sink.rows) == 1, query)
        other = {**options, "spoolDir": str(tmp_path / "spool")}
        with running(spark, tmp_path / "other", Rows(), other) as second:
            wait_for(second.exception, query)
        assert "another query or recorder fills this spool" in str(second.exception())
        publish(broker.url, queue, 1, first=1)
        wait_for(lambda: len(sink.rows) == 2, query)


def shown(query: Any) -> dict[str, Any]:
    """What the progress of a query shows of its source."""
    text = query.lastProgress["sources"][0]["latestOffset"]
    return (json.loads(text) if isinstance(text, str) else text) or {}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="only Linux sets limits of other processes")
def test_a_full_disk_stops_acknowledging_and_loses_nothing(
    spark, broker, queue: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Files of the recorder may not grow beyond 60 kB for a while; the query goes on meanwhile."""
    resource = pytest.importorskip("resource")
    sink = Rows()
    options = {"url": broker.url, "destination": queue, "prefetch": 20, "subscriptions": 2}
    request.addfinalizer(lambda: spark.conf.unset(IDLE))
    spark.conf.set(IDLE, "50")
    with running(spark, tmp_path, sink, options) as query:
        publish(broker.url, queue, 2)
        wait_for(lambda: len(sink.rows) == 2, query)
        process = runner(tmp_path / "spool")
        _, most = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (60_000, most))
        publish(broker.url, queue, 198, first=2, body=bytes(2000))
        wait_for(lambda: len(sink.rows) > 20, query)
        written = len(sink.rows)
        wait_for(lambda: query.lastProgress["sources"][0]["numInputRows"] == 0, query)
        assert written <= 60
        assert broker.count(queue) >= 140
        if ADMISSION:  # else Spark asks for no report
            wait_for(lambda: "cannot be written" in shown(query).get("#stalled", ""), query)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (most, most))
        wait_for(lambda: len(sink.rows) >= 200, query)
        wait_for(lambda: broker.count(queue) == 0, query)
        if ADMISSION:
            wait_for(lambda: "#stalled" not in shown(query), query)
    assert sorted(sink.column()) == list(range(200))
    assert sorted(Capture(tmp_path / "spool").chains()) == ["frames", "frames.1"]


@pytest.mark.slow
def test_batches_are_as_large_as_asked_for(spark, broker, queue: str, tmp_path: Path) -> None:
    class Waits(Rows):
        def __call__(self, frame: Any, batch: int) -> None:
            super().__call__(frame, batch)
            wait_for(lambda: broker.count(queue) == 0)  # then at least 30 are there for the next batch

    publish(broker.url, queue, 50)
    sink = Waits()
    options = {"url": broker.url, "destination": queue, "maxFramesPerTrigger": 20}
    with running(spark, tmp_path, sink, options) as query:
        wait_for(lambda: len(sink.rows) == 50, query)
    if ADMISSION:  # else the first batch takes what there is
        assert max(map(len, sink.batches.values())) == 20
    assert sink.column() == list(range(50))


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", [1000, 4])
def test_available_now_drains_and_ends(spark, broker, queue: str, tmp_path: Path, prefetch: int) -> None:
    """It takes what there is, more than the prefetch too, acknowledges it, ends; the next one goes on."""
    sink = Rows()
    options = {"url": broker.url, "destination": queue, "idleTimeout": f"{interval(500)}ms", "ackMode": "batch"}
    options |= {"prefetch": prefetch}
    if not ADMISSION:
        options["ackMode"] = "spool"  # there is one batch, and nothing says that it is done
    for first in (0, 10):
        publish(broker.url, queue, 10, first=first)
        with running(spark, tmp_path, sink, options, availableNow=True) as query:
            assert query.awaitTermination(patience(120))
        wait_for(lambda: broker.count(queue) == 0)
    assert sink.column() == list(range(20))


def test_a_batch_reads_what_comes_until_it_is_quiet(spark, broker, queue: str, tmp_path: Path) -> None:
    publish(broker.url, queue, 12)
    options = {
        "url": broker.url,
        "destination": queue,
        "spoolDir": str(tmp_path / "spool"),
        "idleTimeout": f"{interval(500)}ms",
    }
    frames = spark.read.format("stomp").options(**options, maxFrames="5").schema("n int, body binary").load()
    assert [row.n for row in frames.collect()] == [0, 1, 2, 3, 4]
    wait_for(lambda: broker.count(queue) == 7)
    rest = spark.read.format("stomp").options(**options).load()
    assert [row.headers["n"] for row in rest.collect()] == [str(number) for number in range(5, 12)]
    wait_for(lambda: broker.count(queue) == 0)
    assert spark.read.format("stompfile").load(options["spoolDir"]).count() == 12


def test_a_batch_has_all_that_was_recorded_for_it(broker, queue: str, tmp_path: Path, monkeypatch) -> None:
    """Messages that are in the spool before anything else is done with it, and one that comes last."""

    class Busy(Receiver):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            wait_for(lambda: self.count == 5)

        def close(self) -> dict[str, int]:
            self.resume()
            publish(broker.url, queue, 1)
            wait_for(lambda: self.count == 6)
            return super().close()

    monkeypatch.setattr("stompcodec.spark.live.receiver.Receiver", Busy)
    publish(broker.url, queue, 5)
    given = {"url": broker.url, "destination": queue, "spoolDir": str(tmp_path / "spool"), "idleTimeout": "100ms"}
    reader = LiveReader(given, FRAME_SCHEMA)
    assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 6


@pytest.mark.slow
def test_a_spool_that_is_gone_is_told(spark, broker, queue: str, tmp_path: Path) -> None:
    """With failOnDataLoss=false the query goes on with what there is."""
    sink = Rows()
    options = {"url": broker.url, "destination": queue, "failOnDataLoss": False, "ackMode": "batch"}
    with running(spark, tmp_path, sink, options) as query:
        publish(broker.url, queue, 10)
        wait_for(lambda: len(sink.rows) == 10 and broker.count(queue) == 0, query)
    shutil.rmtree(tmp_path / "spool")
    publish(broker.url, queue, 3, first=10)
    with running(spark, tmp_path, Rows(), {**options, "failOnDataLoss": True}) as query:
        wait_for(query.exception)
    assert "failOnDataLoss" in str(query.exception())
    with running(spark, tmp_path, sink, options) as query:
        wait_for(lambda: len(sink.rows) == 13, query)
    assert sink.column() == list(range(13))


@pytest.mark.parametrize(
    "now", [pytest.param(False, id="stream"), pytest.param(True, id="availableNow", marks=pytest.mark.slow)]
)
def test_another_spool_is_never_taken_for_the_one_before(spark, broker, queue: str, tmp_path: Path, now: bool) -> None:
    """The new spool may be longer than the old one: each start fails, and takes nothing from the broker."""
    trigger = {"availableNow": True} if now else {"processingTime": "50 milliseconds"}
    sink = Rows()
    options = {"url": broker.url, "destination": queue, "idleTimeout": "200ms"}
    with running(spark, tmp_path, sink, options) as query:
        publish(broker.url, queue, 3)
        wait_for(lambda: len(sink.rows) == 3 and broker.count(queue) == 0, query)
    shutil.move(tmp_path / "spool", tmp_path / "kept")
    with running(spark, tmp_path / "other", Rows(), {**options, "spoolDir": str(tmp_path / "spool")}) as query:
        publish(broker.url, queue, 20, first=100)  # another query fills a spool of that name, and ends
        wait_for(lambda: broker.count(queue) == 0, query)
    publish(broker.url, queue, 5, first=3)
    for _ in range(3):
        with running(spark, tmp_path, sink, options, **trigger) as query:
            wait_for(query.exception)
        assert "is not the spool of the checkpoint" in str(query.exception())
        assert re.search(
            r"lost: (everything behind offset \d+ of frames|bytes \d+ to \d+ of frames)", str(query.exception())
        )
        assert broker.count(queue) == 5
    shutil.rmtree(tmp_path / "spool")
    shutil.move(tmp_path / "kept", tmp_path / "spool")
    with running(spark, tmp_path, sink, options, **trigger) as query:
        wait_for(lambda: len(sink.rows) == 8, query)
    assert sink.column() == list(range(8))


def test_options_are_looked_at_before_anything_happens(spark, broker, tmp_path: Path) -> None:
    good = {"url": broker.url, "destination": "/queue/a", "spoolDir": str(tmp_path / "spool")}
    for name, value, told in (
        ("prefetch", "0", "option prefetch is '0'"),
        ("passcode", SECRET, "use passcodeEnv"),
        ("url", f"stomp://ann:{SECRET}@h", "use passcodeEnv"),
        ("spoolDir", "hdfs://h/x", "a folder on a mounted disk"),
    ):
        with pytest.raises(Exception, match=told) as failure:
            spark.readStream.format("stomp").options(**{**good, name: value}).load()
        assert SECRET not in str(failure.value)
    assert not (tmp_path / "spool").exists()


def test_a_passcode_is_in_no_plan_and_no_file(spark, broker, queue: str, tmp_path: Path, capfd) -> None:
    """It comes from a file on the driver, and a query's plan, checkpoint and progress do not show it."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    publish(broker.url, queue, 3)
    sink = Rows()
    options = {"url": broker.url, "destination": queue, "login": "ann", "passcodeFile": str(secret)}
    with running(spark, tmp_path, sink, options) as query:
        wait_for(lambda: len(sink.rows) == 3, query)
        query.explain(True)
        shown = str(query.lastProgress) + "".join(capfd.readouterr())
    assert "stomp" in shown
    secret.unlink()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET not in shown
    assert SECRET.encode() not in kept
