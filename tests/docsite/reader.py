"""Somebody who does what a page says: its commands and its Python, block by block, beside a broker."""

import contextlib
import glob
import io
import shlex
import subprocess
import sys
from typing import Any

import pytest
from docsite.blocks import ROOT, Block
from patience import interval, patience

from stompcodec.testing import StompBroker

pytest.importorskip("click")

from click.testing import CliRunner

from stompcodec.cli.app import app

__all__ = ["Reader"]

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
