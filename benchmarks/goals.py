"""The ratios that the project promises, and whether a run reached them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

C, PYTHON = "stompcodec C", "stompcodec Python"
STOMP_PY, STOMPMAN = "stomp.py", "stompman"
#: Instructions of such a tick before `where` was looked at first (7001fc9).
WHERE_BEFORE = 985


@dataclass(frozen=True)
class Goal:
    """One line: what, at least or at most how much, what was measured, and whether that is enough."""

    what: str
    target: str
    measured: str
    reached: bool

    def __str__(self) -> str:
        return f"{'yes' if self.reached else 'NO ':3}  {self.what}: {self.measured} ({self.target})"


def judge(results: dict[str, Any]) -> list[Goal]:
    """The goals for which there are measurements."""
    found: list[Goal] = []
    for section, maker in MAKERS.items():
        if results.get(section):
            try:
                found += maker(results[section])
            except KeyError as error:
                found.append(Goal(section, "", f"not measured: {error}", False))
    return found


def times(cell: dict[str, float], us: str, them: str) -> float:
    """How many times as fast we are."""
    return cell[them] / cell[us]


def geometric_mean(table: dict[str, dict[str, float]], us: str, them: str) -> float:
    """Over the workloads on which both could be measured."""
    ratios = [times(cell, us, them) for cell in table.values() if us in cell and them in cell]
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _least(what: str, ratio: float, least: float) -> Goal:
    return Goal(what, f"≥ {least:g}×", f"{ratio:.3g}×", ratio >= least)


def _most(what: str, value: float, most: float, unit: str = "") -> Goal:
    return Goal(what, f"≤ {most:,g}{unit}", f"{value:,.4g}{unit}", value <= most)


def _decode(tables: dict) -> Iterator[Goal]:
    ticks = tables["64 KiB"]["ticks"]
    yield _least("ticks, headers untouched, alone, against stomp.py", times(ticks, C, STOMP_PY), 150)
    yield _least("ticks, headers untouched, alone, against stompman", times(ticks, C, STOMPMAN), 450)
    yield _least("Python backend, ticks, against stomp.py", times(ticks, PYTHON, STOMP_PY), 4)
    yield _least("Python backend, ticks, against stompman", times(ticks, PYTHON, STOMPMAN), 12)
    cells = {f"{name} at {feed}": cell for feed, table in tables.items() for name, cell in table.items()}
    yield _nobody_ahead("Python backend: workloads and feeds on which a peer is faster", cells)


def _nobody_ahead(what: str, cells: dict[str, dict[str, float]]) -> Goal:
    """No peer is faster than our Python backend in any cell."""
    behind = []
    for label, cell in cells.items():
        fastest = min((who for who in cell if who != C), key=lambda who: cell[who])
        if cell[fastest] < cell[PYTHON]:
            behind.append(f"{label}: {fastest} {cell[PYTHON] / cell[fastest]:.2f}× as fast")
    return Goal(what, "none", "; ".join(behind) or "none", not behind)


def _reads(tables: dict) -> Iterator[Goal]:
    what = "Python backend: workloads and read sizes at which a peer is faster"
    yield _nobody_ahead(
        what, {f"{name} in reads of {size} B": cell for name, sizes in tables.items() for size, cell in sizes.items()}
    )


def _twins(section: dict) -> Iterator[Goal]:
    for kind, cells in section["decode"].items():
        ratio = cells[C]["UTF-8"] / cells[C]["ASCII"]
        yield _most(f"non-ASCII headers ({kind}), of the time of the ASCII twin", ratio * 100, 160, " %")
    for kind, speeds in section["columns"].items():
        speed = speeds["UTF-8"]
        yield Goal(f"columns, non-ASCII headers ({kind})", "≥ 1.1 GB/s", f"{speed:.2f} GB/s", speed >= 1.1)


def _reading(tables: dict) -> Iterator[Goal]:
    read, whole = tables["read"]["ticks"], tables["dict"]["ticks"]
    yield _least("ticks, two headers and the body, against stomp.py", times(read, C, STOMP_PY), 70)
    yield _least("ticks, two headers and the body, against stompman", times(read, C, STOMPMAN), 200)
    yield _least("ticks, dict(frame.headers) of every frame, against stomp.py", times(whole, C, STOMP_PY), 40)
    yield _least("ticks, dict(frame.headers) of every frame, against stompman", times(whole, C, STOMPMAN), 100)


def _alternating(tables: dict) -> Iterator[Goal]:
    ticks = tables["64 KiB"]["ticks"]
    yield _least("ticks, alternating, against stomp.py", times(ticks, C, STOMP_PY), 110)
    yield _least("ticks, alternating, against stompman", times(ticks, C, STOMPMAN), 350)
    for feed, table in tables.items():
        mean = geometric_mean(table, C, STOMP_PY)
        yield _least(f"geometric mean over the workloads, alternating, {feed} feeds, against stomp.py", mean, 45)


def _encode(tables: dict) -> Iterator[Goal]:
    ticks = tables["serialize"]["ticks"]
    many = tables["serialize_many"]
    yield _least("serialize, ticks, against stomp.py", times(ticks, C, STOMP_PY), 15)
    yield _least("serialize, ticks, against stompman", times(ticks, C, STOMPMAN), 55)
    yield _least("serialize_many, ticks, against stompman", ticks[STOMPMAN] / many["ticks"][C], 90)
    made = tables["make and serialize"]["ticks"]
    yield _least("Frame(command, dict, body) and serialize, ticks, against stomp.py", times(made, C, STOMP_PY), 10)
    slower = {name: cell[PYTHON] / cell[STOMP_PY] for name, cell in tables["serialize"].items()}
    yield _worst("Python backend, serialize, of the time of stomp.py", slower, 120)
    slower = {name: many[name][C] / cell[C] for name, cell in tables["serialize"].items()}
    yield _worst("serialize_many, of the time of a loop of serialize that drops what it makes", slower, 100)
    slower = {name: many[name][C] / cell[C] for name, cell in tables["serialize, kept"].items()}
    yield _worst("serialize_many, of the time of a loop of serialize that keeps what it makes", slower, 100)


def _worst(what: str, shares: dict[str, float], most: float) -> Goal:
    """The largest of these shares must not be above `most` percent."""
    name = max(shares, key=lambda name: shares[name])
    percent = shares[name] * 100
    return Goal(f"{what}, on the worst workload", f"≤ {most:g} %", f"{percent:.4g} % ({name})", percent <= most)


def _cold(sizes: dict) -> Iterator[Goal]:
    # Both pay for new pages of memory, nearly as many: 5 % is what these differ by from run to run.
    for name, cell in sizes.items():
        share = cell["many"] / cell["loop"] * 100
        yield _most(f"the first serialize_many of a process, {name}, of the time of a loop", share, 105, " %")


def _bodies(tables: dict) -> Iterator[Goal]:
    for name, what, least in (("big1m", "with", 90), ("big1m_nolen", "without", 75)):
        share = tables[name]["one copy"] / tables[name][C] * 100
        what = f"1 MiB bodies {what} content-length, 64 KiB feeds, of the speed of one copy"
        yield Goal(what, f"≥ {least} %", f"{share:.0f} %", share >= least)


def _sizes(table: dict) -> Iterator[Goal]:
    yield _least("8 MiB body with NULs in 1 KiB reads, against stomp.py", table[STOMP_PY]["8"] / table[C]["8"], 200)
    # In copies, for the heap gives back blocks of 16 MiB, so that these are paid in page faults, too.
    large, small = (table[C][size] / table["one copy"][size] for size in ("16", "2"))
    yield _most("copies that 16 MiB take over copies that 2 MiB take (1 is linear, 8 is quadratic)", large / small, 2)


def _columns(section: dict) -> Iterator[Goal]:
    ticks, threads = section["workloads"]["ticks"], section["threads"]
    share = max(ticks["columns"], ticks["columns, whole"]) / ticks["every header"] * 100
    yield _most("columns, ticks, of the time of reading every header", share, 75, " %")
    share = threads["side by side"] / threads["one after the other"] * 100
    yield _most("columns in two threads, of the time one after the other", share, 75, " %")
    busy = section["processors"]
    what = "columns in two threads, processor time over time, on two idle cores"
    yield Goal(what, "≥ 1.85", f"{busy:.3g}", busy >= 1.85)


def _memory(section: dict) -> Iterator[Goal]:
    yield _most("a kept tick beyond its body", section[C]["octets"], 380, " bytes")
    tracked = section[C]["tracked"]
    yield Goal("a frame is tracked by the garbage collector", "no", "yes" if tracked else "no", not tracked)


def _instructions(counts: dict) -> Iterator[Goal]:
    yield _most("instructions for feed and iteration, a tick", counts["feed"]["ticks"], 980)
    yield _most("instructions for feed and iteration, an ACK", counts["feed"]["acks"], 500)
    what = f"instructions for a tick that `where` of parse_columns does not pick (half of {WHERE_BEFORE:,})"
    yield _most(what, counts["where_none"]["ticks"], WHERE_BEFORE // 2)


#: Who judges a section of peers.py.
MAKERS: dict[str, Callable[[Any], Iterator[Goal]]] = {
    "decode": _decode,
    "reads": _reads,
    "utf-8": _twins,
    "reading": _reading,
    "alternating": _alternating,
    "encode": _encode,
    "cold": _cold,
    "bodies": _bodies,
    "sizes": _sizes,
    "columns": _columns,
    "memory": _memory,
    "instructions": _instructions,
}
