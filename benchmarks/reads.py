"""Small reads: all parsers that are written in Python, at each read size, in turns and over the same bytes."""

from __future__ import annotations

from typing import Any

import corpus
import measure
from contestants import Contestant, ours
from goals import C
from make_corpus import fragments

#: Larger bodies would say little about frames.
WORKLOADS = ("ticks", "acks", "text", "headers30", "trains", "crlf", "heartbeats", "mixed")
SIZES = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
_MOST = 32 * 1024  # bytes of a workload, or two reads: a pass in single bytes must fit into a turn
_ROUNDS = 5


def reads(everyone: list[Contestant], rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return nanoseconds per frame, {workload: {bytes per read: {contestant: ns}}}.

    A peer that gets less than three of four frames at a read size is left out there.
    """
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, workload in corpus.load(0.25, WORKLOADS).items():
        table[name] = {}
        for size in SIZES:
            data = workload.data[: max(_MOST, 2 * size)]
            pieces = list(fragments(data, size))
            racing = right(everyone, workload.version, pieces)
            tasks = {each.name: measure.decoding(each, workload.version, "untouched", pieces) for each in racing}
            best = measure.loop_alone(tasks, min(rounds, _ROUNDS))
            frames = workload.frames * len(data) / len(workload.data)
            table[name][str(size)] = {who: taken / frames * 1e9 for who, taken in best.items()}
    return table


def right(everyone: list[Contestant], version: str, pieces: list[bytes]) -> list[Contestant]:
    """Those who read these pieces as frames; ours must find all of them, once and in order."""
    truth, _ended = ours("python").collect(version, [b"".join(pieces)])
    racing = [contestant for contestant in everyone if contestant.name != C]
    return [contestant for contestant in racing if _is_right(contestant, version, pieces, truth)]


def _is_right(contestant: Contestant, version: str, pieces: list[bytes], truth: list[Any]) -> bool:
    got, ended = contestant.collect(version, pieces)
    if contestant.backend and got != truth:
        raise AssertionError(f"{contestant.name}: reads of {len(pieces[0])} B give other frames")
    return ended and len(got) * 4 >= len(truth) * 3
