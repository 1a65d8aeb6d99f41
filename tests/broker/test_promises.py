"""The page of promises names keys, tests and commands that exist."""

import re
from pathlib import Path

from stompcodec.broker.config import KEYS

ROOT = Path(__file__).parents[2]


def rows() -> list[list[str]]:
    """The rows of all tables of promises, and not those of figures."""
    found, inside = [], False
    for line in (ROOT / "docs" / "promises.md").read_text(encoding="utf-8").splitlines():
        inside = line.startswith("| promise") or (inside and line.startswith("|"))
        if inside and not line.startswith(("| promise", "| ---")):
            found.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return found


ROWS = rows()


def test_every_promise_names_a_test_that_is_there() -> None:
    assert len(ROWS) > 20
    for promise, _keys, tests in ROWS:
        named = re.findall(r"`((?:\.\./)?[\w/]+\.py)(?:::(\w+))?`", tests)
        assert named or "`make " in tests, promise
        for file, function in named:
            text = (ROOT / "tests" / "broker" / file).read_text(encoding="utf-8")
            assert not function or f"def {function}(" in text, (file, function)


def test_every_key_is_one_of_the_configuration() -> None:
    known = {key.name for key in KEYS}
    for promise, keys, _tests in ROWS:
        table = ""
        for key in re.findall(r"`([\w.]+)`", keys):
            table = key.rpartition(".")[0] or table
            name = key if "." in key or key in known else f"{table}.{key}"
            assert name in known, (promise, key)


def test_every_command_is_a_target() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`make ([\w-]+)`", page))
    assert named
    assert named <= set(targets)
