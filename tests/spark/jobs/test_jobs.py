"""Jobs on frames: no row is lost, whatever the bodies are, and streams make what is made of the whole."""

import fnmatch
import gzip
import json
import os
import random
import re
import shutil
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from patience import patience

pytest.importorskip("pyspark")

from client.broker import BrokerThread
from pyspark.sql import functions as F
from spark.making import make_capture

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.client.dialects import BROKERS, lasting_identity
from stompcodec.errors import ConfigError
from stompcodec.spark import FRAME_SCHEMA, jobs
from stompcodec.spark.jobs.frames import identity, outgoing
from stompcodec.spark.jobs.output import _above
from stompcodec.spark.report.data import _duplicates, narrowed

DATA = Path(os.environ.get("STOMPCODEC_DATA") or Path(__file__).parents[4] / "shared/data")
START = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
genuine = pytest.mark.skipif(not DATA.is_dir(), reason="the genuine feeds are not here")


def frames_of(spark, bodies):
    rows = [
        ("MESSAGE", "/topic/a", f"id-{at}", body and bytearray(body), "spool", at) for at, body in enumerate(bodies)
    ]
    kinds = "command string, destination string, message_id string, body binary, spool string, pos long"
    return spark.createDataFrame(rows, kinds)


def exploded(spark, bodies, preset=None, **options):
    """The rows of each frame, in order."""
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
@pytest.mark.parametrize(
    ("preset", "rows"), [("networkrail-td", 33), ("networkrail-trust", 7), ("networkrail-vstp", 1)]
)
def test_genuine_feeds_become_tables(spark, preset, rows):
    paths = sorted(DATA.glob(f"networkrail/{preset.removeprefix('networkrail-')}-*.json"))
    bodies = [path.read_bytes() for path in paths if "headers" not in path.name]
    made = exploded(spark, bodies, preset)
    found = [row for rows in made for row in rows]
    assert len(found) == rows
    assert [row for row in found if row._reason or row._raw is not None] == []
    for at, body in enumerate(bodies if feed == "td" else []):
        for row, (values,) in zip(made[at], (each.values() for each in json.loads(body))):
            moment = datetime.fromtimestamp(int(values["time"]) / 1000, timezone.utc).replace(tzinfo=None)
            names = ("msg_type", "area_id", "from", "to", "descr", "address", "data")
            got = (row.msg_type, row.area_id, row.from_berth, row.to_berth, row.descr, row.address, row.data)
            assert got == tuple(map(values.get, names))
            assert (row.time, row.extra) == (moment, None)


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
    (GOOD, [None, None]),
    (json.dumps(event()).encode(), [None]),
    (b" " + GOOD + b"\n", [None, None]),
    (None, ["no body"]),
    (b"", ["no body"]),
    *((body, ["malformed JSON"]) for body in (b"null", b"5", b"{", GOOD[:-1], GOOD + b" and more", GOOD + GOOD)),
    *(
        (body, ["malformed JSON"])
        for body in (GOOD + b"," + GOOD, GOOD + b"],[" + GOOD, b'{"a":' * 1200 + b"1" + b"}" * 1200)
    ),
    (b'{"CA_MSG": {}}, {"CA_MSG": {}}', ["malformed JSON"]),
    (b"[]", ["an empty list"]),
    (b"\xff\xfe", ["not UTF-8"]),
    (gzip.compress(GOOD), ["the body is gzip"]),
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
    packed = gzip.compress(GOOD * 50)
    found = exploded(spark, [GOOD, b" " + GOOD, packed], "networkrail-td", max_body=len(GOOD), gzip=True)
    assert [found[at][0]._reason is None for at in range(3)] == [True, False, False]
    assert found[1][0]._reason == f"the body is larger than {len(GOOD)} bytes"
    assert found[2][0]._reason == f"gzip: the inflated body is larger than {len(GOOD)} bytes"
    assert bytes(found[2][0]._raw) == packed


def _value(rnd, depth=0):
    kind = rnd.randrange(8 if depth < 3 else 5)
    if kind < 5:
        return rnd.choice([None, True, 0, -1.5, "", "x", "1647015981000", "ü\n\x00"])
    if kind == 5:
        return [_value(rnd, depth + 1) for _ in range(rnd.randrange(3))]
    keys = ["CA_MSG", "SF_MSG", "time", "msg_type", "area_id", "a"]
    return {rnd.choice(keys): _value(rnd, depth + 1) for _ in range(rnd.randrange(4))}


def test_no_record_is_lost_whatever_the_bodies_are(spark):
    rnd = random.Random(5)
    bodies = []
    for _ in range(600):
        body = json.dumps(rnd.choice([_value(rnd), [_value(rnd), event()], [event("SF", a=_value(rnd))]])).encode()
        if rnd.random() < 0.3:
            at = rnd.randrange(len(body))
            body = body[:at] + bytes([rnd.randrange(256)]) + body[at + 1 :]
        bodies.append(body)
    found = exploded(spark, bodies, "networkrail-td")
    for rows, body in zip(found, bodies):
        if rows[0].item is None:
            assert len(rows) == 1
            assert bytes(rows[0]._raw) == body
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
    rnd = random.Random(3)
    rows = []
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
    """The feed as Parquet, in files that a stream reads one by one."""
    path = tmp_path_factory.mktemp("jobs") / "in"
    rows = feed()
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
    count = jobs.archive(whole(spark, folder), str(tmp_path / "batch"))
    jobs.archive(stream(spark, folder), str(tmp_path / "stream"), available_now=True).awaitTermination()
    assert count == len(messages) == len(rows) - 10
    again(tmp_path / "stream/_checkpoint")
    jobs.archive(stream(spark, folder), str(tmp_path / "stream"), available_now=True).awaitTermination()
    assert sorted(path.name for path in (tmp_path / "batch").glob("date=*/*")) == [
        "destination=%2Ftopic%2Fa",
        "destination=%2Ftopic%2Fb",
        "destination=__HIVE_DEFAULT_PARTITION__",
    ]
    for name in ("batch", "stream"):
        made = jobs.read_archive(spark, str(tmp_path / name)).collect()
        assert {(row.destination, row.message_id, bytes(row.body)) for row in made} == messages
        assert len(made) == len(messages)
        assert {str(row.date) for row in made} == {"2026-03-01"}
        assert [row.error for row in made if row.error] == ["bad-header: it"]
    shutil.rmtree(tmp_path / "batch")
    assert jobs.archive(whole(spark, folder), str(tmp_path / "batch"), dedupe=False) == len(rows)


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
def test_nothing_in_quarantine_and_nothing_at_all(spark, tmp_path):
    """Spark leaves out what it knows to be empty, and whatever counts its rows with it."""
    good = frames_of(spark, [json.dumps([event()]).encode()] * 3)
    for name, frames, count in (("good", good, 3), ("none", good.filter(F.col("body").isNull()), 0)):
        counts = jobs.write_exploded(jobs.explode(frames, "networkrail-td"), str(tmp_path / name))
        assert counts == {"frames": count, "good": count, "quarantined": 0, "rows": count, "quarantine": 0}
        assert jobs.read_quarantine(spark, str(tmp_path / name)).count() == 0
        assert jobs.archive(frames, str(tmp_path / name / "archive")) == count


@pytest.mark.slow
def test_an_archive_and_another_checkpoint_are_told(spark, folder, tmp_path):
    """Spark's file sink would skip the numbers of batches that it has, and their rows would be missing."""
    path = tmp_path / "archive"
    frames = stream(spark, folder)

    def run(**options):
        jobs.archive(frames, str(path), available_now=True, **options).awaitTermination()
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


def test_names_of_later_batches():
    for number in (0, 8, 9, 10, 37, 99, 100, 1099):
        patterns = _above(number).strip("{}").split(",")
        for name in (f"{other}{end}" for other in range(1200) for end in ("", ".compact")):
            found = any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
            assert found == (int(name.partition(".")[0]) > number), (number, name)


def test_rows_and_quarantine_hold_all_frames(spark, folder, tmp_path):
    frames = whole(spark, folder)
    counts = jobs.write_exploded(jobs.explode(frames, "networkrail-td"), str(tmp_path / "batch"))
    assert isinstance(counts, dict)
    total = len(feed())
    assert counts["frames"] == total == counts["good"] + counts["quarantined"]
    batches = []

    def run():
        made, out = jobs.explode(stream(spark, folder), "networkrail-td"), str(tmp_path / "stream")
        jobs.write_exploded(made, out, available_now=True, on_counts=batches.append).awaitTermination()

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
    jobs.write_metrics(rows, str(tmp_path / "stream"), available_now=True).awaitTermination()
    one, other = (
        sorted(jobs.read_metrics(spark, str(tmp_path / name)).collect(), key=str) for name in ("batch", "stream")
    )
    assert one == other
    expected = Counter((row[6].replace(second=0, tzinfo=None), row[1]) for row in feed())
    assert {(row.start, row.destination): row["count"] for row in one} == expected
    assert sum(row.bytes for row in one) == sum(row[14] for row in feed())
    assert sum(row.redelivered for row in one) == 10
    assert sum(row.errors for row in one) == 1
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
    """It gives the broker no orders."""
    names = ["/queue/a", "/management/purge", " /management/purge", "/topic/management/"]
    frames = spark.createDataFrame([(name, bytearray(b"x")) for name in names], "destination string, body binary")
    for how, sent in [
        ({}, [names[0], names[3]]),
        ({"requests": None}, names),
        ({"requests": "/queue/"}, names[1:]),
        ({"destination": "/queue/b"}, ["/queue/b"] * 4),
        ({"destination": F.concat(F.lit("/management"), F.col("destination"))}, ["/management" + names[2]]),
    ]:
        assert [row["destination"] for row in outgoing(frames, **how).collect()] == sent


# ---- which frames are one message ----

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
    kept = jobs.unique(frames).collect()
    assert len(kept) == len(set(found) - {None}) + found.count(None) == len(found) - 3
    assert sum(_duplicates(narrowed(frames), None).values()) == 3
    bare = frames.drop("sent_at")  # so that nothing is known of Artemis's: all are kept
    assert sum(row.message_id in ("72,28", "82,28", "72,30") for row in jobs.unique(bare).collect()) == 6
