"""stompcodec compat: do the other STOMP libraries that are installed here run on our codec?"""

from __future__ import annotations

import json

import click

from stompcodec.cli.verbs import Verbs
from stompcodec.compat.check import PEERS, Verdict, check_all

__all__ = ["command"]

_WORDS = {"ok": "good", "missing": "not installed", "unknown": "NOT KNOWN", "broken": "BROKEN"}


@click.group("compat", cls=Verbs)
def command() -> None:
    """Run programs written for stomp.py, stompman, coilmq and aiostomp on our codec.

    \b
      stompcodec compat check
    """


@command.command("check")
@click.argument("peers", nargs=-1, metavar="[PEER]...", type=click.Choice([*PEERS, "stomp.py"]))
@click.option("--json", "as_json", is_flag=True, help="One object a library, for programs.")
def check(peers: tuple[str, ...], as_json: bool) -> None:
    """Check that the STOMP libraries installed here run on our codec.

    Without PEER, libraries that are not installed are passed over; a PEER that is named must be installed.

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
