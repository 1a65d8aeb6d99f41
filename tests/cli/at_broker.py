"""Ways to run the verbs that talk to a broker. The fixtures are in conftest.py."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result
from crash.process import ROOT, BrokerProcess
from patience import patience

from stompcodec.cli.app import app

__all__ = ["USERS", "Runner", "read_until"]

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


class Runner:
    """Runs verbs against a broker, in this process or as a process of their own."""

    def __init__(self, broker: BrokerProcess, guarded: BrokerProcess) -> None:
        self.broker = broker
        self.guarded = guarded
        self.url = f"stomp://127.0.0.1:{broker.port}"
        self.guarded_url = f"stomp://127.0.0.1:{guarded.port}"

    def environment(self, **more: str) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("STOMPCODEC_")}
        pure = {name: os.environ[name] for name in ("STOMPCODEC_PURE",) if name in os.environ}
        paths = os.pathsep.join([ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
        return {**plain, **pure, "STOMPCODEC_URL": self.url, "PYTHONPATH": paths, **more}

    def __call__(
        self, verb: str, *arguments: str | Path, input: bytes | str | None = None, **environment: str
    ) -> Result:
        unset = dict.fromkeys(name for name in os.environ if name.startswith("STOMPCODEC_"))
        variables = {**unset, "STOMPCODEC_URL": self.url, **environment}
        return CliRunner().invoke(app, [verb, *map(str, arguments)], input=input, env=variables)

    def good(self, verb: str, *arguments: str | Path, input: bytes | str | None = None) -> bytes:
        """Standard output of a run that went well."""
        result = self(verb, *arguments, input=input)
        assert result.exit_code == 0, result.stderr
        return result.stdout_bytes

    def process(self, verb: str, *arguments: str | Path, **options: object) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "stompcodec.cli", verb, *map(str, arguments)]
        return subprocess.Popen(command, env=self.environment(), **options)


def read_until(terminal: int, sign: bytes, seconds: float = 30) -> bytes:
    """What a terminal shows, up to a sign."""
    seen = b""
    with selectors.DefaultSelector() as selector:
        selector.register(terminal, selectors.EVENT_READ)
        while sign not in seen:
            assert selector.select(patience(seconds)), f"only {seen!r} was shown"
            seen += os.read(terminal, 1024)
    return seen
