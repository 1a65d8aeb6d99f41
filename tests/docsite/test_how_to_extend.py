"""docs/how-to-extend.md works as written: its blocks are applied to a copy of the package, and run there."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from patience import patience

import stompcodec

pytest.importorskip("click")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to-extend.md"


def _change(root: Path, block: str) -> None:
    """Apply a block: of each part, the lines without "+" stand in the file once, and become those without "-"."""
    for part in block.removeprefix("--- ").split("\n--- "):
        name, _, lines = part.partition("\n")
        signs = [(line[:1], line[1:]) for line in lines.split("\n")]
        old, new = ("\n".join(line for sign, line in signs if sign not in ("", left)) for left in "+-")
        if not old:
            (root / name).write_text(new, "utf-8")
            continue
        text = (root / name).read_text("utf-8")
        assert text.count(old) == 1, f"{name} has this {text.count(old)} times: {old}"
        (root / name).write_text(text.replace(old, new), "utf-8")


def _steps() -> Iterator[tuple[list[str], str]]:
    """Yield the changes of each recipe, and what is run then."""
    found = re.findall(r"^```(diff|python)\n(.*?)\n```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    changes: list[str] = []
    for kind, blocks in groupby(found, lambda block: block[0]):
        texts = [text for _, text in blocks]
        if kind == "python":
            yield changes, *texts
        changes = texts


def test_each_recipe_works_as_written(tmp_path: Path) -> None:
    shutil.copytree(Path(stompcodec.__file__).parent, tmp_path / "stompcodec", ignore=shutil.ignore_patterns("*.pyc"))
    (tmp_path / "scripts").mkdir()
    shutil.copy2(PAGE.parents[1] / "scripts" / "unasync.py", tmp_path / "scripts")
    pure, others = [], []
    for changes, program in _steps():
        (pure if "STOMPCODEC_PURE=1" in program else others).append((changes, program))
    for backend, steps in (("", others), ("1", pure)):  # C knows the rules of before
        for change in (change for changes, _ in steps for change in changes):
            _change(tmp_path, change)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "STOMPCODEC_PURE": backend}
        if not backend:
            subprocess.run([sys.executable, tmp_path / "scripts" / "unasync.py"], check=True, env=environment)
        program = "\n".join(program for _, program in steps)
        command, where = [sys.executable, "-c", program], {"cwd": tmp_path, "env": environment}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), **where)
        assert ran.returncode == 0, f"{program}\n{ran.stderr}"
    assert len(others) > 5
