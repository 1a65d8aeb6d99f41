"""What a live query says where its spool is not the one that its checkpoint knows, without Spark's JVM."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from spark.live_making import LiveBroker, publish, wait_for

from stompcodec.capture import Capture
from stompcodec.errors import StoreError
from stompcodec.spark.base import ReadAllAvailable
from stompcodec.spark.link import parse_live
from stompcodec.spark.live import LiveStreamReader
from stompcodec.spark.reading.schema import FRAME_SCHEMA
from stompcodec.spark.receiver import Receiver


@pytest.fixture(scope="module")
def broker():
    with LiveBroker() as broker:
        yield broker


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def reader_of(broker: LiveBroker, queue: str, spool: Path, **options: str) -> LiveStreamReader:
    given = {"url": broker.url, "destination": queue, "spoolDir": str(spool), **options}
    return LiveStreamReader(given, FRAME_SCHEMA)


def end_of(broker: LiveBroker, reader: LiveStreamReader, start: dict[str, object]) -> dict[str, object]:
    """The end of the frames, once all messages of the queue are in the spool; then the reader is stopped."""
    (queue,) = reader._options.destination
    try:
        wait_for(lambda: reader.latestOffset(start, ReadAllAvailable()).get("frames") and not broker.count(queue))
        return reader.latestOffset(start, ReadAllAvailable())
    finally:
        reader.stop()


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the source logs is seen, whatever other tests of this process have done to its logger."""
    log = logging.getLogger("stompcodec.spark")
    monkeypatch.setattr(log, "disabled", False)
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level(logging.WARNING, log.name)


def test_a_new_query_on_an_old_spool_is_told(broker, queue: str, spool: Path, caplog) -> None:
    """A deleted checkpoint looks like that; Spark's file sinks would skip batches then."""
    publish(broker.url, queue, 3)
    last = end_of(broker, reader_of(broker, queue, spool), {})
    end_of(broker, reader_of(broker, queue, spool), last)
    assert "file sink" not in caplog.text  # the spool was new, and then the offset was known
    end_of(broker, reader_of(broker, queue, spool), {})
    assert caplog.text.count("a file sink of Spark skips batches") == 1


@pytest.mark.parametrize("filled", [20, 0])
def test_another_spool_is_refused_before_anything_is_received(
    broker, queue: str, spool: Path, tmp_path: Path, caplog, filled: int
) -> None:
    """One that is longer than the offset, and one that is not there: each start fails, and so does a planned batch."""
    publish(broker.url, queue, 3)
    last = end_of(broker, reader_of(broker, queue, spool), {})
    stop = last["frames"]
    spool.rename(tmp_path / "kept")
    if filled:
        publish(broker.url, queue, filled, body=bytes(100))
        receiver = Receiver(parse_live({"url": broker.url, "destination": queue, "spoolDir": str(spool)}))
        wait_for(lambda: receiver.count == filled and not broker.count(queue))
        receiver.close()
    publish(broker.url, queue, 5, first=3)
    for _ in range(3):
        with pytest.raises(
            StoreError, match=f"is not the spool of the checkpoint.* everything behind offset {stop} "
        ) as caught:
            end_of(broker, reader_of(broker, queue, spool), last)
        assert "set failOnDataLoss=false to read the new one from its start" in str(caught.value)
    with pytest.raises(StoreError, match=f"lost: bytes 0 to {stop} of frames "):
        reader_of(broker, queue, spool).partitions({}, last)
    assert broker.count(queue) == 5
    assert "lost:" not in caplog.text
    lenient = reader_of(broker, queue, spool, failOnDataLoss="false")
    assert lenient.partitions({}, last) == []
    assert end_of(broker, lenient, last)["#spool"] != last["#spool"]
    assert caplog.text.count("lost:") == 2


@pytest.mark.parametrize("kept", [1, 0])
def test_a_short_spool_of_the_same_identity_is_refused(broker, queue: str, spool: Path, caplog, kept: int) -> None:
    """As when a folder was put back in part: each start fails, and failOnDataLoss=false reads all that is there."""
    publish(broker.url, queue, 3)
    last = end_of(broker, reader_of(broker, queue, spool), {})
    cut = [offset for chain in Capture(spool).chains() for offset, *_ in Capture(spool).frames(chain)][kept]
    for segment in spool.glob("frames-*.stomp"):
        os.truncate(segment, cut)
        if not cut:
            segment.unlink()
    publish(broker.url, queue, 20, first=3)  # soon it is longer than the offset
    for start in ({"frames": last["frames"]}, last, last):  # the first: an offset of an earlier version
        with pytest.raises(StoreError, match=f"lost: bytes {cut} to {last['frames']} of frames, which were read"):
            end_of(broker, reader_of(broker, queue, spool), start)
    assert broker.count(queue) == 20
    lenient = reader_of(broker, queue, spool, failOnDataLoss="false")

    def read() -> list[int]:
        parts = lenient.partitions(last, lenient.latestOffset(last, ReadAllAvailable()))
        rows = [row for part in parts for batch in lenient.read(part) for row in batch.to_pylist()]
        return [int(dict(row["headers"])["n"]) for row in rows]

    try:
        wait_for(lambda: len(read()) == kept + 20)
        assert read() == [*range(kept), *range(3, 23)]
    finally:
        lenient.stop()
    assert caplog.text.count("lost:") == 1


def test_a_second_query_on_a_spool_is_refused(broker, queue: str, spool: Path, monkeypatch) -> None:
    monkeypatch.setattr("stompcodec.spark.receiver._LOCK_WAIT", 0.2)
    first, second = reader_of(broker, queue, spool), reader_of(broker, queue, spool)
    try:
        first.latestOffset({}, ReadAllAvailable())
        with pytest.raises(StoreError, match="another query or recorder fills this spool"):
            second.latestOffset({}, ReadAllAvailable())
        publish(broker.url, queue, 3)
        end_of(broker, first, {})
    finally:
        first.stop()
        second.stop()
