"""How results of pytest become rows of a table; the files that are run here need no broker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("POSIX only", allow_module_level=True)

from interop import tools
from interop.brokers import BROKERS
from interop.run import Outcome
from interop.tools import TOOLS, Tool, run_tool, selection

pytestmark = pytest.mark.slow  # most start a pytest

_TESTS = """
import pytest

both = pytest.mark.parametrize("url", ["rabbitmq", "activemq"])

@both
def test_move_keeps_order(url):
    pass

@pytest.mark.parametrize("version", ["1.0", "1.2"])
@both
def test_purge(url, version):
    assert (url, version) != ("activemq", "1.2"), "one is left"

def test_dead_letters_of_activemq_go_back():
    pass

def test_rabbitmq_says_what_it_cannot():
    pytest.skip("rabbitmq is not installed")

def test_tunnels():
    pass

def test_passes_all_brokers():
    pass
"""
_NONE = Outcome("n/a")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a text as the file of a tool."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(text, brokers=tuple(BROKERS)):
        (tmp_path / "test_it.py").write_text(text)
        (tmp_path / "out").mkdir()
        return run_tool(Tool("it", "test_it.py"), brokers, tmp_path / "out", tmp_path)

    return run


def test_a_row_is_a_test_and_a_column_a_broker(run):
    found = run(_TESTS)
    failed = found["it: purge"].pop("activemq")
    assert failed.word == "FAIL"
    assert failed.why.startswith("test_purge[activemq-1.2]: AssertionError: one is left")
    ok, skipped = Outcome("ok"), Outcome("n/a", "rabbitmq is not installed")
    assert found == {
        "it: move keeps order": {"stompcodec": _NONE, "rabbitmq": ok, "activemq": ok},
        "it: purge": {"stompcodec": _NONE, "rabbitmq": ok},
        "it: dead letters go back": {"stompcodec": _NONE, "rabbitmq": _NONE, "activemq": ok},
        "it: says what it cannot": {"stompcodec": _NONE, "rabbitmq": skipped, "activemq": _NONE},
        "it: tunnels": {"stompcodec": ok, "rabbitmq": _NONE, "activemq": _NONE},
        "it: passes all brokers": {"stompcodec": ok, "rabbitmq": ok, "activemq": ok},
    }


@pytest.mark.parametrize(
    ("brokers", "rows"),
    [
        (("stompcodec",), ["it: tunnels", "it: passes all brokers"]),
        (("rabbitmq",), ["it: move keeps order", "it: purge", "it: says what it cannot"]),
    ],
)
def test_tests_of_other_brokers_are_not_run(run, brokers, rows):
    found = run(_TESTS, brokers)
    assert list(found) == rows
    assert all(set(row) == set(brokers) for row in found.values())


@pytest.mark.parametrize(
    ("text", "word", "why"),
    [
        ('import pytest\npytest.skip("no click", allow_module_level=True)\n', "n/a", "no click"),
        ('import pytest\npytest.importorskip("no_such_package")\n', "n/a", "could not import 'no_such_package'"),
        ("import no_such_package\n", "FAIL", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("x = 1\n", "n/a", "it has no test of these brokers"),
    ],
)
def test_a_file_without_tests_is_a_row(run, text, word, why):
    found = run(text)
    assert list(found) == ["it"]
    for outcome in found["it"].values():
        assert outcome.word == word
        assert why in outcome.why


def test_a_file_that_is_not_there_is_skipped_with_its_reason(tmp_path):
    outcome = Outcome("n/a", "there is no tests/interop/test_none.py")
    found = run_tool(Tool("it", "test_none.py"), BROKERS, tmp_path)
    assert found == {"it": {"stompcodec": outcome, "rabbitmq": outcome, "activemq": outcome}}


def test_a_file_that_does_not_end_fails(run, monkeypatch):
    monkeypatch.setattr(tools, "patience", lambda seconds: 0.5)
    (outcome, *_) = run("import time\n\ndef test_it():\n    time.sleep(100)\n")["it"].values()
    assert outcome == ("FAIL", "test_it.py does not end")


def test_a_pytest_that_dies_fails(run):
    (outcome, *_) = run("import os\n\ndef test_it():\n    os._exit(3)\n")["it"].values()
    assert outcome.word == "FAIL"
    assert "exit status of pytest is 3" in outcome.why


@pytest.mark.parametrize(
    ("brokers", "expression"),
    [
        (("stompcodec", "rabbitmq", "activemq"), ""),
        (("stompcodec", "rabbitmq"), "not activemq"),
        (("stompcodec",), "not rabbitmq and not activemq"),
        (("rabbitmq", "activemq"), "rabbitmq or activemq"),
    ],
)
def test_selection(brokers, expression):
    assert selection(brokers) == expression


def test_each_file_is_named_once():
    names = [tool.file for tool in TOOLS]
    assert len(set(names)) == len(names)
    assert all(Path(name).name == name and name.startswith("test_") for name in names)
