"""What drives a target: atheris where it is installed, with coverage; else `mutate.py`, without.

    fuzz_NAME.py [libFuzzer options] [CORPUS ...]     with atheris; a FILE instead of a folder is run once
    fuzz_NAME.py --plain [--runs N] [--seconds N] [--seed N] [FOLDER | FILE ...]

The last line says how many inputs ran, and how fast. The first finding ends the run with status 1.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import seeds
from covered import COVERED
from mutate import Source

Check = Callable[[bytes], object]
BATCH = 1000  # inputs between two looks at the clock


def drive(check: Check) -> None:
    """Run a check, which raises where its invariant does not hold, on as many inputs as the command line asks for."""
    if not COVERED:
        sys.exit(_plain(check))
    import atheris

    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


def _plain(check: Check) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true", help="no coverage, even where atheris is installed")
    parser.add_argument("--runs", type=int, default=10**12, help="inputs")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--findings", type=Path, default=Path(), help="folder for what breaks the invariant")
    parser.add_argument("corpus", nargs="*", type=Path, help="folders of inputs; files are run once each")
    options = parser.parse_args()
    files = [path for path in options.corpus if path.is_file()]
    if files:
        return _repeat(check, files)
    corpus = [path.read_bytes() for folder in options.corpus for path in sorted(folder.iterdir())]
    corpus = corpus or list(seeds.inputs())
    supply = iter(Source(corpus, options.seed))
    print(f"seed {options.seed}, {len(corpus)} inputs in the corpus", flush=True)
    count, bad, seconds = _loop(check, corpus, supply, options)
    if bad is not None:
        path = options.findings / f"crash-{hashlib.sha1(bad, usedforsecurity=False).hexdigest()}"
        path.write_bytes(bad)
        print(f"finding written to {path}")
    findings = int(bad is not None)
    print(f"{count} inputs in {seconds:.0f} s, {count / max(seconds, 1e-9):.0f} a second, {findings} findings")
    return findings


def _repeat(check: Check, files: Iterable[Path]) -> int:
    for path in files:
        check(path.read_bytes())
        print(f"{path}: the invariant holds")
    return 0


def _loop(
    check: Check, corpus: Iterable[bytes], supply: Iterator[bytes], options: argparse.Namespace
) -> tuple[int, bytes | None, float]:
    """How many inputs ran, the one that broke the invariant, and how long it took."""
    count, start = 0, time.perf_counter()
    end = start + options.seconds
    data = b""
    try:
        for data in corpus:
            check(data)
            count += 1
        while count < options.runs and time.perf_counter() < end:
            for _ in range(min(BATCH, options.runs - count)):
                data = next(supply)
                check(data)
                count += 1
            if count // BATCH % 100 == 0:
                print(f"#{count} a second: {count / (time.perf_counter() - start):.0f}", flush=True)
    except Exception:
        import traceback

        traceback.print_exc()
        return count + 1, data, time.perf_counter() - start
    return count, None, time.perf_counter() - start
