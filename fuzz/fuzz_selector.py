"""Invariant: a text is a selector, or SelectorError says where it is none; asked about any headers, it answers soon;
NOT, AND and OR of it mean what they should, and well-formed conditions what SQLite makes of them.

An input is four octets, of which the first one chooses how the rest is read, then the rest: a selector, LF, and header
lines. The selector is there as it is, or an octet from 128 on stands for a word; or the octets are the choices of
`tests/broker/selectors/test_selector_sqlite.py`.
"""

from __future__ import annotations

import time

from case import drive

# isort: split
from broker.selectors.test_selector_sqlite import test_both_agree

from stompcodec.broker import selectors
from stompcodec.broker.message import Message
from stompcodec.broker.selectors import Selector, SelectorError, compile_selector

HEAD = 4
SOON = 5.0  # seconds, under sanitizers
WORDS = (
    b" AND | OR | NOT | LIKE | ESCAPE | BETWEEN | IN | IS | NULL | TRUE | FALSE |(|)|,|=|<>|<|>|<=|>=|+|-|*|/|'|\"|%|_"
    b"|!| |a|b|n|JMSPriority|AMQSize|0x1F|017|1.5e3|9223372036854775807|'it''s'|'%a_b%'|''|\"a-b\"|hyphenated_props:"
    b"|convert_string_expressions:|--|;|$|.|\xc3\xa9|\t|0|1|2|10|'10'|a-b|((((((((|NOT NOT NOT NOT "
).split(b"|")
agree = test_both_agree.hypothesis.fuzz_one_input


def check(data: bytes) -> None:
    how, rest = data[:1], data[HEAD:]
    chosen = how[0] % 4 if how else 0
    if chosen > 1:
        agree(rest)
        return
    start, _, head = rest.partition(b"\n")
    if chosen:
        start = b"".join(WORDS[octet % len(WORDS)] if octet > 127 else bytes((octet,)) for octet in start)
    check_text(start.decode("utf-8", "surrogateescape"), message_of(head))


def check_text(text: str, message: Message) -> None:
    start = time.perf_counter()
    try:
        selector = compile_selector(text)
    except SelectorError as error:
        check_error(error)
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


def check_error(error: SelectorError, must: bool = False) -> None:
    """With `must`, only a bound may be wrong with it."""
    bounds = {f"{getattr(selectors, f'MOST_{name}')}" for name in ("OCTETS", "NESTED", "PARTS", "SEARCHED")}
    assert not must or bounds & set(error.why.split()), error
    assert 1 <= error.column <= len(error.text) + 1
    assert len(str(error).split("\n")) == 3


def message_of(head: bytes) -> Message:
    """A message with these lines for headers; none is called missing, and what no header can be is left out."""
    lines = head.replace(b"\0", b"").split(b"\n")
    lines = [line for line in lines if b":" in line[1:] and not line.startswith(b"missing:")]
    return Message(b"m-1", 1, "/queue/a", b"\n".join([b"destination:/queue/a", *lines, b"", b"body\n\na:1\n\0"]))


if __name__ == "__main__":
    drive(check)
