"""Selectors and headers that want to be expensive: time, memory and the stack are bounded, whatever both sides say."""

import time
from contextlib import suppress

import pytest
from traced import held, tracing

from stompcodec.broker import selectors as selector_values
from stompcodec.broker.message import Message
from stompcodec.broker.selectors import (
    MOST_NESTED,
    MOST_OCTETS,
    MOST_PARTS,
    MOST_SEARCHED,
    SelectorError,
    compile_selector,
)

pytest.importorskip("lark")
#: Seconds for what takes milliseconds: no machine is so slow, and what is quadratic takes longer.
AGES = 5.0
HEADER = 65_000


def message(value):
    return Message(b"m-1", 1, "/queue/a", b"destination:/queue/a\na:" + value + b"\n\n\0")


def nested(open_, inner, close, depth):
    return open_ * depth + inner + close * depth


NESTS = [
    *(("(", "a = 1", ")"), ("- ", "a = 1", ""), ("(a * 1 + ", "a", ")"), ("NOT ", "a = 1", "")),
    *(("(a = 1 AND a = 1 OR ", "a = 1", ")"), ("(a = 1 AND TRUE = ", "(a = 1)", " OR a = 2)")),
    ("(NOT a BETWEEN 1 AND 2 AND a = 1 OR ", "a", ")"),
]


@pytest.mark.parametrize(("open_", "inner", "close"), NESTS)
def test_nesting_is_bounded_and_no_stack_overflows(open_, inner, close):
    depth, end = MOST_NESTED - ("(" in inner or "NOT" in open_[1:]), " > 0" * ("*" in open_)
    assert compile_selector(nested(open_, inner, close, depth) + end).matches(message(b"1")) in (True, False)
    with pytest.raises(SelectorError, match="nested deeper than 64"):
        compile_selector(nested(open_, inner, close, depth + 1) + end)


def test_parts_are_bounded():
    for joint, end in ((" OR ", ""), (" AND ", ""), ("+", "=1"), ("*", "=1")):
        many = MOST_PARTS - len(end[1:])
        assert compile_selector(joint.join(["a"] * many) + end).matches(message(b"1")) in (True, False)
        with pytest.raises(SelectorError, match=f"more than {MOST_PARTS} names and literals"):
            compile_selector(joint.join(["a"] * (many + 1)) + end)
    many = ", ".join(f"'{number}'" for number in range(600))
    assert compile_selector(f"a IN ({many})").matches(message(b"599"))


def test_searched_letters_of_patterns_are_bounded():
    text = "a LIKE '%_" + "x" * (MOST_SEARCHED - 1) + "%'"
    assert not compile_selector(text).matches(message(b"x"))
    assert compile_selector(text).matches(message(b"x" * MOST_SEARCHED))
    for wrong in ("a LIKE '%_" + "x" * MOST_SEARCHED + "%'", f"{text} OR a LIKE '%_x%'"):
        with pytest.raises(SelectorError, match="256 pattern characters"):
            compile_selector(wrong)


SLOW_PATTERNS = [
    *("'%" + "a" * 4000 + "b%'", "'" + "%a" * 2000 + "b'", "'%" + "_%" * 250 + "b'", "'" + "%a_" * 127 + "%b'"),
    *("'%" + "a_" * 127 + "b%'", "'" + "_%" * 2000 + "'", "'" + "a" * 4000 + "_'", "'%" + "_" * 255 + "b%'"),
]


@pytest.mark.parametrize("value", [b"a" * HEADER, b"ab" * (HEADER // 2), b"a" * HEADER + b"b"], ids=["a", "ab", "b"])
def test_like_is_linear(value):
    for pattern in SLOW_PATTERNS:
        selector, start = compile_selector(f"a LIKE {pattern}"), time.perf_counter()
        selector.matches(message(value))
        assert time.perf_counter() - start < AGES, pattern[:12]


SLOW_SELECTORS = [
    *(" OR ".join(["a LIKE '%ab%'"] * 240), " OR ".join(["a LIKE '%a_b%'"] * 80), " OR ".join(["a < b"] * 255)),
    *(" OR ".join(["a = 1"] * 255), " OR ".join(["a = 'x'"] * 255), " OR ".join(["NOT a BETWEEN a AND a"] * 150)),
    *("+".join(["a"] * 500) + " = 1", "*".join(["a"] * 500) + " = 1"),
    "a IN (" + ", ".join(f"{number}" for number in range(700)) + ")",
]
SLOW_VALUES = {
    **{"letters": b"a" * HEADER, "digits": b"1" * HEADER, "long": b"123456789012345678", "many digits": b"1" * 300},
    **{"fraction": b"0." + b"1" * HEADER, "exponent": b"1e" + b"9" * HEADER, "brackets": b"[" * HEADER},
    **{"escapes": rb"\n" * (HEADER // 2), "backslashes": rb"\\" * (HEADER // 2)},
    **{"json escapes": b'"' + rb"\\u0061" * (HEADER // 7) + b'"', "open json": b'"' + rb"\\u0061" * (HEADER // 7)},
    **{"spaces": b" " * HEADER, "signs": b"-" * HEADER},
}


@pytest.mark.parametrize("value", SLOW_VALUES.values(), ids=SLOW_VALUES)
def test_long_values_are_read_once(value):
    found = message(value)
    for text in SLOW_SELECTORS:
        selector, start = compile_selector(text), time.perf_counter()
        assert selector.matches(found) in (True, False)
        assert time.perf_counter() - start < AGES


@pytest.mark.parametrize(
    "text", ["a < b OR a > b OR b IS NULL OR a LIKE 'x%'", "a = 1 OR a = 'x' OR a + a = 1", "+a = a"]
)
def test_a_value_is_read_once(text, monkeypatch):
    read, plain = [], selector_values.value_of
    monkeypatch.setattr(selector_values, "value_of", lambda octets: (read.append(octets), plain(octets))[1])
    compile_selector(text).matches(Message(b"m-1", 1, "/queue/a", b'destination:/queue/a\na:"y"\nb:"z"\n\n\0'))
    assert len(read) == len(set(read)) > 0


SLOW_TEXTS = [
    *("1" * 4000 + "x", "." * 4096, "'" + "x" * 4000, '"' + "x" * 4000, "a =" + " " * 4000, "$" * 4096),
    *("a BETWEEN " * 400, "'" * 4095, '"' * 4095, "0x" + "f" * 4000 + "g", "1e" * 2000, "a IN (" + "1," * 2000),
    *("(" * 4000, "NOT " * 1000 + "a", "-" * 4000 + "a", "(" * 2000 + "a" + ")" * 2000),
    *("a = 0x" + "f" * 4000, "a = 0" + "7" * 4000, "a = " + "9" * 300),
]


def test_odd_texts_are_read_or_refused_soon():
    for text in SLOW_TEXTS:
        start = time.perf_counter()
        with suppress(SelectorError):
            compile_selector(text)
        assert time.perf_counter() - start < AGES, text[:10]


@pytest.mark.long
@pytest.mark.no_asan
def test_a_selector_takes_less_than_a_megabyte():
    for text in [*SLOW_SELECTORS, " OR ".join(["(a = 'b')"] * 255)]:
        assert len(text) <= MOST_OCTETS
        compile_selector(text)  # the first one takes lark
        with tracing():
            selector = compile_selector.__wrapped__(text)
            assert held() < 2**20, selector
