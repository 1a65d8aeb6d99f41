"""--mode and --group of the verbs that record messages."""

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


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], {0o600, 0o700}),
        (["--mode", "0640"], {0o640, 0o750}),
        (["--group", GROUP], {0o640, 0o750}),
    ],
)
@pytest.mark.parametrize("verb", ["record", "dump"])
def test_what_is_recorded(
    at: Runner, fresh: str, tmp_path: Path, verb: str, options: list[str], wanted: set[int]
) -> None:
    at.good("pub", fresh, "-l", input=b"1\n2\n")
    if verb == "record":
        at.good("record", fresh, "-o", tmp_path / "deep" / "a.stompcap", "-n", "2", *options)
    else:
        at.good("sub", fresh, "--dump", tmp_path / "deep" / "dump", "-n", "2", *options)
    assert modes(tmp_path) == wanted


@pytest.mark.parametrize("verb", ["record", "sub"])
def test_values_that_cannot_be(at: Runner, fresh: str, tmp_path: Path, verb: str) -> None:
    more = ["-o", str(tmp_path / "a")] if verb == "record" else []
    for option, value, why in (("mode", "0777", "octal mode of a file"), ("group", "nobody here", "no group of this")):
        result = at(verb, fresh, *more, f"--{option}", value)
        assert (result.exit_code, why in result.stderr, f"--{option}" in result.stderr) == (2, True, True)
