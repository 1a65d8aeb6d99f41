"""Jobs on frames: no row is lost, and streams make what is made of the whole; presets, supervision, their verb."""

import fnmatch
import gzip
import json
import logging
import os
import random
import re
import shutil
from collections import Counter
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from patience import patience

pytest.importorskip("pyspark")
pytest.importorskip("click")
from click.testing import CliRunner
from client.broker import BrokerThread
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType
from spark.live_rounds import goes_on_when_killed, live_broker, wait_for
from spark.making import make_capture, message

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.cli.verbs.pipeline import command
from stompcodec.client.dialects import BROKERS, lasting_identity
from stompcodec.errors import ConfigError
from stompcodec.spark import FRAME_SCHEMA, jobs
from stompcodec.spark.jobs.explode import SCALARS, TAKEN, load, of_schema, preset_names, tell_jump
from stompcodec.spark.jobs.frames import identity, outgoing
from stompcodec.spark.jobs.output import SourceDiedError, _above, has_died, supervise
from stompcodec.spark.live import source_metrics
from stompcodec.spark.report.data import _duplicates, narrowed

DATA = Path(os.environ.get("STOMPCODEC_DATA") or Path(__file__).parents[4] / "shared/data")
START = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
genuine = pytest.mark.skipif(not DATA.is_dir(), reason="the genuine feeds are not here")


def frames_of(spark, bodies):
    rows = [("MESSAGE", "/topic/a", f"id-{n}", body and bytearray(body), "spool", n) for n, body in enumerate(bodies)]
    kinds = "command string, destination string, message_id string, body binary, spool string, pos long"
    return spark.createDataFrame(rows, kinds)


def exploded(spark, bodies, preset=None, **options):
    rows = jobs.explode(frames_of(spark, bodies), preset, **options).collect()
    found = [[] for _ in bodies]
    for row in sorted(rows, key=lambda row: (row.pos, row.item or 0)):
        found[row.pos].append(row)
    assert all(found), "a frame is lost"
    return found


def event(kind="CA", **fields):
    return {f"{kind}_MSG": {"msg_type": kind, "time": "1647015981000", "area_id": "X1", **fields}}


@pytest.mark.slow
@genuine
@pytest.mark.parametrize(("preset", "n"), [("networkrail-td", 33), ("networkrail-trust", 7), ("networkrail-vstp", 1)])
def test_genuine_feeds_become_tables(spark, preset, n):
    paths = sorted(DATA.glob(f"networkrail/{preset.removeprefix('networkrail-')}-*.json"))
    bodies = [path.read_bytes() for path in paths if "headers" not in path.name]
    made = exploded(spark, bodies, preset)
    found = [row for rows in made for row in rows]
    assert (len(found), [row for row in found if row._reason or row._raw is not None]) == (n, [])
    for at, body in enumerate(bodies if preset == "networkrail-td" else []):
        records = json.loads(b"[%b]" % body.strip().removeprefix(b"[").removesuffix(b"]"))  # one may stand alone
        for row, (values,) in zip(made[at], (each.values() for each in records)):
            moment = datetime.fromtimestamp(int(values["time"]) / 1000, timezone.utc).replace(tzinfo=None)
            names = ("msg_type", "area_id", "from", "to", "descr", "address", "data")
            got = (row.msg_type, row.area_id, row.from_berth, row.to_berth, row.descr, row.address, row.data)
            assert (got, row.time, row.extra) == (tuple(map(values.get, names)), moment, None)


@pytest.mark.slow
@genuine
def test_the_page_says_how_xml_becomes_columns(spark, tmp_path, monkeypatch):
    bodies = [gzip.compress(path.read_bytes()) for path in sorted((DATA / "darwin").glob("v12-*.xml"))]
    make_capture(
        tmp_path / "darwin.stompcap", [Frame("MESSAGE", {"destination": "/queue/darwin"}, body) for body in bodies]
    )
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs/network-rail.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    made = {"spark": spark}
    exec(code, made)
    assert ("201508123582133", "LIVST", "17:49") in [tuple(row) for row in made["stops"].collect()]


GOOD = json.dumps([event(), event("SF")]).encode()
BODIES = [
    *((GOOD, [None, None]), (json.dumps(event()).encode(), [None]), (None, ["no body"])),
    *((body, ["malformed JSON"]) for body in (b"null", b"5", b"{", GOOD[:-1], GOOD + b" and more", GOOD + GOOD)),
    *(
        (body, ["malformed JSON"])
        for body in (GOOD + b"," + GOOD, GOOD + b"],[" + GOOD, b'{"a":' * 1200 + b"1" + b"}" * 1200)
    ),
    *((b"[]", ["an empty list"]), (b"\xff\xfe", ["not UTF-8"]), (gzip.compress(GOOD), ["the body is gzip"])),
    (b"[null]", ["a record is not a JSON object"]),
    (json.dumps([1, event()]).encode(), ["a record is not a JSON object", None]),
    (json.dumps([{"CA_MSG": 5}, event()]).encode(), ["field CA_MSG: no JSON object", None]),
    (json.dumps([{}, event()]).encode(), ["a record is to have one field", None]),
    (json.dumps([{"XX_MSG": {}}, event()]).encode(), ["field XX_MSG: not one of", None]),
    (json.dumps([event(time="x"), event()]).encode(), ["field time: 'x' is not a time in ms", None]),
    (json.dumps([event(time="9" * 18)]).encode(), ["field time: '999999999999999999' is not a time in ms"]),
    (json.dumps([event(time="")]).encode(), ["field time is missing"]),
    (json.dumps([event(time={"a": 1})]).encode(), ["field time: '{\"a\":1}' is not a time"]),
    (b'[{"CA_MSG": {"time": "1", "time": "2"}}]', ["a field is there twice"]),
    (json.dumps([event(new={"deep": [1]})]).encode(), [None]),
]


def test_what_is_not_right_is_in_quarantine_with_the_reason(spark):
    found = exploded(spark, [body for body, _ in BODIES], "networkrail-td")
    for rows, (body, reasons) in zip(found, BODIES):
        assert len(rows) == len(reasons), body
        for number, (row, reason) in enumerate(zip(rows, reasons)):
            if reason is None:
                assert (row._reason, row._raw, row.item) == (None, None, number), body
            else:
                assert (row._reason or "").startswith(reason), (body, row._reason)
                assert (row.item is None) == (row._raw == (bytearray(body) if body is not None else None) or not body)
        if reasons[0] and reasons[-1] is None:  # one of several: what is kept is that one
            assert json.loads(bytes(rows[0]._raw)) == json.loads(body or b"")[0]
    assert found[-1][0].extra == {"new": '{"deep":[1]}'}


def test_a_large_body_is_not_taken_apart(spark):
    found = exploded(spark, [GOOD, b" " + GOOD], "networkrail-td", max_body=len(GOOD))
    assert [rows[0]._reason for rows in found] == [None, f"the body is larger than {len(GOOD)} bytes"]
    assert bytes(found[1][0]._raw) == b" " + GOOD


def _value(rnd, depth=0):
    kind = rnd.randrange(8 if depth < 3 else 5)
    if kind < 5:
        return rnd.choice([None, True, 0, -1.5, "", "x", "1647015981000", "ü\n\x00"])
    if kind == 5:
        return [_value(rnd, depth + 1) for _ in range(rnd.randrange(3))]
    keys = ["CA_MSG", "SF_MSG", "time", "msg_type", "area_id", "a"]
    return {rnd.choice(keys): _value(rnd, depth + 1) for _ in range(rnd.randrange(4))}


def test_no_record_is_lost_whatever_the_bodies_are(spark):
    rnd, bodies = random.Random(5), []
    for _ in range(600):
        body = json.dumps(rnd.choice([_value(rnd), [_value(rnd), event()], [event("SF", a=_value(rnd))]])).encode()
        if rnd.random() < 0.3:
            at = rnd.randrange(len(body))
            body = body[:at] + bytes([rnd.randrange(256)]) + body[at + 1 :]
        bodies.append(body)
    for rows, body in zip(exploded(spark, bodies, "networkrail-td"), bodies):
        if rows[0].item is None:
            assert (len(rows), bytes(rows[0]._raw)) == (1, body)
            continue
        value = json.loads(body)
        records = value if isinstance(value, list) else [value]
        assert [row.item for row in rows] == list(range(len(records)))
        for row, record in zip(rows, records):
            good = isinstance(record, dict) and len(record) == 1
            assert (row._reason is None) <= good, record


SCHEMA = "n int not null, at timestamp, day date, price decimal(6,2), ok boolean, tags array<int>, inner struct<a: int>"


def test_json_by_a_schema(spark, tmp_path):
    good = {"n": 5, "at": "2026-03-01T12:00:00+01:00", "day": "2026-03-01", "price": 1.5, "ok": True}
    good |= {"tags": [1, 2], "inner": {"a": 1}, "more": 1}
    bad = [("n", None), ("n", 2**31), ("at", "noon"), ("day", "2026-02-30"), ("price", 12345.5), ("ok", "odd")]
    bad += [("tags", ["x"]), ("tags", 5), ("inner", {"a": "x"}), ("inner", [])]
    bodies = [json.dumps(good).encode()]
    bodies += [json.dumps({**good, name: value}).encode() for name, value in bad]
    path = tmp_path / "schema.ddl"
    path.write_text(SCHEMA, encoding="utf-8")
    found = exploded(spark, bodies, schema=str(path))
    row = found[0][0]
    assert row._reason is None
    assert (row.n, row.at, row.tags, row.inner.a) == (5, datetime(2026, 3, 1, 11), [1, 2], 1)
    assert (str(row.day), str(row.price), row.ok) == ("2026-03-01", "1.50", True)
    for at, (name, value) in enumerate(bad, 1):
        assert found[at][0]._reason.startswith(f"field {name}"), (name, value)
    with pytest.raises(ConfigError, match="neither Spark's JSON"):
        jobs.explode(frames_of(spark, []), schema="n odd odd")
    with pytest.raises(ConfigError, match="either a preset or a schema"):
        jobs.explode(frames_of(spark, []), "networkrail-td", "n int")


def feed():
    """Rows of `FRAME_SCHEMA`: two destinations, some come again, two numbers are missing, one frame is malformed."""
    rnd, rows = random.Random(3), []
    for number in (number for number in range(400) if number not in (50, 51)):
        at = START + timedelta(seconds=number)
        sent = at - timedelta(milliseconds=rnd.randrange(5, 3000))
        body = GOOD if number % 30 else b"oops"
        headers = {"message-id": f"ID:{number}", "n": "x"}
        row = (
            *("MESSAGE", f"/topic/{'ab'[number % 3 == 0]}", f"ID:{number}", None, None, None, at, sent, False),
            *(headers, bytearray(body), None, "spool", number * 100, 80 + rnd.randrange(900), None),
        )
        rows.append(row)
        if number % 40 == 0:  # it comes again, some lines later
            again = list(row)
            again[8], again[13] = True, number * 100 + 50
            rows.append(tuple(again))
    odd = [None] * len(rows[0])
    odd[6], odd[10], odd[12], odd[13], odd[14], odd[15] = START, bytearray(b"x"), "spool", 10**6, 1, "bad-header: it"
    other = list(rows[7])
    other[10], other[13] = bytearray(b"other octets"), 10**6 + 1  # the same message-id, another message
    return [*rows, tuple(odd), tuple(other)]


@pytest.fixture(scope="module")
def folder(spark, tmp_path_factory):
    path, rows = tmp_path_factory.mktemp("jobs") / "in", feed()
    for start in range(0, len(rows), 150):
        part = spark.createDataFrame(rows[start : start + 150], FRAME_SCHEMA)
        part.coalesce(1).write.mode("append").parquet(str(path))
    return path


def whole(spark, folder):
    return spark.read.schema(FRAME_SCHEMA).parquet(str(folder))


def stream(spark, folder):
    return spark.readStream.schema(FRAME_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def again(checkpoint):
    """As after a crash: Spark does not know that the last batch is done."""
    last = max(checkpoint.joinpath("commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


@pytest.mark.slow
def test_an_archive_keeps_each_message_once(spark, folder, tmp_path):
    rows = feed()
    messages = {(row[1], row[2], bytes(row[10])) for row in rows}
    count = jobs.archive(whole(spark, folder), str(tmp_path / "batch")).counts["frames"]
    jobs.archive(stream(spark, folder), str(tmp_path / "stream")).awaitTermination()
    assert count == len(messages) == len(rows) - 10
    again(tmp_path / "stream/_checkpoint")
    jobs.archive(stream(spark, folder), str(tmp_path / "stream")).awaitTermination()
    assert sorted(path.name for path in (tmp_path / "batch").glob("date=*/*")) == [
        *("destination=%2Ftopic%2Fa", "destination=%2Ftopic%2Fb", "destination=__HIVE_DEFAULT_PARTITION__"),
    ]
    for name in ("batch", "stream"):
        made = jobs.read_archive(spark, str(tmp_path / name)).collect()
        assert {(row.destination, row.message_id, bytes(row.body)) for row in made} == messages
        assert (len(made), {str(row.date) for row in made}) == (len(messages), {"2026-03-01"})
        assert [row.error for row in made if row.error] == ["bad-header: it"]
    shutil.rmtree(tmp_path / "batch")
    assert jobs.archive(whole(spark, folder), str(tmp_path / "batch"), dedupe=False) == jobs.Job({"frames": len(rows)})


@pytest.mark.slow
def test_an_archive_of_odd_frames(spark, tmp_path):
    names = ["/queue/" + "ü" * 2000, "/queue/" + "ü" * 1999 + "x", "17", "", "a=b/%\\:*?", None]
    rows = [("MESSAGE", name, None, b"x", None, {"destination": name or ""}) for name in names]
    kinds = "command string, destination string, message_id string, body binary, sent_at timestamp,"
    kinds += " headers map<string,string>"
    jobs.archive(spark.createDataFrame(rows, kinds), str(tmp_path / "a"))
    made = jobs.read_archive(spark, str(tmp_path / "a"))
    assert sorted(row.headers["destination"] for row in made.collect()) == sorted(name or "" for name in names)
    assert {row.destination for row in made.collect()} >= {"17", "a=b/%\\:*?"}
    assert made.select("destination").distinct().count() == 5  # none and an empty one are one
    assert {str(row.date) for row in made.collect()} == {"1970-01-01"}


@pytest.mark.slow
def test_an_archive_and_another_checkpoint_are_told(spark, folder, tmp_path):
    """Spark's file sink would skip the numbers of batches that it has, and their rows would be missing."""
    path, frames = tmp_path / "archive", stream(spark, folder)

    def run(**options):
        jobs.archive(frames, str(path), **options).awaitTermination()
        return int(spark.read.parquet(str(path)).count())

    count = run()
    for missing in (str(tmp_path / "other"), None):
        if missing is None:
            (path / "_checkpoint").rename(tmp_path / "kept")
        for _ in range(2):  # the refusal leaves nothing behind that a second start would take for a checkpoint
            with pytest.raises(ConfigError, match=r"later batches .* no batch is: .* new folder"):
                run(**({} if missing is None else {"checkpoint": missing}))
    (tmp_path / "kept").rename(path / "_checkpoint")
    assert run() == count
    shutil.copy(path / "_spark_metadata" / "0", path / "_spark_metadata" / "77")
    with pytest.raises(ConfigError, match=r"where the last batch is \d+: "):
        run()


def test_streams_of_one_job_run_beside_each_other(spark, tmp_path):
    (tmp_path / "in").mkdir()  # there is nothing to read
    frames = stream(spark, tmp_path / "in")
    exploded, measured = jobs.explode(frames, schema="n long"), jobs.metrics(frames)
    writes = [(jobs.archive, frames), (jobs.write_exploded, exploded), (jobs.write_metrics, measured)]
    started, numbers = [], iter(range(10))
    try:
        for write, rows in writes * 2:
            started.append(write(rows, f"{tmp_path}/{next(numbers)}", every="1 hour"))
        started.append(jobs.archive(frames, f"{tmp_path}/named", every="1 hour", name="mine"))
        names = [job.query.name for job in started]
        assert len({*names}) == 7
        assert [name.partition("-")[0] for name in names] == ["archive", "explode", "metrics"] * 2 + ["mine"]
        assert not started[0].awaitTermination(1)
    finally:
        for job in started:
            job.stop()
    assert all(job.awaitTermination(patience(60)) for job in started)


def test_a_jump_of_the_quarantine_is_told_once(caplog):
    above, lines = False, []
    with caplog.at_level(logging.WARNING, "stompcodec.spark"):
        batches = [(95, 5), (94, 6), (0, 0), (1, 99), (95, 5), (0, 0), (94, 6), (95, 5), (2, 1), (0, 1)]
        for number, (rows, quarantine) in enumerate(batches):
            above = tell_jump({"rows": rows, "quarantine": quarantine}, above, "out/td", f"batch {number}: ")
            lines += [(number, record.getMessage()) for record in caplog.records]
            caplog.clear()
    assert [number for number, _ in lines] == [1, 6, 9]
    assert lines[0][1] == (
        "batch 1: 6 of 100 records are in quarantine (6 %), more than 5 %: "
        "jobs.read_quarantine(spark, 'out/td') has the reasons in its column _reason"
    )


def test_names_of_later_batches():
    for number in (0, 8, 9, 10, 37, 99, 100, 1099):
        patterns = _above(number).strip("{}").split(",")
        for name in (f"{other}{end}" for other in range(1200) for end in ("", ".compact")):
            found = any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
            assert found == (int(name.partition(".")[0]) > number), (number, name)


def test_rows_and_quarantine_hold_all_frames(spark, folder, tmp_path):
    counts = jobs.write_exploded(jobs.explode(whole(spark, folder), "networkrail-td"), str(tmp_path / "batch")).counts
    total = len(feed())
    assert counts["frames"] == total == counts["good"] + counts["quarantined"]
    batches = []

    def run():
        made, out = jobs.explode(stream(spark, folder), "networkrail-td"), str(tmp_path / "stream")
        jobs.write_exploded(made, out, on_counts=batches.append).awaitTermination()

    run()
    assert {name: sum(each[name] for each in batches) for name in counts} == counts
    again(tmp_path / "stream/_checkpoint")
    run()  # the last batch once more, which replaces what it wrote
    for name in ("batch", "stream"):
        rows = spark.read.parquet(str(tmp_path / name / "rows"))
        bad = jobs.read_quarantine(spark, str(tmp_path / name))
        assert (rows.count(), bad.count()) == (counts["rows"], counts["quarantine"])
        good, held = ({(row.destination, row.pos) for row in each.collect()} for each in (rows, bad))
        assert not good & held
        assert len(good) + len(held) == total
        assert {row._reason.partition(",")[0] for row in bad.collect()} == {"malformed JSON", "frame: bad-header: it"}


@pytest.mark.slow
def test_figures_of_a_stream_are_those_of_the_whole(spark, folder, tmp_path):
    jobs.write_metrics(jobs.metrics(whole(spark, folder), sequence="message-id"), str(tmp_path / "batch"))
    rows = jobs.metrics(stream(spark, folder), sequence="message-id")
    jobs.write_metrics(rows, str(tmp_path / "stream")).awaitTermination()
    one, other = (
        sorted(jobs.read_metrics(spark, str(tmp_path / name)).collect(), key=str) for name in ("batch", "stream")
    )
    assert one == other
    expected = Counter((row[6].replace(second=0, tzinfo=None), row[1]) for row in feed())
    assert {(row.start, row.destination): row["count"] for row in one} == expected
    assert sum(row.bytes for row in one) == sum(row[14] for row in feed())
    assert (sum(row.redelivered for row in one), sum(row.errors for row in one)) == (10, 1)
    for row in one:
        if row.destination:
            lags = [
                (each[6] - each[7]) / timedelta(milliseconds=1)
                for each in feed()
                if each[1] == row.destination and each[6].replace(second=0, tzinfo=None) == row.start
            ]
            assert min(lags) <= row.lag_p50 <= row.lag_p95 <= row.lag_p99 <= max(lags) * 1.01


def test_numbers_that_are_missing(spark):
    numbers = [1, 2, 5, 5, 6, 70, 71, 74, 10_000_000, 10_000_001]
    times = [START + timedelta(seconds=number if number < 1000 else 100) for number in numbers]
    rows = [("/topic/a", at, {"s": f"p:{number}"}) for at, number in zip(times, numbers)]
    rows += [("/topic/a", START, {"s": "none"}), ("/topic/a", START, {}), ("/topic/a", START, {"s": "q:" + "9" * 40})]
    frames = spark.createDataFrame(rows, "destination string, received_at timestamp, headers map<string,string>")
    made = jobs.metrics(frames, sequence="s").orderBy("start").persist()
    assert [row.gaps for row in made.collect()] == [2, 2]
    gaps = jobs.sequence_gaps(made).collect()
    assert [(row.name, row.after, row.before, row.missing) for row in gaps] == [("p:", 6, 70, 63)]
    made.unpersist()


def test_dead_letters_are_grouped(spark):
    def letter(number, body, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return "/queue/DLQ", f"id-{number}", START + timedelta(seconds=number), bytearray(body), named

    cause = "java.lang.Throwable: Exceeded limit {}, cause: com.example.OddException: 5\n\tat com.example"
    rows = [letter(n, b"%d" % n, original_destination="/queue/a", dead_letter_reason="max-attempts") for n in range(3)]
    rows += [letter(n, b"\xffx" * 900, dlqDeliveryFailureCause=cause.format(n)) for n in (5, 4)]
    rows += [letter(9, b"")]
    kinds = "destination string, message_id string, received_at timestamp, body binary, headers map<string,string>"
    one, two, three = jobs.deadletters(spark.createDataFrame(rows, kinds), shown=10).collect()
    assert (one.original, one.reason, one.exception, one["count"]) == ("/queue/a", "max-attempts", None, 3)
    assert (one.first_id, one.first_body, one.last_id, one.last_body) == ("id-0", "0", "id-2", "2")
    assert (two.original, two.exception, two["count"]) == (None, "java.lang.Throwable", 2)
    assert (two.first_id, two.bytes, two.first_body) == ("id-4", 3600, "\ufffdx" * 5)
    assert (three.original, three.reason, three.exception, three.first_body) == (None, None, None, "")
    with pytest.raises(ConfigError):
        jobs.deadletters(spark.createDataFrame(rows, kinds).drop("headers"))


@pytest.mark.slow
def test_replay(spark, folder):
    frames = whole(spark, folder).withColumn("headers", F.map_concat("headers", F.expr("map('expires', '5')")))
    count, slept = len(feed()) - 1, []  # the malformed one is not sent
    how = {"clock": lambda: sum(slept), "sleep": slept.append, "destination": "/queue/paced", "ids": "x-id"}
    with BrokerThread() as broker, stomp.connect(broker.url) as client:
        assert jobs.replay(frames, {"url": broker.url}, destination="/queue/max", ids="x-id") == count
        assert jobs.paced(frames, client, 50.0, **how) == count
        with client.subscribe("/queue/max") as one, client.subscribe("/queue/paced") as other:
            quick, slow = ([each.get(patience(10)) for _ in range(count)] for each in (one, other))
    assert 399 / 50 - 0.1 <= sum(slept) <= 399 / 50 + 0.1
    assert {message.get("x-id") for message in quick} == {message.get("x-id") for message in slow}
    assert len({message.get("x-id") for message in quick}) == count
    numbers = [int((message.get("n") == "x") and message.body == b"oops") for message in slow]
    assert sum(numbers) == sum(bytes(row[10]) == b"oops" for row in feed() if row[1])
    assert all(message.get("expires") is None for message in slow)
    assert outgoing(frames).columns == ["destination", "body", "headers"]


def test_requests_are_left_out_of_a_replay(spark):
    names = ["/queue/a", "/management/purge", " /management/purge", "/topic/management/"]
    frames = spark.createDataFrame([(name, bytearray(b"x")) for name in names], "destination string, body binary")
    for how, sent in [
        *(({}, [names[0], names[3]]), ({"requests": None}, names), ({"requests": "/queue/"}, names[1:])),
        ({"destination": "/queue/b"}, ["/queue/b"] * 4),
        ({"destination": F.concat(F.lit("/management"), F.col("destination"))}, ["/management" + names[2]]),
    ]:
        assert [row["destination"] for row in outgoing(frames, **how).collect()] == sent


AT = 1795935891986
#: message-id, timestamp, and the dialect whose identity it has. A message-id of another form is one of another broker.
DELIVERIES = [
    ("72,28", AT, "artemis"), ("82,28", AT, "artemis"),
    ("72,30", AT, "artemis"), ("72,28", AT + 1, "artemis"),
    ("72,28", None, "artemis"), ("72,28", 0, "artemis"),
    ("ID:a,28", AT, "activemq"), ("ID:a,28", AT, "activemq"), ("72,28\n", AT, "activemq"),
    ("1a-7", None, "stompcodec"), ("1a-7", AT, "stompcodec"), (None, AT, "stompcodec"),
]  # fmt: skip


def test_the_column_is_what_the_client_says_and_each_message_is_kept_once(spark):
    expected, values = [], []
    for id, at, dialect in DELIVERIES:
        headers = {k: str(v) for k, v in (("message-id", id), ("timestamp", at)) if v is not None}
        expected.append(lasting_identity(BROKERS[dialect], headers))
        moment = None if at is None else datetime.fromtimestamp(at / 1000, timezone.utc)
        values.append(("/queue/a", id, moment, None, False, 1, None, bytearray(b"x")))
    kinds = "destination string, message_id string, sent_at timestamp, received_at timestamp, redelivered boolean,"
    frames = spark.createDataFrame(values, kinds + " length int, error string, body binary")
    found = [row[0] for row in frames.select(identity(frames)).collect()]
    assert found == expected
    assert len(jobs.unique(frames).collect()) == len(set(found) - {None}) + found.count(None) == len(found) - 3
    assert _duplicates(narrowed(frames)) == 3
    bare = frames.drop("sent_at")  # so that nothing is known of Artemis's: all are kept
    assert sum(row.message_id in ("72,28", "82,28", "72,30") for row in jobs.unique(bare).collect()) == 6


# ---- presets ----
@pytest.mark.parametrize("name", preset_names())
def test_presets_are_as_the_page_says(name):
    preset = load(name)
    assert preset.name == name
    assert preset.about
    names = {column.name.lower() for column in preset.columns}
    assert len(names) == len(preset.columns)
    assert not names & TAKEN
    assert any(column.required for column in preset.columns)
    assert all(column.type in SCALARS or "<" in column.type for column in preset.columns)


def test_a_preset_of_ones_own(tmp_path):
    path = tmp_path / "own.json"
    columns = {"a.at": "ms! as came", "destination": "string", "n": "BIGINT", "l": "array<int>"}
    path.write_text(json.dumps({"columns": columns, "rest": "more"}), encoding="utf-8")
    preset = load(path)
    assert preset.sections == ("a",)
    assert [(each.path, each.name, each.type, each.required) for each in preset.columns] == [
        *(("a.at", "came", "ms", True), ("destination", "body_destination", "string", False)),
        *(("n", "n", "long", False), ("l", "l", "array<int>", False)),
    ]
    assert of_schema(path) == preset


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(("{", "not JSON"), ("{}", "columns"), ('{"columns": {"a": "odd"}}', "unknown type 'odd'")),
        ('{"columns": {"a": "int", "b": "int as A"}}', "two columns are called 'A'"),
        ('{"columns": {"a": "int"}, "unwrap": "x"}', "a list of strings"),
        *(('{"columns": {"a": "int"}, "colums": {}}', "unknown key 'colums'"), ("[" * 100_000, "not JSON")),
    ],
)
def test_a_preset_that_is_not_right(tmp_path, text, said):
    (tmp_path / "own.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"\A[^\n]*own\.json[^\n]*{said}[^\n]*\Z"):
        load(tmp_path / "own.json")


def test_no_such_preset():
    with pytest.raises(ConfigError, match="networkrail-td"):
        load("networkrail")
    with pytest.raises(ConfigError, match="cannot be read"):
        load("none.json")


def test_schemas_of_spark(tmp_path):
    inner = StructType([StructField("b c", StringType())])
    struct = StructType([StructField("a", ArrayType(inner)), StructField("Item", IntegerType(), False)])
    wanted = [("a", "array<struct<`b c`:string>>", False), ("body_Item", "int", True)]
    for schema in (struct, struct.json()):
        assert [(each.name, each.type, each.required) for each in of_schema(schema).columns] == wanted
    for bad in ('{"type": "array"}', '{"type": "struct", "fields": [5]}', '{"type": "struct", "fields": []}'):
        with pytest.raises(ConfigError):
            of_schema(bad)
    file = tmp_path / "schema.json"  # the largest one is read
    file.write_text(struct.json().ljust(2**20))
    assert [column.name for column in of_schema(str(file)).columns] == ["a", "body_Item"]
    file.write_text(struct.json().ljust(2**20 + 1))
    with pytest.raises(ConfigError, match="too large for a preset or a schema"):
        of_schema(str(file))


# ---- a query whose source was killed, and what its progress tells ----
PAGE = Path(__file__).parents[3] / "docs" / "spark-semantics.md"
PLAN = "\n=== Streaming Query ===\nCurrent State: ACTIVE\nLogical Plan: Connection reset"
FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:"
#: What PySpark 4.3 says when the process of the source got kill -9 while it worked, between two batches, and so on.
DEAD = [
    *(f"Connection reset{PLAN}", f"{FAILED} Connection reset SQLSTATE: XXKST{PLAN}"),
    *(f"{FAILED}  SQLSTATE: XXKST (no cause message){PLAN}", f"{FAILED}  SQLSTATE: XXKST{PLAN}"),
    f"java.io.EOFException{PLAN}",
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
]
ALIVE = [
    f"{FAILED} the sink fails SQLSTATE: XXKST{PLAN}",
    f"Traceback (most recent call last):\n  stompcodec.errors.ConnectionLostError: Connection reset{PLAN}",
    *(f"{FAILED} Python worker exited: Traceback (most recent call last)", ""),
]


def supervised(*errors, **options):
    """How often a query was started that ends with these errors, or, with None, is stopped."""
    left, started = list(errors), []

    def start():
        started.append(left.pop(0))

        def ends():
            if started[-1] is not None:
                raise StreamingQueryException(started[-1])

        return SimpleNamespace(awaitTermination=ends)

    supervise(start, **{"pause": 0.0, **options})
    assert not left
    return len(started)


def test_a_query_starts_again_as_often_as_its_source_is_gone(caplog):
    assert [has_died(RuntimeError(text)) for text in DEAD + ALIVE] == [True] * len(DEAD) + [False] * len(ALIVE)
    with caplog.at_level(logging.WARNING, "stompcodec.spark"):
        assert supervised(*DEAD, None) == len(DEAD) + 1
    assert caplog.text.count("The query starts again from its checkpoint") == len(DEAD)
    assert "it was killed, or ran out of memory" in caplog.text
    assert supervised(None) == 1


@pytest.mark.parametrize("error", ALIVE)
def test_another_failure_is_not_hidden(error):
    with pytest.raises(PySparkException) as caught:
        supervised(DEAD[0], error)
    assert str(caught.value) == error


def test_a_source_that_is_gone_each_time_ends_it():
    with pytest.raises(SourceDiedError, match=r"It ended 4 times within 60 s: look at .*: Connection reset$") as caught:
        supervised(*[DEAD[0]] * 4, restarts=3, within=60)
    assert isinstance(caught.value.__cause__, StreamingQueryException)
    assert supervised(*[DEAD[0]] * 9, None, restarts=1, within=0.0) == 10  # those were long ago


def test_metrics_are_found_in_a_progress_of_any_form():
    offset = json.dumps({"a": 1, "#metrics": {"backlogBytes": 3}})
    found = {"sources": [{"latestOffset": offset}, {"latestOffset": "x"}]}
    for each in (found, json.dumps(found), SimpleNamespace(json=json.dumps(found))):
        assert source_metrics(each) == [{"backlogBytes": 3}]
    for nothing in (None, {}, {"sources": [{"latestOffset": None}, {"latestOffset": '{"frames": 1}'}, {}]}):
        assert source_metrics(nothing) == []


@pytest.mark.slow
def test_the_supervisor_of_the_page_survives_kills_of_the_source(spark, tmp_path):
    if not hasattr(DataSourceStreamReader, "reportLatestOffset"):
        pytest.skip("PySpark before 4.2 asks a source for nothing that the progress could show")
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "jobs.supervise(" in block]

    def look(query):
        wait_for(lambda: source_metrics(query.lastProgress)[0]["unacknowledged"] == 0)
        return source_metrics(query.lastProgress)

    with live_broker() as broker:
        code = code.replace("stomp://localhost:61613", broker.url)
        for before, name in (('frames, "', "archive"), ('checkpoint="', "checkpoint"), ('"spoolDir", "', "spool")):
            code = code.replace(f'{before}{name}"', f'{before}{tmp_path / name}"')
        assert code.count(str(tmp_path)) == 3
        code = code.replace('every="1 minute"', 'every="200 milliseconds"')
        program = compile(code, "supervised.py", "exec")
        run = partial(exec, program, {"__name__": "supervised"})
        (metrics,), _ = goes_on_when_killed(spark, broker, "/queue/orders", tmp_path / "spool", run, look=look)
    rows = spark.read.parquet(str(tmp_path / "archive")).select("message_id").collect()
    assert len({row.message_id for row in rows}) == len(rows) == 40
    assert metrics["description"] == f"stomp: /queue/orders at {broker.url}, spool {tmp_path / 'spool'}"
    assert (metrics["backlogBytes"], metrics["unacknowledged"], metrics["stalled"]) == (0, 0, None)
    assert metrics["connected"] is True
    assert metrics["spoolBytes"] > 0
    assert 0 <= metrics["silenceSeconds"] < patience(120)


EVENT = b'[{"CA_MSG": {"time": "1647015981000", "area_id": "X1", "msg_type": "CA"}}]'


def run(*arguments):
    return CliRunner().invoke(command, list(map(str, arguments)))


def good(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, (result.stderr, result.exception)
    return [json.loads(line) for line in result.stdout.splitlines()]


def wrong(said, *arguments):
    result = run(*arguments)
    assert result.exit_code == 1, result.stdout
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_from_a_capture_to_tables(spark, tmp_path, caplog):
    frames = [message(n, f"/topic/TD_{n % 2}", b"oops" if n % 10 == 0 else EVENT) for n in range(40)]
    frames += [b"MESSAGE\nbroken\n\nx\0", message(1, body=b"x")]
    capture, archive = make_capture(tmp_path / "feed.stompcap", frames), tmp_path / "archive"
    assert good("archive", capture, "-o", archive) == [{"archive": str(archive), "frames": 42}]
    assert jobs.read_archive(spark, str(archive)).count() == 42

    for how, said in ((["-p", "none"], "preset 'none'"), (["-s", "n odd odd"], "neither Spark's JSON")):
        wrong(said, "explode", capture, "-o", tmp_path / "td", *how)
    assert not (tmp_path / "td/rows").exists()
    out = ["-o", tmp_path / "td", "-p", "networkrail-td", "-d", "/topic/TD_*"]
    for source in (capture, archive):
        with caplog.at_level(logging.WARNING, "stompcodec.spark"):
            (counts,) = good("explode", source, *out, "--existing", "overwrite")
        assert "5 of 41 records are in quarantine (12.2 %)" in caplog.text
        caplog.clear()
        del counts["output"]
        assert counts == {"frames": 41, "good_frames": 36, "quarantined_frames": 5, "rows": 36, "quarantine": 5}
    assert spark.read.parquet(str(tmp_path / "td/rows")).count() == 36
    wrong("already exists: name another output, or give --existing append or overwrite", "explode", capture, *out)

    rows = good("metrics", capture, "--window", "1 hour", "--sequence", "message-id")
    counts = {row["destination"]: row["count"] for row in rows}
    assert counts == {"/topic/TD_0": 20, "/topic/TD_1": 20, "/topic/a": 1, None: 1}
    assert [row["gaps"] for row in rows if row["count"] == 20] == [19, 19]
    table = run("metrics", archive)
    assert table.exit_code == 0
    assert "\x1b" not in table.stdout
    assert table.stdout.splitlines()[0].split()[:3] == ["start", "destination", "count"]


@pytest.mark.slow
def test_a_stream_goes_on_when_its_source_is_killed(spark, tmp_path):
    out, spool = tmp_path / "out", tmp_path / "spool"
    with live_broker() as broker:
        words = ("explode", broker.url, "-d", "/queue/a", "--spool", spool, "-o", out, "-p", "networkrail-td")
        _, (counts,) = goes_on_when_killed(spark, broker, "/queue/a", spool, partial(good, *words), EVENT)
    assert counts["frames"] == 40
    assert spark.read.parquet(str(out / "rows")).count() == counts["rows"] == 40
