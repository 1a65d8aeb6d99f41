"""Texts: the distinct texts in use, such as selectors, and their total length."""

from __future__ import annotations


class Texts:
    """Distinct texts with a count of their uses.

    >>> texts = Texts()
    >>> texts.add("a = 1"); texts.add("a = 1"); texts.length, texts.with_one("b"), texts.with_one("a = 1")
    (5, 6, 5)
    >>> texts.remove("a = 1"); texts.remove("a = 1"); texts.length
    0
    """

    __slots__ = ("_uses", "length")

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        #: Characters of all distinct texts.
        self.length = 0

    def with_one(self, text: str) -> int:
        """Return the total length with another text."""
        return self.length if text in self._uses else self.length + len(text)

    def add(self, text: str) -> None:
        """Count a use of a text."""
        self.length = self.with_one(text)
        self._uses[text] = self._uses.get(text, 0) + 1

    def remove(self, text: str) -> None:
        """Count the end of a use of a text."""
        uses = self._uses.pop(text) - 1
        if uses:
            self._uses[text] = uses
        else:
            self.length -= len(text)
