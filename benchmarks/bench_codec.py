"""pytest-benchmark over the corpus: `make bench`. Both backends; a fifth of a second for each figure.

Compare two states of the code with `--benchmark-autosave` and `--benchmark-compare`, a part with `-k "ticks and feed"`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import corpus

from stompcodec.codec import backend

SCALE = 0.1  # of the corpus


def feed(codec, workload, size=65536):
    pieces = workload.pieces(size)

    def run():
        parser = codec.Parser(workload.version)
        for piece in pieces:
            for _ in parser.feed(piece):
                pass

    return run


def feed_1460(codec, workload):
    return feed(codec, workload, 1460)


def read(codec, workload):
    """Two headers and the body of every frame."""
    pieces = workload.pieces()

    def run():
        parser = codec.Parser(workload.version)
        for piece in pieces:
            for frame in parser.feed(piece):
                frame.get("destination")
                frame.get("message-id")
                frame.body  # noqa: B018

    return run


def dicts(codec, workload):
    """A dict of all headers of every frame."""
    pieces = workload.pieces()

    def run():
        parser = codec.Parser(workload.version)
        for piece in pieces:
            for frame in parser.feed(piece):
                dict(frame.headers)

    return run


def made(codec, workload):
    """The frames of a workload, made from text."""
    parsed = codec.Parser(workload.version).feed(workload.data)
    return [codec.Frame(frame.command, frame.headers.pairs(), frame.body) for frame in parsed]


def make_and_serialize(codec, workload):
    """From a command, a dict and a body to bytes."""
    parsed = codec.Parser(workload.version).feed(workload.data)
    parts = [(frame.command, dict(frame.headers), frame.body) for frame in parsed]
    make, dump = codec.Frame, codec.serialize
    return lambda: [dump(make(*part)) for part in parts]


def serialize(codec, workload):
    frames, dump = made(codec, workload), codec.serialize
    return lambda: [dump(frame) for frame in frames]


def serialize_parts(codec, workload):
    frames, dump = made(codec, workload), codec.serialize_parts
    return lambda: [dump(frame) for frame in frames]


def serialize_many(codec, workload):
    frames = made(codec, workload)
    return lambda: codec.serialize_many(frames)


def columns(codec, workload):
    return lambda: codec.parse_columns(workload.data, workload.version)


OPERATIONS = (
    *(feed, feed_1460, read, dicts, make_and_serialize, serialize, serialize_parts, serialize_many),
    columns,
)


@pytest.fixture(scope="session")
def workloads():
    return corpus.load(SCALE)


@pytest.fixture(scope="session", params=["c", "python"])
def codec(request):
    try:
        return backend(request.param)
    except ImportError:
        pytest.skip(f"the {request.param} backend is not built")


@pytest.mark.benchmark(max_time=0.2, min_time=0.00005)
@pytest.mark.parametrize("name", corpus.NAMES)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_speed(benchmark, workloads, codec, operation, name):
    workload = workloads[name]
    benchmark.group = f"{operation.__name__} {name}"
    benchmark(operation(codec, workload))
    if benchmark.stats:  # not with --benchmark-disable
        benchmark.extra_info["ns_a_frame"] = benchmark.stats["min"] / workload.frames * 1e9
