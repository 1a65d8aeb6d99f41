"""A spool that goes away below its receiver: the query ends by name, and the broker keeps what is not on the disk."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from capture.capturing import DEEDS
from client.feeding import wait_for
from spark.live_making import LiveBroker, publish

from stompcodec.errors import StoreError
from stompcodec.spark.base import ReadAllAvailable
from stompcodec.spark.link import parse_live
from stompcodec.spark.live import LiveStreamReader
from stompcodec.spark.reading.schema import FRAME_SCHEMA
from stompcodec.spark.receiver import Receiver

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no open files")


@pytest.fixture(scope="module")
def broker() -> Iterator[LiveBroker]:
    with LiveBroker() as broker:
        yield broker


def failure(receiver: Receiver) -> StoreError | None:
    try:
        receiver.check()
    except StoreError as error:
        return error
    return None


@pytest.mark.parametrize("mode", ["spool", "batch"])
@pytest.mark.parametrize("deed", DEEDS)
def test_a_spool_that_is_removed_ends_the_receiver(
    broker: LiveBroker, queue: str, tmp_path: Path, deed: str, mode: str
) -> None:
    spool = tmp_path / "spool"
    publish(broker.url, queue, 20)
    options = {"url": broker.url, "destination": queue, "spoolDir": str(spool), "ackMode": mode}
    receiver = Receiver(parse_live(options))
    try:
        wait_for(lambda: receiver.count == 20)
        wait_for(lambda: mode == "batch" or not broker.count(queue))
        DEEDS[deed](spool)
        publish(broker.url, queue, 30, first=20)
        wait_for(lambda: failure(receiver))
        assert str(spool) in str(failure(receiver))
        assert receiver.stalled is None, "it does not wait for the folder to come back"
    finally:
        receiver.close()
    assert broker.count(queue) == (30 if mode == "spool" else 50)


def test_a_query_names_the_spool_that_was_removed(broker: LiveBroker, queue: str, tmp_path: Path) -> None:
    """Also with failOnDataLoss=false: what is not there yet is not lost."""
    spool = tmp_path / "spool"
    publish(broker.url, queue, 3)
    options = {"url": broker.url, "destination": queue, "spoolDir": str(spool), "failOnDataLoss": "false"}
    reader = LiveStreamReader(options, FRAME_SCHEMA)
    try:
        wait_for(lambda: reader.latestOffset({}, ReadAllAvailable()).get("frames") and not broker.count(queue))
        DEEDS["folder removed"](spool)
        publish(broker.url, queue, 2, first=3)

        def ended() -> StoreError | None:
            try:
                reader.latestOffset({}, ReadAllAvailable())
            except StoreError as error:
                return error
            return None

        wait_for(ended)
        assert str(spool) in str(ended())
    finally:
        reader.stop()
    assert broker.count(queue) == 2
