"""The index of a segment: rows with the end, the arrival time and the checksum of a part of the segment.

A row is written after its part is on the disk, so that the part can be read after any crash. The checksum of a row
covers the rows before it too, so that changed, moved and lost rows are detected.

    header   "stompix1", base (u64), 0 (u32), checksum of these 20 bytes (u32)
    row      end (u64), time in us (i64), checksum of the segment's bytes since the row before (u32), checksum (u32)

Numbers are little-endian; a checksum is the CRC-32 of zlib. A seal is a row with the highest bit of `end` set.
"""

from __future__ import annotations

import io
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from stompcodec.arguments import checked
from stompcodec.capture.places import Place, Same, archive_of, open_place, place_of
from stompcodec.codec import END_OF_BODY, Parser
from stompcodec.disk import PRIVATE, Access, create, is_at, lock, sync, unlock
from stompcodec.errors import FrameError, StoreError
from stompcodec.frame import HEARTBEAT
from stompcodec.spec import Limits

#: The largest offset. A file with a larger one in its name is not a segment.
FARTHEST = 2**62
#: Bytes of the note that names the holder of a lock.
_NOTED = 1000
_NAME = re.compile(r"([a-z0-9][a-z0-9_.]{0,63})-([0-9]{20})\.stomp")


def delete(segment: Path) -> None:
    """Delete a segment, then its index. In the other order, a crash in between would bring the segment back."""
    try:
        segment.unlink(missing_ok=True)
        index_path(segment).unlink(missing_ok=True)
    except OSError as error:
        raise fail(segment, "deleted", error) from error


class CaptureBusyError(StoreError):
    """An attempt to write a capture that another process, or another writer of this process, is writing.

    Args:
        text: the problem.
        holder: the other writer, if known.

    >>> issubclass(CaptureBusyError, StoreError)
    True
    """

    def __init__(self, text: str, holder: str = "") -> None:
        super().__init__(f"{text}: held by {holder}" if holder else text)
        self.holder = holder
        """The other writer, if known; else ""."""


def _note(file: int, holder: str) -> None:
    """Write the holder of a lock into its file. Failures are ignored: the note only helps people."""
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, holder.encode("ascii", "replace")[:_NOTED] + b"\n")


def _noted(file: int) -> str:
    """Return the holder of a lock, from its file; "" if it is not known. The file is not trusted."""
    try:
        os.lseek(file, 0, os.SEEK_SET)
        text = os.read(file, _NOTED).decode("ascii", "replace")
    except OSError:
        return ""
    return "".join(each if each.isprintable() else " " for each in text).strip()


def fail(path: Place, what: str, error: OSError) -> StoreError:
    """Return the StoreError for an error of the operating system, or of a file system of pyarrow."""
    result = StoreError(f"{path}: cannot be {what}: {error.strerror or error}")
    result.__cause__ = error
    return result


def gone(path: Path) -> StoreError:
    """Return the StoreError for an open file that is no longer at its path."""
    return StoreError(
        f"{path}: it was removed, renamed or replaced while it was being written (start again, and keep what did that "
        "away from the folder)"
    )


class Lock:
    """An exclusive lock on a file, until `release` or the end of the process.

    The file is created with the permissions `access` if it is missing, and never removed: otherwise two writers could
    lock two files of the same name. It keeps `holder`, the name of this writer, for the error of others (None for a
    file with other content). Raises CaptureBusyError if another writer holds the lock, StoreError if the file cannot be
    opened.
    """

    def __init__(self, path: Path, access: Access = PRIVATE, holder: str | None = None) -> None:
        self.path = path
        try:
            self._file = create(path, os.O_RDWR, access, follow=True)
        except OSError as error:
            raise fail(path, "opened", error) from error
        try:
            lock(self._file)
        except BlockingIOError:
            found = "" if holder is None else _noted(self._file)
            os.close(self._file)
            raise CaptureBusyError(
                f"{path}: another process writes this capture (stop it, or write another one)", found
            ) from None
        except OSError as error:
            os.close(self._file)
            raise fail(path, "locked", error) from error
        self._owner = os.getpid()
        if holder is not None:
            _note(self._file, holder)

    def is_there(self) -> bool:
        """Return whether the file is still at its path; otherwise another writer can lock a new one."""
        return is_at(self._file, self.path)

    def release(self) -> None:
        unlock(self._file, self._owner)


def write(file: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def cut(file: int, size: int) -> None:
    """Truncate the file to `size` bytes, also on the disk, and seek to its end."""
    os.ftruncate(file, size)
    os.lseek(file, size, os.SEEK_SET)
    sync(file)


def segment_name(chain: str, base: int) -> str:
    """Return the file name of a segment. Raises ValueError for the name of a chain that is not allowed."""
    if base > FARTHEST:
        raise StoreError(f"chain {chain} is full: write another capture")
    name = f"{chain}-{base:020}.stomp"
    if not _NAME.fullmatch(name):
        raise ValueError(f"chain is {chain!r}: use up to 64 of a-z, 0-9, _ and . and begin with a letter or digit")
    return name


def is_segment(name: str) -> bool:
    """Return whether a file name is that of a segment."""
    return _NAME.fullmatch(name) is not None


def names_of(folder: Same) -> list[tuple[str, int, Same]]:
    """Return chain, base and path of all segments in a folder, in order; raise StoreError if it cannot be read."""
    try:
        names = os.listdir(folder) if isinstance(folder, Path) else [each.name for each in folder.iterdir()]
    except OSError as error:
        raise fail(folder, "read", error) from error
    found = [(_NAME.fullmatch(name), name) for name in names]
    at: Any = folder
    segments = [(match[1], int(match[2]), at / name) for match, name in found if match]
    return sorted((each for each in segments if each[1] <= FARTHEST), key=lambda each: each[:2])


def all_names_of(folder: Place, after: Mapping[str, int] | None = None) -> list[tuple[str, int, Place]]:
    """Return the segments in a folder and in its archive, as `names_of`. Those in both are read in the folder.

    If everything behind the offsets `after` of the chains is in the folder, the archive is not asked.
    """
    here = names_of(folder)  # before the archive: a segment that moves meanwhile is in one of them
    archive = archive_of(folder)
    if archive is None:
        return here
    first = {chain: base for chain, base, _ in reversed(here)}
    if after and all(first.get(chain, at + 1) <= at for chain, at in {**dict.fromkeys(first, 0), **after}.items()):
        return here
    found = {each[:2]: each for each in [*names_of(archive), *here]}
    return [found[key] for key in sorted(found)]


#: The time of frames whose arrival time is not known.
UNKNOWN = 0
#: Bytes of a row, of the header, and of the trailer of a single file.
ROW = 24
#: The largest read of a segment, in bytes.
PIECE = 2**20
#: The largest read of an index, in bytes.
_ROWS = 4096 * ROW
_MAGIC, _END = b"stompix1", b"stompend"
_HEADER = struct.Struct("<8sQI")
_ROW = struct.Struct("<QqI")
_SUM = struct.Struct("<I")
_SEAL = 2**63
_LARGEST = 2**62
#: The least bytes between two rows of a rebuilt index.
_APART = 64 * 1024
#: A scan streams bodies, so that their size does not matter.
_LIMITS = Limits(max_command_line=2**16, max_header_line=2**20, max_headers=4000, max_body=_LARGEST)


class Row(NamedTuple):
    """A row of an index: some whole frames of a segment.

    >>> Row(0, 38, 1_700_000_000_000_000, 0).end
    38
    """

    start: int
    """The offset of the first frame in the segment, in bytes."""
    end: int
    """The end of the last frame."""
    time: int
    """The arrival time in us since 1970, UTC; `UNKNOWN` if it is not known."""
    sum: int
    """The CRC-32 of these bytes."""


class IndexEncoder:
    """The writer of an index of a segment at offset `base`: each method returns bytes to append."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._sum = self.end = 0
        self.time = UNKNOWN

    def _closed(self, part: bytes) -> bytes:
        self._sum = zlib.crc32(part, self._sum)
        return part + _SUM.pack(self._sum)

    def header(self) -> bytes:
        self._sum = 0
        return self._closed(_HEADER.pack(_MAGIC, self._base, 0))

    def row(self, end: int, time: int, sum: int) -> bytes:
        """Return the next row. A time out of range is written as unknown."""
        if not self.end < end <= _LARGEST:
            raise ValueError(f"the end of a row is {end}, behind {self.end}")
        self.end = end
        self.time = time if -(2**63) <= time < 2**63 else UNKNOWN
        return self._closed(_ROW.pack(end, self.time, sum))

    def seal(self) -> bytes:
        """Return the seal, which ends the index. Its time is that of the last row."""
        return self._closed(_ROW.pack(_SEAL | self.end, self.time, 0))

    def follow(self, decoder: IndexDecoder) -> None:
        """Continue after the good rows of an index."""
        self.end, self.time, self._sum = decoder.end, decoder.time, decoder.state


class IndexDecoder:
    """The reader of an index of a segment at offset `base`. It returns rows up to the first damaged one."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._rest = b""
        self._began = False
        self.state = 0
        """The checksum of the good rows."""
        self.octets = 0
        """Bytes of the index that are good."""
        self.end = 0
        """Bytes of the segment that the good rows cover."""
        self.time = UNKNOWN
        """The time of the last row."""
        self.sealed = False
        self.damaged = False
        """A row or the header is damaged. The rows after it are not read."""

    @property
    def position(self) -> int:
        """Bytes of the index that were fed, including an incomplete row."""
        return self.octets + len(self._rest)

    @property
    def torn(self) -> bool:
        """The last row is incomplete: it is being written, or its writer was killed."""
        return bool(self._rest) or not self._began

    def feed(self, data: bytes) -> list[Row]:
        data = self._rest + data
        whole = len(data) - len(data) % ROW
        rows: list[Row] = []
        for at in range(0, whole, ROW):
            if self.damaged or not self._take(data[at : at + ROW], rows):
                self.damaged = True
                return rows
            self.octets += ROW
        self._rest = data[whole:]
        return rows

    def _take(self, part: bytes, rows: list[Row]) -> bool:
        state = zlib.crc32(part[:20], self.state if self._began else 0)
        if _SUM.unpack_from(part, 20)[0] != state or self.sealed:
            return False
        if not self._began:
            magic, base, zero = _HEADER.unpack_from(part)
            if (magic, base, zero) != (_MAGIC, self._base, 0):
                return False
            self._began = True
        else:
            end, time, sum = _ROW.unpack_from(part)
            if end & _SEAL:
                if end ^ _SEAL != self.end:
                    return False
                self.sealed = True
            elif self.end < end <= _LARGEST:
                rows.append(Row(self.end, end, time, sum))
                self.end = end
            else:
                return False
            self.time = time
        self.state = state
        return True


def trailer(start: int) -> bytes:
    """Return the trailer of a sealed single file, whose index begins at `start`, after the last frame."""
    part = _HEADER.pack(_END, start, 0)
    return part + _SUM.pack(zlib.crc32(part))


def read_trailer(part: bytes, size: int) -> int | None:
    """Return the offset of the index in a single file of `size` bytes; None if `part` is not its trailer."""
    if len(part) != ROW or _SUM.unpack_from(part, 20)[0] != zlib.crc32(part[:20]):
        return None
    magic, start, zero = _HEADER.unpack_from(part)
    fits = magic == _END and not zero and start + 2 * ROW <= size and (size - start) % ROW == 0
    return int(start) if fits else None


@checked
def is_sealed(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a sealed single-file capture, by its end; False if it cannot be read.

    Args:
        path: of the file.

    Raises:
        ValueError: the path has a NUL.

    >>> is_sealed("/dev/null")
    False
    """
    try:
        with open_place(place_of(path)) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - ROW))
            return read_trailer(stream.read(ROW), size) is not None
    except OSError:
        return False


def checksum(stream: BinaryIO, start: int, end: int) -> int | None:
    """Return the CRC-32 of a part of a file, read in pieces; None if the file is shorter."""
    stream.seek(start)
    total = 0
    while start < end:
        data = stream.read(min(PIECE, end - start))
        if not data:
            return None
        total = zlib.crc32(data, total)
        start += len(data)
    return total


def scan(stream: BinaryIO, start: int, stop: int) -> Iterator[int]:
    """Yield ends of frames between two offsets of a segment, found by parsing: about every 64 KiB, and the last one.

    Malformed data ends it. `start` is where a frame begins.
    """
    parser = Parser("1.2", limits=_LIMITS, stream_over=_APART, heartbeats=True)
    fed = given = last = start
    inside = False
    try:
        while fed < stop:
            stream.seek(fed)
            data = stream.read(min(PIECE, stop - fed))
            if not data:
                break
            fed += len(data)
            for event in parser.feed(data):
                if event is HEARTBEAT or isinstance(event, bytes):
                    continue
                inside = event is not END_OF_BODY and event.body is None
                if inside:
                    continue
                last = fed - parser.buffered
                if last - given >= _APART:
                    given = last
                    yield last
    except FrameError:
        pass
    if last > given:
        yield last


def rows_of(stream: BinaryIO, ends: Iterable[int], start: int) -> Iterator[Row]:
    """Yield rows without a time for parts that end at `ends`."""
    for end in ends:
        sum = checksum(stream, start, end)
        if sum is None:
            return
        yield Row(start, end, UNKNOWN, sum)
        start = end


def read_rows(read: Callable[[int], bytes], decoder: IndexDecoder, most: int) -> Iterator[Row]:
    """Yield the rows of an index, of which `read` returns up to n bytes, b"" at its end. At most `most` are read."""
    while most > 0 and not decoder.damaged:
        data = read(min(_ROWS, most))
        if not data:
            return
        most -= len(data)
        yield from decoder.feed(data)


def sealed(index: bytes, base: int) -> IndexDecoder | None:
    """Return the decoder of a whole index; None if it is not sealed, or damaged."""
    decoder = IndexDecoder(base)
    for _ in read_rows(io.BytesIO(index).read, decoder, len(index)):
        pass
    return decoder if decoder.sealed and not decoder.damaged else None


def index_path(segment: Same) -> Same:
    """Return the path of the index of a segment, or of an unsealed single file."""
    at: Any = segment
    index: Same = at.with_suffix(".idx") if at.suffix == ".stomp" else at.with_name(at.name + ".idx")
    return index
