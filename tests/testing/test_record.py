"""The record of frames: what matches, and waiting for it."""

from __future__ import annotations

import re
import threading
import time

import pytest
from patience import patience

from stompcodec import Frame
from stompcodec.testing import RecordedFrame
from stompcodec.testing.record import Record, matches


@pytest.mark.parametrize(
    ("headers", "right"),
    [
        ({}, True),
        ({"content-type": "a/b"}, True),
        ({"content_type": "a/b"}, True),
        ({"content_type": "a"}, False),
        ({"content_type": re.compile("b$")}, True),
        ({"content_type": re.compile("a$")}, False),
        ({"content_type": None}, False),
        ({"receipt": None}, True),
        ({"receipt": "1"}, False),
        ({"number": 7, "x_y": "z"}, True),
        ({"number": 7, "x_y": "no"}, False),
    ],
)
def test_matches(headers, right):
    frame = Frame("SEND", {"content-type": "a/b", "number": "7", "x_y": "z"})
    assert matches(frame, headers) is right


def test_a_record_is_cleared():
    record = Record(10)
    record.add(RecordedFrame(0, 1, "in", Frame("SEND", {"destination": "a"})))
    record.clear()
    assert record.frames() == []
    with pytest.raises(AssertionError):
        record.expect("SEND", {}, timeout=0)


def test_a_wait_ends_though_there_is_always_something_new():
    record = Record(10)

    def wait(version, timeout):
        time.sleep(0.01)
        return True

    record.wait = wait
    with pytest.raises(AssertionError, match="no SEND"):
        record.expect("SEND", {}, timeout=0.05)


def test_what_was_looked_at_is_not_looked_at_again_but_all_that_is_new():
    record = Record(1000)
    adding = threading.Timer(
        0.05,
        lambda: [record.add(RecordedFrame(0, 1, "in", Frame("SEND", {"destination": str(n)}))) for n in range(500)],
    )
    adding.start()
    assert record.expect("SEND", {"destination": "499"}, timeout=patience(10)).headers["destination"] == "499"
    adding.join()
    assert record.expect("SEND", {}, timeout=0).headers["destination"] == "0"
