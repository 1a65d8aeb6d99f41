"""Selectors: which messages a subscription wants, in the SQL 92 of JMS. docs/selectors.md says what they mean.

compile_selector   text to Selector, and remembers the latest     this file
the grammar        text to rules, by lark                         grammar.py
the rules          each one to a function of a message            compile.py
the values         headers by type, comparing, LIKE               values.py
"""

from __future__ import annotations

import logging
from functools import lru_cache

from stompcodec.broker.message import Message
from stompcodec.broker.selectors.compile import Condition, Misfit
from stompcodec.broker.selectors.grammar import condition_of
from stompcodec.broker.selectors.values import Known
from stompcodec.errors import StompError

__all__ = ["MOST_OCTETS", "Selector", "SelectorError", "compile_selector"]

_LOG = logging.getLogger("stompcodec.broker")
#: Octets of a selector.
MOST_OCTETS = 4096
#: Selectors that are remembered, whether or not a subscription uses them.
_REMEMBERED = 128
#: What Artemis takes in front of a selector, in any order.
_CONVERT, _HYPHENS = "convert_string_expressions:", "hyphenated_props:"
#: Letters that are shown on either side of the one that is wrong.
_SHOWN = 40


class SelectorError(StompError, ValueError):
    """A text that is no selector. The message shows where.

    Args:
        text: the selector.
        at: index of the letter that is wrong.
        why: what is wrong there.

    >>> print(SelectorError("color == 'red'", 7, "expected a name"))
    column 8 of the selector: expected a name
    color == 'red'
           ^
    """

    def __init__(self, text: str, at: int, why: str) -> None:
        self.text = text
        #: Counted from 1.
        self.column = at + 1
        self.why = why
        start, end = max(0, at - _SHOWN), at + _SHOWN
        before, after = "..." * (start > 0), "..." * (end < len(text))
        shown = "".join(letter if letter.isprintable() else " " for letter in text[start:end])
        caret = " " * (len(before) + at - start) + "^"
        super().__init__(f"column {self.column} of the selector: {why}\n{before}{shown}{after}\n{caret}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.text, self.column - 1, self.why)


class Selector:
    """A selector that is ready to be asked. `compile_selector` makes it.

    Args:
        text: what it was made of.
        condition: what it became.

    >>> red = compile_selector("color = 'red' AND n > 9")
    >>> red.matches(Message(b"m-1", 1, "/queue/a", b"color:red\\nn:10\\n\\n\\0"))
    True
    """

    __slots__ = ("_condition", "_failed", "text")

    def __init__(self, text: str, condition: Condition) -> None:
        self.text = text
        self._condition = condition
        self._failed = False

    def __repr__(self) -> str:
        return f"<Selector {self.text!r:.200}>"

    def matches(self, message: Message) -> bool:
        """Tell whether it is true of the message. What is unknown is not.

        It never raises: one subscriber's selector is asked in the turn of somebody else, who sends.
        """
        tail = message.tail  # as in `truth`, for a call takes time
        head = b"\n" if tail[0] == 10 else b"\n" + tail[: tail.find(b"\n\n") + 1]
        try:
            return self._condition(head, message, {}) is True
        except Exception:
            if not self._failed:
                self._failed = True
                _LOG.exception("a selector fails on message %s: it does not match what it fails on", message.id)
            return False

    def truth(self, message: Message) -> bool | None:
        """True, False, or None for unknown."""
        tail = message.tail
        # Each header line between two line feeds: the first one of a name is found by its name alone.
        head = b"\n" if tail[0] == 10 else b"\n" + tail[: tail.find(b"\n\n") + 1]
        return self._condition(head, message, {})


def _all(_head: bytes, _message: Message, _known: Known) -> bool:
    """To JMS, a selector of nothing is no selector."""
    return True


def _without_prefixes(text: str) -> tuple[str, bool, bool]:
    """Spaces for the prefixes, so that columns stay; whether names have hyphens; whether texts convert."""
    found = set()
    while True:
        bare = text.lstrip()
        for prefix in (_CONVERT, _HYPHENS):
            if bare.startswith(prefix):
                found.add(prefix)
                text = " " * (len(text) - len(bare) + len(prefix)) + bare[len(prefix) :]
                break
        else:
            return text, _HYPHENS in found, _CONVERT in found


@lru_cache(maxsize=_REMEMBERED)
def compile_selector(text: str) -> Selector:
    """A selector from its text.

    Args:
        text: the value of the header `selector`, at most `MOST_OCTETS` in UTF-8.

    Raises:
        SelectorError: it is none; or too long, or nested too deep.
        MissingExtraError: lark is not installed: it comes with the extra `broker`.

    Rules: ART-SEL-01, S10-SUB-06, WISH-JSN-07.

    >>> try:
    ...     compile_selector("color = = 'red'")
    ... except SelectorError as error:
    ...     print(error)
    column 9 of the selector: expected a name, a number, a text in '...' or (, not =
    color = = 'red'
            ^
    """
    if len(text.encode("utf-8", "surrogatepass")) > MOST_OCTETS:
        raise SelectorError(text[: 2 * _SHOWN], 0, f"it is longer than {MOST_OCTETS} octets")
    try:
        return Selector(text, condition_of(*_without_prefixes(text)) if text.strip() else _all)
    except Misfit as error:
        raise SelectorError(text, error.at, error.why) from None
