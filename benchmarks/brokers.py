"""The brokers under test: how each is started and stopped, and what its process has used. Linux only (/proc)."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from load import PREFETCH, Load

sys.path.extend(str(Path(__file__).resolve().parents[1] / name) for name in ("tests", "scripts"))
from crash.process import BrokerProcess
from peers import PEERS as SERVERS
from peers import Server, missing

OURS = "ours"
#: The peers of the page. Others of scripts/peers can be named, too.
PEERS = ("artemis", "activemq6", "rabbitmq4")
OPTIONS = {"artemis": {"journal": "aio"}}  # which needs libaio1; else it takes NIO
#: The words of a dialect: the window that serves a consumer best, and what makes a message transient.
WORDS: dict[str, dict[str, Any]] = {
    "artemis": {"prefetch": "consumer-window-size:1048576"},
    "activemq": {"prefetch": f"activemq.prefetchSize:{PREFETCH}"},
    "rabbitmq": {"transient": ""},  # with persistent:false RabbitMQ 4.3 declares a queue of that connection alone
}
SAMPLE = 0.02  # seconds between two looks at a broker that comes to rest
REST = 8  # looks in a row without work: it is at rest
BUSY = 0.1  # share of a core that is still rest: a virtual machine is never quite idle
UNREST = 6.0  # seconds after which we wait no longer


class Broker:
    """A running broker: its ports on 127.0.0.1, and its first process."""

    name: str
    port: int
    pid: int
    warm = 0.2  # seconds of a load before it is measured
    dialect = ""

    def stop(self) -> None:
        """End it."""

    def fitted(self, load: Load) -> Load:
        """Return the load in the broker's words."""
        return replace(load, **WORDS.get(self.dialect, {}))

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
    """The CPU seconds that a broker uses from start() until it is at rest after stop(); `quiet` are the seconds from
    start() until the last work that was seen."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.cpu = self.quiet = 0.0

    def start(self) -> None:
        self._start = time.perf_counter()
        self._before = self.broker.cpu()

    def stop(self) -> None:
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


class Peer(Broker):
    """Another broker, a server of scripts/peers; LookupError where it cannot run."""

    def __init__(self, name: str) -> None:
        if reason := missing(SERVERS[name]):
            raise LookupError(reason)
        self.name, self._server = name, Server(name, OPTIONS.get(name, {}))
        self._server.__enter__()
        self.dialect = SERVERS[name].dialect
        if self._server.classpath:
            self.warm = 6.0  # Java compiles its code while it works
        self.port = self._server.ports["stomp"]
        assert self._server.process is not None
        self.pid = self._server.process.pid

    def stop(self) -> None:
        self._server.close()


class Ours(Broker):
    """`stompcodec broker`, whose topics wait for slow consumers as the peers' do; `python` is another interpreter."""

    name = OURS

    def __init__(self, *, python: Path | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="stompcodec-bench-"))
        config, flags = '[topics]\nslow_consumer = "block"\n', ("--log-level", "warning")
        self._process = BrokerProcess(self._folder, config=config, python=python, flags=flags)
        self.restart()

    def restart(self) -> float:
        """Start it on the data that are there, and return the seconds until it listens."""
        begin = time.monotonic()
        self._process.start()
        taken = time.monotonic() - begin
        self.port, self.pid = self._process.port, self._process.pid
        return taken

    def kill(self) -> None:
        """Kill it as by kill -9. Its data stay."""
        self._process.kill()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
