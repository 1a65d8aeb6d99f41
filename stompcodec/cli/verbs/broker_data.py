"""stompcodec broker check, salvage: work on the data folder of a stopped broker."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from stompcodec.cli.screen import printable
from stompcodec.errors import StompError

if TYPE_CHECKING:
    from stompcodec.broker.storage.repair.salvage import Findings


def _refuse(verb: str, error: Exception) -> NoReturn:
    print(f"stompcodec broker {verb}: {printable(str(error))}", file=sys.stderr)
    sys.exit(2)


def _show(findings: Findings, as_json: bool, done: str) -> NoReturn:
    if as_json:
        print(json.dumps(findings.record))
    else:
        for message in findings.lost:
            where = f"{message['id'] or 'a message'} of {message['destination'] or 'an unknown destination'}"
            print(f"lost: {printable(where)}: {message['why']}")
        for problem in findings.problems:
            print(f"damaged: {printable(problem)}")
        for note in findings.notes:
            print(f"note: {printable(note)}")
        print(
            f"{done}: {findings.messages} messages ({findings.octets} bytes) in {findings.queues} queues, "
            f"{findings.subscriptions} durable subscriptions; {len(findings.lost)} messages lost, "
            f"{len(findings.problems)} other faults"
        )
    sys.exit(0 if findings.whole else 1)


@click.command("check")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def check(folder: str, as_json: bool) -> None:
    """Check a data folder, and list what is damaged.

    DIR is the data folder of a broker that is stopped, or a copy of one. Nothing in it is changed. A folder in use by
    a broker is refused. All rows, bodies, totals and the write-ahead log are compared with their checksums.

    \b
      stompcodec broker check stompcodec-data
    """
    from stompcodec.broker.storage.repair.salvage import check as run

    try:
        findings = run(folder)
    except StompError as error:
        _refuse("check", error)
    _show(findings, as_json, "intact")


@click.command("salvage")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.argument("new", metavar="NEW_DIR", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def salvage(folder: str, new: str, as_json: bool) -> None:
    """Copy what is intact in a damaged data folder to a new one, and list the rest.

    DIR is the data folder of a broker that is stopped; it is not changed. SQLite may call it malformed: then what it
    still finds is copied. NEW_DIR must not exist, and appears when the copy is complete. Then start the broker with
    --data NEW_DIR. Messages that were acknowledged just before the damage may be delivered again.

    \b
      stompcodec broker salvage stompcodec-data rescued
      stompcodec broker --data rescued
    """
    from stompcodec.broker.storage.repair.salvage import salvage as run

    try:
        findings = run(folder, new)
    except (OSError, StompError) as error:
        _refuse("salvage", error)
    _show(findings, as_json, "copied")
