"""Permissions of what is recorded: the owner's, and with --group a group's."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("websockets")

from cli.at_broker import Runner

GROUP = str(os.getegid()) if hasattr(os, "getegid") else "0"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes mean nothing there")


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


@pytest.mark.parametrize(("options", "wanted"), [([], {0o600, 0o700}), (["--group", GROUP], {0o640, 0o750})])
def test_what_is_recorded(at: Runner, fresh: str, tmp_path: Path, options: list[str], wanted: set[int]) -> None:
    at.good("pub", fresh, "-l", input=b"1\n2\n")
    at.good("record", fresh, "-o", tmp_path / "deep" / "a.stompcap", "-n", "2", *options)
    assert modes(tmp_path) == wanted


def test_a_group_that_is_none(at: Runner, fresh: str, tmp_path: Path) -> None:
    result = at("record", fresh, "-o", tmp_path / "a", "--group", "nobody here")
    assert (result.exit_code, "no group of this" in result.stderr, "--group" in result.stderr) == (2, True, True)
