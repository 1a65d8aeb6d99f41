"""What is said of a selector that is none, and where lark is missing; and what a session may have."""

import pickle
import sys

import pytest
from broker.harness import Bench

from stompcodec import MissingExtraError, StompError
from stompcodec.broker import selectors as selector_grammar
from stompcodec.broker.selectors import SelectorError, compile_selector

pytest.importorskip("lark")

WRONG = [
    ("color = ", 8, "expected a name, a number, a text in '...' or ("),
    ("color == 'red'", 8, "expected a name, a number, a text in '...' or (, not ="),
    ("(n = 1", 7, "expected )"),
    ("n = 1)", 6, "expected the end, not )"),
    ("a b", 3, "expected a comparison, IS, IN, LIKE, BETWEEN, NOT, AND, OR or the end, not b"),
    ("a = b = c", 7, "expected AND, OR or the end, not ="),
    ("a LIKE b", 8, "expected a text in '...', not b"),
    ("a LIKE 'x' ESCAPE 'ab'", 19, "ESCAPE takes one character"),
    ("a LIKE 'x!' ESCAPE '!'", 8, "the pattern ends with its ESCAPE character"),
    ("a IN ()", 7, "expected a number or a text in '...', not )"),
    ("a IN ('x', b)", 12, "expected a number or a text in '...', not b"),
    ("a IS 5", 6, "expected NULL or NOT, not 5"),
    ("a BETWEEN 1 OR 2", 13, "expected AND, not OR"),
    ("'x' AND a", 1, "expected a condition here, not a text"),
    ("a AND 5", 7, "expected a condition here, not a number"),
    ("a + 'x' = 5", 5, "expected a number here, not a text"),
    ("(a = 1) + 2 = 3", 2, "expected a number here, not a boolean"),
    ("a < TRUE", 5, "expected a number or a text here, not a boolean"),
    ("5 LIKE '5'", 1, "expected a text here, not a number"),
    ("a = 'it", 5, "the text that begins here is not closed by another '"),
    ('"a = 5', 1, 'the name that begins here is not closed by another ", or is empty'),
    ("a = 09", 5, "a number that begins with 0 is octal, as in Java, and has no 8 and no 9"),
    ("a = 12ab", 5, "this is not a valid number"),
    ("a = 1e999", 5, "this number is too large"),
    ("a = " + "9" * 400, 5, "this number is too large"),
    ("a = 0x" + "f" * 400, 5, "this number is too large"),
    ("a = 0" + "7" * 400, 5, "this number is too large"),
    ("a != 5", 3, "this is not an operator: 'not equal' is <>"),
    ("a = 5; b", 6, "this character is unexpected"),
    ("a = NULL", 5, "expected a name, a number, a text in '...' or (, not NULL"),
    ("convert_string_expressions:a !", 30, "this is not an operator"),
]


@pytest.mark.req("ART-SEL-01")
@pytest.mark.parametrize(("text", "column", "why"), WRONG)
def test_a_wrong_one_shows_where(text, column, why):
    with pytest.raises(SelectorError) as caught:
        compile_selector(text)
    error = caught.value
    assert (error.column, isinstance(error, StompError)) == (column, True)
    assert error.why.startswith(why)
    first, line, caret = str(error).split("\n")
    assert first == f"column {column} of the selector: {error.why}"
    assert line == (text if len(text) <= 44 else f"{text[:44]}...")
    assert caret.index("^") == column - 1
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_without_lark_the_subscriber_is_told(monkeypatch):
    selector_grammar._parser.cache_clear()
    compile_selector.cache_clear()
    monkeypatch.setitem(sys.modules, "lark", None)
    with pytest.raises(MissingExtraError, match=r"stompcodec\[broker\]"):
        compile_selector("a = 1")
    consumer = Bench().peer()
    consumer.subscribe("/queue/a", selector="a = 1")
    error = consumer.error()
    assert error.headers["message"] == "selectors are not available"
    assert b"stompcodec[broker]" in error.body


@pytest.mark.req("ART-SEL-01")
def test_all_selectors_of_a_session_are_bounded_and_a_wrong_one_ends_it():
    bench = Bench(max_subscriptions=100)
    consumer = bench.peer()
    for number in range(40):  # the same ones count once
        consumer.subscribe("/queue/a", f"same-{number}", selector="a = '" + "x" * 4000 + "'")
    for number in range(10, 25):
        consumer.subscribe("/queue/a", f"{number}", selector=f"{number} = '" + "x" * 4000 + "'")
        assert consumer.take() == []
    consumer.subscribe("/queue/a", "more", selector="'' = '" + "x" * 4000 + "'")
    assert consumer.error().headers["message"] == "too many selectors"
    consumer = bench.peer()
    consumer.subscribe("/queue/a", selector="color = = 'red'")
    error = consumer.error()
    assert "column 9" in error.headers["message"] + error.body.decode()
    assert "color = = 'red'\n        ^" in error.body.decode()
