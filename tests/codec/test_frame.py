"""Making frames, comparing, showing and copying them; made ones and parsed ones. Reading them is in test_headers.py."""

import array
import collections
import copy
import gc
import sys
from types import MappingProxyType

import pytest
from codec.samples import PAIRS, WIRE
from hypothesis import given
from hypothesis import strategies as st

# ---- making frames ----


def test_what_a_frame_holds(codec):
    pairs = [*PAIRS, ("", "no name")]
    frame = codec.Frame("SEND", pairs, b"hello")
    assert (frame.command, frame.headers.pairs(), frame.body) == ("SEND", pairs, b"hello")
    assert codec.Frame("ACK").headers.pairs() == []
    assert codec.Frame("ACK").body == b""
    assert codec.Frame(command="ACK", headers={"id": "1"}, body=b"x") == codec.Frame("ACK", [("id", "1")], b"x")


@pytest.mark.parametrize(
    "headers",
    [
        {"a": "1", "b": "2"},
        MappingProxyType({"a": "1", "b": "2"}),
        collections.OrderedDict(a="1", b="2"),
        collections.ChainMap({"b": "2"}, {"a": "1"}),
        [("a", "1"), ("b", "2")],
        (["a", "1"], ["b", "2"]),
        {"a": "1", "b": "2"}.items(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_headers_of_many_kinds(codec, headers):
    assert codec.Frame("ACK", headers).headers.pairs() == [("a", "1"), ("b", "2")]


def test_headers_from_an_iterator_and_from_another_frame(codec):
    pairs = [("a", "1"), ("b", "2"), ("a", "3")]
    frame = codec.Frame("ACK", iter(pairs))
    assert frame.headers.pairs() == pairs
    assert codec.Frame("ACK", (pair for pair in pairs)).headers.pairs() == pairs
    assert codec.Frame("ACK", frame.headers.pairs()) == frame
    assert dict(codec.Frame("ACK", frame.headers).headers) == {"a": "1", "b": "2"}


def test_only_keys_makes_a_mapping(codec):
    class Keyed:
        def keys(self):
            return ["a", "b"]

        def __getitem__(self, name):
            return name * 2

    assert codec.Frame("ACK", Keyed()).headers.pairs() == [("a", "aa"), ("b", "bb")]


def test_every_way_to_pass_arguments(codec):
    wanted = ("SEND", [("a", "1")], b"x")
    for args, named in (
        (("SEND", {"a": "1"}, b"x"), {}),
        (("SEND", {"a": "1"}), {"body": b"x"}),
        (("SEND",), {"body": b"x", "headers": {"a": "1"}}),
        ((), {"body": b"x", "headers": [("a", "1")], "command": "SEND"}),
    ):
        frame = codec.Frame(*args, **named)
        assert (frame.command, frame.headers.pairs(), frame.body) == wanted
    for args, named in (
        ((), {}),
        ((), {"headers": {}}),
        (("SEND", {}, b"", None), {}),
        (("SEND",), {"command": "SEND"}),
        (("SEND", {}, b""), {"body": b""}),
        (("SEND",), {"header": {}}),
    ):
        with pytest.raises(TypeError):
            codec.Frame(*args, **named)


def test_a_later_change_of_the_dict_changes_nothing(codec):
    headers = {"a": "1"}
    frame = codec.Frame("SEND", headers)
    headers["a"] = "2"
    headers["b"] = "3"
    assert frame.headers.pairs() == [("a", "1")]


@pytest.mark.parametrize("kind", [list, type("List", (list,), {})])
def test_a_pair_that_empties_the_list_it_is_in(codec, kind):
    """A pair is any iterable, so it may run any code."""
    pairs = kind()

    class Emptying:
        def __iter__(self):
            pairs.clear()
            return iter(("a", "1"))

    pairs += [Emptying(), *((str(i) * 100, "x" * 100) for i in range(50))]
    assert len(codec.Frame("SEND", pairs).headers) == 51


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: array.array("B", data)])
def test_bodies_become_bytes(codec, kind):
    body = kind(b"ab")
    frame = codec.Frame("SEND", body=body)
    assert type(frame.body) is bytes
    assert frame.body == b"ab"
    if isinstance(body, bytearray):
        body[0] = 0
        assert frame.body == b"ab"
    if type(body) is bytes:
        assert frame.body is body


def test_subclasses_are_copied_to_plain_text(codec):
    class Text(str):
        def __eq__(self, other):
            return True

        __hash__ = str.__hash__

        def __str__(self):
            return "something else"

    class Bytes(bytes):
        pass

    frame = codec.Frame(Text("SEND"), [(Text("a"), Text("1"))], Bytes(b"x"))
    ((name, value),) = frame.headers.pairs()
    assert [type(part) for part in (frame.command, name, value, frame.body)] == [str, str, str, bytes]
    assert (frame.command, name, value, frame.body) == ("SEND", "a", "1", b"x")


SECRET = "s3cret"


@pytest.mark.parametrize(
    ("args", "culprit"),
    [
        ((None,), "command"),
        ((b"SEND",), "command"),
        ((SECRET.encode(),), "command"),
        (("SEND", {"passcode": SECRET.encode()}), "passcode"),
        (("SEND", [("a", "1"), ("passcode", [SECRET])]), "passcode"),
        (("SEND", [("a", None)]), "'a'"),
        (("SEND", [("receipt", 17)]), "receipt"),
        (("SEND", {"priority": 4}), "priority"),
        (("SEND", [("a", "1"), (SECRET.encode(), "2")]), "name"),
        (("SEND", [(1, SECRET)]), "name"),
        (("SEND", {}, SECRET), "body"),
        (("SEND", {}, "ü" + SECRET), "encode"),
    ],
)
def test_type_errors_name_the_culprit_never_its_value(codec, args, culprit):
    with pytest.raises(TypeError) as raised:
        codec.Frame(*args)
    assert culprit in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("body", [5, None, ["a"], object(), 2.5])
def test_bodies_that_are_no_octets(codec, body):
    with pytest.raises(TypeError):
        codec.Frame("SEND", {}, body)


@pytest.mark.parametrize(
    "headers", ["ab", ["ab"], [("a",)], [("a", "b", "c")], [1], 5, None, [None], [["a", 1]], b"ab", [b"ab"]]
)
def test_headers_that_are_no_pairs(codec, headers):
    with pytest.raises(TypeError):
        codec.Frame("SEND", headers)


def test_errors_of_others_come_through(codec):
    class Broken:
        def keys(self):
            raise LookupError("mine")

    def failing():
        yield ("a", "1")
        raise LookupError("mine")

    for headers in (Broken(), failing()):
        with pytest.raises(LookupError, match="mine"):
            codec.Frame("SEND", headers)


def test_wrong_arguments(codec):
    for args, named in (((), {}), (("SEND", {}, b"", 1), {}), (("SEND",), {"other": 1}), (("SEND",), {"command": "X"})):
        with pytest.raises(TypeError):
            codec.Frame(*args, **named)


# ---- equality, hash, copies, text ----


def test_equality(codec, frame):
    same = codec.Frame("SEND", PAIRS, b"hello")
    assert frame == same
    assert same == frame
    assert (frame != same) is False
    assert hash(frame) == hash(same)
    assert len({frame, same}) == 1
    for other in (
        codec.Frame("SENd", PAIRS, b"hello"),
        codec.Frame("SEND", PAIRS[:-1], b"hello"),
        codec.Frame("SEND", PAIRS[::-1], b"hello"),
        codec.Frame("SEND", PAIRS, b"hell0"),
        codec.Frame("SEND", [*PAIRS[:-1], ("id", "x")], b"hello"),
    ):
        assert frame != other
        assert other != frame
    for stranger in (None, 5, "SEND", ("SEND", PAIRS, b"hello"), object()):
        assert frame != stranger
        assert stranger != frame
    with pytest.raises(TypeError):
        frame < same  # noqa: B015 - the comparison itself raises


@pytest.mark.c_only
def test_frames_of_both_backends_are_equal(both):
    frames = [backend.Frame("SEND", PAIRS, b"hello") for backend in both]
    frames += [frame for backend in both for frame in backend.Parser("1.2").feed(WIRE)]
    others = [backend.Frame("SEND", PAIRS, b"other") for backend in both]
    for one in frames:
        assert len({hash(one), *map(hash, frames)}) == 1
        assert all(one == two and two == one and (one != two) is False for two in frames)
        assert all(one != two and two != one for two in others)
        assert all(one.headers == two.headers for two in frames)


def test_copies_are_the_frame_itself(frame):
    assert copy.copy(frame) is frame
    assert copy.deepcopy(frame) is frame
    assert copy.deepcopy([frame, frame])[1] is frame


def test_text(codec):
    frame = codec.Frame("SEND", {"content-type": "text/plain;charset=utf-8"}, "grüß".encode())
    assert frame.text() == "grüß"
    with pytest.raises(ValueError):  # noqa: PT011 - the message is that of Python
        codec.Frame("SEND", {"content-type": "text/plain;charset=ascii"}, b"\xff").text()


def test_a_streamed_frame(codec):
    (frame, *_) = codec.Parser("1.2", stream_over=0).feed(b"SEND\na:1\n\nx\0")
    assert frame.body is None
    assert frame.get("a") == "1"
    assert repr(frame) == "<Frame SEND a='1' body=streamed>"
    assert frame == frame
    assert frame != codec.Frame("SEND", {"a": "1"})
    hash(frame)
    for write in (codec.serialize, codec.serialize_parts, lambda it: codec.serialize_many([it])):
        with pytest.raises((TypeError, ValueError)):
            write(frame)


# ---- repr ----


def test_repr(frame):
    assert repr(frame) == (
        "<Frame SEND destination='/queue/a' id='1' destination='/queue/b' é='\\u6771:\\n' x-y='' id='' "
        "body=5 bytes b'hello'>"
    )
    assert repr(frame.headers) == (
        "<Headers destination='/queue/a' id='1' destination='/queue/b' é='\\u6771:\\n' x-y='' id=''>"
    )
    assert str(frame) == repr(frame)


@pytest.mark.parametrize(
    "name",
    ["passcode", "Passcode", "x-auth-token", "AUTHORIZATION", "db.password", "client_secret", "Cookie", "set-cookie"],
)
def test_repr_masks_secrets(codec, name):
    frame = codec.Frame("CONNECT", [("login", "ann"), (name, SECRET)])
    for text in (repr(frame), repr(frame.headers)):
        assert SECRET not in text
        assert "***" in text
        assert "ann" in text


def test_repr_cuts_what_is_long(codec):
    frame = codec.Frame("SEND", [(f"h{i}", "v" * 1000) for i in range(100)], b"b" * 100_000)
    assert len(repr(frame)) < 1500
    assert repr(frame).count("…") == 14
    assert "h11=" in repr(frame)
    assert "h12=" not in repr(frame)
    assert "body=100000 bytes" in repr(frame)
    assert repr(codec.Frame("ACK")) == "<Frame ACK>"
    long_names = codec.Frame("X" * 5000, [("n" * 5000, "v")])
    assert len(repr(long_names)) < 7000


@pytest.mark.parametrize("kind", ["made", "parsed", "escaped", "changed"])
def test_has_any(codec, kind):
    pairs = [("a:b", "1"), ("receipt", "r"), ("ünï", "x"), ("a:b", "2")]
    frame = codec.Frame("SEND", pairs)
    if kind != "made":
        pairs = pairs[1:2] if kind == "parsed" else pairs
        version = "1.2"
        octets = codec.serialize(codec.Frame("SEND", pairs), version)
        if kind == "changed":
            octets = octets.replace(b"receipt:r\n", b"receipt:r\r\n")
        (frame,) = codec.Parser(version).feed(octets)
    there = {name for name, _ in pairs}
    for name in ("a:b", "receipt", "ünï", "a", "a\\cb", "", "destination"):
        assert frame.has_any(name) is (name in there), name
        assert frame.has_any("x", *(str(n) for n in range(40)), name) is (name in there)
    assert frame.has_any() is False
    assert frame.has_any("nothing", "RECEIPT") is False
    assert frame.has_any(None, 5) is False


@pytest.mark.parametrize("text", ["a\ud800", "b\udcff", "\0", "a\nb", "\x1b[31m"])
def test_repr_is_plain_whatever_is_in_it(codec, text):
    shown = repr(codec.Frame(text, [(text, text)]))
    shown.encode()
    assert all(letter not in shown for letter in "\0\n\x1b")


@given(pairs=st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=8), body=st.binary(max_size=5))
def test_any_text_is_held_as_it_is(codec, pairs, body):
    frame = codec.Frame("SEND", pairs, body)
    assert frame.headers.pairs() == pairs
    assert dict(frame.headers) == dict(reversed(pairs))
    assert list(frame.headers) == list(dict(pairs))
    assert frame == codec.Frame("SEND", tuple(pairs), body)
    for name, _ in pairs:
        assert frame.get(name) == frame.headers[name]
        assert name in frame.headers


# ---- the object in memory ----


@pytest.mark.c_only
def test_c_frames_are_not_tracked_by_gc(both):
    c, _ = both
    for frame in (c.Frame("SEND", PAIRS, b"x"), *c.Parser("1.2").feed(WIRE * 2)):
        assert not gc.is_tracked(frame)
        frame.headers["id"]
        dict(frame.headers)
        assert not gc.is_tracked(frame)


@pytest.mark.c_only
def test_c_frames_are_small(both):
    """At most 380 octets beyond the body on the ticks of the corpus."""
    from codec.corpus import workload

    c, _ = both
    _, data = workload("ticks", 0.02)
    for frame in c.Parser("1.2").feed(data):
        assert sys.getsizeof(frame) + sys.getsizeof(frame.body) - len(frame.body) <= 380
