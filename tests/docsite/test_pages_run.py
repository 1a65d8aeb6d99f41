"""Pages of the site, block by block and in their order, on a broker: what their commands and their Python print."""

from __future__ import annotations

import contextlib
import glob
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from docsite.blocks import ROOT, Block, blocks_of
from patience import interval

from stompcodec.testing import StompBroker

pytest.importorskip("click")

from click.testing import CliRunner

from stompcodec.cli.app import app

#: The pages, and how the broker is configured that they talk to.
PAGES: dict[str, dict[str, Any]] = {
    "docs/tutorial.md": {},
    "docs/traffic.md": {},
    "docs/rabbitmq.md": {"dialect": "rabbitmq"},
    "docs/activemq.md": {"dialect": "activemq"},
    "docs/artemis.md": {"dialect": "artemis"},
}
ADDRESS = "localhost:61613"


class Reader:
    """Somebody who does what a page says, in a folder, with a broker."""

    def __init__(self, broker: StompBroker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
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
        """Run the verbs of a block in this process: a process for each would take longer than all of its work."""
        self.printed = ""
        for line in text.replace("\\\n", "").splitlines():
            words = [each for word in shlex.split(line, comments=True) for each in sorted(glob.glob(word)) or [word]]
            assert words[0] == "stompcodec", f"{block}: only our command is run, the rest is untried: {line}"
            environment = {"STOMPCODEC_URL": f"127.0.0.1:{self.broker.port}", "NO_COLOR": "1"}
            done = CliRunner().invoke(app, words[1:], prog_name="stompcodec", env=environment)
            assert done.exit_code == 0, f"{block}: {line}: {done.output}{done.stderr}"
            self.printed += done.stdout


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page == "docs/tutorial.md":
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    tried = [block for block in blocks_of(ROOT / page) if not block.untried]
    assert len(tried) > 1
    with StompBroker(**PAGES[page]) as broker:
        reader = Reader(broker, tmp_path)
        for block in tried:
            reader.read(block)


def test_a_wrong_block_is_noticed(tmp_path: Path) -> None:
    with StompBroker() as broker:
        reader = Reader(broker, tmp_path)
        reader.read(Block("p", 1, "python", "print(1 + 1)\n", ""))
        reader.read(Block("p", 2, "text", "2\n", ""))
        with pytest.raises(AssertionError, match="it prints something else"):
            reader.read(Block("p", 3, "text", "3\n", ""))
        with pytest.raises(ZeroDivisionError):
            reader.read(Block("p", 4, "python", "1 / 0\n", ""))


def test_a_command_that_fails_is_noticed(tmp_path: Path) -> None:
    with StompBroker() as broker:
        reader = Reader(broker, tmp_path)
        with pytest.raises(AssertionError, match="No such option"):
            reader.read(Block("p", 1, "sh", "stompcodec pub --no-such-option\n", ""))


def test_tables_of_errors_are_right() -> None:
    """What the pages of brokers say of an error is what it says."""
    import stompcodec.client as stomp

    with (
        StompBroker(dialect="activemq") as broker,
        stomp.connect(broker.url) as client,
        pytest.raises(stomp.LocalProtocolError) as raised,
    ):
        client.subscribe("/topic/a", durable="a")
    page = (ROOT / "docs" / "activemq.md").read_text("utf-8")
    assert str(raised.value) in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
