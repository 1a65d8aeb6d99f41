"""Ways to run `stompcodec bench`, and to judge its figures without judging the time."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stompcodec.cli.app import app

__all__ = ["agrees", "bench", "good", "lines_of"]


def bench(*arguments: str | Path, **environment: str) -> Result:
    unset = dict.fromkeys(name for name in os.environ if name.startswith("STOMPCODEC_"))
    wide = {"COLUMNS": "200"}  # of no terminal, wherever the tests run
    return CliRunner().invoke(app, ["bench", *map(str, arguments)], env={**unset, **wide, **environment})


def good(*arguments: str | Path) -> str:
    result = bench(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def lines_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def agrees(row: dict[str, Any], noun: str = "messages") -> None:
    """The rates are of these counts and this time."""
    assert row[noun] > 0
    assert row["seconds"] > 0
    assert row[f"{noun}_per_s"] == pytest.approx(row[noun] / row["seconds"])
    assert row["mb_per_s"] == pytest.approx(row["octets"] / row["seconds"] / 1e6)
