"""stompcodec decode: show the frames of a stream."""

from __future__ import annotations

import sys
from typing import Any

import click

from stompcodec.cli.files import Stream, streams
from stompcodec.cli.inputs import Broken, Unreadable, bar_disturbs, complain, complaint, name_of, stream_options
from stompcodec.cli.screen import screen
from stompcodec.cli.show import HexView, JsonView, PrettyView, SummaryView, TableView, View

#: Larger bodies, in bytes, are skipped unless they are shown in full.
_STREAMED = 2**20


def _view(name: str | None) -> View:
    if name == "json":
        return JsonView()
    if name == "hex":
        return HexView()
    return {"pretty": PrettyView, "summary": SummaryView}.get(name or "", TableView)(screen())


def show_file(file: str, view: View, options: dict[str, Any], several: bool) -> list[str]:
    """Show the frames of a file, one of `several`; return the problems, "" for those that were printed."""
    problems: list[str] = []

    def problem(text: str) -> None:
        complain(text)
        problems.append("")

    for stream in streams(file, options, problem, bar=not bar_disturbs(prints_at_the_end=view.quick)):
        view.title(stream.name if several or stream.name != name_of(file) else "")
        problems += _show_stream(stream, view, options["resync"])
        if not view.quick:
            problems[:] = _said(problems)
    return problems


def _show_stream(stream: Stream, view: View, resync: bool) -> list[str]:
    problems, reader = [], stream.reader
    try:
        for found in reader.events() if view.quick and not resync else reader.places():
            if not isinstance(found, Broken):
                view.show(found, reader)
                sys.stdout.flush()
                continue
            problems.append(complaint(stream.name, found, reader.begin, resync))
            if found.resumed is not None:
                complain(problems[-1])
                problems[:] = [""]  # there was a problem, already printed
    except Unreadable as error:
        problems.append(f"{stream.name}: octet {reader.fed}: cannot be read: {error}")
    view.end(reader)
    return problems


@click.command("decode")
@stream_options
@click.option("--json", "view", flag_value="json", help="Print a JSON object per line. Nothing is masked.")
@click.option(
    "--pretty", "view", flag_value="pretty", help="Print frame by frame, with bodies decompressed and indented."
)
@click.option("--hex", "view", flag_value="hex", help="Print every byte. Nothing is masked.")
@click.option(
    "--summary", "view", flag_value="summary", help="Print figures: frames by command and destination, sizes, rate."
)
@click.option("--lenient", is_flag=True, help="Tolerate common mistakes of peers.")
@click.option("--resync", is_flag=True, help="Continue after a broken frame.")
def command(files: tuple[str, ...], view: str | None, **options: Any) -> None:
    """Show the frames of files, or of standard input.

    The default is a table. Passcodes are masked, except with --json and --hex. A file is a raw stream, perhaps
    compressed with gzip, or a capture. A folder of a capture is shown by segment, with offsets in the segment.

    \b
      stompcodec decode frames.stomp
      stompcodec decode feed.stompcap
      stompcodec decode frames.stomp.gz --summary
      nc broker 61613 < session | stompcodec decode --pretty
    """
    shown = _view(view)
    options["stream_over"] = _STREAMED if view in (None, "summary") else None
    problems: list[str] = []
    for file in files or ("-",):
        try:
            problems += show_file(file, shown, options, len(files) > 1)
        except Unreadable as error:
            problems.append(f"{name_of(file)}: cannot be read: {error}")
        if not shown.quick:
            problems = _said(problems)
    shown.finish()
    sys.exit(1 if _said(problems) else 0)


def _said(problems: list[str]) -> list[str]:
    for text in filter(None, problems):
        complain(text)
    return [""] if problems else []
