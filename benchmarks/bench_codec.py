"""The codec beside other libraries, by pytest-benchmark: `make bench WHAT=codec`, or this file alone by pytest.

    pytest benchmarks --override-ini=python_files=bench_codec.py --benchmark-only -k "ticks and decode"

`--benchmark-autosave` and `--benchmark-compare` compare two states of the code. Time is CPU time of the thread.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # pytest imports this file without its folder

import contestants
import corpus
from contestants import Contestant

SCALE = float(os.environ.get("STOMPCODEC_BENCH_SCALE", "0.1"))  # of the corpus
logging.disable()  # a peer looks at each call whether to log, and logs what it cannot decode


def _decode(contestant: Contestant, workload: corpus.Workload, use: str, size: int = 65536) -> Callable[[], None]:
    run, pieces = contestant.decode(use), workload.pieces(size)
    return lambda: run(contestant.parser(workload.version), pieces)


def _serialize(contestant: Contestant, workload: corpus.Workload) -> Callable[[], None]:
    parsed = contestants.ours("python").parser(workload.version).feed(workload.data)
    run = contestant.encode()
    frames = [contestant.native(frame.command, frame.headers.pairs(), frame.body) for frame in parsed]
    return lambda: run(frames)


#: The tables, by what is done with each workload.
OPERATIONS: dict[str, Callable[[Contestant, corpus.Workload], Callable[[], Any]]] = {
    "decode": lambda contestant, workload: _decode(contestant, workload, "pass"),
    "decode 1460 B": lambda contestant, workload: _decode(contestant, workload, "pass", 1460),
    "decode 64 B": lambda contestant, workload: _decode(contestant, workload, "pass", 64),
    "read": lambda contestant, workload: _decode(contestant, workload, contestant.read),
    "dict": lambda contestant, workload: _decode(contestant, workload, contestant.headers),
    "serialize": _serialize,
}


@lru_cache(maxsize=2)
def loaded(workload: str) -> corpus.Workload:
    return corpus.load(SCALE, [workload])[workload]


@lru_cache
def verdict(name: str, workload: str) -> str:
    """Return "right", "wrong" or "fails", on a fiftieth of the workload."""
    stream = corpus.stream(workload, 0.02)
    truth = [(command, contestants.first_wins(pairs), body) for command, pairs, body in stream.frames]
    pieces = list(corpus.fragments(stream.data(), 65536))
    return contestants.judged(contestants.MAKERS[name](), stream.version, pieces, truth)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.benchmark(timer=time.thread_time, min_time=0.00005)
@pytest.mark.parametrize("name", contestants.MAKERS)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("workload", corpus.WORKLOADS)
def test_speed(benchmark: Any, workload: str, operation: str, name: str) -> None:
    try:
        contestant = contestants.MAKERS[name]()
    except ImportError as error:
        pytest.skip(f"not measured: {error}")
    found = "right" if operation == "serialize" else verdict(name, workload)
    if found == "fails":
        pytest.skip("it raises, or a quarter of the frames is missing")
    benchmark.group = f"{operation}, {workload}"
    benchmark.extra_info.update(frames=loaded(workload).frames, verdict=found)
    run = OPERATIONS[operation](contestant, loaded(workload))
    gc.collect()
    gc.freeze()  # pytest and the corpus are not for the contestants' garbage collections to walk through
    benchmark(run)
    gc.unfreeze()


def measure(args: Namespace) -> dict[str, Any]:
    """Run this file some times, so that libraries take turns. Return nanoseconds per frame, the least of the runs."""
    tables: dict[str, dict[str, dict[str, float]]] = {operation: {} for operation in OPERATIONS}
    wrong: set[tuple[str, str, str]] = set()
    for turn in range(args.rounds or (1 if args.quick else 3)):
        for entry in _run(args.quick, args.only):
            row, operation, name = (entry["params"][key] for key in ("workload", "operation", "name"))
            cell = tables[operation].setdefault(row, {})
            taken = entry["stats"]["min"] / entry["extra_info"]["frames"] * 1e9
            cell[name] = min(taken, cell.get(name, taken))
            if entry["extra_info"]["verdict"] == "wrong":
                wrong.add((operation, row, name))
        print(f"codec: run {turn + 1} is done", flush=True)
    found = {name for table in tables.values() for cell in table.values() for name in cell}
    peers = [f"{name} {metadata.version(name)}" for name in contestants.MAKERS if name in found and "codec" not in name]
    return {"facts": {"peers": ", ".join(peers)}, "tables": tables, "wrong": sorted(wrong)}


def _run(quick: bool, only: list[str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "found.json")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", __file__]
        command += ["--override-ini=python_files=bench_codec.py", "--benchmark-only", f"--benchmark-json={file}"]
        command += [f"--benchmark-max-time={0.01 if quick else 0.2}", f"--benchmark-min-rounds={1 if quick else 5}"]
        command += ["-k", " or ".join(only)] if only else []
        scale = "0.02" if quick else "0.1"
        done = subprocess.run(command, env={**os.environ, "STOMPCODEC_BENCH_SCALE": scale}, stdout=subprocess.PIPE)
        if done.returncode:
            raise SystemExit(f"pytest failed:\n{done.stdout.decode()[-3000:]}")
        return json.loads(file.read_text())["benchmarks"]
