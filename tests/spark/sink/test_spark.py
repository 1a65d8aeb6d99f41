"""Spark jobs that write to our broker: batch and stream, from a capture and back; failures, ids, secrets."""

import pytest
from client.broker import BrokerThread
from patience import patience
from spark.making import ADMISSION, START, make_capture, message, octets

import stompcodec.client as stomp
from stompcodec.capture import CaptureWriter

FRAMES = 3000


def odd(number):
    body = bytes([number % 256, 0, 255]) + b"%d" % number
    return message(number, f"/queue/feed.{number % 3}", body, priority=str(number % 10), odd=f"a:b\\{number}\n")


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
    """Several destinations, headers that need escapes, octets of all values."""
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
        query = run(400)
        assert sorted(seen) == list(range(400))
        assert len(set(ids)) == 400
        assert all(each.startswith(f"{query.id}-") for each in ids)
        batches = {each[len(query.id) + 1 :].split("-")[0] for each in ids}
        assert len(batches) >= (3 if ADMISSION else 1)
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
        assert sorted(set(seen)) == list(range(450))
        assert len(set(ids)) == 450
