"""Read a large capture with Spark on two cores, and watch the memory of its processes.

    python benchmarks/spark_memory.py FOLDER [--gigabytes 5] [--keep]

The capture is written into FOLDER (spark_feed.py), read with all columns, and removed. Every quarter of a second the
resident memory of the driver, of the JVM and of the largest Python worker is taken; what is printed are the maxima in
each tenth of the time. It fails when one is a quarter and 64 MiB larger in the last tenths than it was by the third.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import spark_feed
from report import grid

WHO = ("driver", "JVM", "worker")
MIB = 2**20
PAGE = os.sysconf("SC_PAGE_SIZE")
TENTHS = 10


class Watch:
    """Samples of resident memory, in octets, of this process and all below it."""

    def __init__(self, every: float = 0.25) -> None:
        self.samples: list[dict[str, int]] = []
        self._every = every
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(self._every):
            self.samples.append(_resident())

    def tenths(self) -> list[dict[str, int]]:
        """The maxima of each tenth of the time."""
        edges = [len(self.samples) * tenth // TENTHS for tenth in range(TENTHS + 1)]
        parts = [self.samples[start:end] for start, end in pairwise(edges)]
        return [{who: max(sample[who] for sample in part) for who in WHO} for part in parts if part]


def _resident() -> dict[str, int]:
    parents: dict[int, list[int]] = {}
    found: dict[int, tuple[bool, int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                head, _, rest = (folder / "stat").read_text().rpartition(")")
                fields = rest.split()
                parents.setdefault(int(fields[1]), []).append(int(folder.name))
                found[int(folder.name)] = "(java" in head, int(fields[21]) * PAGE
    result = {"driver": found[os.getpid()][1], "JVM": 0, "worker": 0}
    left = list(parents.get(os.getpid(), []))
    while left:
        pid = left.pop()
        left += parents.get(pid, [])
        is_java, octets = found.get(pid, (False, 0))
        who = "JVM" if is_java else "worker"
        result[who] = max(result[who], octets)
    return result


def flat(tenths: list[dict[str, int]], who: str) -> bool:
    """Whether memory does not grow with what is read."""
    early, late = (max(tenth[who] for tenth in part) for part in (tenths[:3], tenths[5:]))
    return late <= early * 1.25 + 64 * MIB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="on a disk with room for it")
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--keep", action="store_true", help="do not remove the capture")
    args = parser.parse_args()
    capture, count = args.folder / "large.stompcap", round(args.gigabytes * 1e9 / spark_feed.SIZE)
    if shutil.disk_usage(args.folder).free < args.gigabytes * 1.2e9:
        parser.error(f"{args.folder} has no room for {args.gigabytes:g} GB")
    try:
        spark_feed.capture(capture, count)
        octets = sum(path.stat().st_size for path in capture.glob("*.stomp"))
        print(f"{count:,} frames, {octets / 1e9:.2f} GB", flush=True)
        return read(capture, count, octets)
    finally:
        if not args.keep:
            shutil.rmtree(capture, ignore_errors=True)
            spark_feed.forget(capture)


def read(capture: Path, count: int, octets: int) -> int:
    """Read it all, and say what that took."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from stompcodec.spark import session

    spark: Any = session("memory", cores=2, **{"spark.ui.showConsoleProgress": False})
    try:
        spark.range(10).count()
        seen = Observation()
        with Watch() as watch:
            start = time.perf_counter()
            frames = spark.read.format("stompfile").load(str(capture))
            frames.observe(seen, F.count("*").alias("rows")).write.format("noop").mode("overwrite").save()
            seconds = time.perf_counter() - start
        rows = seen.get["rows"]
    finally:
        spark.stop()
    tenths = watch.tenths()
    table = [(f"{10 * number} to {10 * number + 10} %", *_mib(tenth)) for number, tenth in enumerate(tenths)]
    print(f"{rows:,} rows in {seconds:.0f} s: {octets / seconds / 1e6:.0f} MB/s, {rows / seconds:,.0f} frames/s\n")
    print(grid(("resident, MiB", *WHO), table))
    verdicts = {who: flat(tenths, who) for who in WHO}
    print(", ".join(f"{who}: {'flat' if right else 'GROWS'}" for who, right in verdicts.items()))
    if rows != count:
        print(f"WRONG: there are {count:,} frames")
    return 0 if all(verdicts.values()) and rows == count else 1


def _mib(tenth: dict[str, int]) -> list[str]:
    return [f"{tenth[who] / MIB:,.0f}" for who in WHO]


if __name__ == "__main__":
    sys.exit(main())
