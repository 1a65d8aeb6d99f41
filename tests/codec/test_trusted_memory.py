"""Memory that Python code may change while C looks at it. What could end the interpreter runs in one of its own."""

import sys

import pytest
from codec import test_isolated
from codec.lockstep import answer_of

from stompcodec.spec import Condition, Limits, checked_limits, checked_names, checked_where

HEAD = b"SEND\nk:" + b"a" * 60 + b"\nz:" + b"b" * 70 + b"\n"


def run(code):
    begin = "import gc, sys\nfrom stompcodec._codec_c import *\nfrom stompcodec.spec import Condition\n"
    return test_isolated.run("-c", begin + code, pure="0").strip()


class Odd(str):
    """A str whose methods do not tell the truth."""

    answer = 1.5

    def encode(self, *_):
        return self.answer

    def __str__(self):
        return 7

    def __len__(self):
        return 2**40

    def __iter__(self):
        return iter([1, 2])


WRITES = {
    **{"eval": "eval('a', h)", "exec": "exec('a', h)"},
    "dict": "class A: pass\na = A(); a.__dict__ = h; a.x = []; del a",
    **{"setitem": "dict.__setitem__(h, 'x', [h])", "atoms": "dict.__setitem__(h, 'x', 1.5)"},
    "finalizer": "class D:\n    __slots__ = ()\n    def __del__(self): Frame('SEND', {'n': 'm'}).headers\n"
    "dict.__setitem__(h, 'x', D())",
    "clear": "dict.__setitem__(h, 'x', []); dict.clear(h)",
}


@pytest.mark.c_only
@pytest.mark.parametrize("how", WRITES)
def test_headers_that_were_written_into_are_not_used_again(how):
    code = (
        "h = Frame('SEND', {'a': '1', 'b': '2'}).headers\n"
        + WRITES[how]
        + "\ndel h\ngc.collect()\n"
        + "keep = [(Frame('SEND', {'k': str(i)}).headers, {'q': [i]}) for i in range(500)]\n"
        + "gc.collect()\n"
        + "assert all(pair == ({'k': str(i)}, {'q': [i]}) for i, pair in enumerate(keep)), keep[:9]\n"
        + "print(len({id(x) for pair in keep for x in pair}))"
    )
    assert run(code) == "1000"


@pytest.mark.c_only
@pytest.mark.parametrize("drops", [True, False])
@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize(
    "rest", ["p.feed(b'\\n\\0')", "(p.get_buffer().__setitem__(slice(2), b'\\n\\0'), p.buffer_updated(2))[1]"]
)
def test_a_view_changes_nothing_that_was_scanned(rest, again, drops):
    """The head is scanned in part, then written by a view of before: also one that is dropped in time, or made anew."""
    code = (
        f"p = Parser('1.2'); view = p.get_buffer(); part = {HEAD!r}; view[:len(part)] = part\n"
        "lender = view.obj\n"
        "assert not list(p.buffer_updated(len(part)))\n"
        f"view = memoryview(lender) if {again} else view\n"
        "view[7:67] = bytes(range(130, 190))\n"
        f"if {drops}: del view, lender\n"
        f"(frame,) = {rest}\n"
        "text = frame.headers['k']; print(text.isascii(), sum(map(ord, text)))"
    )
    assert run(code) == f"True {60 * ord('a')}"


def test_a_view_reaches_no_body(codec):
    parser = codec.Parser("1.2")
    assert list(parser.feed(b"SEND\ncontent-length:9\n\nab")) == []
    view = parser.get_buffer()
    view[:7] = b"cdefghi"
    assert list(parser.buffer_updated(7)) == []
    (frame,) = parser.feed(b"\0")
    before = hash(frame)
    view[:7] = b"XXXXXXX"
    assert (frame.body, hash(frame)) == (b"abcdefghi", before)


def test_a_buffer_that_feeds(codec):
    """Reading the data of `feed` may run any code, since Python 3.12 has __buffer__."""
    parser = codec.Parser("1.2")

    class Feeds:
        def __buffer__(self, _flags):
            list(parser.feed(b"SEND\n"))
            parser.get_buffer()
            return memoryview(b"\nb\0")

    if sys.version_info >= (3, 12):
        assert [answer_of(frame) for frame in parser.feed(Feeds())] == [("frame", "SEND", [], b"b")]


ODD = [1.5, 7, None, "x", [b"x"], (), bytearray(b"x"), range(3)]


@pytest.mark.parametrize("answer", ODD)
def test_a_name_is_its_text_whatever_its_methods_say(codec, answer):
    class Name(Odd):
        pass

    Name.answer = answer
    name, wire = Name("x"), b"SEND\nx:1\ny:2\n\n\0"
    assert checked_names([name]) == ("x",)
    assert type(checked_names([name])[0]) is str
    assert codec.parse_columns(wire, names=[name]).rows == 1
    assert codec.parse_columns(wire, where=[(name, "in", [Name("1")])]).rows == 1
    assert codec.parse_columns(wire, where=[(name, "prefix", [Name("2")])]).rows == 0
    assert codec.serialize_tail(codec.Frame("SEND", {"x": "1", "y": "2"}), without=(name,)) == b"y:2\n\n\0"
    (frame,) = codec.Parser("1.2", commands=[Name("PING")]).feed(b"PING\n\n\0")
    assert codec.serialize(frame, commands=[Name("PING")]) == b"PING\n\n\0"


def test_names_that_claim_to_be_others_answer_for_themselves(codec):
    class Same(str):
        def __eq__(self, other):
            return True

        def __hash__(self):
            return hash("left-out")

    frame = codec.Frame("SEND", {"left-out": "1", "other": "2"})
    codec.serialize_tail(frame, without=(Same("other"),))
    assert codec.serialize_tail(frame, without=("left-out",)) == b"other:2\n\n\0"


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (TypeError, ("x", False, (b"1",))),
        *[(TypeError, (b"x", False, values)) for values in (("1",), [b"1"], "1", (1.5,), (bytearray(b"1"),), None)],
        (TypeError, (b"x", 1.5, (b"1",))),
        *[(ValueError, (b"x", False, values)) for values in ((b"2", b"1"), (b"1", b"1"))],
        (ValueError, (b"x", True, (b"1", b"12", b"2"))),
    ],
)
def test_a_condition_made_by_hand(codec, error, condition):
    with pytest.raises(error, match="checked_where"):
        codec.parse_columns(b"SEND\nx:1\n\n\0", where=[Condition(*condition)])


def test_a_prepared_condition_is_taken(codec):
    (made,) = prepared = checked_where([("x", "prefix", ["b", "a", "ab"])])
    assert checked_where(prepared)[0] is made
    assert codec.parse_columns(b"SEND\nx:abc\n\n\0", where=prepared).rows == 1
    empty = Condition(b"x", False, ())
    assert codec.parse_columns(b"SEND\nx:abc\n\n\0", where=[empty]).rows == 0


def test_limits_are_those_that_were_checked(codec):
    class Growing(Limits):
        def __iter__(self):
            return iter((2**62, 2**62, 2**62, 2**62))

        max_headers = property(lambda _self: 2**62)

    growing = Growing(max_headers=1)
    assert type(checked_limits(growing)) is Limits
    assert codec.parse_columns(b"SEND\na:1\nb:2\n\n\0", limits=growing).error == "limit-exceeded"


@pytest.mark.c_only
@pytest.mark.parametrize("arguments", ["commands=5", "stream_over=-1", "version='9'", "limits=3", "commands=meddle()"])
def test_a_parser_that_was_not_made(arguments):
    code = (
        "p = Parser.__new__(Parser)\n"
        "def meddle():\n"
        "    p.version = '1.1'; list(p.feed(b'\\n')); p.get_buffer(); yield 'PING'; raise ValueError\n"
        f"try: p.__init__({arguments})\n"
        "except (TypeError, ValueError): pass\n"
        "try: p.version = '1.2'\n"
        "except TypeError: pass\n"
        "try: list(p.feed(b'PING\\n\\n\\0'))\n"
        "except Exception: pass\n"
        "p.get_buffer(); p.buffer_updated(1); p.buffered\n"
        "print('end')"
    )
    assert run(code) == "end"
