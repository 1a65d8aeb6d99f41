"""The public surface of the codec: both backends have the same docstrings and signatures, and every example runs."""

import doctest
import inspect

import pytest

import stompcodec
from stompcodec import columns

CLASSES = ["Columns", "Frame", "Headers", "Parser"]
FUNCTIONS = [
    *("frame_ends", "parse_columns", "serialize", "serialize_many", "serialize_parts", "serialize_tail"),
    *("read_websocket", "write_websocket"),
]
#: Methods that Columns has for other libraries; all others with an underscore are not public.
EXPORTS = {"__arrow_c_array__", "__arrow_c_schema__"}


def member(module, name):
    """A public object by its dotted name; Python's Columns are imported when they are needed."""
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


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_a_docstring(codec, name):
    text = inspect.getdoc(member(codec, name))
    assert text
    assert text.split("\n")[0].endswith((".", ","))


def test_every_example_runs(codec):
    names = {name: member(codec, name) for name in [*CLASSES, *FUNCTIONS, "HEARTBEAT", "END_OF_BODY"]}
    run = 0
    for name in NAMES:
        runner = doctest.DocTestRunner()
        example = doctest.DocTestParser().get_doctest(inspect.getdoc(member(codec, name)), names, name, None, 0)
        assert runner.run(example).failed == 0, name
        run += bool(example.examples)
    assert run >= len(CLASSES) + len(FUNCTIONS)


def test_what_parse_columns_takes_and_returns_is_typed():
    """By the Python backend, whose annotations type checkers read for both."""
    signature = inspect.signature(stompcodec.codec.backend("python").parse_columns)
    assert signature.return_annotation == "Columns"
    assert {each.name for each in signature.parameters.values() if "Any" in each.annotation} == {"data"}


WRONG = {
    "command": lambda codec: codec.Frame(b"SEND"),
    "body str": lambda codec: codec.Frame("SEND", {}, "text"),
    "body int": lambda codec: codec.Frame("SEND", {}, 1),
    "headers": lambda codec: codec.Frame("SEND", 1),
    "pairs": lambda codec: codec.Frame("SEND", [1]),
    "text for a pair": lambda codec: codec.Frame("SEND", ["ab"]),
    "three": lambda codec: codec.Frame("SEND", [("a", "b", "c")]),
    "name": lambda codec: codec.Frame("SEND", [(1, "a")]),
    "value": lambda codec: codec.Frame("SEND", {"passcode": 1}),
    "several": lambda codec: codec.Frame(b"SEND", 1, "text"),
    "read-only": lambda codec: codec.Frame("SEND", {"a": "b"}).headers.clear(),
    "version": lambda codec: codec.Parser("2.0"),
    "stream_over": lambda codec: codec.Parser(stream_over=-1),
    "stream_over str": lambda codec: codec.Parser(stream_over="1"),
    "no buffer": lambda codec: codec.Parser().buffer_updated(1),
    "data": lambda codec: codec.Parser().feed("text"),
    "unknown column": lambda codec: codec.parse_columns(b"", columns=["x"]),
    "a condition": lambda codec: codec.parse_columns(b"", where=["x"]),
    "every": lambda codec: codec.frame_ends(b"", 0),
    "not a frame": lambda codec: codec.serialize(1),
    "mode": lambda codec: codec.serialize(codec.Frame("SEND"), content_length="some"),
    "tail": lambda codec: codec.serialize_tail(codec.Frame("SEND"), "legacy"),
    "unencodable": lambda codec: codec.serialize(codec.Frame("SEND", {"a\0": ""})),
    "wrong length": lambda codec: codec.serialize(codec.Frame("SEND", {"content-length": "2"}, b"x")),
    "no body allowed": lambda codec: codec.serialize(codec.Frame("ACK", {}, b"x")),
    "unknown command": lambda codec: codec.serialize(codec.Frame("PING")),
}


def error_of(call, codec):
    try:
        call(codec)
    except Exception as error:
        return type(error), str(error)
    return None


@pytest.mark.c_only
@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
def test_backends_have_the_same_error_texts(both, call):
    c, py = (error_of(call, codec) for codec in both)
    assert c is not None
    assert c == py


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
    with pytest.raises(stompcodec.FrameError) as raised:
        codec.serialize(codec.Frame(command, [(name, value)]), version)
    assert raised.value.detail == why
