"""The code blocks of the README and of the pages: what language each is, and whether a line says that it is untried."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*(\w*)\s*$")
_UNTRIED = re.compile(r"\*untried: (.+)\*$")
#: First words of commands, in blocks that are indented and so have no language.
_COMMANDS = (
    *("$", "apt-get", "cat", "cd", "curl", "eval", "export", "git", "make", "pip", "python", "python3", "rabbitmqctl"),
    *("seq", "stompcodec", "tail", "tcpdump", "uvx"),
)
_SETTING = re.compile(r"[A-Z][A-Z0-9_]+=\S+ (?:pip|make|stompcodec)\b")


class Block(NamedTuple):
    """A code block."""

    page: str
    """Its path in the tree."""
    line: int
    """The line on which it begins, from 1."""
    language: str
    """As its fence says, or as its first line looks; "text" for what is no code."""
    text: str
    untried: str
    """The reason why it is untried, as the line below it says; "" without one."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return the README and everything that the site has and somebody wrote."""
    from sitepages import staging  # only tests of the site have it on their path

    return [ROOT / "README.md", *staging.sources().values()]


def blocks_of(path: Path) -> list[Block]:
    """Return the blocks of a page."""
    return list(_blocks(path.relative_to(ROOT).as_posix(), path.read_text("utf-8").split("\n")))


def _blocks(page: str, lines: list[str]) -> Iterator[Block]:
    at, before = 0, ""
    while at < len(lines):
        line = lines[at]
        if found := _FENCE.match(line):
            end = next(n for n in range(at + 1, len(lines)) if lines[n].strip() == found[2])
            text = "\n".join(each.removeprefix(found[1]) for each in lines[at + 1 : end])
            yield Block(page, at + 1, found[3] or "text", text + "\n", _reason(lines, end + 1))
            at, before = end + 1, "code"
        elif line.startswith("    ") and not lines[at - 1].strip() and not _in_list(lines, at):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            while not lines[end - 1].strip():
                end -= 1
            text = "\n".join(each[4:] for each in lines[at:end]) + "\n"
            yield Block(page, at + 1, _language(text), text, _reason(lines, end))
            at, before = end, "code"
        else:
            at, before = at + 1, line.strip() or before


def _in_list(lines: list[str], at: int) -> bool:
    """True if an indented line belongs to an item of a list."""
    above = [line for line in lines[:at] if line.strip()]
    while above and above[-1].startswith("  ") and not above[-1].startswith("    "):
        above.pop()
    return bool(above) and re.match(r"\s*(?:[-*]|\d+\.)\s", above[-1]) is not None


def _language(text: str) -> str:
    first = text.split(maxsplit=1)[0]
    if first in _COMMANDS or _SETTING.match(text):
        return "sh"
    if first == ">>>":
        return "pycon"
    if first in ("from", "import"):
        return "python"
    return "text"


def _reason(lines: list[str], after: int) -> str:
    while after < len(lines) and not lines[after].strip():
        after += 1
    paragraph = ""
    while after < len(lines) and lines[after].strip():
        paragraph += f" {lines[after].strip()}"
        after += 1
    found = _UNTRIED.fullmatch(paragraph.strip())
    return found[1] if found else ""
