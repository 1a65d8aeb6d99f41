"""Selectors: conditions on messages, in the SQL 92 syntax of JMS; docs/selectors.md describes them.

compile_selector   text to Selector, cached                       this file
the rules          each to a function of a message                compile.py
"""

from __future__ import annotations

import logging
from functools import lru_cache

from stompcodec.broker.message import Message
from stompcodec.broker.selectors.compile import Condition, SelectorFault
from stompcodec.broker.selectors.grammar import condition_of
from stompcodec.broker.selectors.values import Known
from stompcodec.errors import StompError

_LOG = logging.getLogger("stompcodec.broker")
#: Maximum size of a selector, in bytes.
MOST_OCTETS = 4096
#: Selectors kept in the cache, whether a subscription uses them or not.
_REMEMBERED = 128
#: Prefixes that Artemis accepts before a selector, in any order.
_CONVERT, _HYPHENS = "convert_string_expressions:", "hyphenated_props:"
#: Characters shown on each side of an error.
_SHOWN = 40


class SelectorError(StompError, ValueError):
    """A text that is not a selector. The message shows the wrong character, whose index is `at`, and why it is wrong.

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
    """A compiled selector, made by `compile_selector`.

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
        """Return whether the selector is true of a message. Unknown counts as false.

        Never raises, because a subscriber's selector runs while somebody else is sending.
        """
        tail = message.tail
        # Put each header line between two line feeds: the first header of a name is then found by its name alone.
        head = b"\n" if tail[0] == 10 else b"\n" + tail[: tail.find(b"\n\n") + 1]
        try:
            return self._condition(head, message, {}) is True
        except Exception:
            if not self._failed:
                self._failed = True
                _LOG.exception("a selector failed on message %s, which counts as no match", message.id)
            return False


def _all(_head: bytes, _message: Message, _known: Known) -> bool:
    """Return True. JMS treats an empty selector as no selector."""
    return True


def _without_prefixes(text: str) -> tuple[str, bool, bool]:
    """Replace prefixes by spaces, which keeps columns; also return whether names have hyphens and texts convert."""
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
    """Compile the value of a header `selector`, or return it from the cache. Rules: ART-SEL-01, S10-SUB-06,
    WISH-JSN-07.

    Raise SelectorError if it is not valid, longer than `MOST_OCTETS` bytes in UTF-8, or nested too deeply;
    MissingExtraError if lark is not installed, which comes with the extra `broker`.

    >>> try:
    ...     compile_selector("color = = 'red'")
    ... except SelectorError as error:
    ...     print(error)
    column 9 of the selector: expected a name, a number, a text in '...' or (, not =
    color = = 'red'
            ^
    """
    if len(text.encode("utf-8", "surrogatepass")) > MOST_OCTETS:
        raise SelectorError(text[: 2 * _SHOWN], 0, f"it is longer than {MOST_OCTETS} bytes")
    try:
        return Selector(text, condition_of(*_without_prefixes(text)) if text.strip() else _all)
    except SelectorFault as error:
        raise SelectorError(text, error.at, error.why) from None
