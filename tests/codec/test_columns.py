"""parse_columns against frames: rows, offsets, errors, what was consumed; taken in by pyarrow and fully validated."""

import gc

import pytest
from codec import strategies as some
from codec.corpus import WORKLOADS, frame_digest, workload
from hypothesis import given
from model.reference import Reference

from stompcodec.spec import dialect_of

pa = pytest.importorskip("pyarrow")

FIXED = ["command", "headers", "body", "offset", "length", "error"]


def taken(columns):
    """The rows, as pyarrow sees them after a full check."""
    batch = pa.record_batch(columns)
    batch.validate(full=True)
    assert batch.num_rows == columns.rows
    return batch.to_pylist()


def rows_of(codec, data, *args, **named):
    return taken(codec.parse_columns(data, *args, **named))


def gap_end(data, at, version, lenient):
    """Where a gap that begins at `at` ends: behind its EOLs."""
    dialect = dialect_of(version, lenient)
    while at < len(data):
        if data[at] == 10 or (data[at] == 0 and dialect.skips_nul):
            at += 1
        elif (
            dialect.trims_lines
            and data[at : (data.find(b"\n", at) + 1 or at) - 1].strip(b" \r") == b""
            and b"\n" in data[at:]
        ):
            at = data.index(b"\n", at) + 1
        elif dialect.crlf and not dialect.trims_lines and data[at : at + 2] == b"\r\n":
            at += 2
        else:
            break
    return at


def row(command, headers, body, offset, length, error, names):
    first = dict(reversed(headers))
    text = {"command": command, "body": body, "offset": offset, "length": length, "error": error}
    return {**text, "headers": headers, **{name: first.get(name) for name in names}}


def utf8(text):
    """Arrow's text has no lone surrogates."""
    return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)


def expected(data, version="1.2", names=(), *, limits=None, lenient=False, commands=()):
    """Rows, consumed and error by the reference model."""
    rows, end = [], 0
    for event in Reference(version, limits=limits, lenient=lenient, commands=commands).read(data):
        if event[0] == "frame":
            _, command, pairs, body, at, end = event
            pairs = [(utf8(name), utf8(value)) for name, value in pairs]
            rows.append(row(utf8(command), pairs, body, at, end - at, None, names))
        elif event[0] == "error":
            at = gap_end(data, end, version, lenient)
            rows.append(row("", [], b"", at, event[2] - at, event[1], names))
            return rows, at, event[1]
    return rows, gap_end(data, end, version, lenient), None


def check(codec, data, *args, **named):
    columns = codec.parse_columns(data, *args, **named)
    rows, consumed, error = expected(data, *args, **named)
    assert (columns.rows, columns.consumed, columns.error) == (len(rows), consumed, error)
    assert taken(columns) == rows


# ---- shape ----


def test_schema(codec):
    schema = pa.record_batch(codec.parse_columns(b"ACK\n\n\0", names=["id", "é"])).schema
    assert schema.names == [*FIXED, "id", "é"]
    types = [pa.string(), pa.map_(pa.string(), pa.string()), pa.binary(), pa.int64(), pa.int32(), pa.string()]
    assert [field.type for field in schema] == [*types, pa.string(), pa.string()]
    assert [field.nullable for field in schema] == [False, False, False, False, False, True, True, True]
    headers = schema.field("headers").type
    assert not headers.key_field.nullable
    assert headers.item_field.nullable


def test_going_on_where_it_stopped(codec):
    """As a reader of a file does it, whatever the pieces are."""
    _, data = workload("mixed", 0.005)
    whole = rows_of(codec, data)
    for size in (500, 4096):
        rows, base, rest = [], 0, b""
        for at in range(0, len(data), size):
            rest += data[at : at + size]
            columns = codec.parse_columns(rest)
            rows += [{**got, "offset": got["offset"] + base} for got in taken(columns)]
            base += columns.consumed
            rest = rest[columns.consumed :]
        assert rest == b""
        assert rows == whole


@pytest.mark.parametrize("name", ["command", "error", "a"])
def test_a_name_twice_or_one_of_ours(codec, name):
    batch = pa.record_batch(codec.parse_columns(b"SEND\ncommand:1\nerror:2\na:3\n\n\0", names=[name, name]))
    batch.validate(full=True)
    assert batch.schema.names == [*FIXED, name, name]
    assert [batch.column(i).to_pylist() for i in (6, 7)] == [[{"command": "1", "error": "2", "a": "3"}[name]]] * 2


def test_handed_over_once(codec):
    columns = codec.parse_columns(b"ACK\n\n\0")
    first = columns.__arrow_c_array__()
    assert len(first) == 2
    with pytest.raises(ValueError, match="again"):
        columns.__arrow_c_array__(None)
    assert (columns.rows, columns.consumed, columns.error) == (1, 6, None)


def test_columns_live_longer_than_all_else(codec):
    data = bytearray(b"SEND\na:1\n\nhello\0" * 100)
    batch = pa.record_batch(codec.parse_columns(data))
    data[:] = b"x" * len(data)
    gc.collect()
    assert batch.column(2).to_pylist() == [b"hello"] * 100
    column = batch.column(1)
    del batch
    gc.collect()
    assert column.to_pylist() == [[("a", "1")]] * 100


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 65, 1000])
def test_validity_bits(codec, size):
    """Rows with and without a header, at every place of a bitmap."""
    data = b"".join(b"ACK\nid:%d\n\n\0" % i if i % 3 else b"ACK\n\n\0" for i in range(size))
    assert [got["id"] for got in rows_of(codec, data, names=["id"])] == [str(i) if i % 3 else None for i in range(size)]


# ---- against frames ----


@pytest.mark.parametrize("name", WORKLOADS)
def test_corpus(codec, name):
    wanted, data = workload(name, 0.005)
    batch = pa.record_batch(codec.parse_columns(data, wanted["version"]))
    batch.validate(full=True)
    columns = [batch.column(i).to_pylist() for i in range(3)]
    assert frame_digest(zip(*columns)) == wanted["digest"]
    for at, length in zip(batch.column(3).to_pylist(), batch.column(4).to_pylist()):
        assert data[at + length - 1] == 0
        assert data[at - 1 : at] in (b"", b"\0", b"\n")


@given(wire=some.wires, version=some.versions, limits=some.limits)
def test_any_stream(codec, wire, version, limits):
    for lenient in (False, True):
        for commands in ((), ("PING", "café")):
            check(codec, wire, version, ["a", "content-length", "é"], limits=limits, lenient=lenient, commands=commands)
