"""Output of the demonstration: a line for each stage, a bar while the feed flows, and the table at the end."""

from __future__ import annotations

import os
import time
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

#: Columns when the output is not a terminal.
_WIDTH = 120


class Screen:
    """Output to standard output, or with `quiet` to standard error, with colours only on a terminal and without
    NO_COLOR.

    Use it in a `with` block to show a bar.
    """

    def __init__(self, quiet: bool = False) -> None:
        system = None if os.environ.get("NO_COLOR") else "auto"
        self._console = Console(stderr=quiet, highlight=False, markup=False, emoji=False, color_system=system)  # type: ignore[arg-type]
        if not self._console.is_terminal and "COLUMNS" not in os.environ:
            self._console.width = _WIDTH
        columns = (TextColumn("         {task.description}"), BarColumn(), MofNCompleteColumn())
        self._bars = Progress(*columns, console=self._console, transient=True, disable=not self._console.is_terminal)
        self._tasks = [self._bars.add_task(name, total=None) for name in ("sent  ", "stored")]
        self._started = time.monotonic()

    def __enter__(self) -> Screen:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar."""
        self._bars.stop()

    def stage(self, what: str, bad: bool = False) -> None:
        """Print the stage that begins."""
        at = Text(f"{time.monotonic() - self._started:6.1f} s  ", style="dim")
        self._console.print(at.append(what, style="bold red" if bad else "default"))

    def show(self, sent: int, stored: int, total: int, different: int | None = None) -> None:
        """Show how many messages are sent and stored; `different` is the number to store, as copies are stored once."""
        for task, count, whole in zip(self._tasks, (sent, stored), (total, different or total)):
            self._bars.update(task, completed=count, total=whole)

    def table(self, result: dict[str, Any]) -> None:
        """Print the proof and the path of the report."""
        table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
        table.add_column()
        table.add_column(justify="right")
        for name, figure, style in _rows(result):
            table.add_row(name, f"{figure:,}", style=style)
        self._console.print(table)
        for what in result["wrong"]:
            self._console.print(Text(f"wrong: {what}", style="bold red"))
        said = "every message is in the sink, and once" if not result["wrong"] else "not as it should be"
        style = "bold red" if result["wrong"] else "bold green"
        self._console.print(Text.assemble((said, style), f"; {result['seconds']:.1f} s in all"))
        self._console.print(f"the report: {result['report']}", soft_wrap=True)


def _rows(result: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Return name, figure and style of each row of the table."""

    def good(fine: bool) -> str:
        return "green" if fine else "bold red"

    killed = result["killed"]
    whole = result["in_sink"] == result["produced"]
    return [
        ("sent by the feed, each confirmed by the broker", result["produced"] + result["sent_twice"], ""),
        ("  of these the same message once more (same id, same body)", result["sent_twice"], ""),
        ("in the sink when driver and JVM got kill -9", killed["stored"], ""),
        ("produced: different messages", result["produced"], "bold"),
        ("in the sink: rows of the archive", result["in_sink"], "bold " + good(whole)),
        ("missing", result["missing"], "bold " + good(not result["missing"])),
        ("duplicates", result["duplicates"], "bold " + good(not result["duplicates"])),
        ("damaged: not the body that was sent", result["damaged"], good(not result["damaged"])),
        ("left in the broker, not acknowledged", result["left_in_broker"], good(not result["left_in_broker"])),
        ("delivered again by the broker after the kill, and stored once", result["redelivered"], ""),
        ("invalid bodies", result["malformed"], ""),
        ("  of these in quarantine", result["quarantined"], good(result["malformed"] == result["quarantined"])),
        ("events in the other bodies", result["events"], ""),
        ("  rows of the typed tables", result["typed_rows"], good(result["events"] == result["typed_rows"])),
        ("messages 5 to 90 minutes late by their timestamp", result["late"], ""),
    ]
