"""Frames whose headers have characters beyond ASCII, each next to its twin: the same frame in ASCII, of equal length.

In the twin each such character is replaced by as many letters as it has octets. So names, bodies and the number of
octets are equal, and only the check and the conversion of UTF-8 lie between the two.
"""

from __future__ import annotations

from typing import Any

import measure
from contestants import Contestant, ours
from goals import C

FRAMES = 2000
VERSION = "1.2"
FOREIGN, TWIN = "UTF-8", "ASCII"
_BODY = b'{"bid":101.25,"ask":101.5,"size":300,"time":"2026-01-05T08.00.00Z","flags":[]}'
_FOREIGN = (
    ("destination", "/queue/züge.münchen"),
    ("about", "Größe 12 м², Straße 7"),
    ("symbol", "日本語の銘柄"),
    ("route", "Łódź–Kraków 14.05"),
    ("remark", "naïve café, 20 €"),
)
#: What is measured: how many of these headers a frame has, and the names of its other ones.
KINDS = {"3 of 7 headers": (3, ("subscription", "message-id", "priority", "content-length")), "every header": (5, ())}

Parts = tuple[str, list[tuple[str, str]], bytes]


def stream(kind: str, which: str) -> tuple[list[Parts], bytes]:
    """Return the frames of a kind, and their octets."""
    count, names = KINDS[kind]
    values = {name: value if which == FOREIGN else _in_ascii(value) for name, value in _FOREIGN[:count]}
    frames: list[Parts] = []
    octets = []
    for number in range(FRAMES):
        body = b"%08d %b" % (number, _BODY)
        usual = {"subscription": "0", "message-id": f"m-{number:08}", "priority": "4", "content-length": f"{len(body)}"}
        pairs = [*values.items(), *((name, usual[name]) for name in names)]
        frames.append(("MESSAGE", pairs, body))
        octets.append(b"MESSAGE\n%b\n%b\0" % ("".join(f"{k}:{v}\n" for k, v in pairs).encode(), body))
    return frames, b"".join(octets)


def _in_ascii(text: str) -> str:
    return "".join(letter if letter.isascii() else "x" * len(letter.encode()) for letter in text)


def twins(everyone: list[Contestant], rounds: int) -> dict[str, Any]:
    """Return {"decode": {kind: {contestant: {"UTF-8" | "ASCII": ns}}}, "columns": {kind: {"UTF-8" | "ASCII": GB/s}}}.

    Each contestant takes its turns with both twins. One that gets a frame wrong, or out of order, is left out.
    """
    found: dict[str, Any] = {"decode": {}, "columns": {}}
    for kind in KINDS:
        data = {which: stream(kind, which)[1] for which in (FOREIGN, TWIN)}
        tasks = {}
        for contestant in everyone:
            if all(_is_right(contestant, kind, which) for which in data):
                for which, octets in data.items():
                    tasks[f"{contestant.name}/{which}"] = measure.decoding(contestant, VERSION, "untouched", [octets])
        best = measure.loop_alone(tasks, rounds)
        cells: dict[str, dict[str, float]] = {}
        for name, taken in best.items():
            who, _, which = name.partition("/")
            cells.setdefault(who, {})[which] = taken / FRAMES * 1e9
        found["decode"][kind] = cells
        if any(contestant.name == C for contestant in everyone):
            found["columns"][kind] = _columns(data, rounds)
    return found


def _is_right(contestant: Contestant, kind: str, which: str) -> bool:
    frames, octets = stream(kind, which)
    got, _ended = contestant.collect(VERSION, [octets])
    is_right = got == [(command, dict(pairs), body) for command, pairs, body in frames]
    if not is_right and contestant.backend:
        raise AssertionError(f"{contestant.name}, {kind}, {which}: frames were lost, changed or reordered")
    return is_right


def _columns(data: dict[str, bytes], rounds: int) -> dict[str, float]:
    parse = ours("c").backend.parse_columns
    for octets in data.values():
        assert parse(octets, VERSION).rows == FRAMES
    tasks = {
        which: lambda octets=octets: measure.seconds(lambda: parse(octets, VERSION)) for which, octets in data.items()
    }
    best = measure.loop_alone(tasks, rounds)
    return {which: len(octets) / best[which] / 1e9 for which, octets in data.items()}
