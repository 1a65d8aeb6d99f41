"""parse_columns against frames, with fewer columns and conditions; and frame_ends, behind malformed frames, too."""

import gc
import random
from contextlib import nullcontext

import pytest
from codec import strategies as some
from codec.test_blocks import LINES
from hypothesis import example, given, settings
from hypothesis import strategies as st
from installed import load
from model.reference import Reference
from profiles import examples
from traced import peak, tracing

from stompcodec.spec import DEFAULT_LIMITS, VERSIONS, Limits, dialect_of

pa = pytest.importorskip("pyarrow")
FIXED = ["command", "headers", "body", "offset", "length", "error"]


def taken(columns):
    batch = pa.record_batch(columns)
    batch.validate(full=True)
    assert batch.num_rows == columns.rows
    return batch.to_pylist()


def rows_of(codec, data, *args, **named):
    return taken(codec.parse_columns(data, *args, **named))


def gap_end(data, at, version, lenient):
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


def row(names, *fields):
    first = dict(reversed(fields[1]))
    return {**dict(zip(FIXED, fields)), **{name: first.get(name) for name in names}}


def utf8(text):
    return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)


def expected(data, version="1.2", names=(), *, limits=None, lenient=False, commands=()):
    rows, end = [], 0
    for event in Reference(version, limits=limits, lenient=lenient, commands=commands).read(data):
        if event[0] == "frame":
            _, command, pairs, body, at, end = event
            pairs = [(utf8(name), utf8(value)) for name, value in pairs]
            rows.append(row(names, utf8(command), pairs, body, at, end - at, None))
        elif event[0] == "error":
            at = min(gap_end(data, end, version, lenient), event[2])
            rows.append(row(names, "", [], b"", at, event[2] - at, event[1]))
            return rows, at, event[1]
    return rows, gap_end(data, end, version, lenient), None


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
    data = load("benchmarks/corpus.py").stream("mixed", 0.005).data()
    whole = rows_of(codec, data)
    for size in (500, 4096):
        rows, base, rest = [], 0, b""
        for at in range(0, len(data), size):
            rest += data[at : at + size]
            columns = codec.parse_columns(rest)
            rows += [{**got, "offset": got["offset"] + base} for got in taken(columns)]
            base += columns.consumed
            rest = rest[columns.consumed :]
        assert (rest, rows) == (b"", whole)


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
    data = b"".join(b"ACK\nid:%d\n\n\0" % i if i % 3 else b"ACK\n\n\0" for i in range(size))
    assert [got["id"] for got in rows_of(codec, data, names=["id"])] == [str(i) if i % 3 else None for i in range(size)]


# ---- conditions ----
FRAMES = [
    *(b"SEND\ndestination:/queue/a\nkind:x\\cy\nkind:z\n\none\0\n", b"MESSAGE\ndestination:/topic/b\n\ntwo\0"),
    *(b"ACK\nid:7\n\n\0\r\n", b"SEND\ndestination:/queue/abc\nkind:\n\n\0"),
]
DATA = b"".join(FRAMES)


def offsets(codec, where, data=DATA, **named):
    return [got["offset"] for got in rows_of(codec, data, columns=["offset"], where=where, **named)]


ALL = [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        *(([], ALL), ([("command", "in", ["SEND"])], [0, 3]), ([("command", "in", ["SEND", "ACK"])], [0, 2, 3])),
        *(([("command", "prefix", ["ME", "A"])], [1, 2]), ([("command", "in", [])], [])),
        *(([("command", "prefix", [])], []), ([("command", "prefix", [""])], ALL)),
        *(([("destination", "prefix", [""])], [0, 1, 3]), ([("destination", "in", ["/queue/a"])], [0])),
        ([("destination", "in", ["/queue/", "/queue/ab", "/queue/abcd", "/topic"])], []),
        ([("destination", "prefix", ["/queue/a"])], [0, 3]),
        ([("destination", "prefix", ["/queue/ab", "/topic/"])], [1, 3]),
        *(([("destination", "prefix", ["/queue", "/queue/abcd"])], [0, 3]), ([("kind", "in", ["x:y"])], [0])),
        ([("kind", "prefix", ["x:"])], [0]),
        ([("kind", "in", ["z"])], []),  # only the first entry counts
        ([("kind", "in", [""])], [3]),
        ([("destination", "prefix", ["/queue"]), ("kind", "in", ["x:y", "q"])], [0]),
        *(([("id", "in", ["7"]), ("destination", "prefix", [""])], []), ([["id", "in", {"7", "8"}]], [2])),
        *(([("", "in", [""])], []), ([("nothing", "in", ["a"])], [])),
    ],
)
def test_conditions(codec, where, rows):
    assert offsets(codec, where) == [sum(map(len, FRAMES[:number])) for number in rows]


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


@pytest.mark.parametrize("count", [1, 2, 3, 15, 16, 17, 18, 31, 32, 33, 64, 100, 1000])
def test_many_repeats(codec, count):
    """Around the count from which they are sorted instead of compared, each with each."""
    rng = random.Random(count)
    data, wanted = b"", []
    for distinct in (1, 2, count // 2 + 1, count):
        pairs = [(f"{rng.randrange(distinct):x}" * rng.choice([1, 3]), str(i)) for i in range(count)]
        data += b"SEND\n" + b"".join(f"{name}:{value}\n".encode() for name, value in pairs) + b"\n\0"
        wanted.append([(name, dict(reversed(pairs))[name]) for name in dict(pairs)])
    assert [got["headers"] for got in rows_of(codec, data, repeats=False)] == wanted


@pytest.mark.parametrize("same", [True, False])
def test_hostile_repeats(codec, same):
    """A head as large as limits allow: each header compared with each would be 10**10 steps."""
    count = 100_000
    lines = b"".join(b"same:x\n" if same else b"%05d:x\n" % (i * 7919 % count) for i in range(count))
    limits = Limits(max_headers=count, max_header_line=99)
    columns = codec.parse_columns(b"SEND\n" + lines + b"\n\0", columns=["headers"], repeats=False, limits=limits)
    assert len(pa.record_batch(columns).column(0)[0]) == (1 if same else count)


# They are told before their heads are taken apart: that changes neither rows nor errors, whatever a head has, wherever
# it lies, and wherever the data ends.
#: Conditions that most frames fail, on headers that come early or late, have many entries or none.
CONDITIONS = {
    "a name of one byte": ("x", "in", ["none"]),
    **{"a name of one byte, which often begins so": ("x", "prefix", ["p"]), "no value": ("a", "in", [""])},
    "the last line": ("id", "in", ["1", "\u00df"]),
    "a longer name": ("destination", "in", ["/queue/\u00e9", "/queue/b", "a:b"]),
    **{"content-length": ("content-length", "in", ["3"]), "a name of 63 bytes": ("n" * 63, "in", ["1"])},
    **{"a name of 64 bytes": ("n" * 64, "in", ["1"]), "a name with an escape": ("n:", "in", ["1"])},
}
OTHER = b"MESSAGE\ndestination:/queue/a\nx:p\nsubscription:0\ncontent-length:5\n\na\0b\0c\0\n"
PLACES = (0, 1, 20, 43, 44, 45, 46, 47, 48, 49, 50, 51, 55, 60, 64)


def read(codec, data, where, **options):
    columns = codec.parse_columns(data, where=[where], columns=["offset", "length", "error"], **options)
    return columns.rows, columns.consumed, columns.error, taken(columns)


@pytest.mark.c_only
@pytest.mark.parametrize("name", LINES)
def test_a_line_lies_anywhere(both, name):
    c, py = both
    dice = random.Random(name)
    for place in PLACES:
        frame = b"SEND\n" + LINES[name].replace(b"{}", b"p" * place) + b"\n\nabc\0"
        for condition in dice.sample(sorted(CONDITIONS), 3):
            for data in (frame + OTHER * 2, OTHER + frame + OTHER):
                where = CONDITIONS[condition]
                assert read(c, data, where) == read(py, data, where), (place, condition, data)


@pytest.mark.c_only
@pytest.mark.parametrize("condition", CONDITIONS)
def test_values_are_wanted_or_nearly_so(both, condition):
    c, py = both
    where = CONDITIONS[condition]
    name = where[0].replace(":", "\\c")
    values = [*where[2], "none", "nonesuch", "non", "no\\\\ne", "a\\cb", "\u6771", "y" * 70, "3"]
    for value in values:
        for place in range(0, 70, 6):
            line = f"y:{'p' * place}\n{name}:{value}\n{name}:{where[2][0]}\n".encode()
            data = b"".join((OTHER, b"SEND\n" + line + b"\nabc\0", OTHER, OTHER))
            assert read(c, data, where) == read(py, data, where), (place, value)


@pytest.mark.c_only
@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_many_or_few_frames_fail(both, share):
    dice = random.Random(4711)
    data = b"".join(OTHER if dice.random() < share else OTHER.replace(b"/a", b"/b") for _ in range(400))
    for end in (b"", b"ACK\nid:\\q\n\n\0" + OTHER):
        got, other = (read(each, data + end, CONDITIONS["a longer name"]) for each in both)
        assert (got, got[0]) == (other, data.count(b"/b") + bool(end))


@pytest.mark.c_only
@pytest.mark.parametrize("most", range(30, 80))
def test_limits_hold_for_frames_that_make_no_row(both, most):
    c, py = both
    data = OTHER + b"SEND\n" + b"a:\n" * 55 + b"b:" + b"y" * 52 + b"\n\n" + b"b" * 54 + b"\0" + OTHER * 2
    for limits in (Limits(max_headers=most), Limits(max_header_line=most), Limits(max_body=most)):
        where = CONDITIONS["a longer name"]
        assert read(c, data, where, limits=limits) == read(py, data, where, limits=limits), limits


_names = st.sampled_from(["a", "id", "content-length", "é", "b" * 70, "message-id", "destination", "\ufffd", "", "x:y"])
_values = st.sampled_from(
    [
        *["", "1", "2", "a", "a:b", "b:c", "/queue/a", "/queue/", "é", "\ufffd", "v" * 130, "v" * 3, "\n", "\\", "東"],
        *["SEND", "MESSAGE", "ACK", "PING", "CAF\ufffd", "S", "M"],
    ]
)
_conditions = st.tuples(st.just("command") | _names, st.sampled_from(["in", "prefix"]), st.lists(_values, max_size=6))


def is_wanted(row, where):
    for name, kind, values in where:
        text = row["command"] if name == "command" else dict(reversed(row["headers"])).get(name)
        if text is None or not any(text == value or (kind == "prefix" and text.startswith(value)) for value in values):
            return False
    return True


_wishes = st.fixed_dictionaries(
    {
        "names": st.lists(_names, max_size=3, unique=True).filter(lambda names: not set(names) & set(FIXED)),
        "columns": st.none() | st.lists(st.sampled_from(FIXED), max_size=6),
        **{"where": st.lists(_conditions, max_size=2), "repeats": st.booleans()},
    }
)
_ALL = {"names": ["a", "content-length", "é"], "columns": None, "where": [], "repeats": True}
_PREFIX = {"names": ["b"], "columns": None, "where": [("b", "prefix", ["\ufffd"])], "repeats": False}


@settings(max_examples=examples(400))
@given(some.wires, some.versions, some.limits, st.booleans(), some.commands, _wishes | st.just(_ALL))
@example(b"SEND\nb:\xff\nb:\n\n\0", "1.2", None, True, (), _PREFIX)
@example(b" \n", "legacy", Limits(max_command_line=0), False, (), _ALL)
def test_any_wish_on_any_stream(codec, wire, version, limits, lenient, commands, wish):
    options = {"limits": limits, "lenient": lenient, "commands": commands}
    got = codec.parse_columns(wire, version, **wish, **options)
    rows, consumed, error = expected(wire, version, wish["names"], **options)
    rows = [row for row in rows if row["error"] or is_wanted(row, wish["where"])]
    for row in rows if not wish["repeats"] else ():
        first = dict(reversed(row["headers"]))
        row["headers"] = [(name, first[name]) for name in dict(row["headers"])]
    kept = [*(FIXED if wish["columns"] is None else wish["columns"]), *wish["names"]]
    assert (got.rows, got.consumed, got.error) == (len(rows), consumed, error)
    assert taken(got) == [{name: row[name] for name in row if name in kept} for row in rows]


def light_end(data, at, max_body):
    while data[at : at + 1] == b"\n" or data[at : at + 2] == b"\r\n":
        at += 1
    lines, line = [], b""
    while True:
        if at == len(data):
            return None
        octet, at = data[at : at + 1], at + 1
        if octet == b"\0":
            return at
        line += octet
        if octet == b"\n":
            lines.append(line.removesuffix(b"\n").removesuffix(b"\r"))
            if not lines[-1] and len(lines) > 1:
                break
            line = b""
    lengths = [line.partition(b":")[2] for line in lines[1:] if line.startswith(b"content-length:")]
    if lengths and lengths[0].strip(b" \t").isdigit() and int(lengths[0].strip(b" \t")) <= max_body:
        nul = at + int(lengths[0].strip(b" \t"))
        if nul >= len(data):
            return None
        if not data[nul]:
            return nul + 1
    return data.find(b"\0", at) + 1 or None


def light_ends(data, every=1, most=None, max_body=DEFAULT_LIMITS.max_body):
    given, at = [], 0
    while most is None or len(given) < most:
        end = light_end(data, at, max_body)
        if end is None:
            if at > (given[-1] if given else 0):
                given.append(at)
            break
        at = end
        if at - (given[-1] if given else 0) >= every:
            given.append(at)
    return given


_PIECES = [
    *(b"\n", b"\n", b"\r\n", b"\n\n", b"\r", b"\0", b"SEND", b"a:b", b"c", b"x" * 31, b"x" * 32, b"y" * 33, b":"),
    *(b"content-length:", b"\ncontent-length:", b"content-length", b"0", b"3", b" 2", b"\t1 ", b"70", b"9" * 25, b"-1"),
]
_pieces = st.lists(st.sampled_from(_PIECES), max_size=25).map(b"".join)


@given(
    data=some.wires | _pieces,
    every=st.sampled_from([1, 2, 5, 20, 100]),
    most=st.sampled_from([None, 0, 1, 2, 3]),
    max_body=st.sampled_from([0, 2, 70, 10**6]),
)
@example(data=b"SEND\ncontent-length:3\n\na\0b", every=1, most=None, max_body=3)
@example(data=b"SEND\ncontent-length:4\n\na\0b\0\0", every=1, most=None, max_body=3)
@example(data=b"SEND\n" + b"c" * 25 + b"\n\r\n\0", every=1, most=None, max_body=3)
def test_any_octets(codec, data, every, most, max_body):
    got = codec.frame_ends(data, every, most, limits=Limits(max_body=max_body))
    assert (list(got), list(got)) == (light_ends(data, every, most, max_body), sorted(set(got)))


@pytest.mark.parametrize("before", range(70))
def test_every_place_in_a_window(codec, before):
    """A head is read 32 octets at once: what ends it, or counts, stands at each place of them, and at the end."""
    counted = b"a\ncontent-length:2\n\n"
    for head in (b"a\n\n", b"a\n\r\n", counted, counted.replace(b"\n", b"\r\n"), counted.replace(b"h", b"i")):
        data = b"S" * before + head + b"\0x\0"
        for stop in range(len(data) + 1):
            assert list(codec.frame_ends(data[:stop])) == light_ends(data[:stop])
            assert list(codec.frame_ends(data[:stop] + b" " * 40)) == light_ends(data[:stop] + b" " * 40)


@pytest.mark.parametrize("version", VERSIONS)
@given(wire=some.wires)
def test_up_to_what_is_malformed(codec, version, wire):
    events = list(Reference(version).read(wire))
    ends = [event[5] for event in events if event[0] == "frame"]
    got = list(codec.frame_ends(wire))
    assert got[: len(ends)] == ends
    assert (events and events[-1][0] == "error") or got == ends


GOOD = b"MESSAGE\ndestination:/queue/a\ncontent-length:3\n\na\0b\0"


@pytest.mark.parametrize(
    "bad",
    [
        *(b"NONSENSE\na:b\n\nbody\0", b"SEND\na\n\nbody\0", b"SEND\na:\\q\n\nbody\0", b"SEND\na:\xff\n\nbody\0"),
        *(b"SEND\ncontent-length:%b\n\nlonger\0" % length for length in (b"2", b"-1", b"9" * 26, b"104857601")),
        *(b"ACK\nid:1\n\nbody\0", b"SEND\na:b\0", b"\0", b"garbage\0", b"\r\r\rx\0"),
    ],
)
def test_going_on_behind_a_malformed_frame(codec, bad):
    """The way of readers: a row says what is wrong, then they go on where this frame ends."""
    data = memoryview(GOOD + b"\n" + bad + GOOD + b"\r\n" + bad + bad + GOOD)
    rows, at = [], 0
    while at < len(data):
        columns = codec.parse_columns(data[at:])
        rows += ["frame"] * (columns.rows - bool(columns.error)) + [columns.error] * bool(columns.error)
        at += columns.consumed
        if columns.error:
            at += codec.frame_ends(data[at:], most=1)[0]
    assert (rows.count("frame"), len(rows)) == (3, 6)


@pytest.mark.parametrize(
    ("every", "most", "ends"), [(7, None, [12, 24, 30]), (2**70, None, [30]), (1, 2**70, [6, 12, 18, 24, 30])]
)
def test_every_and_most(codec, every, most, ends):
    # Unfinished frames have no end.
    for part in (b"", b"SEND\na:b\n", b"SEND\ncontent-length:9\n\na\0b", b"\r", b"\n\n"):
        assert list(codec.frame_ends(b"ACK\n\n\0" * 5 + part, every=every, most=most)) == ends
        assert list(codec.frame_ends(part, every, most)) == []


HOSTILE = {
    **{"nuls": b"\0", "eols": b"\n", "crs": b"\r", "crlf": b"\r\n", "head without end": b"\nc"},
    **{"content-length without end": b"\ncontent-length:", "many zeros": b"0"},
    **{"counted, but no NUL there": b"a\ncontent-length:9\n\n", "tiny frames": b"a\n\n\0"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_octets_are_read_once(codec, name):
    piece, in_c = HOSTILE[name], codec.__name__.endswith("_c")
    size = 2**20 if in_c else 2**18
    data = b"SEND\ncontent-length:" + piece * (size // len(piece))
    for tail in (b"", b"\0"):
        wire = data + tail
        with tracing() if in_c else nullcontext():
            ends = codec.frame_ends(wire, 1 << 16)
            assert not in_c or peak() < 65_536
        assert len(ends) <= 17
        assert not tail or ends[-1] == len(data) + 1
