"""Runs checks: every client against one broker, several clients at a time, for they mostly wait."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

from interop.checks import CHECKS
from interop.driver import Failed, NotThere, Program, Target
from interop.rows import Row

__all__ = ["Outcome", "Outcomes", "run_row", "run_rows"]


class Outcome(NamedTuple):
    """How a check went."""

    word: Literal["ok", "FAIL", "n/a"]
    why: str = ""


Outcomes = dict[str, dict[str, Outcome]]


def _run(program: Program, check: str, row: Row, target: Target) -> Outcome:
    reasons = dict(row.lacks) | {name: why for who, name, why in target.lacks if who in ("*", row.version, row.name)}
    if check in reasons:
        return Outcome("n/a", reasons[check])
    try:
        CHECKS[check](program, target)
    except NotThere as error:
        outcome = Outcome("n/a", str(error))
    except Failed as error:
        outcome = Outcome("FAIL", str(error))
    else:
        return Outcome("ok")
    program.kill()  # the next check starts afresh
    return outcome


def run_row(row: Row, target: Target, checks: Iterable[str]) -> dict[str, Outcome]:
    """Run checks by one client."""
    lacking = "" if (target.url if row.websocket else target.port) else "WebSocket" if row.websocket else "TCP"
    missing = row.missing() or (f"{target.name} has no {lacking} here" if lacking else "")
    if missing:
        return {check: Outcome("n/a", missing) for check in checks}
    program = row.start()
    try:
        return {check: _run(program, check, row, target) for check in checks}
    finally:
        program.kill()


def run_rows(rows: Iterable[Row], target: Target, checks: Iterable[str] = tuple(CHECKS)) -> Outcomes:
    """Row name -> check -> outcome, in the order of the rows."""
    names = tuple(checks)
    with ThreadPoolExecutor(4) as pool:
        futures = {row.name: pool.submit(run_row, row, target, names) for row in rows}
        try:
            return {name: future.result() for name, future in futures.items()}
        except BaseException:  # Ctrl-C too
            pool.shutdown(wait=False, cancel_futures=True)
            raise
