"""Measure stomp.py and stompman by themselves, and on our codec. `make bench-compat`.

    python benchmarks/bench_compat.py [--only NAME ...] [--rounds 5] [--seconds 1]

Each run is a process of its own (this file again, with --drive), which measures its own processor time. The library as
it is and the library with `install()` take turns, round after round. What is received end to end comes over a socket
from a raw feeder, so no broker's speed plays a part (feeder.py). The numbers go to build/compat.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from clients import Task, drive_stomp_py
from feeder import LIMIT, Feeder
from report import grid, number

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "compat.json"
PEERS = ROOT / "build" / "peers" / f"{sys.implementation.cache_tag}"
SIZE = 200  # octets of the bodies of small messages
MIB = 1 << 20
PIECE = 16384  # octets of a read, as stomp.py 9.0 reads
#: As ActiveMQ and our broker write them.
MESSAGE = (
    b"MESSAGE\nsubscription:0\nmessage-id:ID\\cbroker-41523-1718000000000-2\\c1\\c-1\\c1\\c1\ndestination:/queue/bench\n"
    b"timestamp:1718000000000\nexpires:0\npriority:4\ncontent-length:%d\n\n%b\0"
)


class Row(NamedTuple):
    """What is measured.

    Attributes:
        floor: how many times as many a second we promise.
        fed: over a socket, from a feeder.
        drive: (patched, port) -> (messages, processor seconds), in a process of its own.
    """

    name: str
    floor: float
    fed: bool
    drive: Callable[[bool, int], tuple[int, float]]


def _stomp(patched: bool) -> Any:
    """The module, patched or not."""
    os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")
    import stomp

    if patched:
        from stompcodec.compat import stomppy

        stomppy.install()
    return stomp


def _pieces(data: bytes) -> list[bytes]:
    return [data[at : at + PIECE] for at in range(0, len(data), PIECE)]


def stomppy_parse(patched: bool, _port: int, use: Callable[[Any], int] = lambda frame: len(frame.body)) -> Any:
    """Octets to stomp.py's frames: split and parsed, and handed to nobody. On our codec headers are made when asked
    for: the second row asks."""
    count = 20_000
    pieces = _pieces(MESSAGE % (SIZE, b"x" * SIZE) * count)
    stomp = _stomp(patched)
    if patched:
        from stompcodec.compat.stomppy_codec import Reader

        read = Reader(None).feed
        start = time.process_time()
        sizes = [use(frame) for piece in pieces for frame in read(piece)]
    else:
        coming, parse = iter(pieces), stomp.utils.parse_frame
        transport = type("Fed", (stomp.transport.BaseTransport,), {"receive": lambda self: next(coming)})()
        transport.running, split = True, transport._BaseTransport__read
        start = time.process_time()
        sizes = [use(frame) for _ in pieces for frame in map(parse, split())]
    spent = time.process_time() - start
    if sizes != [SIZE] * count:
        raise RuntimeError("not all was read")
    return count, spent


def stomppy_headers(patched: bool, port: int) -> tuple[int, float]:
    """The same, with all headers."""
    return stomppy_parse(patched, port, lambda frame: len(frame.body) * (len(frame.headers) == 7))


def stomppy_receive(patched: bool, port: int) -> tuple[int, float]:
    """From the socket to a listener's `on_message`."""
    _stomp(patched)
    task = Task(port, SIZE, "auto", None)
    count = drive_stomp_py(task)
    return count, time.process_time() - task.start


def _receive_large(patched: bool, body: bytes) -> float:
    """Processor seconds from the reads of one large message to `on_message`."""
    stomp = _stomp(patched)
    coming, got = iter(_pieces(MESSAGE % (len(body), body))), []
    transport = type("Fed", (stomp.transport.BaseTransport,), {"receive": lambda self: next(coming)})(auto_decode=False)
    listener = stomp.ConnectionListener()
    listener.on_message = lambda frame: got.append(frame.body == body)
    transport.set_listener("", listener)
    transport.running = True
    start = time.process_time()
    while not got:
        transport._BaseTransport__read_frames()
    spent = time.process_time() - start
    if got != [True]:
        raise RuntimeError("the body is not what was sent")
    return spent


def large(mib: int) -> Row:
    """Binary bodies of a size."""

    def drive(patched: bool, _port: int) -> tuple[int, float]:
        body = bytes(range(256)) * (mib * MIB // 256)
        spent = [_receive_large(patched, body) for _ in range(max(1, 8 // mib))]
        return mib * len(spent), sum(spent)

    return Row(f"stomppy-body-{mib}MiB", 1.0, False, drive)


def rows() -> dict[str, Row]:
    """By name."""
    found = [
        Row("stomppy-parse", 20.0, False, stomppy_parse),
        Row("stomppy-parse-headers", 1.0, False, stomppy_headers),
        Row("stomppy-receive", 3.0, True, stomppy_receive),
        *map(large, (1, 4, 16)),
    ]
    try:
        from compat_stompman import ROWS
    except ImportError as error:
        print(f"stompman is left out: {error}")
    else:
        found += [Row(*row) for row in ROWS]
    return {row.name: row for row in found}


def run(feeder: Feeder, row: Row, patched: bool, seconds: float) -> float:
    """Messages (MiB for large bodies) a processor second, in a process of its own."""
    command = [sys.executable, __file__, "--drive", row.name, "--port", str(feeder.port)]
    process = subprocess.Popen(
        command + (["--patched"] if patched else []), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    fault: Exception | None = None
    try:
        if row.fed:
            feeder.serve(SIZE, "auto", seconds, None, lambda: process.poll() is None)
    except OSError as error:
        fault = error
    try:
        out, err = process.communicate(timeout=2 * LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    if process.returncode or not out.strip():
        raise RuntimeError(err.strip().splitlines()[-1] if err.strip() else str(fault))
    count, spent = json.loads(out.strip().splitlines()[-1])
    return float(count / spent)


def measure(wanted: list[Row], seconds: float, rounds: int) -> dict[str, dict[str, list[float]]]:
    """{row: {"as it is": rates, "installed": rates}}; they take turns."""
    found: dict[str, dict[str, list[float]]] = {row.name: {"as it is": [], "installed": []} for row in wanted}
    feeder = Feeder()
    with feeder.listener:
        for turn in range(rounds):
            begin = time.perf_counter()
            for row in wanted:
                for patched, name in enumerate(found[row.name]):
                    found[row.name][name].append(run(feeder, row, bool(patched), seconds))
            print(f"round {turn + 1}: {time.perf_counter() - begin:.0f} s", flush=True)
    return found


def table(found: dict[str, dict[str, list[float]]], floors: dict[str, float]) -> str:
    """Rates a processor second, and how many times as many."""
    lines = []
    for name, sides in found.items():
        before, after = (statistics.median(sides[side]) for side in ("as it is", "installed"))
        unit = "MiB" if "body" in name else "messages"
        verdict = "yes" if after / before >= floors[name] else "NO"
        lines.append(
            [name, unit, number(before), number(after), f"{after / before:.3g}×", f"≥ {floors[name]:g}×", verdict]
        )
    return grid(["", "a processor second", "as it is", "installed", "gain", "promised", ""], lines)


def slope(found: dict[str, dict[str, list[float]]]) -> str:
    """Is the time linear in the body's size? Rates of 16 MiB and 1 MiB must be alike."""
    try:
        rates = [statistics.median(found[f"stomppy-body-{mib}MiB"]["installed"]) for mib in (1, 16)]
    except KeyError:
        return ""
    share = rates[1] / rates[0]
    return f"{'yes' if share >= 0.5 else 'NO ':3}  a body of 16 MiB: {share:.2f} of the rate of 1 MiB (≥ 0.5: linear)\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names of rows, or how they begin")
    parser.add_argument("--seconds", type=float, default=1.0, help="for which each is fed")
    parser.add_argument("--rounds", type=int, default=5, help="of which the median is taken")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    parser.add_argument("--patched", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        sys.path.append(str(PEERS))
        print(json.dumps(rows()[args.drive].drive(args.patched, args.port)), flush=True)
        return 0
    import peers

    peers.install()
    known = rows()
    wanted = [row for name, row in known.items() if not args.only or name.startswith(tuple(args.only))]
    if not wanted:
        parser.error(f"rows are {', '.join(known)}")
    found = measure(wanted, args.seconds, args.rounds)
    floors = {name: row.floor for name, row in known.items()}
    print(table(found, floors), slope(found), sep="\n")
    if not args.only:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"floors": floors, "rows": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
