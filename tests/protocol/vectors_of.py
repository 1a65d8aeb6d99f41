"""The conformance vectors of one kind, as parameters that carry their requirements."""

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "vectors"


def vectors_of(kind):
    found = [
        pytest.param(vector["given"], vector["expect"], id=vector["id"], marks=pytest.mark.req(*vector["requirements"]))
        for path in sorted(FOLDER.glob("*.json"))
        for vector in json.loads(path.read_text(encoding="utf-8"))["vectors"]
        if vector["kind"] == kind
    ]
    assert found, f"no vectors of kind {kind}"
    return pytest.mark.parametrize(("given", "expect"), found)


def answer(function, *args):
    """What a function returns, or the kind of its FrameError as vectors write it."""
    from stompcodec.errors import FrameError

    try:
        return function(*args)
    except FrameError as error:
        return {"error": error.kind}
