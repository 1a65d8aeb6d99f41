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

from loads import Load

import stompcodec

OURS = "ours"
PEERS = ("activemq", "rabbitmq", "stompserver")
#: Selectors are measured on ours alone.
_OURS_ALONE = {"headers-1k", "selector-1k"}
#: STOMP over WebSocket: how far its port is from that of STOMP.
WEBSOCKET = {"rabbitmq": 100}
#: What a peer cannot do, or does in memory where the others write to the disk.
LACKS = {
    "stompserver": {
        *("individual-1k", "persistent-1k", "window-100", "window-1", "producers-16", "beside-durable"),
        *("transactions-10", "durable-individual", "window-1-computing", "websocket-1k"),
        *_OURS_ALONE,
    },
    "activemq": {*_OURS_ALONE, "websocket-1k"},
    "rabbitmq": _OURS_ALONE,
}
SAMPLE = 0.02  # seconds between two looks at a broker that comes to rest
REST = 8  # looks in a row without work: it is at rest
BUSY = 0.1  # share of a core that is still rest: a virtual machine is never quite idle
UNREST = 6.0  # seconds after which we wait no longer


class AbsentError(Exception):
    """This broker is not to be had here; the text says why."""


class Broker:
    """A running broker.

    Attributes:
        name: ours, or of PEERS.
        port: of STOMP on 127.0.0.1.
        pid: of its first process.
        ws_port: of STOMP over WebSocket, or None.
    """

    def __init__(self, name: str, port: int, pid: int, ws_port: int | None = None) -> None:
        self.name, self.port, self.pid, self.ws_port = name, port, pid, ws_port

    def port_of(self, load: Load) -> int:
        """The port that a load uses."""
        if not load.websocket:
            return self.port
        assert self.ws_port is not None
        return self.ws_port

    def stop(self) -> None:
        """End what start() has started."""

    def processes(self) -> list[int]:
        """The first process and its descendants."""
        found = [self.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):
                    found += map(int, task.read_text().split())
        return found

    def cpu(self) -> float:
        """Seconds of processor time: all threads, dead ones too, and children."""
        return sum(map(_cpu, self.processes()))

    def written(self) -> int:
        """Octets handed to the disk."""
        return sum(_field(pid, "io", "write_bytes") for pid in self.processes())

    def resident(self) -> float:
        """Resident memory in KiB."""
        return sum(_field(pid, "status", "VmRSS") for pid in self.processes())

    def peak(self) -> float:
        """The most resident memory so far, in KiB."""
        return sum(_field(pid, "status", "VmHWM") for pid in self.processes())


def _cpu(pid: int) -> float:
    try:
        return time.clock_gettime(~pid << 3 | 2)  # the processor clock of another process, see clock_getcpuclockid(3)
    except OSError:
        return 0.0


def _field(pid: int, file: str, name: str) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return 0


class Meter:
    """What a broker uses from start() until it is at rest after stop().

    Attributes:
        cpu: seconds of processor time.
        generator: seconds of processor time of this process between start() and stop().
        quiet: seconds from start() until the last work that was seen.
        written: octets.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.cpu = self.generator = self.quiet = 0.0
        self.written = 0

    def start(self) -> None:
        self._generator = time.process_time()
        self._start = time.perf_counter()
        self._before = self.broker.cpu(), self.broker.written()

    def stop(self) -> None:
        self.generator = time.process_time() - self._generator
        moment, cpu, written = rest(self.broker)
        self.quiet = moment - self._start
        self.cpu, self.written = cpu - self._before[0], written - self._before[1]


def rest(broker: Broker) -> tuple[float, float, int]:
    """Wait until processor and disk are at rest: when that began, and cpu() and written() then."""
    last = start = time.perf_counter()
    found = last, broker.cpu(), broker.written()
    cpu, written = found[1:]
    looks = 0
    while looks < REST and last - start < UNREST:
        time.sleep(SAMPLE)
        now, cpu_now, written_now = time.perf_counter(), broker.cpu(), broker.written()
        looks += 1
        if cpu_now - cpu > BUSY * (now - last) or written_now > written:
            found, looks = (now, cpu_now, written_now), 0
        last, cpu, written = now, cpu_now, written_now
    return found


def processor() -> str:
    """Model of the processor, by /proc/cpuinfo."""
    pairs = [line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line]
    found = {key.strip(): value.strip() for key, value in reversed(pairs)}
    family = f" (family {found['cpu family']}, model {found['model']})" if "cpu family" in found else ""
    return found.get("model name", os.uname().machine) + family


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
    """A peer with a recipe: a program that knows start, stop and status. One that runs already is left running.

    Attributes:
        ran: whether it ran already.
    """

    def __init__(self, name: str, recipe: Path) -> None:
        self._recipe = recipe
        self.ran = self._call("status").returncode == 0
        if self.ran:
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
        if not self.ran:
            self._call("stop")


class Ours(Broker):
    """`stompcodec broker` with a folder for its data, all else as it comes.

    Args:
        wrapper: the command that runs Python's arguments, instead of this interpreter.
        python: another interpreter, which runs the stompcodec that is installed for it.
        options: more options of `stompcodec broker`.
    """

    def __init__(
        self, *, wrapper: tuple[str, ...] = (), python: Path | None = None, options: tuple[str, ...] = ()
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="stompcodec-bench-"))
        ready = self._folder / "ready"
        where = Path(stompcodec.__file__).resolve().parent.parent
        command = [*(wrapper or (str(python or sys.executable),)), "-m", "stompcodec.cli", "broker"]
        command += ["--port", "0", "--ws-port", "0", *options]
        with open(self._folder / "log", "wb") as log:
            self._process = subprocess.Popen(
                [*command, "--data", str(self._folder / "data"), "--ready-file", str(ready)],
                env={**os.environ, "PYTHONPATH": "" if python else str(where)},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 15
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self._folder / "log").read_text().strip().splitlines()
                self.stop()
                raise AbsentError(f"it does not start: {said[-1] if said else 'no word'}")
            time.sleep(0.02)
        address = json.loads(ready.read_text())
        super().__init__(OURS, address["port"], self._process.pid, address["ws_port"])

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
