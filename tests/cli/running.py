"""Runs verbs: in this process, as processes, on terminals, and against brokers."""

import json
import os
import selectors
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import installed
from click.testing import CliRunner, Result
from crash.process import BrokerProcess
from patience import patience

from stompcodec.cli.app import app

COMMAND = [sys.executable, "-m", "stompcodec.cli"]
#: Users and rules: guest may do everything but send to /queue/closed and subscribe to it.
USERS = """
[users.guest]
passcode = "scrypt$16384$8$1$nCg0MPa9EL6fOeJv2j7z6w==$Pq5fbnVFyrkPTlMrOHQRy6yHh4h3D9HuvI6/uPhKfMM="
[[rules]]
destination = "/queue/closed"
allow = false
[[rules]]
who = "*"
"""


def run(*arguments: str | Path, input: bytes | str | None = None, **environment: str) -> Result:
    """A verb in this process, without the variables of whoever runs the tests."""
    unset = dict.fromkeys(name for name in os.environ if name.startswith("STOMPCODEC_"))
    env = {**unset, "COLUMNS": "120", **environment}
    return CliRunner().invoke(app, [*map(str, arguments)], input=input, env=env)


def ended(result: Result, status: int, said: str) -> None:
    """Check how a verb has ended."""
    assert (result.exit_code, said in result.stderr) == (status, True), result.output


def objects(result: Result | bytes) -> list[dict[str, Any]]:
    output = result if isinstance(result, bytes) else result.stdout_bytes
    return [json.loads(line) for line in output.splitlines()]


def process(*arguments: str | Path, before: Any = (), **options: Any) -> subprocess.CompletedProcess[bytes]:
    """A verb as a process, up to its end. `before` goes before its command."""
    command = [*before, *COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=patience(60), check=False, **options)


def environment(**more: str) -> dict[str, str]:
    """The variables of a process, without those of whoever runs the tests."""
    unset = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("STOMPCODEC_")}
    plain |= {name: os.environ[name] for name in ("STOMPCODEC_PURE",) if name in os.environ}
    plain |= {"PYTHONPATH": installed.environment()["PYTHONPATH"], **more}
    return {name: value for name, value in plain.items() if name in more or name not in unset}


def started(*arguments: str | Path, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, *map(str, arguments)], env=env or environment(), **options)


class Runner:
    """Runs verbs against a broker, in this process or as a process of their own."""

    def __init__(self, broker: BrokerProcess, guarded: BrokerProcess) -> None:
        self.broker, self.guarded = broker, guarded
        self.url = f"stomp://127.0.0.1:{broker.port}"
        self.guarded_url = f"stomp://127.0.0.1:{guarded.port}"

    def environment(self, **more: str) -> dict[str, str]:
        return environment(**{"STOMPCODEC_URL": self.url, **more})

    def __call__(self, *arguments: str | Path, input: bytes | str | None = None, **environment: str) -> Result:
        return run(*arguments, input=input, **{"STOMPCODEC_URL": self.url, **environment})

    def good(self, *arguments: str | Path, input: bytes | str | None = None) -> bytes:
        result = self(*arguments, input=input)
        assert result.exit_code == 0, result.stderr
        return result.stdout_bytes

    def taken(self, queue: str, count: int) -> list[tuple[str, dict[str, str]]]:
        lines = objects(self.good("sub", queue, "-n", str(count), "-w", "20", "--json"))
        return [(line.get("body", line.get("body_b64")), dict(line["headers"])) for line in lines]

    def guest(self, *arguments: str | Path) -> Result:
        return self(*arguments, "-u", self.guarded_url, "--login", "guest", STOMPCODEC_PASSCODE="guest")

    def process(self, *arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
        return started(*arguments, env=self.environment(), **options)


class Terminal:
    """A terminal that runs a verb: what it shows at present, and its keys."""

    def __init__(self, *arguments, rows=40, columns=100, stdout=None, **variables):
        import termios

        self.near, self.far = os.openpty()
        self.resize(rows, columns)
        self.mode = lambda: termios.tcgetattr(self.far)
        self.before, self.seen = self.mode(), b""
        env = environment(**{"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **variables})
        streams = {"stdin": self.far, "stdout": self.far if stdout is None else stdout, "stderr": self.far}
        self.process = started(*arguments, env=env, cwd="/", start_new_session=True, **streams)

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.near)
        os.close(self.far)

    def resize(self, rows: int, columns: int) -> None:
        import fcntl
        import termios

        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str, *signs: str) -> str:
        os.write(self.near, keys.encode())
        return self.until(*signs)

    @property
    def shown(self) -> list[str]:
        return self.seen.decode(errors="replace").rpartition("\x1b[H")[2].splitlines()

    def until(self, *signs: str) -> str:
        give_up = time.monotonic() + patience(30)
        while not all(sign in (screen := "\n".join(self.shown)) for sign in signs):
            assert self.read(give_up), f"{signs} not on the screen:\n{screen}"
        return "\n".join(self.shown)

    def read(self, give_up: float) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self.near, selectors.EVENT_READ)
            if not selector.select(max(0.0, give_up - time.monotonic())):
                return False
        self.seen += os.read(self.near, 65536)
        return True

    def end(self, status: int) -> str:
        """Wait for the end, check that the terminal is as it was, and return all that was shown."""
        give_up = time.monotonic() + patience(60)
        while self.process.poll() is None:
            self.read(min(give_up, time.monotonic() + 0.05))
            assert time.monotonic() < give_up, "it does not end"
        while self.read(0.0):
            pass
        assert self.process.returncode == status, self.seen
        assert self.mode() == self.before
        assert self.seen.count(b"\x1b[?1049h") == self.seen.count(b"\x1b[?1049l")
        assert self.seen.count(b"\x1b[?25l") <= self.seen.count(b"\x1b[?25h")
        return self.seen.decode()


def terminal(*arguments: str | Path, stdout: int | None = None, status: int = 0, **variables: str) -> str:
    with Terminal(*arguments, stdout=stdout, **variables) as shown:
        return shown.end(status)
