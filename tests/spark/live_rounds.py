"""Rounds of kill -9 for drivers, JVMs, recorders and brokers, while a producer sends; then the sinks are counted.

Three lanes run at the same time, with a queue, a checkpoint and a Parquet sink each: the live source in both of its ack
modes, and a recorder of its own process, which a stream of files follows.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as parquet
from crash.process import ROOT, BrokerProcess
from patience import patience

import stompcodec.client as stomp
from stompcodec.errors import StompError

__all__ = ["KINDS", "Driver", "Figures", "rounds", "rows_in"]

#: What is killed.
KINDS = ("driver", "jvm", "recorder", "broker")
LANES = ("spool", "batch", "file")
#: Messages a second on each queue, and how many wait for receipts together.
_RATE = 100
_TOGETHER = 20
#: What Spark says where the machine is too busy for it.
_SLOW = "Python worker failed to connect back"
#: What a recorder ends with where no broker is there yet when it begins, or no longer.
_NO_BROKER = ("cannot connect to", "connection was lost")
#: No message becomes a dead letter, however often it is delivered.
_CONFIG = "[queues]\nmax_attempts = 1000000\n"


class Figures(NamedTuple):
    """What became of the messages of a lane."""

    sent: int
    """With a receipt."""
    unsure: int
    """Sent, but the broker was killed before the receipt came: they may be there or not."""
    rows: int
    missing: int
    duplicates: int
    redelivered: int
    """Rows the broker had sent before."""
    left: int
    """What the broker still has in the end."""
    torn: int
    """Files that a killed batch left in the sink, and that count for nothing."""


def rounds(
    folder: Path,
    count: int,
    *,
    seed: int = 0,
    kinds: Sequence[str] = KINDS,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Figures]:
    """Kill something so many times, at a random moment each, and count what the sinks have in the end.

    Args:
        folder: for everything that is kept.
        count: how many rounds; each of the kinds has its share.
        seed: of the moments and the order.
        kinds: what is killed.
        progress: called after each round.

    Returns:
        The figures of each lane.
    """
    chance = random.Random(seed)
    plan = [kinds[number % len(kinds)] for number in range(count)]
    chance.shuffle(plan)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(
            BrokerProcess(folder / "broker", config=_CONFIG, flags=("--port", str(_free_port())))
        )
        url = f"stomp://127.0.0.1:{broker.port}"
        recorder = stack.enter_context(Recorder(url, folder))
        driver = stack.enter_context(Driver(folder, _lanes(url, folder)))
        producer = stack.enter_context(Producer(url))
        began = time.monotonic()
        for number, kind in enumerate(plan, 1):
            driver.check()
            recorder.check()
            if kind in ("driver", "jvm") and chance.random() < 0.7:
                driver.wait_for_a_batch()  # the next one follows at once, and is hit in the middle
            moment = chance.uniform(0.05, 2.5)
            time.sleep(moment)
            if kind == "driver":
                driver.kill()
            elif kind == "jvm":
                driver.kill_jvm()
            elif kind == "recorder":
                recorder.kill()
            else:
                broker.kill()
                broker.start()
            progress(
                f"round {number} of {count}: {kind} killed after {moment:.1f} s, {producer.count:,} sent,"
                f" {time.monotonic() - began:.0f} s"
            )
        producer.stop()
        driver.wait()
        until = time.monotonic() + patience(240)  # what is not there then is missing
        while time.monotonic() < until:
            if all(producer.sent[lane] <= set(rows_in(folder / lane)[0]) for lane in LANES):
                break
            driver.check()
            recorder.check()
            time.sleep(0.5)
        time.sleep(patience(2.0))  # the last acknowledgements
        driver.stop()
        recorder.stop()
        left = {lane: _left(url, lane) for lane in LANES}
    return {lane: _figures(folder / lane, producer, lane, left[lane]) for lane in LANES}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _queue(lane: str) -> str:
    return f"/queue/live.{lane}"


def _lanes(url: str, folder: Path) -> dict[str, dict[str, Any]]:
    lanes: dict[str, dict[str, Any]] = {}
    for mode in ("spool", "batch"):
        options = {"url": url, "destination": _queue(mode), "spoolDir": str(folder / mode / "spool")}
        options |= {"ackMode": mode, "prefetch": "1000", "subscriptions": "2", "maxSpoolBytes": "200m"}
        lanes[mode] = {"format": "stomp", "options": options}
    lanes["file"] = {"format": "stompfile", "options": {"path": str(folder / "file" / "spool")}}
    return lanes


class Program:
    """A process that is started again when it was killed."""

    def __init__(self, command: list[str], log: Path, **options: Any) -> None:
        self._command = [sys.executable, *command]
        self._log = log
        self._options = options
        paths = [ROOT, str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log, env=self._environment, **self._options)

    def end(self) -> None:
        """As kill -9."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def tail(self) -> str:
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:])


class Recorder(Program):
    """`stompcodec record`, of the lane that a stream of files follows."""

    def __init__(self, url: str, folder: Path) -> None:
        (folder / "file").mkdir(parents=True)
        spool = str(folder / "file" / "spool")
        options = ["--dedupe", "messageId", "--segment", "500K", "-q"]
        command = ["-m", "stompcodec.cli", "record", url, _queue("file"), "-o", spool, *options]
        super().__init__(command, folder / "recorder.log")

    def check(self) -> None:
        """It ends by itself only where it finds no broker, and who keeps such programs running starts it again."""
        if self.process.poll() is None:
            return
        said = self.tail()
        last = said[said.rfind("\n") + 1 :]
        if self.process.returncode != 1 or not any(text in last for text in _NO_BROKER):
            raise RuntimeError(f"the recorder has ended with {self.process.returncode}: {said}")
        self.kill()

    def kill(self) -> None:
        self.end()
        self.start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(patience(240))


class Driver(Program):
    """The driver of all lanes, with its JVM.

    Args:
        folder: for what the lanes keep, and for its log.
        lanes: name -> format and options of a source.
    """

    def __init__(self, folder: Path, lanes: dict[str, dict[str, Any]]) -> None:
        order = json.dumps({"folder": str(folder), "lanes": lanes})
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        super().__init__([str(Path(__file__).with_name("live_driver.py")), order], folder / "driver.log", **pipes)
        self._jvm: int | None = None
        self._through = False

    def wait(self) -> None:
        """Until its queries run."""
        while self._jvm is None:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            said = json.loads(line) if line else {}
            if "jvm" in said:
                self._jvm = int(said["jvm"])
            else:
                self._begin_again(str(said))

    def wait_for_a_batch(self) -> None:
        """Until one of its queries is through with one, in this life."""
        while not self._through:
            self.wait()
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            self._through = b"batch" in line
            if not self._through:
                self._begin_again(line.decode())

    def check(self) -> None:
        """Nothing but a kill ends it."""
        if self.process.poll() is not None:
            assert self.process.stdout is not None
            self._begin_again(self.process.stdout.read().decode())
        self.wait()

    def _begin_again(self, said: str) -> None:
        """It has ended by itself, which is only for Spark to do: where its processes do not start within 10 s."""
        if _SLOW not in said:
            raise RuntimeError(f"the driver has ended: {said}\n{self.tail()}")
        self.kill()

    def kill(self) -> None:
        """With its JVM, and begin again."""
        self.end()
        self.start()

    def kill_jvm(self) -> None:
        """The JVM alone; the driver sees that for itself."""
        assert self._jvm is not None
        os.kill(self._jvm, 9)
        time.sleep(0.3)
        self.kill()

    def end(self) -> None:
        jvm, self._jvm, self._through = self._jvm, None, False
        if jvm is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(jvm, 9)
        super().end()

    def stop(self) -> None:
        """Let it end its queries."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(patience(240))
        self._jvm = None


class Producer(threading.Thread):
    """Sends to all queues. What has a receipt has to be in a sink in the end; what has none may be."""

    def __init__(self, url: str) -> None:
        super().__init__(name="producer")
        self._client = stomp.connect(url, reconnect=stomp.Backoff(first=0.05, most=0.5), receipt_timeout=20.0)
        self._stopped = threading.Event()
        self.sent: dict[str, set[int]] = {lane: set() for lane in LANES}
        self.unsure: dict[str, set[int]] = {lane: set() for lane in LANES}
        self.count = 0

    def __enter__(self) -> Producer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._client.close()

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        due = time.monotonic()
        while not self._stopped.is_set():
            waiting = []
            for _ in range(_TOGETHER):
                for lane in LANES:
                    headers = {"n": str(self.count), "persistent": "true"}
                    body = b"%d" % self.count
                    receipt = self._client.send_for_receipt(_queue(lane), body, headers)
                    waiting.append((receipt, lane, self.count))
                self.count += 1
            for receipt, lane, number in waiting:
                try:
                    receipt.wait()
                    self.sent[lane].add(number)
                except StompError:
                    self.unsure[lane].add(number)
            due = max(due + _TOGETHER / _RATE, time.monotonic() - 1.0)
            self._stopped.wait(max(0.0, due - time.monotonic()))


# ---- the books ----


def _committed(sink: Path) -> list[Path]:
    """The files that count, by the log of the sink."""
    logs = {}
    for path in (sink / "_spark_metadata").glob("[0-9]*"):
        number, _, kind = path.name.partition(".")
        if kind in ("", "compact"):
            logs[int(number)] = path
    whole = max((number for number, path in logs.items() if path.suffix), default=-1)
    files: list[Path] = []
    for number in sorted(number for number in logs if number >= whole):
        entries = map(json.loads, logs[number].read_text().splitlines()[1:])
        files += [Path(unquote(urlsplit(entry["path"]).path)) for entry in entries]
    return files


def rows_in(folder: Path) -> tuple[list[int], int]:
    """The numbers in a sink, and how many of them the broker had sent before."""
    numbers: list[int] = []
    again = 0
    for path in _committed(folder / "sink"):
        table = parquet.read_table(path)
        numbers += table["n"].to_pylist()
        again += sum(map(bool, table["redelivered"].to_pylist()))
    return numbers, again


def _left(url: str, lane: str) -> int:
    with stomp.connect(url) as client:
        subscription = client.subscribe(_queue(lane), ack="client-individual", prefetch=100_000)
        client.ping()
        count = 0
        while subscription.get(0.5) is not None:
            count += 1
        return count


def _figures(folder: Path, producer: Producer, lane: str, left: int) -> Figures:
    numbers, again = rows_in(folder)
    times = Counter(numbers)
    known = producer.sent[lane] | producer.unsure[lane]
    assert set(times) <= known, "rows that nobody sent"
    return Figures(
        sent=len(producer.sent[lane]),
        unsure=len(producer.unsure[lane]),
        rows=len(numbers),
        missing=len(producer.sent[lane] - set(times)),
        duplicates=sum(count - 1 for count in times.values()),
        redelivered=again,
        left=left,
        torn=len(set((folder / "sink").glob("*.parquet")) - set(_committed(folder / "sink"))),
    )
