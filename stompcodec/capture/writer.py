"""The writer of captures: folders of segments, and single files."""

from __future__ import annotations

import copy
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from stompcodec.arguments import check_values, checks
from stompcodec.capture.archive import Archive
from stompcodec.capture.index import (
    PIECE,
    ROW,
    UNKNOWN,
    IndexDecoder,
    IndexEncoder,
    Lock,
    Row,
    checksum,
    cut,
    delete,
    fail,
    gone,
    index_path,
    is_segment,
    names_of,
    read_rows,
    read_trailer,
    rows_of,
    scan,
    sealed,
    segment_name,
    trailer,
    write,
)
from stompcodec.codec import Frame, serialize
from stompcodec.disk import PRIVATE, Access, copy_access, create, is_at, make_folder, opener, sync, sync_folder
from stompcodec.errors import FrameError, StoreError
from stompcodec.spec import dialect_of


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
    """A writer of a segment, or of a `single` file, into which sealing puts the index. It repairs the segment first if
    a crash left it incomplete. `base` is the number of bytes of the chain before it. Raises StoreError if it cannot be
    written: frames since the last `sync` have to be appended again.
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
        return self._encoder.end

    @property
    def last(self) -> int:
        """The arrival time of the last synced frames in us."""
        return self._encoder.time

    def append(self, data: bytes | memoryview, time: int, checksum: int | None = None) -> None:
        """Write whole frames. They are safe once `sync` has returned."""
        self._usable()
        try:
            write(self._file, data)
        except OSError as error:
            raise self._undone(error) from error
        if not self.size:
            self.first = time
        self.size += len(data)
        self._pending.append((self.size, time, zlib.crc32(data) if checksum is None else checksum))

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


#: The default chain.
CHAIN = "frames"
_LOCK = "lock"
#: The largest age of a segment in seconds, 31,000 years.
_LONGEST = 1e12
_USUAL = dialect_of("1.2").commands


def octets_of(frame: Frame, version: str | None = "1.2") -> bytes:
    """Return a frame as bytes for a capture: with its headers, by the rules of STOMP 1.2, whatever its own version was.

    Args:
        frame: the frame to write.
        version: the version of the output, if it is not for a capture.

    Raises:
        FrameError: the version cannot represent the frame.

    >>> octets_of(Frame("MESSAGE", {"destination": "/queue/a"}, b"hello"))
    b'MESSAGE\\ndestination:/queue/a\\n\\nhello\\x00'
    """
    if type(frame) is not Frame:
        check_values(Frame, frame=frame)
    commands = () if frame.command in _USUAL else (frame.command,)
    if "content-length" not in frame.headers and b"\0" not in frame.body:
        return serialize(frame, version, content_length="never", lenient=True, commands=commands)
    try:
        return serialize(frame, version, lenient=True, commands=commands)
    except FrameError as error:
        if error.kind != "bad-content-length":
            raise
    pairs = [pair for pair in frame.headers.pairs() if pair[0] != "content-length"]  # 1.0 allows blanks around it
    return serialize(Frame(frame.command, pairs, frame.body), version, lenient=True, commands=commands)


@checks()
class CaptureWriter:
    """The writer of a capture; a capture has one at a time. It repairs the capture first if a crash left it incomplete.
    Threads may write different chains side by side: `append`, `sync` and `check` of one chain touch no other.

    Args:
        path: a folder, or a single file, which is created if it is missing.
        single: whether to write a single file, which is one segment of any size. None: whatever exists, else a folder.
        segment_octets: the size in bytes at which a segment is sealed. One append is never split.
        segment_seconds: the age at which a segment is sealed; None for no limit.
        access: permissions of files and folders that are created, whatever the umask. See
            `stompcodec.disk.access_of`.
        holder: the name of this writer, for the error of a second one; for folders only.
        archive: the URI of a folder in a file system of pyarrow, such as s3://bucket/feed.stompcap, to which sealed
            segments move in the background. One is removed here once its copy is verified, and not by `retain`. The
            last of each chain stays. A new folder goes on behind what the archive has.
        begin: the least offsets at which chains begin that have no segment in the folder.

    Raises:
        ValueError: `segment_seconds` is out of range.
        MissingExtraError: an archive needs pyarrow.
        CaptureBusyError: another writer has the capture open.
        StoreError: the capture cannot be written, or is not of the kind that `single` asks for.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with CaptureWriter(folder.name + "/a.stompcap") as capture:
    ...     at = capture.append(b"MESSAGE\\ndestination:/queue/a\\n\\nhello\\0", 1_700_000_000_000_000)
    ...     capture.sync()  # now it is on the disk
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        single: bool | None = None,
        segment_octets: int = 128 * 2**20,
        segment_seconds: float | None = None,
        access: Access = PRIVATE,
        holder: str = "",
        archive: str | None = None,
        begin: Mapping[str, int] | None = None,
    ) -> None:
        self.path = Path(path)
        self._access = access
        self._holder = holder
        self._octets = segment_octets
        if segment_seconds is not None and not 0 <= segment_seconds <= _LONGEST:
            raise ValueError(f"segment_seconds must be 0 to {_LONGEST:.0f}, or None for no limit")
        self._age = None if segment_seconds is None else round(segment_seconds * 1e6)
        self._open: dict[str, SegmentWriter] = {}
        self._ends = dict(begin or {})  # of chains that have no open segment
        self._gone = False
        self.lost = 0
        """Bytes that repair cut off: frames that were incomplete or not synced."""
        if single is None:
            single = self.path.is_file()
        if single if self.path.is_dir() else not single and self.path.exists():
            kinds = ("a folder", "a file")
            raise StoreError(f"{path}: it is {kinds[not single]}, and not {kinds[single]}: name another one")
        self.single = single
        if single and archive is not None:
            raise StoreError(f"{path}: a single file has no segments to move to an archive: name a folder")
        self._archive = None if archive is None else Archive(self.path, archive)
        self._lock = self._locked()
        try:
            self._begin()
        except BaseException:
            self.close(seal=False)
            raise

    def _locked(self) -> Lock:
        if self.single:
            return Lock(self.path, self._access)
        try:
            make_folder(self.path, self._access)
        except OSError as error:
            raise fail(self.path, "made", error) from error
        return Lock(self.path / _LOCK, self._access, self._holder)

    def _begin(self) -> None:
        """Open the last segment of each chain, sealed or not."""
        if self.single:
            self._add(CHAIN, SegmentWriter(self.path, 0, single=True, access=self._access))
            return
        segments = names_of(self.path)
        if self._archive is not None:
            self._archive.join(self._access)
            for chain, end in () if segments else self._archive.ends().items():
                self._ends[chain] = max(end, self._ends.get(chain, 0))
            self._archive.start()
        known = {path for _, _, path in segments}
        for index in self.path.glob("*.idx"):
            segment = index.with_suffix(".stomp")
            if is_segment(segment.name) and segment not in known:  # it was deleted before a crash
                index.unlink(missing_ok=True)
        for chain, (base, path) in {chain: (base, path) for chain, base, path in segments}.items():
            self._add(chain, SegmentWriter(path, base, access=self._access))

    def _add(self, chain: str, segment: SegmentWriter) -> SegmentWriter:
        self._open[chain] = segment
        self.lost += segment.lost
        return segment

    def __enter__(self) -> CaptureWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(seal=kind is None)

    def append(self, data: bytes | memoryview, time: int, chain: str = CHAIN, *, checksum: int | None = None) -> int:
        """Write whole frames that arrived together. They are safe once `sync` has returned.

        Args:
            data: the frames as bytes, by the rules of STOMP 1.2: see `octets_of`.
            time: the arrival time in us since 1970, UTC; 0 if it is not known.
            chain: the name of the stream; a single file has one.
            checksum: the CRC-32 of the data; None computes it.

        Returns:
            The offset of the first byte in the chain, which never changes.

        Raises:
            StoreError: writing failed. Frames since the last `sync` have to be appended again.
            ValueError: the name of the chain is not allowed.
        """
        segment = self._segment(chain, len(data), time)
        at = segment.base + segment.size
        if data:
            segment.append(data, time, checksum)
        return at

    def _segment(self, chain: str, size: int, time: int) -> SegmentWriter:
        """Return the segment to write to: a new one if the last is full, old or sealed."""
        if self.single:
            if chain != CHAIN:
                raise ValueError(f"chain is {chain!r}: a single file has only {CHAIN!r}")
            return self._open[CHAIN]
        segment = self._open.get(chain)
        if segment is None:
            return self._new(chain, self._ends.get(chain, 0))
        full = segment.size and segment.size + size > self._octets
        if full or self._is_old(segment, time):
            segment.seal()
        return self._new(chain, segment.base + segment.size) if segment.sealed else segment

    def _is_old(self, segment: SegmentWriter, time: int) -> bool:
        return bool(self._age is not None and segment.size and segment.first and time - segment.first >= self._age)

    def _new(self, chain: str, base: int) -> SegmentWriter:
        segment = SegmentWriter(self.path / segment_name(chain, base), base, access=self._access)
        try:
            sync_folder(self.path)
        except OSError as error:
            segment.close()
            raise fail(self.path, "written", error) from error
        if chain in self._open:
            self._open[chain].close()
        if self._archive is not None:
            self._archive.wake()
        return self._add(chain, segment)

    def _those(self, chain: str | None) -> list[SegmentWriter]:
        return [*self._open.values()] if chain is None else [self._open[chain]] if chain in self._open else []

    def sync(self, chain: str | None = None) -> None:
        """Write all appended frames, or those of a chain, to the disk, which makes them visible to readers.

        Raises:
            StoreError: as for `append`.
        """
        for segment in self._those(chain):
            if segment.size > segment.synced:
                segment.sync()

    def check(self, chain: str | None = None) -> None:
        """Look whether the capture, or what it has of a chain, is still at its path, as before its frames are
        acknowledged. `sync` looks only at what it has written.

        Raises:
            StoreError: the folder, the lock or an open file was removed, renamed or replaced. That is final.
        """
        with suppress(OSError):  # unknown: `sync` fails on that
            if not self._lock.is_there():
                self._gone = True
                raise gone(self.path)
            for segment in self._those(chain):
                segment.check()

    @property
    def failed(self) -> bool:
        """True if an error was final: close the writer, and open the capture again."""
        return self._gone or any(segment.failed for segment in self._those(None))

    @property
    def chains(self) -> set[str]:
        """The names of the chains."""
        return {*self._open, *self._ends}

    def end(self, chain: str = CHAIN) -> int:
        """Return the offset of the end of synced frames."""
        segment = self._open.get(chain)
        return self._ends.get(chain, 0) if segment is None else segment.base + segment.synced

    def roll(self, now: int, *, below: Mapping[str, int] | None = None) -> None:
        """Seal segments that are too old, even without new frames.

        Args:
            now: the time in us.
            below: also seal segments that end at or before these offsets of chains, since `retain` deletes sealed ones
                only.
        """
        if not self.single:
            for chain, segment in self._open.items():
                done = segment.size and segment.base + segment.size <= (below or {}).get(chain, 0)
                if not segment.sealed and (done or self._is_old(segment, now)):
                    segment.seal()

    def retain(
        self,
        now: int,
        *,
        seconds: float | None = None,
        octets: int | None = None,
        below: Mapping[str, int] | None = None,
    ) -> int:
        """Delete sealed segments, oldest first, but never the one that is being written.

        Args:
            now: the time in us.
            seconds: delete segments whose last frames are older than this.
            octets: delete segments while a chain has more bytes than this.
            below: only delete segments that end before these offsets of chains.

        Returns:
            How many segments were deleted; 0 with an archive.
        """
        if self.single or self._archive is not None:
            return 0
        count = 0
        chains: dict[str, list[tuple[int, Path]]] = {}
        for chain, base, path in names_of(self.path):
            chains.setdefault(chain, []).append((base, path))
        for chain, segments in chains.items():
            total = sum(_size_of(path) for _, path in segments)
            for base, path in segments[:-1]:
                sealed_at, size = _sealed_at(path, base), _size_of(path)
                if sealed_at is None or (below is not None and base + size > below.get(chain, 0)):
                    break
                old = seconds is not None and sealed_at and now - sealed_at > seconds * 1e6
                if not old and (octets is None or total <= octets):
                    break
                delete(path)
                total -= size
                count += 1
        return count

    def finish(self, chain: str) -> None:
        """Seal a chain, and close its files. A later append begins a new segment, after the end of the last one.

        Raises:
            StoreError: as for `append`.
            ValueError: the capture is a single file.
        """
        if self.single:
            raise ValueError("a single file has one chain, which `close` seals")
        segment = self._open.get(chain)
        if segment is not None and segment.size:
            segment.seal()
            self._ends[chain] = segment.base + segment.size
            segment.close()
            del self._open[chain]

    def close(self, *, seal: bool = True) -> None:
        """Sync and seal the last segments, and release the lock. Closing twice does nothing.

        Args:
            seal: False: neither sync nor seal; frames that were not synced may be lost.
        """
        segments, self._open = list(self._open.values()), {}
        try:
            if seal and not self._gone:
                for segment in segments:
                    if (segment.size or self.single) and not segment.failed:
                        segment.seal()
        finally:
            for segment in segments:
                segment.close()
            archive, self._archive = self._archive, None
            if archive is not None:
                archive.close(rest=seal and not self._gone)
            lock = self.__dict__.pop("_lock", None)
            if lock is not None:
                lock.release()


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _sealed_at(path: Path, base: int) -> int | None:
    """Return the arrival time of a sealed segment's last frames; None if it is not sealed, or its index is damaged."""
    try:
        decoder = sealed(index_path(path).read_bytes(), base)
    except OSError:
        return None
    return None if decoder is None else decoder.time
