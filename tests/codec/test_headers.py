"""Reading frames and their headers: a mapping in which the first entry counts, and all entries in order."""

import collections
import copy
import gc
import json
import pickle
import sysconfig
from collections.abc import Mapping
from contextlib import suppress

import pytest
from codec.lockstep import answers_of
from codec.samples import PAIRS, WIRE

from stompcodec.spec import Limits


@pytest.mark.req("S12-HDR-02", "S11-HDR-02", "S12-HDR-03", "S11-HDR-04")
def test_the_first_entry_counts(frame):
    headers = frame.headers
    assert headers["destination"] == headers.get("destination") == frame.get("destination") == "/queue/a"
    assert headers["id"] == "1"
    assert headers.getall("destination") == ["/queue/a", "/queue/b"]
    assert headers.getall("id") == ["1", ""]
    assert headers.getall("nothing") == []


def test_a_name_that_is_not_there(frame):
    assert frame.get("nothing") is None
    assert frame.get("nothing", "x") == "x"
    assert frame.headers.get("nothing") is None
    assert frame.headers.get("nothing", 5) == 5
    assert "nothing" not in frame.headers
    with pytest.raises(KeyError, match="nothing"):
        frame.headers["nothing"]


@pytest.mark.parametrize("name", ["é", "x-y", "id"])
def test_names_are_found_by_their_text(frame, name):
    """However the str object came to be."""
    wanted = dict(reversed(PAIRS))[name]
    fresh = "".join(list(name))
    subclass = type("Text", (str,), {})(name)
    for key in (name, fresh, subclass):
        assert frame.get(key) == frame.headers[key] == wanted
        assert key in frame.headers
        assert frame.headers.getall(key)[0] == wanted


@pytest.mark.parametrize("key", [1, None, b"id", ("id", "1")])
def test_keys_of_other_types_are_not_there(frame, key):
    assert key not in frame.headers
    assert frame.get(key) is None
    assert frame.headers.get(key) is None
    with pytest.raises(KeyError):
        frame.headers[key]


def test_headers_are_a_mapping(frame):
    headers = frame.headers
    first = {"destination": "/queue/a", "id": "1", "é": "東:\n", "x-y": ""}
    assert isinstance(headers, Mapping)
    assert dict(headers) == first
    assert {**headers} == first
    assert list(headers) == list(headers.keys()) == list(first)
    assert headers.keys() & {"id", "other"} == {"id"}
    assert list(headers.values()) == list(first.values())
    assert list(headers.items()) == list(first.items())
    assert len(headers) == 4
    assert list(reversed(headers.keys())) == list(reversed(first))
    assert collections.ChainMap(headers)["id"] == "1"
    assert headers == first
    assert first == headers
    assert headers == frame.headers
    assert headers != {**first, "id": "2"}
    assert headers != {}
    assert headers != 5
    assert (headers == PAIRS) is False


OPERATIONS = {
    "json": json.dumps,
    "or": lambda headers: headers | {"x": "y"},
    "or after": lambda headers: {"x": "y"} | headers,
    "reversed": lambda headers: list(reversed(headers)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda headers: pickle.loads(pickle.dumps(headers)),
    "dict with more": lambda headers: dict(headers, x="y"),
    "is a dict": lambda headers: isinstance(headers, dict),
    "unhashable": lambda headers: [] in headers,
    "get unhashable": lambda headers: headers.get([]),
    "pop": lambda headers: headers.pop("id"),
    "update": lambda headers: headers.update(x="y"),
    "init": lambda headers: headers.__init__({"x": "y"}),
    "hash": hash,
    "less": lambda headers: headers < {},
}


@pytest.mark.c_only
@pytest.mark.parametrize("name", OPERATIONS)
def test_headers_of_both_backends_behave_alike(both, name):
    results = []
    for codec in both:
        headers = codec.Frame("SEND", PAIRS).headers
        try:
            result = OPERATIONS[name](headers)
            results.append((type(result).__name__, result))
        except (TypeError, AttributeError) as error:
            results.append(type(error))
        assert headers.pairs() == PAIRS
    assert results[0] == results[1]


def test_empty_headers(codec):
    for frame in (codec.Frame("ACK"), *codec.Parser("1.2").feed(b"ACK\n\n\0")):
        headers = frame.headers
        assert (len(headers), bool(headers), list(headers), dict(headers), headers.pairs()) == (0, False, [], {}, [])
        assert headers == {}
        assert "a" not in headers
        assert frame.get("a") is None


def test_what_is_handed_out_is_a_copy(frame):
    frame.headers.pairs().clear()
    frame.headers.getall("id").clear()
    assert frame.headers.pairs() == PAIRS
    assert len(frame.headers) == 4


def test_headers_live_longer_than_their_frame(codec):
    (frame,) = codec.Parser("1.2").feed(WIRE)
    headers = frame.headers
    names = iter(headers)
    del frame
    gc.collect()
    assert headers.pairs() == PAIRS
    assert list(names) == ["destination", "id", "é", "x-y"]


def test_headers_are_made_by_frames_only(codec, frame):
    with pytest.raises(TypeError):
        codec.Headers()
    with pytest.raises(TypeError):
        type("Sub", (codec.Headers,), {})
    assert type(frame.headers) is codec.Headers


def test_nothing_can_be_changed(codec, frame):
    headers = frame.headers
    for name in ("command", "headers", "body", "anything"):
        with pytest.raises(AttributeError):
            setattr(frame, name, b"")
        with pytest.raises(AttributeError):
            setattr(headers, name, b"")
        with pytest.raises(AttributeError):
            delattr(frame, name)
    with pytest.raises(TypeError):
        headers["id"] = "2"
    with pytest.raises(TypeError):
        del headers["id"]
    before = hash(frame)
    with suppress(TypeError):
        frame.__init__("ACK", [], b"")
    assert (frame.command, frame.headers.pairs(), frame.body) == ("SEND", PAIRS, b"hello")
    assert hash(frame) == before


def test_frames_are_final(codec, frame):
    with pytest.raises(TypeError):
        type("Sub", (codec.Frame,), {})
    assert not hasattr(frame, "__dict__")
    assert not hasattr(frame, "__getitem__")
    assert not hasattr(frame.headers, "__dict__")


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
        (frame,) = (
            frame
            for at in [codec.Parser("1.2")]
            for i in range(0, len(data), size)
            for frame in at.feed(data[i : i + size])
        )
        assert frame.headers.pairs() == pairs
        assert frame.headers[pairs[-1][0]] == pairs[-1][1]
        assert frame.get(pairs[500][0]) == pairs[500][1]
        assert len(dict(frame.headers)) == 1000
        assert codec.serialize(frame, content_length="never") == data.replace(b"\r\n", b"\n")


@pytest.mark.parametrize("size", [65530, 65534, 65536 - 2])
def test_one_long_header(codec, size):
    value = "é" + "v" * (size - 4)
    (answer,) = answers_of(codec, f"SEND\nn:{value}\nlast:1\n\n\0".encode())
    assert answer[2] == [("n", value), ("last", "1")]


@pytest.mark.req("S12-ESC-01", "S12-ESC-02", "S12-ESC-03", "S12-ESC-04", "S12-ESC-08")
def test_escapes_in_names_and_values(codec):
    data = b"SEND\na\\cb\\\\:\\r\\n\\c\\\\n\n\\\\\\\\c:\\\\c\n\n\0"
    (frame,) = codec.Parser("1.2").feed(data)
    assert frame.headers.pairs() == [("a:b\\", "\r\n:\\n"), ("\\\\c", "\\c")]
    assert frame.get("a:b\\") == "\r\n:\\n"
    assert frame.get("a\\cb\\\\") is None
    assert frame.headers["\\\\c"] == "\\c"
    assert codec.serialize(frame) == data


def test_repeated_and_similar_names(codec):
    """The first of many, where names share what a table of names may look at."""
    names = ["a" * n for n in range(1, 60)] + ["b" + "a" * n for n in range(60)] + ["a" * n + "b" for n in range(60)]
    lines = "".join(f"{name}:{i}\n" for i, name in enumerate(names * 2))
    (frame,) = codec.Parser("1.2").feed(f"SEND\n{lines}\n\0".encode())
    for i, name in enumerate(names):
        first = str(names.index(name))
        assert frame.get(name) == frame.headers[name] == first, i
    assert dict(frame.headers) == {name: str(names.index(name)) for name in names}


@pytest.mark.parametrize("length", [*range(1, 34), 47, 48, 49, 50, 64])
def test_texts_that_are_nearly_alike(codec, length):
    """Names and values that come again are kept and compared: no octet of them may be passed over."""
    for at in range(length):
        texts = ["n" * length, "n" * at + "m" + "n" * (length - at - 1)]
        for text in (*texts, *texts):
            (frame,) = codec.Parser("1.2").feed(f"SEND\n{text}:1\ndestination:{text}\n\n\0".encode())
            assert dict(frame.headers) == {text: "1", "destination": text}
            assert frame.get("destination") == text
            assert frame.get(text) == "1"


@pytest.mark.parametrize(
    "form", ["{:03d}", "{:08d}", "prefix-{:08d}", "{:08d}-suffix", "a-longer-prefix-{:08d}-suffix"]
)
def test_more_texts_than_are_kept(codec, form):
    for number in range(1000):
        text = form.format(number)
        (frame,) = codec.Parser("1.2").feed(f"SEND\n{text}:1\ndestination:{text}\n\n\0".encode())
        assert dict(frame.headers) == {text: "1", "destination": text}


@pytest.mark.c_only
@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="values are not kept there")
def test_common_names_keep_their_place(both):
    """Whatever names a peer has sent: what repeats on other connections is still made into text once."""
    codec, _ = both
    lines = "".join(f"x-{number}:1\n" for number in range(20_000))
    (frame,) = codec.Parser("1.2", lenient=True, limits=Limits(max_headers=20_000)).feed(f"SEND\n{lines}\n\0".encode())
    assert len(dict(frame.headers)) == 20_000
    for name in ("destination", "subscription", "content-type", "content-length", "message-id", "ack", "receipt-id"):
        one, other = codec.Parser("1.2").feed(f"MESSAGE\n{name}:12\n\n123456789012\0".encode() * 2)
        assert next(iter(one.headers)) is next(iter(other.headers))
        repeats = name in ("destination", "subscription", "content-type")
        assert (one.headers[name] is other.headers[name]) is repeats, name


def test_texts_that_are_wide_or_narrow(codec):
    """In one frame there may be both; each str is what Python would have made of the octets."""
    for value in (
        "",
        "a",
        "é",
        "\x7f",
        "\x80",
        "plain text of some length",
        "東京",
        "some more text, then é",
        "a\\cé",
        "é\\n",
    ):
        head = f"destination:{value}\nplain:only ascii\né:x\nb\\cc:\\\\\n"
        (frame,) = codec.Parser("1.2").feed(f"SEND\n{head}\n\0".encode())
        meant = value.replace("\\c", ":").replace("\\n", "\n")
        wanted = [("destination", meant), ("plain", "only ascii"), ("é", "x"), ("b:c", "\\")]
        assert frame.headers.pairs() == wanted
        assert [frame.get(name) for name, _ in wanted] == [text for _, text in wanted]
        assert all(hash(text) == hash(again) for (_, text), (_, again) in zip(frame.headers.pairs(), wanted))
