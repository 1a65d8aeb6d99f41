"""The code blocks of the README and of the pages: their languages, and whether a comment says that one is untried."""

import contextlib
import glob
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("click")

from click.testing import CliRunner
from patience import interval, patience

from stompcodec.cli.app import app
from stompcodec.testing import StompBroker

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*(\w*)\s*$")
_UNTRIED = re.compile(r"<!-- untried: (.+) -->$")
#: First words of commands, in blocks that are indented and so have no language.
_COMMANDS = ("$", "git", "make", "pip", "python", "rabbitmqctl", "stompcodec")


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
    """The reason why it is untried, as the comment below it says; "" without one."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    from sitepages import staging  # only tests of the site have it on their path

    return [ROOT / "README.md", *staging.sources().values()]


def blocks_of(path: Path) -> list[Block]:
    return list(_blocks(path.relative_to(ROOT).as_posix(), path.read_text("utf-8").split("\n")))


def _blocks(page: str, lines: list[str]) -> Iterator[Block]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if found := _FENCE.match(line):
            end = next(n for n in range(at + 1, len(lines)) if lines[n].strip() == found[2])
            text = "\n".join(each.removeprefix(found[1]) for each in lines[at + 1 : end])
            yield Block(page, at + 1, found[3] or "text", text + "\n", _reason(lines, end + 1))
            at = end + 1
        elif line.startswith("    ") and not lines[at - 1].strip():
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            while not lines[end - 1].strip():
                end -= 1
            text = "\n".join(each[4:] for each in lines[at:end]) + "\n"
            yield Block(page, at + 1, _language(text), text, _reason(lines, end))
            at = end
        else:
            at += 1


def _language(text: str) -> str:
    first = text.split(maxsplit=1)[0]
    return "sh" if first in _COMMANDS else "python" if first in ("from", "import") else "text"


def _reason(lines: list[str], after: int) -> str:
    while after < len(lines) and not lines[after].strip():
        after += 1
    paragraph = ""
    while after < len(lines) and lines[after].strip():
        paragraph += f" {lines[after].strip()}"
        after += 1
    found = _UNTRIED.fullmatch(paragraph.strip())
    return found[1] if found else ""


# ---- somebody who does what a page says ----

#: Where the pages say that the broker is.
ADDRESS = "localhost:61613"


class Reader:
    """Somebody who does what a page says, in the current folder, with a broker."""

    def __init__(self, broker: StompBroker) -> None:
        self.broker = broker
        self.names: dict[str, Any] = {}
        self.printed = ""

    def read(self, block: Block) -> None:
        """Do what a block says; one of text is what the block before it prints."""
        text = block.text.replace(ADDRESS, f"127.0.0.1:{self.broker.port}")
        text = text.replace("heart_beat=(200, 200)", f"heart_beat=({interval(200)}, {interval(200)})")
        if block.language == "python":
            self._python(block, text)
        elif block.language == "sh":
            self._commands(block, text)
        elif block.language == "text":
            assert self.printed == block.text, f"{block}: it prints something else"

    def _python(self, block: Block, text: str) -> None:
        output = io.StringIO()
        code = compile("\n" * block.line + text, block.page, "exec")
        with contextlib.redirect_stdout(output):
            exec(code, self.names)
        self.printed = output.getvalue()

    def _commands(self, block: Block, text: str) -> None:
        self.printed = ""
        for line in text.replace("\\\n", "").splitlines():
            words = [each for word in shlex.split(line, comments=True) for each in sorted(glob.glob(word)) or [word]]
            if words[0] == "python":
                self.printed += _script(block, words[1:])
            else:
                assert words[0] == "stompcodec", f"{block}: only our commands are run, the rest is untried: {line}"
                self.printed += self._verb(block, words[1:])

    def _verb(self, block: Block, words: list[str]) -> str:
        """Run a verb in this process: a process for each would take longer than all of its work."""
        environment = {"STOMPCODEC_URL": f"127.0.0.1:{self.broker.port}", "NO_COLOR": "1"}
        done = CliRunner().invoke(app, words, prog_name="stompcodec", env=environment)
        assert done.exit_code == 0, f"{block}: {words}: {done.output}{done.stderr}"
        return done.stdout


def _script(block: Block, words: list[str]) -> str:
    command = [sys.executable, ROOT / words[0], *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60))
    assert done.returncode == 0, f"{block}: {words}: {done.stderr}"
    return done.stdout
