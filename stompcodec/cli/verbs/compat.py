"""stompcodec compat: check whether installed STOMP libraries run on our codec, and audit programs that use them."""

from __future__ import annotations

import json
from pathlib import Path

import click

from stompcodec.cli.groups import Verbs
from stompcodec.cli.screen import printable
from stompcodec.compat.audit import Report, audit
from stompcodec.compat.check import Verdict, check_all
from stompcodec.compat.seams import PEERS

_WORDS = {"ok": "good", "missing": "not installed", "unknown": "NOT KNOWN", "broken": "BROKEN"}


@click.group("compat", cls=Verbs)
def command() -> None:
    """Run programs written for stomp.py and stompman on our codec.

    \b
      stompcodec compat check
      stompcodec compat audit src
    """


@command.command("check")
@click.argument("peers", nargs=-1, metavar="[PEER]...", type=click.Choice([*PEERS, "stomp.py"]))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per library.")
def check(peers: tuple[str, ...], as_json: bool) -> None:
    """Check that the STOMP libraries installed here run on our codec.

    Without PEER, libraries that are not installed are skipped; a PEER must be installed.

    \b
      stompcodec compat check
      stompcodec compat check stomp.py --json
    """
    verdicts = check_all(peers)
    for verdict in verdicts:
        click.echo(json.dumps(verdict._asdict()) if as_json else _line(verdict))
    bad = [verdict for verdict in verdicts if not verdict.good or (peers and verdict.version is None)]
    if bad:
        raise SystemExit(1)


def _line(verdict: Verdict) -> str:
    what = f"{verdict.peer} {verdict.version or ''}".strip()
    end = verdict.problem or f"{verdict.seams} names replaced and put back, self-test passed with quirks and without"
    return f"{what:20} {_WORDS[verdict.state]}: {end}"


@command.command("audit")
@click.argument("folder", type=click.Path(exists=True, readable=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per finding or skipped file.")
def audit_command(folder: Path, as_json: bool) -> None:
    """List pitfalls in a program written for stomp.py: file, line, problem and remedy.

    FOLDER is searched for Python files, or is one. They are parsed, not run. Links, hidden folders and virtual
    environments are skipped, and so are files that do not parse, which are listed.

    \b
    Found are:
      no-heart-beats                a connection without heart-beats
      auto-decode                   bodies decoded as UTF-8, without auto_decode=False
      unconfirmed-send              send() without a receipt or a transaction
      reconnect-in-on-disconnected  connect() in on_disconnected

    \b
      stompcodec compat audit src
      stompcodec compat audit --json . | jq -r .file | sort | uniq -c
    """
    try:
        report = audit(folder)
    except OSError as error:
        raise click.UsageError(f"{printable(str(folder))}: {error.strerror or error}") from error
    for line in _objects(report) if as_json else _text(report):
        click.echo(line)
    if report.findings:
        raise SystemExit(1)


def _objects(report: Report) -> list[str]:
    found = [{**each._asdict(), "problem": each.problem, "remedy": each.remedy} for each in report.findings]
    return [json.dumps(each) for each in (*found, *(each._asdict() for each in report.skipped))]


def _text(report: Report) -> list[str]:
    lines = []
    for each in report.findings:
        lines += [f"{printable(each.file)}:{each.line}: {each.code}: {each.problem}", f"    {each.remedy}"]
    lines += [f"{printable(each.file)}: skipped: {printable(each.reason)}" for each in report.skipped]
    counts = f"{len(report.findings)} found in {report.files} files, {len(report.skipped)} files skipped"
    return [*lines, counts]
