"""What is promised of the broker, and docs/benchmarks-broker.md with its plot, from the numbers of bench_broker.py."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bench_client
import brokers
from brokers import OURS
from load import PREFETCH
from loads import LOADS
from report import grid, number

INTRO = """\
# Benchmarks of the broker and the client

Throughput, latency and memory of `stompcodec broker` and of other brokers. `make bench-broker` measures all of this in
one run and writes this page; do not edit it by hand. Deep queues have another page:
[benchmarks-depth.md](benchmarks-depth.md).

![Messages per CPU second of the broker, and messages per second](benchmarks-broker.svg)
"""

METHOD = """\
## How it is measured

- **The load generator** (`benchmarks/load.py`) is one process that works on raw sockets. Frames are encoded beforehand
  and sent in blocks of 256 KiB, at most four at a time; the generator counts the NULs that it receives. The last table
  shows its share of a core: it waits for the broker, never the broker for it.
- **At rest.** A run counts until the broker's process, with its threads and children, uses neither CPU nor disk, so
  postponed work is counted too. *CPU seconds* are those of the broker, on any core. *Messages per second* count until
  the disk is at rest for persistent loads, and until the last message arrives for the others.
- **Rounds.** The brokers take turns with each load, for {rounds} rounds of {seconds:g} s each; the tables show medians.
  Every broker is warmed up with every load first; where a goal compares two brokers, both for {warm:g} s.
- **Correctness.** Each load also runs through consumers that start late and read little at a time: every body must
  arrive, in order, exactly once, and the next consumer must get nothing (`benchmarks/check.py`). A broker that fails
  has no figure. The timed runs count messages too.
- **Configuration.** Ours is `stompcodec broker --data FOLDER` without further settings; the peers have a configuration
  that opens the STOMP port. All are asked for a prefetch of {prefetch}. Topics count deliveries. stompserver keeps
  everything in memory and does not support client-individual, so it has no figures there. RabbitMQ answers over
  WebSocket with text messages, ours with text where a frame is UTF-8.
- **Persistent** means that the receipt follows the write to disk. The loads with receipts have no consumer while they
  run; all messages are fetched and counted afterwards. *Beside 4 computing processes*: each of these has a session, and
  so a scheduler group, of its own; generator and brokers share one. *Beside a durable load*: one process keeps the
  store busy (window 100, consumed and acknowledged one by one), while another sends transient messages to another
  queue, one at a time, 1 ms apart.
- **Idle connections** compares the resident memory of a fresh broker before and with 1000 connections, and with a
  subscription on each of them. A peer that was already running has no fresh memory to grow.
"""


@dataclass(frozen=True)
class Bar:
    """We against a peer: how many times as good, at least, and how many times is the goal."""

    load: str
    figure: str
    peer: str
    floor: float
    goal: float


CPU, RATE = "per CPU second", "per second"
BARS = (
    Bar("queue-1k", CPU, "activemq", 3, 15),
    Bar("individual-1k", CPU, "activemq", 3, 10),
    Bar("fanout-100b", CPU, "stompserver", 4, 25),
    Bar("one-100b", CPU, "activemq", 1.5, 2.5),
    Bar("persistent-1k", CPU, "activemq", 4, 15),
    Bar("window-100", RATE, "rabbitmq", 4, 10),
    Bar("window-1", RATE, "activemq", 1, 1.5),
    Bar("window-1-computing", RATE, "activemq", 1, 1),
    Bar("producers-16", RATE, "activemq", 3, 3),
)


@dataclass(frozen=True)
class Verdict:
    """One promise: what, floor and goal, what was measured, and which of them is met."""

    what: str
    floor: str
    goal: str
    measured: str
    met: str

    def __str__(self) -> str:
        return f"{self.met:5}  {self.what}: {self.measured} (floor {self.floor}, goal {self.goal})"


class Results:
    """The medians of a run."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.raw = results
        self.who = [name for name in (OURS, *brokers.PEERS) if name in results["brokers"]]
        self.loads = [name for name in LOADS if name in results["loads"]]

    def median(self, load: str, who: str, figure: str) -> float | None:
        """None where there is no measurement, or a wrong one."""
        cells = self.raw["loads"].get(load, {}).get(who, [])
        if not cells or load in self.raw["brokers"][who]["wrong"]:
            return None
        found = [value for value in map(FIGURES[figure](load), cells) if value is not None]
        return statistics.median(found) if found else None

    def memory(self, who: str, figure: str) -> float | None:
        """KiB."""
        return self.raw["brokers"].get(who, {}).get("memory", {}).get(figure)


def _rate(load: str) -> Callable[[dict[str, float]], float]:
    stored = LOADS[load].persistent or LOADS[load].how == "beside"
    return lambda cell: cell["messages"] / cell["quiet" if stored else "seconds"]


FIGURES: dict[str, Callable[[str], Callable[[dict[str, float]], float | None]]] = {
    CPU: lambda load: lambda cell: cell["messages"] / cell["cpu"],
    RATE: _rate,
    **{name: (lambda load, name=name: lambda cell: cell.get(name)) for name in ("p50", "p99", "max", "generator")},
}


def is_compared(load: str, broker: str) -> bool:
    """Return whether a promise compares this broker with another one, by this load."""
    return any(bar.load == load and broker in (OURS, bar.peer) for bar in BARS)


def judge(results: Results) -> list[Verdict]:
    """The promises for which there are measurements, wrong ones first."""
    wrong = results.raw["brokers"].get(OURS, {}).get("wrong", {})
    found = [Verdict(LOADS[load].about, "right", "right", why, "WRONG") for load, why in wrong.items()]
    for bar in BARS:
        us, them = results.median(bar.load, OURS, bar.figure), results.median(bar.load, bar.peer, bar.figure)
        if us and them:
            what = f"{LOADS[bar.load].about}, messages {bar.figure}, against {bar.peer}"
            found.append(_least(what, us / them, bar.floor, bar.goal))
    return found + list(_latency(results)) + list(_selector(results)) + list(_memory(results))


def _least(what: str, ratio: float, floor: float, goal: float) -> Verdict:
    met = "goal" if ratio >= goal else "floor" if ratio >= floor else "NO"
    return Verdict(what, f"{floor:g}×", f"{goal:g}×", f"{ratio:.3g}×", met)


def _most(what: str, value: float, most: float, unit: str) -> Verdict:
    limit = f"≤ {most:.3g} {unit}"
    return Verdict(what, limit, limit, f"{value:.3g} {unit}", "goal" if value <= most else "NO")


def _latency(results: Results) -> Iterator[Verdict]:
    for figure in ("p50", "p99"):
        us, them = results.median("one-100b", OURS, figure), results.median("one-100b", "activemq", figure)
        if us and them:
            yield _most(f"one message in flight, {figure}, no worse than activemq", us, them, "ms")
    late = results.median("beside-durable", OURS, "p99")
    if late:
        yield _most(f"{LOADS['beside-durable'].about}, p99", late, 5, "ms")


def _selector(results: Results) -> Iterator[Verdict]:
    without, picked = (results.median(load, OURS, CPU) for load in ("headers-1k", "selector-1k"))
    if without and picked:
        yield _most("a selector on a queue, more for a message", 1e6 / picked - 1e6 / without, 2, "µs")


def _memory(results: Results) -> Iterator[Verdict]:
    each = results.memory(OURS, "connected")
    if each is not None:
        yield _most("an idle connection", each, 8, "KiB")
    alone, beside = (results.median(load, OURS, CPU) for load in ("queue-1k", "idle-1000"))
    if alone and beside:
        yield _least("queue, 1 KiB, beside 1000 idle connections, against without", beside / alone, 0.95, 1)
    us, them = results.memory(OURS, "after"), results.memory("rabbitmq", "after")
    if us and them:
        yield _most("resident memory after all loads, of rabbitmq's", us / them * 100, 25, "%")


# ---- tables ----


def _table(results: Results, figure: str, show: Callable[[float], str] = number) -> str:
    peers = [who for who in results.who if who != OURS] if OURS in results.who and figure in (CPU, RATE) else []
    rows = []
    for load in results.loads:
        cells = {who: results.median(load, who, figure) for who in results.who}
        if any(value is not None for value in cells.values()):
            shown = ["" if value is None else show(value) for value in cells.values()]
            rows.append([LOADS[load].about, *shown, *(_times(cells, who) for who in peers)])
    return grid(["load", *results.who, *(f"ours / {who}" for who in peers)], rows)


def _times(cells: dict[str, float | None], who: str) -> str:
    us, them = cells[OURS], cells[who]
    return f"{us / them:.3g}×" if us and them else ""


def _latencies(results: Results) -> str:
    rows = []
    for load in results.loads:
        texts = []
        for who in results.who:
            found = [results.median(load, who, figure) for figure in ("p50", "p99", "max")]
            texts.append("" if found[0] is None else " / ".join(f"{value or 0:.3g}" for value in found))
        if any(texts):
            rows.append([LOADS[load].about, *texts])
    return grid(["p50 / p99 / max, ms", *results.who], rows) if rows else ""


def _resident(results: Results) -> str:
    lines = {
        "start": ("resident at the start, MiB", 1024),
        "after": ("after all loads, MiB", 1024),
        "peak": ("at its peak, MiB", 1024),
        "connected": ("an idle connection, KiB", 1),
        "subscribed": ("an idle connection with a subscription, KiB", 1),
    }
    rows = []
    for name, (what, unit) in lines.items():
        found = [results.memory(who, name) for who in results.who]
        if any(value is not None for value in found):
            rows.append([what, *("" if value is None else number(value / unit) for value in found)])
    return grid(["", *results.who], rows)


def text(raw: dict[str, Any]) -> str:
    """What a run prints."""
    results = Results(raw)
    parts = [f"messages {CPU} of the broker\n\n{_table(results, CPU)}", f"messages {RATE}\n\n{_table(results, RATE)}"]
    parts += [_latencies(results), _resident(results), "\n".join(map(str, judge(results)))]
    return "\n".join(parts)


def write(raw: dict[str, Any], folder: Path) -> None:
    """Write benchmarks-broker.md and its plot into a folder."""
    folder.mkdir(exist_ok=True)
    results = Results(raw)
    draw(results, folder / "benchmarks-broker.svg")
    verdicts = [(line.what, line.floor, line.goal, line.measured, line.met) for line in judge(results)]
    parts = [
        INTRO,
        _facts(raw),
        "## Goals\n\n" + grid(("", "floor", "goal", "measured", "met"), verdicts),
        f"## Messages {CPU} of the broker\n\n{_table(results, CPU)}",
        f"## Messages {RATE}\n\nThe generator shares the machine with the broker.\n\n{_table(results, RATE)}",
        f"## Latency\n\n{_latencies(results)}",
        f"## Memory\n\n{_resident(results)}",
        bench_client.section(folder.parent / "build" / "client.json"),
        _method(raw["facts"]),
        "The load generator's share of a core:\n\n" + _table(results, "generator", "{:.0%}".format),
    ]
    (folder / "benchmarks-broker.md").write_text("\n".join(part.strip() + "\n" for part in parts if part))
    print(f"written: {folder.name}/benchmarks-broker.md, {folder.name}/benchmarks-broker.svg")


def _method(facts: dict[str, Any]) -> str:
    warm = facts.get("warm", facts["seconds"])  # an older run
    return METHOD.format(rounds=facts["rounds"], seconds=facts["seconds"], warm=warm, prefetch=PREFETCH)


def _facts(raw: dict[str, Any]) -> str:
    facts = raw["facts"]
    rows = [
        ("command", "`make bench-broker`"),
        ("date", facts["date"]),
        ("processor", f"{facts['cpu']}, {facts['cores']} cores, shared by brokers and generator"),
        ("system", facts["system"]),
        ("Python", facts["python"]),
        *((("disk", f"one fdatasync of 4 KiB takes {facts['fdatasync']:.0f} µs"),) if "fdatasync" in facts else ()),
        ("brokers", ", ".join(about["version"] for about in raw["brokers"].values())),
        *((name, f"left out: {why}") for name, why in raw["absent"].items()),
    ]
    return grid(("", "this run"), rows, left=2)


# ---- the plot ----

#: Colours that the colour-blind can tell apart (Okabe and Ito), and a marker each for prints in grey.
STYLES = {
    OURS: ("#D55E00", "o"),
    "activemq": ("#0072B2", "^"),
    "rabbitmq": ("#009E73", "D"),
    "stompserver": ("#56B4E9", "v"),
}


def draw(results: Results, path: Path) -> None:
    """One figure of two panels; left out, with a word, where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "stompcodec", "svg.fonttype": "none", "font.size": 10})
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(12, 5), sharey=True, layout="constrained")
    for axes, what in zip(panels, (CPU, RATE)):
        _panel(axes, results, what)
    panels[0].set_yticks(range(len(results.loads)), [LOADS[load].about for load in results.loads])
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(STYLES), frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _panel(axes: Any, results: Results, what: str) -> None:
    for who in results.who:
        colour, marker = STYLES[who]
        found = [(results.median(load, who, what), row) for row, load in enumerate(results.loads)]
        points = [(value, row) for value, row in found if value is not None]
        if points:
            axes.scatter(*zip(*points), s=52, color=colour, marker=marker, label=who, zorder=3, linewidths=0)
    axes.set_xscale("log")
    ticks = {1e3: "1 k", 1e4: "10 k", 1e5: "100 k", 1e6: "1 M", 1e7: "10 M"}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.set_title(f"Messages {what} (more is better)", loc="left", fontsize=11)
    axes.grid(color="#EAEAEA", zorder=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
