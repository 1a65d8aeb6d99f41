"""The output of a proxy on standard output: rows or JSON, written by a thread of its own that may fall behind."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from stompcodec.cli.proxying.entry import Entry, Rows, json_line
from stompcodec.cli.proxying.lane import Lane
from stompcodec.cli.proxying.tally import Tally, counted
from stompcodec.cli.screen import write_json

#: Characters that wait for the output.
_MOST = 4 * 2**20


class Output:
    """Shows entries. Those that do not fit into the queue are counted and left out.

    Args:
        console: for rows; None for JSON.
        tally: where frames that are not shown are counted.
        failed: called with the error if the output cannot be written.
    """

    def __init__(self, console: Console | None, tally: Tally, failed: Callable[[Exception], object]) -> None:
        self._console = console
        self._rows = None if console is None else Rows(console)
        self._tally = tally
        self._skipped = 0
        self._lane: Lane[Text | str | bytes] = Lane("proxy-output", self._write, _MOST, failed)
        self.close = self._lane.close

    def add(self, entry: Entry) -> None:
        """Show an entry, if there is room for it."""
        if self._skipped:
            text = f"{counted(self._skipped, 'frame')} not shown, since this output is slower than the stream"
            if self._put(Entry("missed", entry.time, 0, text=text, size=self._skipped)):
                self._skipped = 0
        if not self._put(entry) and entry.frame is not None:
            self._skipped += 1
            self._tally.not_shown += 1

    def add_counts(self) -> None:
        """Show the counts, as JSON."""
        line = json.dumps(self._tally.json(), separators=(",", ":")).encode() + b"\n"
        self._lane.put(line, len(line))

    def _put(self, entry: Entry) -> bool:
        made: Text | str | bytes = json_line(entry) if self._rows is None else self._rows.row(entry)
        if isinstance(made, Text) and self._console is not None and self._console.color_system is None:
            made = made.plain
        return self._lane.put(made, len(made))

    def _write(self, lines: list[Text | str | bytes]) -> None:
        for line in lines:
            if isinstance(line, bytes):
                write_json(line)
            elif isinstance(line, str):  # much faster than the console
                sys.stdout.write(line)
            elif self._console is not None:
                self._console.print(line, soft_wrap=True, end="")
        sys.stdout.flush()
