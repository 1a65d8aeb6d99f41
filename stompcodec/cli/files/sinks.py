"""Outputs of `convert`: captures, raw streams, JSON lines, Parquet."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO, Protocol

import click

from stompcodec.capture import CaptureWriter, octets_of
from stompcodec.cli.files.sources import Recorded
from stompcodec.cli.inputs import HANDSHAKE, Place, version_after
from stompcodec.cli.show.views import json_line

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
    """Writes a capture in a single file, with one index row for frames of the same time."""

    def __init__(self, file: str) -> None:
        self._writer = CaptureWriter(file.rstrip("/"), single=True)
        self._held: list[bytes] = []
        self._octets = 0
        self._time = 0

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


def _stream(file: str) -> BinaryIO:
    if file == "-":
        return sys.stdout.buffer
    try:
        return open(file, "xb")
    except OSError as error:
        raise click.ClickException(f"{file}: cannot be written: {error.strerror}") from None


def check_target(file: str, form: str) -> None:
    """Raise the error that `sink_of` would raise, before anything is read."""
    if form not in _WRITTEN:
        raise click.UsageError(f"{form} can be read, but not written; see --to")
    if form == "capture" and file == "-":
        raise click.UsageError("a capture is a file or folder: it cannot go to standard output")
    if file != "-" and os.path.exists(file):
        raise click.ClickException(f"{file}: it exists already: remove it, or name another one")


def sink_of(file: str, form: str) -> Sink:
    """Return the output for a file, "-" for standard output, in one of `FORMATS`.

    Only its owner can read a capture, while other files follow the umask.
    """
    if form == "raw":
        return _RawSink(_stream(file))
    if form == "json":
        return _JsonSink(_stream(file))
    if form == "capture":
        return _CaptureSink(file)
    from stompcodec.cli.files.sources import ParquetSink, pyarrow_modules

    pyarrow_modules()  # before the file is created
    return ParquetSink(_stream(file))
