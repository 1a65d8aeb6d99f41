"""The public surface of the codec: both backends have the same docstrings and signatures, and every example runs."""

import doctest
import inspect
import operator
import re

import pytest

import stompcodec
from stompcodec import columns
from stompcodec.errors import FrameError
from stompcodec.spec import Limits

CLASSES = ["Columns", "Frame", "Headers", "Parser"]
FUNCTIONS = [
    *("frame_ends", "parse_columns", "serialize", "serialize_many", "serialize_parts", "serialize_tail"),
    *("read_websocket", "write_websocket"),
]
#: Methods that Columns has for other libraries; all others with an underscore are not public.
EXPORTS = {"__arrow_c_array__", "__arrow_c_schema__"}


def member(module, name):
    first, _, rest = name.partition(".")
    found = getattr(module, first, None) or getattr(columns, first)
    return inspect.getattr_static(found, rest) if rest else found


def _names():
    yield from [*CLASSES, *FUNCTIONS]
    for name in CLASSES:
        kind = member(stompcodec.codec.backend("python"), name)
        own = set(dir(kind)) - (set(dir(dict)) if name == "Headers" else set())
        yield from (f"{name}.{each}" for each in sorted(own) if not each.startswith("_") or each in EXPORTS)


NAMES = list(_names())


def parameters(function):
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in found if each.name != "self"]


@pytest.mark.c_only
@pytest.mark.parametrize("name", NAMES)
def test_backends_have_the_same_docstrings_and_signatures(both, name):
    c, py = (member(module, name) for module in both)
    assert inspect.getdoc(c) == inspect.getdoc(py)
    if callable(py):
        assert parameters(c) == parameters(py)


def test_every_example_runs(codec):
    names = {name: member(codec, name) for name in [*CLASSES, *FUNCTIONS, "HEARTBEAT", "END_OF_BODY"]}
    run = 0
    for name in NAMES:
        runner = doctest.DocTestRunner()
        example = doctest.DocTestParser().get_doctest(inspect.getdoc(member(codec, name)), names, name, None, 0)
        assert runner.run(example).failed == 0, name
        run += bool(example.examples)
    assert run >= len(CLASSES) + len(FUNCTIONS)


#: Wrong calls by the error that each of them raises.
WRONG = {
    TypeError: r"""
        Frame(b"SEND"); Frame("SEND", {}, "text"); Frame("SEND", None); Frame("SEND", "ab"); Frame("SEND", ["ab"]);
        Frame("SEND", [("a",)]); Frame("SEND", [("a", "b", "c")]); Frame("SEND", [(1, "a")]);
        Frame("SEND", {"passcode": 1}); Frame("SEND", {"a": "b"}).headers.clear();
        setitem(Frame("SEND", {"a": "b"}).headers, "a", "c"); delitem(Frame("SEND", {"a": "b"}).headers, "a");
        Parser().feed("text"); Parser("1.2", None); Parser(nothing=1); Parser(limits=(1, 2, 3, 4));
        Parser(commands="PING"); Parser(commands=[1]); parse_columns(b"", columns="body");
        parse_columns(b"", where=None); parse_columns(b"", where="destination"); parse_columns(b"", where=["x"]);
        parse_columns(b"", where=[("a", "in", "b")]); parse_columns(b"", where=[("a", "in", [None])]);
        parse_columns(b"", where=[(b"a", "in", ["b"])]); parse_columns(b"", where=[("a", "in", None)]);
        parse_columns(b"", names=[b"a"]); parse_columns(b"", commands="PING"); parse_columns("text");
        frame_ends("text"); frame_ends(b"", 1.5); frame_ends(b"", 1, "1"); serialize(Frame("SEND"), commands="PING");
        serialize(None); serialize(STREAMED); serialize_parts("SEND"); serialize_parts(STREAMED); serialize_many([5]);
        serialize_many([STREAMED]); serialize_tail(HEARTBEAT); serialize_tail(STREAMED);
        serialize_tail(Frame("SEND"), without="receipt"); Frame("SEND") < Frame("SEND")
    """,
    ValueError: r"""
        Parser("2.0"); Parser(1.2); Parser(stream_over=-1); Parser(stream_over="5"); Parser(stream_over=True);
        Parser(commands=[""]); Parser(commands=["PI\nNG"]); Parser(commands=["PI\0NG"]); Parser(commands=["\ud800"]);
        parse_columns(b"", b"1.2"); parse_columns(b"", columns=["destination"]); parse_columns(b"", columns=[1]);
        parse_columns(b"", where=[("a", "is", ["b"])]); parse_columns(b"", where=[("a", "in", ["\ud800"])]);
        parse_columns(b"", names=["\ud800"]); frame_ends(b"", 0); frame_ends(b"", 1, -1);
        frame_ends(b"", limits=Limits(max_body=-1)); serialize(Frame("SEND"), "1.3");
        serialize(Frame("SEND"), content_length="Auto"); serialize(Frame("SEND"), content_length=None);
        serialize_parts(Frame("SEND"), "1.3"); serialize_parts(Frame("SEND"), content_length=b"auto");
        serialize_many([Frame("SEND")], "1.3"); serialize_many([Frame("SEND")], content_length="");
        serialize_tail(Frame("SEND"), "legacy"); serialize_tail(Frame("SEND"), None)
    """,
    RuntimeError: "Parser().buffer_updated(1)",
    BufferError: r"""
        frame_ends(memoryview(b"abcd")[::2]); parse_columns(memoryview(b"abcd")[::2]);
        Parser().feed(memoryview(b"abcd")[::2])
    """,
    FrameError: r"""
        serialize(Frame("SEND", {"a\0": ""})); serialize(Frame("SEND", {"content-length": "2"}, b"x"));
        serialize(Frame("ACK", {}, b"x")); serialize(Frame("PING"))
    """,
}
CALLS = [(error, call) for error, calls in WRONG.items() for call in re.split(r";?\s*\n\s*|; ", calls.strip())]
CALLS = [pytest.param(error, call, id=call) for error, call in CALLS]
#: Calls whose text is Python's own.
PYTHONS = (
    *('Parser("1.2", N', "Parser(nothing", 'Frame("SEND") <', "Parser().feed(mem"),
    *("parse_columns(None", 'parse_columns("t', 'frame_ends("t', "frame_ends(mem", "parse_columns(mem"),
)


def call_it(codec, call):
    names = {**vars(codec), "Limits": Limits, "setitem": operator.setitem, "delitem": operator.delitem}
    names["STREAMED"] = next(codec.Parser(stream_over=0).feed(b"SEND\n\nx"))
    eval(call, names)


def told(codec, error, call):
    with pytest.raises(error) as raised:
        call_it(codec, call)
    return type(raised.value), str(raised.value)


@pytest.mark.parametrize(("error", "call"), CALLS)
def test_wrong_calls(codec, error, call):
    told(codec, error, call)


@pytest.mark.c_only
@pytest.mark.parametrize(("error", "call"), [each for each in CALLS if not each.id.startswith(PYTHONS)])
def test_backends_have_the_same_error_texts(both, error, call):
    assert told(both[0], error, call) == told(both[1], error, call)


@pytest.mark.parametrize(
    ("version", "command", "name", "value", "why"),
    [
        ("1.2", "SEND", "", "", "header '' has an empty name"),
        ("1.2", "SEND", "a", "\0", "header 'a' contains a NUL"),
        ("1.2", "SEND", "a", "\ud800", "header 'a' cannot be written as UTF-8"),
        ("1.0", "SEND", "a:b", "", "header 'a:b' has a colon in its name"),
        ("1.0", "SEND", "a:b", "\ud800", "header 'a:b' cannot be written as UTF-8"),
        ("1.0", "SEND", "a", "b\n", "header 'a' contains a line feed"),
        ("1.2", "CONNECT", "a", "b\rc", "header 'a' contains a carriage return"),
        ("legacy", "SEND", "a", "b ", "header 'a' has a space at an end of its value"),
        ("legacy", "SEND", "a", "b\x01", "header 'a' contains a control character"),
    ],
)
def test_why_a_header_cannot_be_written(codec, version, command, name, value, why):
    with pytest.raises(FrameError) as raised:
        codec.serialize(codec.Frame(command, [(name, value)]), version)
    assert raised.value.detail == why
