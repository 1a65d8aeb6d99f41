"""Captures that an earlier tree wrote, when modules had other names, are read and go on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stompcodec import Frame
from stompcodec.capture import Capture, CaptureWriter, octets_of

FEED = Path(__file__).parents[1] / "data" / "earlier" / "file" / "feed"
START = 1_700_000_000_000_000


@pytest.mark.parametrize(("name", "numbers"), [("a.stompcap", range(4)), ("b.stompcap", range(4, 5))])
def test_it_is_read(name: str, numbers: range) -> None:
    found = [(time - START, int(frame.headers["n"]), frame.body) for _, time, frame in Capture(FEED / name).frames()]
    assert found == [(number, number, b"body %d" % number) for number in numbers]


def test_it_has_several_segments_and_indexes() -> None:
    segments = Capture(FEED / "a.stompcap").segments()
    assert len(segments) > 1
    assert all(segment.path.with_suffix(".idx").is_file() for segment in segments)


@pytest.mark.parametrize("name", ["a.stompcap", "b.stompcap"])
def test_it_goes_on(name: str, tmp_path: Path) -> None:
    shutil.copytree(FEED, tmp_path / "feed")
    path = tmp_path / "feed" / name
    before = [frame for _, _, frame in Capture(path).frames()]
    with CaptureWriter(path) as writer:
        assert not writer.lost
        writer.append(octets_of(Frame("MESSAGE", {"destination": "/queue/a", "n": "9"}, b"")), START)
    after = [frame for _, _, frame in Capture(path).frames()]
    assert after[:-1] == before
    assert after[-1].headers["n"] == "9"
