"""Checkpoints that an earlier tree wrote, when modules had other names, go on.

Each folder of `tests/data/earlier` holds a checkpoint and what its query read. What Spark keeps of a source is JSON and
names no module; if it ever kept a pickle of ours, these queries would not start.
"""

import shutil
from pathlib import Path

import pytest
from spark.live_making import Rows, live_broker, publish, running, wait_for
from spark.making import START, octets

from stompcodec import Frame
from stompcodec.capture import CaptureWriter

EARLIER = Path(__file__).parents[1] / "data" / "earlier"


def test_a_stream_of_captures_goes_on(spark, tmp_path):
    folder = shutil.copytree(EARLIER / "file", tmp_path / "file")
    with CaptureWriter(folder / "feed" / "a.stompcap") as writer:
        writer.append(octets([Frame("MESSAGE", {"destination": "/queue/a", "n": "5"}, b"")]), START + 5)
    sink = Rows()
    frames = spark.readStream.format("stompfile").schema("n int").load(str(folder / "feed"))
    writer = frames.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sink.column() == [5]
    assert min(sink.batches) == 1


@pytest.mark.slow
def test_a_stream_from_a_broker_goes_on(spark, tmp_path):
    """Batch 1 was begun and not committed: it comes again from the spool, then what is new."""
    folder, sink = shutil.copytree(EARLIER / "live", tmp_path / "live"), Rows()
    with live_broker() as broker:
        publish(broker.url, "/queue/before", 1, first=5)
        with running(spark, folder, sink, {"url": broker.url, "destination": "/queue/before"}) as query:
            wait_for(lambda: len(sink.column()) >= 3 and broker.queued("/queue/before") == 0, query)
    assert sink.column() == [3, 4, 5]


def test_nothing_in_a_checkpoint_names_a_module():
    files = [path for path in EARLIER.rglob("checkpoint/**/*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if b"stompcodec." in path.read_bytes()] == []
