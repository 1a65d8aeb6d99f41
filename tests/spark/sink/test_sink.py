"""The writers of "stomp" without Spark: tasks against our broker in this process, and against a scripted server."""

import os
import pickle
import threading

import pytest
from patience import patience

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from client.broker import BrokerThread
from client.peer import Peer, closed_port
from pyspark import cloudpickle
from pyspark.sql import types as T

import stompcodec.client as stomp
from stompcodec.broker.auth import User, hash_passcode
from stompcodec.spark import sink as sink_module
from stompcodec.spark.base import SinkError
from stompcodec.spark.link import parse_sink
from stompcodec.spark.live import Stomp
from stompcodec.spark.options import OptionError
from stompcodec.spark.reading.schema import SchemaError
from stompcodec.spark.sink import Sent, StompStreamWriter, StompWriter

SCHEMA = T.StructType(
    [
        T.StructField("destination", T.StringType()),
        T.StructField("body", T.BinaryType()),
        T.StructField("n", T.LongType()),
    ]
)
QUEUE = "/queue/sink"


def writer(options, schema, overwrite):
    return Stomp(options).writer(schema, overwrite)


def stream_writer(options, schema, overwrite):
    return Stomp(options).streamWriter(schema, overwrite)


def batches(count, size=100, bad=None):
    """Rows in record batches; the row `bad` has no body."""
    rows = [(QUEUE, None if number == bad else b"%d" % number, number) for number in range(count)]
    for start in range(0, count, size):
        yield pa.record_batch(
            [pa.array(column) for column in zip(*rows[start : start + size])], names=SCHEMA.fieldNames()
        )


def task(url, rows, **options):
    """What a task of `df.write` does, from the pickle that the driver sends."""
    made = pickle.loads(cloudpickle.dumps(writer({"url": url, "heartbeat": "0", **options}, SCHEMA, False)))
    return made.write(iter(rows))


def waiting(url, at_least=0, **options):
    """All messages that the broker has, once there are so many."""
    with stomp.connect(url, **options) as client:
        subscription = client.subscribe(QUEUE, ack="client-individual", prefetch=100_000)
        found = []
        while message := subscription.get(patience(5) if len(found) < at_least else 0.1):
            found.append(message)
        return found


@pytest.mark.parametrize("transaction", ["true", "false"])
def test_all_rows_arrive_in_order(transaction):
    with BrokerThread() as broker:
        assert task(broker.url, batches(2500, 1100), transaction=transaction) == Sent(0, 2500)
        found = waiting(broker.url, 2500)
        assert [(int(message.body), message.get("n")) for message in found] == [(n, str(n)) for n in range(2500)]
        assert task(broker.url, [], transaction=transaction) == Sent(0, 0)
        assert task(broker.url, [next(batches(1)).slice(1)]) == Sent(0, 0)


def test_rows_of_a_task_take_effect_together():
    """Until the last row is there, and the COMMIT confirmed, nobody sees any of them."""
    with BrokerThread() as broker, stomp.connect(broker.url) as client:
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
    ("rows", "says"),
    [
        (lambda: batches(3000, 1000, bad=2500), "row 2500 has no body: it is null"),
        (lambda: failing(2000), "out of rows"),
    ],
)
def test_a_task_that_fails_leaves_nothing(rows, says):
    with BrokerThread() as broker:
        with pytest.raises(Exception, match=says) as error:
            task(broker.url, rows(), receiptEvery="100")
        assert "\n" not in str(error.value)
        assert waiting(broker.url) == []
        assert task(broker.url, batches(3)) == Sent(0, 3)


def test_without_transaction_what_was_sent_stays():
    with BrokerThread() as broker:
        with pytest.raises(SinkError, match="row 2500 has no body"):
            task(broker.url, batches(3000, 1000, bad=2500), transaction="false")
        assert len(waiting(broker.url, 2000)) == 2000


def failing(count):
    yield from batches(count, 500)
    raise ValueError("out of rows")


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
        with pytest.raises(SinkError) as error:
            task(broker.url, until_closed(monkeypatch, batches(3000, 500), 5))
        text = str(error.value)
        assert text.startswith("partition 0: ")
        assert "transactions too large" in text
        assert text.endswith("; no row of the task took effect")
        assert error.value.__cause__ is None
        assert waiting(broker.url) == []


@pytest.mark.parametrize(
    ("transaction", "says"),
    [
        ("true", r"the connection was lost: closed by the server\); no row of the task took effect$"),
        ("false", r"messages 50 to 99: the outcome is unknown.*; 50 rows were accepted before$"),
    ],
)
def test_the_connection_is_lost_in_the_middle(monkeypatch, transaction, says):
    def on_send(side, frame):
        if frame.body == b"70":
            side.close()
        else:
            side.receipt(frame)

    with Peer(rules={"SEND": on_send}) as peer:
        rows = until_closed(monkeypatch, batches(300, 50), 3)
        with pytest.raises(SinkError, match=says):
            task(peer.url, rows, receiptEvery="50", transaction=transaction)
        assert not peer.got("COMMIT")
        assert len(peer.sides) == 1  # no second attempt: the task is done again as a whole


@pytest.mark.parametrize("answer", ["cut", "refuse", "nothing"])
def test_a_commit_without_an_answer_is_told_as_it_is(answer):
    def on_commit(side, frame):
        if answer == "cut":
            side.close()
        elif answer == "refuse":
            side.error(frame, "disk full")

    with Peer(rules={"COMMIT": on_commit}) as peer:
        with pytest.raises(SinkError, match="partition 0: COMMIT of") as error:
            task(peer.url, batches(10), receiptTimeout="0.3" if answer == "nothing" else f"{patience(60):.0f}")
        says = {"cut": "the outcome is unknown", "refuse": "disk full; no row of", "nothing": "no answer in"}
        assert says[answer] in str(error.value)
        assert ("took effect" in str(error.value)) == (answer == "refuse")


def test_nobody_there():
    says = r"partition 0: cannot connect to .*127\.0\.0\.1"
    with closed_port() as port, pytest.raises(SinkError, match=says) as error:
        task(f"stomp://127.0.0.1:{port}", batches(1), reconnectTimeout="0.2")
    assert "\n" not in str(error.value)


# ---- receipts, ids, dialects ----


@pytest.mark.parametrize(("every", "asked"), [("0", []), ("40", [39, 79, 99]), ("1000", [99])])
def test_receipts(every, asked):
    with Peer() as peer:
        task(peer.url, batches(100), receiptEvery=every, transaction="false")
        assert [at for at, frame in enumerate(peer.got("SEND")) if frame.get("receipt")] == asked


class Context:
    """What Spark tells a task."""

    def __init__(self, partition, **properties):
        self.partition = partition
        self.properties = {name.replace("__", "."): value for name, value in properties.items()}

    def partitionId(self):
        return self.partition

    def getLocalProperty(self, name):
        return self.properties.get(name)


def ids_of(monkeypatch, made, context, header="x-id"):
    """The ids that a task gives."""
    monkeypatch.setattr(sink_module.TaskContext, "get", classmethod(lambda cls: context))
    with Peer() as peer:
        again = pickle.loads(cloudpickle.dumps(made))
        object.__setattr__(again.options.link, "addresses", parse_sink({"url": peer.url}).link.addresses)
        again.write(batches(250, 100))
        return [frame.get(header) for frame in peer.got("SEND")]


def test_ids_are_the_same_when_a_task_is_done_again(monkeypatch):
    options = {"url": "stomp://h", "dedupeHeader": "x-id"}
    made = writer(options, SCHEMA, False)
    first = ids_of(monkeypatch, made, Context(3))
    assert ids_of(monkeypatch, made, Context(3)) == first
    assert [each.rpartition("-")[2] for each in first] == [str(n) for n in range(250)]
    assert len({*first, *ids_of(monkeypatch, made, Context(4))}) == 500
    other = ids_of(monkeypatch, writer(options, SCHEMA, False), Context(3))
    assert not {*first} & {*other}  # another write is not the same write again
    named = [ids_of(monkeypatch, writer({**options, "idPrefix": "daily"}, SCHEMA, False), Context(3)) for _ in range(2)]
    assert named[0] == named[1] == [f"daily-3-{n}" for n in range(250)]


def test_ids_of_a_stream_are_of_its_query_and_micro_batch(monkeypatch):
    options = {"url": "stomp://h", "dedupeHeader": "x-id"}
    told = {"sql__streaming__queryId": "q-1", "streaming__sql__batchId": "17"}
    for made in (stream_writer(options, SCHEMA, False), stream_writer(options, SCHEMA, True)):  # after a restart
        assert ids_of(monkeypatch, made, Context(2, **told)) == [f"q-1-17-2-{n}" for n in range(250)]
    named = stream_writer({**options, "idPrefix": "mine"}, SCHEMA, False)
    assert ids_of(monkeypatch, named, Context(2, **told))[:1] == ["mine-17-2-0"]


@pytest.mark.parametrize(("server", "header"), [("ActiveMQ-Artemis/2.31", "_AMQ_DUPL_ID"), ("x/1", "idempotency-key")])
def test_the_header_for_ids_that_the_broker_looks_at(server, header):
    with Peer(server=server) as peer:
        task(peer.url, batches(3), dedupeHeader="auto", idPrefix="p")
        assert [frame.get(header) for frame in peer.got("SEND")] == ["p-0-0", "p-0-1", "p-0-2"]


@pytest.mark.parametrize(("server", "lengths"), [("ActiveMQ/5.18", [None, "5"]), ("RabbitMQ/3.12", ["4", "5"])])
def test_text_is_a_text_message_for_jms(server, lengths):
    schema = T.StructType([T.StructField("destination", T.StringType()), T.StructField("body", T.StringType())])
    rows = pa.record_batch([pa.array([QUEUE] * 2), pa.array(["text", "nul \0"])], names=schema.fieldNames())
    with Peer(server=server) as peer:
        writer({"url": peer.url}, schema, False).write(iter([rows]))
        assert [frame.get("content-length") for frame in peer.got("SEND")] == lengths
        assert [frame.headers["content-type"] for frame in peer.got("SEND")] == ["text/plain;charset=utf-8"] * 2


# ---- options and secrets ----


def test_the_passcode_is_read_where_the_task_runs(monkeypatch, tmp_path):
    file = tmp_path / "passcode"
    file.write_text("s3cret!\n")
    logins = []

    def on_connect(side, frame):
        logins.append((frame.get("login"), frame.get("passcode")))
        Peer.on_connect(side.peer, side, frame)

    with Peer(rules={"CONNECT": on_connect}) as peer:
        made = [
            writer({"url": peer.url, "login": "ann", **how}, SCHEMA, False)
            for how in ({"passcodeEnv": "SINK_PASSCODE"}, {"passcodeFile": str(file)})
        ]
        for each in made:
            assert b"s3cret" not in cloudpickle.dumps(each)
            monkeypatch.setenv("SINK_PASSCODE", "s3cret!")
            pickle.loads(cloudpickle.dumps(each)).write(batches(1))
            monkeypatch.delenv("SINK_PASSCODE")
        assert logins == [("ann", "s3cret!")] * 2
        file.unlink()
        for each, says in zip(made, ["SINK_PASSCODE is not set", "cannot be read: No such file"]):
            with pytest.raises(SinkError, match=says):
                each.write(batches(1))


def test_a_login_that_is_refused_shows_no_secret(monkeypatch):
    monkeypatch.setenv("SINK_PASSCODE", "s3cret!")
    with BrokerThread(users={"ann": User("ann", passcode=hash_passcode("another"))}) as broker:
        with pytest.raises(SinkError, match="CONNECT was rejected") as error:
            task(
                broker.url,
                batches(1),
                login="ann",
                passcodeEnv="SINK_PASSCODE",
                reconnectTimeout=f"{patience(0.5):.1f}",
            )
        seen: BaseException | None = error.value
        while seen is not None:
            assert "s3cret" not in str(seen)
            seen = seen.__cause__ or seen.__context__


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "option url is missing"),
        ({"url": "gopher://h"}, "option url: "),
        ({"url": "stomp://ann:s3cret@h"}, "option url has a passcode"),
        ({"url": "stomp://h", "passcode": "s3cret"}, "option passcode is refused"),
        ({"url": "stomp://h", "Password": "s3cret"}, "option password is refused"),
        ({"url": "stomp://h", "transaction": "maybe"}, "option transaction is 'maybe'"),
        ({"url": "stomp://h", "receiptEvery": "-1"}, "option receiptEvery is '-1'"),
        ({"url": "stomp://h", "recieptEvery": "1"}, "did you mean receiptEvery"),
        ({"url": "stomp://h", "dedupeHeader": "Receipt"}, "option dedupeHeader is 'Receipt': the sink writes"),
        ({"url": "stomp://h", "idPrefix": "a b"}, "option idPrefix"),
        ({"url": "stomp://h", "passcodeEnv": "A", "passcodeFile": "b"}, "give only one of them"),
        ({"url": "stomp://h", "dialect": "hornet"}, "option dialect is 'hornet'"),
    ],
)
def test_options_that_cannot_be(options, says):
    for make in (writer, stream_writer):
        with pytest.raises(OptionError, match=says) as error:
            make(options, SCHEMA, False)
        assert "\n" not in str(error.value)
        assert "s3cret" not in str(error.value)


def test_what_else_cannot_be():
    with pytest.raises(SinkError, match=r'mode\("append"\)'):
        writer({"url": "stomp://h"}, SCHEMA, True)
    with pytest.raises(SchemaError, match="no column body"):
        writer({"url": "stomp://h"}, SCHEMA[:1], False)
    with pytest.raises(SchemaError, match="column n is the header of option dedupeHeader"):
        writer({"url": "stomp://h", "dedupeHeader": "n"}, SCHEMA, False)
    made = writer({"url": "stomp+ssl://127.0.0.1:1", "caFile": os.devnull + "x"}, SCHEMA, False)
    with pytest.raises(OptionError, match=r"caFile: .* cannot be read"):
        made.options.link.arguments()
    assert issubclass(StompWriter, sink_module.DataSourceArrowWriter)
    assert issubclass(StompStreamWriter, sink_module.DataSourceStreamArrowWriter)
