"""An extension of Griffe that makes our docstrings Markdown: examples become code, shared Args are split."""

from __future__ import annotations

import re
from typing import Any

import griffe

#: An example of doctest: its first line, and all up to an empty line.
_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)
#: A line of Args that explains several parameters.
_SHARED = re.compile(r"^(    )(\*{0,2}\w+(?:, \*{0,2}\w+)+): (.*(?:\n {6,}.*)*)", re.MULTILINE)


def markdown(text: str) -> str:
    text = _EXAMPLE.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
    return _SHARED.sub(lambda found: "\n".join(f"{found[1]}{name}: {found[3]}" for name in found[2].split(", ")), text)


class Docstrings(griffe.Extension):
    """Rewrite the docstring of each object once it is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)
