"""The measurements. Each function is a section: it returns plain numbers, by names, for the JSON file."""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
import tracemalloc
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import corpus
import make_corpus
from contestants import USES, Contestant, ours

KIB, MIB = 1024, 1024 * 1024
FEEDS = {"64 KiB": 64 * KIB, "1460 B": 1460}
TURN = 0.05  # seconds that a contestant loops before the next one has its turn


#: Seconds of processor time where that clock is fine enough: waiting for a busy machine is nobody's cost.
clock = time.thread_time if time.get_clock_info("thread_time").resolution <= 1e-6 else time.perf_counter


@dataclass(frozen=True)
class Plan:
    """How much is measured: the workloads, and how many rounds of turns."""

    workloads: dict[str, corpus.Workload]
    rounds: int


def seconds(run: Callable[[], Any], clock: Callable[[], float] = clock) -> float:
    start = clock()
    run()
    return clock() - start


def loop_alone(tasks: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Least seconds of each task. In every round each one loops alone, warm; then it is the next one's turn.
    A task that raises is left out."""
    best = dict.fromkeys(tasks, float("inf"))
    for _ in range(rounds):
        for name in list(best):
            gc.collect()
            try:
                spent = 0.0
                while spent < TURN:
                    taken = tasks[name]()
                    spent += taken
                    best[name] = min(best[name], taken)
            except Exception:
                if name.startswith("stompcodec"):
                    raise
                del best[name]
    return best


def _frames_in(workload: corpus.Workload, pieces: list[bytes]) -> float:
    """How many frames the pieces are, by their octets: one that is cut off at the end has cost its part."""
    return workload.frames * sum(map(len, pieces)) / len(workload.data)


# ---- decoding ----


def correctness(everyone: list[Contestant], scale: float = 0.02) -> dict[str, dict[str, list[int]]]:
    """{workload: {contestant: [frames right, frames there are, 1 if it can be timed]}}; truth is the generator's own.

    A frame that comes again, or out of order, is not right. A contestant cannot be timed when it raises, or when a
    quarter of the frames do not come out: its time would say nothing.
    """
    found: dict[str, dict[str, list[int]]] = {}
    for name, workload in corpus.load(scale).items():
        rng = random.Random(f"{make_corpus.SEED}/{name}")
        stream = getattr(make_corpus, name)(rng, scale).frames
        truth = [_key(command, dict(reversed(pairs)), body) for command, pairs, body in stream]
        found[name] = {}
        for contestant in everyone:
            got, ended = contestant.collect(workload.version, workload.pieces())
            right = in_order(truth, [_key(*frame) for frame in got])
            if contestant.backend and (right, len(got)) != (len(truth), len(truth)):
                raise AssertionError(f"{contestant.name}, {name}: {right} of {len(truth)} frames are right")
            found[name][contestant.name] = [right, len(stream), int(ended and len(got) * 4 >= len(stream) * 3)]
    return found


def in_order(truth: list[Any], got: list[Any]) -> int:
    """How many of these are right: each is looked for behind the right one before it.

    >>> in_order(["a", "b", "c", "d"], ["a", "x", "c", "b", "c", "d"])
    3
    """
    places: dict[Any, list[int]] = {}
    for place, item in enumerate(truth):
        places.setdefault(item, []).append(place)
    found, following = 0, 0
    for item in got:
        later = places.get(item, [])
        at = bisect_left(later, following)
        if at < len(later):
            found, following = found + 1, later[at] + 1
    return found


def _key(command: str, headers: dict[str, str], body: bytes) -> tuple:
    return command, tuple(sorted(headers.items())), body


def decode_alone(plan: Plan, everyone: list[Contestant], right: dict, use: str, feed: str) -> dict:
    """Nanoseconds a frame, {workload: {contestant: ns}}; each contestant looping alone. Who would need longer than its
    turn for the whole workload is given the first part of it: a long pass sees all the noise, the least of many short
    ones none, and that would be to our advantage."""
    assert use in USES
    table: dict[str, dict[str, float]] = {}
    for name, workload in plan.workloads.items():
        tasks, counts = {}, {}
        for contestant in everyone:
            if not right[name][contestant.name][2]:
                continue
            pieces = _turn(contestant, workload, workload.pieces(FEEDS[feed]))
            counts[contestant.name] = _frames_in(workload, pieces)
            tasks[contestant.name] = decoding(contestant, workload.version, use, pieces)
        best = loop_alone(tasks, plan.rounds)
        table[name] = {who: taken / counts[who] * 1e9 for who, taken in best.items()}
    return table


def _turn(contestant: Contestant, workload: corpus.Workload, pieces: list[bytes]) -> list[bytes]:
    """What fits into a turn: at least two frames."""
    two = 1 + 2 * len(pieces) // workload.frames
    few = pieces[: max(two, len(pieces) // 100)]
    taken = decoding(contestant, workload.version, "untouched", few)()
    return pieces[: max(two, int(len(few) * TURN / taken))]


def decoding(contestant: Contestant, version: str, use: str, pieces: list[bytes]) -> Callable[[], float]:
    run = contestant.decode(use)

    def task() -> float:
        parser = contestant.parser(version)
        start = clock()
        run(parser, pieces)
        return clock() - start

    return task


def decode_alternating(plan: Plan, everyone: list[Contestant], right: dict, feed: str) -> dict:
    """Nanoseconds a frame, as above, but contestants alternate on groups of about 1000 frames (1 MiB at most), so that
    each finds the caches and branch predictors as the others left them. Over the first eighth of a workload."""
    table: dict[str, dict[str, float]] = {}
    for name, workload in plan.workloads.items():
        groups = _groups(workload, FEEDS[feed])
        frames = _frames_in(workload, [piece for group in groups for piece in group])
        racing = [contestant for contestant in everyone if right[name][contestant.name][2]]
        best = _race(racing, workload.version, groups, plan.rounds)
        table[name] = {who: sum(parts) / frames * 1e9 for who, parts in best.items()}
    return table


def _race(racing: list[Contestant], version: str, groups: list[list[bytes]], rounds: int) -> dict[str, list[float]]:
    """Least seconds of each contestant for each group. One that raises is left out."""
    runs = {contestant.name: contestant.decode("untouched") for contestant in racing}
    best = {contestant.name: [float("inf")] * len(groups) for contestant in racing}
    for _ in range(rounds):
        gc.collect()
        parsers = {contestant.name: contestant.parser(version) for contestant in racing}
        for at, group in enumerate(groups):
            for who in list(best):
                try:
                    start = clock()
                    runs[who](parsers[who], group)
                    best[who][at] = min(best[who][at], clock() - start)
                except Exception:
                    if who.startswith("stompcodec"):
                        raise
                    del best[who]
    return best


def _groups(workload: corpus.Workload, feed: int) -> list[list[bytes]]:
    pieces = workload.pieces(feed)
    size = max(1, min(round(1000 * len(pieces) / workload.frames), MIB // feed))
    eighth = max(len(pieces) // 8, size)
    return [pieces[at : at + size] for at in range(0, eighth, size)]


# ---- encoding ----


def encode(plan: Plan, everyone: list[Contestant]) -> dict:
    """Nanoseconds a frame: {"serialize" | "make and serialize" | "serialize_many" | "serialize, kept" | "serialize a
    parsed frame": {workload: {contestant: ns}}}. All frames were made from text, save in the last one. A loop drops
    what it makes, except in "serialize, kept"."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, workload in plan.workloads.items():
        parser = ours("python").parser(workload.version)
        frames = [frame for piece in workload.pieces() for frame in parser.feed(piece)]
        parts = [(frame.command, frame.headers.pairs(), frame.body) for frame in frames[: _most(workload)]]
        del frames
        for row, tasks in _encoding(everyone, workload, parts).items():
            best = loop_alone(tasks, plan.rounds // 2)
            table.setdefault(row, {})[name] = {who: taken / len(parts) * 1e9 for who, taken in best.items()}
    return table


def _most(workload: corpus.Workload) -> int:
    return max(4, workload.frames // 4)


def _encoding(everyone: list[Contestant], workload: corpus.Workload, parts: list) -> dict[str, dict]:
    rows: dict[str, dict[str, Callable[[], float]]] = {"serialize": {}, "make and serialize": {}}
    for contestant in everyone:
        native = [contestant.native(*part) for part in parts]
        dicts = [(command, dict(reversed(pairs)), body) for command, pairs, body in parts]  # stomp.py writes into them
        rows["serialize"][contestant.name] = _encoding_task(contestant.encode(), native)
        rows["make and serialize"][contestant.name] = _encoding_task(contestant.build(), dicts)
    rows.update({"serialize_many": {}, "serialize, kept": {}, "serialize a parsed frame": {}})
    for contestant in everyone:
        if contestant.backend:
            codec = contestant.backend
            made = [codec.Frame(*part) for part in parts]
            _check_written(contestant, made, workload.version)
            read = list(codec.Parser(workload.version).feed(codec.serialize_many(made, workload.version)))
            rows["serialize_many"][contestant.name] = _encoding_task(codec.serialize_many, made)
            rows["serialize, kept"][contestant.name] = _encoding_task(_kept(codec.serialize), made)
            rows["serialize a parsed frame"][contestant.name] = _encoding_task(contestant.encode(), read)
    return rows


def _kept(dump: Callable[[Any], bytes]) -> Callable[[list], list[bytes]]:
    return lambda frames: [dump(frame) for frame in frames]


def _check_written(contestant: Contestant, made: list, version: str) -> None:
    """What our backends write, frame by frame and in one call, is read as the frames that were written, in order."""
    codec = contestant.backend
    single = b"".join(codec.serialize(frame) for frame in made)
    got = list(ours("python").parser("1.2").feed(single))
    written = [(frame.command, dict(frame.headers), frame.body) for frame in made]
    for frame, (command, headers, body) in zip(got, written, strict=True):
        expected = {"content-length": str(len(body)), **headers} if "content-length" in frame.headers else headers
        assert (frame.command, dict(frame.headers), frame.body) == (command, expected, body), contestant.name
    assert codec.serialize_many(made) == single, contestant.name


def _encoding_task(run: Callable[[list], Any], frames: list) -> Callable[[], float]:
    return lambda: seconds(lambda: run(frames))


# ---- bodies ----


def bodies(plan: Plan) -> dict:
    """Seconds for all 1 MiB bodies in 64 KiB feeds, and for one copy of the same chunks, in turns."""
    found = {}
    for name in ("big1m", "big1m_nolen"):
        workload = corpus.load(1.0, (name,))[name]
        pieces = workload.pieces(64 * KIB)
        groups = [pieces[at : at + 16] for at in range(0, len(pieces), 16)]
        tasks = {"one copy": lambda groups=groups: seconds(lambda: _copy_once(groups))}
        for backend in _backends():
            contestant = ours(backend)
            tasks[contestant.name] = decoding(contestant, workload.version, "untouched", pieces)
        found[name] = loop_alone(tasks, plan.rounds)
    return found


def _copy_once(groups: list[list[bytes]]) -> None:
    for group in groups:
        _body = b"".join(group)


def sizes(plan: Plan, peer: Contestant | None) -> dict[str, dict[str, float]]:
    """Seconds for one body with NULs and content-length in 1 KiB reads: {contestant: {MiB: seconds}}; and for one copy
    of the same chunks, which pays for as many new pages of memory."""
    contestants = [ours(backend) for backend in _backends()] + ([peer] if peer else [])
    found: dict[str, dict[str, float]] = {"one copy": {}, **{contestant.name: {} for contestant in contestants}}
    for size in (2, 4, 8, 16):
        body = random.Random(size).randbytes(size * MIB)
        data = b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n%b\0" % (len(body), body)
        pieces = [data[at : at + KIB] for at in range(0, len(data), KIB)]
        tasks = {
            contestant.name: decoding(contestant, "1.2", "untouched", pieces)
            for contestant in contestants
            if size < 16 or contestant is not peer  # its time grows with the square of the size
        }
        tasks["one copy"] = lambda pieces=pieces: seconds(lambda: b"".join(pieces))
        for who, taken in loop_alone(tasks, min(3, plan.rounds)).items():
            found[who][str(size)] = taken
    return found


def _backends() -> list[str]:
    try:
        ours("c")
    except ImportError:
        return ["python"]
    return ["c", "python"]


# ---- columns ----

#: Conditions that no tick meets, and that all do. The header is one that a tick has.
NONE = (("destination", "in", ("/queue/nothing",)),)
ALL = (("destination", "prefix", ("/",)),)


def columns(plan: Plan) -> dict:
    """Seconds of the C backend on each workload: columns, every header of every frame, untouched frames; and columns
    in two threads, side by side and one after the other. Feeds and batches are of 256 KiB."""
    codec = ours("c").backend
    found: dict[str, dict[str, float]] = {}
    for name, workload in plan.workloads.items():
        pieces = workload.pieces(256 * KIB)
        tasks = {
            "columns": lambda workload=workload: seconds(lambda: _all_columns(codec, workload)),
            "columns, whole": lambda w=workload: seconds(lambda: codec.parse_columns(w.data, w.version)),
            "every header": decoding(ours("c"), workload.version, "dict", pieces),
            "untouched": decoding(ours("c"), workload.version, "untouched", pieces),
        }
        found[name] = loop_alone(tasks, plan.rounds)
    ticks = corpus.load(1.0, ("ticks",))["ticks"]
    tasks = {
        "one after the other": lambda: seconds(lambda: _one_by_one(codec, ticks), time.perf_counter),
        "side by side": lambda: seconds(lambda: _side_by_side(codec, ticks), time.perf_counter),
    }
    return {
        "workloads": found,
        "threads": loop_alone(tasks, plan.rounds),
        "processors": max(_processors(lambda: _side_by_side(codec, ticks)) for _ in range(plan.rounds)),
        "where": _where(codec, plan),
    }


def _processors(run: Callable[[], Any]) -> float:
    """Seconds of processor time of this process for each second of the clock."""
    start, used = time.perf_counter(), time.process_time()
    run()
    return (time.process_time() - used) / (time.perf_counter() - start)


def _where(codec: Any, plan: Plan) -> dict[str, float]:
    """Nanoseconds a tick of `parse_columns` with all frames, and with a condition that none meets, and that all do."""
    ticks = plan.workloads["ticks"]
    conditions = {"all frames": (), "none match": NONE, "all match": ALL}
    rows = {"all frames": ticks.frames, "none match": 0, "all match": ticks.frames}
    for name, where in conditions.items():
        assert codec.parse_columns(ticks.data, ticks.version, where=where).rows == rows[name], name
    tasks = {
        name: lambda where=where: seconds(lambda: codec.parse_columns(ticks.data, ticks.version, where=where))
        for name, where in conditions.items()
    }
    return {name: taken / ticks.frames * 1e9 for name, taken in loop_alone(tasks, plan.rounds).items()}


def _all_columns(codec: Any, workload: corpus.Workload, batch: int = 256 * KIB) -> None:
    data, at = memoryview(workload.data), 0
    while at < len(data):
        consumed = codec.parse_columns(data[at : at + batch], workload.version).consumed
        if not consumed:  # a frame larger than the batch
            consumed = codec.parse_columns(data[at : at + 8 * batch], workload.version).consumed
        at += consumed


def _columns_loop(codec: Any, workload: corpus.Workload) -> None:
    for _ in range(10):
        _all_columns(codec, workload)


def _one_by_one(codec: Any, workload: corpus.Workload) -> None:
    _columns_loop(codec, workload)
    _columns_loop(codec, workload)


def _side_by_side(codec: Any, workload: corpus.Workload) -> None:
    threads = [threading.Thread(target=_columns_loop, args=(codec, workload)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ---- memory ----


def memory(everyone: list[Contestant]) -> dict[str, dict[str, float]]:
    """Octets that a kept tick holds beyond the octets of its body, and whether the garbage collector tracks it."""
    workload = corpus.load(0.1, ("ticks",))["ticks"]
    pieces = workload.pieces()
    found = {}
    for contestant in everyone:
        run = contestant.keep()
        kept: list[Any] = []
        run(contestant.parser(workload.version), pieces, kept.append)  # what is made once is made now
        kept.clear()
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        parser = contestant.parser(workload.version)
        run(parser, pieces, kept.append)
        del parser
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before - sys.getsizeof(kept)
        tracemalloc.stop()
        octets = sum(len(contestant.plain(frame)[2]) for frame in kept)
        found[contestant.name] = {
            "octets": (held - octets) / len(kept),
            "tracked": gc.is_tracked(kept[0]),
        }
    return found
