"""A broker as a process of its own, to be started, killed and looked at."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from installed import environment
from patience import patience

#: Runs `stompcodec` with fields of the configuration that have no key.
_WITH_FIELDS = """
import json, sys
from stompcodec.cli import app
from stompcodec.cli.verbs import broker
fields, made = json.loads(sys.argv.pop(1)), broker._config
broker._config = lambda *given, **flags: made(*given, **flags).replace(**fields)
app.app()
"""


class Verb:
    """A verb of the command line as a process, started again when it ends or is killed; it writes to a log."""

    def __init__(self, *arguments: str, log: Path) -> None:
        self.command = [sys.executable, "-m", "stompcodec.cli", *arguments]
        self.starts, self._log = 0, log
        self._process = None

    def keep(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.starts += 1
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment()
                )

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(patience(60))
            self._process = None

    def end(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(patience(60))


class BrokerProcess:
    """`stompcodec broker` with data in a folder; every start takes free ports."""

    def __init__(self, folder, *, config=None, flags=(), fields=None, memory=False, python=None):
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(config, str):
            (folder / "broker.toml").write_text(config, encoding="utf-8")
            config = folder / "broker.toml"
        self.folder, self.ready, self.log = folder, folder / "ready", folder / "log"
        options = ["--config", str(config)] if config else []
        options += ["--memory"] if memory else ["--data", str(folder / "data")]
        options += ["--port", "0", "--ws-port", "0", "--ready-file", str(self.ready), "--log-level", "info", *flags]
        self._environment = environment(PYTHONUNBUFFERED="1", **({"PYTHONPATH": ""} if python else {}))
        program = ["-c", _WITH_FIELDS, json.dumps(fields)] if fields else ["-m", "stompcodec.cli"]
        self._command = [str(python or sys.executable), *program, "broker", *options]
        self._process, self.address = None, {}

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, error, trace):
        self.kill()

    def start(self) -> None:
        assert self._process is None
        self.ready.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._environment, cwd=self.folder
            )
        give_up = time.monotonic() + patience(60)
        while not self.ready.exists():
            if self._process.poll() is not None or time.monotonic() > give_up:
                self.kill()
                raise RuntimeError(f"the broker did not start:\n{self.tail()}")
            time.sleep(0.005)
        self.address = json.loads(self.ready.read_text(encoding="utf-8"))

    @property
    def port(self) -> int:
        return int(self.address["port"])

    @property
    def ws_port(self) -> int:
        return int(self.address["ws_port"])

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self, number: int = signal.SIGTERM, timeout: float | None = None) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        status = self._process.wait(timeout or patience(60))
        self._process = None
        return status

    def rss(self) -> int:
        """Its resident memory in octets. Linux only."""
        return self._status("VmRSS")

    def peak(self) -> int:
        """The most resident memory that it ever had, in octets. Linux only."""
        return self._status("VmHWM")

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"no {name}")

    def tail(self, lines: int = 20) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
