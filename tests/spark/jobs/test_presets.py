"""Bodies inflated in Python, and presets: without a Spark session."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from hypothesis import given
from hypothesis import strategies as st

from stompcodec.errors import ConfigError
from stompcodec.spark.jobs.explode import (
    KEPT,
    SCALARS,
    TAKEN,
    BodyError,
    inflated,
    inflating,
    load,
    of_schema,
    preset_names,
)

MOST = 100_000


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (gzip.compress(bytes(10 * MOST)), "larger than 100000 bytes"),
        (gzip.compress(b"{}", mtime=0)[:-1], "gzip: truncated"),
        (gzip.compress(b"{}", mtime=0) + b"more", "data after the end"),
        (b"\x1f\x8b\x08nonsense", "gzip: "),
    ],
)
def test_what_is_not_right_is_told(body: bytes, reason: str) -> None:
    with pytest.raises(BodyError, match=reason):
        inflated(body, MOST)


def test_a_size_up_to_the_limit_is_fine() -> None:
    assert inflated(gzip.compress(bytes(MOST)), MOST) == bytes(MOST)
    assert inflated(gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0) + b"\0\0", 2) == b"ab"
    with pytest.raises(BodyError):
        inflated(gzip.compress(b"a", mtime=0) + gzip.compress(b"bc", mtime=0), 2)


@given(st.lists(st.tuples(st.binary(max_size=50), st.sampled_from([bytes, gzip.compress, zlib.compress])), max_size=9))
def test_batches_keep_each_row_and_the_bytes_that_came(bodies: list[tuple[bytes, Callable[[bytes], bytes]]]) -> None:
    given = [pack(body) for body, pack in bodies]
    columns = {name: [str(number) for number in range(len(given))] for name in KEPT}
    batch = pa.RecordBatch.from_pydict({**columns, "body": given, "error": pa.array([None] * len(given), pa.string())})
    rows = [row for made in inflating(MOST)([batch]) for row in made.to_pylist()]
    assert [(row["pos"], row["raw"]) for row in rows] == [(str(number), body) for number, body in enumerate(given)]
    for row, (body, pack) in zip(rows, bodies):
        if pack is gzip.compress:
            assert (row["body"], row["error"]) == (body, None)
        elif not row["raw"].startswith(b"\x1f\x8b"):
            assert (row["body"], row["error"]) == (row["raw"], None)


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_as_the_page_says(name: str) -> None:
    preset = load(name)
    assert preset.name == name
    assert preset.about
    names = [column.name for column in preset.columns]
    assert len({each.lower() for each in names}) == len(names)
    assert not {each.lower() for each in names} & TAKEN
    assert any(column.required for column in preset.columns)
    assert all(column.type in SCALARS or "<" in column.type for column in preset.columns)


def test_a_preset_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    text = {
        "columns": {"a.at": "ms! as came", "destination": "string", "n": "BIGINT", "l": "array<int>"},
        "rest": "more",
    }
    path.write_text(json.dumps(text), encoding="utf-8")
    preset = load(path)
    assert preset.sections == ("a",)
    assert [(each.path, each.name, each.type, each.required) for each in preset.columns] == [
        ("a.at", "came", "ms", True),
        ("destination", "body_destination", "string", False),
        ("n", "n", "long", False),
        ("l", "l", "array<int>", False),
    ]
    assert of_schema(path) == preset


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
        ("{}", "columns"),
        ('{"columns": {"a": "odd"}}', "unknown type 'odd'"),
        ('{"columns": {"a": 5}}', "write TYPE"),
        ('{"columns": {"a": "int", "b": "int as A"}}', "two columns are called 'A'"),
        ('{"columns": {"a": "int"}, "rest": "a"}', "two columns"),
        ('{"columns": {"a": "int"}, "unwrap": "x"}', "a list of strings"),
        ('{"columns": {"a": "int"}, "colums": {}}', "unknown key 'colums'"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_preset_that_is_not_right(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "own.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"own\.json") as caught:
        load(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_such_preset() -> None:
    with pytest.raises(ConfigError, match="networkrail-td"):
        load("networkrail")
    with pytest.raises(ConfigError, match="cannot be read"):
        load("none.json")


def test_schemas_of_spark() -> None:
    from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType

    inner = StructType([StructField("b c", StringType())])
    struct = StructType([StructField("a", ArrayType(inner)), StructField("Item", IntegerType(), False)])
    for schema in (struct, struct.json()):
        assert [(each.name, each.type, each.required) for each in of_schema(schema).columns] == [
            ("a", "array<struct<`b c`:string>>", False),
            ("body_Item", "int", True),
        ]
    for bad in ('{"type": "array"}', '{"type": "struct", "fields": [5]}', '{"type": "struct", "fields": []}'):
        with pytest.raises(ConfigError):
            of_schema(bad)


def test_the_largest_file_of_a_schema_is_read(tmp_path: Path) -> None:
    file, schema = tmp_path / "schema.json", b'{"type": "struct", "fields": [{"name": "n", "type": "integer"}]}'
    file.write_bytes(schema.ljust(2**20))
    assert [column.name for column in of_schema(str(file)).columns] == ["n"]
    file.write_bytes(schema.ljust(2**20 + 1))
    with pytest.raises(ConfigError, match="too large for a preset or a schema"):
        of_schema(str(file))
