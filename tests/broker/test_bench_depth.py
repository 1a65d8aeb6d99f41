"""The benchmark of deep queues: its parts measure a small queue rightly; times and memory are not judged."""

from __future__ import annotations

import importlib
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
MESSAGES = 2_000

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (FOLDER / "depth.py").exists(), reason="the benchmarks are not here"),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the benchmark reads /proc"),
]


@pytest.fixture(scope="module")
def modules() -> Iterator[SimpleNamespace]:
    """Import the modules of the benchmark, and forget them afterwards."""
    before, path = dict(sys.modules), list(sys.path)
    sys.path.insert(0, str(FOLDER))
    names = ("depth", "depth_hosts", "depth_parts", "depth_report", "brokers", "load")
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - set(before):
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == FOLDER:
                del sys.modules[name]


@pytest.fixture(scope="module")
def host(modules: SimpleNamespace) -> Iterator[Any]:
    """One broker for all parts."""
    with modules.depth_hosts.hosted("ours", MESSAGES, None, None) as found:
        yield found


@pytest.fixture
def plan(modules: SimpleNamespace, host: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A plan whose brokers are all the one broker, and which keeps what it is told in `plan.said`."""
    told: list[tuple[str, int, int]] = []

    @contextmanager
    def same(*_arguments: Any) -> Iterator[Any]:
        if host.ended:
            host.spawn()
            host.wait_until_it_listens()
        yield host

    monkeypatch.setattr(modules.depth_parts, "hosted", same)
    monkeypatch.setattr(modules.depth_parts, "_STEADY", 0.0)
    monkeypatch.setattr(modules.brokers, "REST", 2)
    found = modules.depth_parts.Plan(MESSAGES, 1, 100, progress=lambda *said: told.append(said))
    object.__setattr__(found, "said", told)
    return found


def test_in_and_out(modules: SimpleNamespace, plan: Any) -> None:
    found = modules.depth_parts.in_and_out("ours", plan)
    assert (found["messages"], found["shallow_messages"]) == (MESSAGES, 100)
    assert found["ratio"] == pytest.approx(found["cpu"] / found["cpu_shallow"])
    assert found["rss_peak"] >= found["rss_filled"] > 5
    assert found["file_filled"] > MESSAGES * 100 / 2**20
    steps = {what for what, _, _ in plan.said}
    assert {"ours: fill", "ours: drain", "ours: 100 in and out"} <= steps
    assert ("ours: fill", MESSAGES, MESSAGES) in plan.said or ("ours: drain", MESSAGES, MESSAGES) in plan.said
    assert all(0 <= done <= total for _, done, total in plan.said)


def test_receipts_beside_a_drain(modules: SimpleNamespace, plan: Any) -> None:
    found = modules.depth_parts.beside_a_drain("ours", plan, quiet=0.05)
    assert found["drain_seconds"] > 0
    assert list(found["probes"]) == ["plain", "stored", "kept"]
    for sides in found["probes"].values():
        for side in sides.values():
            assert side["count"] >= 1
            assert 0 < side["p50"] <= side["p99"] <= side["max"]


def test_a_restart(modules: SimpleNamespace, plan: Any, host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules.depth_parts, "_PATIENCE", 20.0)
    first = host._process
    found = modules.depth_parts.restarts("ours", plan)
    assert first.returncode == -signal.SIGKILL
    assert found["count"]["rows"] == MESSAGES
    assert 0 < found["listening"] <= found["connected"] <= found["delivered"]
    assert found["rss_peak"] >= found["rss_delivered"] > 5
    assert found["cpu"] > 0
    assert host.ended
    modules.depth_parts._restart(host)
    # What the consumer after the restart was given came back: nothing is missing.
    modules.depth_parts.drain(host.port, "/queue/deep", MESSAGES, lambda _done: None)


def test_too_many_messages_are_a_fault(modules: SimpleNamespace, host: Any) -> None:
    modules.depth_parts.fill(host, "/queue/over", 30, lambda _done: None)
    with pytest.raises(modules.load.WrongError, match="30 messages came of 29"):
        modules.depth_parts.drain(host.port, "/queue/over", 29, lambda _done: None)


def test_faults_are_kept_and_shown(modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise modules.load.WrongError("9 messages came of 10")

    monkeypatch.setitem(modules.depth.PARTS, "through", fails)
    found = modules.depth.measure(["ours", "rabbitmq"], ["through", "restart"][:1], {"through": 10})
    assert found["ours"] == {"through": {"fault": "WrongError: 9 messages came of 10"}}
    assert "- rabbitmq, through: WrongError: 9 messages" in modules.depth_report.text(found)


def figures(**more: Any) -> dict[str, Any]:
    times = {"p50": 1.0, "p95": 1.0, "max": 9.0, "count": 9}
    sides = {"without": {"p99": 2.0, **times}, "beside": {"p99": 5.0, **times}}
    return {
        "through": {"messages": 10, "ratio": 1.5, "rss_peak": 299.0},
        "beside": {"messages": 10, "drain_seconds": 1.0, "probes": {"plain": sides}},
        **more,
    }


def test_goals(modules: SimpleNamespace) -> None:
    verdicts = modules.depth_report.judge(figures())
    assert [(verdict.part, verdict.measured, verdict.met) for verdict in verdicts] == [
        ("through", 299.0, True),
        ("through", 1.5, False),
        ("beside", 2.5, True),
    ]
    assert modules.depth_report.judge({"restart": {"fault": "x"}}) == []


def run(modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, *given: str) -> int:
    monkeypatch.setitem(modules.depth.PARTS, "beside", lambda *_: figures()["beside"])
    return int(modules.depth.main(["--messages", "10", "--parts", "beside", *given]))


def test_results_are_kept_by_label_and_written_as_a_page(
    modules: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ["--results", str(tmp_path / "depth.json")]
    assert run(modules, monkeypatch, *kept, "--label", "before", "--remark", "Alone.") == 0
    capsys.readouterr()
    assert run(modules, monkeypatch, *kept, "--label", "before", "--json", "--judge") == 0
    assert json.loads(capsys.readouterr().out)["brokers"]["ours"]["beside"]["messages"] == 10
    assert run(modules, monkeypatch, *kept, "--label", "after") == 0
    assert "| plain, p99 beside / without | 2.5 |" in capsys.readouterr().out
    monkeypatch.setattr(modules.depth, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    assert run(modules, monkeypatch, *kept, "--page") == 0
    page = (tmp_path / "docs" / "benchmarks-depth.md").read_text()
    assert page.count("### Others beside a drain") == 2
    assert "## before\n" in page
    assert "### A restart" not in page, "nobody measured it"
    assert page.count("\nAlone.\n") == 1, "it stays with its label"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["--messages", "1"], "at least 2"),
        (["--messages", str(10**12)], "GB are needed"),
        (["--parts", "restart,nothing"], "'nothing' is none of restart, through, beside"),
    ],
)
def test_wrong_options(
    modules: SimpleNamespace, given: list[str], fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        modules.depth.main(given)
    assert ended.value.code == 2
    assert fault in capsys.readouterr().err


def test_peers_are_absent_without_a_folder(modules: SimpleNamespace) -> None:
    found = modules.depth.measure(["activemq"], ["restart"], {"restart": 10}, recipes=None)
    assert found["activemq"]["restart"]["fault"].startswith("AbsentError: its start script is not known")
