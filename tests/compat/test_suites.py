"""How a library's own suite is run on our codec, and how two runs of it are compared."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import patience

import stompcodec

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "compat.py"
if not SCRIPT.is_file():
    pytest.skip("scripts/compat.py is not here: this is no checkout", allow_module_level=True)

OUTCOMES = """
import pytest

def test_good(): pass
def test_bad(): assert False
@pytest.mark.skip
def test_skipped(): pass
@pytest.fixture
def broken(): raise RuntimeError
def test_broken(broken): pass
class TestClass:
    @pytest.mark.parametrize("value", ["a.b", "c-d"])
    def test_each(self, value): pass
"""
PATCHED = """
from coilmq.util.frames import FrameBuffer

def test_which(): assert FrameBuffer.__module__ + "." + FrameBuffer.__name__ == {!r}
"""


@pytest.fixture(scope="module")
def script() -> Any:
    """scripts/compat.py as a module. It changes sys.path for itself."""
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location("scripts_compat", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scripts_compat"] = module
    spec.loader.exec_module(module)
    sys.path[:] = before
    yield module
    del sys.modules["scripts_compat"]


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(Path(stompcodec.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "stompcodec.compat.suite", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )


@pytest.mark.parametrize(
    ("mode", "name"),
    [
        ("", "coilmq.util.frames.FrameBuffer"),
        ("coilmq", "stompcodec.compat.coilmq.FrameBuffer"),
        ("coilmq:strict", "stompcodec.compat.coilmq.StrictFrameBuffer"),
    ],
    ids=["as-it-is", "quirks", "strict"],
)
def test_the_plug_in_comes_before_the_suite(tmp_path: Path, mode: str, name: str) -> None:
    if importlib.util.find_spec("coilmq") is None:
        pytest.skip("coilmq is not installed: pip install coilmq")
    (tmp_path / "test_suite.py").write_text(PATCHED.format(name))
    done = run(tmp_path, STOMPCODEC_COMPAT=mode)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"stompcodec.compat: {mode.split(':')[0] or 'nothing'}" in done.stdout


def test_a_peer_that_nobody_knows_ends_it(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(OUTCOMES)
    assert run(tmp_path, STOMPCODEC_COMPAT="pika").returncode not in (0, 1)


def test_outcomes_by_names_that_pytest_takes(script: Any, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "test_suite.py").write_text(OUTCOMES)
    (tmp_path / "test_none.py").write_text("import no_such_module")
    options = ["--junitxml=report.xml", "-o", "junit_family=xunit1", "--continue-on-collection-errors"]
    run(tmp_path, *options, STOMPCODEC_COMPAT="")
    found = script.read(tmp_path / "report.xml")
    tests = {name.removeprefix("inner/test_suite.py::"): word for name, word in found.items() if "inner" in name}
    assert tests == {
        "test_good": "passed",
        "test_bad": "failed",
        "test_skipped": "skipped",
        "test_broken": "error",
        "TestClass::test_each[a.b]": "passed",
        "TestClass::test_each[c-d]": "passed",
    }
    assert [word for name, word in found.items() if "test_none" in name] == ["error"]
    again = run(tmp_path, *(name for name in found if "each" in name), STOMPCODEC_COMPAT="")
    assert "2 passed" in again.stdout


@pytest.mark.parametrize(
    ("runs", "differ"),
    [
        ([{"a": "passed"}, {"a": "passed"}], []),
        ([{"a": "failed"}, {"a": "failed"}], []),
        ([{"a": "passed"}, {"a": "failed"}] * 3, ["a"]),
        ([{"a": "passed"}, {}] * 3, ["a"]),
        # It failed once, and not again.
        ([{"a": "passed", "b": "passed"}, {"a": "failed", "b": "passed"}, {"a": "passed"}, {"a": "passed"}], []),
    ],
    ids=["same", "same-failure", "differ", "gone", "once"],
)
def test_what_differs_is_run_again(
    script: Any, monkeypatch: pytest.MonkeyPatch, runs: list[dict[str, str]], differ: list[str]
) -> None:
    left = [dict(found) for found in runs]
    monkeypatch.setattr(script, "python_of", lambda name, suite: "python")
    monkeypatch.setattr(script, "run", lambda python, suite, checkout, mode, only: left.pop(0))
    outcome = script.compare("coilmq", Path("coilmq"), False, [])
    assert outcome.differences() == differ
    assert left == []
    shown = "\n".join(script.table({"coilmq": outcome}))
    assert ("NOT EXPLAINED" in shown) == bool(differ)


@pytest.mark.parametrize(("reason", "status"), [(None, 1), ("the clock", 0)])
def test_exit_status(
    script: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    reason: str | None,
    status: int,
) -> None:
    (tmp_path / "coilmq").mkdir()
    monkeypatch.setattr(sys, "argv", ["compat.py", str(tmp_path)])
    monkeypatch.setattr(script.signal, "signal", lambda *_: None)
    monkeypatch.setattr(script, "compare", lambda *_: script.Outcome({"t": "passed"}, {"t": "failed"}))
    monkeypatch.setattr(script, "EXPLAINED", {("coilmq", "t"): reason} if reason else {})
    assert script.main() == status
    shown = capsys.readouterr()
    assert "skipped: there is no" in shown.err
    assert (reason or "NOT EXPLAINED") in shown.out


def test_nothing_to_run_is_no_success(script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["compat.py", str(tmp_path)])
    monkeypatch.setattr(script.signal, "signal", lambda *_: None)
    assert script.main() == 1
