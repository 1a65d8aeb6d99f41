"""The tables of depth.py, its goals, and docs/benchmarks-depth.md. Only what was measured has a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import grid, number

__all__ = ["Verdict", "judge", "text", "write"]

INTRO = """\
# Benchmarks of deep queues

What a backlog costs: a restart with stored messages, messages that go in and out of a deep queue, and receipts of
other clients beside a drain. `make bench-depth` measures it and `python benchmarks/depth.py --page` writes this page;
do not edit it by hand.
"""

METHOD = """\
## How it is measured

- **Messages** have bodies of 100 bytes and `persistent:true`, go to one queue, and are consumed with `ack:auto`.
  One connection fills the queue, with at most 2 MiB on the way; one SEND in 128 KiB asks for a receipt. Consumed
  messages are counted; a broker that delivers too many or too few has no figures.
- **Restart**: the messages are stored, the process is killed (`kill -9`) and started again. *Listening* is the moment
  when the port accepts a connection, *CONNECTED* when a client has logged in, *first delivery* when a new consumer has
  its first message, all in seconds from the start of the process. Medians of three kills. A peer is started again
  with its own command line, environment and folder. ActiveMQ has a heap of 4 GiB (`_JAVA_OPTIONS=-Xmx4G`): with 1 GiB
  it runs out of memory at 643,000 messages. `SELECT count(*)` is run on the broker's table of messages while no broker
  runs, with the file in the system's cache as for the restart: a start that counts its messages takes at least that.
- **In and out**: CPU time of the broker's process until it is idle again, per message. The same is measured with a
  shallow queue of 50,000 messages, three times each before the deep queue is filled, while it is full, and after it is
  drained (median of nine): on a second process of our broker, on the same process of a peer. *Files at rest* is their
  size once they no longer shrink.
- **Beside a drain**: three clients each send a message, wait for its receipt, pause for 2 ms, and start over. `plain`
  messages are transient, `stored` and `kept` ones persistent. The clients consume their `plain` and `stored` messages,
  while `kept` ones stay in their queue, so that each of them is written to the disk. Another process drains the deep
  queue. *Without* is the same, 3 s before the drain and 3 s after it.
"""

GOALS = {
    ("restart", "listening"): (2.0, "s until it listens"),
    ("restart", "delivered"): (3.0, "s until the first delivery"),
    ("restart", "rss_peak"): (150.0, "MiB after the first delivery, at most"),
    ("through", "rss_peak"): (300.0, "MiB all along, at most"),
    ("through", "ratio"): (1.4, "times the CPU per message of the shallow queue"),
    ("beside", "p99"): (3.0, "times the p99 of receipts without a drain"),
}


@dataclass(frozen=True)
class Verdict:
    """A goal, what was measured, and whether it is met."""

    part: str
    what: str
    goal: float
    measured: float

    @property
    def met(self) -> bool:
        return self.measured <= self.goal

    def __str__(self) -> str:
        word = "met" if self.met else "missed"
        return f"{word:7}{self.part}: {number(self.measured)} (at most {self.goal:g}) {self.what}"


def judge(parts: dict[str, Any]) -> list[Verdict]:
    """Compare the figures of our broker with the goals. What was not measured has no verdict.

    >>> [str(verdict) for verdict in judge({"through": {"ratio": 1.5, "rss_peak": 100.0}})][1]
    'missed through: 1.5 (at most 1.4) times the CPU per message of the shallow queue'
    """
    found = []
    for (part, figure), (goal, what) in GOALS.items():
        figures = parts.get(part, {})
        if figure == "p99":
            ratios = [one["beside"]["p99"] / one["without"]["p99"] for one in figures.get("probes", {}).values()]
            figures = {"p99": max(ratios)} if ratios else {}
        if figure in figures:
            found.append(Verdict(part, what, goal, figures[figure]))
    return found


def text(found: dict[str, Any]) -> str:
    """Return what a run prints."""
    parts = [section for section in (_restart(found), _through(found), _beside(found)) if section]
    verdicts = "\n".join(map(str, judge(found.get("ours", {}))))
    return "\n\n".join(part for part in (*parts, _faults(found), verdicts) if part)


def write(kept: dict[str, Any], folder: Path) -> None:
    """Write benchmarks-depth.md into a folder, with a section for each label of the result file."""
    parts = [INTRO]
    for label, result in kept.items():
        facts, found = result["facts"], result["brokers"]
        rows = [("date", facts["date"]), ("processor", f"{facts['cpu']}, {facts['cores']} cores")]
        rows += [("system", facts["system"]), ("Python", facts["python"])]
        parts.append(f"## {label}\n\n{grid(('', 'this run'), rows, left=2)}")
        parts.append(facts.get("remark") or "")
        sections = {"A restart": _restart, "In and out": _through, "Others beside a drain": _beside}
        parts += [f"### {title}\n\n{made}" for title, section in sections.items() if (made := section(found))]
        verdicts = [
            (verdict.what, f"{verdict.goal:g}", number(verdict.measured), "yes" if verdict.met else "**no**")
            for verdict in judge(found.get("ours", {}))
        ]
        if verdicts:
            parts.append("### Goals\n\n" + grid(("our broker", "goal", "measured", "met"), verdicts))
        parts.append(_faults(found))
    parts.append(METHOD)
    (folder / "benchmarks-depth.md").write_text("\n".join(part.strip() + "\n" for part in parts if part))
    print(f"written: {folder.name}/benchmarks-depth.md")


def _each(found: dict[str, Any], part: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, parts in found.items():
        if "messages" in parts.get(part, {}):
            yield name, parts[part]


def _faults(found: dict[str, Any]) -> str:
    lines = [
        f"- {name}, {part}: {figures['fault']}"
        for name, parts in found.items()
        for part, figures in parts.items()
        if "fault" in figures
    ]
    return "Left out:\n\n" + "\n".join(lines) if lines else ""


#: The rows of a table: what it says, and the key of the figure.
_RESTART = (
    ("listening, s", "listening"),
    ("CONNECTED, s", "connected"),
    ("first delivery, s", "delivered"),
    ("CPU by then, s", "cpu"),
    ("RSS when listening, MiB", "rss_listening"),
    ("RSS at the first delivery, MiB", "rss_delivered"),
    ("RSS at its peak, MiB", "rss_peak"),
)
_THROUGH = (
    ("CPU per message, µs", "cpu"),
    ("CPU per message, shallow queue, µs", "cpu_shallow"),
    ("deep / shallow", "ratio"),
    ("filled, s", "in_seconds"),
    ("drained, s", "out_seconds"),
    ("RSS when filled, MiB", "rss_filled"),
    ("RSS at its peak, MiB", "rss_peak"),
    ("RSS at the end, MiB", "rss_end"),
    ("files when filled, MiB", "file_filled"),
    ("files when drained, MiB", "file_drained"),
    ("files at rest, MiB", "file_end"),
    ("files at rest after, s", "file_seconds"),
)


def _table(found: dict[str, Any], part: str, rows: list[tuple[str, list[str]]]) -> str:
    measured = dict(_each(found, part))
    messages = ("messages", [f"{one['messages']:,}" for one in measured.values()])
    return grid(("", *measured), ((what, *cells) for what, cells in (messages, *rows)))


def _restart(found: dict[str, Any]) -> str:
    measured = [one for _, one in _each(found, "restart")]
    if not measured:
        return ""
    rows = [(what, [number(one[key]) for one in measured]) for what, key in _RESTART]
    counted = [number(one["count"]["seconds"]) if one["count"] else "" for one in measured]
    return _table(found, "restart", [*rows, ("`SELECT count(*)`, s", counted)])


def _through(found: dict[str, Any]) -> str:
    measured = [one for _, one in _each(found, "through")]
    rows = [(what, [number(one[key]) for one in measured]) for what, key in _THROUGH]
    return _table(found, "through", rows) if measured else ""


def _beside(found: dict[str, Any]) -> str:
    measured = [one for _, one in _each(found, "beside")]
    if not measured:
        return ""
    rows = [("drained in, s", [number(one["drain_seconds"]) for one in measured])]
    for probe in measured[0]["probes"]:
        sides = [one["probes"][probe] for one in measured]
        for key in ("p50", "p99", "max"):
            rows += [
                (f"{probe}, {key} {side}, ms", [number(one[side][key]) for one in sides])
                for side in ("without", "beside")
            ]
        ratios = [number(one["beside"]["p99"] / one["without"]["p99"]) for one in sides]
        rows.append((f"{probe}, p99 beside / without", ratios))
    return _table(found, "beside", rows)
