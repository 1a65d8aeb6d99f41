"""The disk below captures: a lock, synced writes, and the names of segments."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from stompcodec.disk.access import PRIVATE, Access, create
from stompcodec.disk.files import is_at, lock, sync, unlock
from stompcodec.errors import StoreError

#: The largest offset. A file with a larger one in its name is not a segment.
FARTHEST = 2**62
#: Bytes of the note that names the holder of a lock.
_NOTED = 1000
_NAME = re.compile(r"([a-z0-9][a-z0-9_.]{0,63})-([0-9]{20})\.stomp")


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


def fail(path: Path, what: str, error: OSError) -> StoreError:
    """Return the StoreError for an error of the operating system.

    >>> fail(Path("a.stompcap"), "written", OSError(28, "No space left on device"))
    StoreError('a.stompcap: cannot be written: No space left on device')
    """
    result = StoreError(f"{path}: cannot be {what}: {error.strerror or error}")
    result.__cause__ = error
    return result


def gone(path: Path) -> StoreError:
    """Return the StoreError for an open file that is no longer at its path.

    >>> str(gone(Path("a.stompcap")))[:38]
    'a.stompcap: it was removed, renamed or'
    """
    return StoreError(
        f"{path}: it was removed, renamed or replaced while it was being written (start again, and keep what did that "
        "away from the folder)"
    )


class Lock:
    """An exclusive lock on a file, until `release` or the end of the process.

    The file is created with the permissions `access` if it is missing, and never removed: otherwise two writers could
    lock two files of the same name. It keeps `holder`, the name of this writer, for the error of others (None for a
    file with other content).

    Raises:
        CaptureBusyError: another writer holds the lock.
        StoreError: the file cannot be opened.
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
        """Release the lock."""
        unlock(self._file, self._owner)


def write(file: int, data: bytes) -> None:
    """Write all of the data."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def cut(file: int, size: int) -> None:
    """Truncate the file to `size` bytes, also on the disk, and seek to its end."""
    os.ftruncate(file, size)
    os.lseek(file, size, os.SEEK_SET)
    sync(file)


def segment_name(chain: str, base: int) -> str:
    """Return the file name of a segment. Raises ValueError for the name of a chain that is not allowed.

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
    """Return whether a file name is that of a segment.

    >>> is_segment("frames-00000000000000001000.stomp"), is_segment("photo-1.stomp")
    (True, False)
    """
    return _NAME.fullmatch(name) is not None


def names_of(folder: Path) -> list[tuple[str, int, Path]]:
    """Return chain, base and path of all segments in a folder, in order; raise StoreError if it cannot be read."""
    try:
        found = [(_NAME.fullmatch(name), name) for name in os.listdir(folder)]
    except OSError as error:
        raise fail(folder, "read", error) from error
    segments = [(match[1], int(match[2]), folder / name) for match, name in found if match]
    return sorted(each for each in segments if each[1] <= FARTHEST)
