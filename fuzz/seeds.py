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

from case import data_of, rolls

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


#: Bodies of the forms that `broker/bodies/xml_json.py` knows.
TREES = (
    "<map><entry><string>name</string><string>Dejan</string></entry><entry><string>n</string><int>5</int></entry></map>",
    '{"map":{"entry":[{"string":["name","Dejan"]},{"string":"n","int":5}]}}',
    '{"name":"Dejan","n":-5,"f":1.5e9,"yes":true,"none":null,"in":{"list":[1,"a",{}]}}',
    '<pojo class="a&amp;b" id="1">\n <name>&lt;Dejan&gt;&#13;</name><d>1.5</d><boolean>true</boolean><null/></pojo>',
    '{"pojo":{"@class":"a","$":"text","@id":""}}',
    '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;<![CDATA[x]]><!-- y --><?z?></a>',
)


def api_inputs() -> Iterator[bytes]:
    """Inputs in the form of `fuzz_api.py`: programs of any steps."""
    for seed in range(60):
        roll = rolls(seed)
        yield bytes(next(roll) for _ in range(16 * (1 + seed)))


def transform_inputs() -> Iterator[bytes]:
    """Inputs in the form of `fuzz_transform.py`."""
    for text in TREES:
        for how in range(0, 98, 3):
            yield bytes([how]) + text.encode()


#: Headers that decide which road a SEND takes.
PLAIN = (
    "",
    "receipt:1",
    "receipt:a b",
    "persistent:true",
    "x:12:30",
    "x:a\\cb",
    "ack:1",
    "priority:9",
    "content-length:2",
)


def plain_inputs() -> Iterator[bytes]:
    """Inputs in the form of `fuzz_plain.py`."""
    for number, line in enumerate(PLAIN * 10):
        destination = ("/queue/a", "/topic/t", "/queue/b")[number % 3]
        head = f"SEND\ndestination:{destination}\n" + (line + "\n" if line else "")
        acks = "".join(f"ACK\nid:{2 + 2 * (each % 2)}-{each // 2 + 1}\n\n\0" for each in range(8))
        yield bytes([number * 7 % 256, number, 0, number * 37 % 256]) + f"{head}\nhi\0{head}\nho\0{acks}".encode()


#: HTTP heads.
HEADS = (
    "GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
    "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YWRhOng=\r\n",
    "GET / HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\n",
    "POST /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: c2l4dGVlbiBvY3RldHMhIQ==\r\n",
)


def management_inputs() -> Iterator[bytes]:
    """Inputs in the form of `fuzz_management.py`."""
    for number, head in enumerate(HEADS):
        yield bytes([1, 0, 0, number]) + f"{head}\r\n".encode()
        yield bytes([1, 0, 0, number]) + f"{head}{'X: y' * 2000}\r\n{head}".encode()
    for request in range(24):
        values = (value for each in range(16) for value in (request + 17 * each, 2, each, 3))
        yield bytes([0, 0, 0, 0, *(value % 256 for value in values)])


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
