"""The conformance vectors: those of the codec on both backends, strict and lenient, cut in more ways than they say."""

from pathlib import Path

import pytest
import run_vectors
from conformance import Adapter
from model.reference import Reference

from stompcodec.spec import Limits

FOLDER = Path(__file__).parent.parent / "vectors"
TRAILERS = (b"\n", b"\0", b"x", b"SEND\n\n\0", b"\xff\xff\xff\xff")


def _vectors(*kinds, others=False):
    return [
        pytest.param(vector, id=vector["id"], marks=pytest.mark.req(*vector["requirements"]))
        for _, vector in run_vectors.load([FOLDER])
        if (vector["kind"] in kinds) is not others
    ]


lenient = pytest.mark.parametrize("lenient", [False, True], ids=["strict", "lenient"])


@lenient
@pytest.mark.parametrize("vector", _vectors(*run_vectors.CHECKS))
def test_vector(codec, vector, lenient):
    assert run_vectors.CHECKS[vector["kind"]](vector, Adapter(codec), lenient) is None


@pytest.mark.parametrize("vector", _vectors(*run_vectors.CHECKS, others=True))
def test_vector_of_another_kind(vector):
    assert run_vectors.check_other(vector, Adapter(), False) is None


@lenient
@pytest.mark.parametrize("vector", _vectors("decode"))
def test_the_model_passes_too(vector, lenient):
    if "wire_parts" not in vector:
        options = {"version": None if vector["version"] == "none" else vector["version"], "lenient": lenient}
        model = Reference(**options, limits=Limits(**vector.get("limits", {})))
        events = model.read(run_vectors.wire(vector), eof=vector.get("eof", False))
        got = [event[:4] if event[0] == "frame" else event[:2] for event in events]
        assert run_vectors.compare(got, run_vectors.expected(vector, lenient)) is None


@lenient
@pytest.mark.parametrize("vector", _vectors("decode"))
def test_vector_in_other_pieces(codec, vector, lenient):
    data, wanted = run_vectors.wire(vector), run_vectors.expected(vector, lenient)
    pieces = {"whole": [data], "two": [data[: len(data) // 2], data[len(data) // 2 :]], "empty": [b"", data, b""]}
    if len(data) < 20_000:
        pieces["each octet"] = [data[i : i + 1] for i in range(len(data))]
    for name, chunks in pieces.items():
        got = _decode(codec, vector, chunks, lenient, vector.get("eof", False))
        assert run_vectors.compare(got, wanted) is None, name


@lenient
@pytest.mark.parametrize("vector", _vectors("decode"))
def test_octets_behind_a_vector(codec, vector, lenient):
    data, wanted = run_vectors.wire(vector), run_vectors.expected(vector, lenient)
    if vector.get("eof") and wanted and wanted[-1].get("kind") == "truncated":
        wanted = wanted[:-1]
    for trailer in TRAILERS:
        got = _decode(codec, vector, [data + trailer], lenient, False)
        assert run_vectors.compare(got[: len(wanted)], wanted) is None, trailer
        if wanted and wanted[-1]["type"] == "error":
            assert len(got) == len(wanted), trailer


def _decode(codec, vector, chunks, lenient, eof):
    return Adapter(codec).decode(vector["version"], chunks, eof, vector.get("limits", {}), lenient)
