"""The race of `bench codec`: measures each library's best time for each part of a workload in memory."""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any, NamedTuple

from stompcodec.cli.benching.figures import rates
from stompcodec.cli.benching.libraries import Library, Part
from stompcodec.errors import FrameError

MEASURES = {
    "decode": "decode, headers untouched",
    "read": "decode, read two headers and the body",
    "dict": "decode, dict(frame.headers)",
    "serialize": "encode, serialize",
    "serialize_many": "encode, serialize_many",
}
#: Bytes of the largest workload. Python objects of small frames take several times as much.
MOST = 32 * 2**20
#: Frames or bytes in a group. Libraries alternate group by group, so that all run under the same conditions.
_FRAMES = 1000
_OCTETS = 2**20
#: Seconds for which a library repeats a group before the next library's turn.
_TURN = 0.005
_SYMBOLS = ("ACME", "GLOBEX", "HOOLI", "INITECH", "STARK", "UMBRELLA", "WAYNE", "WONKA")

#: CPU time of this thread if that clock is precise enough, so that waiting for a busy machine does not count.
_clock = time.thread_time if time.get_clock_info("thread_time").resolution <= 1e-6 else time.perf_counter


class Group(NamedTuple):
    """Consecutive frames of the workload."""

    parts: list[Part]
    data: bytes
    """Their bytes."""


def generated(size: int, count: int) -> Iterator[tuple[Part, bytes | None]]:
    """Yield frames like market ticks with bodies of a size in bytes, always the same.

    >>> [(part, _octets)] = generated(40, 1)
    >>> part.command, part.pairs[0], len(part.body)
    ('MESSAGE', ('destination', '/topic/ticks.HOOLI'), 40)
    """
    chance = random.Random("ticks")
    for number in range(count):
        symbol = chance.choice(_SYMBOLS)
        price = chance.randrange(1000, 50_000) / 100
        tick = {"symbol": symbol, "bid": price, "ask": price + 0.01, "size": chance.randrange(1, 500), "seq": number}
        text = json.dumps(tick).encode()
        body = (text * (size // len(text) + 1))[:size]
        pairs = [
            ("destination", f"/topic/ticks.{symbol}"),
            ("message-id", f"ID:mq-7f-{number // 1000}-1:1:{number}"),
            ("subscription", str(number % 4)),
            ("content-type", "application/json"),
            ("content-length", str(size)),
        ]
        yield Part("MESSAGE", pairs, body), None


def recorded(file: str, problem: Callable[[str], object]) -> Iterator[tuple[Part, bytes | None]]:
    """Yield the frames of a file that `convert` reads, with their bytes if they are valid STOMP 1.2."""
    from stompcodec.cli.files.sources import Source

    for each in Source(file, None, problem):
        frame = each.frame
        yield Part(frame.command, frame.headers.pairs(), frame.body), each.octets


def grouped(
    frames: Iterator[tuple[Part, bytes | None]], read: int, problem: Callable[[str], object]
) -> tuple[list[Group], bool]:
    """Return frames as groups, and whether these are all frames: they end at `MOST` bytes.

    A group is at least as large as a feed of `read` bytes, except the last one. Frames without bytes are serialized.
    """
    from stompcodec.codec import Frame, serialize

    groups: list[Group] = []
    parts: list[Part] = []
    data, before = bytearray(), 0
    whole = True
    for part, octets in frames:
        if before + len(data) >= MOST:
            whole = False
            break
        try:
            data += serialize(Frame(*part)) if octets is None else octets
        except FrameError as error:
            problem(f"{part.command} cannot be written as STOMP 1.2: {error}")
            continue
        parts.append(part)
        if len(data) >= read and (len(parts) >= _FRAMES or len(data) >= _OCTETS):
            before += len(data)
            groups.append(Group(parts, bytes(data)))
            parts, data = [], bytearray()
    if parts:
        groups.append(Group(parts, bytes(data)))
    return groups, whole


class Race:
    """A race of libraries that take turns in feeds of `read` bytes; the first one is the reference."""

    def __init__(self, groups: list[Group], libraries: list[Library], read: int) -> None:
        self._groups = groups
        self._read = read
        self.libraries = list(libraries)
        self.rounds = 0
        """Number of rounds begun."""
        self._best: dict[tuple[str, str], list[float]] = {}
        self._reached = 0  # groups that all libraries have processed

    def qualify(self, library: Library) -> str:
        """Return why a library's time would be meaningless; "" if all is well."""
        group = self._groups[0]
        try:
            count = sum(1 for _frame in library.frames(library.parser(), self._pieces(group)))
        except Exception as error:  # of any kind
            return f"it cannot decode these frames: {type(error).__name__}: {error}"
        return "" if count == len(group.parts) else f"it finds {count} of {len(group.parts)} frames"

    def run(self, seconds: float, stopped: Callable[[], bool], tell: Callable[[str], None]) -> None:
        """Go round for some seconds, or until `stopped`. Each group is measured at least once if there is time."""
        until = time.monotonic() + seconds
        with _frozen():
            while self.rounds == 0 or time.monotonic() < until:
                self.rounds += 1
                gc.collect()  # garbage of earlier turns counts for nobody
                for index in range(len(self._groups)):
                    left = until - time.monotonic()
                    if left <= 0 and self._reached:
                        return
                    tell(f"round {self.rounds}, group {index + 1} of {len(self._groups)}, {max(left, 0):.0f} s left")
                    if not self._go_round(index, stopped):
                        return
                    self._reached = max(self._reached, index + 1)

    def _go_round(self, index: int, stopped: Callable[[], bool]) -> bool:
        """Give each library a turn with a group, and return False if stopped."""
        pieces = self._pieces(self._groups[index])
        for measure in MEASURES:
            for library in self.libraries:
                if measure in library.decode or measure in library.encode:
                    if stopped():
                        return False
                    best = self._best.setdefault((measure, library.name), [float("inf")] * len(self._groups))
                    best[index] = min(best[index], self._turn(measure, library, self._groups[index], pieces))
        return True

    def _turn(self, measure: str, library: Library, group: Group, pieces: list[bytes]) -> float:
        """Return the best time in seconds of a library for a group."""
        if measure in library.encode:
            encode, made = library.encode[measure], [library.native(part) for part in group.parts]
            return _least(_encoding(encode, made))
        return _least(_decoding(library, measure, pieces))

    def _pieces(self, group: Group) -> list[bytes]:
        return [group.data[at : at + self._read] for at in range(0, len(group.data), self._read)]

    def rows(self) -> list[dict[str, Any]]:
        """Return the figures of the groups that all libraries have processed; [] if there are none."""
        groups = self._groups[: self._reached]
        frames, octets = sum(len(group.parts) for group in groups), sum(len(group.data) for group in groups)
        rows = []
        for measure in MEASURES if groups else ():
            first = sum(self._best[measure, self.libraries[0].name][: self._reached])
            for library in self.libraries:
                if (measure, library.name) in self._best:
                    seconds = sum(self._best[measure, library.name][: self._reached])
                    row = {"measure": measure, "who": library.name, **rates("frames", frames, octets, seconds)}
                    rows.append({**row, "ratio": seconds / first})
        return rows


def _decoding(library: Library, measure: str, pieces: list[bytes]) -> Callable[[], float]:
    go_through = library.decode[measure]

    def once() -> float:
        parser = library.parser()
        began = _clock()
        go_through(library.frames(parser, pieces))
        return _clock() - began

    return once


def _encoding(encode: Callable[[list[Any]], object], frames: list[Any]) -> Callable[[], float]:
    def once() -> float:
        began = _clock()
        encode(frames)
        return _clock() - began

    return once


def _least(once: Callable[[], float]) -> float:
    """Return the best of the times that fit into a turn."""
    best, spent = float("inf"), 0.0
    for _ in repeat(None, _FRAMES):  # bounded, in case a clock stands still
        taken = once()
        best, spent = min(best, taken), spent + taken
        if spent >= _TURN:
            break
    return max(best, 1e-9)


@contextmanager
def _frozen() -> Iterator[None]:
    """Exclude the workload from the libraries' garbage collections."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
