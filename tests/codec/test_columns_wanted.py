"""parse_columns with what is wanted of it: fewer columns, conditions on frames, and headers without repeats. The rows
are those of all columns, cut down here in plain Python."""

import random

import pytest
from codec import strategies as some
from codec.test_columns import FIXED, expected, rows_of, taken
from hypothesis import example, given
from hypothesis import strategies as st

from stompcodec.spec import Limits

pa = pytest.importorskip("pyarrow")

FRAMES = [
    b"SEND\ndestination:/queue/a\nkind:x\\cy\nkind:z\n\none\0\n",
    b"MESSAGE\ndestination:/topic/b\n\ntwo\0",
    b"ACK\nid:7\n\n\0\r\n",
    b"SEND\ndestination:/queue/abc\nkind:\n\n\0",
]
DATA = b"".join(FRAMES)


def offsets(codec, where, data, *args, **named):
    return [got["offset"] for got in rows_of(codec, data, *args, columns=["offset"], where=where, **named)]


def numbers(codec, where):
    """Which of FRAMES make a row."""
    starts = [sum(map(len, FRAMES[:i])) for i in range(len(FRAMES))]
    return [starts.index(offset) for offset in offsets(codec, where, DATA)]


# ---- conditions ----


ALL = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ([], ALL),
        ([("command", "in", ["SEND"])], [0, 3]),
        ([("command", "in", ["SEND", "ACK"])], [0, 2, 3]),
        ([("command", "prefix", ["ME", "A"])], [1, 2]),
        ([("command", "in", [])], []),
        ([("command", "prefix", [])], []),
        ([("command", "prefix", [""])], ALL),
        ([("destination", "prefix", [""])], [0, 1, 3]),
        ([("destination", "in", ["/queue/a"])], [0]),
        ([("destination", "in", ["/queue/", "/queue/ab", "/queue/abcd", "/topic"])], []),
        ([("destination", "prefix", ["/queue/a"])], [0, 3]),
        ([("destination", "prefix", ["/queue/ab", "/topic/"])], [1, 3]),
        ([("destination", "prefix", ["/queue", "/queue/abcd"])], [0, 3]),
        ([("kind", "in", ["x:y"])], [0]),
        ([("kind", "prefix", ["x:"])], [0]),
        ([("kind", "in", ["z"])], []),  # only the first entry counts
        ([("kind", "in", [""])], [3]),
        ([("destination", "prefix", ["/queue"]), ("kind", "in", ["x:y", "q"])], [0]),
        ([("id", "in", ["7"]), ("destination", "prefix", [""])], []),
        ([["id", "in", {"7", "8"}]], [2]),
        ([("", "in", [""])], []),
        ([("nothing", "in", ["a"])], []),
    ],
)
def test_conditions(codec, where, rows):
    assert numbers(codec, where) == rows


def test_what_is_malformed_always_makes_a_row(codec):
    data = DATA + b"ACK\nid:\\q\n\n\0" + DATA
    columns = codec.parse_columns(data, names=["id"], where=[("id", "in", ["none"])])
    assert (columns.rows, columns.consumed, columns.error) == (1, len(DATA), "bad-escape")
    (row,) = taken(columns)
    assert row == {
        **{"command": "", "headers": [], "body": b"", "offset": len(DATA), "length": 7, "error": "bad-escape"},
        "id": None,
    }


def test_conditions_are_on_text_as_columns_show_it(codec):
    """Lenient: what is no UTF-8 is U+FFFD. Names, too. A filter that runs after this one sees the same."""
    data = b"SEND\na:caf\xe9\n\n\0SEND\na\xff:1\n\n\0SEND\na\xef\xbf\xbd:2\n\n\0P\xff\n\n\0"
    assert offsets(codec, [("a", "in", ["caf\ufffd"])], data, lenient=True) == [0]
    assert offsets(codec, [("a", "in", ["caf\xe9"])], data, lenient=True) == []
    assert offsets(codec, [("a\ufffd", "in", ["1", "2"])], data, lenient=True) == [14, 26]
    assert offsets(codec, [("command", "in", ["P\ufffd"])], data, lenient=True) == [40]
    rows = rows_of(codec, data, names=["a\ufffd"], columns=["headers"], lenient=True)
    assert [(got["headers"], got["a\ufffd"]) for got in rows[1:3]] == [([("a\ufffd", x)], x) for x in "12"]


@pytest.mark.parametrize("kind", ["in", "prefix"])
def test_a_hundred_thousand_values(codec, kind):
    """A step through all of them for each frame would be 10**9 steps here."""
    values = [f"/queue/{i:06}" for i in range(100_000)]
    random.Random(1).shuffle(values)
    count = 10_000 if codec.__name__.endswith("_c") else 500
    wires = [b"SEND\ndestination:/queue/%06d%b\n\n\0" % (i * 12_345 % 200_000, b"x" * (i % 2)) for i in range(count)]
    got = codec.parse_columns(b"".join(wires), where=[("destination", kind, values)], columns=[], names=["destination"])
    known = set(values)
    shown = [wire[17:-3].decode() for wire in wires]
    wanted = [name for name in shown if name[:13] in known and (kind == "prefix" or len(name) == 13)]
    assert [row["destination"] for row in taken(got)] == wanted
    assert 0 < len(wanted) < count


# ---- repeats ----


@pytest.mark.parametrize("count", [1, 2, 3, 15, 16, 17, 18, 31, 32, 33, 64, 100, 1000])
def test_many_repeats(codec, count):
    """Around the count from which they are sorted instead of compared, each with each."""
    rng = random.Random(count)
    data, wanted = b"", []
    for distinct in (1, 2, count // 2 + 1, count):
        pairs = [(f"{rng.randrange(distinct):x}" * rng.choice([1, 3]), str(i)) for i in range(count)]
        data += b"SEND\n" + b"".join(f"{name}:{value}\n".encode() for name, value in pairs) + b"\n\0"
        wanted.append(
            list(dict(reversed(pairs)).items()) and list({n: dict(reversed(pairs))[n] for n, _ in pairs}.items())
        )
    assert [got["headers"] for got in rows_of(codec, data, repeats=False)] == wanted


@pytest.mark.parametrize("same", [True, False])
def test_hostile_repeats(codec, same):
    """A head as large as limits allow: each header compared with each would be 10**10 steps."""
    count = 100_000
    lines = b"".join(b"same:x\n" if same else b"%05d:x\n" % (i * 7919 % count) for i in range(count))
    columns = codec.parse_columns(
        b"SEND\n" + lines + b"\n\0",
        columns=["headers"],
        repeats=False,
        limits=Limits(max_headers=count, max_header_line=99),
    )
    batch = pa.record_batch(columns)
    assert len(batch.column(0)[0]) == (1 if same else count)


# ---- any of it, on any octets ----

_names = st.sampled_from(["a", "id", "content-length", "é", "b" * 70, "message-id", "destination", "\ufffd", "", "x:y"])
_values = st.sampled_from(
    [
        "",
        "1",
        "2",
        "a",
        "a:b",
        "b:c",
        "/queue/a",
        "/queue/",
        "é",
        "\ufffd",
        "v" * 130,
        "v" * 3,
        "\n",
        "\\",
        "東",
        "SEND",
        "M",
    ]
)
_conditions = st.tuples(
    st.just("command") | _names,
    st.sampled_from(["in", "prefix"]),
    st.lists(_values | st.sampled_from(["SEND", "MESSAGE", "ACK", "PING", "CAF\ufffd", "S"]), max_size=6),
)


def is_wanted(row, where):
    for name, kind, values in where:
        text = row["command"] if name == "command" else dict(reversed(row["headers"])).get(name)
        if text is None or not any(text == value or (kind == "prefix" and text.startswith(value)) for value in values):
            return False
    return True


@given(
    wire=some.wires,
    version=some.versions,
    limits=some.limits,
    lenient=st.booleans(),
    commands=some.commands,
    names=st.lists(_names, max_size=3, unique=True).filter(lambda names: not set(names) & set(FIXED)),
    columns=st.none() | st.lists(st.sampled_from(FIXED), max_size=6),
    where=st.lists(_conditions, max_size=2),
    repeats=st.booleans(),
)
@example(
    **{
        "wire": b"SEND\nb:\xff\nb:\n\n\0",
        "version": "1.2",
        "limits": None,
        "lenient": True,
        "commands": (),
        "names": ["b"],
    },
    **{"columns": None, "where": [("b", "prefix", ["\ufffd"])], "repeats": False},
)
def test_any_wish_on_any_stream(codec, wire, version, limits, lenient, commands, names, columns, where, repeats):
    options = {"limits": limits, "lenient": lenient, "commands": commands}
    got = codec.parse_columns(wire, version, names, columns=columns, where=where, repeats=repeats, **options)
    rows, consumed, error = expected(wire, version, names, **options)
    rows = [row for row in rows if row["error"] or is_wanted(row, where)]
    for row in rows:
        if not repeats:
            first = dict(reversed(row["headers"]))
            row["headers"] = [(name, first[name]) for name in dict.fromkeys(name for name, _ in row["headers"])]
    kept = [*(FIXED if columns is None else columns), *names]
    assert (got.rows, got.consumed, got.error) == (len(rows), consumed, error)
    assert taken(got) == [{name: row[name] for name in row if name in kept} for row in rows]
