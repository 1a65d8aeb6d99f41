"""Input of the verbs: options, errors in it, and a reader of frames from bytes."""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any, BinaryIO, NamedTuple, TypeVar

import click

from stompcodec import HEARTBEAT, Frame, FrameError, Limits, Parser
from stompcodec.cli.screen import printable
from stompcodec.cli.streams import flush_output
from stompcodec.errors import ERROR_KINDS, moved
from stompcodec.spec import VERSIONS, checked_limits, dialect_of
from stompcodec.values import duration, shown_duration
from stompcodec.values import size as size_of

_READ = 256 * 1024
#: Bytes kept of a streamed body.
_BEGIN = 256
#: Frames that begin a conversation or set its version.
HANDSHAKE = frozenset(("CONNECT", "STOMP", "CONNECTED"))


class Place(NamedTuple):
    """A complete frame and its position. Offsets are bytes from the start of the stream."""

    frame: Frame
    """Its body is None if bodies of this size are skipped."""
    start: int
    """Offset of the command."""
    body: int
    """Offset of the body."""
    end: int
    """Offset after the NUL."""
    version: str | None
    """The version it was parsed with; None before negotiation."""
    begin: bytes
    """The body, or the first bytes of a skipped one."""

    @property
    def size(self) -> int:
        return self.end - 1 - self.body


class Broken(NamedTuple):
    """A broken frame."""

    error: FrameError
    """Its offset is from the start of the stream."""
    start: int
    """Where the broken frame begins."""
    resumed: int | None
    """Where reading continued; None if it ended."""
    version: str | None
    """The version it was parsed with; None before negotiation."""
    head: bytes = b""
    """Its first bytes."""


def version_after(handshake: Frame) -> str | None:
    """Return the version of the frames after CONNECTED; None after CONNECT and STOMP, or for an unknown version."""
    version = handshake.get("version", "1.0") if handshake.command == "CONNECTED" else None
    return version if version in VERSIONS else None


class FrameReader:
    """A reader of a stream of frames. `read` returns up to this many bytes, and b"" at the end, as
    `io.BufferedReader.read1` does. The version "auto" follows CONNECTED. With `resync`, it continues after a broken
    frame, at the next known command after a NUL; otherwise bodies of more than `stream_over` bytes are not kept. `base`
    is the offset of the first byte.

    >>> import io
    >>> reader = FrameReader(io.BytesIO(b"\\nSEND\\ndestination:/queue/a\\n\\nhello\\0").read)
    >>> [[place]] = list(reader.places())
    >>> place.frame.command, place.start, place.body, place.size
    ('SEND', 1, 28, 5)
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        version: str = "auto",
        *,
        lenient: bool = False,
        limits: Limits | None = None,
        resync: bool = False,
        stream_over: int | None = None,
        base: int = 0,
    ) -> None:
        self.fed = base  #: offset behind the bytes read
        self.heartbeats = 0  #: EOLs between frames
        self.seconds = 0.0  #: parsing time
        self.begin = b""  #: the first bytes
        self._read_from = read
        self._auto = version == "auto"
        self._options: dict[str, Any] = {"lenient": lenient, "limits": limits, "heartbeats": True}
        self._options["stream_over"] = None if resync else stream_over
        self._resync = resync
        known = sorted(dialect_of("1.2").commands)
        names = b"|".join(re.escape(name.encode()) for name in known)
        self._plausible = re.compile(rb"\0[\r\n]*(?=(?:%s) *\r?\n)" % names, re.I if version == "legacy" else 0)
        self._longest = max(map(len, known)) + 2
        self._parser = Parser(None if self._auto else version, **self._options)
        self._base = base  # start of the parser's stream
        self._first = self._at = base  # end of the frames returned so far
        self._window = bytearray()  # the bytes from `_window_at` on
        self._window_at = base
        self._streamed: Place | None = None
        self._ended = False

    def octets(self, start: int, end: int) -> bytes:
        """Return the bytes between two offsets, of a frame in the latest batch."""
        return bytes(self._window[start - self._window_at : end - self._window_at])

    def places(self) -> Iterator[list[Place] | Broken]:
        """Yield the frames of each read, and broken frames. Stop after a broken frame unless `resync` is set."""
        while True:
            batch: list[Place] = []
            failure = self._timed(self._drain, batch)
            if batch:
                yield batch
            failure = failure or self._take_in()
            if failure is not None and self._is_caret_text():
                continue
            if failure is not None:
                broken = self._broken(failure)
                yield broken
                if broken.resumed is None:
                    return
            elif self._ended:
                return

    def events(self) -> Iterator[list[Any] | Broken]:
        """Yield the parser's events without positions, which is faster. Stop at a broken frame."""
        while True:
            batch: list[Any] = []
            failure = self._timed(self._drain_quickly, batch)
            yield batch
            failure = failure or self._take_in()
            if failure is not None and self._is_caret_text():
                continue
            if failure is not None:
                yield self._located(failure)
            if failure is not None or self._ended:
                return

    def _timed(self, drain: Callable[[list[Any]], None], batch: list[Any]) -> FrameError | None:
        began = perf_counter()
        try:
            drain(batch)
        except FrameError as error:
            return error
        finally:
            self.seconds += perf_counter() - began
        return None

    def _drain_quickly(self, batch: list[Any]) -> None:
        for event in self._parser:
            batch.append(event)
            if type(event) is Frame and event.command in HANDSHAKE:
                self._follow(event)
        self._at = self.fed

    def _take_in(self) -> FrameError | None:
        """Feed the next bytes. At the end of the stream, return the error if it is incomplete."""
        data = self._read_from(_READ)
        used = self._at - self._window_at if data else 0
        del self._window[:used]
        self._window_at += used
        self.begin = self.begin or data[:8]
        self.fed += len(data)
        self._window += data
        self._parser.feed(data)
        self._ended = not data
        try:
            if self._ended:
                self._parser.close()
        except FrameError as error:
            return error
        return None

    def _drain(self, batch: list[Place]) -> None:
        parser = self._parser
        for event in parser:
            at = self.fed - parser.buffered
            if event is HEARTBEAT:
                self.heartbeats += 1
            elif isinstance(event, Frame):
                self._found(event, at, batch)
            elif isinstance(event, bytes):
                self._piece(event)
            elif self._streamed is not None:
                batch.append(self._streamed._replace(body=at - 1 - self._streamed.size, end=at))
                self._streamed = None
            self._at = at
        if self._streamed is None:
            self._at = self.fed - parser.buffered

    def _found(self, frame: Frame, at: int, batch: list[Place]) -> None:
        start = self._frame_start()
        body: bytes | None = frame.body
        version = self._parser.version
        if body is None:
            self._streamed = Place(frame, start, start, start + 1, version, b"")  # its body is still empty
        else:
            batch.append(Place(frame, start, at - 1 - len(body), at, version, body))
        if frame.command in HANDSHAKE:
            self._follow(frame)

    def _frame_start(self) -> int:
        start = self._at - self._window_at
        if self._options["lenient"]:
            # EOLs are events of their own; only NULs are skipped silently.
            while self._window[start : start + 1] == b"\0":
                start += 1
        return self._window_at + start

    def _piece(self, data: bytes) -> None:
        place = self._streamed
        assert place is not None
        begin = (place.begin + data[:_BEGIN])[:_BEGIN]
        self._streamed = place._replace(end=place.end + len(data), begin=begin)

    def _follow(self, frame: Frame) -> None:
        if self._auto:
            self._parser.version = version_after(frame)

    def _broken(self, error: FrameError) -> Broken:
        """Return the broken frame, and where reading continues."""
        broken = self._located(error)
        if self._resync:
            began = perf_counter()
            broken = broken._replace(resumed=self._find_start())
            self.seconds += perf_counter() - began
        return broken

    def _located(self, error: FrameError) -> Broken:
        assert error.offset is not None
        start = self._frame_start() if self._streamed is None else self._streamed.start
        broken = Broken(moved(error, self._base), start, None, self._parser.version, self.octets(start, start + _BEGIN))
        if not self._resync:
            self.fed = self._base + error.offset
        return broken

    def _find_start(self) -> int | None:
        """Restart the parser at the next command line after a NUL, and return its offset, or None if there is none."""
        tail, data = b"", self.octets(self._at, self.fed)
        while True:
            data = tail + data
            found = self._plausible.search(data)
            if found:
                rest = data[found.end() :]
                self._begin(self.fed - len(rest), rest)
                return self._base
            # Keep a possible beginning of a match. Its EOLs are dropped, because offsets are counted from the end.
            nul = data.rfind(b"\0")
            line = data[nul + 1 :].lstrip(b"\r\n")
            tail = b"\0" + line if nul >= 0 and len(line) < self._longest else b""
            data = self._read_from(_READ)
            self.fed += len(data)
            if not data:
                return None

    def _is_caret_text(self) -> bool:
        """Begin again with a NUL for each ^@ if the stream has those in its place, as a pasted log does."""
        data = bytes(self._window)
        if self._window_at != self._first or b"\0" in data or b"^@" not in data:
            return False
        complain("^@ is two characters here: each is read as the NUL that it stands for")
        read, data = self._read_from, data.replace(b"^@", b"\0")

        def take(size: int) -> bytes:
            more = read(size)
            return (more + read(1) if more.endswith(b"^") else more).replace(b"^@", b"\0")

        self._begin(self._first, data)
        self.fed, self._read_from, self._streamed, self.heartbeats = self._first + len(data), take, None, 0
        return True

    def _begin(self, at: int, data: bytes) -> None:
        self._parser = Parser(self._parser.version, **self._options)
        self._parser.feed(data)
        self._base = self._at = self._window_at = at
        self._window = bytearray(data)


#: Files with more bytes than this get a progress bar.
_LARGE = 4 * 2**20
_PACKETS = "this is a packet capture: stompcodec inspect and convert read it"
#: Remedies by the first bytes of files that contain frames in another format.
_WRAPPED = {
    **dict.fromkeys((b"\n\r\r\n", b"\xa1\xb2\xc3\xd4", b"\xd4\xc3\xb2\xa1"), _PACKETS),
    **dict.fromkeys((b"\xa1\xb2\x3c\x4d", b"\x4d\x3c\xb2\xa1"), _PACKETS),
    b'{"': "this is JSON: stompcodec encode --json writes its frames as a raw stream",
    b"PAR1": "this is Parquet: stompcodec convert reads it",
}
#: The first bytes of the index behind the frames of a single-file capture, and the remedy.
_INDEX = b"stompix1"
_SINGLE = "this is the index of a capture, after its last frame: give the capture as a file, uncompressed"


class Unreadable(Exception):
    """Raised for a file that cannot be opened or read."""


F = TypeVar("F", bound=Callable[..., Any])


def option_group(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds click options to a verb, in this order."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


_Given = TypeVar("_Given")
_Taken = TypeVar("_Taken")


def parsed(parse: Callable[[_Given], _Taken]) -> Callable[[click.Context, click.Parameter, _Given], _Taken]:
    """Return a callback of click: it parses the value of an option, or reports a ValueError as an error of the user."""

    def callback(_context: click.Context, option: click.Parameter, value: _Given) -> _Taken:
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error).removeprefix(f"{option.name}: ")) from None

    return callback


def pairs_of(values: Iterable[str], sign: str) -> tuple[tuple[str, str], ...]:
    """Split values like NAME=VALUE at their sign. Raises ValueError for one without it."""
    for value in values:
        if value.find(sign) < 1:
            raise ValueError(f"{value!r}: write NAME{sign}VALUE")
    return tuple((name, rest) for name, _, rest in (value.partition(sign) for value in values))


#: The largest number and time in seconds, so that no wait or division overflows.
_MOST = 1e9


class Number(click.FloatRange):
    """A number in a range, not above `_MOST` and not nan."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not number <= _MOST:
            self.fail(f"{value} is not a number up to {_MOST:.0f}", param, ctx)
        return number


class Duration(click.ParamType):  # type: ignore[type-arg]  # some versions of click have no type argument
    """A time in seconds, such as 30s, 5m or 0.5."""

    name = "time"

    def __init__(self, least: float = 0.0, *, min_open: bool = False) -> None:
        self._least, self._open = least, min_open

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            seconds = duration(value)
        except ValueError as error:
            self.fail(f"{value}: {error}", param, ctx)
        if not self._least <= seconds <= _MOST or (self._open and seconds == self._least):
            above = "more than " if self._open else ""
            self.fail(f"{value}: it must be {above}{shown_duration(self._least)}, up to {_MOST:.0f}s", param, ctx)
        return seconds


def time_option(*names: str, help: str, default: float | None = None, least: float | None = None) -> Callable[[F], F]:
    """Return an option that takes a time: more than 0 seconds, or `least` and more."""
    kind = Duration(0, min_open=True) if least is None else Duration(least)
    return click.option(*names, type=kind, default=default, show_default=default is not None, metavar="TIME", help=help)


def number_option(*names: str, help: str, kind: click.IntRange, default: int | None = None) -> Callable[[F], F]:
    """Return an option that takes a number."""
    return click.option(*names, type=kind, default=default, show_default=default is not None, metavar="N", help=help)


class Interval(Duration):
    """A time, as Spark reads it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return f"{round(super().convert(value, param, ctx) * 1000)} milliseconds"


class Complaints:
    """Reports problems, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, text: str) -> None:
        self.count += 1
        complain(text)


@parsed
def _limits(values: tuple[str, ...]) -> Limits:
    limits = Limits()
    for value in values:
        name, _, number = value.partition("=")
        try:
            limits = limits._replace(**{name: size_of(number)})
        except ValueError:
            names = ", ".join(Limits._fields)
            raise ValueError(f"{value}: write NAME=SIZE, with NAME one of {names}") from None
    return checked_limits(limits)


#: The arguments FILE… and the options for reading a stream.
stream_options = option_group(
    click.argument("files", metavar="[FILE|-]...", nargs=-1, type=click.Path(allow_dash=True)),
    click.option(
        "--version",
        type=click.Choice(["auto", *VERSIONS, "legacy"]),
        default="auto",
        show_default=True,
        help="The STOMP version. auto follows CONNECTED in the stream, and is 1.2 without it.",
    ),
    click.option(
        "--limit",
        "limits",
        metavar="NAME=SIZE",
        multiple=True,
        callback=_limits,
        help="Accept other sizes, as in max_body=1GiB: max_command_line, max_header_line, max_headers, max_body.",
    ),
)


def name_of(file: str) -> str:
    return "<stdin>" if file == "-" else os.fsdecode(file)


def complain(text: str) -> None:
    """Write a line to standard error, with control characters escaped."""
    flush_output()
    click.echo(f"stompcodec: {printable(text, keep=chr(10))}", err=True)


def complaint(file: str, broken: Broken, begin: bytes, resync: bool = True) -> str:
    """Return the error message for a broken frame: file, offset, kind and remedy.

    The file's first bytes may show another format. `resync`: the verb continued, or has no option to do so.

    >>> from stompcodec import FrameError
    >>> print(complaint("a.stomp", Broken(FrameError("bad-escape", 7), 0, None, None), b"", resync=False))
    a.stomp: octet 7: bad-escape: undefined escape in a header for this STOMP version \
(fix the sender, or read with --lenient to keep the backslash; --resync continues after it)
    """
    error = broken.error
    text = ERROR_KINDS[error.kind]
    wrapped = hint_of(broken, begin)
    remedy = wrapped or remedy_of(error)
    passed = f": {error.limit} is exceeded" if error.limit else ""
    near = f", near {error.near!r}" if error.near else ""
    if broken.resumed is not None:
        further = f"; continued at octet {broken.resumed}"
    elif resync:
        further = "; no further frame was found"
    else:
        further = "" if wrapped or error.kind == "truncated" else "; --resync continues after it"
    return f"{file}: octet {error.offset}: {error.kind}: {text.what}{passed}{near} ({remedy}{further})"


def hint_of(broken: Broken, begin: bytes) -> str:
    """Return the remedy if a file that begins like this is not a raw stream, else "".

    >>> from stompcodec import FrameError
    >>> hint_of(Broken(FrameError("unknown-command", 0), 0, None, None), b"PAR1")
    'this is Parquet: stompcodec convert reads it'
    """
    if broken.head.startswith(_INDEX):
        return _SINGLE
    return next((hint for magic, hint in _WRAPPED.items() if begin.startswith(magic)), "")


def remedy_of(error: FrameError) -> str:
    """Return the remedy for an error, in terms of the command line."""
    if error.limit:
        return f"raise it with --limit {error.limit}=SIZE if frames of this size are expected"
    return (
        ERROR_KINDS[error.kind]
        .remedy.replace("lenient=True", "--lenient")
        .replace("name the command in commands=, ", "")
    )


@contextmanager
def opened(file: str, *, bar: bool = False) -> Iterator[Callable[[int], bytes]]:
    """Yield a function that reads from a file, or from standard input for "-". Gzip is decompressed.

    With `bar` a large file shows its progress on a terminal. Opening and the function may raise `Unreadable`.
    """
    try:
        stream: BinaryIO = sys.stdin.buffer if file == "-" else open(file, "rb")  # noqa: SIM115
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error
    try:
        with _progress(stream, name_of(file) if bar else "") as moved:
            source: Any = gzip.GzipFile(fileobj=stream) if _is_packed(stream) else stream
            # read1 returns what is available, so frames from a pipe are shown at once
            take = getattr(source, "read1", source.read)

            def read(size: int) -> bytes:
                try:
                    data: bytes = take(size)
                except (OSError, EOFError, zlib.error) as error:
                    raise Unreadable(str(error)) from error
                moved(stream)
                return data

            yield read
    finally:
        if file != "-":
            stream.close()


def _is_packed(stream: BinaryIO) -> bool:
    peek = getattr(stream, "peek", None)
    try:
        return peek is not None and peek(2)[:2] == b"\x1f\x8b"
    except OSError as error:
        raise Unreadable(error.strerror or str(error)) from error


def bar_disturbs(prints_at_the_end: bool) -> bool:
    """Return whether a progress bar would interfere with the output, here or in the next program of a pipe."""
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, io.UnsupportedOperation):
        return True
    return stat.S_ISFIFO(mode) or (sys.stdout.isatty() and not prints_at_the_end)


@contextmanager
def _progress(stream: BinaryIO, name: str) -> Iterator[Callable[[BinaryIO], None]]:
    """Show a bar on standard error, and yield the function that moves it. Nothing is shown without a name."""
    size = 0
    with suppress(OSError):
        status = os.fstat(stream.fileno())
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    if not name or size < _LARGE or not sys.stderr.isatty():
        yield lambda _stream: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=size)
        yield lambda stream: progress.update(task, completed=stream.tell())
