"""Reading without Spark: what its workers do with a path."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType, _parse_datatype_json_string

from stompcodec.spark.options import FileOptions, parse_file
from stompcodec.spark.reading.decode import read_split
from stompcodec.spark.reading.plan import batch_splits
from stompcodec.spark.reading.schema import FRAME_SCHEMA, Projection

__all__ = ["ADMISSION", "batches", "read", "rows", "schema_of"]

#: Whether this PySpark bounds batches: 4.0 and 4.1 do not.
ADMISSION = importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None


def schema_of(**columns: str) -> StructType:
    """A schema by names and types, such as priority="integer"; those of frames may be "frame"."""
    fields = [
        FRAME_SCHEMA[name].jsonValue()
        if kind == "frame"
        else {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    import json

    schema = _parse_datatype_json_string(json.dumps({"type": "struct", "fields": fields}))
    assert isinstance(schema, StructType)
    return schema


def batches(path: Path | str, projection: Projection, options: FileOptions) -> list[pa.RecordBatch]:
    splits = batch_splits([str(path)], options)
    return [batch for split in splits for batch in read_split(split, projection, options)]


def read(path: Path | str, schema: StructType = FRAME_SCHEMA, **options: object) -> pa.Table:
    """All rows of a path."""
    parsed = parse_file({name: str(value) for name, value in options.items()})
    projection = Projection(schema, parsed.decode)
    return pa.Table.from_batches(batches(path, projection, parsed), schema=projection.arrow_schema())


def rows(path: Path | str, schema: StructType = FRAME_SCHEMA, **options: object) -> list[dict[str, Any]]:
    return read(path, schema, **options).to_pylist()
