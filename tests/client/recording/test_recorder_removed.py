"""A capture that goes away below its recorder: nothing is acknowledged into a removed file, and the recorder ends."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from capture.removing import DEEDS
from client.broker import BrokerThread
from client.feeding import left, publish, wait_for
from client.shells import QUICK
from patience import patience

import stompcodec.client as stomp
from stompcodec.capture import CaptureWriter
from stompcodec.client.dedupe import Dedupe
from stompcodec.client.recorder import Recorder
from stompcodec.errors import StoreError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no open files")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        yield broker


class Recording:
    """A recorder in a thread, and the error that ended it."""

    def __init__(self, url: str, capture: CaptureWriter, queue: str, **options: object) -> None:
        self.error: Exception | None = None
        self.paused = False
        self._client = stomp.connect(url, reconnect=QUICK)
        self.recorder = Recorder(self._client, capture, hold=lambda: self.paused, **options)  # type: ignore[arg-type]
        self.recorder.subscribe(queue, prefetch=100)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.recorder.run()
        except Exception as error:
            self.error = error
        self._client.close()

    def end(self) -> Exception | None:
        self.thread.join(patience(60))
        assert not self.thread.is_alive()
        return self.error


@contextlib.contextmanager
def recording(url: str, capture: CaptureWriter, queue: str, **options: object) -> Iterator[Recording]:
    found = Recording(url, capture, queue, **options)
    try:
        yield found
    finally:
        found.recorder.stop()
        found.end()


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("traffic", ["much", "new segments", "none"])
def test_nothing_is_acknowledged_into_what_was_removed(
    broker: BrokerThread, queue: str, tmp_path: Path, deed: str, traffic: str
) -> None:
    """Each message that was confirmed to its sender is in the capture, or still in the broker."""
    path = tmp_path / "a.stompcap"
    publish(broker.url, queue, 20)
    capture = CaptureWriter(path, segment_octets=100 if traffic == "new segments" else 2**20)
    with recording(broker.url, capture, queue) as found:
        wait_for(lambda: found.recorder.messages == 20 and not found.recorder.unacknowledged)
        found.paused = traffic != "none"
        DEEDS[deed](path)
        if traffic != "none":
            publish(broker.url, queue, 30, first=20)
            found.paused = False
        error = found.end()
    assert isinstance(error, StoreError)
    assert str(path) in str(error)
    assert "removed, renamed or replaced" in str(error)
    assert left(broker.url, queue) == (30 if traffic != "none" else 0)
    capture.close()


def test_a_duplicate_of_what_was_removed_is_not_acknowledged(broker: BrokerThread, queue: str, tmp_path: Path) -> None:
    """Its original is gone with the folder, so this is the last copy."""
    path = tmp_path / "a.stompcap"
    publish(broker.url, queue, 5)
    with (
        CaptureWriter(path) as capture,
        recording(broker.url, capture, queue, acknowledge="released") as found,
    ):
        wait_for(lambda: found.recorder.held == 5)
    capture = CaptureWriter(path)
    real = capture.check
    passed = threading.Event()

    def late() -> None:
        """The folder goes after the last look between two groups, before the group itself."""
        if found.recorder.unacknowledged and not passed.is_set():
            passed.set()
            DEEDS["folder removed"](path)
            return
        real()

    capture.check = late  # type: ignore[method-assign]
    with recording(broker.url, capture, queue, dedupe=Dedupe()) as found:
        assert isinstance(found.end(), StoreError)
        assert passed.is_set()
    assert left(broker.url, queue) == 5
    capture.close()
