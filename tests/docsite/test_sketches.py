"""Blocks that leave something out, such as your handler, run with it put in."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from docsite.blocks import ROOT, Block, blocks_of
from docsite.reader import Reader
from patience import patience

pytest.importorskip("click")

import stompcodec.client as stomp
from stompcodec import Frame, compat
from stompcodec.capture import CaptureWriter, octets_of
from stompcodec.testing import StompBroker


def _block(page: str, begins: str) -> Block:
    [block] = [block for block in blocks_of(ROOT / page) if block.text.startswith(begins) and not block.untried]
    return block


class _DoneError(Exception):
    """Ends a loop that would go on."""


def test_the_client_of_the_readme() -> None:
    block = _block("README.md", 'import stompcodec.client as stomp\n\nwith stomp.connect("failover:')
    worked: list[bytes] = []

    def work(message: stomp.Message) -> None:
        worked.append(message.body)
        if len(worked) == 2:
            raise _DoneError

    with StompBroker() as broker:
        text = block.text.replace("stomp://a:61613", f"stomp://127.0.0.1:{broker.port}")
        with pytest.raises(_DoneError):
            exec(compile(text, block.page, "exec"), {"fetch_token": lambda: "a token", "work": work})
        assert worked == [b"1", b"2"]
        assert broker.queued("/queue/orders") == 1, "the second one was refused"
        assert broker.expect("CONNECT", login="me")


SERVICE = """
import stompcodec.client as stomp

def start_my_service(url):
    client = stomp.connect(url)
    answer = lambda message: client.send("/queue/answers", message.body)
    client.subscribe("/queue/orders", ack="client-individual", handler=answer)
"""


@pytest.mark.long
def test_the_test_of_the_readme(tmp_path: Path) -> None:
    block = _block("README.md", "def test_orders_are_answered")
    (tmp_path / "test_it.py").write_text(SERVICE + block.text, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=patience(60))
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/compat.md"])
def test_one_line_puts_stomp_py_on_our_codec(page: str) -> None:
    pytest.importorskip("stomp")
    block = _block(page, "from stompcodec import compat")
    try:
        exec(compile(block.text, block.page, "exec"), {})
        with pytest.raises(compat.PeerError, match="already installed"):
            compat.install("stomp.py", quirks=False)
    finally:
        compat.undo()


def test_a_capture_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    block = _block("docs/capture-format.md", "from stompcodec.capture")
    monkeypatch.chdir(tmp_path)
    with CaptureWriter(tmp_path / "feed.stompcap") as writer:
        writer.append(octets_of(Frame("MESSAGE", {"destination": "/topic/feed"}, b"x")), time=7)
    exec(compile(block.text, block.page, "exec"), {})
    assert capsys.readouterr().out == "0 7 /topic/feed\n"


def test_queue_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = _block("docs/queue-tools.md", "stompcodec browse")
    monkeypatch.chdir(tmp_path)
    with StompBroker(max_attempts=1) as broker, stomp.connect(broker.url) as client:
        for region in ("eu", "us", "eu"):
            client.send("/queue/orders", region, {"region": region}, receipt=True)
        with client.subscribe("/queue/orders", ack="client-individual", prefetch=1) as messages:
            message = messages.get(patience(5))
            assert message is not None
            message.nack(receipt=True)
        broker.wait_queued("/queue/DLQ.orders", 1, timeout=patience(5))
        Reader(broker).read(Block(block.page, block.line, "sh", block.text.replace("retry ", "retry --yes "), ""))
        assert [broker.queued(f"/queue/{name}") for name in ("orders.eu", "DLQ.orders", "orders")] == [1, 0, 2]


needs_shell = pytest.mark.skipif(sys.platform == "win32", reason="the commands are for a shell of POSIX")


def _shell(text: str, url: str, folder: Path) -> str:
    """Run commands in a POSIX shell, end what is left in the background, and return what they printed."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "STOMPCODEC_URL": url, "NO_COLOR": "1"}
    with (folder / "printed").open("wb") as out, (folder / "said").open("wb") as err:
        where = {"cwd": folder, "env": environment, "stdout": out, "stderr": err}
        shell = subprocess.Popen(["sh", "-euc", text], start_new_session=True, **where)
        try:
            status = shell.wait(patience(60))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)
    assert status == 0, (folder / "said").read_text("utf-8")
    return (folder / "printed").read_text("utf-8")


@pytest.mark.long
@needs_shell
def test_requests_are_answered(tmp_path: Path) -> None:
    block = _block("docs/cli.md", "stompcodec reply")
    commands, answer = block.text.splitlines()[:2], block.text.splitlines()[2]
    with StompBroker() as broker:
        assert _shell("\n".join(commands), broker.url, tmp_path) == answer


@pytest.mark.long
@needs_shell
def test_the_bridge_moves_a_queue(tmp_path: Path) -> None:
    filled = _block("docs/bridge.md", "seq").text
    moved, shown = _block("docs/bridge.md", "$ stompcodec bridge").text.split("\n\n")
    with StompBroker() as one, StompBroker() as two:

        def printed(text: str) -> str:
            command = text.splitlines()[0].removeprefix("$ ").replace("localhost:61613", one.url)
            return _shell(command.replace("localhost:61614", two.url), one.url, tmp_path)

        printed(filled)
        assert one.queued("/queue/orders") == 1000
        printed(moved)
        assert (one.queued("/queue/orders"), two.queued("/queue/orders")) == (0, 1000)
        message = json.loads(printed(shown))
        assert message["body"] == "1"
        assert set(re.findall(r'\["([\w-]+)",', shown)) <= {name for name, _ in message["headers"]}
