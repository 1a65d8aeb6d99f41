"""Runs verbs: in this process, as processes, and on terminals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from patience import patience

from stompcodec.cli.app import app

__all__ = ["COMMAND", "objects", "process", "run", "terminal"]

COMMAND = [sys.executable, "-m", "stompcodec.cli"]


def run(*arguments: str | Path, input: bytes | str | None = None, **environment: str) -> Result:
    """A verb in this process, without the variables of whoever runs the tests."""
    unset = dict.fromkeys(name for name in os.environ if name.startswith("STOMPCODEC_"))
    env = {**unset, "COLUMNS": "120", **environment}
    return CliRunner().invoke(app, [*map(str, arguments)], input=input, env=env)


def objects(result: Result | bytes) -> list[dict[str, Any]]:
    """The lines of JSON on standard output."""
    output = result if isinstance(result, bytes) else result.stdout_bytes
    return [json.loads(line) for line in output.splitlines()]


def process(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, timeout=patience(60), check=False, **options)


def terminal(*arguments: str | Path, stdout: int | None = None, status: int = 0, **environment: str) -> str:
    """What a verb writes to a terminal of 100 columns, on both outputs."""
    import fcntl
    import pty
    import struct
    import termios

    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    environment = {**plain, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **environment}
    out = side if stdout is None else stdout
    running = subprocess.Popen([*COMMAND, *arguments], stdin=side, stdout=out, stderr=side, env=environment, cwd="/")
    os.close(side)
    output = b""
    try:
        while data := os.read(main, 65536):
            output += data
    except OSError:  # how Linux says that the other end was closed
        pass
    os.close(main)
    assert running.wait(patience(60)) == status, output
    return output.decode()
