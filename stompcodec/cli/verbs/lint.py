"""stompcodec lint: check which rules of STOMP a stream breaks."""

from __future__ import annotations

import sys
from typing import Any

import click

from stompcodec.cli.inputs import Unreadable, bar_disturbs, complain, name_of, opened, stream_options
from stompcodec.cli.linting.checks import check_frame
from stompcodec.cli.linting.conversation import Conversation
from stompcodec.cli.linting.reports import REPORTS, Report
from stompcodec.cli.linting.rules import Finding, finding_of
from stompcodec.cli.linting.subject import subject_of
from stompcodec.cli.reader import Broken, FrameReader


def lint_file(file: str, report: Report, options: dict[str, Any]) -> bool:
    """Report the findings for a file, or for standard input for "-"; return False if there was an error."""
    good, frames = True, 0
    name, conversation = name_of(file), Conversation()
    forced = None if options["version"] == "auto" else options["version"]

    def add(finding: Finding) -> None:
        nonlocal good
        good = good and finding.severity != "error"
        report.add(name, finding)

    with opened(file, bar=not bar_disturbs(prints_at_the_end=False)) as read:
        reader = FrameReader(read, resync=True, **options)
        try:
            for found in reader.places():
                if isinstance(found, Broken):
                    add(finding_of(found))
                    continue
                for place in found:
                    frames += 1
                    head = reader.octets(place.start, place.body)
                    subject = subject_of(place, head, forced, options["limits"].max_body)
                    for finding in (*check_frame(subject), *conversation.check(subject)):
                        add(finding)
                sys.stdout.flush()
        finally:
            report.end(name, frames)
    return good


@click.command("lint")
@stream_options
@click.option("--json", "form", flag_value="json", help="Short for --format json.")
@click.option(
    "--format", "form", type=click.Choice(list(REPORTS)), default="text", show_default=True, help="The output."
)
@click.option(
    "--most",
    type=click.IntRange(min=0),
    metavar="N",
    help="Findings to show of each rule in a file; 0 for all. Default: 10, sarif 1000, json all.",
)
def command(files: tuple[str, ...], form: str, most: int | None, **options: Any) -> None:
    """Check files, or standard input, against the rules of STOMP.

    Each finding names the requirement, the offset, and a remedy. Reading continues after broken frames.

    \b
      stompcodec lint frames.stomp
      stompcodec lint --format sarif *.stomp > lint.sarif
    """
    report = REPORTS[form](most)
    good = True
    for file in files or ("-",):
        try:
            good &= lint_file(file, report, options)
        except Unreadable as error:
            good = False
            complain(f"{name_of(file)}: cannot be read: {error}")
    report.finish()
    sys.stdout.flush()
    sys.exit(0 if good else 1)
