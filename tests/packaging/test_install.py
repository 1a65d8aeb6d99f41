"""scripts/install.py: what `make demo` shows while it installs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SAID = """Processing /work
  Preparing metadata (pyproject.toml): started
Collecting pyspark<5,>=4.0 (from stompcodec==0.1.0)
  Downloading pyspark-4.0.0.tar.gz (434.1 MB)
     10.0/434.1 MB
Collecting click (from stompcodec==0.1.0)
  Using cached click-8.5.1-py3-none-any.whl (126 kB)
Building wheels for collected packages: stompcodec, pyspark
Installing collected packages: py4j, pyspark, click, stompcodec
Successfully installed click-8.5.1 py4j-0.10 pyspark-4.0.0 stompcodec-0.1.0
"""


@pytest.fixture
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install_script", ROOT / "scripts" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_step_is_a_line(install: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    said = install.follow(SAID.splitlines(keepends=True), install.Line(terminal=False))
    assert "".join(said) == SAID
    shown = [line[8:] for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        "reading work",
        "preparing",
        "finding pyspark",
        "downloading pyspark-4.0.0.tar.gz 434.1 MB",
        "finding click",
        "taking click-8.5.1-py3-none-any.whl from the cache",
        "building stompcodec",
        "installing py4j, pyspark, click, stompcodec",
        "installed click-8.5.1 py4j-0.10 pyspark-4.0.0 stompcodec-0.1.0",
    ]


def test_a_failure_shows_all_that_pip_said(
    install: ModuleType, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status = install.main(["install", "--no-index", str(tmp_path / "none.whl")])
    assert status != 0
    assert "none.whl" in capfd.readouterr().err


def test_make_demo_uses_it() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = text[text.index("$(VENV)/demo.stamp: ") :].split("\n\n")[0]
    assert "scripts/install.py install" in recipe
    assert "--quiet" not in recipe
    assert "$(PIP)" not in recipe
