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


pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-m", "stompcodec.cli"]
posix = pytest.mark.skipif(os.name != "posix", reason="pipes and terminals of POSIX")


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("cli") / "railway.stomp"
    with file.open("wb") as stream:
        for _ in range(2):
            stream.writelines(railway.capture(2300))
    return file


def run(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, timeout=patience(60), **options)


def test_help_and_version() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert all(verb in result.stdout for verb in (b"decode", b"encode", b"lint"))
    package = subprocess.run([sys.executable, "-m", "stompcodec", "--help"], capture_output=True, timeout=patience(60))
    assert (package.returncode, package.stdout) == (0, result.stdout)
    assert b"backend" in run("--version").stdout
    assert run("nonsense").returncode == 2


def test_a_pipeline(capture: Path) -> None:
    lines = run("decode", "--json", capture).stdout
    again = run("encode", input=lines)
    assert again.returncode == 0
    linted = run("lint", "--json", "--most", "1", "-", input=again.stdout)
    assert linted.returncode == 0


@posix
@pytest.mark.parametrize("arguments", [["decode"], ["decode", "--json"], ["decode", "--hex"], ["lint", "--most", "0"]])
def test_a_reader_that_goes_away_is_no_trouble(arguments: list[str], capture: Path, tmp_path: Path) -> None:
    if arguments[0] == "lint":  # the capture breaks no rule
        capture = tmp_path / "warnings.stomp"
        capture.write_bytes(b"SEND\ndestination:/q\n\nx\0" * 5000)
    process = subprocess.Popen([*COMMAND, *arguments, capture], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(patience(60)) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("view", ["--json", "--summary"])
def test_output_that_cannot_be_written(view: str, capture: Path) -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [*COMMAND, "decode", view, capture], stdout=full, stderr=subprocess.PIPE, timeout=patience(60)
        )
    assert result.returncode == 1
    assert result.stderr.startswith(b"stompcodec: cannot write: ")
    assert result.stderr.count(b"\n") == 1


@pytest.mark.parametrize("package", ["click", "rich"])
def test_a_missing_extra_is_named(package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None\nfrom stompcodec.cli import main\nmain()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=patience(60))
    assert result.returncode == 2
    text = f"stompcodec: this needs the package {package}: pip install 'stompcodec[cli]'"
    assert result.stderr.decode().splitlines() == [text]


@posix
def test_frames_are_shown_as_they_come() -> None:
    process = subprocess.Popen([*COMMAND, "decode", "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    for number in range(3):
        process.stdin.write(b"ACK\nid:%d\n\n\0\n" % number)
        process.stdin.flush()
        assert b'["id","%d"]' % number in process.stdout.readline()
    process.stdin.close()
    assert process.wait(patience(60)) == 0
    process.stdout.close()


def terminal(arguments: list[str | Path], stdout: int | None = None, **environment: str) -> str:
    """What a command writes to a terminal of 100 columns."""
    import fcntl
    import pty
    import struct
    import termios

    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=side,
        stdout=side if stdout is None else stdout,
        stderr=side,
        env={**plain, "TERM": "xterm-256color", **environment},
    )
    os.close(side)
    output = b""
    try:
        while data := os.read(main, 65536):
            output += data
    except OSError:  # how Linux says that the other end was closed
        pass
    os.close(main)
    assert process.wait(patience(60)) == 0
    return output.decode()


@posix
def test_colours_on_a_terminal_only(capture: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.stomp"
    small.write_bytes(b"".join(list(railway.capture(100))[:5]) + b"SEND\ndestination:/q\n\nx\0")
    for arguments in (["decode"], ["decode", "--pretty"], ["lint"], ["decode", "--summary"]):
        assert "\x1b[" in terminal([*arguments, small])
        assert "\x1b[" not in terminal([*arguments, small], NO_COLOR="1")
        assert b"\x1b[" not in run(*arguments, small).stdout


@posix
def test_the_progress_bar_disturbs_nobody(capture: Path, tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as out:
        assert "MB" in terminal(["decode", "--json", capture], stdout=out.fileno())
    assert b"\x1b[" not in (tmp_path / "out").read_bytes()
    assert "━" in terminal(["decode", "--summary", capture])
    assert "━" not in terminal(["decode", capture], NO_COLOR="1")
    read, write = os.pipe()
    with open(read, "rb") as pipe:
        process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.buffer.read()"], stdin=pipe)
        assert terminal(["decode", "--json", capture], stdout=write) == ""
        os.close(write)
        assert process.wait(patience(60)) == 0


@posix
@pytest.mark.slow
@pytest.mark.no_asan
@pytest.mark.parametrize(
    "arguments",
    [["decode"], ["decode", "--summary"], ["decode", "--json"], ["decode", "--summary", "--limit", "max_body=1G"]],
)
def test_memory_stays_flat(arguments: list[str], capture: Path) -> None:
    """A stream of 120 MB, the last time as one frame, takes no more memory than a small one."""
    # A process of its own measures its only child.
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[2:], stdin=sys.stdin, stdout=subprocess.DEVNULL, check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // int(sys.argv[1]))"
    )
    unit = str(2**20 if sys.platform == "darwin" else 2**10)
    process = subprocess.Popen(
        [sys.executable, "-c", code, unit, *COMMAND, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin as stdin:
        if "--limit" in arguments:
            stdin.write(b"SEND\n\n")
            for _ in range(120):
                stdin.write(b"x" * 2**20)
            stdin.write(b"\0")
        else:
            data = capture.read_bytes()
            for _ in range(20):
                stdin.write(data)
    with process.stdout as stdout:
        assert int(stdout.read()) < 60
    assert process.wait(patience(60)) == 0


@posix
@pytest.mark.parametrize(
    ("closing", "status"), [(">&-", 1), ("2>&-", 0), ("<&-", 0), (">&- 2>&- <&-", 1)], ids=["out", "err", "in", "all"]
)
def test_closed_standard_streams(closing: str, status: int, tmp_path: Path) -> None:
    """Nothing else gets their descriptors, and what cannot be written is an error in one line."""
    file = tmp_path / "one.stomp"
    file.write_bytes(b"SEND\ndestination:/q\n\nx\0")
    result = subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", *COMMAND, "decode", "--json", file],
        capture_output=True,
        timeout=patience(60),
    )
    assert result.returncode == status
    assert b"Traceback" not in result.stderr
    assert (b"destination" in result.stdout) == (status == 0)
    assert (result.stderr == b"stompcodec: cannot write: Bad file descriptor\n") == (closing == ">&-")


@pytest.mark.parametrize("module", ["click", "rich", "stompcodec.cli.app"])
def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_traceback(module: str) -> None:
    program = f"""
import sys
import stompcodec.cli

class Interrupted:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "{module}":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted)
stompcodec.cli.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_fault_is_told_though_the_log_is_handed_to_a_thread() -> None:
    """That thread has ended when the interpreter would write what nobody has caught."""
    code = """
import sys
from stompcodec.broker import process
from stompcodec.cli import main
process.run = lambda *args, **options: 1 / 0
sys.argv = ["stompcodec", "broker", "--memory", "--port", "0"]
main()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=patience(60))
    assert (result.returncode, result.stderr.splitlines()[-1:]) == (1, [b"ZeroDivisionError: division by zero"])


def test_the_last_line_of_a_broker_needs_no_end() -> None:
    code = """
import sys
from stompcodec.broker import process
from stompcodec.cli import main
process.run = lambda *args, **options: [stream.write("no end") for stream in (sys.stdout, sys.stderr)]
sys.argv = ["stompcodec", "broker", "--memory", "--port", "0"]
main()
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=patience(60))
    assert (result.returncode, result.stdout, result.stderr) == (0, b"no end", b"no end")
