"""Options, file access and error messages shared by the verbs that read streams."""

from __future__ import annotations

import gzip
import io
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeVar

import click

from stompcodec import FrameError, Limits
from stompcodec.cli.reader import Broken
from stompcodec.cli.screen import printable
from stompcodec.cli.streams import flush_output
from stompcodec.errors import ERROR_KINDS
from stompcodec.spec import VERSIONS, checked_commands, checked_limits
from stompcodec.values import duration, shown_duration
from stompcodec.values import size as size_of

#: Files with more bytes than this get a progress bar.
_LARGE = 4 * 2**20
_PACKETS = "this is a packet capture: stompcodec inspect and convert read it with --from pcapng"
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


class Number(click.FloatRange):
    """A number in a range, up to `most` and not nan, so that no wait or division overflows.

    >>> Number(0).convert("1.5", None, None)
    1.5
    """

    def __init__(self, least: float, *, min_open: bool = False, most: float = 1e9) -> None:
        super().__init__(least, min_open=min_open)
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not number <= self._most:
            self.fail(f"{value} is not a number up to {self._most:.0f}", param, ctx)
        return number


class Duration(click.ParamType):  # type: ignore[type-arg]  # some versions of click have no type argument
    """A time in seconds, such as 30s, 5m or 0.5.

    >>> Duration(0).convert("5m", None, None)
    300.0
    """

    name = "time"

    def __init__(self, least: float = 0.0, *, min_open: bool = False, most: float = 1e9) -> None:
        self._least, self._open, self._most = least, min_open, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            seconds = duration(value)
        except ValueError as error:
            self.fail(f"{value}: {error}", param, ctx)
        if not self._least <= seconds <= self._most or (self._open and seconds == self._least):
            above = "more than " if self._open else ""
            self.fail(f"{value}: it must be {above}{shown_duration(self._least)}, up to {self._most:.0f}s", param, ctx)
        return seconds


class Interval(Duration):
    """A time, as Spark reads it.

    >>> Interval().convert("5m", None, None)
    '300000 milliseconds'
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return f"{round(super().convert(value, param, ctx) * 1000)} milliseconds"


class Complaints:
    """Reports problems, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, text: str) -> None:
        self.count += 1
        complain(text)


def _limits(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> Limits:
    limits = Limits()
    for value in values:
        name, _, number = value.partition("=")
        try:
            limits = limits._replace(**{name: size_of(number)})
        except ValueError:
            names = ", ".join(Limits._fields)
            raise click.BadParameter(f"{value}: write NAME=SIZE, with NAME one of {names}") from None
    try:
        return checked_limits(limits)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _commands(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Check the names given by --command: a callback of click."""
    try:
        checked_commands(values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return values


#: The option --command, common to all verbs that read or write frames.
command_option = click.option(
    "--command", "commands", metavar="NAME", multiple=True, callback=_commands, help="Accept this command too."
)


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
    command_option,
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
    """Return the name of a file in messages."""
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
    return ERROR_KINDS[error.kind].remedy.replace("lenient=True", "--lenient").replace("commands=", "--command")


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
        with _progress(stream, name_of(file)) if bar else _silence() as moved:
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
def _silence() -> Iterator[Callable[[BinaryIO], None]]:
    yield lambda _stream: None


@contextmanager
def _progress(stream: BinaryIO, name: str) -> Iterator[Callable[[BinaryIO], None]]:
    """Show a bar on standard error, and yield the function that moves it."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, io.UnsupportedOperation):
        status = None
    if status is None or not stat.S_ISREG(status.st_mode) or status.st_size < _LARGE or not sys.stderr.isatty():
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
        task = progress.add_task(name, total=status.st_size)
        yield lambda stream: progress.update(task, completed=stream.tell())
