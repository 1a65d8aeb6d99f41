"""Count what each speed trick of src/tricks.json pays: the instructions of a frame without it, and with all of them.

    python benchmarks/tricks.py [--only NAME ...]

Each trick is switched off in a build of its own (scripts/test_tricks.py), which runs the loop that the table names
under valgrind's callgrind. The counts go to benchmarks/tricks.json, and scripts/tricks_page.py writes them into
docs/tricks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corpus import NONE
from instructions import TURNS, callgrind, count, counted, key

ROOT = Path(__file__).resolve().parents[1]
COUNTS = Path(__file__).with_name("tricks.json")
FRAMES = 500
PIECE = 65536
BODY = b'{"symbol":"EURUSD","bid":1.08451,"ask":1.08453}'
TICK = [
    ("destination", "/topic/prices.eurusd"),
    ("subscription", "sub-0"),
    ("content-type", "application/json"),
    ("persistent", "true"),
    ("priority", "4"),
]
TEXT = [
    *TICK,
    ("author", "Zoë Müller-Lüdenscheidt"),
    ("city", "Αθήνα, 東京, Kraków"),
    ("title", "été à la plage — 12 °C"),
]
ESCAPES = [*TICK, ("reply-to", "ID:mq-7f-0-1:1:0"), ("selector", "a:b\\c:d and a rather long rest:of it")]


def wire(headers: list[tuple[str, str]], body: bytes = BODY) -> bytes:
    """Return frames of these headers, each with a message-id of its own."""
    parts = []
    for number in range(FRAMES):
        lines = [*headers, ("message-id", f"m-{number:06}"), ("content-length", str(len(body)))]
        escaped = [f"{name}:{value}".replace("\\", "\\\\") for name, value in lines]
        escaped = [line[: line.index(":") + 1] + line[line.index(":") + 1 :].replace(":", "\\c") for line in escaped]
        parts.append("\n".join(["MESSAGE", *escaped, "\n"]).encode() + body + b"\0")
    return b"".join(parts)


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def loops(codec: Any) -> dict[str, Callable[[], object]]:
    """Return each loop over `FRAMES` frames by its name in the table."""
    ticks, text, escapes = (pieces(wire(headers), PIECE) for headers in (TICK, TEXT, ESCAPES))
    single = wire(TICK).split(b"\0")
    single = [frame + b"\0" for frame in single if frame]
    large = [pieces(frame + b"\0", 1460) for frame in wire(TICK, b"x" * 16384).split(b"\0") if frame]
    parsed = [frame for piece in [b"".join(ticks)] for frame in codec.Parser("1.2").feed(piece)]
    parts = [(frame.command, dict(frame.headers), frame.body) for frame in parsed]
    made = [codec.Frame(*part) for part in parts]

    def feed(data: list[bytes], look: Callable[[Any], object] | None = None) -> None:
        parser = codec.Parser("1.2")
        for piece in data:
            for frame in parser.feed(piece):
                if look:
                    look(frame)

    def feed_large() -> None:
        for frame in large:  # a parser each, as a server has
            parser = codec.Parser("1.2")
            for piece in frame:
                for _ in parser.feed(piece):
                    pass

    def make() -> None:
        for command, headers, body in parts:
            codec.Frame(command, headers, body)

    def serialize(frames: list[Any]) -> None:
        for frame in frames:
            codec.serialize(frame, "1.2")

    return {
        "feed ticks": lambda: feed(ticks),
        "feed text": lambda: feed(text),
        "feed small": lambda: feed(single),
        "feed pieces": feed_large,
        "get ticks": lambda: feed(ticks, lambda frame: frame.get("message-id")),
        "dict ticks": lambda: feed(ticks, lambda frame: dict(frame.headers)),
        "dict escapes": lambda: feed(escapes, lambda frame: dict(frame.headers)),
        "make ticks": make,
        "serialize ticks": lambda: serialize(made),
        "serialize parsed": lambda: serialize(parsed),
        "serialize_many ticks": lambda: codec.serialize_many(made, "1.2"),
        "where ticks": lambda: codec.parse_columns(b"".join(ticks), "1.2", where=NONE),
    }


def child(site: str, rows: list[str]) -> None:
    """Run loops on the build in `site`, each between the markers of callgrind."""
    import gc

    from stompcodec import _codec_c

    if not _codec_c.__file__.startswith(site):
        raise RuntimeError(f"{_codec_c.__file__} is not the build in {site}")
    gc.disable()
    runs = loops(_codec_c)
    count("on")
    for row in rows:
        counted(runs[row])


def measure(site: Path, rows: list[str]) -> dict[str, int]:
    """Return the instructions per frame of some loops on a build: the least of the turns."""
    os.environ["PYTHONPATH"] = str(site)
    command = [sys.executable, __file__, "--child", str(site), *rows]
    totals = callgrind(command, TURNS * len(rows))
    return {row: round(min(totals[at * TURNS : (at + 1) * TURNS]) / FRAMES) for at, row in enumerate(rows)}


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3:])
        return 0
    sys.path.append(str(ROOT / "scripts"))
    from test_tricks import TABLE, build, short

    table = json.loads(TABLE.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[short(trick["macro"]) for trick in table])
    wanted = parser.parse_args().only
    counts = json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {"without": {}}
    counts["measured on"] = key()
    counts["with all"] = measure(build("none", "-O3"), sorted({trick["row"] for trick in table}))
    for trick in table:
        if short(trick["macro"]) not in wanted:
            continue
        (figure,) = measure(build(short(trick["macro"]), "-O3"), [trick["row"]]).values()
        counts["without"][trick["macro"]] = figure
        print(f"{trick['macro']:28}{trick['row']:22}{counts['with all'][trick['row']]:8,}{figure:8,}", flush=True)
        COUNTS.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
