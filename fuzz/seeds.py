"""Seeds for the fuzz targets, from the conformance vectors: every wire, under the version and mode it is meant for."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from case import data_of
from run_vectors import load
from run_vectors import wire as wire_of

VECTORS = Path(__file__).resolve().parents[1] / "tests" / "vectors"
#: What a seed may have at most: large ones only slow a fuzzer down, and `case.py` can stretch small ones.
MOST = 4096


def inputs() -> Iterator[bytes]:
    """Inputs in the form of `case.py`, each once."""
    seen = set()
    for number, (_, vector) in enumerate(load([VECTORS])):
        written = base64.b64decode(vector.get("expect_wire_b64") or "")
        wire = wire_of(vector) if {"wire_parts", "wire_b64"} & vector.keys() else written
        if not wire or len(wire) > MOST:
            continue
        version = None if vector["version"] == "none" else vector["version"]
        for lenient in (False, True):
            plan = number * 37 % 256 if lenient else 0
            data = data_of(version, wire, lenient=lenient, plan=plan)
            if data not in seen:
                seen.add(data)
                yield data


#: With the headers that decide.
SELECTORS = (
    "color = 'red' AND n > 9\ncolor:red\nn:10",
    "(a = 'x' OR b LIKE 'q%') AND c IN ('1', '2')\na:x\nc:2",
    "NOT (n BETWEEN 1 AND 2 OR n NOT IN (3, 4.5e1)) AND s IS NOT NULL\nn:3\ns:null",
    "s LIKE '%a!_b_%' ESCAPE '!' OR \"content-type\" <> 'it''s'\ns:xa_bc\ncontent-type:text/plain",
    "- n * (2 + 0x1F) / 017 >= -1.5e3 - AMQSize AND flag = TRUE\nn:7\nflag:true",
    "convert_string_expressions:n > '9' AND JMSRedelivered\nn:10",
    "hyphenated_props:content-type = 'a' AND JMSPriority < 5\ncontent-type:\"a\"",
)


def selector_inputs() -> Iterator[bytes]:
    """Inputs in the form of `fuzz_selector.py`."""
    for text in SELECTORS:
        yield bytes(4) + text.encode() + b"\n"
    for how in range(1, 4):
        yield bytes([how, 0, 0, 0]) + bytes(range(how, 256, 5))


def write(folder: Path, supply: Iterable[bytes]) -> int:
    """One file an input; returns how many."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [(folder / hashlib.sha1(data, usedforsecurity=False).hexdigest(), data) for data in supply]
    return len([path.write_bytes(data) for path, data in files])
