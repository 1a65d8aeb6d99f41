"""Blocks of ARCHITECTURE.md and of other pages that scripts write.

Each script owns one block and leaves the rest of the page alone.

A block stands between `<!-- NAME: written by scripts/SCRIPT -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "ARCHITECTURE.md"


def replaced(page: str, name: str, text: str) -> str:
    """Return the page with another text in a block.

    Raises:
        ValueError: the page does not have that block just once.

    >>> replaced("<!-- a: by b -->\\nold\\n<!-- end of a -->\\n", "a", "new")
    '<!-- a: by b -->\\n\\nnew\\n\\n<!-- end of a -->\\n'
    """
    block = re.compile(rf"(<!-- {re.escape(name)}: [^>]*-->\n).*?(<!-- end of {re.escape(name)} -->\n)", re.DOTALL)
    if len(block.findall(page)) != 1:
        raise ValueError(f"the page needs one block {name!r}: <!-- {name}: … --> and <!-- end of {name} -->")
    return block.sub(lambda found: f"{found[1]}\n{text.strip()}\n\n{found[2]}", page)


def run(name: str, draw: Callable[[], str], arguments: Sequence[str], path: Path | None = None) -> int:
    """Write a block of a page, or check it.

    Args:
        name: of the block.
        draw: makes its text.
        arguments: `--check` compares the block with what would be written, and writes nothing.

        path: of the page; None for ARCHITECTURE.md.

    Returns:
        The exit status: 1 if the block is stale.
    """
    path = path or PAGE
    page = path.read_text("utf-8")
    fresh = replaced(page, name, draw())
    script = Path(sys.modules[draw.__module__].__file__ or "").name
    if "--check" not in arguments:
        path.write_text(fresh, "utf-8")
        print(f"{path.name}, {name}: {'up to date' if fresh == page else 'written'}")
        return 0
    for line in list(difflib.unified_diff(page.splitlines(), fresh.splitlines(), "the page", "the code", "", "", 1))[
        :40
    ]:
        print(line)
    print(f"{path.name}, {name}: {'up to date' if fresh == page else f'stale, run scripts/{script}'}")
    return int(fresh != page)
