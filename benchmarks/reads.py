"""Small reads: the pure-Python parsers at each read size, in turns."""

from __future__ import annotations

import corpus
import measure
from contestants import Contestant

WORKLOADS = ("ticks", "acks", "text", "headers30")
SIZES = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
PURE = ("stompcodec Python", "stomp.py", "stompman")
_MOST = 32 * 1024  # bytes of a workload, or one read: a pass in single bytes must fit into a turn


def reads(everyone: list[Contestant], rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return nanoseconds per frame, {workload: {bytes per read: {contestant: ns}}}."""
    racing = [contestant for contestant in everyone if contestant.name in PURE]
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, workload in corpus.load(0.25, WORKLOADS).items():
        table[name] = {}
        for size in SIZES:
            data = workload.data[: max(_MOST, 2 * size)]
            pieces = [data[at : at + size] for at in range(0, len(data), size)]
            frames = workload.frames * len(data) / len(workload.data)
            tasks = {each.name: measure.decoding(each, workload.version, "untouched", pieces) for each in racing}
            best = measure.loop_alone(tasks, rounds)
            table[name][str(size)] = {who: taken / frames * 1e9 for who, taken in best.items()}
    return table
