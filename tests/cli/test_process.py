"""The command as a process: pipes, exit status, missing extras, and that memory stays flat."""

import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
import railway
from cli.running import COMMAND, process, started, terminal
from patience import patience

pytestmark = pytest.mark.long

posix = pytest.mark.skipif(os.name != "posix", reason="pipes and terminals of POSIX")
ONE = b"SEND\ndestination:/q\n\nx\0"


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    file = tmp_path_factory.mktemp("cli") / "railway.stomp"
    with file.open("wb") as stream:
        for _ in range(2):
            stream.writelines(railway.capture(2300))
    return file


def program(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=patience(60), check=False)


def test_help_and_version():
    result = process("--help")
    assert result.returncode == 0
    assert all(verb in result.stdout for verb in (b"decode", b"encode", b"lint"))
    package = subprocess.run([sys.executable, "-m", "stompcodec", "--help"], capture_output=True, timeout=patience(60))
    assert (package.returncode, package.stdout) == (0, result.stdout)
    assert b"backend" in process("--version").stdout


@posix
@pytest.mark.parametrize("arguments", [["decode"], ["lint", "--most", "0"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_trouble(arguments, tmp_path):
    file = tmp_path / "warnings.stomp"
    file.write_bytes(ONE * 20_000)
    with started(*arguments, file, stdout=PIPE, stderr=PIPE) as running:
        running.stdout.read(10)
        running.stdout.close()
        assert (running.stderr.read(), running.wait(patience(60))) == (b"", 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("view", ["--json", "--summary"])
def test_output_that_cannot_be_written(view, capture):
    with open("/dev/full", "wb") as full, started("decode", view, capture, stdout=full, stderr=PIPE) as running:
        (line,) = running.stderr.read().splitlines()
        assert line.startswith(b"stompcodec: cannot write: ")
        assert running.wait(patience(60)) == 1


@pytest.mark.parametrize("package", ["click", "rich"])
def test_a_missing_extra_is_named(package):
    result = program(f"import sys; sys.modules[{package!r}] = None\nfrom stompcodec.cli import main\nmain()")
    assert result.returncode == 2
    text = f"stompcodec: this needs the package {package}: pip install 'stompcodec[cli]'"
    assert result.stderr.decode().splitlines() == [text]


@posix
def test_frames_are_shown_as_they_come():
    with started("decode", "--json", stdin=PIPE, stdout=PIPE) as running:
        for number in range(3):
            running.stdin.write(b"ACK\nid:%d\n\n\0\n" % number)
            running.stdin.flush()
            assert b'["id","%d"]' % number in running.stdout.readline()
        running.stdin.close()
        assert running.wait(patience(60)) == 0


@posix
@pytest.mark.parametrize("verb", [["decode"], ["decode", "--summary"], ["lint"]], ids=" ".join)
def test_colours_on_a_terminal_only(verb, tmp_path):
    small = tmp_path / "small.stomp"
    small.write_bytes(b"".join(list(railway.capture(100))[:5]) + ONE)
    assert "\x1b[" in terminal(*verb, small)
    assert "\x1b[" not in terminal(*verb, small, NO_COLOR="1")
    assert b"\x1b[" not in process(*verb, small).stdout


@posix
def test_the_progress_bar_disturbs_nobody(capture, tmp_path):
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
def test_memory_stays_flat(arguments, capture):
    """A stream of 120 MB, the last time as one frame, takes no more memory than a small one."""
    # A process of its own measures its only child.
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[2:], stdin=sys.stdin, stdout=subprocess.DEVNULL, check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // int(sys.argv[1]))"
    )
    unit = str(2**20 if sys.platform == "darwin" else 2**10)
    whole = [b"SEND\n\n", *[b"x" * 2**20] * 120, b"\0"] if "--limit" in arguments else [capture.read_bytes()] * 20
    command = [sys.executable, "-c", code, unit, *COMMAND, "decode", *arguments]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE) as running:
        with running.stdin as stdin:
            stdin.writelines(whole)
        assert int(running.stdout.read()) < 60
        assert running.wait(patience(60)) == 0


@pytest.mark.parametrize("module", ["click", "stompcodec.cli.app"])
def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_traceback(module):
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
def test_the_last_line_of_a_broker_is_written(run, status, out, last):
    result = program(f"""
import sys
from stompcodec.broker import server
from stompcodec.cli import main
server.run = lambda *args, **options: {run}
sys.argv = ["stompcodec", "broker", "--memory", "--port", "0"]
main()
""")
    assert (result.returncode, result.stdout, result.stderr.splitlines()[-1]) == (status, out, last)
