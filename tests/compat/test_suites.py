"""How a library's own suite is run on our codec, and how two runs of it are compared."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from interop import suites
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
from stompman.connection import FrameParser

def test_which(): assert FrameParser.__module__ + "." + FrameParser.__name__ == {!r}
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
        ("stompman", "stompcodec.compat.stompman.FrameParser"),
        ("stompman:strict", "stompcodec.compat.stompman.StrictFrameParser"),
    ],
)
def test_the_plug_in_comes_before_the_suite(tmp_path: Path, mode: str, name: str) -> None:
    if importlib.util.find_spec("stompman") is None:
        pytest.skip("stompman is not installed: pip install stompman")
    (tmp_path / "test_suite.py").write_text(PATCHED.format(name))
    done = run(tmp_path, STOMPCODEC_COMPAT=mode)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"stompcodec.compat: {mode.split(':')[0] or 'nothing'}" in done.stdout


def test_outcomes_by_names_that_pytest_takes(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "test_suite.py").write_text(OUTCOMES)
    (tmp_path / "test_none.py").write_text("import no_such_module")
    options = ["--junitxml=report.xml", "-o", "junit_family=xunit1", "--continue-on-collection-errors"]
    run(tmp_path, *options, STOMPCODEC_COMPAT="")
    found = suites.read(tmp_path / "report.xml")
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
    monkeypatch.setattr(script, "run", lambda *_: left.pop(0))
    outcome = script.compare("stomp.py", Path("stomp.py"))
    assert script.differences(*outcome) == differ
    assert left == []
    assert script.shown("stomp.py", *outcome)[0].endswith(f" {len(differ)} differ")


@pytest.mark.parametrize(
    ("differ", "is_there", "crashes", "status"),
    [(True, True, False, 1), (False, True, False, 0), (False, False, False, 1), (False, True, True, 2)],
)
def test_exit_status(
    script: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    differ: bool,
    is_there: bool,
    crashes: bool,
    status: int,
) -> None:
    """Of a difference, of none, of nothing to run, and of a crash, behind which the others run."""
    runs: list[str] = []

    def run(python: str, name: str, _checkout: Path, mode: str, *_: object) -> dict[str, str]:
        runs.append(name)
        if crashes and name == "stomp.py" and mode:
            raise script.DidNotRun("signal 11", tmp_path / "log")
        return {"t": "failed" if mode and differ else "passed"}

    for name in ("stomp.py", "django-stomp") if is_there else ():
        (tmp_path / name).mkdir()
    (tmp_path / "log").write_text("the reason\n")
    monkeypatch.setattr(sys, "argv", ["compat.py", str(tmp_path)])
    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(script, "python_of", lambda *_: "python")
    monkeypatch.setattr(script.signal, "signal", lambda *_: None)
    assert script.main() == status
    shown = capsys.readouterr()
    assert "skipped: the suite of stompman is not in" in shown.err
    assert ("git clone https://github.com/juntossomosmais/django-stomp" in shown.err) is not is_there
    assert ("CRASHED: did not run to its end: signal 11" in shown.out) is crashes
    assert ("| the reason" in shown.out) is crashes
    assert ("passed -> failed" in shown.out) is differ
    assert runs.count("django-stomp") == is_there * 2 * (6 if differ else 2)  # in two dialects


@pytest.mark.parametrize(
    ("text", "why", "most"),
    [
        ("import os\n\ndef test_a(): os._exit(7)\n", "pytest's exit status was 7", 120),
        ("import os, signal\n\ndef test_a(): os.kill(os.getpid(), signal.SIGKILL)\n", "signal 9", 120),
        ("import threading\n\ndef test_a(): threading.Event().wait()\n", "it was ended after 0.5 s", 0.5),
    ],
    ids=["exits", "killed", "hangs"],
)
def test_a_suite_that_crashed_is_no_outcome(
    text: str, why: str, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pytest_timeout", reason="pytest-timeout is not installed: pip install pytest-timeout")
    monkeypatch.setattr(suites, "_SUITE", most)
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "test_suite.py").write_text(text)
    suite = suites.Suite("stomp.py", (), {"test_suite.py": "test_suite.py"}, ("test_suite.py",))
    log = tmp_path / "logs" / "one.log"
    with pytest.raises(suites.DidNotRun, match=why) as raised:
        suites.run_suite(sys.executable, suite, tmp_path / "checkout", "", [], None, tmp_path / "run", log)
    for line in [str(log), *log.read_text().splitlines()[-3:]]:
        assert line in str(raised.value)


def test_an_internal_error_of_pytest_is_no_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was in the report of a run under load: pytest's own failure stands there as a test."""
    monkeypatch.setattr(suites, "_RAN", (0, 1, 3))
    monkeypatch.setattr(suites, "read", lambda *_: {"pytest::internal": "error"})
    suite = suites.Suite("stomp.py", (), {}, ("test_suite.py",))
    with pytest.raises(suites.DidNotRun, match="pytest itself failed"):
        suites.run_suite(sys.executable, suite, tmp_path, "", ["--version"], None, tmp_path / "run", tmp_path / "log")


def test_a_suite_is_told_where_the_broker_is(tmp_path: Path) -> None:
    """By variables, or in its source; a dialect of ours is there for each."""
    pytest.importorskip("pytest_timeout", reason="pytest-timeout is not installed: pip install pytest-timeout")
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "test_suite.py").write_text(
        "import os\n\ndef test_a():\n    assert os.environ['WHERE'] == 'h:5'\n    assert '1234' == '6:7'\n"
    )
    suite = suites.Suite(
        "stomp.py",
        (),
        {"test_suite.py": "test_suite.py"},
        ("test_suite.py",),
        0,
        environment=(("WHERE", "{host}:{port}"),),
        edits=(("test_suite.py", "1234", "{login}:{passcode}"),),
    )
    place = suites.Place("h", 5, 0, "6", "7")
    found = suites.run_suite(
        sys.executable, suite, tmp_path / "checkout", "", [], place, tmp_path / "run", tmp_path / "log"
    )
    assert set(found.values()) == {"passed"}, (tmp_path / "log").read_text()
    for each in suites.SUITES.values():
        for dialect in each.dialects:
            assert (SCRIPT.parents[1] / "examples" / "brokers" / f"{dialect}.toml").is_file()
