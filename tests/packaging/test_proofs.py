"""scripts/proofs.py and scripts/rules_page.py: what they count, and when their pages are stale."""

from __future__ import annotations

import doctest
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from crash.ledger import Ledger

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
INTEROP = """# Interoperability

Versions on 2026-11-23: stomp.py 9.0.0, RabbitMQ 3.10.8.

## Our client against RabbitMQ

| client | connect | queues | nack |
| --- | :-: | :-: | :-: |
| sync 1.0 | ok | ok | - |
| sync 1.2 | ok | FAIL | ok |

- nack of sync 1.0: 1.0 has no NACK

## Notes
"""

pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="only tests/ is here")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a script, with those that it imports."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


@pytest.fixture
def proofs(load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The script, with pages and runs of its own."""
    module = load("proofs")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "interop.md").write_text(INTEROP)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PAGE", tmp_path / "docs" / "proofs.md")
    monkeypatch.setattr(module, "INTEROP", tmp_path / "docs" / "interop.md")
    monkeypatch.setattr(module, "_head", lambda: "abc")
    monkeypatch.setattr(module.rules_page, "proofs", lambda tests: {})
    return module


def lines_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_lines_of_figures_are_those_that_the_tools_print(load: Any) -> None:
    read = load("proofs").totals_of
    assert read("crash", f"20 kills in 60 s: {Ledger().figures()}\n5 kills of the storage in 1 s: x\n") == {
        "kills": 20,
        "kills of the storage": 5,
        "confirmed messages": 0,
    }
    assert 'print(f"{count} {name} in {time.monotonic() - began:.0f} s: {ledger.figures()}")' in lines_of(
        "scripts/crash.py"
    )
    assert read("spark", "20 rounds in 60 s: 0 missing, 0 duplicates, 0 left in the broker\n") == {"rounds": 20}
    assert 'f"{options.rounds} rounds in {time.monotonic() - began:.0f} s:"' in lines_of("scripts/spark_crash.py")
    assert read("simulation", "\n9 passed, 1 failed; 77 frames in 3 s\n") == {"passed": 9, "failed": 1, "frames": 77}
    assert "{seeds - bad} passed, {bad} failed; {frames} frames in" in lines_of("scripts/simulate.py")
    assert "targets, {total:,} executions, {len(findings)} findings" in lines_of("fuzz/run.py")
    assert read("fuzz-tcp", "seed 1\n1,234 hostile sessions, 5,678 bytes, 9 messages\n") == {
        "hostile sessions": 1234,
        "bytes": 5678,
    }
    assert 'f"{self.sessions:,} hostile sessions, {self.octets:,} bytes, ' in lines_of("fuzz/tcp.py")
    assert read("mutations", "client  2 killed\ntotal        1 harmless, 60 killed\n") == {"harmless": 1, "killed": 60}
    assert 'f"{room:12} "' in lines_of("scripts/mutations.py")


def test_a_run_without_figures_is_not_kept(proofs: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no line of figures"):
        proofs.totals_of("crash", "Traceback\n")


@pytest.mark.parametrize(("status", "result"), [(0, "passed"), (3, "**failed**")])
def test_a_run_is_kept_whether_it_passed_or_not(
    proofs: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, result: str
) -> None:
    (tmp_path / "tool.py").write_text(
        f"import sys\nprint(sys.argv[2], 'kills in 3 s: 7 sent, 5 receipted')\nsys.exit({status})\n"
    )
    monkeypatch.setitem(proofs.KINDS, "crash", proofs.KINDS["crash"]._replace(command="tool.py"))
    for rounds in ("20", "1000"):
        assert proofs.main(["run", "crash", "--", "--rounds", rounds]) == status
    first, second = json.loads((tmp_path / "proofs" / "crash.json").read_text())
    assert (first["command"], first["passed"]) == ("tool.py --rounds 20", status == 0)
    assert second["totals"] == {"kills": 1000, "confirmed messages": 5}
    page = (tmp_path / "docs" / "proofs.md").read_text()
    assert (
        f"| [Kills and cuts](#kills-and-cuts) | 2 | {2 if status else 0} | 1,020 kills, 10 confirmed messages |" in page
    )
    assert f"| abc | `tool.py --rounds 1000` | 1,000 kills, 5 confirmed messages | {result} |" in page


def test_a_log_of_a_run_elsewhere_is_kept(proofs: Any, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("22 targets, 9,876,543 executions, 0 findings\n")
    assert proofs.main(["add", "fuzz", str(log)]) == 2
    command = ["--command", "make fuzz SECONDS=900", "--commit", "def", "--date", "2030-01-31", "--note", "on arm64"]
    assert proofs.main(["add", "fuzz", str(log), *command]) == 0
    page = (tmp_path / "docs" / "proofs.md").read_text()
    figures = "22 targets, 9,876,543 executions, 0 findings"
    assert f"| 2030-01-31 | def | `make fuzz SECONDS=900` | {figures} | passed; on arm64 |" in page


def test_the_page_is_stale_when_runs_or_the_tables_of_interop_change(
    proofs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert proofs.main(["--check"]) == 1
    assert proofs.main(["add", "interop", "--date", "2030-01-31"]) == 0
    assert proofs.main(["--check"]) == 0
    page = (tmp_path / "docs" / "proofs.md").read_text()
    assert "| [Our client against RabbitMQ](interop.md#our-client-against-rabbitmq) | 4 | 1 | 1 |" in page
    assert "stomp.py 9.0.0, RabbitMQ 3.10.8" in page
    interop = tmp_path / "docs" / "interop.md"
    interop.write_text(INTEROP.replace("## Notes", "Words.\n\n## Notes"))
    assert proofs.main(["--check"]) == 0
    interop.write_text(INTEROP.replace("FAIL", "ok"))
    capsys.readouterr()
    assert proofs.main(["--check"]) == 1
    assert "docs/interop.md has changed" in capsys.readouterr().out
    interop.write_text(INTEROP)
    (tmp_path / "proofs" / "interop.json").unlink()
    assert proofs.main(["--check"]) == 1


# ---- requirements ----


def test_every_rule_has_a_test(load: Any) -> None:
    page = load("rules_page")
    found = page.proofs(ROOT / "tests")
    rows = page.rules()
    assert {row["protocol"] for row in rows} == set(page.PROTOCOLS)
    assert [row["id"] for row in rows if row["id"] not in found] == []
    assert sum(number for _, number in page.counts(rows, found).values()) == len(rows)
    for cases in found.values():
        for case in cases:
            assert (ROOT / "tests" / case.file).is_file()


def test_marks_and_keys_are_proofs_and_other_words_are_not(load: Any, tmp_path: Path) -> None:
    (tmp_path / "vectors").mkdir()
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "vectors" / "a.json").write_text('[{"id": "A-1", "requirements": ["S12-A-01"], "note": "S12-A-09"}]')
    (tmp_path / "scenarios" / "b.json").write_text('{"scenarios": [{"id": "B-1", "requirements": ["S12-A-02"]}]}')
    (tmp_path / "test_c.py").write_text(
        "import pytest\npytestmark = [pytest.mark.req('S12-A-03')]\n"
        "CASES = [pytest.param(1, marks=pytest.mark.req('S12-A-04'))]\n"
        "class TestD:\n    @pytest.mark.req('S12-A-01', 'S12-A-05')\n    def test_e(self):\n        '''S12-A-09'''\n"
    )
    found = load("rules_page").proofs(tmp_path)
    assert {rule: [tuple(case) for case in cases] for rule, cases in found.items()} == {
        "S12-A-01": [("vectors/a.json", "A-1"), ("test_c.py", "test_e")],
        "S12-A-02": [("scenarios/b.json", "B-1")],
        "S12-A-03": [("test_c.py", "")],
        "S12-A-04": [("test_c.py", "")],
        "S12-A-05": [("test_c.py", "test_e")],
    }


@pytest.mark.parametrize("name", ["proofs", "rules_page"])
def test_the_examples(load: Any, name: str) -> None:
    found = doctest.testmod(load(name))
    assert found.attempted
    assert not found.failed


def test_check_says_that_a_page_is_stale(
    load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = load("rules_page")
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "requirements.md")
    monkeypatch.setattr(page, "page", lambda: "a")
    for arguments, status in ((["--check"], 1), ([], 0), (["--check"], 0)):
        monkeypatch.setattr(sys, "argv", ["rules_page.py", *arguments])
        assert page.main() == status
    monkeypatch.setattr(page, "page", lambda: "b")
    assert page.main() == 1
    assert capsys.readouterr().out.count("requirements.md is stale") == 2
