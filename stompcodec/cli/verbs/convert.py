"""stompcodec convert: convert frames from one format to another."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from stompcodec.cli.files.sinks import Sink, check_target, sink_of
from stompcodec.cli.files.sources import FORMATS, Recorded, Source, format_of
from stompcodec.cli.inputs import Complaints, stream_options
from stompcodec.errors import FrameError, MissingExtraError, StompError
from stompcodec.shown import plural

#: Number of unwritable frames that are reported one by one; further ones are only counted.
_TOLD = 10


@click.command("convert")
@stream_options
@click.option(
    "--from", "source_form", type=click.Choice(FORMATS), help="Format of IN. Default: by its name and content."
)
@click.option("--to", "target_form", type=click.Choice(FORMATS), help="Format of OUT. Default: by its name.")
@click.option("--lenient", is_flag=True, help="Tolerate common mistakes of peers.")
@click.option("--resync", is_flag=True, help="Continue after a broken frame.")
def command(
    files: tuple[str, ...],
    source_form: str | None,
    target_form: str | None,
    **options: Any,
) -> None:
    """Convert the frames of the file IN into the file OUT (two FILEs; - for standard input or output).

    \b
      a.stompcap           a capture, a folder or a single file     read, written
      a.stomp, others      a raw stream of frames, also .gz         read, written
      a.jsonl              lines as of decode --json, with the time read, written
      a.pcapng, a.pcap     packets with STOMP over TCP              read
      a.parquet            needs the extra spark                    read, written

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
    check_target(target, form)
    out = _Lazy(lambda: sink_of(target, form))
    try:
        try:
            count = _copy(source, out, target, complaints)
            if not complaints.count:
                out.open()  # the input is valid but empty
        finally:
            out.close()
    except (MissingExtraError, StompError) as error:
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
        except FrameError as error:
            left += 1
            if left <= _TOLD:
                complaints(f"{source.name}: {each.frame.command} at {each.offset} cannot be written: {error}")
    if left > _TOLD:
        complaints(f"{target}: {left} frames could not be written in total")
    return count
