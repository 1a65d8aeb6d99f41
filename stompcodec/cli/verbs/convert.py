"""stompcodec convert: convert frames from one format to another: a capture, a raw stream, JSON lines or Parquet."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

import click

from stompcodec import parse_columns
from stompcodec.capture import CaptureWriter, octets_of
from stompcodec.cli.files import FORMATS, Recorded, Source, format_of, pyarrow_modules
from stompcodec.cli.inputs import HANDSHAKE, Complaints, stream_options, version_after
from stompcodec.cli.show import json_of
from stompcodec.errors import FrameError, MissingExtraError, StompError
from stompcodec.shown import plural
from stompcodec.spec import Limits

_WRITTEN = ("raw", "json", "capture", "parquet")
#: Forms of bodies, and the format that has them.
_BODIES = {"text": "parquet", "json": "json"}
#: Bytes that are joined before writing; bytes and rows of a row group of Parquet.
_JOINED = 2**20
_GROUP, _ROWS = 128 * 2**20, 1_000_000
#: What was read has passed the limits of its reader, which may be any.
_ANY = Limits(max_command_line=2**16, max_header_line=2**20, max_headers=4000, max_body=2**40)


class Sink(Protocol):
    """An output for frames."""

    def write(self, each: Recorded) -> None:
        """Write a frame; raise FrameError if this one cannot be written in this format."""

    def close(self) -> None:
        """Finish writing."""


class _StreamSink:
    """Writes to a stream of bytes."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def close(self) -> None:
        if self._stream is sys.stdout.buffer:
            self._stream.flush()
        else:
            self._stream.close()


class _RawSink(_StreamSink):
    """Writes raw frames in the version that CONNECTED names, as a reader will follow it."""

    _version: str | None = None

    def write(self, each: Recorded) -> None:
        same = self._version in (None, "1.2") and each.octets is not None
        self._stream.write(each.octets if same else octets_of(each.frame, self._version))  # type: ignore[arg-type]
        if each.frame.command in HANDSHAKE:
            self._version = version_after(each.frame)


class _JsonSink(_StreamSink):
    """Writes the lines of `decode --json`, with the time; with `parsed` bodies of JSON are values."""

    def __init__(self, stream: BinaryIO, parsed: bool) -> None:
        super().__init__(stream)
        self._parsed = parsed
        self._left = 0

    def write(self, each: Recorded) -> None:
        more: dict[str, Any] = {"received_at": each.time} if each.time else {}
        if self._parsed and each.frame.body:
            try:
                more["body"] = json.loads(each.frame.body.decode(), parse_constant=_finite, parse_float=_finite)
            except (ValueError, RecursionError):
                self._left += 1
        self._stream.write(json_of({"offset": each.offset}, each.frame, more))

    def close(self) -> None:
        super().close()
        if self._left:
            click.echo(f"bodies that are not JSON stay as they are: {self._left:,}", err=True)


def _finite(text: str) -> float:
    """Return a number of JSON; raise ValueError for NaN and infinity, which are not JSON."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


class _CaptureSink:
    """Writes a capture in a single file, with one index row for frames of the same time."""

    def __init__(self, file: str) -> None:
        self._writer = CaptureWriter(file.rstrip("/"), single=True)
        self._held: list[bytes] = []
        self._octets = self._time = 0

    def write(self, each: Recorded) -> None:
        data = each.octets or octets_of(each.frame)
        if each.time != self._time or self._octets >= _JOINED:
            self._flush()
        self._time = each.time
        self._held.append(data)
        self._octets += len(data)

    def _flush(self) -> None:
        if self._held:
            self._writer.append(b"".join(self._held), self._time)
        self._held.clear()
        self._octets = 0

    def close(self) -> None:
        try:
            self._flush()
        finally:
            self._writer.close()


class _ParquetSink:
    """A writer of frames as rows, by `parse_columns`, in row groups of `_GROUP` bytes of frames or `_ROWS` rows."""

    def __init__(self, stream: BinaryIO, as_text: bool) -> None:
        self._arrow, parquet = pyarrow_modules()
        self._stream, self._as_text = stream, as_text
        arrow, text = self._arrow, self._arrow.string()
        self._schema = arrow.schema(
            (
                arrow.field("command", text, nullable=False),
                arrow.field("destination", text),
                arrow.field("message_id", text),
                arrow.field("received_at", arrow.timestamp("us", tz="UTC")),
                arrow.field("headers", arrow.map_(text, text), nullable=False),
                arrow.field("body", text if as_text else arrow.binary(), nullable=False),
                arrow.field("pos", arrow.int64(), nullable=False),
            )
        )
        self._writer = parquet.ParquetWriter(stream, self._schema, compression="zstd")
        self._held: list[bytes] = []
        self._times: list[int | None] = []
        self._places: list[int] = []
        self._commands: set[str] = set()
        self._batches: list[Any] = []
        self._octets = self._rows = self._grouped = 0

    def write(self, each: Recorded) -> None:
        octets = each.octets or octets_of(each.frame)
        if self._as_text:
            each.frame.body.decode()
        self._commands.add(each.frame.command)
        self._held.append(octets)
        self._times.append(each.time or None)
        self._places.append(each.offset)
        self._octets += len(octets)
        if self._octets >= _JOINED:
            self._convert()

    def _convert(self) -> None:
        names = ["destination", "message-id"]
        wanted: Any = {"columns": ("command", "headers", "body"), "names": names, "limits": _ANY, "lenient": True}
        columns: Any = parse_columns(b"".join(self._held), "1.2", commands=self._commands, **wanted)
        if columns.rows != len(self._held) or columns.error:
            raise StompError(f"a frame cannot be a row of Parquet ({columns.error}): convert to another format")
        made = self._arrow.record_batch(columns)
        more = {"received_at": self._times, "pos": self._places, "message_id": made.column("message-id")}
        chosen = [more[field.name] if field.name in more else made.column(field.name) for field in self._schema]
        arrays = [
            self._arrow.array(each, field.type) if isinstance(each, list) else each.cast(field.type)
            for each, field in zip(chosen, self._schema)
        ]
        self._batches.append(self._arrow.record_batch(arrays, schema=self._schema))
        self._rows += len(self._held)
        self._grouped += self._octets
        self._held, self._times, self._places, self._octets = [], [], [], 0
        if self._grouped >= _GROUP or self._rows >= _ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._batches:
            self._writer.write_table(self._arrow.Table.from_batches(self._batches), row_group_size=2 * _ROWS)
        self._batches, self._rows, self._grouped = [], 0, 0

    def close(self) -> None:
        if self._held:
            self._convert()
        self._flush()
        self._writer.close()
        self._stream.close()


def _stream(file: str) -> BinaryIO:
    if file == "-":
        return sys.stdout.buffer
    try:
        return open(file, "xb")
    except OSError as error:
        raise click.ClickException(f"{file}: cannot be written: {error.strerror}") from None


def check_target(file: str, form: str, body: str | None) -> None:
    """Raise the error that `sink_of` would raise, before anything is read."""
    if form not in _WRITTEN:
        what = f"{form} can be read, but not written" if form else "its name tells no format that can be written"
        other = " (or read Parquet with DuckDB, and write CSV there)" if file.lower().endswith(".csv") else ""
        raise click.UsageError(f"{file}: {what}; see --to{other}")
    if body and form != _BODIES[body]:
        raise click.UsageError(f"--body {body} is for {_BODIES[body]}, and {file} is {form}")
    if form == "capture" and file == "-":
        raise click.UsageError("a capture is a file or folder: it cannot go to standard output")
    if file != "-" and os.path.exists(file):
        raise click.ClickException(f"{file}: it exists already: remove it, or name another one")


def sink_of(file: str, form: str, body: str | None) -> Sink:
    """Return the output for a file, "-" for standard output. Only its owner can read a capture."""
    if form == "raw":
        return _RawSink(_stream(file))
    if form == "json":
        return _JsonSink(_stream(file), parsed=body == "json")
    if form == "capture":
        return _CaptureSink(file)
    pyarrow_modules()  # before the file is created
    return _ParquetSink(_stream(file), as_text=body == "text")


#: Number of unwritable frames that are reported one by one; further ones are only counted.
_TOLD = 10


@click.command("convert")
@stream_options
@click.option(
    "--from", "source_form", type=click.Choice(FORMATS), help="Format of IN. Default: by its name and content."
)
@click.option("--to", "target_form", type=click.Choice(FORMATS), help="Format of OUT. Default: by its name.")
@click.option(
    "--body", type=click.Choice([*_BODIES]),
    help="Bodies as text in Parquet, where others than UTF-8 are errors, or as JSON values in JSON lines, for jq.",
)  # fmt: skip
@click.option("--lenient", is_flag=True, help="Tolerate common mistakes of peers.")
@click.option("--resync", is_flag=True, help="Continue after a broken frame.")
def command(
    files: tuple[str, ...], source_form: str | None, target_form: str | None, body: str | None, **options: Any
) -> None:
    """Convert the frames of the file IN into the file OUT (two FILEs; - for standard input or output).

    \b
      a.stompcap           a capture, a folder or a single file     read, written
      a.stomp              a raw stream of frames; others, .gz read read, written
      a.jsonl              lines as of decode --json, with the time read, written
      a.pcapng, a.pcap     packets with STOMP over TCP              read
      a.parquet            needs the extra parquet                  read, written

    Only you can read a new capture. Other files follow the umask.

    OUT is created once IN could be read. Every good frame is written, even if others are broken.

    \b
      stompcodec convert frames.stomp frames.jsonl
      stompcodec convert traffic.pcapng feed.stompcap
    """
    if len(files) != 2:
        raise click.UsageError("name two files: IN and OUT")
    source_file, target = files
    complaints = Complaints()
    source = Source(source_file, source_form, complaints, options)
    form = target_form or format_of(target, reading=False)
    count = 0
    check_target(target, form, body)
    out = _Lazy(lambda: sink_of(target, form, body))
    try:
        try:
            count = _copy(source, out, target, complaints)
            if not complaints.count:
                out.open()  # the input is valid but empty
        finally:
            out.close()
    except MissingExtraError:
        raise
    except StompError as error:
        complaints(str(error))
    if target != "-" and out.opened:
        click.echo(f"{plural(count, 'frame')} written to {target}", err=True)
    sys.exit(1 if complaints.count else 0)


class _Lazy:
    """A sink that is created for the first frame, so that unreadable input neither creates nor overwrites a file."""

    def __init__(self, make: Callable[[], Sink]) -> None:
        self._make = make
        self._sink: Sink | None = None

    @property
    def opened(self) -> bool:
        return self._sink is not None

    def open(self) -> Sink:
        if self._sink is None:
            self._sink = self._make()
        return self._sink

    def write(self, each: Recorded) -> None:
        self.open().write(each)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.close()


def _copy(source: Source, sink: _Lazy, target: str, complaints: Complaints) -> int:
    """Write each frame, and return how many were written. Report frames that cannot be written."""
    count = left = 0
    for each in source:
        try:
            sink.write(each)
            count += 1
        except (FrameError, UnicodeDecodeError) as error:
            left += 1
            if left <= _TOLD:
                hint = ": leave out --body text" if isinstance(error, UnicodeDecodeError) else ""
                complaints(f"{source.name}: {each.frame.command} at {each.offset} cannot be written: {error}{hint}")
    if left > _TOLD:
        complaints(f"{target}: {left} frames could not be written in total")
    return count
