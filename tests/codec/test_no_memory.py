"""Every allocation of the C backend fails once, in a process of its own. Then a parser is dead or goes on correctly."""

import importlib.util
import os
import sys

import pytest
from codec.test_isolated import SCRIPTS, run

#: Python's debug hooks overwrite what is freed, so that reading it gives wrong answers. The sanitizers want malloc.
DEBUG = {} if os.environ.get("PYTHONMALLOC") == "malloc" else {"PYTHONMALLOC": "debug"}

pytestmark = pytest.mark.c_only


@pytest.fixture
def fail(monkeypatch):
    """Run the program on some of its cases, and return what it says of each."""
    pytest.importorskip("stompcodec._codec_c")
    if importlib.util.find_spec("_testcapi") is None:
        pytest.skip("this interpreter has no _testcapi, which makes memory fail")
    if hasattr(sys, "gettotalrefcount"):
        pytest.skip("a debug interpreter ends itself: its eval loop and its str assert what fails without memory")
    for name, value in DEBUG.items():
        monkeypatch.setenv(name, value)
    return lambda *args: run(SCRIPTS / "failing_memory.py", *args, pure="0").splitlines()


def test_parsers(fail):
    """Whatever allocation fails in feed, get_buffer, buffer_updated or iteration, in any state of the parser."""
    told = fail("parser")
    assert len(told) >= 20
    assert any("dead 0 times" not in line for line in told)


@pytest.mark.parametrize("what", ["reading", "making", "writing", "ends"])
def test_frames(fail, what):
    """Frames and headers are read, made and written right, or there is a MemoryError and they can be used again."""
    fail("values", what)


def test_columns(fail):
    """So with parse_columns and the export of what it made: columns whose export failed can be exported again."""
    pytest.importorskip("pyarrow")
    fail("values", "columns")
