"""Selectors: what they mean, which messages they pick over real frames, and what is said of one that is none."""

import pickle
import re
import sys

import pytest
from broker.harness import Bench, bench_with_two
from hypothesis import example, given
from hypothesis import strategies as st

from stompcodec import Frame, MissingExtraError, StompError
from stompcodec.broker import selectors as selector_grammar
from stompcodec.broker.loop_quota import Wall
from stompcodec.broker.message import message_of
from stompcodec.broker.selectors import _SHOWN, MOST_OCTETS, SelectorError, Typed, compile_selector, value_of
from stompcodec.content import json_value

pytest.importorskip("lark")


def message(headers, **fields):
    frame = Frame("SEND", {"destination": "/queue/a", **headers}, b"color:body\n\n")
    values = {"priority": int(headers["priority"])} if "priority" in headers else {}
    made = message_of(frame, "/queue/a", fields.pop("persistent", False), Wall(lambda: 1000.0), values=values)
    made.ident, made.seq = b"m-1", 1
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def truth(text, headers, **fields):
    """True, False or None for unknown: what is unknown is not matched, and neither is its opposite."""
    found = message(headers, **fields)
    prefixes, condition = re.fullmatch(
        r"((?:\s*(?:convert_string_expressions|hyphenated_props):)*)(.*)", text, re.S
    ).groups()
    matches = compile_selector(text).matches(found)
    opposite = compile_selector(f"{prefixes}NOT ({condition})").matches(found)
    assert not (matches and opposite)
    return True if matches else False if opposite else None


HEADERS = {
    **{"color": "red", "n": "10", "x": "2.5", "big": "9223372036854775807", "flag": "true", "off": "false"},
    **{"nothing": "null", "padded": "null ", "quoted": '"10"', "list": "[1]", "empty": "", "colon": "a:b\\c\nd"},
    **{"content-type": "text/plain", "a.b": "dots", "$it": "1", "größe": "7", "type": "order"},
    **{"correlation-id": "c-1", "timestamp": "1700000000000", "message_group": "g"},
}
MEANINGS = [
    # comparing, with what is NULL
    *(("color = 'red'", True), ("'red' = color", True), ("color <> 'red'", False), ("color = 'blue'", False)),
    *(("Color = 'red'", None), ("missing = 'red'", None), ("missing <> 'red'", None), ("missing = missing", None)),
    *(("nothing = 'null'", None), ("nothing = 'red'", None), ("nothing <> 'red'", None), ("nothing > 5", None)),
    *(("padded = 'null '", None), ("padded IS NULL", True), ("color < 'rfd' AND color >= 'red'", True)),
    *(("n > 9", True), ("9 < n", True), ("9 >= n", False), ("n >= 10 AND n <= 10", True), ("n = 10.0", True)),
    *(("x = 2.5", True), ("x > 2", True)),
    # a number is the text it is, too, where it is compared with a text
    *(("n = '10'", True), ("n = '10.0'", False), ("n < '9'", True), ("quoted = '10'", True), ("quoted = 10", False)),
    ("quoted = n", True),
    # types that have nothing in common
    *(("color = 5", False), ("color <> 5", True), ("color < 5", False), ("color > 5", False), ("flag = 1", False)),
    *(("list = '[1]'", True), ("empty = ''", True), ("empty = 0", False), ("colon = 'a:b\\c\nd'", True)),
    # booleans
    *(("flag", True), ("off", False), ("color", False), ("missing", None), ("flag = TRUE", True)),
    *(("flag <> FALSE", True), ("flag = 'true'", True), ("(n = 10) = flag", True), ("TRUE", True), ("false", False)),
    # IS NULL, BETWEEN, IN, LIKE and arithmetic, where test_selector_sqlite.py does not compare them
    *(("nothing IS NULL", True), ("empty IS NULL", False), ("n BETWEEN missing AND 9", False)),
    *(("n IN ('1', '10')", True), ("flag IN (TRUE)", True), ("flag IN (1)", False), ("JMSPriority IN (4)", True)),
    *(("n LIKE '1_'", True), ("n + 1 LIKE '11'", "a number"), ("JMSPriority LIKE '4'", False)),
    *(("colon LIKE 'a_b%d'", True), ("colon LIKE '%!\\c%' ESCAPE '!'", True), ("list LIKE '[%]'", True)),
    *(("- - n = +10", True), ("color + 1 = 1", None), ("flag + 1 = 2", None), ("quoted + 1 = 11", None)),
    # literals
    ("n = 0xA AND n = 012 AND n = 10L AND n = 1e1 AND n = 10. AND n = 10d AND n = 100E-1", True),
    *(("x = 2.5f AND x > .5", True), ("0 = 00", True), ("'it''s' = 'it''s'", True), ("'a' < 'b'", True)),
    # names
    *(("\"content-type\" = 'text/plain'", True), ("content-type = 'text/plain'", None), ("a.b = 'dots'", True)),
    *(("$it = 1", True), ("größe = 7", True), ("android IS NULL AND NULLABLE IS NULL", True)),
    *(('"and" IS NULL', True), ("n between 1 and 10 and color like 'r%' or not flag is null", True)),
    (" \t n\n=\r10 ", True),
]


@pytest.mark.req("ART-SEL-01", "S10-SUB-06", "WISH-JSN-07")
@pytest.mark.parametrize(("text", "meaning"), MEANINGS)
def test_meanings(text, meaning):
    if meaning == "a number":
        with pytest.raises(SelectorError, match="not a number"):
            compile_selector(text)
    else:
        assert truth(text, HEADERS) is meaning


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("JMSMessageID = 'm-1' AND AMQUserID = 'm-1' AND \"message-id\" = 'm-1'", True),
        ("JMSPriority = 7 AND AMQPriority > 6", True),
        ("JMSDeliveryMode = 'PERSISTENT' AND AMQDurable = 'DURABLE'", True),
        ("JMSExpiration = 2000000 AND AMQExpiration > 0", True),
        ("JMSRedelivered AND JMSXDeliveryCount = 3", True),
        ("JMSDestination = '/queue/a' AND AMQAddress = '/queue/a' AND destination = '/queue/a'", True),
        ("JMSType = 'order' AND JMSCorrelationID = 'c-1'", True),
        ("JMSTimestamp = AMQTimestamp AND JMSTimestamp > 1600000000000", True),
        *(("JMSXGroupID = 'g' AND AMQGroupID = 'g'", True), ("JMSReplyTo IS NULL", True)),
        ("AMQSize > 100 AND AMQSize < 1000", True),
    ],
)
@pytest.mark.req("ART-SEL-01")
def test_names_of_jms_and_artemis(text, meaning):
    headers = {**HEADERS, "priority": "7"}
    assert truth(text, headers, persistent=True, expires=2000.0, attempts=2) is meaning
    unset = "JMSPriority = 4 AND JMSExpiration = 0 AND AMQDurable = 'NON_DURABLE' AND JMSTimestamp IS NULL"
    more = "JMSDeliveryMode = 'NON_PERSISTENT' AND NOT JMSRedelivered AND JMSXDeliveryCount = 1"
    assert truth(f"{unset} AND {more}", {}) is True


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        *(("hyphenated_props:content-type = 'text/plain'", True), ("hyphenated_props: n - 1 = 9", True)),
        *(("n-1 = 9", True), ("convert_string_expressions:n > '9'", True)),
        *(("convert_string_expressions:n = '1e1'", True), ("convert_string_expressions:quoted = 10", False)),
        ("convert_string_expressions:'9' < n AND flag = 'true'", True),
        ("convert_string_expressions:n + '1' = 11", True),
        ("convert_string_expressions: hyphenated_props:content-type LIKE '%plain' AND n >= '10'", True),
        ("hyphenated_props:convert_string_expressions:n IN ('1e1', 'x')", True),
    ],
)
@pytest.mark.req("ART-SEL-01")
def test_prefixes_of_artemis(text, meaning):
    assert truth(text, HEADERS) is meaning


def test_the_first_header_of_a_name_counts_and_the_body_is_not_looked_at():
    frame = Frame("SEND", [("destination", "/queue/a"), ("n", "1"), ("n", "2")], b"\nm:3\n")
    found = message_of(frame, "/queue/a", False, lambda: 0.0)
    for text in ("n = 1 AND m IS NULL", "", "  "):  # nothing is no selector
        assert compile_selector(text).matches(found)


@given(st.text(max_size=8), st.text(min_size=1, max_size=5).filter(lambda name: not name.isspace()))
@example("a\\nb", "a:b\\")
@example("null", "n")
@example('"', '"')
def test_every_text_and_every_name_can_be_said(value, name):
    frame_text = value.replace("\0", "")
    name = name.replace("\0", "") or "x"
    literal, quoted = frame_text.replace("'", "''"), name.replace('"', '""')
    found = message({name: frame_text})
    same = compile_selector(f"\"{quoted}\" = '{literal}'").matches(found)
    read = json_value(frame_text)
    if name not in ("destination", "message-id") and '"' not in frame_text:
        assert same is (read is not None)


@pytest.mark.req("WISH-JSN-07")
@given(
    st.text('-+.0123456789eE \ttruefalsnl"[]{}:,\\ax\r\n', max_size=12)
    | st.integers().map(str)
    | st.floats().map(repr)
    | st.sampled_from(["1" * 400, "-0.0", "1e999", " 10\t", ' "x" '])
)
def test_headers_are_read_as_json_reads_them(text):
    """As `json_value`, but for what has no scalar, and for integers that have more than 64 bits."""
    expected = json_value(text)
    found = value_of(text.encode().replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r"))
    if isinstance(expected, str) or expected is None:
        assert (found, type(found)) == (expected, type(expected))
    elif isinstance(expected, int) and abs(expected) > 10**308:
        assert found == text
    elif isinstance(expected, (bool, int, float)):
        value = float(expected) if abs(expected) >= 2**63 and expected != -(2**63) else expected
        assert (found, type(found.value)) == (Typed(value, text), type(value))


def test_it_is_compiled_once():
    assert compile_selector("a = 1 OR b = 2") is compile_selector("a = 1 OR b = 2")
    for number in range(1000):
        compile_selector(f"a = {number}")
    assert compile_selector.cache_info().currsize <= 200
    assert repr(compile_selector("a = 1")) == "<Selector 'a = 1'>"


def test_the_length_is_bounded():
    fits = f"a = '{'ä' * ((MOST_OCTETS - 6) // 2)}'"
    assert len(fits.encode()) == MOST_OCTETS
    compile_selector(fits)
    with pytest.raises(SelectorError, match="longer than 4096"):
        compile_selector(fits + " ")


PICKED = ["color = 'red'", "n > 9", "color LIKE 'r%' AND n BETWEEN 5 AND 10", "color IS NULL", "NOT color = 'red'"]
SENT = [{"color": "red", "n": "8"}, {"color": "red", "n": "10"}, {"n": "11"}, {"color": "blue"}, {}]


@pytest.mark.req("ART-SEL-01", "S10-SUB-06", "WISH-JSN-07")
@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("text", PICKED)
def test_a_subscription_gets_what_it_asked_for(kind, text):
    _bench, sender, consumer = bench_with_two()
    consumer.subscribe(f"/{kind}/a", selector=text)
    for number, headers in enumerate(SENT):
        sender.put(f"/{kind}/a", str(number), **headers)
    wanted = [str(number).encode() for number, headers in enumerate(SENT) if truth(text, headers) is True]
    assert consumer.bodies() == wanted


# ---- wrong ones, and where lark is missing; and what a session may have ----
WRONG = [
    ("color = ", 8, "expected a name, a number, a text in '...' or ("),
    *(("color == 'red'", 8, "expected a name, a number, a text in '...' or (, not ="), ("(n = 1", 7, "expected )")),
    ("n = 1)", 6, "expected the end, not )"),
    ("a b", 3, "expected a comparison, IS, IN, LIKE, BETWEEN, NOT, AND, OR or the end, not b"),
    ("a LIKE 'x' ESCAPE 'ab'", 19, "ESCAPE takes one character"),
    ("a LIKE 'x!' ESCAPE '!'", 8, "the pattern ends with its ESCAPE character"),
    ("a IN ('x', b)", 12, "expected a number or a text in '...', not b"),
    ("a AND 5", 7, "expected a condition here, not a number"),
    ("a + 'x' = 5", 5, "expected a number here, not a text"),
    ("(a = 1) + 2 = 3", 2, "expected a number here, not a boolean"),
    ("a < TRUE", 5, "expected a number or a text here, not a boolean"),
    ("5 LIKE '5'", 1, "expected a text here, not a number"),
    ("a = 'it", 5, "the text that begins here is not closed by another '"),
    ('"a = 5', 1, 'the name that begins here is not closed by another ", or is empty'),
    ("a = 09", 5, "a number that begins with 0 is octal, as in Java, and has no 8 and no 9"),
    *(("a = 12ab", 5, "this is not a valid number"), ("a = 1e999", 5, "this number is too large")),
    *(("a = 0x" + "f" * 400, 5, "this number is too large"), ("a = 0" + "7" * 400, 5, "this number is too large")),
    *(("a != 5", 3, "this is not an operator: 'not equal' is <>"), ("a = 5; b", 6, "this character is unexpected")),
    ("convert_string_expressions:a !", 30, "this is not an operator"),
    *(("a = 1 OR " * 4 + f"{name} = = 1", len(name) + 40, "expected a name") for name in ("a", "ab")),  # cut, or not
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
    begin, end = max(0, column - 1 - _SHOWN), column - 1 + _SHOWN
    assert line == "..." * (begin > 0) + text[begin:end] + "..." * (len(text) > end)
    assert caret.index("^") == (column - 1 if begin == 0 else _SHOWN + 3)
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
    bench, consumer = Bench.with_peers(1, max_subscriptions=100)
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
