"""parse_columns against frames: rows, offsets, errors, what was consumed; taken in by pyarrow and fully validated."""

import gc
import threading

import pytest
from codec import strategies as some
from codec.corpus import WORKLOADS, frame_digest, workload
from hypothesis import given
from model.reference import Reference

from stompcodec.spec import Limits, dialect_of

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


def test_the_schema_can_be_asked_for_alone(codec):
    columns = codec.parse_columns(b"ACK\n\n\0")
    assert pa.schema(columns).names == FIXED
    assert pa.schema(columns) == pa.record_batch(columns).schema


def test_rows(codec):
    data = b"\nSEND\na:1\na:2\nb:x\\cy\n\nhe\0\r\n\nACK\nid:7\n\n\0\nSEND\n\npart"
    columns = codec.parse_columns(data, "1.2", ["b", "id"])
    assert (columns.rows, columns.consumed, columns.error) == (2, data.index(b"SEND\n\npart"), None)
    assert taken(columns) == [
        row("SEND", [("a", "1"), ("a", "2"), ("b", "x:y")], b"he", 1, 24, None, ["b", "id"]),
        row("ACK", [("id", "7")], b"", 28, 11, None, ["b", "id"]),
    ]


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


def test_nothing(codec):
    for data in (b"", b"\n\n\r\n", b"SEND\n", b"\r"):
        columns = codec.parse_columns(data, names=["a"])
        assert (columns.rows, columns.error) == (0, None)
        assert columns.consumed == (len(data) if data in (b"", b"\n\n\r\n") else 0)
        assert taken(columns) == []


@pytest.mark.parametrize(
    ("data", "offset", "length", "kind"),
    [
        (b"ACK\n\n\0\nNONSENSE\n\n\0ACK\n\n\0", 7, 0, "unknown-command"),
        (b"ACK\n\n\0\n\0ACK\n\n\0", 7, 0, "unexpected-nul"),
        (b"ACK\n\n\0ACK\na:\\q\n\n\0", 6, 6, "bad-escape"),
        (b"ACK\n\n\0ACK\n\xff:a\n\n\0", 6, 4, "invalid-utf8"),
        (b"ACK\n\n\0SEND\ncontent-length:1\n\nabc\0", 6, 24, "missing-null"),
        (b"ACK\n\n\0ACK\n\nabc\0", 6, 5, "body-not-allowed"),
        (b"ACK\n\n\0ACK\nabc\n\n\0", 6, 4, "bad-header-line"),
        (b"ACK\n\n\0SEND\ncontent-length:x\n\n\0", 6, 20, "bad-content-length"),
        (b"ACK\n\n\0SEND\ncontent-length:999999999\n\n\0", 6, 20, "limit-exceeded"),
    ],
)
def test_error_rows(codec, data, offset, length, kind):
    columns = codec.parse_columns(data, names=["a"])
    assert (columns.rows, columns.consumed, columns.error) == (2, offset, kind)
    good, bad = taken(columns)
    assert good == row("ACK", [], b"", 0, 6, None, ["a"])
    assert bad == row("", [], b"", offset, length, kind, ["a"])


@pytest.mark.req("S12-UTF-01")
def test_octets_that_are_no_utf8(codec):
    """Arrow's text must be UTF-8: each such octet becomes U+FFFD. Bodies are octets and stay."""
    data = b"caf\xe9\n\xff\xfe:\xf0\x9f\x98x\nok:\xc3\xa9\n\n\xff\0"
    (got,) = rows_of(codec, data, lenient=True, names=["ok"])
    assert got == row(
        "caf\ufffd", [("\ufffd\ufffd", "\ufffd\ufffd\ufffdx"), ("ok", "é")], b"\xff", 0, len(data), None, ["ok"]
    )


def test_names(codec):
    data = b"SEND\na:1\na:2\nb:\n\n\0ACK\nx\\cy:\\n\n\n\0ACK\n\n\0"
    rows = rows_of(codec, data, names=["a", "b", "x:y", "nothing"])
    assert [(got["a"], got["b"], got["x:y"], got["nothing"]) for got in rows] == [
        ("1", "", None, None),
        (None, None, "\n", None),
        (None, None, None, None),
    ]
    for names in (None, [], (), iter(["a"])):
        rows_of(codec, data, names=names)
    assert len(rows_of(codec, data, "1.2", ["a"])[0]) == 7
    for wrong in (5, [1], [b"a"], [None]):
        with pytest.raises((TypeError, AttributeError)):
            codec.parse_columns(data, names=wrong)


@pytest.mark.parametrize("name", ["command", "error", "a"])
def test_a_name_twice_or_one_of_ours(codec, name):
    batch = pa.record_batch(codec.parse_columns(b"SEND\ncommand:1\nerror:2\na:3\n\n\0", names=[name, name]))
    batch.validate(full=True)
    assert batch.schema.names == [*FIXED, name, name]
    assert [batch.column(i).to_pylist() for i in (6, 7)] == [[{"command": "1", "error": "2", "a": "3"}[name]]] * 2


def test_arguments(codec):
    for wrong in ("1.3", b"1.2", 5):
        with pytest.raises(ValueError, match="version"):
            codec.parse_columns(b"", wrong)
    for wrong in ("text", 5, None):
        with pytest.raises(TypeError):
            codec.parse_columns(wrong)
    with pytest.raises((BufferError, TypeError)):
        codec.parse_columns(memoryview(b"abcd")[::2])
    with pytest.raises(TypeError):
        codec.parse_columns(b"", commands="PING")
    for kind in (bytearray, memoryview):
        assert codec.parse_columns(kind(b"ACK\n\n\0")).rows == 1
    assert codec.parse_columns(b"PING\n\n\0", commands=["PING"]).rows == 1
    assert codec.parse_columns(b"ACK\na:b\n\n\0", limits=Limits(max_headers=0)).error == "limit-exceeded"
    assert codec.parse_columns(b"ack\n\n\0", version="legacy").error is None
    assert codec.parse_columns(b"CONNECT\na:\\q\n\n\0", None).error is None


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


def test_columns_that_nobody_takes(codec):
    """Schemas and arrays may be dropped, taken or not. How much memory comes back is seen in test_isolated.py."""
    for _ in range(100):
        columns = codec.parse_columns(b"SEND\na:1\n\nhello\0" * 10, names=["a"])
        columns.__arrow_c_schema__()
        columns.__arrow_c_array__()
    codec.parse_columns(b"ACK\n\n\0")
    gc.collect()


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


@pytest.mark.parametrize("limit", [33, 40, 64, 65, 96])
def test_long_lines(codec, limit):
    """Around the limit, around the 32 octets that are read at once, and with something rare at each place of them."""
    limits = Limits(max_header_line=limit)
    lines = [b"n" * 5 + b":" + b"v" * (size - 6) for size in range(30, limit + 3)]
    lines += [b"content-length:" + b"0" * (size - 16) + b"3" for size in (31, 32, 33, limit, limit + 1)]
    long = b"n:" + b"v" * (limit - 2)
    lines += [
        long[:at] + octet + long[at + 1 :] for at in range(1, limit) for octet in (b":", b"\\", b"\r", b"\0", b"\xc3")
    ]
    for line in lines:
        for eol in (b"\n", b"\r\n"):
            head = b"SEND" + eol + line + eol + b"a:1" + eol
            check(codec, head + eol + b"one\0SEND\n\n\0", "1.2", ["n", "a"], limits=limits)
            check(codec, head, "1.2", ["n"], limits=limits, lenient=True)


# ---- threads ----


def test_two_threads(codec):
    """On the same octets at the same time; the C backend does so without the GIL."""
    _, data = workload("ticks", 0.02)
    wanted = rows_of(codec, data, names=["destination"])
    got = {}

    def work(key):
        for _ in range(5):
            got[key] = rows_of(codec, data, names=["destination"])

    threads = [threading.Thread(target=work, args=(key,)) for key in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {0: wanted, 1: wanted}
