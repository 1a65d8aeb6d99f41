"""Spark jobs that write to our broker: batch and stream, from a capture and back; failures, ids, secrets."""

import pytest
from patience import patience

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from client.broker import BrokerThread
from spark.making import make_capture, message
from spark.read_back import ADMISSION

import stompcodec.client as stomp
from stompcodec import serialize
from stompcodec.capture import CaptureWriter

FRAMES = 3000


def frames(first, count):
    """Like those of a feed: several destinations, headers that need escapes, octets of all values."""
    for number in range(first, first + count):
        body = bytes([number % 256, 0, 255]) + b"%d" % number
        yield message(number, f"/queue/feed.{number % 3}", body, priority=str(number % 10), odd=f"a:b\\{number}\n")


def taken(client, destination, count):
    """So many messages, and no more."""
    with client.subscribe(destination, ack="client-individual", prefetch=100_000) as subscription:
        found = [subscription.get(patience(10)) for _ in range(count)]
        assert subscription.get(0.05) is None
        for each in found:
            each.ack()
        return found


@pytest.fixture
def broker():
    with BrokerThread() as broker:
        yield broker


def test_a_capture_goes_to_a_broker_and_is_the_same(spark, broker, tmp_path):
    path = make_capture(tmp_path / "feed.stompcap", frames(0, FRAMES), group=100)
    read = spark.read.format("stompfile").option("splitBytes", "200k").load(str(path))
    options = {"url": broker.url, "dedupeHeader": "x-id", "idPrefix": "test"}
    read.write.format("stomp").options(**options).mode("append").save()
    sent = list(frames(0, FRAMES))
    with stomp.connect(broker.url) as client:
        ids = set()
        for at in range(3):
            found = taken(client, f"/queue/feed.{at}", FRAMES // 3)
            expected = {frame.body: frame for frame in sent[at::3]}
            for each in found:
                frame = expected.pop(each.body)
                for name in ("priority", "odd", "timestamp"):
                    assert each.get(name) == frame.headers[name]
                assert each.get("spool") is None
                assert each.get("pos") is None
                ids.add(each.get("x-id"))
            assert not expected
        assert len(ids) == FRAMES
        assert len({each.split("-")[1] for each in ids}) > 1
        # The same again: the same ids, by which a broker that looks at them drops the second ones.
        read.write.format("stomp").options(**options).mode("append").save()
        for at in range(3):
            ids.update(each.get("x-id") for each in taken(client, f"/queue/feed.{at}", FRAMES // 3))
        assert len(ids) == FRAMES


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
    writer = CaptureWriter(folder)
    client = stomp.connect(broker.url)
    subscription = client.subscribe("/queue/stream", ack="auto")
    ids, seen = [], []

    def more(first, count):
        for number in range(first, first + count):
            writer.append(
                serialize(message(number, "/queue/stream", b"%d" % number)), 1_700_000_000_000_000 + number, "frames"
            )
        writer.sync()

    def run(expected):
        stream = spark.readStream.format("stompfile").option("maxFramesPerTrigger", "150").load(str(folder))
        query = (
            stream.select("destination", "body", "headers")
            .writeStream.format("stomp")
            .options(url=broker.url, dedupeHeader="x-id", checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(patience(120))
        assert query.exception() is None
        for _ in range(expected):
            each = subscription.get(patience(10))
            ids.append(each.get("x-id"))
            seen.append(int(each.body))
        assert subscription.get(0.05) is None
        return query

    try:
        more(0, 400)
        query = run(400)
        assert sorted(seen) == list(range(400))
        assert len(set(ids)) == 400
        assert all(each.startswith(f"{query.id}-") for each in ids)
        batches = {each[len(query.id) + 1 :].split("-")[0] for each in ids}
        assert len(batches) >= (3 if ADMISSION else 1)
        # What Spark does after a crash before its commit: the last micro-batch again.
        commits = checkpoint / "commits"
        last = max(int(each.name) for each in commits.iterdir() if each.name.isdigit())
        for each in commits.iterdir():
            if str(last) in each.name.split("."):
                each.unlink()
        again = sum(each.startswith(f"{query.id}-{last}-") for each in ids)
        assert again
        more(400, 50)
        if ADMISSION:
            run(again + 50)
        else:  # the trigger has one batch, which is the one before
            run(again)
            run(50)
        assert sorted(set(seen)) == list(range(450))
        assert len(set(ids)) == 450
    finally:
        client.close()
        writer.close()


def test_secrets_are_in_no_plan_and_no_error(spark, broker, monkeypatch):
    rows = spark.range(3).selectExpr("'/queue/a' as destination", "'x' as body")
    write = rows.write.format("stomp").mode("append")
    for options in ({"url": "stomp://ann:s3cret@h"}, {"url": broker.url, "passcode": "s3cret"}):
        with pytest.raises(Exception, match="use passcodeEnv") as error:
            write.options(**options).save()
        assert "s3cret" not in str(error.value)
    with pytest.raises(Exception, match="SchemaError: no column body"):
        spark.range(3).selectExpr("'/queue/a' as destination", "id").write.format("stomp").option(
            "url", broker.url
        ).mode("append").save()
