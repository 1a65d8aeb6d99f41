"""Writes docs/benchmarks.md from the numbers of a full run of peers.py."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import goals
import plot
from goals import PYTHON, STOMP_PY, STOMPMAN, C

WHO = (C, PYTHON, STOMP_PY, STOMPMAN, "stompest", "aiostomp")

INTRO = """\
# Benchmarks

How fast stompcodec reads and writes STOMP frames, next to the other STOMP libraries for Python. `make bench-peers`
measures all of this in one run, in one process, and writes this page; do not edit it by hand.

![Time to decode a frame, by workload and library](benchmarks.svg)
"""

METHOD = """\
## How it is measured

- **Workloads** come from `benchmarks/make_corpus.py`: seeded, with the same bytes everywhere. ticks are market ticks of
  211 bytes with 5 headers and a JSON body; trains are 1 to 8 KiB of JSON; headers30 has 30 headers and escapes; crlf is
  ticks with CR LF; text is 200 to 2000 bytes of UTF-8; binary16k and big1m have bodies of that size (big1m_nolen
  without content-length); acks are ACK and RECEIPT frames of 26 bytes; heartbeats are ticks between runs of line ends;
  mixed is a whole session.
- **Each library runs as its own client uses it.** stomp.py: its transport splits the received bytes, then `parse_frame`
  (bodies stay bytes, listeners are not called). stompman: `FrameParser.parse_frames_from_chunk`. stompest: `add`,
  `canRead`, `get`. aiostomp: `feed_data`, `pop_frames`. stompcodec: `for frame in parser.feed(piece)`.
- **Time** covers feeding and iterating, and freeing the frames. It is CPU time in nanoseconds per frame, the least of
  {rounds} rounds. All loops do the same with each frame and are compiled from text, so that none pays for a call.
- **Alone**: each library loops over the workload for 50 ms before the next one takes its turn, so its caches and branch
  predictors are warm. A library that needs more than 50 ms gets only the first part of the workload: otherwise its long
  passes would include the noise of the machine, and our short ones would not.
- **Alternating**: the libraries take turns on groups of about 1000 frames (1 MiB at most) over the first eighth of the
  workload. Each keeps its parser.
- The garbage collector is on.
- **A star** marks the time of a library that gets frames of that workload wrong, see [Correctness](#correctness).
  "fails" means that the library raises, or that a quarter of the frames is missing.
"""


def write(results: dict[str, Any], folder: Path) -> None:
    """Write benchmarks.md and benchmarks.svg into a folder."""
    folder.mkdir(exist_ok=True)
    plot.draw(results, folder / "benchmarks.svg")
    sections = (
        *(_facts, _goals, _decoding, _reads, _twins, _reading, _alternating, _encoding, _bodies, _columns),
        *(_memory, _correctness),
    )
    parts = [INTRO, *(section(results) for section in sections)]
    parts.append(METHOD.replace("{rounds}", str(results["facts"]["rounds"])))
    (folder / "benchmarks.md").write_text("\n".join(part.strip() + "\n" for part in parts if part))
    print(f"written: {folder.name}/benchmarks.md, {folder.name}/benchmarks.svg")


def grid(head: Iterable[str], rows: Iterable[Iterable[str]], left: int = 1) -> str:
    """A table in Markdown; the first columns are text, the others numbers."""
    head = list(head)
    lines = ["| " + " | ".join(head) + " |"]
    lines.append("|" + "|".join("---" if at < left else "--:" for at in range(len(head))) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """Three digits are what the clock is good for."""
    if value < 10:
        return f"{value:.2g}"
    return f"{float(f'{value:.3g}'):,.0f}"


def _ratio(cell: dict[str, float], them: str, us: str = C) -> str:
    return f"{number(goals.times(cell, us, them))}×" if us in cell and them in cell else ""


def _cell(results: dict, workload: str, who: str, value: float | None) -> str:
    right, frames, _timed = results["correctness"][workload].get(who, (0, 0, 0))
    if value is None:
        return "fails" if frames else ""
    return number(value) + ("" if right == frames else " \\*")


def _present(results: dict) -> list[str]:
    return [who for who in WHO if any(who in cell for cell in results["correctness"].values())]


def _by_workload(results: dict, table: dict[str, dict[str, float]], ratios: bool = True) -> str:
    who = _present(results)
    head = ["workload", *who, *(["C against stomp.py", "C against stompman"] if ratios else [])]
    rows = []
    for workload, cell in table.items():
        row = [workload, *(_cell(results, workload, name, cell.get(name)) for name in who)]
        rows.append(row + ([_ratio(cell, STOMP_PY), _ratio(cell, STOMPMAN)] if ratios else []))
    return grid(head, rows)


def _facts(results: dict) -> str:
    facts = results["facts"]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    rows = [
        ("command", f"`make bench-peers`{'' if facts['full'] else ' (a part of the corpus)'}"),
        ("date", facts["date"]),
        ("processor", f"{facts['cpu']}, {facts['cores']} cores"),
        ("system", facts["system"]),
        ("Python", facts["python"]),
        ("peers", versions),
    ]
    return grid(("", "this run"), rows, left=2)


def _goals(results: dict) -> str:
    lines = goals.judge(results)
    rows = [(goal.what, goal.target, goal.measured, "yes" if goal.reached else "**no**") for goal in lines]
    return "## Goals\n\n" + grid(("goal", "target", "measured", "reached"), rows, left=1)


def _decoding(results: dict) -> str:
    parts = ["## Decoding, headers untouched\n\nNanoseconds per frame, each library alone. Less is better.\n"]
    for feed, table in results["decode"].items():
        parts.append(f"Fed {feed} at a time:\n\n{_by_workload(results, table)}")
    return "\n".join(parts)


def _twins(results: dict) -> str:
    if "utf-8" not in results:
        return ""
    rows = []
    for kind, cells in results["utf-8"]["decode"].items():
        for who, cell in cells.items():
            ratio = f"{cell['UTF-8'] / cell['ASCII']:.2f}×"
            rows.append((kind, who, *(number(cell[which]) for which in ("ASCII", "UTF-8")), ratio))
    text = (
        "## Decoding, headers beyond ASCII\n\nNanoseconds per frame whose headers have letters beyond ASCII, next to a"
        " twin in ASCII with equal numbers of headers and octets. Libraries that decode these wrongly are left out.\n\n"
        f"{grid(('beyond ASCII', 'library', 'ASCII', 'UTF-8', 'UTF-8 / ASCII'), rows, left=2)}"
    )
    columns = results["utf-8"]["columns"]
    rows = [(kind, *(f"{cell[which]:.2f}" for which in ("ASCII", "UTF-8"))) for kind, cell in columns.items()]
    return f"{text}\n`parse_columns` of the same frames, GB/s:\n\n{grid(('', 'ASCII', 'UTF-8'), rows)}"


def _reading(results: dict) -> str:
    tables = {"untouched": results["decode"]["64 KiB"], **results["reading"]}
    labels = {"untouched": "headers untouched", "read": "two headers and the body", "dict": "a dict of all headers"}
    found = [who for who in _present(results) if who in tables["dict"]["ticks"]]
    ticks = [(who, *(number(tables[use]["ticks"][who]) for use in labels)) for who in found]
    ours = [(workload, *(number(tables[use][workload][C]) for use in labels)) for workload in tables["dict"]]
    return (
        "## Decoding and reading headers\n\nNanoseconds per frame on ticks, by what the loop does with it (alone,"
        f" 64 KiB feeds):\n\n{grid(('library', *labels.values()), ticks)}\n"
        f"The C backend on all workloads:\n\n{grid(('workload', *labels.values()), ours)}"
    )


def _reads(results: dict) -> str:
    if "reads" not in results:  # an older run
        return ""
    text = "Nanoseconds per frame of the pure-Python parsers, headers untouched, by bytes per read."
    parts = [f"## Decoding, small reads\n\n{text}\n"]
    who = [name for name in _present(results) if name != C]
    for workload, sizes in results["reads"].items():
        rows = [
            (f"{int(size):,} B", *(_cell(results, workload, name, cell.get(name)) for name in who))
            for size, cell in sizes.items()
        ]
        parts.append(f"{workload}:\n\n{grid(('read', *who), rows)}")
    return "\n".join(parts)


def _alternating(results: dict) -> str:
    parts = ["## Decoding, libraries alternating\n\nNanoseconds per frame, headers untouched.\n"]
    for feed, table in results["alternating"].items():
        mean = goals.geometric_mean(table, C, STOMP_PY)
        parts.append(f"Fed {feed} at a time; the geometric mean of C against stomp.py is {mean:.3g}×:\n")
        parts.append(_by_workload(results, table))
    return "\n".join(parts)


def _encoding(results: dict) -> str:
    texts = {
        "serialize": "From a frame object of the library to bytes, one at a time. stomp.py neither checks nor"
        " escapes here (`convert_frame`, `pack`); stompcodec does both",
        "make and serialize": "From a command, a dict and a body over a frame object to bytes",
    }
    parts = ["## Encoding\n\nNanoseconds per frame, each library alone.\n"]
    for row, text in texts.items():
        table = results["encode"][row]
        parts.append(f"{text}:\n\n{_by_workload_encoding(table, _present(results))}")
    labels = {
        "serialize_many": "many",
        "serialize, kept": "loop that keeps",
        "serialize a parsed frame": "parsed frame",
    }
    tables = [results["encode"][row] for row in labels]
    rows = [(name, *(number(taken) for table in tables for taken in table[name].values())) for name in tables[0]]
    who = list(next(iter(tables[0].values())))
    head = ("workload", *(f"{label}, {name}" for label in labels.values() for name in who))
    parts.append("Only stompcodec has these: `serialize_many`, next to a loop of `serialize` that keeps what it makes,")
    parts[-1] += " and `serialize` of a frame that was parsed (what a proxy or broker sends on):\n\n" + grid(head, rows)
    if "cold" in results:
        rows = [(name, number(cell["many"]), number(cell["loop"])) for name, cell in results["cold"].items()]
        parts.append("The first call of a process, where all memory is new, next to a loop that keeps what it makes:\n")
        parts[-1] += f"\n{grid(('frames', 'serialize_many', 'loop of serialize'), rows)}"
    return "\n".join(parts)


def _by_workload_encoding(table: dict, who: list[str]) -> str:
    rows = [
        [workload, *(number(cell[name]) for name in who), _ratio(cell, STOMP_PY), _ratio(cell, STOMPMAN)]
        for workload, cell in table.items()
    ]
    return grid(("workload", *who, "C against stomp.py", "C against stompman"), rows)


def _bodies(results: dict) -> str:
    total = 16 * 2**20
    rows = [
        (name, *(f"{total / taken / 1e9:.1f} GB/s ({cell['one copy'] / taken:.0%})" for taken in cell.values()))
        for name, cell in results["bodies"].items()
    ]
    who = list(next(iter(results["bodies"].values())))
    sizes = results["sizes"]
    grown = [
        (f"{size} MiB", *(f"{taken[size] * 1000:,.3g} ms" if size in taken else "" for taken in sizes.values()))
        for size in next(iter(sizes.values()))
    ]
    return (
        '## Large bodies\n\n1 MiB bodies in 64 KiB feeds, next to one copy of the same chunks (`b"".join`):\n\n'
        f"{grid(('', *who), rows)}\n"
        "One body with NULs and a content-length, read 1 KiB at a time. stomp.py copies and searches everything again"
        f" after every read, so its time grows with the square of the size:\n\n{grid(('body', *sizes), grown)}"
    )


def _columns(results: dict) -> str:
    if "columns" not in results:
        return ""
    section = results["columns"]
    frames = results["facts"]["frames"]
    head = ("columns", "columns, whole", "every header", "untouched")
    rows = []
    for name, cell in section["workloads"].items():
        times = [number(cell[what] / frames[name] * 1e9) for what in head]
        rows.append((name, *times, f"{cell['columns'] / cell['every header']:.0%}"))
    threads = section["threads"]["side by side"] / section["threads"]["one after the other"]
    where = grid(section["where"], [[number(taken) for taken in section["where"].values()]], left=0)
    return (
        "## Columns\n\nNanoseconds per frame of the C backend, 256 KiB at a time: `parse_columns`; the same with the"
        " whole workload at once; a loop that makes a dict of every frame's headers; a loop that reads no header.\n\n"
        f"{grid(('workload', *head, 'columns / every header'), rows)}\n"
        f"Two threads that parse ticks into columns side by side take {threads:.0%} of the time that they take one"
        f" after the other, and keep {section['processors']:.3g} processors busy: no frame needs the interpreter's"
        f" lock.\n\nNanoseconds per tick with `where=`:\n\n{where}"
    )


def _memory(results: dict) -> str:
    rows = [
        (who, number(entry["octets"]), "yes" if entry["tracked"] else "no") for who, entry in results["memory"].items()
    ]
    text = "## Memory and instructions\n\nBytes that a kept tick takes beyond its body:\n\n"
    text += grid(("library", "bytes", "tracked by the garbage collector"), rows, left=1)
    if results.get("instructions"):
        counts = results["instructions"]
        names = {"empty": "the loop statements alone", "feed": "feed and iteration", "serialize": "serialize"}
        names |= {
            "columns": "columns",
            "where_none": "columns, `where=` without a match",
            "where_all": "columns, `where=` that all frames match",
        }
        rows = [(names[row], *(number(count) for count in counts[row].values())) for row in names]
        text += "\nMachine instructions of the C backend per frame (valgrind, see `benchmarks/instructions.py`):\n\n"
        text += grid(("", *counts["feed"]), rows)
    return text


def _share(entry: list[int]) -> str:
    right, frames, _timed = entry
    return "all" if right == frames else f"**{right}** of {frames}"


def _correctness(results: dict) -> str:
    who = _present(results)
    rows = [(name, *(_share(cell[each]) for each in who)) for name, cell in results["correctness"].items()]
    return (
        "## Correctness\n\nFrames whose command, headers (the first of a repeated name) and body are all right, and"
        " that come once and in order, on a fiftieth of each workload in 64 KiB feeds:\n\n"
        f"{grid(('workload', *who), rows)}"
    )
