"""Captures and streams for the tests of Spark, and what its workers make of them, without Spark."""

import gzip
import importlib.util

import pytest

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")
from pyspark.sql.types import StructType

from stompcodec import Frame, serialize
from stompcodec.capture import CaptureWriter
from stompcodec.spark.options import parse_file
from stompcodec.spark.reading.decode import read_split
from stompcodec.spark.reading.plan import batch_splits
from stompcodec.spark.reading.schema import FRAME_SCHEMA, Projection

START = 1_700_000_000_000_000
"""When the first frame came, in us."""
ADMISSION = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether this PySpark bounds batches: 4.0 and 4.1 do not."""
#: Values that hold no frame.
BAD = [
    *(b"GARBAGE\nno:thing\n\n\0", b"MESSAGE\nno colon\n\n\0", b"MESSAGE\na:\\z\n\n\0"),
    *(b"MESSAGE\ncontent-length:3\n\nabcd\0", b"MESSAGE\na:\xff\n\n\0", b"ACK\nid:1\n\nbody\0"),
]


def message(number, destination="/topic/a", body=None, **headers):
    pairs = {"destination": destination, "message-id": f"id-{number}", "subscription": "0"}
    pairs |= {"timestamp": str(START // 1000 + number)}
    pairs |= {name.replace("_", "-"): value for name, value in headers.items()}
    return Frame("MESSAGE", pairs, b'{"n": %d}' % number if body is None else body)


def ids(*numbers):
    return [f"id-{number}" for number in numbers]


def octets(frames):
    return b"".join(frame if isinstance(frame, bytes) else serialize(frame) for frame in frames)


def make_capture(
    path, frames, *, single=None, segment_octets=128 * 2**20, chain="frames", seal=True, group=1, start=START
):
    """A capture of these frames: those of a group came together, each group a second after the one before."""
    frames = list(frames)
    writer = CaptureWriter(path, single=single, segment_octets=segment_octets)
    try:
        for at in range(0, len(frames), group):
            writer.append(octets(frames[at : at + group]), start + at // group * 1_000_000, chain)
        writer.sync()
    finally:
        writer.close(seal=seal)
    return path


def make_stream(path, frames):
    data = octets(frames)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def schema_of(**columns):
    fields = [
        FRAME_SCHEMA[name].jsonValue()
        if kind == "frame"
        else {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


def rows_of(splits, projection, options):
    return [row for split in splits for batch in read_split(split, projection, options) for row in batch.to_pylist()]


def batches(path, projection, options):
    return [batch for split in batch_splits([str(path)], options) for batch in read_split(split, projection, options)]


def read(path, schema=FRAME_SCHEMA, **options):
    parsed = parse_file({name: str(value) for name, value in options.items()})
    projection = Projection(schema, parsed.decode)
    return pa.Table.from_batches(batches(path, projection, parsed), schema=projection.arrow_schema())


def rows(path, schema=FRAME_SCHEMA, **options):
    return read(path, schema, **options).to_pylist()
