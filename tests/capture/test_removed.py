"""A capture that is removed, renamed or replaced while it is written: its writer vouches for nothing more."""

import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from capture.capturing import TIME
from capture.removing import DEEDS
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame
from stompcodec.capture import Capture, CaptureWriter, octets_of
from stompcodec.errors import StoreError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no open files")


def frame(number):
    return octets_of(Frame("MESSAGE", {"destination": "/queue/a"}, b"%d" % number))


def bodies(path):
    """What a reader finds at the path."""
    try:
        return [int(frame.body) for _, _, frame in Capture(path, on_problem=lambda text: None).frames()]
    except StoreError:
        return []


@pytest.mark.parametrize("deed", DEEDS)
def test_a_capture_that_is_not_at_its_path_any_more_is_told(tmp_path, deed):
    path = tmp_path / "a.stompcap"
    capture = CaptureWriter(path)
    capture.append(frame(0), TIME)
    capture.sync()
    capture.check()
    end = capture.end()
    DEEDS[deed](path)
    for _ in range(2):
        with pytest.raises(StoreError, match=r"replaced while it was being written.*start again"):
            capture.check()
        assert capture.failed
    with suppress(StoreError):
        capture.append(frame(1), TIME)
        capture.sync()
    assert capture.end() == end or deed == "lock removed"
    capture.close()


@given(
    deed=st.sampled_from(sorted(set(DEEDS) - {"lock removed"})),
    before=st.integers(0, 3),
    after=st.integers(1, 6),
    unsynced=st.integers(0, 3),
    octets=st.sampled_from([1, 100, 200, 10_000]),
)
def test_what_a_sync_vouches_for_after_a_removal_is_at_the_path(deed, before, after, unsynced, octets):
    """Whatever was removed, and wherever a segment ends: appending seals segments, too."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "a.stompcap")
        capture = CaptureWriter(path, segment_octets=octets)
        numbers = iter(range(100))

        def write(count):
            for _ in range(count):
                capture.append(frame(next(numbers)), TIME)

        write(before + 1)
        capture.sync()
        write(unsynced)
        sealed = capture.end()
        DEEDS[deed](path)
        with suppress(StoreError):
            write(after)
            capture.sync()
            capture.check()
        assert capture.end() == sealed, "no frame since then counts as synced"
        assert capture.failed
        capture.close()


def test_a_segment_that_is_deleted_for_its_age_is_no_removal(tmp_path):
    path = tmp_path / "a.stompcap"
    with CaptureWriter(path, segment_octets=100) as capture:
        for number in range(10):
            capture.append(frame(number), TIME)
            capture.sync()
            capture.check()
            capture.retain(TIME, octets=0)
        capture.check()
    assert bodies(path)[-1] == 9
    assert bodies(path)[0] > 5
