"""The conformance vectors on both backends, strict and lenient, fed in more ways than they ask for."""

import json
from pathlib import Path

import pytest
import run_vectors
from conformance import Adapter

FOLDER = Path(__file__).parent.parent / "vectors"
KINDS = ("decode", "encode", "roundtrip")
TRAILERS = (b"\n", b"\0", b"x", b"SEND\n\n\0", b"\xff\xff\xff\xff")


def _vectors(kind):
    found = [
        pytest.param(vector, id=vector["id"], marks=pytest.mark.req(*vector["requirements"]))
        for path in sorted(FOLDER.glob("*.json"))
        for vector in json.loads(path.read_text(encoding="utf-8"))["vectors"]
        if vector["kind"] == kind
    ]
    assert found, f"no vectors of kind {kind}"
    return found


lenient = pytest.mark.parametrize("lenient", [False, True], ids=["strict", "lenient"])


@lenient
@pytest.mark.parametrize("vector", [vector for kind in KINDS for vector in _vectors(kind)])
def test_vector(codec, vector, lenient):
    """As the vector says."""
    assert run_vectors.CHECKS[vector["kind"]](vector, Adapter(codec), lenient) is None


@lenient
@pytest.mark.parametrize("vector", _vectors("decode"))
def test_vector_in_other_pieces(codec, vector, lenient):
    """However a stream is cut, it means the same."""
    data = run_vectors.wire(vector)
    wanted = run_vectors.expected(vector, lenient)
    pieces = {"whole": [data], "two": [data[: len(data) // 2], data[len(data) // 2 :]], "empty": [b"", data, b""]}
    if len(data) < 20_000:
        pieces["each octet"] = [data[i : i + 1] for i in range(len(data))]
    for name, chunks in pieces.items():
        got = _decode(codec, vector, chunks, lenient, vector.get("eof", False))
        assert run_vectors.compare(got, wanted) is None, name


@lenient
@pytest.mark.parametrize("vector", _vectors("decode"))
def test_octets_behind_a_vector(codec, vector, lenient):
    """What comes behind changes nothing about what came before, and after an error there is nothing more."""
    data = run_vectors.wire(vector)
    wanted = run_vectors.expected(vector, lenient)
    if vector.get("eof") and wanted and wanted[-1].get("kind") == "truncated":
        wanted = wanted[:-1]
    for trailer in TRAILERS:
        got = _decode(codec, vector, [data + trailer], lenient, False)
        assert run_vectors.compare(got[: len(wanted)], wanted) is None, trailer
        if wanted and wanted[-1]["type"] == "error":
            assert len(got) == len(wanted), trailer


def _decode(codec, vector, chunks, lenient, eof):
    return Adapter(codec).decode(vector["version"], chunks, eof, vector.get("limits", {}), lenient)
