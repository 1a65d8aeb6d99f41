"""The tables of the benchmarks: docs/benchmarks.md with its plots, and the README's figures, from those of a run.

A run of a subject is {"facts": {name: text}, "tables": {table: {row: {column: figure}}}, "wrong": [cell]}, where a
cell is (table, row, column). It replaces what stands between the subject's two markers in both files; all else there is
written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from contestants import PYTHON, C

ROOT = Path(__file__).resolve().parent.parent
STOMP_PY, STOMPMAN = "stomp.py", "stompman"
OURS, SYNC, CODEC = "ours", "ours, sync", "on our codec"


class Table(NamedTuple):
    """A table of the page."""

    title: str
    about: str  # what its figures are
    less: bool = False  # less is better
    rows: tuple[str, ...] | None = None  # those that the page shows; None shows all


NS = "Nanoseconds per frame; less is better."
TICKS = ("ticks",)
INDIVIDUAL, FAN_OUT = "queue, 1 KiB, client-individual", "topic, 100 B, 10 consumers (deliveries)"
WINDOW = "persistent, 1 KiB, receipts, window"
STORED = (
    *(f"{WINDOW} 100", f"{WINDOW} 1", "persistent, 1 KiB, receipts, 16 producers of window 1"),
    "persistent, 1 KiB, transactions of 10, window 10",
)
TABLES: dict[str, dict[str, Table]] = {
    "codec": {
        "decode": Table("Decoding in reads of 64 KiB", f"{NS} Headers are not accessed.", True),
        "decode 1460 B": Table("Decoding in reads of 1460 bytes", NS, True, TICKS),
        "decode 64 B": Table("Decoding in reads of 64 bytes", NS, True, TICKS),
        "read": Table("Decoding, with two headers and the body of each frame", NS, True, TICKS),
        "dict": Table("Decoding, with a dict of all headers of each frame", NS, True, TICKS),
        "serialize": Table("Encoding a frame object", NS, True, TICKS),
    },
    "broker": {
        "cpu": Table("Messages per CPU second of the broker", "More is better."),
        "rate": Table("Messages per second", "More is better. The generator shares the machine.", rows=STORED),
        "p50": Table("Latency, p50, ms", "", True),
        "p99": Table("Latency, p99, ms", "", True),
        "memory": Table("Resident memory", ""),
        "deep": Table("A deep queue", "Our broker is killed with it, started again, and drains it."),
    },
    "client": {
        "received": Table("Messages received per CPU second", "More is better."),
        "compat": Table("Other libraries on our codec", "Messages of 200 bytes per CPU second."),
        "recorded": Table("Messages of 200 B recorded", "By one connection or two, into memory: no disk plays a part."),
    },
    "spark": {
        "read": Table("Frames read per second", "More is better."),
        "convert": Table("Frames converted per CPU second", "More is better. With the start of the program."),
    },
}


class Goal(NamedTuple):
    """A promise: a figure, or how many times as good it is as another one, at least or at most."""

    subject: str
    table: str
    row: str
    ours: str
    theirs: str | None
    least: float | None = None
    most: float | None = None


#: The goals of what the README claims.
GOALS = (
    Goal("codec", "decode", "ticks", C, STOMP_PY, 150),
    Goal("codec", "decode", "ticks", C, STOMPMAN, 450),
    Goal("codec", "decode", "ticks", PYTHON, STOMP_PY, 4),
    Goal("codec", "decode", "ticks", PYTHON, STOMPMAN, 12),
    Goal("codec", "read", "ticks", C, STOMP_PY, 70),
    Goal("codec", "dict", "ticks", C, STOMP_PY, 40),
    Goal("codec", "serialize", "ticks", C, STOMP_PY, 15),
    Goal("codec", "serialize", "ticks", C, STOMPMAN, 55),
    Goal("broker", "cpu", "queue, 1 KiB, auto", OURS, "artemis", 8.4),
    Goal("broker", "cpu", INDIVIDUAL, OURS, "artemis", 6.8),
    Goal("broker", "cpu", FAN_OUT, OURS, "activemq6", 15),
    Goal("broker", "rate", f"{WINDOW} 100", OURS, "artemis", 2.6),
    Goal("broker", "rate", f"{WINDOW} 1", OURS, "activemq6", 0.9),
    Goal("broker", "deep", "first delivery, s", OURS, None, most=3),
    Goal("broker", "deep", "peak memory, MiB", OURS, None, most=300),
    *(
        Goal("client", "received", row, SYNC, peer, least)
        for row in ("100 B", "1 KiB", "1 KiB, each acknowledged")
        for peer, least in ((STOMP_PY, 5), (STOMPMAN, 10))
    ),
    Goal("client", "compat", "stomp.py, parsed", CODEC, "on its own", 20),
    Goal("client", "compat", "stompman, parsed", CODEC, "on its own", 50),
    Goal("client", "recorded", "as they come", "per CPU second", None, 400_000),
    Goal("client", "recorded", "as they come", "2 cores, threads", "1 core", 1.6),
    Goal("client", "recorded", "as they come", "processes", "1 core", 1.6),
    Goal("spark", "read", "all columns", "stompcodec", "mapInPandas", 20),
    Goal("spark", "read", "narrow", "stompcodec", "mapInPandas", 30),
    Goal("spark", "read", "all columns", "stompcodec", "SQL", 3),
    Goal("spark", "convert", "Parquet", "stompcodec convert", None, 200_000),
)
#: The README's figures: a sentence, the table and the row, whose figure is ours, and those of whom the best one counts.
README = {
    "codec": ("Decoding a market tick takes {ours} ns; {best}: {theirs} ns", "decode", "ticks", C, (STOMP_PY,)),
    "broker": (
        "Our broker passes on {ours} messages of 1 KiB per CPU second; the best of Artemis, ActiveMQ and RabbitMQ: "
        "{theirs}",
        *("cpu", "queue, 1 KiB, auto", OURS, ("artemis", "activemq6", "rabbitmq4")),
    ),
    "client": (
        "Our client receives {ours} messages of 100 bytes per CPU second; {best}: {theirs}",
        *("received", "100 B", SYNC, (STOMP_PY,)),
    ),
    "spark": (
        "Spark reads {ours} frames per second on two cores; by stomp.py in {best}: {theirs}",
        *("read", "all columns", "stompcodec", ("mapInPandas",)),
    ),
}


def number(value: float | None) -> str:
    """Return three digits, which is what the clock is good for."""
    if value is None:
        return ""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def ratio(cell: dict[str, float], us: str, them: str, less: bool) -> float | None:
    """Return how many times as good we are, or None where one of them was not measured."""
    if not (cell.get(us) and cell.get(them)):
        return None
    return cell[them] / cell[us] if less else cell[us] / cell[them]


def judge(subject: str, tables: dict[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    """Yield a goal (with the title of its table, if not the first one), its limit, the figure, and if it is reached."""
    first = next(iter(TABLES[subject]))
    for goal in GOALS:
        cell = tables.get(goal.table, {}).get(goal.row, {})
        if goal.subject != subject:
            continue
        table = TABLES[subject][goal.table]
        found = ratio(cell, goal.ours, goal.theirs, table.less) if goal.theirs else cell.get(goal.ours)
        if found is not None:
            unit = "×" if goal.theirs else ""
            against = f" against {goal.theirs}" if goal.theirs else ""
            limit = f"≥ {goal.least:g}{unit}" if goal.least else f"≤ {goal.most:g}{unit}"
            reached = found >= goal.least if goal.least else found <= (goal.most or 0)
            title = "" if goal.table == first else f"{table.title}: "
            yield f"{title}{goal.row}, {goal.ours}{against}", limit, number(found) + unit, reached


def grid(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown; the first column is text, the others are numbers."""
    first, *more = ("| " + " | ".join(row) + " |\n" for row in (head, *rows))
    return "".join([first, "|---|", "--:|" * (first.count(" | ")), "\n", *more])


def table_of(rows: dict[str, dict[str, float]], wrong: set[tuple[str, str]]) -> str:
    """Return one table; a star marks the cells (row, column) that are wrong."""
    who = list(dict.fromkeys(column for cell in rows.values() for column in cell))
    lines = [
        [row, *(number(cell.get(each)) + " \\*" * (each in cell and (row, each) in wrong) for each in who)]
        for row, cell in rows.items()
    ]
    return grid(["", *who], lines)


def text(subject: str, found: dict[str, Any], whole: bool = True) -> str:
    """Return the tables of a subject in Markdown: facts, goals, figures; all rows, or those that the page shows. Tables
    of one or two rows become one.
    """
    facts = "; ".join(f"{name}: {fact}" for name, fact in found["facts"].items())
    parts = [f"This run: {facts}.\n"]
    goals = [(*goal, is_ if reached else f"**{is_}**") for *goal, is_, reached in judge(subject, found["tables"])]
    head = ("goal (of the first table, or as named)", "limit", "measured (**missed**)")
    parts += [grid(head, goals)] if goals else []
    single: dict[str, dict[str, float]] = {}
    about: list[str] = []
    stars: set[tuple[str, str]] = set()
    for name, table in TABLES[subject].items():
        rows = found["tables"].get(name, {})
        rows = {row: cell for row, cell in rows.items() if whole or table.rows is None or row in table.rows}
        wrong = {(row, column) for where, row, column in found["wrong"] if where == name}
        if len(rows) > 2:
            parts.append(f"### {table.title}\n\n{table.about}\n\n{table_of(rows, wrong)}")
        elif rows:
            single |= {f"{table.title}: {row}": cell for row, cell in rows.items()}
            stars |= {(f"{table.title}: {row}", column) for row, column in wrong}
            about += [table.about] if table.about and table.about not in about else []
    if single:
        parts.append("\n\n".join([f"### Single rows of {subject}", *about, table_of(single, stars)]))
    return "\n".join(parts)


def put(file: Path, subject: str, content: str) -> None:
    """Replace what stands between the markers of a subject."""
    start, end = f"<!-- {subject}: written by make bench -->\n", f"<!-- end of {subject} -->"
    before = file.read_text(encoding="utf-8")
    pattern = re.compile(f"({re.escape(start)}).*?({re.escape(end)})", re.DOTALL)
    if not pattern.search(before):
        raise SystemExit(f"{file.name} has no markers of {subject}: {start.strip()}")
    file.write_text(pattern.sub(lambda found: f"{found[1]}\n{content}\n{found[2]}", before), encoding="utf-8")


def readme_of(subject: str, found: dict[str, Any]) -> str | None:
    """Return the README's figure of a subject, or None where a part of it was not measured."""
    sentence, table, row, us, others = README[subject]
    cell, less = found["tables"].get(table, {}).get(row, {}), TABLES[subject][table].less
    if not {us, *others} <= cell.keys():
        return None
    cell = {who: float(f"{figure:.3g}") for who, figure in cell.items()}  # as the page shows them
    best = (min if less else max)(others, key=cell.__getitem__)
    said = sentence.format(ours=f"**{number(cell[us])}**", best=best, theirs=number(cell[best]))
    return f"- {said} ({number(ratio(cell, us, best, less))}×)\n"


def write(subject: str, found: dict[str, Any]) -> None:
    """Write the page, the plot and the README's figure of a subject, if that figure was measured."""
    readme = readme_of(subject, found)
    if readme is None:
        print(f"the page is left alone: the README's figure of {subject} was not measured")
        return
    plot(subject, found["tables"], ROOT / "docs" / f"benchmarks-{subject}.svg")
    put(ROOT / "docs" / "benchmarks.md", subject, text(subject, found, whole=False))
    put(ROOT / "README.md", subject, readme)


#: Colours that the colour-blind can tell apart (Okabe and Ito), and a marker each for prints in grey.
STYLES = (("#D55E00", "o"), ("#0072B2", "^"), ("#009E73", "D"), ("#E69F00", "s"), ("#000000", "X"))


def plot(subject: str, tables: dict[str, Any], path: Path) -> None:
    """Draw the first table of a subject."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "stompcodec", "svg.fonttype": "none", "font.size": 10})
    from matplotlib import pyplot

    name, table = next(iter(TABLES[subject].items()))
    rows = tables[name]
    figure, axes = pyplot.subplots(figsize=(9, 1.8 + 0.3 * len(rows)), layout="constrained")
    for at, cell in enumerate(rows.values()):
        axes.plot([min(cell.values()), max(cell.values())], [at, at], color="#D0D0D0", linewidth=1, zorder=1)
    whos = dict.fromkeys(who for cell in rows.values() for who in cell)
    for who, (colour, marker) in zip(whos, STYLES):
        points = [(cell[who], at) for at, cell in enumerate(rows.values()) if who in cell]
        axes.scatter(*zip(*points), s=52, color=colour, marker=marker, label=who, zorder=3, linewidths=0)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_title(f"{table.title}. {table.about}", loc="left", fontsize=11)
    axes.grid(color="#EAEAEA", zorder=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    figure.legend(loc="outside lower center", ncols=len(whos), frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
