"""The splits of files, and proof that a task reads the file that was planned.

Spark plans on the driver and reads on executors, where the same path may lead to another folder, or to none. So a split
carries what its file held when it was planned, and a task compares before it yields rows.
"""

from __future__ import annotations

import os
import platform
import zlib
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from pyspark.sql.datasource import InputPartition

from stompcodec.errors import StoreError
from stompcodec.spark.reading.index import IndexFile

#: Bytes at the start and at the end of a split that are compared.
_HEAD, _TAIL = 256, 4096
NO_INDEX = "damaged-index: it is missing, so the times of these frames are unknown"


class Mark(NamedTuple):
    """What a file held when one of its splits was planned. Files that grow keep it.

    >>> Mark(b"MESSAGE", None, 0x2144DF1C, 4096).stop
    4096
    """

    head: bytes
    """The first bytes of the split."""
    first: int | None
    """The checksum of the split's first index row; None without rows."""
    last: int
    """The checksum of the split's last index row, which covers all rows before it; without rows, of its last bytes."""
    stop: int
    """The bytes that the file had at least."""


@dataclass(frozen=True)
class Split(InputPartition):
    """Part of a file whose frames one task reads."""

    path: str
    start: int
    """Offset in the file where a frame begins."""
    stop: int | None
    """Offset in the file behind a frame; None for the end of a compressed file."""
    base: int = 0
    """Offset in the chain of the file's first byte."""
    chain: str = "frames"
    spool: str = ""
    """Value of the column `spool`."""
    compression: str | None = None
    version: str = "1.2"
    single: bool = False
    """True if the index may be inside the file itself."""
    row: int = 0
    """Number of the first index row of these frames."""
    rows: int = 0
    """Number of index rows; 0 if the times of the frames are unknown."""
    problem: str = ""
    """Problem found at the start of the split, other than a malformed frame. It gets a row of its own."""
    since: int | None = None
    until: int | None = None
    """Times when the first and the last frame were received, in µs; None if no time is known."""
    mark: Mark | None = field(default=None, repr=False)
    """What the file must hold where it is read; None if nothing is compared."""


def mark_of(split: Split, index: IndexFile | None = None) -> Mark:
    """Return the mark of a split that is being planned; `index` is open if the split has rows. Raises OSError."""
    with open(split.path, "rb", buffering=0) as stream:
        stop = os.fstat(stream.fileno()).st_size if split.stop is None else split.stop
        head = _read(stream, split.start, min(_HEAD, stop - split.start))
        first, last = _ends_of(index, split)
        return Mark(head, first, _tail_of(stream, split.start, stop) if last is None else last, stop)


def check(split: Split, index: IndexFile | None, *, strict: bool) -> str:
    """Compare the file of a split with its mark, and return a problem for a row of its own, or "".

    Raises StoreError if the file cannot be opened or another one is at its path; with `strict` also if the file or its
    index is shorter than it was.
    """
    mark = split.mark
    if mark is None:
        return ""
    try:
        with open(split.path, "rb", buffering=0) as stream:
            size = os.fstat(stream.fileno()).st_size
            head = _read(stream, split.start, len(mark.head))
            tail = None if split.rows or size < mark.stop else _tail_of(stream, split.start, mark.stop)
    except FileNotFoundError:
        raise _differs(split, "there is none (or it was deleted since)") from None
    except OSError as error:
        raise _differs(split, f"it cannot be read: {error.strerror or error}") from error
    first, last = _ends_of(index, split)
    last = tail if index is None else last
    sealed = index is not None and index.inside and index.size < mark.stop  # its index is where frames were
    if not mark.head.startswith(head) or first not in (None, mark.first) or last not in (None, mark.last) or sealed:
        raise _differs(split, "there is another one (or it was changed since)")
    if strict and size < mark.stop:
        raise shorter(split, mark.stop - size)
    if split.rows and last is None and size >= mark.stop:
        if strict:
            raise _differs(split, f"its index is {'missing' if index is None else 'shorter than it was'}")
        return NO_INDEX
    return ""


def shorter(split: Split, octets: int) -> StoreError:
    """Return the error for a file that lacks bytes of a split."""
    return _differs(split, f"it is {octets} bytes shorter than it was")


def _differs(split: Split, what: str) -> StoreError:
    return StoreError(
        f"executor {platform.node()} does not see the driver's file {os.path.abspath(split.path)}: {what}; its folder "
        "must be one that the driver and all executors share under the same path (docs/spark-cluster.md)"
    )


def _ends_of(index: IndexFile | None, split: Split) -> tuple[int | None, int | None]:
    """Return the checksums of the first and the last index row of a split; None for rows that do not exist."""
    return (None, None) if index is None else (index.check(split.row), index.check(split.row + split.rows - 1))


def _read(stream: BinaryIO, start: int, count: int) -> bytes:
    stream.seek(start)
    return stream.read(count) if count > 0 else b""


def _tail_of(stream: BinaryIO, start: int, stop: int) -> int:
    start = max(start, stop - _TAIL)
    return zlib.crc32(_read(stream, start, stop - start))
