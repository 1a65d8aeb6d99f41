"""Print what extras of pyproject.toml require, a line each, so that an environment has it before the package is built.

python scripts/requirements.py EXTRA ...
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

EXTRAS = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]


def required(extra: str) -> Iterator[str]:
    """Yield the requirements of an extra, those of other extras that it names among them."""
    for requirement in EXTRAS[extra]:
        own = re.fullmatch(r"stompcodec\[(\w+)\]", requirement)
        yield from required(own[1]) if own else [requirement]


if __name__ == "__main__":
    print("\n".join(dict.fromkeys(line for extra in sys.argv[1:] for line in required(extra))))
