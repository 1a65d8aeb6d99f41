"""Bodies inflated in Python, and presets: without a Spark session."""

import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType
from spark.making import pa

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
ZIPPED = gzip.compress(b"{}", mtime=0)


@pytest.mark.parametrize(
    ("body", "most", "reason"),
    [
        (gzip.compress(bytes(MOST + 1)), MOST, "larger than 100000 bytes"),
        (ZIPPED + gzip.compress(b"a", mtime=0), 2, "larger than 2 bytes"),
        (ZIPPED[:-1], MOST, "gzip: truncated"),
        (ZIPPED + b"more", MOST, "data after the end"),
        (b"\x1f\x8b\x08nonsense", MOST, "gzip: "),
    ],
)
def test_what_is_not_right_is_told(body, most, reason):
    with pytest.raises(BodyError, match=reason):
        inflated(body, most)


def test_a_size_up_to_the_limit_is_fine():
    assert inflated(gzip.compress(bytes(MOST)), MOST) == bytes(MOST)
    assert inflated(gzip.compress(b"a", mtime=0) + gzip.compress(b"b") + b"\0\0", 2) == b"ab"


@given(st.lists(st.tuples(st.binary(max_size=50), st.sampled_from([bytes, gzip.compress, zlib.compress])), max_size=9))
def test_batches_keep_each_row_and_the_bytes_that_came(bodies):
    given = [pack(body) for body, pack in bodies]
    columns = {name: [str(number) for number in range(len(given))] for name in KEPT}
    batch = pa.RecordBatch.from_pydict({**columns, "body": given, "error": pa.array([None] * len(given), pa.string())})
    rows = [row for made in inflating(MOST)([batch]) for row in made.to_pylist()]
    assert [(row["pos"], row["raw"]) for row in rows] == [(str(number), body) for number, body in enumerate(given)]
    for row, (body, pack) in zip(rows, bodies):
        if pack is gzip.compress or not row["raw"].startswith(b"\x1f\x8b"):
            assert (row["body"], row["error"]) == (body if pack is gzip.compress else row["raw"], None)


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_as_the_page_says(name):
    preset = load(name)
    assert preset.name == name
    assert preset.about
    names = {column.name.lower() for column in preset.columns}
    assert len(names) == len(preset.columns)
    assert not names & TAKEN
    assert any(column.required for column in preset.columns)
    assert all(column.type in SCALARS or "<" in column.type for column in preset.columns)


def test_a_preset_of_ones_own(tmp_path):
    path = tmp_path / "own.json"
    columns = {"a.at": "ms! as came", "destination": "string", "n": "BIGINT", "l": "array<int>"}
    path.write_text(json.dumps({"columns": columns, "rest": "more"}), encoding="utf-8")
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
def test_a_preset_that_is_not_right(tmp_path, text, said):
    (tmp_path / "own.json").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"\A[^\n]*own\.json[^\n]*{said}[^\n]*\Z"):
        load(tmp_path / "own.json")


def test_no_such_preset():
    with pytest.raises(ConfigError, match="networkrail-td"):
        load("networkrail")
    with pytest.raises(ConfigError, match="cannot be read"):
        load("none.json")


def test_schemas_of_spark(tmp_path):
    inner = StructType([StructField("b c", StringType())])
    struct = StructType([StructField("a", ArrayType(inner)), StructField("Item", IntegerType(), False)])
    wanted = [("a", "array<struct<`b c`:string>>", False), ("body_Item", "int", True)]
    for schema in (struct, struct.json()):
        assert [(each.name, each.type, each.required) for each in of_schema(schema).columns] == wanted
    for bad in ('{"type": "array"}', '{"type": "struct", "fields": [5]}', '{"type": "struct", "fields": []}'):
        with pytest.raises(ConfigError):
            of_schema(bad)
    file = tmp_path / "schema.json"  # the largest one is read
    file.write_text(struct.json().ljust(2**20))
    assert [column.name for column in of_schema(str(file)).columns] == ["a", "body_Item"]
    file.write_text(struct.json().ljust(2**20 + 1))
    with pytest.raises(ConfigError, match="too large for a preset or a schema"):
        of_schema(str(file))
