"""The brokers under test: how each is started and stopped, and what its process has used. Linux only (/proc)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from load import Load

import stompcodec

OURS = "ours"
#: The peers of the page. Other recipes of the folder of the peers can be named, too.
PEERS = ("activemq", "rabbitmq")
#: STOMP over WebSocket: how far its port is from that of STOMP.
WEBSOCKET = {"rabbitmq": 100, "rabbitmq4": 100, "artemis": 0}
SAMPLE = 0.02  # seconds between two looks at a broker that comes to rest
REST = 8  # looks in a row without work: it is at rest
BUSY = 0.1  # share of a core that is still rest: a virtual machine is never quite idle
UNREST = 6.0  # seconds after which we wait no longer


class AbsentError(Exception):
    """This broker cannot run here; the text says why."""


class Broker:
    """A running broker: its ports on 127.0.0.1, and its first process."""

    def __init__(self, name: str, port: int, pid: int, ws_port: int | None = None) -> None:
        self.name, self.port, self.pid, self.ws_port = name, port, pid, ws_port

    def has(self, load: Load) -> bool:
        """Return whether it can be measured with a load."""
        return self.ws_port is not None or not load.websocket

    def port_of(self, load: Load) -> int:
        """Return the port that a load uses."""
        port = self.ws_port if load.websocket else self.port
        assert port is not None
        return port

    def stop(self) -> None:
        """End what start() has started."""

    def processes(self) -> list[int]:
        """Return the first process and its descendants."""
        found = [self.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):
                    found += map(int, task.read_text().split())
        return found

    def cpu(self) -> float:
        """Return seconds of CPU time: all threads, dead ones too, and children."""
        return sum(map(_cpu, self.processes()))

    def written(self) -> int:
        """Return the bytes handed to the disk."""
        return sum(_field(pid, "io", "write_bytes") for pid in self.processes())

    def memory(self, field: str = "VmRSS") -> float:
        """Return resident memory in MiB; with VmHWM at its peak."""
        return sum(_field(pid, "status", field) for pid in self.processes()) / 1024


def _cpu(pid: int) -> float:
    try:
        return time.clock_gettime(~pid << 3 | 2)  # the CPU clock of another process, see clock_getcpuclockid(3)
    except OSError:
        return 0.0


def _field(pid: int, file: str, name: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return 0


class Meter:
    """The CPU seconds that a broker uses from start() until it is at rest after stop(), and those that this process
    uses between the two; `quiet` are the seconds from start() until the last work that was seen."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.cpu = self.generator = self.quiet = 0.0

    def start(self) -> None:
        self._generator = time.process_time()
        self._start = time.perf_counter()
        self._before = self.broker.cpu()

    def stop(self) -> None:
        self.generator = time.process_time() - self._generator
        moment, cpu = rest(self.broker)
        self.quiet = moment - self._start
        self.cpu = cpu - self._before


def rest(broker: Broker) -> tuple[float, float]:
    """Wait until CPU and disk are at rest. Return when that began, and cpu() then."""
    last = start = time.perf_counter()
    cpu, written = broker.cpu(), broker.written()
    found, looks = (last, cpu), 0
    while looks < REST and last - start < UNREST:
        time.sleep(SAMPLE)
        now, cpu_now, written_now = time.perf_counter(), broker.cpu(), broker.written()
        looks += 1
        if cpu_now - cpu > BUSY * (now - last) or written_now > written:
            found, looks = (now, cpu_now), 0
        last, cpu, written = now, cpu_now, written_now
    return found


# ---- start and stop ----


def start(name: str, recipes: Path | None) -> Broker:
    """Start a broker. AbsentError where that is not possible."""
    if name == OURS:
        return Ours()
    if recipes is None:
        raise AbsentError("its start script is not known: use --peers FOLDER or STOMPCODEC_PEERS")
    if not (recipes / name).is_file():
        raise AbsentError(f"there is no start script {name} in the folder of the peers")
    return Peer(name, recipes / name)


class Peer(Broker):
    """A peer with a recipe: a program that knows start, stop and status. One that runs already is left running."""

    def __init__(self, name: str, recipe: Path) -> None:
        self._recipe = recipe
        self._ran = self._call("status").returncode == 0
        if self._ran:
            print(f"{name} runs already: it is used as it is, and left running", flush=True)
        else:
            done = self._call("start")
            if done.returncode:
                raise AbsentError((done.stderr or done.stdout).strip().splitlines()[-1])
        words = self._call("status").stdout.replace(",", "").split()  # NAME runs on port N, pid N
        port, pid = (int(words[words.index(word) + 1]) for word in ("port", "pid"))
        super().__init__(name, port, pid, port + WEBSOCKET[name] if name in WEBSOCKET else None)

    def _call(self, verb: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self._recipe, verb], capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def stop(self) -> None:
        if not self._ran:
            self._call("stop")


class Ours(Broker):
    """`stompcodec broker` with its defaults and more options; of another interpreter if `python` names one."""

    def __init__(self, *, python: Path | None = None, options: tuple[str, ...] = ()) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="stompcodec-bench-"))
        self._ready = self._folder / "ready"
        self._command = [str(python or sys.executable), "-m", "stompcodec.cli", "broker", "--port", "0"]
        self._command += ["--ws-port", "0", *options, "--data", str(self._folder / "data")]
        self._command += ["--ready-file", str(self._ready)]
        where = Path(stompcodec.__file__).resolve().parent.parent
        self._environment = {**os.environ, "PYTHONPATH": "" if python else str(where)}
        self.restart()

    def restart(self) -> float:
        """Start it on the data that are there, and return the seconds until it listens."""
        self._ready.unlink(missing_ok=True)
        begin = time.monotonic()
        with open(self._folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        while not self._ready.exists():
            if self._process.poll() is not None or time.monotonic() > begin + 15:
                said = (self._folder / "log").read_text().strip().splitlines()
                self.stop()
                raise AbsentError(f"it does not start: {said[-1] if said else 'its log is empty'}")
            time.sleep(0.002)
        taken = time.monotonic() - begin
        address = json.loads(self._ready.read_text())
        super().__init__(OURS, address["port"], self._process.pid, address["ws_port"])
        return taken

    def kill(self) -> None:
        """Kill it as by kill -9. Its data stay."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
