"""Measure how long a well-behaved client waits for its receipts beside clients that cost much. `make bench-isolation`.

    python benchmarks/bench_isolation.py [--seconds 3] [--only CASE ...] [--against PYTHON] [--json]

Each case has a broker process of its own and a neighbour (neighbours.py), also a process. Two probes send a message
with a receipt, wait for the receipt, pause for 2 ms, and start over: `plain` messages are in memory alone, `stored`
ones are on the disk before their receipt. Each probe consumes its own messages. The silence is the longest time without
a receipt for either of them. A case takes --seconds, longer if one round of its neighbour does.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from crash.process import BrokerProcess
from neighbours import CASES, PATIENCE

import stompcodec
from stompcodec import Frame

#: Seconds between a receipt and the next message of a probe.
PAUSE = 0.002
#: Seconds for which the probes go on once the neighbour is done: the broker may still have work from it.
AFTER = 0.5
#: Seconds that one case may take, beside --seconds.
LIMIT = 180.0
QUANTILES = (50, 95, 99)
PROBES = ("plain", "stored")
_NEIGHBOURS = Path(__file__).with_name("neighbours.py")


class Probe:
    """A client with one message on its way at a time. It consumes its messages, unless its name is `kept`.

    Attributes:
        delays: seconds from each message to its receipt.
        due: time at which to send the next message; None while a receipt is due.
    """

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.delays: list[float] = []
        self._parser = stompcodec.Parser("1.2")
        queue = f"/queue/probe.{name}"
        self._write("CONNECT", accept_version="1.2", host="/", login="guest", passcode="guest")
        self._wait("CONNECTED")
        if name != "kept":
            self._write("SUBSCRIBE", id="0", destination=queue, ack="auto", receipt="s")
            self._wait("RECEIPT")
        stored = {"persistent": "false" if name == "plain" else "true"}
        self._message = self._bytes("SEND", destination=queue, receipt="r", **stored)
        self.due: float | None = time.monotonic()
        self._sent = 0.0

    @staticmethod
    def _bytes(command: str, **headers: str) -> bytes:
        return stompcodec.serialize(Frame(command, [(k.replace("_", "-"), v) for k, v in headers.items()]), "1.2")

    def _write(self, command: str, **headers: str) -> None:
        self.socket.sendall(self._bytes(command, **headers))

    def _read(self) -> list[str]:
        """Return the commands of the frames that have arrived."""
        data = self.socket.recv(65536)
        frames = list(self._parser.feed(data))
        errors = [frame for frame in frames if frame.command == "ERROR"]
        if errors or not data:
            raise RuntimeError(f"the broker ended a probe: {[dict(frame.headers) for frame in errors]}")
        return [frame.command for frame in frames]

    def _wait(self, command: str) -> None:
        while command not in self._read():
            pass

    def send(self) -> None:
        """Send the next message."""
        self.due, self._sent = None, time.monotonic()
        self.socket.sendall(self._message)

    def read(self) -> float | None:
        """Read what has arrived. Return the time of a receipt, or None if there was none."""
        if "RECEIPT" not in self._read():
            return None
        now = time.monotonic()
        self.delays.append(now - self._sent)
        self.due = now + PAUSE
        return now


def watch(port: int, neighbour: subprocess.Popen[str], limit: float) -> dict[str, Any]:
    """Run the probes beside a neighbour that is ready, until it is done. Return the figures in ms."""
    assert neighbour.stdin
    assert neighbour.stdout
    probes = {name: Probe(port, name) for name in PROBES}
    with selectors.DefaultSelector() as selector:
        for probe in probes.values():
            selector.register(probe.socket, selectors.EVENT_READ, probe)
        selector.register(neighbour.stdout, selectors.EVENT_READ)
        neighbour.stdin.write("go\n")
        neighbour.stdin.flush()
        began = last = time.monotonic()
        end, silence, rounds = began + limit, 0.0, ""
        while (now := time.monotonic()) < end or any(probe.due is None for probe in probes.values()):
            if now > end + PATIENCE:
                raise RuntimeError(f"the broker has not answered a probe for {now - last:.0f} s")
            for probe in probes.values():
                if probe.due is not None and probe.due <= now < end:
                    probe.send()
            due = min((probe.due for probe in probes.values() if probe.due is not None), default=now + 1)
            for key, _ in selector.select(max(0.0, due - time.monotonic())):
                if key.data is None:
                    rounds = neighbour.stdout.readline().strip()
                    selector.unregister(neighbour.stdout)
                    end = time.monotonic() + AFTER
                elif (moment := key.data.read()) is not None:
                    silence, last = max(silence, moment - last), moment
    for probe in probes.values():
        probe.socket.close()
    if not rounds:
        raise RuntimeError(f"the neighbour failed or took longer than {limit:.0f} s")
    figures = {name: spread(probe.delays) for name, probe in probes.items()}
    return {"rounds": int(rounds), "silence": 1000 * silence, "probes": figures}


def spread(delays: list[float]) -> dict[str, float]:
    """Return the number of delays, their quantiles and the longest, in ms.

    >>> spread([0.001, 0.002, 0.003, 0.004])
    {'count': 4, 'p50': 3.0, 'p95': 4.0, 'p99': 4.0, 'max': 4.0}
    """
    ordered = sorted(delays)
    quantiles = {f"p{part}": 1000 * ordered[len(ordered) * part // 100] for part in QUANTILES}
    return {"count": len(ordered), **quantiles, "max": 1000 * ordered[-1]}


def run(case: str, seconds: float, python: Path | None) -> dict[str, Any]:
    """Measure one case on a broker of its own."""
    with tempfile.TemporaryDirectory() as name, BrokerProcess(Path(name), python=python) as broker:
        command = [sys.executable, str(_NEIGHBOURS), case, str(seconds), str(broker.port), str(broker.ws_port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as neighbour:
            try:
                assert neighbour.stdout
                if neighbour.stdout.readline() != "ready\n":
                    raise RuntimeError("the neighbour failed before it began")
                return watch(broker.port, neighbour, seconds + LIMIT)
            finally:
                neighbour.kill()


def installed(python: Path) -> str:
    """Return version and place of the stompcodec of an interpreter."""
    script = "import stompcodec; print(stompcodec.__version__, 'in', stompcodec.__path__[0])"
    found = subprocess.run([python, "-I", "-c", script], capture_output=True, text=True)
    if found.returncode:
        raise ValueError(found.stderr.strip().splitlines()[-1])
    return found.stdout.strip()


def line(case: str, who: str, probe: str, found: dict[str, float], silence: str) -> str:
    times = "".join(f"{found[key]:9.1f}" for key in ("p50", "p95", "p99", "max"))
    return f"{case:53}{who:9}{probe:8}{found['count']:7.0f}{times}{silence:>10}"


def show(result: dict[str, Any]) -> None:
    """Print the rows of one case."""
    names = [CASES[result["case"]][1] if result["who"] == "this" else "", ""]
    silences = [f"{result['silence']:.1f}", ""]
    for name, (probe, found), silence in zip(names, result["probes"].items(), silences, strict=True):
        print(line(name, result["who"], probe, found, silence), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="least duration of each case (3)")
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--against", type=Path, metavar="PYTHON", help="an interpreter with another stompcodec")
    parser.add_argument("--json", action="store_true", help="print JSON, with all times in ms, instead of a table")
    args = parser.parse_args()
    sides: dict[str, Path | None] = {"this": None}
    told = {"this": f"{stompcodec.__version__} in {stompcodec.__path__[0]}"}
    if args.against:
        sides["against"] = args.against.absolute()  # not resolved: a venv's python is a link
        try:
            told["against"] = installed(sides["against"])
        except (OSError, ValueError) as error:
            parser.error(f"{args.against} cannot import stompcodec: {error}")
    if not args.json:
        print(*(f"{who}: stompcodec {text}" for who, text in told.items()), sep="\n")
        print("ms from a message to its receipt; silence: the longest time without any receipt")
        heads = "".join(f"{head:>9}" for head in ("p50", "p95", "p99", "max"))
        print(f"{'beside':53}{'broker':9}{'probe':8}{'probes':>7}{heads}{'silence':>10}", flush=True)
    results = []
    for case in args.only:
        for who, python in sides.items():
            results.append({"case": case, "who": who, **run(case, args.seconds, python)})
            if not args.json:
                show(results[-1])
    if args.json:
        print(json.dumps({"brokers": told, "cases": results}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
