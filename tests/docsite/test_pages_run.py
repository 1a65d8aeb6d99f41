"""Pages of the site do what they say: block by block and in their order, on a broker; with what a block leaves out put
in, such as your handler; applied to a copy of the package; and by a reader that knows only what the page says."""

import contextlib
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from cli.packets import ACK, CLIENT, SERVER, SYN, ethernet, pcapng, tcp
from docsite.blocks import ROOT, Block, blocks_of
from docsite.reader import Reader
from patience import patience

pytest.importorskip("click")

import stompcodec
import stompcodec.client as stomp
from stompcodec import Frame, compat, serialize
from stompcodec.capture import CaptureWriter, octets_of
from stompcodec.testing import StompBroker

#: The pages, and how the broker is configured that they talk to.
PAGES: dict[str, dict[str, Any]] = {
    "docs/tutorial.md": {},
    "docs/traffic.md": {},
    "docs/rabbitmq.md": {"dialect": "rabbitmq"},
    "docs/activemq.md": {"dialect": "activemq"},
    "docs/artemis.md": {"dialect": "artemis"},
}


def _packets() -> bytes:
    """Return a capture as tcpdump writes it, of a connection that sends a message."""
    frames = serialize(Frame("SEND", {"destination": "/queue/a"}, b"hello"))
    opened = [tcp(CLIENT, SERVER, 0, flags=SYN), tcp(SERVER, CLIENT, 0, flags=SYN | ACK)]
    return pcapng([(0, ethernet(packet)) for packet in (*opened, tcp(CLIENT, SERVER, 1, frames))])


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page == "docs/tutorial.md":
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    if page == "docs/traffic.md":
        (tmp_path / "traffic.pcapng").write_bytes(_packets())
    tried = [block for block in blocks_of(ROOT / page) if not block.untried]
    assert len(tried) > 1
    with StompBroker(**PAGES[page]) as broker:
        reader = Reader(broker)
        for block in tried:
            reader.read(block)


# ---- blocks that leave something out ----


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
    moved = _block("docs/bridge.md", "$ stompcodec bridge").text
    with StompBroker() as one, StompBroker() as two:

        def printed(text: str) -> str:
            command = text.splitlines()[0].removeprefix("$ ").replace("localhost:61613", one.url)
            return _shell(command.replace("localhost:61614", two.url), one.url, tmp_path)

        printed(filled)
        assert one.queued("/queue/orders") == 1000
        printed(moved)
        assert (one.queued("/queue/orders"), two.queued("/queue/orders")) == (0, 1000)


# ---- docs/how-to-extend.md ----


def _change(root: Path, block: str) -> None:
    """Apply a block: of each part, the lines without "+" stand in the file once, and become those without "-"."""
    for part in block.removeprefix("--- ").split("\n--- "):
        name, _, lines = part.partition("\n")
        signs = [(line[:1], line[1:]) for line in lines.split("\n")]
        old, new = ("\n".join(line for sign, line in signs if sign not in ("", left)) for left in "+-")
        if not old:
            (root / name).write_text(new, "utf-8")
            continue
        text = (root / name).read_text("utf-8")
        assert text.count(old) == 1, f"{name} has this {text.count(old)} times: {old}"
        (root / name).write_text(text.replace(old, new), "utf-8")


def _steps() -> Iterator[tuple[list[str], str]]:
    """Yield the changes of each recipe, and what is run then."""
    found = re.findall(
        r"^```(diff|python)\n(.*?)\n```$",
        (ROOT / "docs" / "how-to-extend.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    changes: list[str] = []
    for kind, blocks in groupby(found, lambda block: block[0]):
        texts = [text for _, text in blocks]
        if kind == "python":
            yield changes, *texts
        changes = texts


def test_each_recipe_works_as_written(tmp_path: Path) -> None:
    shutil.copytree(Path(stompcodec.__file__).parent, tmp_path / "stompcodec", ignore=shutil.ignore_patterns("*.pyc"))
    (tmp_path / "scripts").mkdir()
    shutil.copy2(ROOT / "scripts" / "unasync.py", tmp_path / "scripts")
    pure, others = [], []
    for changes, program in _steps():
        (pure if "STOMPCODEC_PURE=1" in program else others).append((changes, program))
    for backend, steps in (("", others), ("1", pure)):  # C knows the rules of before
        for change in (change for changes, _ in steps for change in changes):
            _change(tmp_path, change)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "STOMPCODEC_PURE": backend, "STOMPCODEC_PLAIN": "0"}
        if not backend:
            subprocess.run([sys.executable, tmp_path / "scripts" / "unasync.py"], check=True, env=environment)
        program = "\n".join(program for _, program in steps)
        command, where = [sys.executable, "-c", program], {"cwd": tmp_path, "env": environment}
        ran = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), **where)
        assert ran.returncode == 0, f"{program}\n{ran.stderr}"
    assert len(others) >= 5


# ---- docs/capture-format.md ----

WRITTEN = [octets_of(Frame("MESSAGE", {"destination": "/topic/feed"}, b"x" * size)) for size in (1, 100, 0)]
TIMES = [1_700_000_000_000_000, 0, 1_700_000_000_000_007]


def rows_of(index: bytes, base: int, frames: bytes) -> list[tuple[int, int]]:
    """Return end and time of each row, and of the seal, by the tables of the page."""
    assert len(index) % 24 == 0
    magic, start, zero, check = struct.unpack("<8sQII", index[:24])
    assert (magic, start, zero) == (b"stompix1", base, 0)
    assert check == zlib.crc32(index[:20])
    rows, before = [], 0
    for at in range(24, len(index), 24):
        end, time, of_frames, sum_ = struct.unpack("<QqII", index[at : at + 24])
        assert sum_ == zlib.crc32(index[at : at + 20], check)
        check = sum_
        if end >= 2**63:
            assert (end - 2**63, of_frames, at + 24) == (before, 0, len(index))
        else:
            assert of_frames == zlib.crc32(frames[before:end])
            before = end
        rows.append((end, time))
    return rows


def captured(path: Path, **options: bool) -> list[tuple[int, int]]:
    """Write a capture of all frames, and return the rows that it must have."""
    expected, end = [], 0
    with CaptureWriter(path, **options) as writer:
        for frame, time in zip(WRITTEN, TIMES):
            writer.append(frame, time)
            writer.sync()
            end += len(frame)
            expected.append((end, time))
    return [*expected, (end + 2**63, TIMES[-1])]


def test_a_folder_and_a_single_file_are_as_the_page_has_it(tmp_path: Path) -> None:
    expected = captured(tmp_path / "feed.stompcap")
    name = tmp_path / "feed.stompcap" / f"frames-{0:020}"
    frames = name.with_suffix(".stomp").read_bytes()
    assert frames == b"".join(WRITTEN)
    assert rows_of(name.with_suffix(".idx").read_bytes(), 0, frames) == expected
    assert captured(tmp_path / "single.stompcap", single=True) == expected
    data = (tmp_path / "single.stompcap").read_bytes()
    assert not (tmp_path / "single.stompcap.idx").exists()
    magic, size, zero, check = struct.unpack("<8sQII", data[-24:])
    assert (magic, zero, check) == (b"stompend", 0, zlib.crc32(data[-24:-4]))
    assert data[:size] == frames
    assert rows_of(data[size:-24], 0, frames) == expected
