"""Figures of `stompcodec bench`: rates, and their output."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from stompcodec.cli.show.summary import Sizes

#: Column titles and formats, by names in JSON and CSV.
_COLUMNS = {
    "measure": ("", "{}"),
    "who": ("", "{}"),
    "messages": ("messages", "{:,}"),
    "seconds": ("seconds", "{:.2f}"),
    "messages_per_s": ("messages/s", "{:,.0f}"),
    "frames_per_s": ("frames/s", "{:,.0f}"),
    "mb_per_s": ("MB/s", "{:,.2f}"),
    "ratio": ("ratio", "{:,.2f}×"),
    "min_ms": ("min ms", "{:.3f}"),
    "median_ms": ("p50", "{:.3f}"),
    "p90_ms": ("p90", "{:.3f}"),
    "p99_ms": ("p99", "{:.3f}"),
    "max_ms": ("max", "{:.3f}"),
}
#: Columns that may take several lines.
_TEXTS = ("measure", "who")
#: Redraws of the progress line per second, which take time from the measurement.
_REDRAWS = 4


def rates(noun: str, count: int, octets: int, seconds: float) -> dict[str, Any]:
    """Return counts of a noun ("messages", "frames") with their rates.

    >>> rates("frames", 10, 4_000_000, 2.0)
    {'frames': 10, 'octets': 4000000, 'seconds': 2.0, 'frames_per_s': 5.0, 'mb_per_s': 2.0}
    """
    seconds = max(seconds, 1e-9)
    per_second = {f"{noun}_per_s": count / seconds, "mb_per_s": octets / seconds / 1e6}
    return {noun: count, "octets": octets, "seconds": seconds, **per_second}


def spread(times: Sizes) -> dict[str, float]:
    """Return minimum, percentiles and maximum, in ms, of times in ns.

    >>> from stompcodec.cli.show.summary import Sizes
    >>> times = Sizes()
    >>> for time in range(1_000_000, 101_000_000, 1_000_000):
    ...     times.add(time)
    >>> spread(times)
    {'min_ms': 1.0, 'median_ms': 50.0, 'p90_ms': 90.0, 'p99_ms': 99.0, 'max_ms': 100.0}
    """
    percentiles = {"median_ms": 50, "p90_ms": 90, "p99_ms": 99}
    # With many different times, percentiles are rounded down by less than 1 %, and could be below the minimum.
    found = {name: max(times.percentile(percent), times.smallest) / 1e6 for name, percent in percentiles.items()}
    return {"min_ms": times.smallest / 1e6, **found, "max_ms": times.largest / 1e6}


def show(form: str | None, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Print figures: as "json" with their context (`facts`), as "csv", or as a table of the known columns."""
    if form == "json":
        click.echo(json.dumps(dict(facts)))
    elif form == "csv":
        writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        _show_table(rows, title)
    sys.stdout.flush()


def _show_table(rows: Sequence[Mapping[str, Any]], title: str) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from stompcodec.cli.screen import printable, screen

    console = screen()
    console.print(Text(printable(title), "dim"), soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    names = [name for name in _COLUMNS if name in rows[0]]
    for name in names:
        if name in _TEXTS:
            table.add_column(_COLUMNS[name][0])
        else:
            table.add_column(_COLUMNS[name][0], justify="right", no_wrap=True)
    for row in rows:
        cells = (_COLUMNS[name][1].format(row[name]) for name in names)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console.print(table)


@contextmanager
def live() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a text on standard error, if that is a terminal and NO_COLOR is not set.

    >>> with live() as tell:
    ...     tell("nobody sees this in a pipe")
    """
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        yield lambda _text: None
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False)
    with console.status(Text("starting"), refresh_per_second=_REDRAWS) as status:
        yield lambda text: status.update(Text(text))
