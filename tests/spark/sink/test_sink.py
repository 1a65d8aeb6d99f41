"""The writers of "stomp" without Spark: tasks against our broker in this process, and against a scripted server."""

import os
import pickle
import threading

import pytest
from patience import patience

pytest.importorskip("pyspark")

from client.broker import BrokerThread
from client.peer import Peer
from pyspark import cloudpickle
from pyspark.sql import types as T
from spark.making import pa

import stompcodec.client as stomp
from stompcodec.spark import sink as sink_module
from stompcodec.spark.base import SinkError
from stompcodec.spark.link import parse_sink
from stompcodec.spark.live import Stomp
from stompcodec.spark.options import OptionError
from stompcodec.spark.reading.schema import SchemaError
from stompcodec.spark.sink import Sent, StompStreamWriter, StompWriter

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
    """What a task of `df.write` does, from the pickle that the driver sends."""
    return pickle.loads(cloudpickle.dumps(writer(url=url, heartbeat="0", **options))).write(iter(rows))


def waiting(url, at_least=0):
    """All messages that the broker has, once there are so many."""
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


def test_rows_of_a_task_take_effect_together(broker):
    """Until the last row is there, and the COMMIT confirmed, nobody sees any of them."""
    with stomp.connect(broker.url) as client:
        subscription = client.subscribe(QUEUE, ack="client-individual", prefetch=5000)
        seen = []

        def rows():
            for batch in batches(3000, 1000):
                seen.append(subscription.get(0.05))
                yield batch

        task(broker.url, rows(), receiptEvery="100")
        assert seen == [None] * 3
        assert [int(subscription.get(patience(5)).body) for _ in range(3000)] == list(range(3000))


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


# ---- receipts, ids, dialects ----


@pytest.mark.parametrize(("every", "asked"), [("0", []), ("40", [39, 79, 99]), ("1000", [99])])
def test_receipts(every, asked):
    with Peer() as peer:
        task(peer.url, batches(100), receiptEvery=every, transaction="false")
        assert [at for at, frame in enumerate(peer.got("SEND")) if frame.get("receipt")] == asked


class Context:
    """What Spark tells a task."""

    def __init__(self, partition, properties):
        self.partitionId, self.getLocalProperty = (lambda: partition), properties.get


def ids_of(monkeypatch, made, partition, **properties):
    """The ids that a task gives."""
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


def test_ids_of_a_stream_are_of_its_query_and_micro_batch(monkeypatch):
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


# ---- options and secrets ----


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
