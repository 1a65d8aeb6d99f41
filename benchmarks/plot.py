"""Draws docs/benchmarks.svg: how long a frame takes, by workload and library, and how time grows with a body."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import goals

#: Colours that the colour-blind can tell apart (Okabe and Ito), and a marker each for prints in grey.
STYLES = {
    goals.C: ("#D55E00", "o", "stompcodec, C"),
    goals.PYTHON: ("#E69F00", "s", "stompcodec, Python"),
    goals.STOMP_PY: ("#0072B2", "^", "stomp.py"),
    "stompest": ("#56B4E9", "v", "stompest"),
    goals.STOMPMAN: ("#009E73", "D", "stompman"),
    "aiostomp": ("#000000", "X", "aiostomp"),
}


def draw(results: dict[str, Any], path: Path) -> None:
    """One figure of two panels; left out, with a word, where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "stompcodec", "svg.fonttype": "none", "font.size": 10})
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 5.6), width_ratios=(1.9, 1), layout="constrained")
    _workloads(left, results["decode"]["64 KiB"])
    _growth(right, results["sizes"])
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(STYLES), frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _workloads(axes: Any, table: dict[str, dict[str, float]]) -> None:
    names = list(table)
    for who, (colour, marker, label) in STYLES.items():
        found = [(table[name][who], row) for row, name in enumerate(names) if who in table[name]]
        if found:
            times, rows = zip(*found)
            axes.scatter(times, rows, s=52, color=colour, marker=marker, label=label, zorder=3, linewidths=0)
    for row, name in enumerate(names):
        times = table[name].values()
        axes.plot([min(times), max(times)], [row, row], color="#D0D0D0", linewidth=1, zorder=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    ticks = {1e2: "100 ns", 1e3: "1 µs", 1e4: "10 µs", 1e5: "100 µs", 1e6: "1 ms", 1e7: "10 ms", 1e8: "100 ms"}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    _plain(axes, "Time to decode one frame (less is better)")


def _growth(axes: Any, sizes: dict[str, dict[str, float]]) -> None:
    for who, taken in sizes.items():
        if who not in STYLES:
            continue
        colour, marker, label = STYLES[who]
        axes.plot([int(size) for size in taken], list(taken.values()), color=colour, marker=marker, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks([2, 4, 8, 16], ["2", "4", "8", "16 MiB"])
    axes.set_yticks([1e-4, 1e-3, 1e-2, 1e-1, 1, 10], ["0.1 ms", "1 ms", "10 ms", "100 ms", "1 s", "10 s"])
    axes.minorticks_off()
    _plain(axes, "Time for one body in 1 KiB reads")


def _plain(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(color="#EAEAEA", zorder=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
