"""Stand-ins for a parser where it is not clear how, or from where, to read.

They recognise the legacy dialect by a client's first frame, for servers that speak other versions too, and the next
frame behind a malformed one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

#: A longer first frame, in bytes, is not legacy: a CONNECT of that dialect has two headers.
_MOST = 8192
_CONNECT = b"CONNECT"
#: The longest beginning of a frame, in bytes behind its EOLs, that is kept to see what follows.
_MOST_BEGUN = 512
_HEAD_END = re.compile(rb"\n\r?\n")
#: Headers that a CONNECT of the legacy dialect does not have.
_NOT_LEGACY = {b"accept-version", b"login", b"version"}


def is_legacy(octets: bytes) -> bool | None:
    """Return whether a first frame, by the stream from its first byte on, is of the legacy dialect; None if more bytes
    are needed.

    It is if its command is CONNECT in another case or with spaces after it, or if its headers contain a username but
    neither login nor accept-version. Rules: LEG-CMD-01, LEG-CON-02.
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


class NextFrame:
    """A stand-in for a parser behind a malformed frame: it looks for a NUL, EOLs, and a line with a known command.

    Args:
        commands: the commands.
        legacy: whether they may be in any case, with spaces behind them.
        offset: of the first byte in the stream.
        found: called with the bytes from such a command on, and their offset; it returns an iterator over the frames.

    What follows was not checked: if it is malformed, too, begin again behind it. Of the other bytes only the end is
    kept, so that each is read once.
    """

    __slots__ = ("_begun", "_end", "_found", "_legacy", "_names", "_next")

    def __init__(
        self, commands: Iterable[str], legacy: bool, offset: int, found: Callable[[bytes, int], Iterator[Any]]
    ) -> None:
        self._names = [command.encode() for command in commands]
        names = b"|".join(map(re.escape, self._names))
        eol = rb"[ \r]*\n" if legacy else rb"\r?\n"
        self._next = re.compile(rb"\0(?:\r?\n)*((?:%b)%b)" % (names, eol), re.IGNORECASE if legacy else 0)
        self._legacy = legacy
        self._end = offset
        self._found = found
        self._begun = b""

    @property
    def buffered(self) -> int:
        """Never 0: the next bytes need not begin a frame."""
        return max(len(self._begun), 1)

    def feed(self, data: Any) -> Iterator[Any]:
        """Take in bytes and return an iterator over complete frames."""
        octets = self._begun + bytes(data)
        self._end += len(octets) - len(self._begun)
        found = self._next.search(octets)
        if found is not None:
            return self._found(octets[found.start(1) :], self._end - len(octets) + found.start(1))
        begun = octets[octets.rfind(b"\0") + 1 :].lstrip(b"\r\n")
        self._begun = b"\0" + begun if b"\0" in octets and self._may_begin(begun) else b""
        return iter(())

    def _may_begin(self, octets: bytes) -> bool:
        line = octets.rstrip(b" \r").upper() if self._legacy else octets.removesuffix(b"\r")
        return len(octets) < _MOST_BEGUN and any(name.startswith(line) for name in self._names)

    def close(self) -> None:
        """Mark the end of the stream, which may be in any frame."""
