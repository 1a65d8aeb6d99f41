"""Invariant: a text is a selector, or SelectorError says where it is none; asked about any headers, it answers soon;
and NOT, AND and OR of it mean what they should.

An input is four octets, of which the first one chooses how the rest is read, then the rest: a selector, LF, and header
lines. The selector is there as it is, or an octet from 128 on stands for a word; or octets choose what a grammar makes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from engine import drive

from stompcodec.broker.message import Message
from stompcodec.broker.selectors import (
    MOST_NESTED,
    MOST_OCTETS,
    MOST_PARTS,
    MOST_SEARCHED,
    Selector,
    SelectorError,
    compile_selector,
)

HEAD = 4
SOON = 5.0  # seconds, under sanitizers
WORDS = (
    b" AND | OR | NOT | LIKE | ESCAPE | BETWEEN | IN | IS | NULL | TRUE | FALSE |(|)|,|=|<>|<|>|<=|>=|+|-|*|/|'|\"|%|_"
    b"|!| |a|b|n|JMSPriority|AMQSize|0x1F|017|1.5e3|9223372036854775807|'it''s'|'%a_b%'|''|\"a-b\"|hyphenated_props:"
    b"|convert_string_expressions:|--|;|$|.|\xc3\xa9|\t|0|1|2|10|'10'|a-b|((((((((|NOT NOT NOT NOT "
).split(b"|")
NAMES = ("a", "b", "n", "missing", "a.b", '"a-b"', "JMSPriority", "AMQDurable", "JMSRedelivered")
NUMBERS = ("0", "1", "10", "2.5", "9223372036854775807", "1e308", "0x1F", "a", "n", "missing")
TEXTS = ("''", "'a'", "'10'", "'it''s'", "'null'", "'\"a\"'", "a", "b", "missing")
PATTERNS = ("'%'", "'a%'", "'%a_b%'", "'_'", "'a!%' ESCAPE '!'", "''", "'%_%%__a%'", "'1%0'")
VALUES = (
    *("", "a", "ab", "10", "-2.5", "true", "false", "null", '"a"', '"10"', "[1]", "1e400", "é", "\\n", " 1 ", "a\\cb"),
    "0" * 30,
)


def check(data: bytes) -> None:
    how, rest = data[:1], data[HEAD:]
    chosen = how[0] % 4 if how else 0
    if chosen > 1:
        octets = iter(rest)
        text = condition(octets, 4)
        head = "".join(f"{name}:{pick(octets, VALUES)}\n" for name in ("a", "b", "n", "a.b", "a-b")).encode()
    else:
        start, _, head = rest.partition(b"\n")
        if chosen:
            start = b"".join(WORDS[octet % len(WORDS)] if octet > 127 else bytes((octet,)) for octet in start)
        text = start.decode("utf-8", "surrogateescape")
    check_text(text, message_of(head), must=chosen > 1)


def check_text(text: str, message: Message, must: bool) -> None:
    start = time.perf_counter()
    try:
        selector = compile_selector(text)
    except SelectorError as error:
        check_error(error, must)
        return
    truth = truth_of(selector, message)
    assert truth in (True, False, None)
    assert selector.matches(message) is (truth is True)
    assert time.perf_counter() - start < SOON
    bare = text.lstrip()
    if bare and not bare.startswith(("convert_string_expressions:", "hyphenated_props:")):
        check_laws(text, truth, message)


def truth_of(selector: Selector, message: Message) -> bool | None:
    """Return what the condition says, as `matches` asks it; None is unknown, which `matches` takes for false."""
    tail = message.tail
    head = b"\n" if tail[0] == 10 else b"\n" + tail[: tail.find(b"\n\n") + 1]
    return selector._condition(head, message, {})


def check_laws(text: str, truth: bool | None, message: Message) -> None:
    laws = {
        f"NOT ({text})": None if truth is None else not truth,
        f"({text}) AND ({text})": truth,
        f"({text}) OR NOT ({text})": None if truth is None else True,
        f"({text}) AND missing": False if truth is False else None,
        f"({text}) OR missing": True if truth else None,
        f"\r\n\t( {text} )\n": truth,
    }
    for law, expected in laws.items():
        try:
            selector = compile_selector(law)
        except SelectorError as error:
            check_error(error, must=True)
        else:
            assert truth_of(selector, message) is expected, law


def check_error(error: SelectorError, must: bool) -> None:
    """With `must`, only a bound may be wrong with it."""
    bounds = (f"{MOST_OCTETS} octets", f"than {MOST_NESTED}", f"than {MOST_PARTS}", f"than {MOST_SEARCHED}")
    assert not must or any(bound in error.why for bound in bounds), error
    assert 1 <= error.column <= len(error.text) + 1
    assert len(str(error).split("\n")) == 3


def message_of(head: bytes) -> Message:
    """A message with these lines for headers; none is called missing, and what no header can be is left out."""
    lines = head.replace(b"\0", b"").split(b"\n")
    lines = [line for line in lines if b":" in line[1:] and not line.startswith(b"missing:")]
    return Message(b"m-1", 1, "/queue/a", b"\n".join([b"destination:/queue/a", *lines, b"", b"body\n\na:1\n\0"]))


# ---- the grammar ----

COMPARE = ("=", "<>", "<", "<=", ">", ">=")
Octets = Iterator[int]


def pick(octets: Octets, words: tuple[str, ...]) -> str:
    return words[next(octets, 0) % len(words)]


def number(octets: Octets, depth: int) -> str:
    how = next(octets, 0) % 6
    if not depth or how < 3:
        return pick(octets, NUMBERS)
    if how == 3:
        return f"- {number(octets, depth - 1)}"
    both = f"{number(octets, depth - 1)} {pick(octets, ('+', '-', '*', '/'))} {number(octets, depth - 1)}"
    return both if how == 4 else f"({both})"


def test(octets: Octets, depth: int) -> str:
    makers: tuple[Callable[[], str], ...] = (
        lambda: f"{number(octets, depth)} {pick(octets, COMPARE)} {number(octets, depth)}",
        lambda: f"{pick(octets, TEXTS)} {pick(octets, COMPARE)} {pick(octets, TEXTS)}",
        lambda: f"{pick(octets, NAMES)} {pick(octets, COMPARE)} {pick(octets, (*NUMBERS, *TEXTS))}",
        lambda: f"{pick(octets, TEXTS)} {pick(octets, ('', 'NOT '))}LIKE {pick(octets, PATTERNS)}",
        lambda: (
            f"{number(octets, depth)} {pick(octets, ('', 'NOT '))}BETWEEN {number(octets, 1)} AND {number(octets, 0)}"
        ),
        lambda: f"{pick(octets, NAMES)} {pick(octets, ('', 'NOT '))}IN ({pick(octets, TEXTS[:6])}, -1, TRUE)",
        lambda: f"{pick(octets, NAMES)} IS {pick(octets, ('', 'NOT '))}NULL",
        lambda: pick(octets, ("a", "n", "TRUE", "JMSRedelivered", "a = TRUE", "(a = b) <> FALSE")),
    )
    return makers[next(octets, 0) % len(makers)]()


def condition(octets: Octets, depth: int) -> str:
    how = next(octets, 0) % 6
    if not depth or how < 2:
        return test(octets, 2)
    if how == 2:
        return f"NOT {test(octets, 1)}"
    both = f"{condition(octets, depth - 1)} {pick(octets, ('AND', 'OR'))} {condition(octets, depth - 1)}"
    return f"({both})" if how < 5 else both


if __name__ == "__main__":
    drive(check)
