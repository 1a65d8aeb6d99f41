"""The codec beside other libraries, all in turns: `make bench WHAT=codec`. Time is CPU time of the thread."""

from __future__ import annotations

import gc
import logging
import time
from argparse import Namespace
from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any

import contestants
import corpus
from contestants import Contestant


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


@cache
def verdict(contestant: Callable[[], Contestant], workload: str) -> str:
    """Return "right", "wrong" or "fails", on a fiftieth of the workload."""
    stream = corpus.stream(workload, 0.02)
    truth = [(command, contestants.first_wins(pairs), body) for command, pairs, body in stream.frames]
    pieces = list(corpus.fragments(stream.data(), 65536))
    return contestants.judged(contestant(), stream.version, pieces, truth)


def seconds_of(run: Callable[[], Any], seconds: float) -> float:
    """Return the CPU seconds of a pass, the least of those that fit into some seconds, after one to warm up."""
    run()
    gc.collect()
    gc.freeze()  # the corpus is not for the contestants' garbage collections to walk through
    least, now = float("inf"), time.thread_time()
    end = now + seconds
    while now < end:
        start = time.thread_time()
        run()
        now = time.thread_time()
        least = min(least, now - start)
    gc.unfreeze()
    return least


def measure(args: Namespace) -> dict[str, Any]:
    """Return nanoseconds per frame, the least of some rounds. A library that fails a workload has no figure."""
    logging.disable()  # a peer looks at each call whether to log, and logs what it cannot decode
    tables: dict[str, dict[str, dict[str, float]]] = {operation: {} for operation in OPERATIONS}
    wrong: set[tuple[str, str, str]] = set()
    for turn in range(args.rounds or (1 if args.quick else 3)):
        for row in corpus.WORKLOADS:
            workload = corpus.load(0.02 if args.quick else 0.1, [row])[row]
            for operation, prepare in OPERATIONS.items():
                for name, make in contestants.MAKERS.items():
                    found = "right" if operation == "serialize" else verdict(make, row)
                    if found == "fails" or (args.only and not {row, operation, name} & {*args.only}):
                        continue
                    taken = seconds_of(prepare(make(), workload), 0.01 if args.quick else 0.2) / workload.frames * 1e9
                    cell = tables[operation].setdefault(row, {})
                    cell[name] = min(taken, cell.get(name, taken))
                    wrong |= {(operation, row, name)} if found == "wrong" else set()
        print(f"codec: round {turn + 1} is done", flush=True)
    peers = [f"{name} {metadata.version(name)}" for name in contestants.MAKERS if "codec" not in name]
    return {"facts": {"peers": ", ".join(peers)}, "tables": tables, "wrong": sorted(wrong)}
