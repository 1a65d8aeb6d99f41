"""Windows, as far as it can be simulated here: modules, functions and signals that Python does not have there."""

import sys
from pathlib import Path

import pytest
from installed import program

SCRIPT = Path(__file__).parents[1] / "isolated" / "windows.py"

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc for open files")]


def run(what: str, folder: Path, given: str = "") -> str:
    return program("-X", "warn_default_encoding", SCRIPT, what, folder, cwd=folder, input=given.encode())


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run("list", tmp_path_factory.mktemp("list"))


def test_every_module_can_be_imported_and_used(modules: str, tmp_path: Path) -> None:
    first, *lines = run("use", tmp_path, modules).splitlines()
    assert first.startswith("left out:")
    assert "stompcodec.broker.server" not in first
    assert {"broker and clients work", "captures work"} <= set(lines)


#: What Windows refuses, and what it says. The files of one are there for the next.
REFUSED = {
    **{"import fcntl": "No module named 'fcntl'", "import os; os.fork()": "has no attribute 'fork'"},
    "import os; os.pread(0, 1, 0)": "has no attribute 'pread'",
    "import signal; signal.SIGKILL": "has no attribute 'SIGKILL'",
    "import socket; socket.AF_UNIX": "has no attribute 'AF_UNIX'",
    "import asyncio; asyncio.SelectorEventLoop.add_reader(None, 0, print)": "NotImplementedError",
    "import select; select.select([], [], [], 0)": "10022",
    "file = open('a', 'w', encoding='ascii'); import os; os.unlink('a')": "another process uses the file",
    "open('b', 'w', encoding='ascii').close(); import os; os.rename('b', 'a')": "exists already",
    **{"open('topic:a', 'w', encoding='ascii')": "Invalid argument", "open('a', 'w')": "EncodingWarning"},
}
EACH = """
for each in CODES:
    try:
        exec(each, globals())
    except Exception as error:
        print(repr(error))
    else:
        print("nothing")
"""


def test_what_windows_refuses_is_refused(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    lines = run("run", tmp_path, f"asyncio shutil\0CODES = {list(REFUSED)}\n{EACH}").splitlines()
    assert len(lines) == len(REFUSED)
    assert [(code, line) for (code, said), line in zip(REFUSED.items(), lines) if said not in line] == []
