"""The sink: rows become frames, tasks that write them, and jobs of Spark, against our broker and a scripted server."""

import datetime
import inspect
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import patience
from profiles import examples

pytest.importorskip("pyspark")
from client.broker import BrokerThread
from client.peer import Peer
from pyspark import cloudpickle
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema
from spark.making import ADMISSION, START, make_capture, message, octets, pa

import stompcodec.client as stomp
from stompcodec import Frame, parse, serialize
from stompcodec.capture import CaptureWriter
from stompcodec.client.shell import BLOCK
from stompcodec.spark import sink as sink_module
from stompcodec.spark import sink as sink_rows
from stompcodec.spark.base import SinkError
from stompcodec.spark.link import parse_sink
from stompcodec.spark.live import Stomp
from stompcodec.spark.options import OptionError
from stompcodec.spark.reading.schema import SchemaError
from stompcodec.spark.sink import Rows, Sent, StompStreamWriter, StompWriter, Target

KINDS = {"destination": T.StringType(), "body": T.BinaryType(), "n": T.LongType()}
SCHEMA = T.StructType([T.StructField(name, kind) for name, kind in KINDS.items()])
QUEUE = "/queue/sink"
NO_ROW = "no row of the task took effect"


def writer(schema=SCHEMA, **options):
    return Stomp({"url": "stomp://h", **options}).writer(schema, False)


def batches(count, size=100, bad=None):
    """Rows in record batches; the row `bad` has no body."""
    rows = [(QUEUE, None if number == bad else b"%d" % number, number) for number in range(count)]
    for start in range(0, count, size):
        columns = zip(*rows[start : start + size])
        yield pa.record_batch([pa.array(column) for column in columns], names=SCHEMA.fieldNames())


def failing(count):
    yield from batches(count, 500)
    raise ValueError("out of rows")


def task(url, rows, **options):
    return pickle.loads(cloudpickle.dumps(writer(url=url, heartbeat="0", **options))).write(iter(rows))


def waiting(url, at_least=0):
    with stomp.connect(url) as client:
        subscription = client.subscribe(QUEUE, ack="client-individual", prefetch=100_000)
        found = []
        while message := subscription.get(patience(5) if len(found) < at_least else 0.1):
            found.append(message)
        return found


@pytest.fixture
def broker():
    with BrokerThread() as broker:
        yield broker


@pytest.mark.parametrize("transaction", ["true", "false"])
def test_all_rows_arrive_in_order(broker, transaction):
    assert task(broker.url, batches(2500, 1100), transaction=transaction) == Sent(0, 2500)
    found = waiting(broker.url, 2500)
    assert [(int(message.body), message.get("n")) for message in found] == [(n, str(n)) for n in range(2500)]
    assert task(broker.url, [], transaction=transaction) == Sent(0, 0)
    assert task(broker.url, [next(batches(1)).slice(1)]) == Sent(0, 0)


@pytest.mark.parametrize(
    ("rows", "transaction", "says", "stays"),
    [
        (lambda: batches(3000, 1000, bad=2500), "true", "row 2500 has no body: it is null", 0),
        (lambda: failing(2000), "true", "out of rows", 0),
        (lambda: batches(3000, 1000, bad=2500), "false", "row 2500 has no body", 2000),
    ],
)
def test_a_task_that_fails_leaves_nothing_unless_it_has_no_transaction(broker, rows, transaction, says, stays):
    with pytest.raises(Exception, match=rf"{says}[^\n]*\Z"):
        task(broker.url, rows(), receiptEvery="100", transaction=transaction)
    assert len(waiting(broker.url, stays)) == stays
    assert task(broker.url, batches(3)) == Sent(0, 3)


def until_closed(monkeypatch, rows, count):
    """Record batches: so many, and the rest once the task's client knows that its connection is gone."""
    clients = []

    def connect(*args, **options):
        clients.append(stomp.connect(*args, **options))
        return clients[0]

    monkeypatch.setattr(sink_module, "connect", connect)
    for number, batch in enumerate(rows):
        while number >= count and clients[0].state != "closed":
            threading.Event().wait(0.005)
        yield batch


def test_the_broker_refuses_in_the_middle(monkeypatch):
    """What is too much for its transactions, say: one line, which says where, and nothing is seen."""
    with BrokerThread(max_transaction_octets=100_000) as broker:
        told = rf"\Apartition 0: [^\n]*transactions too large[^\n]*; {NO_ROW}\Z"
        with pytest.raises(SinkError, match=told) as error:
            task(broker.url, until_closed(monkeypatch, batches(3000, 500), 5))
        assert error.value.__cause__ is None
        assert waiting(broker.url) == []


@pytest.mark.parametrize(
    ("transaction", "says"),
    [
        ("true", rf"the connection was lost: closed by the server\); {NO_ROW}$"),
        ("false", r"messages 50 to 99: the outcome is unknown.*; 50 rows were accepted before$"),
    ],
)
def test_the_connection_is_lost_in_the_middle(monkeypatch, transaction, says):
    with Peer(rules={"SEND": lambda side, frame: side.close() if frame.body == b"70" else side.receipt(frame)}) as peer:
        rows = until_closed(monkeypatch, batches(300, 50), 3)
        with pytest.raises(SinkError, match=says):
            task(peer.url, rows, receiptEvery="50", transaction=transaction)
        assert not peer.got("COMMIT")
        assert len(peer.sides) == 1  # no second attempt: the task is done again as a whole


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda side, frame: side.close(), "the outcome is unknown"),
        (lambda side, frame: side.error(frame, "disk full"), "disk full; no row of the task took effect"),
        (lambda side, frame: None, "no answer in"),
    ],
    ids=["cut", "refuse", "nothing"],
)
def test_a_commit_without_an_answer_is_told_as_it_is(answer, says):
    with Peer(rules={"COMMIT": answer}) as peer:
        with pytest.raises(SinkError, match=rf"partition 0: COMMIT of .*{says}") as error:
            task(peer.url, batches(10), receiptTimeout="0.3" if says == "no answer in" else f"{patience(60):.0f}")
        assert ("took effect" in str(error.value)) == ("took effect" in says)


@pytest.mark.parametrize(("every", "asked"), [("0", []), ("40", [39, 79, 99]), ("1000", [99])])
def test_receipts(every, asked):
    with Peer() as peer:
        task(peer.url, batches(100), receiptEvery=every, transaction="false")
        assert [at for at, frame in enumerate(peer.got("SEND")) if frame.get("receipt")] == asked


class Context:
    def __init__(self, partition, properties):
        self.partitionId, self.getLocalProperty = (lambda: partition), properties.get


def ids_of(monkeypatch, made, partition, **properties):
    context = Context(partition, {name.replace("__", "."): value for name, value in properties.items()})
    monkeypatch.setattr(sink_module.TaskContext, "get", classmethod(lambda cls: context))
    with Peer() as peer:
        again = pickle.loads(cloudpickle.dumps(made))
        object.__setattr__(again.options.link, "addresses", parse_sink({"url": peer.url}).link.addresses)
        again.write(batches(250, 100))
        return [frame.get("x-id") for frame in peer.got("SEND")]


def test_ids_are_the_same_when_a_task_is_done_again(monkeypatch):
    made = writer(dedupeHeader="x-id")
    first = ids_of(monkeypatch, made, 3)
    assert ids_of(monkeypatch, made, 3) == first
    assert [each.rpartition("-")[2] for each in first] == [str(n) for n in range(250)]
    assert len({*first, *ids_of(monkeypatch, made, 4)}) == 500
    assert not {*first} & {*ids_of(monkeypatch, writer(dedupeHeader="x-id"), 3)}  # another write is not the same again
    for _ in range(2):
        named = ids_of(monkeypatch, writer(dedupeHeader="x-id", idPrefix="daily"), 3)
        assert named == [f"daily-3-{n}" for n in range(250)]
    options = {"url": "stomp://h", "dedupeHeader": "x-id"}
    told = {"sql__streaming__queryId": "q-1", "streaming__sql__batchId": "17"}
    for overwrite in (False, True):  # after a restart
        made = Stomp(options).streamWriter(SCHEMA, overwrite)
        assert ids_of(monkeypatch, made, 2, **told) == [f"q-1-17-2-{n}" for n in range(250)]
    named = Stomp({**options, "idPrefix": "mine"}).streamWriter(SCHEMA, False)
    assert ids_of(monkeypatch, named, 2, **told)[:1] == ["mine-17-2-0"]


@pytest.mark.parametrize(("server", "header"), [("ActiveMQ-Artemis/2.31", "_AMQ_DUPL_ID"), ("x/1", "idempotency-key")])
def test_the_header_for_ids_that_the_broker_looks_at(server, header):
    with Peer(server=server) as peer:
        task(peer.url, batches(3), dedupeHeader="auto", idPrefix="p")
        assert [frame.get(header) for frame in peer.got("SEND")] == ["p-0-0", "p-0-1", "p-0-2"]


@pytest.mark.parametrize(("server", "lengths"), [("ActiveMQ/5.18", [None, "5"]), ("RabbitMQ/3.12", ["4", "5"])])
def test_text_is_a_text_message_for_jms(server, lengths):
    schema = T.StructType([T.StructField(name, T.StringType()) for name in ("destination", "body")])
    rows = pa.record_batch([pa.array([QUEUE] * 2), pa.array(["text", "nul \0"])], names=schema.fieldNames())
    with Peer(server=server) as peer:
        writer(schema, url=peer.url).write(iter([rows]))
        assert [frame.get("content-length") for frame in peer.got("SEND")] == lengths
        assert [frame.headers["content-type"] for frame in peer.got("SEND")] == ["text/plain;charset=utf-8"] * 2


def test_the_passcode_is_read_where_the_task_runs(monkeypatch, tmp_path):
    file = tmp_path / "passcode"
    file.write_text("s3cret!\n")
    with Peer() as peer:
        made = [
            writer(url=peer.url, login="ann", **how)
            for how in ({"passcodeEnv": "SINK_PASSCODE"}, {"passcodeFile": str(file)})
        ]
        monkeypatch.setenv("SINK_PASSCODE", "s3cret!")
        for each in map(cloudpickle.dumps, made):
            assert b"s3cret" not in each
            pickle.loads(each).write(batches(1))
        logins = [(frame.get("login"), frame.get("passcode")) for frame in peer.got("CONNECT")]
        assert logins == [("ann", "s3cret!")] * 2
        monkeypatch.delenv("SINK_PASSCODE")
        file.unlink()
        for each, says in zip(made, ["SINK_PASSCODE is not set", "cannot be read: No such file"]):
            with pytest.raises(SinkError, match=says):
                each.write(batches(1))


def test_what_cannot_be():
    with pytest.raises(SinkError, match=r'mode\("append"\)'):
        Stomp({"url": "stomp://h"}).writer(SCHEMA, True)
    with pytest.raises(SchemaError, match="no column body"):
        writer(SCHEMA[:1])
    with pytest.raises(SchemaError, match="column n is the header of option dedupeHeader"):
        writer(dedupeHeader="n")
    made = writer(url="stomp+ssl://127.0.0.1:1", caFile=os.devnull + "x")
    with pytest.raises(OptionError, match=r"caFile: .* cannot be read"):
        made.options.link.arguments()
    for make in (Stomp({}).writer, Stomp({}).streamWriter):
        with pytest.raises(OptionError, match="option url is missing"):
            make(SCHEMA, False)
    assert issubclass(StompWriter, sink_module.DataSourceArrowWriter)
    assert issubclass(StompStreamWriter, sink_module.DataSourceStreamArrowWriter)


# ---- rows to frames: what Arrow joins is what serialize would write ----
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
NAMES = WORDS.filter(lambda name: name not in ("", "content_type", *sink_rows._TAKEN, "destination", "body", "headers"))
MAPS = st.none() | st.dictionaries(WORDS.filter(bool) | st.just("content-type"), st.none() | WORDS, max_size=3)
ZONE = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}  # since 4.3
V12 = Target("1.2")
OF_FRAME = {"subscription", "message-id", "ack", "redelivered", "receipt", "transaction", "content-length"}
TEXT, OCTETS, LONG = T.StringType(), T.BinaryType(), T.LongType()
MAP = T.MapType(TEXT, TEXT)


def schema_of(**columns):
    return T.StructType([T.StructField(name.replace("__", "-"), kind) for name, kind in columns.items()])


PLAIN = schema_of(destination=TEXT, body=OCTETS)


def batch_of(schema, rows):
    arrow = to_arrow_schema(schema, **ZONE)
    return pa.record_batch([pa.array(column, field.type) for column, field in zip(zip(*rows), arrow)], schema=arrow)


def sent(schema, rows, target=V12, destination=None, id_header=None, **options):
    made = Rows(schema, destination, id_header).frames(batch_of(schema, rows), target, **options)
    return parse(b"".join(made.to_pylist()), target.version)


@st.composite
def tables(draw):
    text = draw(st.booleans())
    bodies = st.text(st.characters(exclude_categories=["Cs"]), max_size=9) if text else st.binary()
    fields = [("destination", TEXT, WORDS), ("body", TEXT if text else OCTETS, bodies)]
    fields += [(name, TEXT, st.none() | WORDS) for name in draw(st.lists(NAMES, max_size=3, unique_by=str.lower))]
    fields += [("headers", MAP, MAPS)] * draw(st.booleans())
    fields = draw(st.permutations(fields))
    schema = T.StructType([T.StructField(name, kind) for name, kind, _ in fields])
    return schema, draw(st.lists(st.tuples(*[values for _, _, values in fields]), min_size=1, max_size=6))


def by_hand(schema, row, version, jms):
    given = dict(zip(schema.fieldNames(), row))
    destination, body, more = given.pop("destination"), given.pop("body"), given.pop("headers", None) or {}
    pairs = [("destination", destination), *[(name, value) for name, value in given.items() if value is not None]]
    mine = {*given, *OF_FRAME, "destination"}
    pairs += [(name, value) for name, value in more.items() if name not in mine and value is not None]
    text = isinstance(body, str)
    if text and not any(name == "content-type" for name, _ in pairs):
        pairs.append(("content-type", "text/plain;charset=utf-8"))
    octets = body.encode() if text else body
    never = text and jms and b"\0" not in octets
    return serialize(Frame("SEND", pairs, octets), version, content_length="never" if never else "always")


@settings(max_examples=examples(250))
@given(tables(), st.sampled_from(["1.1", "1.2"]), st.booleans(), st.integers(0, 2))
def test_the_octets_are_those_of_serialize(table, version, jms, offset):
    schema, rows = table
    batch = batch_of(schema, [*rows[:1] * offset, *rows]).slice(offset)  # a slice has its octets elsewhere
    made = pickle.loads(pickle.dumps(Rows(schema, None, None))).frames(batch, Target(version, jms))
    assert made.to_pylist() == [by_hand(schema, row, version, jms) for row in rows]


MOMENT = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_999, tzinfo=datetime.timezone.utc)


@pytest.mark.parametrize(
    ("kind", "values", "written"),
    [
        (T.BooleanType(), [True, False, None], ["true", "false", None]),
        *((LONG, [-(2**63), 0, 7], [str(-(2**63)), "0", "7"]), (T.DoubleType(), [0.1, -2.5], ["0.1", "-2.5"])),
        (T.DecimalType(20, 10), [Decimal("0.0000000001"), None], ["0.0000000001", None]),
        (T.DateType(), [datetime.date(2024, 1, 31)], ["2024-01-31"]),
        (T.TimestampType(), [MOMENT, None], ["1700000000123", None]),
        (T.TimestampNTZType(), [MOMENT.replace(tzinfo=None)], ["1700000000123"]),
        (TEXT, ["", "a:b\\\n\r", "ß"], ["", "a:b\\\n\r", "ß"]),
    ],
)
def test_values_are_spelled_as_stomp_users_do(kind, values, written):
    frames = sent(schema_of(destination=TEXT, body=OCTETS, x=kind), [("d", b"", value) for value in values])
    assert [frame.get("x") for frame in frames] == written


def test_a_destination_for_all_and_lines_that_come_first():
    target = Target("1.2", lines="transaction:t1\n")
    frames = sent(schema_of(body=OCTETS), [(b"1",), (b"2",)], target, destination="/queue/a:b")
    first = [("transaction", "t1"), ("destination", "/queue/a:b")]
    assert [frame.headers.pairs()[:2] for frame in frames] == [first] * 2
    assert sent(PLAIN, [("/queue/c", b"")], destination="/queue/a")[0].headers["destination"] == "/queue/c"


def test_blocks_are_cut_between_frames(monkeypatch):
    sizes = [0, BLOCK // 2, BLOCK // 2, 10, 3 * BLOCK, 5, 5, 5, 5, 5]
    batch = batch_of(PLAIN, [("d", bytes([number]) * size) for number, size in enumerate(sizes)])
    whole = b"".join(Rows(PLAIN, None, "id").frames(batch, V12, 100, "i").to_pylist())
    for at_once in (2**30, 1000):  # what is too much at once goes by halves
        monkeypatch.setattr(sink_rows, "_AT_ONCE", at_once)
        blocks = list(Rows(PLAIN, None, "id").blocks(batch, V12, 100, "i", 3))
        assert b"".join(block.body for block in blocks) == whole
        ids = [frame.headers["id"] for block in blocks for frame in block.frames()]
        assert ids == [f"i{n}" for n in range(100, 110)]
        for block in blocks:
            assert len(block.frames()) == block.count <= 3
            assert len(block.body) <= BLOCK or block.count == 1
            assert serialize(block.frames()[-1]) == block.body[block.last :]
        if at_once > 1000:
            assert [block.count for block in blocks] == [2, 2, 1, 3, 2]


BOTH = {"destination": TEXT, "body": TEXT}


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"body": OCTETS}, "no column destination in body: add one, or set the option"),
        ({"destination": TEXT, "x": LONG}, "no column body in destination, x"),
        ({"destination": LONG, "body": OCTETS}, "column destination is bigint: it must be string"),
        ({**BOTH, "headers": T.MapType(TEXT, LONG)}, "column headers is map<string,bigint>: it must be"),
        ({**BOTH, "x": T.ArrayType(TEXT)}, "column x: array<string> cannot become a header"),
        ({**BOTH, "x": OCTETS}, "column x: binary cannot become a header: cast it to string"),
        ({**BOTH, "content__length": LONG}, "column content-length: the sink writes that header itself"),
        ({**BOTH, "Body": TEXT}, "2 columns are called body"),
        ({**BOTH, "x\0": TEXT}, r"a column is named 'x\\x00'"),
        ({**BOTH, "id": TEXT}, "column id is the header of option dedupeHeader"),
    ],
)
def test_columns_that_cannot_be_sent(columns, says):
    with pytest.raises(SchemaError, match=rf"{says}[^\n]*\Z"):
        Rows(schema_of(**columns), None, "id")


def as_text(array):
    """Octets as strings, whatever they are; Spark does not look."""
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers(), array.null_count)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ((None, "b", "x", {}), "row 42 has no destination: it is null"),
        (("d", None, "x", {}), "row 42 has no body: it is null"),
        (("d", "b", "x\0y", {}), "row 42: a header or text body holds a NUL"),
        (("d", "b", b"x\xff", {}), "row 42: a header or text body is not UTF-8"),
        (("d", b"\xff", "x", {}), "row 42: a header or text body is not UTF-8"),
        (("d", "b", "x", {"k": "\0"}), "column headers: holds a NUL"),
        (("d", "b", "x", {b"\xff": "v"}), "column headers: is not UTF-8"),
    ],
)
def test_rows_that_cannot_be_sent(row, says):
    good = ("d", "b", None, {"a": "b"})
    *columns, maps = zip(good, good, row, good)
    entries = pa.array([list(each.items()) for each in maps], pa.map_(pa.binary(), pa.string()))
    maps = pa.MapArray.from_arrays(entries.offsets, as_text(entries.keys), entries.items)
    columns = [[each.encode() if isinstance(each, str) else each for each in column] for column in columns]
    columns = [as_text(pa.array(column, pa.binary())) for column in columns]
    batch = pa.record_batch([*columns, maps], names=["destination", "body", "x", "headers"])
    with pytest.raises(SinkError) as error:
        Rows(schema_of(**BOTH, x=TEXT, headers=MAP), None, None).frames(batch, V12, first=40)
    assert str(error.value) == says


FRAMES = 3000


def odd(number):
    body = bytes([number % 256, 0, 255]) + b"%d" % number
    return message(number, f"/queue/feed.{number % 3}", body, priority=str(number % 10), odd=f"a:b\\{number}\n")


def taken(client, destination, count):
    with client.subscribe(destination, ack="client-individual", prefetch=100_000) as subscription:
        found = [subscription.get(patience(10)) for _ in range(count)]
        assert subscription.get(0.05) is None
        for each in found:
            each.ack()
        return found


def test_a_capture_goes_to_a_broker_and_is_the_same(spark, broker, tmp_path):
    sent = list(map(odd, range(FRAMES)))
    path = make_capture(tmp_path / "feed.stompcap", sent, group=100)
    read = spark.read.format("stompfile").option("splitBytes", "200k").load(str(path))
    options = {"url": broker.url, "dedupeHeader": "x-id", "idPrefix": "test"}
    with stomp.connect(broker.url) as client:
        ids = set()
        for _ in range(2):  # again: the same ids, by which a broker that looks at them drops the second ones
            read.write.format("stomp").options(**options).mode("append").save()
            for at in range(3):
                found = taken(client, f"/queue/feed.{at}", FRAMES // 3)
                expected = {frame.body: frame for frame in sent[at::3]}
                for each in found:
                    frame = expected.pop(each.body)
                    for name in ("priority", "odd", "timestamp", "spool", "pos"):
                        assert each.get(name) == frame.get(name)
                    ids.add(each.get("x-id"))
                assert not expected
            assert len(ids) == FRAMES
        assert len({each.split("-")[1] for each in ids}) > 1


def test_a_task_that_fails_leaves_nothing_and_says_why(spark, broker):
    rows = spark.range(0, 2000, 1, 2).selectExpr(
        "concat('/queue/part.', spark_partition_id()) as destination",
        "case when id = 1990 then null else cast(id as string) end as body",
        "id as n",
    )
    with pytest.raises(Exception, match="SinkError: partition 1: row 990 has no body: it is null; no row of the task"):
        rows.write.format("stomp").option("url", broker.url).mode("append").save()
    with stomp.connect(broker.url) as client:
        assert taken(client, "/queue/part.1", 0) == []
        rows.where("body is not null").write.format("stomp").option("url", broker.url).mode("append").save()
        assert [each.get("n") for each in taken(client, "/queue/part.1", 999)][:2] == ["1000", "1001"]


@pytest.mark.slow
def test_a_stream_of_micro_batches_and_one_that_is_done_again(spark, broker, tmp_path):
    folder, checkpoint = tmp_path / "feed.stompcap", tmp_path / "checkpoint"
    ids, seen = [], []
    with CaptureWriter(folder) as writer, stomp.connect(broker.url) as client:
        subscription = client.subscribe("/queue/stream", ack="auto")

        def more(first, count):
            for number in range(first, first + count):
                writer.append(octets([message(number, "/queue/stream", b"%d" % number)]), START + number, "frames")
            writer.sync()

        def run(expected):
            spark.createDataFrame([], "n int")  # the thread has no active session, in which Spark looks for sinks
            stream = spark.readStream.format("stompfile").option("maxFramesPerTrigger", "150").load(str(folder))
            options = {"url": broker.url, "dedupeHeader": "x-id", "checkpointLocation": str(checkpoint)}
            sink = stream.select("destination", "body", "headers").writeStream.format("stomp").options(**options)
            query = sink.trigger(availableNow=True).start()
            assert query.awaitTermination(patience(120))
            assert query.exception() is None
            for _ in range(expected):
                each = subscription.get(patience(10))
                ids.append(each.get("x-id"))
                seen.append(int(each.body))
            assert subscription.get(0.05) is None
            return query

        more(0, 400)
        with ThreadPoolExecutor(1) as thread:
            query = thread.submit(run, 400).result()
        assert (sorted(seen), len(set(ids))) == (list(range(400)), 400)
        assert all(each.startswith(f"{query.id}-") for each in ids)
        assert len({each[len(query.id) + 1 :].split("-")[0] for each in ids}) >= (3 if ADMISSION else 1)
        # What Spark does after a crash before its commit: the last micro-batch again.
        commits = list((checkpoint / "commits").iterdir())
        last = max(int(each.name) for each in commits if each.name.isdigit())
        for each in commits:
            if str(last) in each.name.split("."):
                each.unlink()
        again = sum(each.startswith(f"{query.id}-{last}-") for each in ids)
        assert again
        more(400, 50)
        for expected in [again + 50] if ADMISSION else [again, 50]:  # before 4.2 a trigger has one batch
            run(expected)
        assert (sorted(set(seen)), len(set(ids))) == (list(range(450)), 450)
