"""Measure what it costs to watch our broker, and how long its management takes to answer. `make bench-watch`.

    python benchmarks/bench_watch.py [--pairs 7] [--seconds 4] [--queues 1000] [--python PYTHON] [--json]

One broker with --queues queues runs all the time. A pair is a run of the load without watchers and one with them, which
begin in turns. The watchers are `top --json --interval 1`, a reader of /metrics, and a client that asks all questions
of management; each of them once a second. The cost is CPU of the broker per message, watched divided by unwatched: the
median of the pairs, and their spread (the distance between the quartiles of the ratios), which is what the machine
itself does. Then a client asks management all the time under the same load.

--python measures the broker of another interpreter. A broker without /metrics is measured without it, which is said.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bench_broker
from brokers import AbsentError, Ours
from loads import LOADS

import stompcodec.client as stomp

LOAD = "queue-1k"
#: The most CPU per message of a watched broker; the spread of the pairs counts if it is more. And ms of answers, p99.
GOALS = {"watched": 1.03, "answers": 50.0}
_WATCHERS = Path(__file__).with_name("watchers.py")
PLAIN = "[queues]\nmax_destinations = 100000\nsession_destinations = 100000\n"
METRICS = f"[listen]\nws_port = 0\n[web]\nmetrics = true\n{PLAIN}"


def start(python: Path | None, folder: Path) -> tuple[Ours, bool]:
    """Start the broker, with /metrics if it has that. Return it, and whether it has."""
    file = folder / "broker.toml"
    for text in (METRICS, PLAIN):
        file.write_text(text)
        try:
            return Ours(python=python, options=("--config", str(file))), text == METRICS
        except AbsentError as error:
            why = error
    raise why


def fill(port: int, queues: int) -> None:
    """Make queues with one to ten messages each."""
    with stomp.connect(f"stomp://127.0.0.1:{port}") as client:
        for number in range(queues):
            for _ in range(number % 10 + 1):
                client.send(f"/queue/kept.{number:05}", b"x" * 100, persistent=False)
        client.ping()


@contextmanager
def watched(broker: Ours, metrics: bool) -> Iterator[None]:
    """Run the watchers. They have all asked once before the block begins."""
    url = f"stomp://127.0.0.1:{broker.port}"
    top = [sys.executable, "-m", "stompcodec.cli", "top", "--json", "--interval", "1", "--url", url]
    port = broker.ws_port if metrics else 0
    asking = [sys.executable, str(_WATCHERS), "each-second", str(broker.port), str(port)]
    with (
        subprocess.Popen(top, stdout=subprocess.PIPE, text=True) as first,
        subprocess.Popen(asking, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as second,
    ):
        assert first.stdout
        assert second.stdout
        assert second.stdin
        if not first.stdout.readline() or second.stdout.readline() != "ready\n":
            raise RuntimeError("a watcher failed before it began")
        reader = threading.Thread(target=first.stdout.read)  # or the pipe would be full
        reader.start()
        try:
            yield
        finally:
            second.stdin.close()
            first.terminate()
            reader.join()
    if first.returncode or second.returncode:
        raise RuntimeError("a watcher failed")


def pair(broker: Ours, metrics: bool, seconds: float, turn: int) -> dict[str, float]:
    """Return microseconds of CPU per message, unwatched and watched."""
    found = {}
    for is_watched in (False, True)[:: -1 if turn % 2 else 1]:
        mark = f"{turn}-{is_watched}"
        if is_watched:
            with watched(broker, metrics):
                cell = bench_broker.run(broker, LOADS[LOAD], seconds, mark)
        else:
            cell = bench_broker.run(broker, LOADS[LOAD], seconds, mark)
        found["watched" if is_watched else "alone"] = cell["cpu"] / cell["messages"] * 1e6
    return found


def answer_times(broker: Ours, seconds: float) -> dict[str, list[float]]:
    """Return the seconds of the answers under the load, by question."""
    command = [sys.executable, str(_WATCHERS), "answers", str(broker.port), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout
        asking.stdout.readline()
        bench_broker.run(broker, LOADS[LOAD], seconds + 1, "answers")
        times: dict[str, list[float]] = json.loads(asking.stdout.read())
    return times


def judged(pairs: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of the ratios, their spread, and the most that is allowed.

    >>> judged([{"alone": 10.0, "watched": 10.0 + each / 10} for each in (0, 1, 2, 3, 4)])
    {'ratio': 1.02, 'spread': 0.03, 'most': 1.03}
    """
    ratios = [each["watched"] / each["alone"] for each in pairs]
    quartiles = statistics.quantiles(ratios, n=4)
    spread = quartiles[2] - quartiles[0]
    return {
        "ratio": round(statistics.median(ratios), 4),
        "spread": round(spread, 4),
        "most": round(max(GOALS["watched"], 1 + spread), 4),
    }


def show(result: dict[str, Any]) -> None:
    """Print all figures, the goals last."""
    print(f"{'pair':>6}{'alone':>12}{'watched':>12}{'ratio':>9}   CPU of the broker, µs per message")
    for number, each in enumerate(result["pairs"], 1):
        ratio = each["watched"] / each["alone"]
        print(f"{number:6}{each['alone']:12.3f}{each['watched']:12.3f}{ratio:9.3f}")
    print(f"\n{'answers under load, ms':28}{'asked':>8}{'p50':>9}{'p99':>9}{'max':>9}")
    for row, found in result["answers"].items():
        print(f"{row:28}{found['asked']:8.0f}{found['p50']:9.1f}{found['p99']:9.1f}{found['max']:9.1f}")
    cost, worst = result["cost"], result["answers"]["all"]["p99"]
    reached = "yes" if cost["ratio"] <= cost["most"] else "NO"
    print(
        f"\nwatched: {cost['ratio']:.3f} times the CPU, spread {cost['spread']:.3f}, goal {cost['most']:.3f}: {reached}"
    )
    reached = "yes" if worst <= GOALS["answers"] else "NO"
    print(f"answers: p99 {worst:.1f} ms, goal {GOALS['answers']:.0f} ms: {reached}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7, help="pairs of runs, three at least (7)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each run (4)")
    parser.add_argument("--queues", type=int, default=1000, help="queues with messages (1000)")
    parser.add_argument("--python", type=Path, help="an interpreter with another stompcodec, whose broker is measured")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broker, metrics = start(args.python and args.python.absolute(), Path(folder))
        try:
            fill(broker.port, args.queues)
            bench_broker.run(broker, LOADS[LOAD], 1.0, "warm")
            pairs = [pair(broker, metrics, args.seconds, turn) for turn in range(args.pairs)]
            times = answer_times(broker, 3 * args.seconds)
        finally:
            broker.stop()
    times["all"] = [each for found in times.values() for each in found]
    found = {row: {"asked": len(each), **bench_broker.latencies(each)} for row, each in times.items()}
    result = {"metrics": metrics, "queues": args.queues, "pairs": pairs, "cost": judged(pairs), "answers": found}
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        print(f"{args.queues} queues, load {LOAD}, {'with' if metrics else 'without'} /metrics")
        show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
