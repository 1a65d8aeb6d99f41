"""The live source as Spark sees it: what docs/spark-semantics.md promises, line by line."""

import json
from pathlib import Path

import pytest
from patience import interval, patience
from spark.live_making import Rows, live_broker, publish, runner, running, wait_for
from spark.making import ADMISSION

from stompcodec.capture import Capture
from stompcodec.spark.live import LiveReader
from stompcodec.spark.reading.schema import FRAME_SCHEMA
from stompcodec.spark.receiver import Receiver
from stompcodec.testing.faults import FaultProxy

SECRET = "s3cr3t-Pa55"
#: How often a query without new data shows progress, in ms.
IDLE = "spark.sql.streaming.noDataProgressEventInterval"


@pytest.fixture(scope="module")
def broker():
    with live_broker() as broker:
        yield broker


@pytest.mark.parametrize("mode", ["spool", pytest.param("batch", marks=pytest.mark.slow)])
def test_an_idle_stream_acknowledges_all(spark, broker, queue, tmp_path, mode):
    """Far more messages than the prefetch, and then nothing: all come, and all are acknowledged, without a new one."""
    publish(broker.url, queue, 150)
    sink = Rows()
    options = {"url": broker.url, "destination": queue, "prefetch": 40, "ackMode": mode}
    with running(spark, tmp_path, sink, options) as query:
        wait_for(lambda: len(sink.column()) == 150, query)
        wait_for(lambda: broker.queued(queue) == 0, query)
    assert sink.column() == list(range(150))


def test_a_batch_that_failed_comes_again_as_it_was(spark, broker, queue, tmp_path):
    """The rows of the unfinished batch come from the spool, though the broker is away; that ends the query then."""
    publish(broker.url, queue, 20)
    sink, again = Rows(fail=True), Rows()
    with FaultProxy(("127.0.0.1", broker.port)) as proxy:
        options = {"url": f"stomp://127.0.0.1:{proxy.port}", "destination": queue}
        options |= {"reconnectTimeout": "500ms", "ackMode": "batch"}
        for way, told in ((sink, "the sink fails"), (again, "reconnectTimeout")):
            schema = "n int, spool string, pos long, received_at timestamp, message_id string"
            with running(spark, tmp_path, way, options, schema=schema) as query:
                wait_for(query.exception)
            assert told in str(query.exception())
            assert broker.queued(queue) == 20
            proxy.rules.refuse = True
    assert sink.column()
    first, second = ({key: rows for key, rows in each.batches.items() if rows} for each in (sink, again))
    assert first == second


def shown(query):
    """What the progress of a query shows of its source."""
    text = query.lastProgress["sources"][0]["latestOffset"]
    return (json.loads(text) if isinstance(text, str) else text) or {}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="only Linux sets limits of other processes")
def test_a_full_disk_stops_acknowledging_and_loses_nothing(spark, broker, queue, tmp_path, request):
    """Files of the recorder may not grow beyond 60 kB for a while; the query goes on meanwhile."""
    resource = pytest.importorskip("resource")
    sink = Rows()
    options = {"url": broker.url, "destination": queue, "prefetch": 20, "subscriptions": 2}
    request.addfinalizer(lambda: spark.conf.unset(IDLE))
    spark.conf.set(IDLE, "50")
    with running(spark, tmp_path, sink, options) as query:
        publish(broker.url, queue, 2)
        wait_for(lambda: len(sink.column()) == 2, query)
        process = runner(tmp_path / "spool")
        _, most = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (60_000, most))
        publish(broker.url, queue, 198, first=2, body=bytes(2000))
        wait_for(lambda: len(sink.column()) > 20, query)
        written = len(sink.column())
        wait_for(lambda: query.lastProgress["sources"][0]["numInputRows"] == 0, query)
        assert written <= 60
        assert broker.queued(queue) >= 140
        if ADMISSION:  # else Spark asks for no report
            wait_for(lambda: "cannot be written" in shown(query).get("#stalled", ""), query)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (most, most))
        wait_for(lambda: len(sink.column()) >= 200 and broker.queued(queue) == 0, query)
        if ADMISSION:
            wait_for(lambda: "#stalled" not in shown(query), query)
    assert sorted(sink.column()) == list(range(200))
    assert sorted(Capture(tmp_path / "spool").chains()) == ["frames", "frames.1"]


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", [1000, 4])
def test_available_now_drains_and_ends(spark, broker, queue, tmp_path, prefetch):
    """It takes what there is, more than the prefetch too, acknowledges it, ends; the next one goes on."""
    sink = Rows()
    options = {"url": broker.url, "destination": queue, "idleTimeout": f"{interval(500)}ms", "prefetch": prefetch}
    # Before 4.2 there is one batch, and nothing says that it is done.
    options["ackMode"] = "batch" if ADMISSION else "spool"
    for first in (0, 10):
        publish(broker.url, queue, 10, first=first)
        with running(spark, tmp_path, sink, options, availableNow=True) as query:
            assert query.awaitTermination(patience(120))
        wait_for(lambda: broker.queued(queue) == 0)
    assert sink.column() == list(range(20))


def test_a_batch_reads_what_comes_until_it_is_quiet(spark, broker, queue, tmp_path):
    publish(broker.url, queue, 12)
    options = {"url": broker.url, "destination": queue, "spoolDir": str(tmp_path / "spool")}
    options["idleTimeout"] = f"{interval(500)}ms"
    frames = spark.read.format("stomp").options(**options, maxFrames="5").schema("n int, body binary").load()
    assert [row.n for row in frames.collect()] == [0, 1, 2, 3, 4]
    wait_for(lambda: broker.queued(queue) == 7)
    rest = spark.read.format("stomp").options(**options).load()
    assert [row.headers["n"] for row in rest.collect()] == [str(number) for number in range(5, 12)]
    wait_for(lambda: broker.queued(queue) == 0)
    assert spark.read.format("stompfile").load(options["spoolDir"]).count() == 12


def test_a_batch_has_all_that_was_recorded_for_it(broker, queue, tmp_path, monkeypatch):
    """Messages that are in the spool before anything else is done with it, and one that comes last."""

    class Busy(Receiver):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            wait_for(lambda: self.count == 5)

        def close(self):
            self.resume()
            publish(broker.url, queue, 1)
            wait_for(lambda: self.count == 6)
            return super().close()

    monkeypatch.setattr("stompcodec.spark.receiver.Receiver", Busy)
    publish(broker.url, queue, 5)
    given = {"url": broker.url, "destination": queue, "spoolDir": str(tmp_path / "spool"), "idleTimeout": "100ms"}
    reader = LiveReader(given, FRAME_SCHEMA)
    assert sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)) == 6


def test_a_passcode_is_in_no_plan_and_no_file(spark, broker, queue, tmp_path, capfd):
    """It comes from a file on the driver, and a query's plan, checkpoint and progress do not show it."""
    good = {"url": broker.url, "destination": queue, "spoolDir": str(tmp_path / "spool")}
    for wrong in ({"passcode": SECRET}, {"url": f"stomp://ann:{SECRET}@h"}):
        with pytest.raises(Exception, match="use passcodeEnv") as failure:
            spark.readStream.format("stomp").options(**{**good, **wrong}).load()
        assert SECRET not in str(failure.value)
    assert not (tmp_path / "spool").exists()  # options are looked at before anything happens
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    publish(broker.url, queue, 3)
    sink = Rows()
    with running(spark, tmp_path, sink, {**good, "login": "ann", "passcodeFile": secret}) as query:
        wait_for(lambda: len(sink.column()) == 3, query)
        query.explain(True)
        shown = str(query.lastProgress) + "".join(capfd.readouterr())
    assert "stomp" in shown
    secret.unlink()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert SECRET not in shown
    assert SECRET.encode() not in kept
