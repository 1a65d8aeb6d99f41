"""Outputs of `convert`: captures, raw streams, JSON lines, Parquet."""

from __future__ import annotations

import os
import sys
from typing import Any, BinaryIO, Protocol

import click

from stompcodec.capture import CaptureWriter, octets_of
from stompcodec.cli.files.recorded import Recorded
from stompcodec.cli.reader import HANDSHAKE, Place, version_after
from stompcodec.cli.show.view import json_line
from stompcodec.disk import PRIVATE, Access

_WRITTEN = ("raw", "json", "capture", "parquet")

#: Bytes that are joined before writing.
_JOINED = 2**20


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
    """Writes the lines of `decode --json`, with the time."""

    def write(self, each: Recorded) -> None:
        line = json_line(Place(each.frame, each.offset, 0, 0, None, b""))
        if each.time:
            line = line[:-2] + b',"received_at":%d}\n' % each.time
        self._stream.write(line)


class _CaptureSink:
    """Writes a capture, with one index row for frames of the same time."""

    def __init__(self, file: str, segment: int | None, access: Access) -> None:
        single = segment is None
        more: dict[str, Any] = {} if segment is None else {"segment_octets": segment}
        self._writer = CaptureWriter(file.rstrip("/"), single=single, access=access, **more)
        self._single = single
        self._held: list[bytes] = []
        self._octets = 0
        self._at = (0, "")

    def write(self, each: Recorded) -> None:
        data = each.octets or octets_of(each.frame)
        at = (each.time, "frames" if self._single else each.chain)
        if at != self._at or self._octets >= _JOINED:
            self._flush()
        self._at = at
        self._held.append(data)
        self._octets += len(data)

    def _flush(self) -> None:
        if self._held:
            self._writer.append(b"".join(self._held), *self._at)
        self._held.clear()
        self._octets = 0

    def close(self) -> None:
        try:
            self._flush()
        finally:
            self._writer.close()


def _stream(file: str, force: bool) -> BinaryIO:
    if file == "-":
        return sys.stdout.buffer
    try:
        return open(file, "wb" if force else "xb")
    except FileExistsError:
        raise click.ClickException(f"{file}: it exists already (--force overwrites it)") from None
    except OSError as error:
        raise click.ClickException(f"{file}: cannot be written: {error.strerror}") from None


def check_target(file: str, form: str, *, force: bool) -> None:
    """Raise the error that `sink_of` would raise, before anything is read."""
    if form not in _WRITTEN:
        raise click.UsageError(f"{form} can be read, but not written; see --to")
    if form == "capture" and file == "-":
        raise click.UsageError("a capture is a file or folder: it cannot go to standard output")
    if form == "capture" and os.path.exists(file):
        raise click.ClickException(f"{file}: it exists already: name another one")
    if file != "-" and not force and os.path.exists(file):
        raise click.ClickException(f"{file}: it exists already (--force overwrites it)")


def sink_of(file: str, form: str, *, force: bool, segment: int | None, access: Access = PRIVATE) -> Sink:
    """Return the output for a file, "-" for standard output, in one of `FORMATS`.

    `force` overwrites an existing file, but never a capture. A capture is a folder with `segment` bytes each, or a
    single file; `access` are its permissions, while other files follow the umask.
    """
    if form == "raw":
        return _RawSink(_stream(file, force))
    if form == "json":
        return _JsonSink(_stream(file, force))
    if form == "capture":
        return _CaptureSink(file, segment, access)
    from stompcodec.cli.files.parquet import ParquetSink, pyarrow_modules

    pyarrow_modules()  # before the file is created
    return ParquetSink(_stream(file, force))
