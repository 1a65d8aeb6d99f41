"""A segment that is being written: a file of frames, and its index beside it.

Invariant: frames are on the disk before the rows that cover them, and those before `sync` returns. So the index tells
what was synced, and no caller relies on frames after its last row.
"""

from __future__ import annotations

import copy
import os
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

from stompcodec.capture.disk import cut, fail, gone, write
from stompcodec.capture.index import (
    PIECE,
    ROW,
    UNKNOWN,
    IndexDecoder,
    IndexEncoder,
    Row,
    checksum,
    index_path,
    read_rows,
    read_trailer,
    rows_of,
    scan,
    trailer,
)
from stompcodec.disk.access import PRIVATE, Access, copy_access, create, opener
from stompcodec.disk.files import is_at, sync, sync_folder
from stompcodec.errors import StoreError


class _State(NamedTuple):
    """The result of a repair."""

    encoder: IndexEncoder
    octets: int
    """Bytes of the index."""
    first: int
    """The time of the first row."""
    sealed: bool
    lost: int
    """Bytes after the last whole frame, which were cut off."""


class SegmentWriter:
    """A writer of a segment. It repairs the segment first if a crash left it incomplete.

    Args:
        path: the segment, or a single file.
        base: the bytes of the chain before this segment.
        single: whether sealing puts the index into the file itself.
        access: permissions of files that are created.

    Raises:
        StoreError: the segment cannot be written. Frames since the last `sync` have to be appended again.
    """

    def __init__(self, path: Path, base: int, *, single: bool = False, access: Access = PRIVATE) -> None:
        self.path = path
        self.base = base
        self.failed = False
        """An error could not be undone, or a file is not at its path: the capture has to be opened again."""
        self._single = single
        self._index_path = index_path(path)
        self._pending: list[tuple[int, int, int]] = []
        self._file = self._index = -1
        try:
            if single:
                _unseal(path, self._index_path)
            state = _repair(path, self._index_path, base, single, access)
            self._file = create(path, os.O_RDWR, access, follow=True)
            self._index = create(self._index_path, os.O_RDWR, access, follow=True)
            os.lseek(self._file, 0, os.SEEK_END)
            os.lseek(self._index, 0, os.SEEK_END)
        except OSError as error:
            self.close()
            raise fail(path, "opened for writing", error) from error
        self._encoder, self._octets = state.encoder, state.octets
        self.first = state.first
        """The arrival time of the first frames in us; 0 if the segment is empty or the time is not known."""
        self.sealed = state.sealed
        self.lost = state.lost
        """Bytes that repair cut off: frames that were incomplete or not synced."""
        self.size = self._encoder.end

    @property
    def synced(self) -> int:
        """Bytes that are on the disk."""
        return self._encoder.end

    @property
    def last(self) -> int:
        """The arrival time of the last synced frames in us."""
        return self._encoder.time

    def append(self, data: bytes, time: int) -> None:
        """Write whole frames. They are safe once `sync` has returned."""
        self._usable()
        try:
            write(self._file, data)
        except OSError as error:
            raise self._undone(error) from error
        if not self.size:
            self.first = time
        self.size += len(data)
        self._pending.append((self.size, time, zlib.crc32(data)))

    def sync(self) -> None:
        """Write all appended frames to the disk, at the path of the segment."""
        self._usable()
        if not self._pending:
            return
        encoder = copy.copy(self._encoder)
        rows = b"".join([encoder.row(*row) for row in self._pending])
        try:
            sync(self._file)
            write(self._index, rows)
            sync(self._index)
            self.check()
        except OSError as error:
            raise self._undone(error) from error
        self._encoder = encoder
        self._octets += len(rows)
        self._pending.clear()

    def check(self) -> None:
        """Raise StoreError if the segment or its index is no longer at its path, which is final; OSError if that is
        unknown."""
        for file, path in ((self._file, self.path), (self._index, self._index_path)):
            if file >= 0 and not is_at(file, path):
                self.failed = True
                raise gone(path)

    def seal(self) -> None:
        """Sync, and end the segment. The index of a single file moves into the file."""
        self.sync()
        if self.sealed:
            return
        encoder = copy.copy(self._encoder)
        seal = encoder.seal()
        try:
            self.check()
            if self._single:
                self._take_in(seal)
            else:
                write(self._index, seal)
                sync(self._index)
        except OSError as error:
            raise self._undone(error) from error
        self._encoder = encoder
        self.sealed = True

    def _take_in(self, seal: bytes) -> None:
        """Append the index to a single file. The index beside it is removed once that is on the disk."""
        os.lseek(self._index, 0, os.SEEK_SET)
        while data := os.read(self._index, PIECE):
            write(self._file, data)
        write(self._file, seal + trailer(self._encoder.end))
        sync(self._file)
        os.close(self._index)  # Windows does not remove an open file
        self._index = -1
        os.unlink(self._index_path)
        sync_folder(self.path.parent)

    def close(self) -> None:
        """Close the files. Frames that were not synced may be lost."""
        for file in (self._file, self._index):
            if file >= 0:
                os.close(file)
        self._file = self._index = -1

    def _usable(self) -> None:
        if self.failed or self._file < 0:
            raise StoreError(f"{self.path}: it is closed, or could not be written before: open the capture again")

    def _undone(self, error: OSError) -> StoreError:
        """Cut the files back to the last sync, so that no partial frame precedes later ones; return the error."""
        self._pending.clear()
        self.size = self._encoder.end
        try:
            cut(self._file, self._encoder.end)
            cut(self._index, self._octets)
        except OSError:
            self.failed = True
        return fail(self.path, "written", error)


# ---- after a crash ----


def _unseal(path: Path, index: Path) -> None:
    """Move the index of a sealed single file out of it. An index beside the file means that sealing was cut short.

    Raises StoreError, and leaves the file unchanged, if it is not a capture.
    """
    if index.exists() or not path.exists():
        return
    with path.open("r+b", buffering=0) as stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - ROW))
        start = read_trailer(stream.read(ROW), size)
        decoder = IndexDecoder(0)
        if start is not None:
            stream.seek(start)
            rows = list(read_rows(stream.read, decoder, size - ROW - start))
            if decoder.sealed and not decoder.damaged and decoder.end == start:
                _replace(index, IndexEncoder(0), rows, path)
                cut(stream.fileno(), start)
                return
        _check_that_it_is_one(stream, path, size)


def _check_that_it_is_one(stream: BinaryIO, path: Path, size: int) -> None:
    """Raise StoreError unless a file without a good index has frames only: other files must not be truncated."""
    end = max(scan(stream, 0, size), default=0)
    stream.seek(end)
    while data := stream.read(min(PIECE, size - end)):
        end += len(data)
        if data.strip(b"\r\n"):
            raise StoreError(f"{path}: not only frames, and no good index: convert it, or name another file")


def _replace(index: Path, encoder: IndexEncoder, rows: list[Row], path: Path) -> int:
    """Write the index of a segment anew, atomically, with the segment's permissions. Return its size in bytes."""
    new = index.with_name(index.name + ".new")
    with open(new, "wb", opener=opener()) as stream:
        copy_access(path, stream.fileno())
        stream.write(encoder.header())
        for row in rows:
            stream.write(encoder.row(row.end, row.time, row.sum))
        stream.flush()
        sync(stream.fileno())
    os.replace(new, index)
    sync_folder(index.parent)
    return ROW * (1 + len(rows))


def _repair(path: Path, index: Path, base: int, single: bool, access: Access) -> _State:
    """Make a segment and its index consistent.

    A good index that ends with a whole row tells what was synced, and the rest of the segment is cut off. If the index
    is torn, damaged or missing, whole frames after its last good row are kept.
    """
    file = create(path, os.O_RDWR, access, follow=True)
    with os.fdopen(file, "r+b", buffering=0) as stream:
        size = os.fstat(file).st_size
        decoder = IndexDecoder(base)
        rows: list[Row] = []
        good = False
        if index.exists():
            rows, good = _fitting(index, decoder, size, single)
        first = rows[0].time if rows else UNKNOWN
        end = rows[-1].end if rows else 0
        encoder = IndexEncoder(base)
        if good:
            encoder.follow(decoder)
            octets = decoder.octets
        else:
            rows += rows_of(stream, scan(stream, end, size), end)
            octets = _replace(index, encoder, rows, path)
            end = rows[-1].end if rows else 0
        if size > end:
            if good and rows and checksum(stream, rows[-1].start, end) != rows[-1].sum:
                raise StoreError(f"{index}: it is the index of something else: put the right one there, or convert")
            cut(file, end)
    return _State(encoder, octets, first, good and decoder.sealed, size - end)


def _fitting(index: Path, decoder: IndexDecoder, size: int, single: bool) -> tuple[list[Row], bool]:
    """Return the rows of an index that fit into a segment of this size, and whether that is the whole index."""
    rows: list[Row] = []
    with index.open("rb", buffering=0) as stream:
        for row in read_rows(stream.read, decoder, os.fstat(stream.fileno()).st_size):
            if row.end > size:
                return rows, False
            rows.append(row)
    empty = decoder.sealed and not rows  # never sealed: the next segment would have the same name
    return rows, not (decoder.damaged or decoder.torn or empty or (decoder.sealed and single))
