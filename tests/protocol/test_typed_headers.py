"""Header values by the JSON notation of the wish-list."""

import json
import time

import pytest
from hypothesis import example
from hypothesis import given as st_given
from hypothesis import strategies as st
from patience import patience
from protocol.vectors_of import vectors_of

from stompcodec.content import json_text, json_value


@vectors_of("json-header")
def test_json_header_vectors(given, expect):
    got = {"json": json_value(given["text"])}
    assert repr(got) == repr(expect)
    assert json_value(json_text(got["json"])) == expect["json"]


@pytest.mark.req("WISH-JSN-01", "WISH-JSN-02", "WISH-JSN-03", "WISH-JSN-04", "WISH-JSN-05", "WISH-JSN-06")
@pytest.mark.parametrize(
    "plain",
    [
        *["NaN", "Infinity", "-Infinity", "[NaN]", '{"a":Infinity}', "1e999", "-1e999", "[1e999]"],
        *["01", "+1", ".5", "1.", "0x1", "1 2", "\u0661", "1.2.3", "\ufeff1", "\xa01", "True", "None", "nul", "nullx"],
        *["'a'", '"a', '"\n"', '"\\q"', "[1,]", "[1,2", "{a:1}", "{}{}", "/queue/a", "\ud800", '["' + "[" * 200],
        *["[" * 100_000, "[" * 101 + "]" * 101, '{"a":' * 101 + "1" + "}" * 101],
        *["9" * 4301, "-" + "9" * 4301, "[" + "9" * 100_000 + "]"],
    ],
    ids=lambda plain: ascii(plain)[:30],
)
def test_what_is_no_json_stays_text(plain):
    assert json_value(plain) is plain


@pytest.mark.req("WISH-JSN-01", "WISH-JSN-02", "WISH-JSN-04")
def test_json_at_the_bounds():
    assert json_value("9" * 4300) == 10**4300 - 1
    assert json_value("-" + "9" * 4300) == 1 - 10**4300
    assert json_value(" \t\r\n42 ") == 42
    assert json_value("1.7e308") == 1.7e308
    assert json_value(json.dumps(["[" * 500])) == ["[" * 500]
    assert json_value(json.dumps(["\n" + "[" * 500])) == ["\n" + "[" * 500]
    assert json_value("[" + "[]," * 500 + '"\\"["]') == [[]] * 500 + ['"[']
    value = json_value("[" * 100 + "]" * 100)
    for _ in range(99):
        (value,) = value
    assert value == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.req("WISH-JSN-01", "WISH-JSN-02", "WISH-JSN-03", "WISH-JSN-04", "WISH-JSN-05", "WISH-JSN-06")
@st_given(json_values)
@example("42")
@example('"a"')
@example("null")
@example("\0")
@example("\ud83d")
def test_json_round_trip(value):
    written = json_text(value)
    assert repr(json_value(written)) == repr(value)
    assert not any(character < " " or "\ud800" <= character <= "\udfff" for character in written)
    assert written.isascii() or written == value


@pytest.mark.req("WISH-JSN-02")
@pytest.mark.parametrize(
    "hostile", ['"' + '\\"' * 500_000, "[" * 200 + '"\\' * 300_000, "[" * 1_000_000, "[1," * 300_000]
)
def test_json_takes_linear_time(hostile):
    begin = time.perf_counter()
    assert json_value(hostile) is hostile
    assert time.perf_counter() - begin < patience(5)


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_what_json_cannot_say_is_refused():
    assert json_text(nested(100)) == "[" * 100 + "]" * 100
    circular = []
    circular.append(circular)
    for value in (float("nan"), [float("inf")], nested(101), nested(100_000), circular):
        with pytest.raises(ValueError, match=r"."):
            json_text(value)
    for value in (b"octets", {1, 2}, object(), [b"octets"]):
        with pytest.raises(TypeError):
            json_text(value)
