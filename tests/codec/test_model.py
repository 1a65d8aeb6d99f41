"""Both backends against the reference model, which reads one octet at a time and shares no code with them."""

import json
from pathlib import Path

import pytest
import run_vectors
from codec import strategies as some
from codec.lockstep import answers_of
from hypothesis import example, given
from model.reference import Reference

from stompcodec.spec import Limits

FOLDER = Path(__file__).parent.parent / "vectors"


def model_of(wire, **options):
    """What the model answers, in the form of `answers_of`."""
    events = Reference(options.pop("version"), **options).read(wire, eof=True)
    short = {"frame": lambda event: event[:4], "heartbeat": lambda event: event[:1], "error": lambda event: event}
    return [short[event[0]](event) for event in events]


@given(wire=some.wires, options=some.parser_options())
@example(wire=b"SENDX\n\n\0", options={"version": "1.2", "limits": None})
@example(wire=b" \r\nSEND \r\nA: 1 \r\n \r\n\0", options={"version": "legacy", "limits": None})
def test_answers(codec, wire, options):
    named = {name: options[name] for name in ("version", "limits", "lenient", "commands") if name in options}
    assert answers_of(codec, wire, heartbeats=True, **named) == model_of(wire, **named)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_model_passes_the_vectors(path):
    """The model is only worth something as long as it is right itself."""
    for vector in json.loads(path.read_text(encoding="utf-8"))["vectors"]:
        if vector["kind"] != "decode" or "wire_parts" in vector:
            continue
        for lenient in (False, True):
            options = {"version": None if vector["version"] == "none" else vector["version"], "lenient": lenient}
            model = Reference(**options, limits=Limits(**vector.get("limits", {})))
            events = model.read(run_vectors.wire(vector), eof=vector.get("eof", False))
            got = [event[:4] if event[0] == "frame" else event[:2] for event in events]
            assert run_vectors.compare(got, run_vectors.expected(vector, lenient)) is None, vector["id"]
