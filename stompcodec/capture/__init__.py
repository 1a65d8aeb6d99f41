"""Captures: raw frames in segments, each with an index that knows when they came. docs/capture-format.md says it all.

    with CaptureWriter("feed.stompcap") as capture:             # one writer; see `writer`
        capture.append(octets_of(frame), time_in_us)
        capture.sync()                                          # on the disk: now it may be acknowledged

    for offset, time, frame in Capture("feed.stompcap").frames():
        ...

Readers see what was synced, while it is written too, and never lock anything. What they find in files they believe
only as far as it fits: an index that is damaged is told, and the frames are found without it.
"""

from stompcodec.capture.disk import CaptureBusyError
from stompcodec.capture.index import UNKNOWN, Row
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
    "octets_of",
]
