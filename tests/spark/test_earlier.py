"""Checkpoints that an earlier tree wrote, when modules had other names, go on.

Each folder of `tests/data/earlier` holds a checkpoint and what its query read. What Spark keeps of a source is JSON and
names no module; if it ever kept a pickle of ours, these queries would not start.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from spark.live_making import LiveBroker, Rows, publish, running, wait_for
from spark.making import octets

from stompcodec import Frame
from stompcodec.capture import CaptureWriter

EARLIER = Path(__file__).parents[1] / "data" / "earlier"


@pytest.fixture
def folder(request: Any, tmp_path: Path) -> Path:
    """A copy of what the test names: a checkpoint and its data."""
    return Path(shutil.copytree(EARLIER / request.param, tmp_path / request.param))


@pytest.mark.parametrize("folder", ["file"], indirect=True)
def test_a_stream_of_captures_goes_on(spark, folder: Path) -> None:
    with CaptureWriter(folder / "feed" / "a.stompcap") as writer:
        writer.append(octets([Frame("MESSAGE", {"destination": "/queue/a", "n": "5"}, b"")]), 1_700_000_000_000_005)
    sink = Rows()
    frames = spark.readStream.format("stompfile").schema("n int").load(str(folder / "feed"))
    writer = frames.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert sink.column() == [5]
    assert min(sink.batches) == 1


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["live"], indirect=True)
def test_a_stream_from_a_broker_goes_on(spark, folder: Path) -> None:
    """Batch 1 was begun and not committed: it comes again from the spool, then what is new."""
    with LiveBroker() as broker:
        sink = Rows()
        options = {"url": broker.url, "destination": "/queue/before"}
        publish(broker.url, "/queue/before", 1, first=5)
        with running(spark, folder, sink, options) as query:
            wait_for(lambda: len(sink.rows) >= 3 and broker.count("/queue/before") == 0, query)
    assert sink.column() == [3, 4, 5]


def test_nothing_in_a_checkpoint_names_a_module() -> None:
    files = [path for path in EARLIER.rglob("checkpoint/**/*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        assert b"stompcodec." not in path.read_bytes(), path
