"""Bodies taken apart in Python, and presets: without a Spark session."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from hypothesis import given
from hypothesis import strategies as st

from stompcodec.errors import ConfigError
from stompcodec.spark.jobs.bodies import BodyError, inflated, parse_xml, records
from stompcodec.spark.jobs.presets import SCALARS, TAKEN, load, of_schema, preset_names
from stompcodec.spark.jobs.reading import Frame, items_of

MOST = 100_000
UPDATE = (
    b'<Pport xmlns="http://a/v12" xmlns:n="http://a/s" ts="2026-03-01T12:00:00Z" version="12.0">'
    b'<uR updateOrigin="TD" requestID="7"><TS rid="1" ssd="2026-03-01" uid="A"><n:Location tpl="X" wtp="16:31">'
    b'<n:pass at="16:35" src="TD"/><n:plat conf="true">1</n:plat></n:Location></TS><deactivated rid="2"/></uR>'
    b'<sR><OW id="5"><n:Station crs="ABC"/><n:Msg>All <n:a href="h">trains</n:a> run.</n:Msg></OW></sR>'
    b"<TimeTableId>9</TimeTableId></Pport>"
)
APEL = b"APEL-individual-job-message: v0.3\r\nSite: A\nWallDuration: 5\n%%\n\nbroken\n%%\nSite: B\nSite: C\n%%\n"


def fields(body: bytes, reader: str) -> list[dict[str, str] | None]:
    return [record.fields for record in records(body, reader, MOST)]


def test_an_update_of_darwin_is_a_record_for_each_element() -> None:
    found = fields(gzip.compress(UPDATE), "darwin")
    assert [each and each["kind"] for each in found] == ["TS", "deactivated", "OW", "TimeTableId"]
    status, gone, message, table = found
    assert status is not None
    assert message is not None
    assert gone is not None
    assert table is not None
    assert (status["ts"], status["update"], status["update_origin"], status["request_id"]) == (
        "2026-03-01T12:00:00Z",
        "uR",
        "TD",
        "7",
    )
    assert json.loads(status["locations"]) == [
        {"type": "Location", "tpl": "X", "wtp": "16:31", "pass_at": "16:35", "pass_src": "TD", "plat": "1"}
    ]
    assert json.loads(status["element"])["Location"][0]["plat"] == [{"conf": "true", "_": "1"}]
    assert (gone["rid"], gone["update"], message["update"]) == ("2", "uR", "sR")
    assert message["message"] == "All trains run."
    assert "update" not in table


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "no body"),
        (b"<a>", "XML: no element found, line 1, column 3"),
        (b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', "a DTD is not accepted"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "a DTD is not accepted"),
        (b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', "a DTD is not accepted"),
        (b'<!DOCTYPE a [<!ENTITY b "' + b"c" * 1000 + b'"><!ENTITY d "&b;&b;">]><a>&d;</a>', "a DTD is not accepted"),
        (b"<a>&unknown;</a>", "undefined entity"),
        (b"<a>" * 101, "nested deeper than 100"),
        (b'<?xml version="1.0" encoding="bogus"?><a/>', "unknown encoding"),
        (b"<a/>" + b" " * MOST, "larger than 100000 bytes"),
        (gzip.compress(bytes(10 * MOST)), "larger than 100000 bytes"),
        (gzip.compress(b"<a/>", mtime=0)[:-1], "gzip: truncated"),
        (gzip.compress(b"<a/>", mtime=0) + b"more", "data after the end"),
        (b"\x1f\x8b\x08nonsense", "gzip: "),
        (b'<Pport ts="' + b"x" * 1001 + b'"><uR><a/></uR></Pport>', "more than 1000 characters"),
    ],
)
def test_what_is_not_right_is_told(body: bytes, reason: str) -> None:
    with pytest.raises(BodyError, match=reason.replace("(", r"\(")):
        list(records(body, "darwin", MOST))


def test_depth_and_size_up_to_the_limit_are_fine() -> None:
    assert parse_xml(b"<a>" * 100 + b"</a>" * 100, MOST).name == "a"
    assert inflated(gzip.compress(bytes(MOST)), MOST) == bytes(MOST)
    assert inflated(gzip.compress(b"a", mtime=0) + gzip.compress(b"b", mtime=0) + b"\0\0", 2) == b"ab"
    with pytest.raises(BodyError):
        inflated(gzip.compress(b"a", mtime=0) + gzip.compress(b"bc", mtime=0), 2)


@given(st.binary(max_size=300), st.sampled_from(["darwin", "xml", "apel"]), st.sampled_from([bytes, gzip.compress]))
def test_any_octets_end_in_records_or_a_reason(body: bytes, reader: str, packed: type) -> None:
    items = list(items_of(Frame(packed(body), None), reader, MOST))
    assert items
    assert all((item.rec is None) == (item.reason is not None) for item in items)
    if items[0].item is None:
        assert [item.raw for item in items] == [packed(body)]


@given(st.integers(0, len(UPDATE) - 1), st.binary(min_size=1, max_size=3))
def test_a_damaged_update_is_never_lost(at: int, octets: bytes) -> None:
    body = UPDATE[:at] + octets + UPDATE[at + len(octets) :]
    items = list(items_of(Frame(zlib.compress(body, wbits=31), None), "darwin", MOST))
    assert items
    assert all(item.rec or item.raw is not None for item in items)


def test_records_of_apel() -> None:
    found = list(records(APEL, "apel", MOST))
    assert found[0].fields == {
        "record": "APEL-individual-job-message",
        "version": "v0.3",
        "Site": "A",
        "WallDuration": "5",
    }
    assert [record.reason for record in found[1:]] == [
        "a line is not 'Key: value': 'broken'",
        "field Site is there twice",
    ]
    assert [item.raw for item in items_of(Frame(APEL, None), "apel", MOST)][1:] == [b"\nbroken", b"Site: B\nSite: C"]
    with pytest.raises(BodyError, match="not an APEL message"):
        list(records(b"Site: A", "apel", MOST))


def test_too_many_records_are_one_reason() -> None:
    body = b"<Pport><uR>" + b"<a/>" * 100_001 + b"</uR></Pport>"
    (item,) = items_of(Frame(body, None), "darwin", 10 * MOST)
    assert item.reason == "more than 100000 records"
    assert item.raw == body


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
        ('{"columns": {"a": "int"}, "reader": "yaml"}', "reader 'yaml'"),
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
