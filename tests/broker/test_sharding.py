"""The calculation of docs/sharding.md: the simulation loses nothing, is right where a formula says what must come out,
and the page shows what it says."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"

pytestmark = pytest.mark.skipif(not (FOLDER / "sharding.py").exists(), reason="the benchmarks are not here")


@pytest.fixture(scope="module")
def modules() -> Iterator[SimpleNamespace]:
    before, path = dict(sys.modules), list(sys.path)
    sys.path.insert(0, str(FOLDER))
    try:
        names = ("sharding", "draw_sharding", "svg")
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - set(before):
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent in (FOLDER, ROOT / "scripts"):
                del sys.modules[name]


@pytest.fixture
def costs(modules: SimpleNamespace) -> Any:
    return modules.draw_sharding.costs()


WORKLOADS: list[dict[str, Any]] = [
    {},
    {"acked": True},
    {"stored": True},
    {"stored": True, "acked": True, "destinations": 5},
    {"acked": True, "destinations": 5},
    {"hot": True},
    {"subscribers": 7},
]


@pytest.mark.parametrize("more", WORKLOADS, ids=lambda more: "-".join(more) or "plain")
@pytest.mark.parametrize("processes", [1, 3, 8])
def test_what_is_sent_is_delivered_once(
    modules: SimpleNamespace, costs: Any, processes: int, more: dict[str, Any]
) -> None:
    run = modules.sharding.Simulation(costs, modules.sharding.Workload(9, 20, 5, **more), processes)
    run.run(3000)
    assert run.sent > 0
    run.drain()
    copies = more.get("subscribers", 1)
    assert run.delivered == run.sent * copies
    assert run.acknowledged == (run.sent if "acked" in more else 0)
    assert run.receipts == (run.sent if "stored" in more else 0)
    assert run.syncing == 0
    assert not any(shard.inbox for shard in run.shards)


def test_one_busy_process_does_what_its_costs_say(modules: SimpleNamespace) -> None:
    costs = modules.sharding.Costs(message=3.0, ack=2.0)
    workload = modules.sharding.Workload(20, 100, 10, acked=True)
    assert modules.sharding.simulate(costs, workload, 1, seconds=0.2).rate == pytest.approx(1e6 / 5, rel=0.02)


def test_one_message_takes_the_sum_of_its_steps(modules: SimpleNamespace, costs: Any) -> None:
    one = modules.sharding.Workload(1, 1, 1)
    cycle = 2 * costs.network + costs.wake + costs.socket + costs.message
    assert modules.sharding.simulate(costs, one, 1, seconds=0.5).rate == pytest.approx(1e6 / cycle, rel=0.01)
    cycle += costs.commit + costs.stored + costs.sync(1, 1)
    stored = replace(one, stored=True)
    assert modules.sharding.simulate(costs, stored, 1, seconds=0.5).rate == pytest.approx(1e6 / cycle, rel=0.01)


def test_a_hop_costs_both_processes(modules: SimpleNamespace) -> None:
    costs = modules.sharding.Costs(message=10.0, ack=4.0, frame=2.0, ack_frame=1.0)
    run = modules.sharding.Simulation(costs, modules.sharding.Workload(8, 4, 2, 6, acked=True), 2)
    run.run(5000)
    run.drain()
    away = run.hops // 3  # SEND, MESSAGE and ACK of each message whose queue has another owner
    assert 0 < away < run.sent
    assert run.hops == 3 * away
    # SEND: parsed and written at home, parsed by the owner. MESSAGE: parsed and written at home. ACK: as SEND.
    extra = away * (2.0 + 1.0 + 2.0 + 1.0 + 0.5)
    assert sum(shard.busy for shard in run.shards) == pytest.approx(run.sent * 14.0 + extra)


def test_processes_share_the_cores(modules: SimpleNamespace) -> None:
    costs, workload = modules.sharding.Costs(message=5.0), modules.sharding.Workload(20, 100, 10)
    rates = [modules.sharding.simulate(costs, workload, 2, cores, seconds=0.2).rate for cores in (1, 2)]
    assert rates == [pytest.approx(2e5, rel=0.03), pytest.approx(4e5, rel=0.03)]


def test_the_disk_is_a_limit_for_all(modules: SimpleNamespace) -> None:
    costs = modules.sharding.Costs(message=0.1, disk=1e7, written=100.0)
    workload = modules.sharding.Workload(20, 100, 10, stored=True)
    for processes in (1, 4):
        rate = modules.sharding.simulate(costs, workload, processes, seconds=0.5).rate
        assert rate == pytest.approx(1e5, rel=0.1), processes


def test_commits_wait_for_each_other(modules: SimpleNamespace) -> None:
    costs = modules.sharding.Costs(message=1.0, commit=10.0, syncs=((1, 1000.0), (2, 1000.0)))
    run = modules.sharding.Simulation(costs, modules.sharding.Workload(10, 1, 1, stored=True), 1)
    run.run(1e6)
    assert run.committers[0].commits == pytest.approx(1e6 / 1010, rel=0.02)


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_hashing_never_gives_more_than_there_is(modules: SimpleNamespace, exponent: float) -> None:
    for destinations, processes in ((1, 4), (5, 4), (100, 4), (1000, 64)):
        found = modules.sharding.balance(destinations, processes, exponent)
        assert 1.0 <= found <= min(destinations, processes)
    assert modules.sharding.balance(100, 1, exponent) == pytest.approx(1.0)


def test_the_same_seed_gives_the_same(modules: SimpleNamespace, costs: Any) -> None:
    workload = modules.sharding.Workload(10, 20, 5, 4, acked=True)
    once, again, other = (modules.sharding.simulate(costs, workload, 4, seconds=0.02, seed=seed) for seed in (1, 1, 2))
    assert once == again
    assert once != other


# ---- the page ----


def table(page: str, name: str) -> dict[str, list[str]]:
    block = page[page.index(f"<!-- {name}: ") : page.index(f"<!-- end of {name} ")]
    rows = [line.strip("| ").split(" | ") for line in block.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in rows}


def test_cheap_figures_of_the_page_are_fresh(modules: SimpleNamespace) -> None:
    drawing, page = modules.draw_sharding, (ROOT / "docs" / "sharding.md").read_text("utf-8")
    assert f"\n{drawing._costs()}\n\n<!-- end of costs" in page
    speed = table(page, "speed")
    for name in ("own", "stored", "many", "topic"):
        row = speed[drawing.SCALED[name][0]]
        assert row[1:3] == [f"{drawing.speed_up(name, count):.1f}" for count in (2, 4)], name
    compared = table(page, "compared")
    one, two = drawing.compared("window-100")
    row = compared[drawing.COMPARED["window-100"][0]]
    assert (row[0], row[3]) == (f"{one:,.3g}" if one < 1000 else drawing.number(one), f"{two / one:.2f}")


def test_plots_show_the_tables(modules: SimpleNamespace) -> None:
    """The last point of each line is the last cell of its row."""
    drawing, svg = modules.draw_sharding, modules.svg
    page = (ROOT / "docs" / "sharding.md").read_text("utf-8")
    for name, file in (("speed", "sharding-speed.svg"), ("balance", "sharding-balance.svg")):
        text = (ROOT / "docs" / file).read_text("utf-8")
        lines = re.findall(r'<polyline points="([^"]+)"[^>]*stroke="(#\w+)"', text)
        labels = dict(re.findall(r'fill="(#\w{6})">([^<]+)</text>', text))
        assert len(lines) == 6
        shown = 0
        for points, colour in lines:
            row = table(page, name).get(labels[colour])
            if row is None:
                continue
            height = float(points.split()[-1].split(",")[1])
            share = (svg.HEIGHT - svg.BOTTOM - height) / (svg.HEIGHT - svg.BOTTOM - svg.TOP)
            assert 64**share == pytest.approx(float(row[-1]), rel=0.03, abs=0.06)
            shown += 1
        assert shown == 5
    assert drawing.PROCESSES[-1] == 64


def test_a_chart_puts_points_where_they_belong(modules: SimpleNamespace) -> None:
    svg = modules.svg
    lines = [svg.Series("up & on", [(1, 1), (8, 8), (64, 64)]), svg.Series("flat", [(1, 1), (64, 1)], dashed=True)]
    text = svg.chart("title", "across", "up", lines, [1, 8, 64], [1, 8, 64])
    right, bottom = svg.WIDTH - svg.RIGHT, svg.HEIGHT - svg.BOTTOM
    middle = f"{(svg.LEFT + right) / 2:.1f},{(svg.TOP + bottom) / 2:.1f}"
    assert f'points="{svg.LEFT:.1f},{bottom:.1f} {middle} {right:.1f},{svg.TOP:.1f}"' in text
    assert f'points="{svg.LEFT:.1f},{bottom:.1f} {right:.1f},{bottom:.1f}"' in text
    assert text.count("<circle") == 3
    assert text.count("stroke-dasharray") == 1
    assert ">up &amp; on</text>" in text


def test_a_stale_page_is_noticed(
    modules: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawing = modules.draw_sharding
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "sharding.md").write_text("<!-- a: by b -->\nold\n<!-- end of a -->\n", "utf-8")
    monkeypatch.setattr(drawing, "ROOT", tmp_path)
    monkeypatch.setattr(drawing, "blocks", lambda: {"a": "new"})
    monkeypatch.setattr(drawing, "plots", lambda: {"a.svg": "<svg/>"})
    assert drawing.main(["--check"]) == 1
    assert "\nold\n" in (tmp_path / "docs" / "sharding.md").read_text("utf-8")
    assert not (tmp_path / "docs" / "a.svg").exists()
    assert "stale, run benchmarks/draw_sharding.py: sharding.md, a.svg" in capsys.readouterr().out
    assert drawing.main([]) == 0
    assert drawing.main(["--check"]) == 0
    assert "\nnew\n" in (tmp_path / "docs" / "sharding.md").read_text("utf-8")


@pytest.mark.slow
def test_the_page_is_what_the_simulation_says(modules: SimpleNamespace) -> None:
    assert modules.draw_sharding.main(["--check"]) == 0, "run benchmarks/draw_sharding.py"


@pytest.mark.parametrize("name", ["sharding", "svg"])
def test_examples_run(modules: SimpleNamespace, name: str) -> None:
    failed, tried = doctest.testmod(getattr(modules, name))
    assert tried > 0
    assert failed == 0
