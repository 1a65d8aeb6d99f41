"""Places of captures: paths of this machine, and URIs of file systems of pyarrow, such as object stores.

A sealed segment may move to an archive, which the file `archive` in the folder of its capture names. So what is not at
its path any more is opened there.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from stompcodec.errors import MissingExtraError, StoreError, may_be_secret

#: The file in the folder of a capture that names its archive.
MARKER = "archive"
#: Bytes that a buffered reader of a remote file asks for at once.
_AHEAD = 4 * 2**20
_URI = re.compile(r"([a-z][a-z0-9+.-]+)://([^/?]*)([^?]*)(\?.*)?", re.IGNORECASE)
_NAME = re.compile(r"[?&]([^=&]+)")
#: Names of S3 in Hadoop.
_ALIASES = {"s3a": "s3", "s3n": "s3"}


class Remote(PurePosixPath):
    """A file or folder of a file system of pyarrow, with the methods of `pathlib.Path` that readers use.

    Its parts are the scheme with the query, the host or bucket, and the path there.

    >>> str(place_of("s3a://bucket/feed.stompcap?region=eu-north-1") / "lock")
    's3://bucket/feed.stompcap/lock?region=eu-north-1'
    """

    __slots__ = ()

    def __str__(self) -> str:
        scheme, query, path = self._split()
        return f"{scheme}//{path}{query}"

    def _split(self) -> tuple[str, str, str]:
        scheme, mark, query = self.parts[0].partition("?")
        return scheme, mark + query, "/".join(self.parts[1:])

    def as_posix(self) -> str:
        """Return it without the query, which may change; or what is relative to another place."""
        return "/".join((self.parts[0].partition("?")[0], *self.parts[1:]))

    @property
    def system(self) -> tuple[Any, str]:
        """The file system, and the path there."""
        scheme, query, path = self._split()
        host, _, path = path.partition("/")
        system, base = _system_of(f"{scheme}//{host}", query)
        return system, f"{base.rstrip('/')}/{path}".rstrip("/")

    def _info(self) -> Any:
        system, path = self.system
        return system.get_file_info(path)

    def exists(self) -> bool:
        return bool(self._info().type.name != "NotFound")

    def is_dir(self) -> bool:
        return bool(self._info().type.name == "Directory")

    def iterdir(self) -> Iterator[Remote]:
        """Yield what is in the folder; nothing if there is none."""
        system, path = self.system
        selector = arrow_fs().FileSelector(path, allow_not_found=True)
        return (self / info.base_name for info in system.get_file_info(selector))

    def stat(self) -> os.stat_result:
        """Return the size in bytes and the time of the last change."""
        info = self._info()
        if info.type.name == "NotFound":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return os.stat_result((*[0] * 6, info.size or 0, 0, (info.mtime_ns or 0) // 10**9, 0))

    def open(self) -> Any:
        system, path = self.system
        return system.open_input_file(path)


Place = Path | Remote
Same = TypeVar("Same", bound=Place)


def arrow_fs() -> Any:
    """Return `pyarrow.fs`; raise MissingExtraError without it."""
    try:
        from pyarrow import fs
    except ImportError:
        raise MissingExtraError("spark", "pyarrow") from None
    return fs


@lru_cache(64)
def _system_of(root: str, query: str) -> tuple[Any, str]:
    """Return the file system behind a URI, and the path of its root there."""
    try:
        system, base = arrow_fs().FileSystem.from_uri(root + ("/" if root.startswith("hdfs:") else "") + query)
    except ValueError as error:
        raise StoreError(f"{root}: {error}") from None
    return system, base


def place_of(text: str | os.PathLike[str]) -> Place:
    """Return the place that a path, a file: URI or another URI names. Raise StoreError for a URI that holds a secret.

    >>> place_of("s3://key:secret@bucket/a")
    Traceback (most recent call last):
    stompcodec.errors.StoreError: s3://***: secrets belong into the environment, such as AWS_SECRET_ACCESS_KEY
    """
    if isinstance(text, Remote):
        return text
    if isinstance(text, str) and text[:6].lower() == "file:/":
        return Path(unquote(urlsplit(text).path))
    found = _URI.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return Path(text)
    scheme, query = found[1].lower(), (found[4] or "").replace("/", "%2F")  # as a part of the path
    secret = any(may_be_secret(name) or name.endswith(("key", "sig")) for name in _NAME.findall(query.lower()))
    if secret or ":" in found[2].rpartition("@")[0]:
        raise StoreError(f"{scheme}://***: secrets belong into the environment, such as AWS_SECRET_ACCESS_KEY")
    return Remote(f"{_ALIASES.get(scheme, scheme)}:{query}", found[2] + found[3])


def archive_of(folder: Place) -> Remote | None:
    """Return the archive of a capture in a folder; None if it has none. Raise StoreError if that cannot be read."""
    if isinstance(folder, Remote):
        return None
    try:
        text = (folder / MARKER).read_text("utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise StoreError(f"{folder / MARKER}: cannot be read: {error}") from error
    place = place_of(text)
    if isinstance(place, Path):
        raise StoreError(f"{folder / MARKER}: it must hold a URI, such as s3://bucket/feed.stompcap")
    return place


def _moved(place: Place) -> Remote:
    """Return where a file that is not there may have moved to; raise the FileNotFoundError that is handled if not."""
    archive = archive_of(place.parent) if isinstance(place, Path) else None
    if archive is None:
        raise
    return archive / place.name


def open_place(place: Place, *, ahead: bool = False) -> Any:
    """Open a file to read, there or in its archive. Raises OSError.

    Each read of a remote file is a request, unless it is read `ahead`, for many small ones.
    """
    if isinstance(place, Path):
        try:
            return place.open("rb", buffering=0)
        except FileNotFoundError:
            place = _moved(place)
    stream = place.open()
    return io.BufferedReader(stream, _AHEAD) if ahead else stream


def size_of(place: Place) -> int:
    """Return the size of a file in bytes, there or in its archive. Raises OSError."""
    try:
        return place.stat().st_size
    except FileNotFoundError:
        return _moved(place).stat().st_size
