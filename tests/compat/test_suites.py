"""How a library's own suite is run on our codec, and how two runs of it are compared."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

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
def script():
    """scripts/compat.py as a module. It changes sys.path for itself."""
    before = list(sys.path)
    spec = importlib.util.spec_from_file_location("scripts_compat", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["scripts_compat"] = module
    spec.loader.exec_module(module)
    sys.path[:] = before
    yield module
    del sys.modules["scripts_compat"]


def run(folder, *arguments, mode=""):
    paths = os.pathsep.join([str(Path(stompcodec.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "stompcodec.compat.suite", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": paths, "STOMPCODEC_COMPAT": mode}
    how = {"capture_output": True, "text": True, "timeout": patience(60)}
    return subprocess.run(command, cwd=folder, env=environment, check=False, **how)


@pytest.mark.parametrize(("mode", "name"), [("stompman", "FrameParser"), ("stompman:strict", "StrictFrameParser")])
def test_the_plug_in_comes_before_the_suite(tmp_path, mode, name):
    if importlib.util.find_spec("stompman") is None:
        pytest.skip("stompman is not installed: pip install stompman")
    (tmp_path / "test_suite.py").write_text(PATCHED.format(f"stompcodec.compat.stompman.{name}"))
    done = run(tmp_path, mode=mode)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stompcodec.compat: stompman" in done.stdout


def test_outcomes_by_names_that_pytest_takes(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "test_suite.py").write_text(OUTCOMES)
    (tmp_path / "test_none.py").write_text("import no_such_module")
    run(tmp_path, "--junitxml=report.xml", "-o", "junit_family=xunit1", "--continue-on-collection-errors")
    found = suites.read(tmp_path / "report.xml")
    tests = {name.removeprefix("inner/test_suite.py::"): word for name, word in found.items() if "inner" in name}
    each = {f"TestClass::test_each[{value}]": "passed" for value in ("a.b", "c-d")}
    outcomes = {"test_good": "passed", "test_bad": "failed", "test_skipped": "skipped", "test_broken": "error"}
    assert tests == {**outcomes, **each}
    assert [word for name, word in found.items() if "test_none" in name] == ["error"]
    assert "2 passed" in run(tmp_path, *(name for name in found if "each" in name)).stdout


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
def test_what_differs_is_run_again(script, monkeypatch, runs, differ):
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
def test_exit_status(script, monkeypatch, capsys, tmp_path, differ, is_there, crashes, status):
    """Of a difference, of none, of nothing to run, and of a crash, behind which the others run."""
    runs = []

    def run(python, name, _checkout, mode, *_):
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


@pytest.fixture
def run_suite(tmp_path):
    """Run the text of a suite."""
    pytest.importorskip("pytest_timeout", reason="pytest-timeout is not installed: pip install pytest-timeout")

    def run(text, place=None, **options):
        (tmp_path / "checkout").mkdir()
        (tmp_path / "checkout" / "test_suite.py").write_text(text)
        files = {"test_suite.py": "test_suite.py"}
        suite = suites.Suite("stomp.py", (), files, ("test_suite.py",), **options)
        where = (tmp_path / "run", tmp_path / "logs" / "one.log")
        return suites.run_suite(sys.executable, suite, tmp_path / "checkout", "", [], place, *where)

    return run


@pytest.mark.parametrize(
    ("text", "why", "most"),
    [
        ("import os\n\ndef test_a(): os._exit(7)\n", "pytest's exit status was 7", 120),
        ("import os, signal\n\ndef test_a(): os.kill(os.getpid(), signal.SIGKILL)\n", "signal 9", 120),
        ("import threading\n\ndef test_a(): threading.Event().wait()\n", "it was ended after 0.5 s", 0.5),
    ],
    ids=["exits", "killed", "hangs"],
)
def test_a_suite_that_crashed_is_no_outcome(text, why, most, run_suite, tmp_path, monkeypatch):
    monkeypatch.setattr(suites, "_SUITE", most)
    log = tmp_path / "logs" / "one.log"
    with pytest.raises(suites.DidNotRun, match=why) as raised:
        run_suite(text)
    for line in [str(log), *log.read_text().splitlines()[-3:]]:
        assert line in str(raised.value)


def test_a_suite_is_told_where_the_broker_is(run_suite):
    """By variables, or in its source; a dialect of ours is there for each."""
    text = "import os\n\ndef test_a():\n    assert os.environ['WHERE'] == 'h:5'\n    assert '1234' == '6:7'\n"
    how = {"environment": (("WHERE", "{host}:{port}"),), "edits": (("test_suite.py", "1234", "{login}:{passcode}"),)}
    assert set(run_suite(text, suites.Place("h", 5, 0, "6", "7"), port=0, **how).values()) == {"passed"}
    for each in suites.SUITES.values():
        for dialect in each.dialects:
            assert (SCRIPT.parents[1] / "examples" / "brokers" / f"{dialect}.toml").is_file()
