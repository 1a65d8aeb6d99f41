"""What is promised of Spark's side, and docs/benchmarks-spark.md with its plot, from the numbers of bench_spark.py."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_report import Verdict
from report import grid, number

INTRO = """\
# Benchmarks of Spark's source and sink

How fast Spark reads and writes frames with our source and sink, compared with handwritten code. `make bench-spark`
measures all of this in one run, in one session, and writes this page; do not edit it by hand.

![Frames read per second, by reader](benchmarks-spark.svg)
"""

METHOD = """\
## How it is measured

- **Frames** come from `benchmarks/spark_feed.py`: MESSAGE frames of 690 bytes as Network Rail's train describer sends
  them, with 9 headers, a JSON body and no content-length. Ours reads a capture as `stompcodec record` writes it, and
  verifies its checksums. Handwritten code reads plain files, because it cannot read captures. It gets fewer frames, so
  that each case takes some seconds; the tables compare rates.
- **Handwritten**: *mapInPandas* reads whole files (`binaryFile`), splits at NUL and calls stomp.py's `parse_frame`;
  *UDF* lets Spark split the text at NUL and calls `parse_frame` for each row, with the columns pickled or through
  Arrow; *SQL* does the same with `substring_index` and `str_to_map`, without Python. SQL is wrong for escapes, bodies
  with NULs, and repeated headers. All return command, destination, message-id, timestamp, headers and body; *narrow*
  returns destination, message-id, timestamp and body.
- **Ours**: *all columns* are the 15 columns of the source, with the map of headers; *narrow* has the columns of the
  handwritten narrow case, with the timestamp as a time; *filter* selects a destination that no frame has, by the option
  `destination`. All are written to Spark's `noop` sink. Rows, bytes of the bodies and a sum over the message-ids agree
  with the handwritten cases.
- **Arrow and tuples**: a small data source passes 5 columns, with a map of 3 entries and a body of 500 bytes, made
  beforehand, to Spark.
- **Writing**: rows of a Parquet file (destination, body) go to a server that only counts (`benchmarks/spark_sink.py`),
  in two tasks. Handwritten: `foreachPartition` and stomp.py's `send`, without receipts. Ours: a transaction per task
  and the receipt of its COMMIT.
- **Index**: `frame_ends` per MiB, against `parse_columns`; CPU time without Spark.
- **Rounds**: all cases take turns, for {rounds} rounds after two to warm up. The tables show medians; a ratio is the
  median of the ratios of the rounds. The session's own work for a job (about {job:.2g} s here) is in all figures.
- *CPU seconds* are those of the JVM, the Python workers and the driver together, on any core.
"""


@dataclass(frozen=True)
class Bar:
    """A promise: ours is at least so many times as fast."""

    section: str
    ours: str
    theirs: str
    floor: float
    goal: float


BARS = (
    Bar("read", "all columns", "mapInPandas", 14, 20),
    Bar("read", "narrow", "mapInPandas", 24, 30),
    Bar("read", "all columns", "UDF", 8, 10),
    Bar("read", "all columns", "SQL", 2.8, 3),
    Bar("rows", "arrow", "tuples", 5, 5),
    Bar("write", "writer", "foreachPartition", 4, 5),
)
#: At most so much of the time of the columns.
INDEX = 0.15
RATE, CPU = "seconds", "cpu"
OURS = ("all columns", "without headers", "narrow", "destination", "filter", "arrow", "writer")


def rates(cell: dict[str, Any], figure: str) -> list[float]:
    """Frames a second of each round; 0 where the clock did not move."""
    return [cell["frames"] / run[figure] if run[figure] else 0.0 for run in cell["runs"]]


def ratio(section: dict[str, Any], ours: str, theirs: str, figure: str = RATE) -> float | None:
    """The median of the ratios of the rounds."""
    if ours not in section or theirs not in section:
        return None
    pairs = zip(rates(section[ours], figure), rates(section[theirs], figure))
    found = [us / them for us, them in pairs if us and them]
    return statistics.median(found) if found else None


def judge(raw: dict[str, Any]) -> list[Verdict]:
    """The promises for which there are measurements."""
    return [*_bars(raw), *_index(raw)]


def _bars(raw: dict[str, Any]) -> Iterator[Verdict]:
    for bar in BARS:
        found = ratio(raw.get(bar.section, {}), bar.ours, bar.theirs)
        if found is not None:
            met = "goal" if found >= bar.goal else "floor" if found >= bar.floor else "NO"
            what = f"{bar.ours}, against {bar.theirs}"
            yield Verdict(what, f"{bar.floor:g}×", f"{bar.goal:g}×", f"{found:.3g}×", met)


def _index(raw: dict[str, Any]) -> Iterator[Verdict]:
    section = raw.get("index", {})
    for what in ("as they are", "with content-length"):
        found = ratio(section, f"columns, {what}", f"index, {what}", CPU)
        if found is not None:
            met = "goal" if found <= INDEX else "NO"
            yield Verdict(f"index of frames {what}, share of columns", f"≤ {INDEX}", f"≤ {INDEX}", f"{found:.2g}", met)


# ---- tables ----


def _table(section: dict[str, Any], against: tuple[str, ...] = ()) -> str:
    rows = []
    for name, cell in section.items():
        shown = [number(statistics.median(rates(cell, figure)) or 0) for figure in (RATE, CPU)]
        times = [_times(section, name, them) if name in OURS else "" for them in against]
        rows.append([f"**{name}**" if name in OURS else name, f"{cell['frames']:,}", *shown, *times])
    return grid(["", "frames", "per second", "per CPU second", *(f"against {them}" for them in against)], rows)


def _times(section: dict[str, Any], us: str, them: str) -> str:
    clock, cpu = ratio(section, us, them), ratio(section, us, them, CPU)
    return "" if clock is None or cpu is None else f"{clock:.3g}× ({cpu:.3g}×)"


#: Section, title, with whom ours are compared.
TABLES = (
    ("read", "Reading", ("mapInPandas", "mapInPandas, narrow", "UDF", "SQL")),
    ("rows", "From Python into the JVM", ("tuples",)),
    ("write", "Writing", ("foreachPartition",)),
    ("index", "Index", ()),
)


def text(raw: dict[str, Any]) -> str:
    """What a run prints."""
    parts = [f"{title}\n\n{_table(raw[name], against)}" for name, title, against in TABLES if name in raw]
    return "\n".join([*parts, "\n".join(map(str, judge(raw)))])


def write(raw: dict[str, Any], folder: Path) -> None:
    """Write benchmarks-spark.md and its plot into a folder."""
    folder.mkdir(exist_ok=True)
    draw(raw, folder / "benchmarks-spark.svg")
    verdicts = [(line.what, line.floor, line.goal, line.measured, line.met) for line in judge(raw)]
    parts = [INTRO, _facts(raw), "## Goals\n\n" + grid(("", "floor", "goal", "measured", "met"), verdicts)]
    note = "Frames; the ratio in brackets is that of CPU time.\n\n"
    parts += [f"## {title}\n\n{note if against else ''}{_table(raw[name], against)}" for name, title, against in TABLES]
    parts.append(METHOD.format(rounds=raw["facts"]["rounds"], job=raw["facts"]["job"]))
    (folder / "benchmarks-spark.md").write_text("\n".join(part.strip() + "\n" for part in parts))
    print(f"written: {folder.name}/benchmarks-spark.md, {folder.name}/benchmarks-spark.svg")


def _facts(raw: dict[str, Any]) -> str:
    facts = raw["facts"]
    rows = [
        ("command", "`make bench-spark`"),
        ("date", facts["date"]),
        ("processor", f"{facts['cpu']}, {facts['cores']} cores"),
        ("load", f"{facts['load']:.1f} (a run by itself is about 3)"),
        ("system", facts["system"]),
        ("Python", facts["python"]),
        ("Spark", facts["spark"]),
        ("peers", facts["peers"]),
    ]
    return grid(("", "this run"), rows, left=2)


# ---- the plot ----

#: Colours that the colour-blind can tell apart (Okabe and Ito).
COLOUR, COLOUR_BY_HAND = "#D55E00", "#0072B2"


def draw(raw: dict[str, Any], path: Path) -> None:
    """Bars; left out, with a word, where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "stompcodec", "svg.fonttype": "none", "font.size": 10})
    from matplotlib import pyplot

    panels = [
        ("Reading, frames a second (more is better)", raw["read"]),
        ("Rows into the JVM; frames written", {**raw["rows"], **raw["write"]}),
    ]
    figure, both = pyplot.subplots(1, 2, figsize=(12, 4.4), width_ratios=(1.6, 1), layout="constrained")
    for axes, (title, section) in zip(both, panels):
        names = list(section)
        values = [statistics.median(rates(section[name], RATE)) for name in names]
        colours = [COLOUR if name in OURS else COLOUR_BY_HAND for name in names]
        bars = axes.barh(range(len(names)), values, color=colours, height=0.66, zorder=3)
        axes.bar_label(bars, [number(value) for value in values], padding=4, fontsize=9)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlim(0, max(values) * 1.15)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f} k" if value else "0")
        axes.set_title(title, loc="left", fontsize=11)
        axes.grid(axis="x", color="#EAEAEA", zorder=0)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.tick_params(length=0)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
