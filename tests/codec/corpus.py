"""The workloads of benchmarks/corpus.py, made in memory, and what a decoder must find in them."""

import hashlib
import struct
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from installed import load

#: Ways to feed a workload: bytes at a time; None is the whole.
FRAGMENTS = {"whole": None, "64KiB": 65536, "1460": 1460, "64": 64, "1": 1}
_corpus = load("benchmarks/corpus.py")
WORKLOADS, fragments = _corpus.WORKLOADS, _corpus.fragments


def frame_digest(frames: Iterable[Any]) -> str:
    """Return the SHA-256 over decoded frames: command, pairs in the order of the wire, and body of each. Each field
    goes in as a length of 4 bytes and its UTF-8; the number of headers goes in before them."""
    sha, pack = hashlib.sha256(), struct.Struct(">I").pack
    for command, headers, body in frames:
        texts = [text.encode() for text in (command, *(text for pair in headers for text in pair))]
        fields = [pack(len(text)) + text for text in texts]
        sha.update(b"".join([fields[0], pack(len(headers)), *fields[1:], pack(len(body)), body]))
    return sha.hexdigest()


@lru_cache(maxsize=2)
def workload(name: str, scale: float) -> tuple[dict[str, Any], bytes]:
    """Return what a decoder must find, from the values that were encoded, and the bytes."""
    stream = _corpus.stream(name, scale)
    wanted = {"version": stream.version, "frames": len(stream.frames), "eols": stream.eols}
    wanted["commands"] = Counter(command for command, _pairs, _body in stream.frames)
    return {**wanted, "digest": frame_digest(stream.frames)}, stream.data()
