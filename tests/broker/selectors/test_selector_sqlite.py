"""Selectors against SQLite, on the same rows; where the two differ is pinned in test_selector.py."""

import sqlite3

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from profiles import examples

from stompcodec import Frame
from stompcodec.broker.message import message_of
from stompcodec.broker.selectors import compile_selector

pytest.importorskip("lark")
NUMBERS, TEXTS = ("n", "m", "k"), ("s", "t", "u")
MOST = 2**63 - 1
whole = st.sampled_from([0, 1, -1, 2, 3, 7, 10, -10, 2**31, 2**53 + 1, MOST, -MOST - 1, MOST // 2])
real = st.integers(-4000, 4000).map(lambda quarters: quarters / 4) | st.sampled_from([1e308, -1e308, 1e-300, 2.0**63])
letters = st.text("ab%_é!", max_size=5)
rows = st.fixed_dictionaries(
    {**dict.fromkeys(NUMBERS, st.none() | whole | real), **dict.fromkeys(TEXTS, st.none() | letters)}
)
spelled = (
    st.integers(0, 2**63 - 1).map(str) | st.integers(0, 12).map(str) | st.integers(0, 80).map(lambda q: str(q / 4))
)
quoted = letters.map(lambda text: "'" + text.replace("'", "''") + "'")


def joined(operand, signs, most=3):
    """Operands with operators between them, and no parentheses: what binds tighter is for the readers to know."""
    return st.builds(
        lambda first, rest: first + "".join(f" {sign} {operand}" for sign, operand in rest),
        operand,
        st.lists(st.tuples(st.sampled_from(signs), operand), max_size=most),
    )


number = st.recursive(
    st.sampled_from(NUMBERS) | spelled,
    lambda inner: (
        joined(inner.map("({})".format) | st.sampled_from(NUMBERS) | spelled, "+-*/") | inner.map("- ({})".format)
    ),
    max_leaves=6,
)
text = st.sampled_from(TEXTS) | quoted
comparison = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
maybe_not = st.sampled_from(["", "NOT "])


def escaped(pattern):
    """LIKE with ESCAPE: no escape letter may end the pattern."""
    return pattern.rstrip("!") or "x"


test = st.one_of(
    st.builds("{} {} {}".format, number, comparison, number),
    st.builds("{} {} {}".format, text, comparison, text),
    st.builds("{} {} {}".format, text, st.sampled_from(["=", "<>"]), number),
    st.builds("{} {}BETWEEN {} AND {}".format, number, maybe_not, number, number),
    st.builds("{} {}BETWEEN {} AND {}".format, text, maybe_not, text, text),
    st.builds("{} {}IN ({})".format, number, maybe_not, st.lists(spelled, min_size=1, max_size=4).map(", ".join)),
    st.builds("{} {}IN ({})".format, text, maybe_not, st.lists(quoted, min_size=1, max_size=4).map(", ".join)),
    st.builds("{} IS {}NULL".format, number | text, maybe_not),
    st.builds("{} {}LIKE '{}'".format, text, maybe_not, letters),
    st.builds("{} {}LIKE '{}' ESCAPE '!'".format, text, maybe_not, letters.map(escaped)),
)
condition = st.recursive(
    test,
    lambda inner: joined(
        test | inner.map("({})".format) | inner.map("NOT ({})".format) | test.map("NOT {}".format), ["AND", "OR"]
    ),
    max_leaves=6,
)
database = sqlite3.connect(":memory:")
database.execute("PRAGMA case_sensitive_like = ON")


def of_sqlite(text, row):
    columns = ", ".join(f"? AS {name}" for name in row)
    (found,) = database.execute(f"SELECT ({text}) FROM (SELECT {columns})", tuple(row.values())).fetchone()
    return None if found is None else bool(found)


def of_ours(text, row):
    headers = {k: v if isinstance(v, str) else repr(v) for k, v in row.items() if v is not None}
    frame = Frame("SEND", {"destination": "/queue/a", **headers})
    message = message_of(frame, "/queue/a", False, lambda: 0.0)
    if compile_selector(text).matches(message):
        return True
    return False if compile_selector(f"NOT ({text})").matches(message) else None


@pytest.mark.req("ART-SEL-01")
@settings(max_examples=examples(300))
@given(condition, rows)
@example("n / 0 = 1 OR n = 1", {"n": 1})
@example("n * m > 0", {"n": MOST, "m": MOST})
@example("n - 1 < m", {"n": -MOST - 1, "m": -MOST - 1})
@example("n / -1 > 0", {"n": -MOST - 1})
@example("n = 9007199254740993", {"n": 2.0**53})
@example("n * 10 - m * 10 IS NULL", {"n": 1e308, "m": 1e308})
@example("s LIKE '!%%' ESCAPE '!'", {"s": "%a"})
@example("NOT n BETWEEN 1 AND 2 AND m = 1", {"n": 3, "m": None})
def test_both_agree(text, row):
    row = {**dict.fromkeys((*NUMBERS, *TEXTS)), **row}
    assume(len(text) < 4000 and text.count("(") + text.count("-") < 60)  # within the bounds of ours
    ours = of_ours(text, row)
    assert ours is of_sqlite(text, row), text


@given(st.text("ab%_é!\n", max_size=8), st.text("ab%_é\n", max_size=8))
@settings(max_examples=examples(300))
def test_like_agrees(value, pattern):
    assert of_ours(f"s LIKE '{pattern}'", {"s": value}) is of_sqlite(f"s LIKE '{pattern}'", {"s": value})


def test_the_cut_is_where_it_is_said_to_be():
    differ = {
        **{"n = '10'": (10, True, False), "n = 012": (10, True, False), "s > 5": ("abc", False, True)},
        "s = n": ("10", None, None),
    }
    for text, (value, ours, theirs) in differ.items():
        row = {"s" if "s" in text else "n": value, **({"n": None} if "s = n" in text else {})}
        assert (of_ours(text, row), of_sqlite(text, row)) == (ours, theirs), text
