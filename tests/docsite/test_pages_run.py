"""Pages of the site do what they say: block by block and in their order, on a broker; with what a block leaves out put
in, such as your handler; and applied to a copy of the package. Every code block is run by a test, or says why not."""

import ast
import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import pytest
from cli.packets import ACK, CLIENT, SERVER, SYN, ethernet, pcapng, tcp
from crash.process import BrokerProcess
from docsite.blocks import ROOT, Block, Reader, blocks_of, pages
from patience import patience

import stompcodec
import stompcodec.client as stomp
from stompcodec import Frame, compat, serialize
from stompcodec.broker.auth import hash_passcode
from stompcodec.broker.config import load_config
from stompcodec.capture import CaptureWriter, octets_of
from stompcodec.cli.app import app
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


def _block(page: str, begins: str) -> Block:
    [block] = [block for block in blocks_of(ROOT / page) if block.text.startswith(begins) and not block.untried]
    return block


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


# ---- each block is run, or says why not ----

TESTS = ROOT / "tests"
_JOBS = "spark/jobs/test_jobs.py"


def _by(test: str, *blocks: str) -> dict[tuple[str, str], str]:
    """Return the test of each page of docs/ and language; `blocks` are pages, a colon, and languages."""
    pairs = [[words.split() for words in each.split(":")] for each in blocks]
    return {(f"docs/{page}.md", language): test for pages, kinds in pairs for page in pages for language in kinds}


#: Which test runs the blocks of a page in a language. `test_it_is_run_there` sees to it that it reads the page.
RUN = {
    **_by("client/test_docs.py::test_the_examples_run", "client large-bodies middleware tracing: python"),
    **_by("compat/test_stomppy.py::test_the_examples_of_the_page_run", "coming-from-stomp-py: python"),
    **_by("compat/test_stompman.py::test_the_examples_of_the_docs_run", "coming-from-stompman: python"),
    **_by("docsite/test_pages_run.py::test_each_recipe_works_as_written", "how-to-extend: diff python"),
    **_by("testing/test_plugin.py::test_the_documentation_is_right", "testing: python"),
    **_by(f"{_JOBS}::test_the_supervisor_of_the_page_survives_kills_of_the_source", "spark-semantics: python"),
    **_by("spark/test_tutorial.py::test_the_page_does_what_it_says", "spark-tutorial: python sh"),
    **_by("spark/test_tutorial.py::test_a_pipeline", "pipeline: python sh", "network-rail: sh"),
    **_by(f"{_JOBS}::test_the_page_says_how_xml_becomes_columns", "network-rail: python"),
    **_by("spark/test_cluster.py", "spark-cluster: python sh"),
    **_by("interop/test_theirs.py::test_the_page_of_spring", "spring: java python"),
    **_by("interop/test_names.py::test_jms_programs_and_ours_answer_each_other", "activemq artemis: java"),
    **_by("protocol/test_states.py::test_the_page_is_not_stale", "states: mermaid"),
    **_by("docsite/test_pages_run.py", "capture-format compat: python", "bridge cli queue-tools: sh"),
    ("README.md", "python"): "docsite/test_pages_run.py",
    ("ARCHITECTURE.md", "mermaid"): "test_architecture_page.py::test_the_arrows_of_a_client_are_drawn",
    **{
        (page, language): "docsite/test_pages_run.py::test_a_page_does_what_it_says"
        for page in PAGES
        for language in ("python", "sh")
        if any(block.language == language for block in blocks_of(ROOT / page))
    },
}
#: Pages of which only some blocks are run: those that begin so.
ONLY = {
    ("README.md", "python"): ("def test_orders", "from stompcodec import compat"),
    ("docs/bridge.md", "sh"): ("seq 1000", "$ stompcodec bridge"),
    ("docs/cli.md", "sh"): "stompcodec reply",
    ("docs/spring.md", "python"): "with stomp.connect",
    ("docs/spark-cluster.md", "python"): "# job.py",
    ("docs/spark-cluster.md", "sh"): ("python3 -m pip install", "export PYSPARK"),
    ("docs/spark-semantics.md", "python"): "# supervised.py",
}
#: Where doctest runs the examples: see DOCTESTS in scripts/test.py.
DOCTESTED = re.compile(r"README\.md|docs/.*")

ALL = [block for page in pages() for block in blocks_of(page)]


def who_runs(block: Block) -> str:
    """Name what runs a block; "" if nothing does."""
    if block.language == "pycon" and DOCTESTED.fullmatch(block.page):
        return "doctest"
    if block.language == "toml":
        return "docsite/test_pages_run.py::test_configuration_is_valid"
    where = block.page, block.language
    return RUN.get(where, "") if block.text.startswith(ONLY.get(where, "")) else ""


def test_each_block_is_run_or_says_why_not() -> None:
    tried = [block for block in ALL if not block.untried]
    neither = [block for block in tried if not who_runs(block) and block.language != "text"]
    assert [f"{block} ({block.language}): {block.text[:60]!r}" for block in neither] == []
    assert sum(bool(who_runs(block)) for block in tried) > 95
    assert len(ALL) - len(tried) < 50


@pytest.mark.parametrize(("where", "test"), RUN.items(), ids=str)
def test_it_is_run_there(where: tuple[str, str], test: str) -> None:
    page, language = where
    assert any(block.page == page and block.language == language for block in ALL), f"{page} has no such block"
    file, _, function = test.partition("::")
    text = (TESTS / file).read_text("utf-8")
    assert Path(page).stem in text or Path(page).name in text
    if function:
        assert any(isinstance(node, ast.FunctionDef) and node.name == function for node in ast.walk(ast.parse(text)))


@pytest.mark.parametrize("block", [block for block in ALL if block.language == "toml"], ids=str)
def test_configuration_is_valid(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    text = block.text.replace("scrypt$16384$8$1$...", hash_passcode("a passcode"))
    groups = set(re.findall(r'^who = "@(\w+)"', text, re.MULTILINE)) - set(re.findall(r'"(\w+)"', text))
    users = {name for name in re.findall(r'^who = "(\w+)"', text, re.MULTILINE) if f"[users.{name}]" not in text}
    for number, group in enumerate(groups):
        text += f'\n[users.member{number}]\npasscode = "{hash_passcode("a passcode")}"\ngroups = ["{group}"]\n'
    for user in users:
        text += f'\n[users.{user}]\npasscode = "{hash_passcode("a passcode")}"\n'
    file.write_text(text, "utf-8")
    load_config(file)


@pytest.mark.parametrize("block", [block for block in ALL if block.language == "python"], ids=str)
def test_python_is_python(block: Block) -> None:
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def _commands() -> list[tuple[Block, list[str]]]:
    found = []
    for block in ALL:
        if block.language in ("sh", "console"):
            for part in re.split(r"\n|\||&&", block.text.replace("\\\n", " ")):
                part = part.strip().removeprefix("$ ").removesuffix("&")
                if part.startswith("stompcodec "):
                    found.append((block, shlex.split(part.replace("<", " ").replace(">", " "), comments=True)[1:]))
    return found


def test_verbs_and_options_of_all_commands_exist() -> None:
    commands = _commands()
    assert len(commands) > 50
    for block, words in commands:
        command: click.Command = app
        context = click.Context(app, info_name="stompcodec")
        while words and isinstance(command, click.Group) and (verb := command.get_command(context, words[0])):
            command, words = verb, words[1:]
        assert command is not app, f"{block}: {words}"
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"-h", "--help"}
        for word in words:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in known, f"{block}: {command.name} has no option {word}"


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9 -]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    known = {name for names in targets for name in names.split()}
    for block in ALL:
        for target in re.findall(r"^(?:\$ )?make ([a-z-]+)", block.text, re.MULTILINE):
            assert target in known, f"{block}: make {target}"


# ---- what survives a lost connection, a restart and a kill: the table of promises.md, and first programs ----

#: What a cell says: whether the message is there afterwards; None for what is no matter of this test.
CELLS = {"kept": True, "delivered again": True, "lost": False, "not delivered again": False}
OTHERS = ("may be", "raises", "the client subscribes again", "ends")


def _rows() -> list[tuple[str, list[str]]]:
    text = (ROOT / "docs" / "promises.md").read_text("utf-8")
    part = text.partition("## What survives what\n")[2].partition("\n## ")[0]
    lines = [line.strip("| \n").split(" | ") for line in part.splitlines() if line.startswith("| `")]
    return [(re.findall(r"`([^`]*)`", first)[0], cells) for first, *cells in lines]


ROWS = _rows()


def _do(client: Any, code: str, place: str) -> None:
    """Do what a row says, with a message to a place of its own, until its call has returned."""
    topic = "/topic/" in code
    if topic:
        client.subscribe(place, durable=place.rpartition("/")[2], ack="client-individual").unsubscribe()
    names: dict[str, Any] = {"client": client, "body": place, "stomp": stomp}
    if "client." not in code:
        client.send(place, place, receipt=True)
        names["subscription"] = client.subscribe(place, ack="client-individual")
        if code.startswith("message."):
            names["message"] = names["subscription"].get(patience(20))
    exec(re.sub(r'"/(queue|topic)/a"', repr(place), code), names)


def _is_there(client: Any, code: str, place: str) -> bool:
    """Return whether the message of a row is in its queue, or kept for its durable subscription."""
    durable = place.rpartition("/")[2] if "/topic/" in code else None
    subscription = client.subscribe(place, durable=durable, ack="client-individual")
    client.send(place, "end", persistent=True, receipt=True)
    found = subscription.get(patience(20))
    assert found is not None
    return bool(found.text() == place)


def _check(fault: int, cause: Callable[[], object], url: Callable[[], str]) -> None:
    """Do what the rows say that tell what becomes of a message, then let the fault happen, and look."""
    told = []
    for at, (code, cells) in enumerate(ROWS):
        assert all(cell in CELLS or cell.startswith(OTHERS) for cell in cells), cells
        if cells[fault] in CELLS:
            told.append((code, f"/{'topic' if '/topic/' in code else 'queue'}/r{at}", CELLS[cells[fault]]))
    assert len(told) >= 9
    with contextlib.closing(stomp.connect(url(), client_id="desk", reconnect=None)) as client:
        for code, place, _there in told:
            _do(client, code, place)
        cause()
    with stomp.connect(url(), client_id="desk") as client:
        found = {code: _is_there(client, code, place) for code, place, _there in told}
    assert found == {code: there for code, _place, there in told}


@pytest.mark.long
@pytest.mark.parametrize("fault", ["lost connection", "restart"])
def test_the_table_is_right(fault: str, tmp_path: Path) -> None:
    with StompBroker(data=str(tmp_path)) as broker:

        def restart() -> None:
            broker.stop()
            broker.start()

        cause = (broker.cut, restart)[fault == "restart"]
        _check(int(fault == "restart"), cause, lambda: broker.url)


@pytest.mark.long
def test_the_table_is_right_for_kill_9(tmp_path: Path) -> None:
    """And the broker says at its start what survives."""
    with BrokerProcess(tmp_path) as broker:

        def kill() -> None:
            broker.kill()
            broker.start()

        _check(2, kill, lambda: f"stomp://127.0.0.1:{broker.port}")
        assert f"; messages to queues survive a restart, in {tmp_path / 'data'}\n" in broker.tail(1000)


def _program(page: str, marks: str) -> str:
    """Return the first block of a page with these words, without the prompts of a session and with a restart."""
    text = (ROOT / page).read_text("utf-8")
    (block, *_) = [each for each in re.findall(r"^```py\w+\n(.*?)^```", text, re.M | re.S) if marks in each]
    lines = [line[4:] if line.startswith((">>> ", "... ")) else line for line in block.splitlines()]
    lines = [line for line in lines if not line.startswith("b'")]  # what a session prints
    (at, *_) = [number for number, line in enumerate(lines) if "for message in" in line]
    lines.insert(at, re.match(" *", lines[at])[0] + "restart(client)")
    return "\n".join(lines).replace("StompBroker()", "contextlib.nullcontext(server)")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("persistent", ["all", "persistent"])
@pytest.mark.parametrize(
    ("page", "marks", "found"),
    [
        ("README.md", "StompBroker()", [b"hello"]),
        ("docs/coming-from-stomp-py.md", "import stompcodec.client as stomp", ["/queue/orders hello"]),
        ("docs/coming-from-stompman.md", "async def ours", [b"hello"]),
    ],
)
def test_the_first_program_of_a_page_gets_its_message_after_a_restart(
    page: str, marks: str, found: list[Any], persistent: str, tmp_path: Path
) -> None:
    """The broker restarts between its sends and its loop: ours as it is, and one that stores only what says so."""
    got: list[Any] = []

    with StompBroker(data=str(tmp_path), durable=persistent) as broker:

        def restart(client: Any) -> None:
            epoch = client.epoch
            broker.stop()
            broker.start()
            give_up = time.monotonic() + patience(20)
            while client.epoch == epoch or client.state != "connected":
                assert time.monotonic() < give_up
                time.sleep(0.001)

        names = {"server": broker, "restart": restart, "asyncio": asyncio, "contextlib": contextlib}
        names |= {"host": "127.0.0.1", "port": broker.port, "url": broker.url}
        names |= {"stomp": stomp, "print": lambda *what: got.append(what[0] if len(what) == 1 else " ".join(what))}
        exec(compile(_program(page, marks), page, "exec"), names)
    assert got == found
