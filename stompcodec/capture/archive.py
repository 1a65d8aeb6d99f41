"""The archive of a capture: a folder of a file system of pyarrow, to which its sealed segments move.

Invariant: a segment is removed here only after its copy was read back and matched the checksums of its index. The index
is copied before the frames, so at every moment the copies are a capture.
"""

from __future__ import annotations

import io
import logging
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from stompcodec.capture.index import (
    PIECE,
    IndexDecoder,
    checksum,
    delete,
    fail,
    index_path,
    names_of,
    read_rows,
    sealed,
)
from stompcodec.capture.places import MARKER, Remote, archive_of, arrow_fs, open_place, place_of
from stompcodec.disk import Access, make_folder, replace
from stompcodec.errors import StompError, StoreError

log = logging.getLogger("stompcodec.capture")
#: Seconds until a failed move is tried again.
_AGAIN = 10.0
#: What goes with the segments: the identity of a spool.
_ALSO = ("spool-id",)
#: File systems that show a file once all of it is there. Elsewhere it is renamed then.
_WHOLE = ("s3", "gcs", "abfs")


class Archive:
    """The mover of the sealed segments in a folder to the archive `uri`, in a thread from `start` until `close`.

    Raises StoreError if that is not a URI; MissingExtraError without pyarrow.
    """

    def __init__(self, folder: Path, uri: str) -> None:
        arrow_fs()
        place = place_of(uri)
        if not isinstance(place, Remote):
            raise StoreError(f"{uri!r:.200} cannot be an archive: use a URI, such as s3://bucket/feed.stompcap")
        self._folder, self._there = folder, place
        self._told: set[str] = set()
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="stompcodec-archive", daemon=True)

    def join(self, access: Access) -> None:
        """Name the archive in the folder, where readers look for it. The folder is made if it is missing."""
        before = archive_of(self._folder)
        if before not in (None, self._there):
            raise StoreError(f"{self._folder}: its archive is {before}: name that one, or write another capture")
        if before is None:
            try:
                make_folder(self._folder, access)
                replace(self._folder / MARKER, f"{self._there}\n", access)
            except OSError as error:
                raise fail(self._folder / MARKER, "written", error) from error

    def ends(self) -> dict[str, int]:
        """Return the ends of the chains in the archive, behind which another node goes on."""
        last, ends = {chain: (base, path) for chain, base, path in names_of(self._there)}, dict[str, int]()
        try:
            for chain, (base, path) in last.items():
                index = sealed(self._read(index_path(path)) or b"", base)
                ends[chain] = base if index is None else base + index.end
        except OSError as error:
            raise fail(self._there, "read", error) from error
        return ends

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look for sealed segments now."""
        self._wake.set()

    def close(self, *, rest: bool) -> None:
        """End the thread. With `rest` copy what is left."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        if rest:
            self.move(rest=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            with suppress(StoreError):  # the folder is gone, which its writer tells
                self.move()
            self._wake.wait(_AGAIN)

    def move(self, *, rest: bool = False) -> None:
        """Move the sealed segments but the last of each chain, behind which the next writer goes on. With `rest` copy
        that one, too. What cannot be moved stays, and is logged once.
        """
        segments = names_of(self._folder)
        last = {chain: path for chain, _, path in segments}
        for chain, base, path in segments:
            is_last = path == last[chain]
            if not rest and (is_last or self._stop.is_set()):
                continue
            try:
                if self._copy(path, base) and not is_last:
                    delete(path)
                self._told.discard(path.name)
            except (OSError, ValueError, StompError) as error:
                if path.name not in self._told:
                    self._told.add(path.name)
                    log.warning("%s stays here, and is tried again: not moved to the archive: %s", path, error)
                if not isinstance(error, StoreError):
                    return  # the archive cannot be reached

    def _copy(self, path: Path, base: int) -> bool:
        """Copy a segment, unless it is there, and verify the copy. Return False if it is not sealed."""
        index, there = index_path(path).read_bytes(), self._there / path.name
        if sealed(index, base) is None:
            return False
        beside = index_path(there)
        found = self._read(beside)
        if found is None and not there.exists():
            self._put(beside, [index])
            found = self._read(beside)
        if found != index:
            raise StoreError(f"{there} is a segment of another recorder: give each an archive of its own")
        for name in _ALSO:
            if (self._folder / name).exists():
                self._put(self._there / name, [(self._folder / name).read_bytes()])
        if not self._is_copy(there, index, base):
            with path.open("rb") as stream:
                self._put(there, iter(lambda: stream.read(PIECE), b""))
            if not self._is_copy(there, index, base):
                raise StoreError(f"{there} does not match its index, as the segment or its copy is damaged")
        return True

    def _is_copy(self, there: Remote, index: bytes, base: int) -> bool:
        """Return whether a segment has the size and the checksums of its index."""
        end = 0
        try:
            with open_place(there, ahead=True) as stream:
                for row in read_rows(io.BytesIO(index).read, IndexDecoder(base), len(index)):
                    end = row.end
                    if checksum(stream, row.start, end) != row.sum:
                        return False
                return bool(stream.seek(0, os.SEEK_END) == end)
        except FileNotFoundError:
            return False

    def _read(self, there: Remote) -> bytes | None:
        """Return the content of a small file; None if there is none."""
        try:
            with open_place(there) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def _put(self, there: Remote, pieces: Iterable[bytes]) -> None:
        system, path = there.system
        is_whole = system.type_name in _WHOLE
        if not is_whole:
            system.create_dir(path.rpartition("/")[0])
        stream = system.open_output_stream(path if is_whole else f"{path}.new", compression=None)
        for piece in pieces:
            stream.write(piece)
        stream.close()
        if not is_whole:
            system.move(f"{path}.new", path)
