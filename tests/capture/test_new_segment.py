"""A capture that is read just when its writer begins a segment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stompcodec.capture import Capture, CaptureWriter
from stompcodec.errors import StoreError


def test_a_segment_that_begins_while_it_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was empty, and had no index; the first octets come before the reader has read."""
    path = tmp_path / "a.stompcap"
    with CaptureWriter(path):
        pass
    for file in path.iterdir():
        file.unlink()
    (path / "frames-00000000000000000000.stomp").write_bytes(b"MESSAGE\nhalf of a frame")
    size = os.fstat

    class Empty:
        st_size = 0

    monkeypatch.setattr("stompcodec.capture.reader.os.fstat", lambda number: Empty())
    cursor = Capture(path).cursor()
    assert list(cursor.pieces()) == []
    monkeypatch.setattr("stompcodec.capture.reader.os.fstat", size)
    with pytest.raises(StoreError):
        list(cursor.pieces())
