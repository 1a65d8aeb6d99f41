"""The figures of `decode --summary`: frames by command and destination, body sizes, rates. Memory stays bounded."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import stompcodec
from stompcodec import END_OF_BODY, HEARTBEAT, Frame
from stompcodec.cli.reader import FrameReader, Place
from stompcodec.cli.screen import printable
from stompcodec.cli.show.view import View

#: Sizes are exact up to this many different ones; then they are rounded down to 8 bits, by less than 1 %.
_EXACT = 4096
#: Further destinations are counted together.
_MOST_GROUPS = 500
#: Rows of the table; the others are summed up in one row.
_MOST_ROWS = 40


class Sizes:
    """A distribution of sizes.

    >>> sizes = Sizes()
    >>> for size in (5, 1, 9):
    ...     sizes.add(size)
    >>> sizes.smallest, sizes.percentile(50), sizes.percentile(99), sizes.largest, sizes.total
    (1, 5, 9, 9, 15)
    """

    def __init__(self) -> None:
        self.total = self.number = self.largest = 0
        self.smallest = 2**63
        self._counts: Counter[int] = Counter()
        self._exact = True

    def add(self, size: int, number: int = 1) -> None:
        """Count a size."""
        self.total += size * number
        self.number += number
        self.smallest = min(self.smallest, size)
        self.largest = max(self.largest, size)
        self._counts[size if self._exact else _rounded(size)] += number
        if self._exact and len(self._counts) > _EXACT:
            self._exact = False
            exact, self._counts = self._counts, Counter()
            for size, number in exact.items():
                self._counts[_rounded(size)] += number

    def merge(self, other: Sizes) -> None:
        """Add all sizes of another distribution."""
        total, smallest, largest = self.total + other.total, other.smallest, other.largest
        for size, number in other._counts.items():
            self.add(size, number)
        self.total = total
        self.smallest, self.largest = min(self.smallest, smallest), max(self.largest, largest)

    def percentile(self, percent: int) -> int:
        """Return the smallest size that is at least as large as this percentage of all sizes."""
        sizes = sorted(self._counts)
        for size, upto in zip(sizes, accumulate(self._counts[size] for size in sizes)):
            if upto * 100 >= self.number * percent:
                return size
        return 0


def _rounded(size: int) -> int:
    shift = max(size.bit_length() - 8, 0)
    return size >> shift << shift


class SummaryView(View):
    """Sums up one or more streams."""

    quick = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._octets = self._heartbeats = 0
        self._seconds = 0.0
        self._groups: dict[tuple[str, str], Sizes] = {}
        self._streamed: tuple[Frame, int] | None = None

    def show(self, found: list[Any], reader: FrameReader) -> None:
        """Count places or parser events."""
        for event in found:
            if isinstance(event, Frame):
                body: bytes | None = event.body
                if body is None:
                    self._streamed = event, 0
                else:
                    self._count(event, len(body))
            elif isinstance(event, Place):
                self._count(event.frame, event.size)
            elif event is HEARTBEAT:
                self._heartbeats += 1
            elif self._streamed is not None:
                frame, size = self._streamed
                if event is END_OF_BODY:
                    self._count(frame, size)
                else:
                    self._streamed = frame, size + len(event)

    def end(self, reader: FrameReader) -> None:
        self._octets += reader.fed
        self._heartbeats += reader.heartbeats
        self._seconds += reader.seconds

    def finish(self) -> None:
        """Print the figures."""
        everything = Sizes()
        for sizes in self._groups.values():
            everything.merge(sizes)
        console = self._console
        console.print(self._table(everything, console.width))
        console.print(f"bytes {self._octets:,}, frames {everything.number:,}, heart-beats {self._heartbeats:,}")
        seconds = max(self._seconds, 1e-9)
        rate = f"{self._octets / seconds / 1e6:,.1f} MB/s, {everything.number / seconds:,.0f} frames/s"
        line = Text(f"decoded in {self._seconds:.4f} s: ").append(rate, "bold green")
        console.print(line.append(f" (the parser alone, backend {stompcodec.BACKEND})"), soft_wrap=True)

    def _count(self, frame: Frame, size: int) -> None:
        key = frame.command, frame.get("destination", "-")
        sizes = self._groups.get(key)
        if sizes is None:
            if len(self._groups) >= _MOST_GROUPS:
                key = "…", "(others)"
            sizes = self._groups.setdefault(key, Sizes())
        sizes.add(size)

    def _table(self, everything: Sizes, width: int) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_footer=False, pad_edge=False, width=min(width, 120))
        table.add_column("command", no_wrap=True, overflow="ellipsis", max_width=20)
        table.add_column("destination", no_wrap=True, overflow="ellipsis", ratio=1)
        for name in ("frames", "bytes in bodies", "min", "p50", "p99", "max"):
            table.add_column(name, justify="right", no_wrap=True)
        rows = sorted(self._groups.items(), key=lambda row: (-row[1].number, row[0]))
        for (command, destination), sizes in rows[:_MOST_ROWS]:
            table.add_row(printable(command[:40]), Text(printable(destination[:width])), *_figures(sizes))
        if rows[_MOST_ROWS:]:
            rest = Sizes()
            for _key, sizes in rows[_MOST_ROWS:]:
                rest.merge(sizes)
            table.add_row("…", f"({len(rows) - _MOST_ROWS} more)", *_figures(rest))
        table.add_section()
        table.add_row("all", "", *_figures(everything), style="bold")
        return table


def _figures(sizes: Sizes) -> list[str]:
    if not sizes.number:
        return ["0"] * 6
    spread = sizes.smallest, sizes.percentile(50), sizes.percentile(99), sizes.largest
    return [f"{figure:,}" for figure in (sizes.number, sizes.total, *spread)]
