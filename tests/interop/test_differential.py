"""Our dialects against recorded answers of their brokers; `make differential` plays on those brokers themselves."""

import inspect
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from crash import process
from interop import differential
from interop.differential import ANSWERS, Explained, config_of, differences, explained, ours, recorded, unexplained

from stompcodec.broker import config

NAMES = sorted(path.name.partition(".")[0] for path in ANSWERS.glob("*.xz"))


def _cells() -> dict[tuple[str, str], str]:
    """Return the scenario that stands beside each value of a dialect, or "restart": test_peers.py."""
    source = inspect.getsource(config).partition("DIALECTS: ")[2].partition("\n}\n")[0]
    found = {}
    for dialect, block in re.findall(r'^    "(\w+)": \{\n(.*?)^    \}', source, re.MULTILINE | re.DOTALL):
        told = re.findall(r'^        "(\w+)": .*,  # ([A-Z]+-\d+|restart)\b', block, re.MULTILINE)
        found.update({(dialect, name): id for name, id in told})
    return found


CELLS = _cells()


def test_each_scenario_has_recorded_answers_and_each_value_of_a_dialect_a_scenario() -> None:
    known = {scenario["id"] for scenario in differential.scenarios()}
    assert {name: recorded(name)[1].keys() ^ known for name in NAMES} == {name: set() for name in NAMES}
    assert set(CELLS.values()) - {"restart"} <= known
    values = {(dialect, name) for dialect, values in config.DIALECTS.items() for name in values}
    assert values == CELLS.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("dialect", "name", "scenario"), [(*cell, id) for cell, id in CELLS.items() if "-" in id])
def test_a_value_of_a_dialect_shows_in_its_scenario(dialect: str, name: str, scenario: str, monkeypatch: Any) -> None:
    brokers = [broker for broker in differential.CONFIGS if broker.startswith(dialect)]
    as_they_are = [ours(broker, scenario)[scenario] for broker in brokers]
    without = f"from stompcodec.broker import config; del config.DIALECTS[{dialect!r}][{name!r}]"
    monkeypatch.setattr(process, "_WITH_FIELDS", f"{without}\n{process._WITH_FIELDS}")
    changed = [ours(broker, scenario)[scenario] for broker in brokers]
    assert any(map(differential.differences, as_they_are, changed))


@pytest.mark.long
@pytest.mark.no_asan
def test_our_dialects_answer_as_their_brokers_did_but_for_the_differences_of_the_table() -> None:
    configs: dict[str, str] = {config_of(name): name for name in NAMES}
    used: set[Explained] = set()
    with ThreadPoolExecutor(len(configs)) as pool:
        own = dict(zip(configs, pool.map(ours, configs.values())))
    for name in NAMES:
        said, theirs = recorded(name)
        assert re.search(r" [0-9]{4}-[0-9]{2}-[0-9]{2}$", said)
        assert unexplained(name, theirs, own[config_of(name)], used) == {}, said
    assert [row for row in explained() if row not in used] == []


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "broker-extensions.md").read_text("utf-8")
    assert differential.page(page) == page, "run: python tests/interop/differential.py docs/broker-extensions.md"


@pytest.mark.parametrize(
    ("kind", "line", "theirs", "fits"),
    [
        ("stricter", "only ours: ERROR", [], True),
        ("stricter", "only theirs: MESSAGE 'x'", [], True),
        ("stricter", "only theirs: ERROR", [["ERROR", {}, ""]], False),
        ("stricter", "only theirs: closed", [["closed"]], False),
        ("stricter", "only ours: MESSAGE 'x'", [], False),
        ("richer", "only ours: MESSAGE 'x'", [], False),
        ("richer", "only ours: RECEIPT r", [["closed"]], True),
        ("theirs is a fault", "only ours: MESSAGE 'x'", [], True),
    ],
)
def test_no_row_explains_what_a_kinder_broker_hides(kind: str, line: str, theirs: list[Any], fits: bool) -> None:
    assert Explained("*", "*", ".*", kind, "").fits("artemis", "HA-01", line, {"a": theirs}) is fits


@pytest.mark.parametrize(
    ("theirs", "own", "lines"),
    [
        ([["RECEIPT", {"receipt-id": "r"}, ""]], [], ["only theirs: RECEIPT r"]),
        ([], [["ERROR", {}, ""], ["closed"]], ["only ours: ERROR", "after our ERROR: closed"]),
        (
            [["ERROR", {}, ""], ["RECEIPT", {"receipt-id": "r"}, ""]],
            [["ERROR", {}, ""]],
            ["after our ERROR: RECEIPT r"],
        ),
        (
            [["RECEIPT", {"receipt-id": "r"}, ""], ["ERROR", {}, ""]],
            [["ERROR", {}, ""]],
            ["only theirs: RECEIPT r"],
        ),
        (
            [["MESSAGE", {"subscription": "1"}, "x"]],
            [["MESSAGE", {"subscription": "1", "a": "b"}, "x"]],
            ["MESSAGE a: none / b"],
        ),
        (  # a receipt may come sooner or later than a message, and than another receipt
            [
                ["RECEIPT", {"receipt-id": "r"}, ""],
                ["MESSAGE", {"subscription": "1"}, "x"],
                ["RECEIPT", {"receipt-id": "s"}, ""],
            ],
            [
                ["MESSAGE", {"subscription": "1"}, "x"],
                ["RECEIPT", {"receipt-id": "s"}, ""],
                ["RECEIPT", {"receipt-id": "r"}, ""],
            ],
            [],
        ),
        (
            [["MESSAGE", {"subscription": "1"}, "x"], ["MESSAGE", {"subscription": "1"}, "y"]],
            [["MESSAGE", {"subscription": "1"}, "y"], ["MESSAGE", {"subscription": "1"}, "x"]],
            ["only theirs: MESSAGE 'y'", "only ours: MESSAGE 'y'"],
        ),
    ],
)
def test_what_counts_as_a_difference(theirs: list[list[object]], own: list[list[object]], lines: list[str]) -> None:
    assert sorted(differences({"a": theirs}, {"a": own})) == sorted(lines)
