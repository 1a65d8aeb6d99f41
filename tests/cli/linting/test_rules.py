"""The titles of rules, and that the sample keeps all of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from railway import capture

pytest.importorskip("click")

from click.testing import CliRunner

from stompcodec.cli import linting as rules
from stompcodec.cli.app import app
from stompcodec.errors import ERROR_KINDS

TABLE = Path(__file__).parents[2] / "requirements.tsv"


def test_titles_are_those_of_the_requirements() -> None:
    with TABLE.open(encoding="utf-8", newline="") as file:
        wanted = {
            row["id"]: row["requirement"]
            for row in csv.DictReader(file, delimiter="\t")
            if row["id"].split("-")[0] in ("S10", "S11", "S12", "LEG")
        }
    assert {rule: rules.title_of(rule) for rule in wanted} == wanted
    assert set(rules._titles()) == set(wanted)
    assert all(rules.title_of(kind) for kind in ERROR_KINDS)


def test_every_rule_that_lint_may_name_has_a_title() -> None:
    tables = (*rules._KINDS.values(), *rules._LIMITS.values(), rules._WRONG_CASE, rules._WRONG_EOL)
    named = {rule for table in tables for rule in table.values()}
    named |= {rule for row in rules._REQUIRED.values() for rule in row.values()}
    assert [rule for rule in named if not rules.title_of(rule)] == []


@pytest.mark.parametrize("seed", range(3))
def test_the_feed_of_the_examples_lints_clean(seed: int, tmp_path: Path) -> None:
    file = tmp_path / "sample.stomp"
    file.write_bytes(b"".join(capture(150, seed)))
    result = CliRunner().invoke(app, ["lint", "--json", "--most", "0", str(file)])
    assert (result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]) == (0, [])
    assert "errors 0, warnings 0, notes 0" in CliRunner().invoke(app, ["lint", str(file)]).output
