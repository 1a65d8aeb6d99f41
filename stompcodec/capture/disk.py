"""Captures and the disk: a lock, octets that are on it for sure, and names of segments."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from stompcodec.disk.access import PRIVATE, Access, create
from stompcodec.errors import StoreError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = [
    "FARTHEST",
    "CaptureBusyError",
    "Lock",
    "cut",
    "fail",
    "is_segment",
    "names_of",
    "segment_name",
    "sync",
    "sync_folder",
    "write",
]

#: The octet that is locked on Windows, where what is locked cannot be read. No file is so long.
_FAR = 2**62
#: The largest offset. A file whose name says more is no segment of ours.
FARTHEST = 2**62
#: Bytes of a note that says who holds a lock.
_NOTED = 1000
_NAME = re.compile(r"([a-z0-9][a-z0-9_.]{0,63})-([0-9]{20})\.stomp")


class CaptureBusyError(StoreError):
    """Another process, or another writer of this one, writes this capture.

    >>> issubclass(CaptureBusyError, StoreError)
    True
    """

    def __init__(self, text: str, holder: str = "") -> None:
        super().__init__(f"{text}: held by {holder}" if holder else text)
        self.holder = holder
        """Who holds it, as far as that is known."""


def _note(file: int, holder: str) -> None:
    """Write who holds a lock. It only helps people, so a disk that is full or read-only does not matter."""
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, holder.encode("ascii", "replace")[:_NOTED] + b"\n")


def _noted(file: int) -> str:
    """Return who holds a lock; "" if that is not known. The file may hold anything."""
    try:
        os.lseek(file, 0, os.SEEK_SET)
        text = os.read(file, _NOTED).decode("ascii", "replace")
    except OSError:
        return ""
    return "".join(each if each.isprintable() else " " for each in text).strip()


def fail(path: Path, what: str, error: OSError) -> StoreError:
    """The error to raise for one of the operating system.

    >>> fail(Path("a.stompcap"), "written", OSError(28, "No space left on device"))
    StoreError('a.stompcap: cannot be written: No space left on device')
    """
    result = StoreError(f"{path}: cannot be {what}: {error.strerror or error}")
    result.__cause__ = error
    return result


class Lock:
    """Holds a file for this writer, until `release` or the end of the process, however it ends.

    Args:
        path: made if it is missing. It is never removed: else two writers could hold two files of one name.
        access: rights of the file, if it is made.
        holder: who holds it, kept in the file for those who are refused; None for a file whose content is not ours.

    Raises:
        CaptureBusyError: somebody else holds it.
        StoreError: it cannot be opened.
    """

    def __init__(self, path: Path, access: Access = PRIVATE, holder: str | None = None) -> None:
        try:
            self._file = create(path, os.O_RDWR, access, follow=True)
        except OSError as error:
            raise fail(path, "opened", error) from error
        try:
            if sys.platform == "win32":
                os.lseek(self._file, _FAR, os.SEEK_SET)
                msvcrt.locking(self._file, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            found = "" if holder is None else _noted(self._file)
            os.close(self._file)
            raise CaptureBusyError(
                f"{path}: another process writes this capture (stop it, or write another one)", found
            ) from None
        if holder is not None:
            _note(self._file, holder)

    def release(self) -> None:
        """Lets others have it."""
        os.close(self._file)


def sync(file: int) -> None:
    """Returns once the octets of a file, and its length, are on the disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)  # fsync stops at the disk's own memory there
    elif hasattr(os, "fdatasync"):
        os.fdatasync(file)
    else:
        os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Returns once the names of new files are on the disk. Windows needs and knows no such thing."""
    if sys.platform == "win32":
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def write(file: int, data: bytes) -> None:
    """Write all of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def cut(file: int, size: int) -> None:
    """Make the file so long, on the disk too, and go on writing there."""
    os.ftruncate(file, size)
    os.lseek(file, size, os.SEEK_SET)
    sync(file)


def segment_name(chain: str, base: int) -> str:
    """How a segment is called.

    Raises:
        ValueError: the chain cannot have such a name.
        StoreError: the base is beyond what there can be.

    >>> segment_name("frames", 1000)
    'frames-00000000000000001000.stomp'
    """
    if base > FARTHEST:
        raise StoreError(f"chain {chain} is full: write another capture")
    name = f"{chain}-{base:020}.stomp"
    if not _NAME.fullmatch(name):
        raise ValueError(f"chain is {chain!r}: use up to 64 of a-z, 0-9, _ and . and begin with a letter or digit")
    return name


def is_segment(name: str) -> bool:
    """Whether a file of that name is a segment.

    >>> is_segment("frames-00000000000000001000.stomp"), is_segment("photo-1.stomp")
    (True, False)
    """
    return _NAME.fullmatch(name) is not None


def names_of(folder: Path) -> list[tuple[str, int, Path]]:
    """Chain, base and path of every segment in a folder, in order.

    Raises:
        StoreError: the folder cannot be read.
    """
    try:
        found = [(_NAME.fullmatch(name), name) for name in os.listdir(folder)]
    except OSError as error:
        raise fail(folder, "read", error) from error
    segments = [(match[1], int(match[2]), folder / name) for match, name in found if match]
    return sorted(each for each in segments if each[1] <= FARTHEST)
