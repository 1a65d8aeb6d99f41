"""The command as a process: pipes, exit status, missing extras, and that memory stays flat."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import railway
from patience import patience

pytest.importorskip("click")

from cli.running import COMMAND, process, terminal

pytestmark = pytest.mark.long

posix = pytest.mark.skipif(os.name != "posix", reason="pipes and terminals of POSIX")
ONE = b"SEND\ndestination:/q\n\nx\0"


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("cli") / "railway.stomp"
    with file.open("wb") as stream:
        for _ in range(2):
            stream.writelines(railway.capture(2300))
    return file


def program(code: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=patience(60), check=False)


def test_help_and_version() -> None:
    result = process("--help")
    assert result.returncode == 0
    assert all(verb in result.stdout for verb in (b"decode", b"encode", b"lint"))
    package = subprocess.run([sys.executable, "-m", "stompcodec", "--help"], capture_output=True, timeout=patience(60))
    assert (package.returncode, package.stdout) == (0, result.stdout)
    assert b"backend" in process("--version").stdout


@posix
@pytest.mark.parametrize("arguments", [["decode"], ["lint", "--most", "0"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_trouble(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "warnings.stomp"
    file.write_bytes(ONE * 20_000)
    with subprocess.Popen([*COMMAND, *arguments, file], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10)
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(patience(60)) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("view", ["--json", "--summary"])
def test_output_that_cannot_be_written(view: str, capture: Path) -> None:
    with open("/dev/full", "wb") as full:
        command = [*COMMAND, "decode", view, capture]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=patience(60))
    assert result.returncode == 1
    assert result.stderr.startswith(b"stompcodec: cannot write: ")
    assert result.stderr.count(b"\n") == 1


@pytest.mark.parametrize("package", ["click", "rich"])
def test_a_missing_extra_is_named(package: str) -> None:
    result = program(f"import sys; sys.modules[{package!r}] = None\nfrom stompcodec.cli import main\nmain()")
    assert result.returncode == 2
    text = f"stompcodec: this needs the package {package}: pip install 'stompcodec[cli]'"
    assert result.stderr.decode().splitlines() == [text]


@posix
def test_frames_are_shown_as_they_come() -> None:
    command = [*COMMAND, "decode", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for number in range(3):
            running.stdin.write(b"ACK\nid:%d\n\n\0\n" % number)
            running.stdin.flush()
            assert b'["id","%d"]' % number in running.stdout.readline()
        running.stdin.close()
        assert running.wait(patience(60)) == 0


@posix
@pytest.mark.parametrize("verb", [["decode"], ["decode", "--summary"], ["lint"]], ids=" ".join)
def test_colours_on_a_terminal_only(verb: list[str], tmp_path: Path) -> None:
    small = tmp_path / "small.stomp"
    small.write_bytes(b"".join(list(railway.capture(100))[:5]) + ONE)
    assert "\x1b[" in terminal(*verb, small)
    assert "\x1b[" not in terminal(*verb, small, NO_COLOR="1")
    assert b"\x1b[" not in process(*verb, small).stdout


@posix
def test_the_progress_bar_disturbs_nobody(capture: Path, tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as out:
        assert "MB" in terminal("decode", "--json", capture, stdout=out.fileno())
    assert b"\x1b[" not in (tmp_path / "out").read_bytes()
    assert "━" in terminal("decode", "--summary", capture)
    assert "━" not in terminal("decode", capture, NO_COLOR="1")
    read, write = os.pipe()
    with open(read, "rb") as pipe:
        reader = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.buffer.read()"], stdin=pipe)
        assert terminal("decode", "--json", capture, stdout=write) == ""
        os.close(write)
        assert reader.wait(patience(60)) == 0


@posix
@pytest.mark.slow
@pytest.mark.no_asan
@pytest.mark.parametrize("arguments", [["--json"], ["--summary", "--limit", "max_body=1G"]], ids=" ".join)
def test_memory_stays_flat(arguments: list[str], capture: Path) -> None:
    """A stream of 120 MB, the last time as one frame, takes no more memory than a small one."""
    # A process of its own measures its only child.
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[2:], stdin=sys.stdin, stdout=subprocess.DEVNULL, check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // int(sys.argv[1]))"
    )
    unit = str(2**20 if sys.platform == "darwin" else 2**10)
    command = [sys.executable, "-c", code, unit, *COMMAND, "decode", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        with running.stdin as stdin:
            if "--limit" in arguments:
                stdin.write(b"SEND\n\n")
                for _ in range(120):
                    stdin.write(b"x" * 2**20)
                stdin.write(b"\0")
            else:
                data = capture.read_bytes()
                for _ in range(20):
                    stdin.write(data)
        assert int(running.stdout.read()) < 60
        assert running.wait(patience(60)) == 0


@pytest.mark.parametrize("module", ["click", "stompcodec.cli.app"])
def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_traceback(module: str) -> None:
    done = program(f"""
import sys
import stompcodec.cli

class Interrupted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "{module}":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted)
stompcodec.cli.main()
""")
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    ("run", "status", "out", "last"),
    [
        ("1 / 0", 1, b"", b"ZeroDivisionError: division by zero"),  # told though a thread has the log, which has ended
        ("[each.write('no end') for each in (sys.stdout, sys.stderr)]", 0, b"no end", b"no end"),
    ],
    ids=["a fault", "no end of line"],
)
def test_the_last_line_of_a_broker_is_written(run: str, status: int, out: bytes, last: bytes) -> None:
    result = program(f"""
import sys
from stompcodec.broker import server
from stompcodec.cli import main
server.run = lambda *args, **options: {run}
sys.argv = ["stompcodec", "broker", "--memory", "--port", "0"]
main()
""")
    assert (result.returncode, result.stdout, result.stderr.splitlines()[-1]) == (status, out, last)
