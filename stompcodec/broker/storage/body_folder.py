"""BodyFolder: a folder of bodies. Only files whose names follow our pattern are touched, and links are not followed."""

from __future__ import annotations

import errno
import os
import stat
import sys
import weakref
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

from stompcodec.broker.storage.folder_lock import is_body
from stompcodec.broker.storage.helper import Helper, Remover
from stompcodec.disk import NO_FOLLOW, PRIVATE, Access, create, grant, is_at, make_folder
from stompcodec.errors import StoreError


class BodyFolder:
    """A folder of bodies, whose names are never reused. It is created if it is missing; a symbolic link raises
    StoreError.

    `access` holds the permissions of the files, and of the folder if it is created. `helper` removes files; None for a
    thread.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = BodyFolder(Path(name, "bodies"))
    ...     _ = (folder.path / "notes.txt").write_text("mine")
    ...     body = folder.new_name(); os.close(folder.create(body))
    ...     folder.sweep({body}), folder.sweep(()), os.listdir(folder.path)
    ...     folder.close()
    (0, 1, ['notes.txt'])
    """

    def __init__(self, path: Path, access: Access = PRIVATE, helper: Helper | None = None) -> None:
        self.path = path
        self.access = access
        self.remover = Remover(helper)
        #: No name is reused: otherwise a removed file could come back with other content before the commit that records
        #: it, or a later broker of this process could reuse a name while this one is still removing files.
        self._prefix = os.urandom(8).hex()
        self._count = 0
        self._closed = False
        self._file: int | None = None
        try:
            make_folder(path, access)
            if sys.platform != "win32":  # where a folder cannot be opened
                self._file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | NO_FOLLOW)
        except OSError as error:
            if path.is_symlink() or error.errno == errno.ELOOP:
                raise StoreError(
                    f"{path} is a symbolic link, and files are only removed from a folder of the broker's own "
                    "(put a folder there, or mount the other disk at it)"
                ) from error
            raise
        if self._file is not None:
            self._end = weakref.finalize(self, os.close, self._file)

    def is_there(self) -> bool:
        """Return whether the folder is still at its path: files in another one are not found by the next broker. Raise
        OSError if that is unknown.
        """
        return self._file is None or self._closed or is_at(self._file, self.path)

    def new_name(self) -> str:
        """Return a name that was never used before."""
        self._count += 1
        return f"{self._prefix}-{self._count}"

    def create(self, name: str) -> int:
        """Create a new file, and return its descriptor for writing."""
        if self._file is None:
            return create(self.path / name, os.O_WRONLY | os.O_EXCL, self.access)
        return create(name, os.O_WRONLY | os.O_EXCL, self.access, folder=self._file)

    def remove(self, name: str) -> bool:
        """Remove a file of ours at once, and return whether it is gone. Other files are left alone.

        In the loop's thread, use `discard`. If a file cannot be removed, `sweep` finds it at the next start.
        """
        if self._closed or not is_body(name):
            return False
        with suppress(OSError):
            if self._file is None:
                if stat.S_ISREG(os.lstat(self.path / name).st_mode):
                    os.unlink(self.path / name)
                    return True
            elif stat.S_ISREG(os.lstat(name, dir_fd=self._file).st_mode):
                os.unlink(name, dir_fd=self._file)
                return True
        return False

    def discard(self, name: str) -> None:
        """Have a file of ours removed, in the helper."""
        self.remover.put(lambda: self.remove(name))

    def names(self) -> list[str]:
        """Return the names of the files that follow our pattern."""
        return [name for name in os.listdir(self.path if self._file is None else self._file) if is_body(name)]

    def sweep(self, known: Container[str]) -> int:
        """Remove unknown bodies, left by a crash, and return their number. Correct the permissions of the others."""
        count = 0
        for name in self.names():
            if name in known:
                self._guard(name)
            else:
                count += self.remove(name)
        return count

    def _guard(self, name: str) -> None:
        """Correct the permissions of a file made by an earlier broker."""
        if self._file is None:
            return
        with suppress(OSError):
            info = os.lstat(name, dir_fd=self._file)
            wrong = info.st_mode & 0o777 != self.access.mode or self.access.group not in (None, info.st_gid)
            if stat.S_ISREG(info.st_mode) and wrong:
                file = os.open(name, os.O_RDONLY | NO_FOLLOW, dir_fd=self._file)
                try:
                    grant(file, self.access, self.path / name)
                finally:
                    os.close(file)

    def clear(self) -> None:
        """Have the bodies that this object made removed, in the helper."""

        def work() -> None:
            with suppress(OSError):
                for name in self.names():
                    if name.startswith(self._prefix):
                        self.remove(name)

        self.remover.put(work)

    def sync(self) -> None:
        """Sync the names of new files to disk."""
        if self._file is not None:  # other systems cannot open a folder, and need not
            os.fsync(self._file)

    def close(self) -> None:
        """Wait until discarded files are removed, and release the folder. Closing twice does nothing."""
        self.remover.close()
        self._closed = True
        if self._file is not None:
            self._end()
