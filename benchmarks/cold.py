"""The first call of serialize_many in a process, and the first loop of serialize, each in processes of their own.

    python benchmarks/cold.py {many | loop} COUNT SIZE

prints the CPU time of the call in nanoseconds. The loop keeps what it makes, as `serialize_many` does: both need new
pages of memory for it, which cost more than all else.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: Frames, and bytes of each body.
SIZES = ((100, 16384), (1000, 16384), (10_000, 100))


def child(how: str, count: int, size: int) -> int:
    """Return the nanoseconds of one call, the first of its size."""
    from measure import clock

    from stompcodec import Frame, serialize, serialize_many

    bodies = [bytes([at % 255 + 1]) * size for at in range(count)]
    frames = [Frame("SEND", {"destination": "/queue/a", "id": str(at)}, body) for at, body in enumerate(bodies)]
    assert serialize_many(frames[:1]) == serialize(frames[0])
    start = clock()
    made = serialize_many(frames) if how == "many" else [serialize(frame) for frame in frames]
    taken = clock() - start
    assert made if how == "many" else len(made) == count
    return round(taken * 1e9)


def cold(rounds: int) -> dict[str, dict[str, float]]:
    """Return the least nanoseconds per frame: {"100 of 16384 bytes": {"many": ns, "loop": ns}}. The two take turns."""
    found: dict[str, dict[str, float]] = {}
    for count, size in SIZES:
        best = {"many": float("inf"), "loop": float("inf")}
        for _ in range(rounds):
            for how in best:
                command = [sys.executable, Path(__file__), how, str(count), str(size)]
                taken = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                best[how] = min(best[how], taken / count)
        found[f"{count:,} bodies of {size:,} bytes"] = best
    return found


if __name__ == "__main__":
    print(child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
