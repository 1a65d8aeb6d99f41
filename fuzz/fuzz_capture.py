"""Invariant: a capture of any octets is read with the documented errors only, and never beyond its files; a writer puts
it right and loses no frame that a good row covers; packets of any octets are read to their end."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from case import HEAD, pieces
from engine import drive

from stompcodec import Frame, FrameError
from stompcodec.capture import Capture, CaptureWriter, octets_of
from stompcodec.capture.index import IndexDecoder, IndexEncoder, checksum, index_path
from stompcodec.cli.files.packets import Dissection, packets
from stompcodec.errors import StoreError

LAST = octets_of(Frame("SEND", {"destination": "/queue/last"}, b"last"))
SHM = Path("/dev/shm")
FOLDER = Path(tempfile.mkdtemp(prefix="stompcodec-fuzz-", dir=SHM if SHM.is_dir() else None))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
numbers = itertools.count()


def check(data: bytes) -> None:
    how, second, at, plan = data[:HEAD].ljust(HEAD, b"\0")
    wire = data[HEAD:]
    check_index(wire, plan)
    check_packets(wire, plan)
    path = FOLDER / f"{next(numbers)}.stompcap"
    single = bool(how & 1)
    if single:
        file = path
    else:
        path.mkdir()
        file = path / f"frames-{'0' * 20}.stomp"
    try:
        made(file, how, second, at, wire)
        check_capture(path)
    finally:
        for each in [*path.glob("*"), index_path(path)] if path.is_dir() else [path, index_path(path)]:
            each.unlink(missing_ok=True)
        if path.is_dir():
            path.rmdir()


def made(file: Path, how: int, second: int, at: int, wire: bytes) -> None:
    """A segment and an index that is good, changed, short, any octets, or not there."""
    split = len(wire) * second // 256
    octets, noise = (wire, b"") if how & 2 else (wire[:split], wire[split:])
    file.write_bytes(octets)
    encoder, index = IndexEncoder(0), b""
    index += encoder.header()
    with file.open("rb") as stream:
        for end in sorted({at * len(octets) // 256, len(octets)} - {0}):
            index += encoder.row(end, at, checksum(stream, encoder.end, end) or 0)
    kind = how >> 2 & 7
    if kind == 0:
        index += encoder.seal()
    elif kind == 1:
        place = at % len(index)
        index = index[:place] + bytes([index[place] ^ (second | 1)]) + index[place + 1 :]
    elif kind == 2:
        index = index[: -1 - at % len(index)]
    elif kind == 3:
        index = noise
    elif kind == 4:
        index += noise
    if kind != 7:
        index_path(file).write_bytes(index)


def check_capture(path: Path) -> None:
    problems: list[str] = []
    capture = Capture(path, on_problem=problems.append)
    found = list(capture.pieces())
    assert all(one.end == two.offset for one, two in itertools.pairwise(found)) or problems
    for segment in capture.segments():
        rows = list(capture.rows(segment))
        assert all(one.end == two.start for one, two in itertools.pairwise(rows))
        assert not rows or rows[-1].end <= segment.path.stat().st_size
    with suppress(FrameError):
        list(capture.frames())
    with suppress(StoreError):
        list(Capture(path).pieces())
    before = path.read_bytes() if capture.single else b""
    try:
        writer = CaptureWriter(path)
    except StoreError:  # it is no capture, and is left alone
        if not capture.single or path.read_bytes() != before or index_path(path).exists():
            raise
        return
    with writer:
        whole = b"".join(piece.data for piece in found)
        put_right = b"".join(piece.data for piece in Capture(path, on_problem=problems.append).pieces())
        assert put_right.startswith(whole) or whole.startswith(put_right)
        assert writer.end() == len(put_right)
        writer.append(LAST, 1)
    problems.clear()
    after = b"".join(piece.data for piece in Capture(path, on_problem=problems.append).pieces())
    assert after == put_right + LAST
    assert all("are not what was written" in text for text in problems), problems


def check_index(wire: bytes, plan: int) -> None:
    """Rows are good or not whatever the cuts are."""
    whole, parts = IndexDecoder(0), IndexDecoder(0)
    rows = whole.feed(wire)
    assert [row for piece in pieces(wire, plan or 1) for row in parts.feed(piece)] == rows
    assert (whole.end, whole.sealed, whole.damaged) == (parts.end, parts.sealed, parts.damaged)


def check_packets(wire: bytes, plan: int) -> None:
    supply = iter([piece for piece in pieces(wire, plan) if piece])
    rest = b""

    def read(size: int) -> bytes:
        nonlocal rest
        data = rest or next(supply, b"")
        data, rest = data[:size], data[size:]
        return data

    problems: list[str] = []
    for _time, frame in Dissection(problems.append).frames(packets(read, problems.append)):
        assert isinstance(frame, Frame)


if __name__ == "__main__":
    drive(check)
