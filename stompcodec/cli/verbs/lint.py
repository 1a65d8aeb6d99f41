"""stompcodec lint: check which rules of STOMP a stream breaks."""

from __future__ import annotations

import sys
from typing import Any

import click

from stompcodec.cli import inputs
from stompcodec.cli.files import Stream, streams
from stompcodec.cli.linting import REPORTS, Conversation, Finding, Report, check_frame, finding_of, subject_of


def lint_file(file: str, report: Report, options: dict[str, Any]) -> bool:
    problems, good = inputs.Complaints(), True
    conversation = Conversation()
    options = {**options, "resync": True}
    for stream in streams(file, options, problems, bar=not inputs.bar_disturbs(prints_at_the_end=False)):
        conversation = conversation if stream.goes_on else Conversation()
        good &= _lint_stream(stream, conversation, report, options["limits"].max_body)
    return good and not problems.count


def _lint_stream(stream: Stream, conversation: Conversation, report: Report, limit: int) -> bool:
    good, frames, reader = True, 0, stream.reader

    def add(finding: Finding) -> None:
        nonlocal good
        good = good and finding.severity != "error"
        report.add(stream.name, finding)

    try:
        for found in reader.places():
            if isinstance(found, inputs.Broken):
                finding = finding_of(found)
                add(finding._replace(remedy=inputs.hint_of(found, reader.begin) or finding.remedy))
                continue
            for place in found:
                frames += 1
                head = reader.octets(place.start, place.body)
                subject = subject_of(place, head, stream.version, limit)
                for finding in (*check_frame(subject), *conversation.check(subject)):
                    add(finding)
            sys.stdout.flush()
    finally:
        report.end(stream.name, frames)
    return good


@click.command("lint")
@inputs.stream_options
@click.option(
    "--format", "form", type=click.Choice(list(REPORTS)), default="text", show_default=True, help="The output."
)
@inputs.number_option(
    "--most",
    kind=click.IntRange(0),
    help="Findings to show of each rule in a file; 0 for all. Default: 10, sarif 1000, json all.",
)
def command(files: tuple[str, ...], form: str, most: int | None, **options: Any) -> None:
    """Check files, or standard input, against the rules of STOMP.

    Each finding names the requirement, the offset, and a remedy. Reading continues after broken frames. A file is a
    raw stream, perhaps compressed with gzip, or a capture. A folder of a capture is checked by segment, with offsets in
    the segment.

    \b
      stompcodec lint frames.stomp
      stompcodec lint feed.stompcap
      stompcodec lint --format sarif *.stomp > lint.sarif
    """
    report = REPORTS[form](most)
    good = True
    for file in files or ("-",):
        try:
            good &= lint_file(file, report, options)
        except inputs.Unreadable as error:
            good = False
            inputs.complain(f"{inputs.name_of(file)}: cannot be read: {error}")
    report.finish()
    sys.stdout.flush()
    sys.exit(0 if good else 1)
