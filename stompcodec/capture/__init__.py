"""Captures: raw frames in segment files, each with an index of arrival times. docs/capture-format.md has the format.

    with CaptureWriter("feed.stompcap") as capture:             # one writer at a time
        capture.append(octets_of(frame), time_in_us)
        capture.sync()                                          # on the disk: now it may be acknowledged

    for offset, time, frame in Capture("feed.stompcap").frames():
        ...

Readers see synced frames, also while more are written, and lock nothing. They check the index against the segment: a
damaged index is reported, and the frames are found without it.
"""

from stompcodec.capture.index import UNKNOWN, CaptureBusyError, Row, is_sealed
from stompcodec.capture.reader import Capture, Cursor, Piece, Segment
from stompcodec.capture.writer import CHAIN, CaptureWriter, octets_of

__all__ = [
    "CHAIN",
    "UNKNOWN",
    "Capture",
    "CaptureBusyError",
    "CaptureWriter",
    "Cursor",
    "Piece",
    "Row",
    "Segment",
    "is_sealed",
    "octets_of",
]
