"""How a library's own suite is run on our codec, and how two runs of it are compared."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patience

import stompcodec

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "compat.py"
if not SCRIPT.is_file():
    pytest.skip("scripts/compat.py is not here: this is no checkout", allow_module_level=True)

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


@pytest.mark.parametrize(("mode", "name"), [("stompman", "FrameParser"), ("stompman:strict", "StrictFrameParser")])
def test_the_plug_in_comes_before_the_suite(tmp_path, mode, name):
    if importlib.util.find_spec("stompman") is None:
        pytest.skip("stompman is not installed: pip install stompman")
    (tmp_path / "test_suite.py").write_text(PATCHED.format(f"stompcodec.compat.stompman.{name}"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    paths = os.pathsep.join([str(Path(stompcodec.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "STOMPCODEC_COMPAT": mode}
    command = [sys.executable, "-m", "pytest", "-p", "stompcodec.compat.suite", "-p", "no:cacheprovider"]
    how = {"capture_output": True, "text": True, "timeout": patience(60)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stompcodec.compat: stompman" in done.stdout


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
