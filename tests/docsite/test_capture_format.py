"""docs/capture-format.md is enough to read a capture: this reader knows only what the page says."""

import struct
import zlib
from pathlib import Path

from sitepages import staging

from stompcodec import Frame
from stompcodec.capture import CaptureWriter, octets_of

PAGE = (staging.DOCS / "capture-format.md").read_text("utf-8")
FRAMES = [octets_of(Frame("MESSAGE", {"destination": "/topic/feed"}, b"x" * size)) for size in (1, 100, 0)]
TIMES = [1_700_000_000_000_000, 0, 1_700_000_000_000_007]


def rows_of(index: bytes, base: int, frames: bytes) -> list[tuple[int, int]]:
    """Return end and time of each row, and of the seal, by the tables of the page."""
    assert len(index) % 24 == 0
    magic, start, zero, check = struct.unpack("<8sQII", index[:24])
    assert (magic, start, zero) == (b"stompix1", base, 0)
    assert check == zlib.crc32(index[:20])
    rows, before = [], 0
    for at in range(24, len(index), 24):
        end, time, of_frames, sum_ = struct.unpack("<QqII", index[at : at + 24])
        assert sum_ == zlib.crc32(index[at : at + 20], check)
        check = sum_
        if end >= 2**63:
            assert (end - 2**63, of_frames, at + 24) == (before, 0, len(index))
        else:
            assert of_frames == zlib.crc32(frames[before:end])
            before = end
        rows.append((end, time))
    return rows


def write(path: Path, **options: bool) -> list[tuple[int, int]]:
    """Write a capture of all frames, and return the rows that it must have."""
    expected, end = [], 0
    with CaptureWriter(path, **options) as writer:
        for frame, time in zip(FRAMES, TIMES):
            writer.append(frame, time)
            writer.sync()
            end += len(frame)
            expected.append((end, time))
    return [*expected, (end + 2**63, TIMES[-1])]


def test_a_folder_and_a_single_file(tmp_path: Path) -> None:
    expected = write(tmp_path / "feed.stompcap")
    name = tmp_path / "feed.stompcap" / f"frames-{0:020}"
    frames = name.with_suffix(".stomp").read_bytes()
    assert frames == b"".join(FRAMES)
    assert rows_of(name.with_suffix(".idx").read_bytes(), 0, frames) == expected
    assert write(tmp_path / "single.stompcap", single=True) == expected
    data = (tmp_path / "single.stompcap").read_bytes()
    assert not (tmp_path / "single.stompcap.idx").exists()
    magic, size, zero, check = struct.unpack("<8sQII", data[-24:])
    assert (magic, zero, check) == (b"stompend", 0, zlib.crc32(data[-24:-4]))
    assert data[:size] == frames
    assert rows_of(data[size:-24], 0, frames) == expected


def test_the_page_says_so() -> None:
    words = ["`stompix1`", "`stompend`", "rows of 24 bytes", "little-endian", "CRC-32", "2⁶³", "20 digits"]
    assert [word for word in words if word not in PAGE] == []
