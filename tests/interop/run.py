"""Runs checks: every client against one broker, several clients at a time, for they mostly wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

from interop.checks import CHECKS
from interop.driver import Failed, NotThere, Program, Target
from interop.rows import Row

__all__ = ["Outcome", "run_row", "run_rows"]


class Outcome(NamedTuple):
    """How a check went."""

    word: Literal["ok", "FAIL", "n/a"]
    why: str = ""


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


def run_row(
    row: Row, target: Target, checks: Iterable[str], said: Callable[[str], None], stop: threading.Event
) -> dict[str, Outcome]:
    """All checks of one client.

    Args:
        row: the client.
        target: the broker.
        checks: names of CHECKS.
        said: takes a line for each of them.
        stop: do not begin another check.
    """
    lacking = "" if (target.url if row.websocket else target.port) else "WebSocket" if row.websocket else "TCP"
    missing = row.missing() or (f"{target.name} has no {lacking} here" if lacking else "")
    outcomes = {check: Outcome("n/a", missing) for check in checks}
    if missing:
        said(f"n/a {row.name}: {missing}")
        return outcomes
    program = row.start()
    try:
        for check in outcomes:
            if stop.is_set():
                break
            outcome = outcomes[check] = _run(program, check, row, target)
            said(f"{outcome.word} {row.name}: {check}{' ' if outcome.why else ''}{outcome.why}")
    finally:
        program.kill()
    return outcomes


def run_rows(
    rows: Iterable[Row],
    target: Target,
    checks: Iterable[str] = tuple(CHECKS),
    said: Callable[[str], None] = lambda line: None,
    jobs: int = 4,
) -> dict[str, dict[str, Outcome]]:
    """Row name -> check -> outcome, in the order of the rows."""
    names, stop = tuple(checks), threading.Event()
    with ThreadPoolExecutor(jobs) as pool:
        futures = [(row, pool.submit(run_row, row, target, names, said, stop)) for row in rows]
        try:
            return {row.name: future.result() for row, future in futures}
        except BaseException:  # Ctrl-C too: end the clients in good order, and soon
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
