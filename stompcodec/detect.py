"""Recognition of the legacy dialect by a client's first frame, for servers that speak other versions too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

#: A longer first frame, in bytes, is not legacy: a CONNECT of that dialect has two headers.
_MOST = 8192
_CONNECT = b"CONNECT"
_HEAD_END = re.compile(rb"\n\r?\n")
#: Headers that a CONNECT of the legacy dialect does not have.
_NOT_LEGACY = {b"accept-version", b"login", b"version"}


def is_legacy(octets: bytes) -> bool | None:
    """Return whether a first frame, by the stream from its first byte on, is of the legacy dialect; None if more bytes
    are needed.

    It is if its command is CONNECT in another case or with spaces after it, or if its headers contain a username but
    neither login nor accept-version. Rules: LEG-CMD-01, LEG-CON-02.

    >>> [is_legacy(octets) for octets in (b"connect\\n", b"CONNECT\\nUsername: ann\\n\\n", b"CONNECT\\n", b"STO")]
    [True, True, None, False]
    """
    text = octets.lstrip(b"\r\n")
    line, ended, _rest = text.partition(b"\n")
    word = line.rstrip(b" \r")
    if len(octets) > _MOST or b"\0" in word:
        return False
    if not ended:
        return None if _CONNECT.startswith(word.upper()) else False
    if word.upper() != _CONNECT:
        return False
    if line.removesuffix(b"\r") != _CONNECT:
        return True
    end = _HEAD_END.search(text)
    if end is None:
        return False if b"\0" in text else None
    names = {header.partition(b":")[0].lower() for header in text[: end.start()].split(b"\n")}
    return b"username" in names and names.isdisjoint(_NOT_LEGACY)


class FirstFrame:
    """A stand-in for a parser until its dialect is known. Its members are those of `Parser`. `parser_of` makes the
    parser for "legacy", or for None: versions that are negotiated.
    """

    __slots__ = ("_parser", "_parser_of", "_waiting")

    def __init__(self, parser_of: Callable[[str | None], Any]) -> None:
        self._parser_of = parser_of
        self._parser: Any = None
        self._waiting = b""

    @property
    def version(self) -> str | None:
        """ "legacy", or None."""
        return None if self._parser is None else self._parser.version

    @property
    def buffered(self) -> int:
        """Bytes that were fed and not handed out."""
        return len(self._waiting) if self._parser is None else self._parser.buffered

    def feed(self, data: Any) -> Iterator[Any]:
        """Take in bytes and return an iterator over complete frames."""
        if self._parser is None:
            self._waiting += bytes(data)
            legacy = is_legacy(self._waiting)
            if legacy is None:
                return iter(())
            self._parser = self._parser_of("legacy" if legacy else None)
            data, self._waiting = self._waiting, b""
        frames: Iterator[Any] = self._parser.feed(data)
        return frames

    def close(self) -> None:
        """Mark the end of the stream. Raise FrameError: "truncated"."""
        if self._parser is None:
            self._parser = self._parser_of(None)
            list(self._parser.feed(self._waiting))
        self._parser.close()
