"""Seeds for the fuzz targets, from the conformance vectors: every wire, under the version and mode it is meant for.

Usage:
    seeds.py FOLDER       writes one file an input
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from case import data_of

VECTORS = Path(__file__).resolve().parents[1] / "tests" / "vectors"
#: What a seed may have at most: large ones only slow a fuzzer down, and `case.py` can stretch small ones.
MOST = 4096


def _vectors() -> Iterator[dict[str, Any]]:
    for path in sorted(VECTORS.glob("*.json")):
        yield from json.loads(path.read_text("utf-8"))["vectors"]


def _wire(vector: dict[str, Any]) -> bytes:
    parts = vector.get("wire_parts")
    if parts is None:
        return base64.b64decode(vector.get("wire_b64") or vector.get("expect_wire_b64") or "")
    return b"".join(base64.b64decode(part["b64"]) * part.get("repeat", 1) for part in parts)


def inputs() -> Iterator[bytes]:
    """Inputs in the form of `case.py`, each once."""
    seen = set()
    for number, vector in enumerate(_vectors()):
        wire = _wire(vector)
        if not wire or len(wire) > MOST:
            continue
        version = None if vector["version"] == "none" else vector["version"]
        for lenient in (False, True):
            plan = number * 37 % 256 if lenient else 0
            data = data_of(version, wire, lenient=lenient, plan=plan)
            if data not in seen:
                seen.add(data)
                yield data


def content_inputs() -> Iterator[bytes]:
    """Inputs in the form of `fuzz_content.py`."""
    for vector in _vectors():
        given = vector.get("given", {})
        if vector["kind"] == "content-encoding":
            yield b"\xff" + given["encoding"].encode() + b"\n" + base64.b64decode(given["wire_b64"])
        for name in ("text", "value"):  # typed headers; content-types and heart-beats
            if given.get(name):
                yield b"\0" + given[name].encode() + b"\n"


def write(folder: Path, supply: Iterable[bytes]) -> int:
    """One file an input; returns how many."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for data in supply:
        count += 1
        folder.joinpath(hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
    return count


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]), inputs())} seeds")
