"""Frames and their headers, made ones and parsed ones: a mapping in which the first entry counts, and all in order."""

import array
import collections
import copy
import gc
import json
import pickle
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType

import pytest
from installed import load

from stompcodec.spec import Limits

PAIRS = [("destination", "/queue/a"), ("id", "1"), ("destination", "/queue/b"), ("é", "東:\n"), ("x-y", ""), ("id", "")]
WIRE = "SEND\ndestination:/queue/a\nid:1\ndestination:/queue/b\né:東\\c\\n\nx-y:\nid:\n\nhello\0".encode()
FIRST = {"destination": "/queue/a", "id": "1", "é": "東:\n", "x-y": ""}


@pytest.fixture(params=["made", "parsed"])
def frame(codec, request):
    if request.param == "made":
        return codec.Frame("SEND", PAIRS, b"hello")
    (parsed,) = codec.Parser("1.2").feed(WIRE)
    return parsed


@pytest.mark.req("S12-HDR-02", "S11-HDR-02", "S12-HDR-03", "S11-HDR-04")
def test_headers_are_a_mapping_in_which_the_first_entry_counts(codec, frame):
    headers = frame.headers
    assert isinstance(headers, Mapping)
    assert type(headers) is codec.Headers
    assert dict(headers) == {**headers} == FIRST
    assert list(headers) == list(headers.keys()) == list(FIRST)
    assert (headers.keys() & {"id", "other"}, list(headers.values())) == ({"id"}, list(FIRST.values()))
    assert (list(headers.items()), len(headers)) == (list(FIRST.items()), 4)
    assert list(reversed(headers.keys())) == list(reversed(FIRST))
    assert collections.ChainMap(headers)["id"] == "1"
    assert headers == FIRST == headers == frame.headers
    for other in ({**FIRST, "id": "2"}, {}, 5, PAIRS):
        assert (headers == other) is False
    assert (headers.getall("destination"), headers.getall("id")) == (["/queue/a", "/queue/b"], ["1", ""])
    assert headers.getall("nothing") == []
    headers.pairs().clear()
    headers.getall("id").clear()
    assert headers.pairs() == PAIRS


def test_names_are_found_by_their_text(frame):
    for name in ("é", "x-y", "id"):
        for key in (name, "".join(list(name)), type("Text", (str,), {})(name)):
            assert frame.get(key) == frame.headers[key] == frame.headers.get(key) == FIRST[name]
            assert key in frame.headers
            assert frame.headers.getall(key)[0] == FIRST[name]
    for key in ("nothing", 1, None, b"id", ("id", "1")):
        assert key not in frame.headers
        assert frame.headers.get(key) is None
        assert frame.headers.get(key, "x") == "x"
        if type(key) is str:
            assert (frame.get(key), frame.get(key, "x")) == (None, "x")
        else:
            for call in (frame.get, frame.headers.getall):
                with pytest.raises(TypeError, match=f"name must be str, not {type(key).__name__}"):
                    call(key)
        with pytest.raises(KeyError):
            frame.headers[key]


OPERATIONS = {
    **{"json": json.dumps, "or": lambda headers: headers | {"x": "y"}},
    **{"or after": lambda headers: {"x": "y"} | headers, "reversed": lambda headers: list(reversed(headers))},
    **{"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda headers: pickle.loads(pickle.dumps(headers))},
    "dict with more": lambda headers: dict(headers, x="y"),
    **{"is a dict": lambda headers: isinstance(headers, dict), "unhashable": lambda headers: [] in headers},
    **{"get unhashable": lambda headers: headers.get([]), "pop": lambda headers: headers.pop("id")},
    **{"update": lambda headers: headers.update(x="y"), "init": lambda headers: headers.__init__({"x": "y"})},
    **{"hash": hash, "less": lambda headers: headers < {}},
}


@pytest.mark.c_only
@pytest.mark.parametrize("name", OPERATIONS)
def test_headers_of_both_backends_behave_alike(both, name):
    def outcome(codec):
        headers = codec.Frame("SEND", PAIRS).headers
        try:
            result = OPERATIONS[name](headers)
            return type(result).__name__, result
        except (TypeError, AttributeError) as error:
            return type(error)
        finally:
            assert headers.pairs() == PAIRS

    assert outcome(both[0]) == outcome(both[1])


def test_nothing_can_be_changed(codec, frame):
    headers = frame.headers
    for name in ("command", "headers", "body", "anything"):
        for thing in (frame, headers):
            with pytest.raises(AttributeError):
                setattr(thing, name, b"")
        with pytest.raises(AttributeError):
            delattr(frame, name)
    for kind in (codec.Frame, codec.Headers):
        with pytest.raises(TypeError):
            type("Sub", (kind,), {})
    with pytest.raises(TypeError):
        codec.Headers()
    before = hash(frame)
    with suppress(TypeError):
        frame.__init__("ACK", [], b"")
    assert (frame.command, frame.headers.pairs(), frame.body) == ("SEND", PAIRS, b"hello")
    assert hash(frame) == before
    assert copy.copy(frame) is copy.deepcopy([frame, frame])[1] is frame


@pytest.mark.parametrize("eol", [b"\n", b"\r\n"])
@pytest.mark.parametrize("escape", [b"", b"\\c"])
def test_large_heads(codec, eol, escape):
    """Past 64 KiB, where offsets no longer fit in 16 bits; with and without escapes."""
    names = [b"h%d%b" % (i, escape) for i in range(1000)]
    lines = [name + b":" + b"v" * (i % 200) + escape for i, name in enumerate(names)]
    data = eol.join([b"SEND", *lines, b"", b""]) + b"body\0"
    assert len(data) > 65536
    pairs = [tuple(line.decode().replace("\\c", ";").split(":")) for line in lines]
    pairs = [(name.replace(";", ":"), value.replace(";", ":")) for name, value in pairs]
    for size in (len(data), 1000):
        parser = codec.Parser("1.2")
        (frame,) = (each for i in range(0, len(data), size) for each in parser.feed(data[i : i + size]))
        assert (frame.headers.pairs(), frame.headers[pairs[-1][0]]) == (pairs, pairs[-1][1])
        assert (frame.get(pairs[500][0]), len(dict(frame.headers))) == (pairs[500][1], 1000)
        assert codec.serialize(frame, content_length="never") == data.replace(b"\r\n", b"\n")


def test_repeated_and_similar_names(codec):
    """The first of many, where names share what a table of names may look at."""
    names = ["a" * n for n in range(1, 60)] + ["b" + "a" * n for n in range(60)] + ["a" * n + "b" for n in range(60)]
    lines = "".join(f"{name}:{i}\n" for i, name in enumerate(names * 2))
    (frame,) = codec.Parser("1.2").feed(f"SEND\n{lines}\n\0".encode())
    for i, name in enumerate(names):
        assert frame.get(name) == frame.headers[name] == str(names.index(name)), i
    assert dict(frame.headers) == {name: str(names.index(name)) for name in names}


@pytest.mark.parametrize("length", [*range(1, 34), 47, 48, 49, 50, 64])
def test_texts_that_are_nearly_alike(codec, length):
    """Names and values that come again are kept and compared: no octet of them may be passed over."""
    for at in range(length):
        texts = ["n" * length, "n" * at + "m" + "n" * (length - at - 1)]
        for text in (*texts, *texts):
            (frame,) = codec.Parser("1.2").feed(f"SEND\n{text}:1\ndestination:{text}\n\n\0".encode())
            assert dict(frame.headers) == {text: "1", "destination": text}
            assert (frame.get("destination"), frame.get(text)) == (text, "1")


@pytest.mark.c_only
@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="values are not kept there")
def test_common_names_keep_their_place(both):
    codec, _ = both
    lines = "".join(f"x-{number}:1\n" for number in range(20_000))
    (frame,) = codec.Parser("1.2", lenient=True, limits=Limits(max_headers=20_000)).feed(f"SEND\n{lines}\n\0".encode())
    assert len(dict(frame.headers)) == 20_000
    for name in ("destination", "subscription", "content-type", "content-length", "message-id", "ack", "receipt-id"):
        one, other = codec.Parser("1.2").feed(f"MESSAGE\n{name}:12\n\n123456789012\0".encode() * 2)
        assert next(iter(one.headers)) is next(iter(other.headers))
        repeats = name in ("destination", "subscription", "content-type")
        assert (one.headers[name] is other.headers[name]) is repeats, name


@pytest.mark.parametrize("kind", ["made", "parsed", "escaped", "changed"])
def test_has_any(codec, kind):
    pairs = [("a:b", "1"), ("receipt", "r"), ("ünï", "x"), ("a:b", "2")]
    frame = codec.Frame("SEND", pairs)
    if kind != "made":
        pairs = pairs[1:2] if kind == "parsed" else pairs
        octets = codec.serialize(codec.Frame("SEND", pairs))
        (frame,) = codec.Parser("1.2").feed(octets.replace(b":r\n", b":r\r\n") if kind == "changed" else octets)
    there = {name for name, _ in pairs}
    for name in ("a:b", "receipt", "ünï", "a", "a\\cb", "", "destination"):
        assert frame.has_any(name) is (name in there), name
        assert frame.has_any("x", *(str(n) for n in range(40)), name) is (name in there)
    assert frame.has_any() is frame.has_any("nothing", "RECEIPT") is False
    with pytest.raises(TypeError, match="name must be str, not int"):
        frame.has_any("nothing", 5)


@pytest.mark.parametrize(
    "headers",
    [
        *({"a": "1", "b": "2"}, MappingProxyType({"a": "1", "b": "2"})),
        collections.ChainMap({"b": "2"}, {"a": "1"}),
        type("Keyed", (), {"keys": lambda _: ["a", "b"], "__getitem__": lambda _, key: {"a": "1", "b": "2"}[key]})(),
        *([("a", "1"), ("b", "2")], (["a", "1"], ["b", "2"]), {"a": "1", "b": "2"}.items()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_headers_of_many_kinds(codec, headers):
    frame = codec.Frame("ACK", headers)
    assert frame.headers.pairs() == [("a", "1"), ("b", "2")]
    assert codec.Frame("ACK", frame.headers) == codec.Frame("ACK", iter(frame.headers.pairs())) == frame


def test_every_way_to_pass_arguments(codec):
    for frame in (
        *(codec.Frame("SEND", {"a": "1"}, b"x"), codec.Frame("SEND", {"a": "1"}, body=b"x")),
        codec.Frame("SEND", body=b"x", headers={"a": "1"}),
        codec.Frame(body=b"x", headers=[("a", "1")], command="SEND"),
    ):
        assert (frame.command, frame.headers.pairs(), frame.body) == ("SEND", [("a", "1")], b"x")
    for args in ([], ["SEND", {}, b"", None]):
        with pytest.raises(TypeError):
            codec.Frame(*args)
    for named in ({"command": "SEND"}, {"body": b""}, {"header": {}}):
        with pytest.raises(TypeError):
            codec.Frame("SEND", {}, b"", **named)
    for named in ({"headers": {}}, {"header": {}, "command": "SEND"}):
        with pytest.raises(TypeError):
            codec.Frame(**named)


@pytest.mark.parametrize("kind", [list, type("List", (list,), {})])
def test_a_pair_that_empties_the_list_it_is_in(codec, kind):
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
    if isinstance(body, bytearray):
        body[0] = 0
    assert (type(frame.body), frame.body) == (bytes, b"ab")
    assert type(body) is not bytes or frame.body is body


def test_subclasses_are_copied_to_plain_text(codec):
    class Text(str):
        def __eq__(self, other):
            return True

        __hash__ = str.__hash__

        def __str__(self):
            return "something else"

    frame = codec.Frame(Text("SEND"), [(Text("a"), Text("1"))], type("Bytes", (bytes,), {})(b"x"))
    ((name, value),) = frame.headers.pairs()
    assert [type(part) for part in (frame.command, name, value, frame.body)] == [str, str, str, bytes]
    assert (frame.command, name, value, frame.body) == ("SEND", "a", "1", b"x")


SECRET = "s3cret"


@pytest.mark.parametrize(
    ("args", "culprit"),
    [
        *(((SECRET.encode(),), "command"), (("SEND", {"passcode": SECRET.encode()}), "passcode")),
        *((("SEND", [("a", "1"), ("passcode", [SECRET])]), "passcode"), (("SEND", [("receipt", 17)]), "receipt")),
        *((("SEND", [("a", "1"), (SECRET.encode(), "2")]), "name"), (("SEND", [(1, SECRET)]), "name")),
        *((("SEND", {}, SECRET), "body"), (("SEND", {}, "ü" + SECRET), "encode")),
    ],
)
def test_type_errors_name_the_culprit_never_its_value(codec, args, culprit):
    with pytest.raises(TypeError) as raised:
        codec.Frame(*args)
    assert culprit in str(raised.value)
    assert SECRET not in str(raised.value)


# ---- equality, copies, repr ----
@pytest.mark.c_only
def test_equality(both):
    frames = [codec.Frame("SEND", PAIRS, b"hello") for codec in both]
    frames += [frame for codec in both for frame in codec.Parser("1.2").feed(WIRE)]
    others = [None, 5, "SEND", ("SEND", PAIRS, b"hello")]
    for codec in both:
        others += [codec.Frame("SENd", PAIRS, b"hello"), codec.Frame("SEND", PAIRS, b"hell0")]
        for pairs in (PAIRS[:-1], PAIRS[::-1], [*PAIRS[:-1], ("id", "x")]):
            others.append(codec.Frame("SEND", pairs, b"hello"))
    assert len({*frames}) == 1
    for one in frames:
        assert all(one == two and two == one and (one != two) is False for two in frames)
        assert all(one != two and two != one for two in others)
        assert all(one.headers == two.headers for two in frames)


def test_a_streamed_frame(codec):
    (frame, *_) = codec.Parser("1.2", stream_over=0).feed(b"SEND\na:1\n\nx\0")
    assert (frame.body, frame.get("a"), repr(frame)) == (None, "1", "<Frame SEND a='1' body=streamed>")
    assert frame == frame
    assert frame != codec.Frame("SEND", {"a": "1"})
    hash(frame)
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(frame))  # its body was handed out elsewhere


def test_repr(frame):
    headers = "destination='/queue/a' id='1' destination='/queue/b' é='\\u6771:\\n' x-y='' id=''"
    assert repr(frame) == str(frame) == f"<Frame SEND {headers} body=5 bytes b'hello'>"
    assert repr(frame.headers) == f"<Headers {headers}>"


@pytest.mark.parametrize(
    "name",
    ["passcode", "Passcode", "x-auth-token", "AUTHORIZATION", "db.password", "client_secret", "Cookie", "set-cookie"],
)
def test_repr_masks_secrets(codec, name):
    frame = codec.Frame("CONNECT", [("login", "ann"), (name, SECRET)])
    for text in (repr(frame), repr(frame.headers)):
        assert [word in text for word in (SECRET, "***", "ann")] == [False, True, True]


def test_repr_cuts_what_is_long(codec):
    shown = repr(codec.Frame("SEND", [(f"h{i}", "v" * 1000) for i in range(100)], b"b" * 100_000))
    assert len(shown) < 1500
    assert ("h11=" in shown, "h12=" in shown, shown.count("…"), "body=100000 bytes" in shown) == (True, False, 14, True)
    assert repr(codec.Frame("ACK")) == "<Frame ACK>"
    assert len(repr(codec.Frame("X" * 5000, [("n" * 5000, "v")]))) < 7000


@pytest.mark.parametrize("text", ["a\ud800", "b\udcff", "\0", "a\nb", "\x1b[31m"])
def test_repr_is_plain_whatever_is_in_it(codec, text):
    shown = repr(codec.Frame(text, [(text, text)]))
    shown.encode()
    assert all(letter not in shown for letter in "\0\n\x1b")


@pytest.mark.c_only
def test_c_frames_are_small_and_not_tracked_by_gc(both):
    """At most 380 octets beyond the body on the ticks of the corpus."""
    c, _ = both
    data = load("benchmarks/corpus.py").stream("ticks", 0.02).data()
    for frame in (c.Frame("SEND", PAIRS, b"x"), *c.Parser("1.2").feed(data)):
        dict(frame.headers)
        assert not gc.is_tracked(frame)
        assert sys.getsizeof(frame) + sys.getsizeof(frame.body) - len(frame.body) <= 380
