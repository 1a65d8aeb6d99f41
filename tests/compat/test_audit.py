"""`stompcodec compat audit`: what will bite in a program for stomp.py is found by line, whatever the files are."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path

import pytest

from stompcodec.compat import audit as module
from stompcodec.compat.audit import CODES, audit, audit_source

GOOD = """
import stomp
class Listener(stomp.ConnectionListener):
    def on_disconnected(self):
        self.lost.set()
conn = stomp.Connection12([("h", 1)], heartbeats=(10000, 10000), auto_decode=False)
conn.send("/queue/a", "x", receipt="1")
conn.send(destination="/queue/a", body="x", headers={"receipt": "1"})
conn.send("/queue/a", "x", transaction=conn.begin())
conn.send("/queue/a", "x", **options)
stomp.Connection12(**options)
stomp.Connection12(*arguments)
stomp.Connection12(hosts, heartbeats=BEATS, auto_decode=DECODE)
stomp.Connection(h, True, True, 0.1, 0.5, 0.1, 60.0, 3, None, (1, 1), None, None, False)
other.Connection([("h", 1)])
"""


def found(text, *, codes=None):
    """Lines that are marked `# code code` in the text, and what the audit finds; both as (line, code)."""
    text = textwrap.dedent(text)
    marked = [
        (number, code)
        for number, line in enumerate(text.splitlines(), 1)
        for code in line.partition("# ")[2].split()
        if code in CODES
    ]
    return sorted(marked), [(each.line, each.code) for each in audit_source(text)]


CASES = {
    "nothing": GOOD,
    "plain": """
        import stomp
        c = stomp.Connection([("h", 1)])  # no-heart-beats auto-decode
        c.send("/queue/a", "x")  # unconfirmed-send
        """,
    "every class": """
        import stomp as s, stomp.connect
        from stomp import Connection12 as C, WSConnection
        from stomp.connect import StompConnection11
        import stompcodec.compat.stomppy as ours
        s.Connection10()  # no-heart-beats auto-decode
        s.Connection11()  # no-heart-beats auto-decode
        stomp.connect.StompConnection12()  # no-heart-beats auto-decode
        C()  # no-heart-beats auto-decode
        WSConnection()  # no-heart-beats auto-decode
        StompConnection11()  # no-heart-beats auto-decode
        ours.Connection12()  # no-heart-beats auto-decode
        ours.Connection12(heart_beats=(1, 1), auto_decode=False)
        ours.Connection12(heart_beats=False, auto_decode=False)  # no-heart-beats
        """,
    "star": """
        from stomp import *
        Connection()  # no-heart-beats auto-decode
        """,
    "no beats": """
        import stomp
        stomp.Connection(heartbeats=(0, 0), auto_decode=False)  # no-heart-beats
        stomp.Connection(heartbeats=None, auto_decode=False)  # no-heart-beats
        stomp.Connection(auto_decode=False)  # no-heart-beats
        stomp.Connection(heartbeats=(0, 5), auto_decode=True)  # auto-decode
        stomp.Connection10(auto_decode=False)  # no-heart-beats
        """,
    "installed": """
        import stomp
        import stompcodec.compat.stomppy
        stompcodec.compat.stomppy.install(heart_beats=(10000, 10000))
        stomp.Connection(auto_decode=False)
        stomp.Connection10(auto_decode=False)  # no-heart-beats
        """,
    "installed by the door": """
        import stomp
        from stompcodec import compat
        compat.install("stomp.py", heart_beats=(10000, 10000))
        stomp.Connection(auto_decode=False)
        """,
    "installed without": """
        import stomp
        from stompcodec.compat import stomppy
        stomppy.install(heart_beats=None)
        stomppy.install(heart_beats=False)
        stomppy.install(heart_beats=(0, 0))
        stomppy.install()
        stomp.Connection(auto_decode=False)  # no-heart-beats
        """,
    "subclass": """
        import stomp
        class Mine(stomp.Connection12):
            def __init__(self, hosts):
                super().__init__(hosts)  # no-heart-beats auto-decode
            def say(self):
                self.send("a", "b")  # unconfirmed-send
        class Plain(stomp.Connection12):
            pass
        Mine(1)
        Plain(1)  # no-heart-beats auto-decode
        """,
    "sends": """
        import stomp
        class Service:
            def __init__(self, conn: stomp.Connection):
                self.conn = stomp.Connection(heartbeats=B, auto_decode=False)
                conn.send("a", "b")  # unconfirmed-send
            def say(self, somewhere):
                self.conn.send("a", "b")  # unconfirmed-send
                self.conn.send("a", "b", headers=None)  # unconfirmed-send
                self.conn.send("a", "b", headers={"persistent": "true"})  # unconfirmed-send
                self.conn.send("a", "b", headers={**more})
                somewhere.send(destination="a", body="b")  # unconfirmed-send
                somewhere.send("/topic/a", b"b")  # unconfirmed-send
                somewhere.send(f"/topic/{name}", b"b")  # unconfirmed-send
                socket.send(b"octets")
                socket.send(b"octets", 0)
        """,
    "headers made elsewhere": """
        import stomp
        headers = {}
        headers["receipt"] = "1"
        stomp.Connection(heartbeats=B, auto_decode=D).send("/queue/a", "b", headers=headers)
        """,
    "reconnect": """
        import sqlite3, stomp
        class Listener(stomp.ConnectionListener):
            def on_disconnected(self):
                sqlite3.connect("log")
                self.log("lost")
                self.conn.connect("guest", "guest", wait=True)  # reconnect-in-on-disconnected
            def log(self, text): ...
        """,
    "reconnect by others": """
        import stomp
        def connect_and_subscribe(conn):
            conn.connect(wait=True)
        class Listener:
            def on_disconnected(self):
                self.again()  # reconnect-in-on-disconnected
            def again(self):
                self.once_more()
                self.again()
            def once_more(self):
                connect_and_subscribe(self.conn)
        class Other:
            async def on_disconnected(self):
                connect_and_subscribe(self.conn)  # reconnect-in-on-disconnected
        """,
    "imported object": """
        import stomp
        from app import conn
        def on_disconnected():
            conn.connect()  # reconnect-in-on-disconnected
        """,
    "not stomp.py": """
        import pika
        class L:
            def on_disconnected(self): self.conn.connect()
        pika.Connection()
        producer.send(destination="a", body="b")
        """,
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_what_bites_is_found_and_nothing_else(text):
    marked, lines = found(text)
    assert lines == marked


def test_the_lines_of_a_folder(tmp_path):
    """A connection of one file is used in another, and installed in a third."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.py").write_text("import stomp\nc = stomp.Connection(auto_decode=False)\n")
    (tmp_path / "inner" / "b.py").write_text("def f(c):\n  c.send(destination='a', body='b')\n")
    report = audit(tmp_path)
    assert [(Path(each.file).name, each.line, each.column, each.code) for each in report.findings] == [
        ("a.py", 2, 5, "no-heart-beats"),
        ("b.py", 2, 3, "unconfirmed-send"),
    ]
    assert all(each.problem and each.remedy for each in report.findings)
    assert (report.files, report.skipped) == (2, ())
    (tmp_path / "c.pyw").write_text("import stompcodec.compat.stomppy as s\ns.install(heart_beats=(1, 1))\n")
    assert [each.code for each in audit(tmp_path).findings] == ["unconfirmed-send"]
    assert [each.code for each in audit(tmp_path / "a.py").findings] == ["no-heart-beats"]


BITES = "import stomp\nstomp.Connection(auto_decode=False)\n"


def hostile(folder):
    """Name of a file that cannot be read as Python -> what its reason holds."""
    deep = {"brackets": "(" * 5000, "unary": "-" * 200_000 + "1", "dots": "a" + ".a" * 200_000, "lists": "[" * 150}
    deep |= {"sums": "1" + "+1" * 200_000, "calls": "a" + "()" * 200_000, "nots": "not " * 200_000 + "1"}
    deep |= {
        "items": "a" + "[0]" * 200_000,
        "many": "(a\n" + ".a\n" * 200_000 + ")",
        "lambdas": "lambda:" * 99_999 + "1",
    }
    deep |= {"choices": "1 if 1 else " * 99_999 + "1", "elifs": "if 1: pass\n" + "elif 1: pass\n" * 99_999}
    wrong = {
        "syntax.py": b"def f(:\n",
        "nul.py": b"import stomp\0\nstomp.Connection()\n",
        "latin.py": b"x = '\xff'\n",
        "cookie.py": b"# coding: no-such-encoding\n",
        "indent.py": b"  x\n y\n",
        "digits.py": b"x = " + b"9" * 100_000 + b"\n",
        "python2.py": b"print 'hello'\n",
        "huge.py": b"#" * (module.LARGEST + 1),
        **{f"{name}.py": text.encode() for name, text in deep.items()},
        "ifs.py": "".join(" " * n + "if 1:\n" for n in range(150)).encode() + b" " * 150 + b"1\n",
    }
    for name, data in wrong.items():
        (folder / name).write_bytes(data)
    return set(wrong)


def test_files_that_cannot_be_read_are_named_and_skipped(tmp_path):
    names = hostile(tmp_path)
    (tmp_path / "good.py").write_text(BITES)
    (tmp_path / "largest.py").write_bytes(BITES.encode().ljust(module.LARGEST, b"#"))
    report = audit(tmp_path)
    assert {Path(each.file).name for each in report.skipped} == names
    assert all(each.reason for each in report.skipped)
    assert [Path(each.file).name for each in report.findings] == ["good.py", "largest.py"]


def test_a_long_statement_is_read(tmp_path):
    (tmp_path / "a.py").write_text("x = [" + "-1, " * 5000 + "-1]\n")
    assert not audit(tmp_path).skipped


def test_warnings_of_the_source_are_not_ours(tmp_path, recwarn):
    (tmp_path / "a.py").write_text("x = '\\d'\nassert (1, 2)\n1 is 1\n")
    assert audit(tmp_path).skipped == ()
    assert not recwarn.list


@pytest.mark.skipif(os.name == "nt", reason="POSIX")
def test_links_pipes_and_foreign_folders_are_not_followed(tmp_path):
    outside, top = tmp_path / "outside", tmp_path / "top"
    outside.mkdir()
    top.mkdir()
    (outside / "secret.py").write_text(BITES)
    (top / "link.py").symlink_to(outside / "secret.py")
    (top / "folder").symlink_to(outside)
    (top / "circle").symlink_to(top)
    os.mkfifo(top / "pipe.py")
    for name in (".hidden", "node_modules", "venv", "lib"):
        (top / name).mkdir()
        (top / name / "a.py").write_text(BITES)
    (top / "venv" / "pyvenv.cfg").write_text("")
    report = audit(top)
    assert [Path(each.file).parent.name for each in report.findings] == ["lib"]
    assert {(Path(each.file).name, each.reason) for each in report.skipped} == {
        ("link.py", "a link"),
        ("pipe.py", "not a regular file"),
    }
    with pytest.raises(OSError):  # noqa: PT011 - a file that became a link after it was listed
        module._read(top / "link.py")
    assert module._read(top / "pipe.py") == "not a regular file"


def test_work_is_linear_in_the_source():
    """Lines of a file that calls, connects and sends a lot: twice as many cost about twice as much."""

    def lines(count):
        text = "import stomp\nclass L(stomp.Connection):\n def __init__(self):\n  super().__init__()\n"
        text += "".join(f"def f{n}(): f{n + 1}()\ndef g(): f0(); c.send('/queue/a', headers=h)\n" for n in range(count))
        text += "def on_disconnected():\n" + " g()\n" * count
        steps = 0

        def step(frame, event, argument):
            nonlocal steps
            steps += frame.f_code.co_filename == module.__file__
            return step if frame.f_code.co_filename == module.__file__ else None

        before = sys.gettrace()
        sys.settrace(step)
        try:
            audit_source(text)
        finally:
            sys.settrace(before)
        return steps

    few, many = lines(100), lines(400)
    assert many < 5 * few


def run(*arguments):
    pytest.importorskip("click")
    from click.testing import CliRunner

    from stompcodec.cli.app import app

    return CliRunner().invoke(app, ["compat", "audit", *map(str, arguments)])


def test_the_command(tmp_path):
    (tmp_path / "a.py").write_text(BITES)
    (tmp_path / "b.py").write_text("def f(:\n")
    done = run(tmp_path)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{tmp_path / 'a.py'}:2: no-heart-beats: ")
    assert "heartbeats=(10000, 10000)" in lines[1]
    assert lines[2].startswith(f"{tmp_path / 'b.py'}: skipped: not Python")
    assert lines[3] == "1 found in 1 files, 1 files skipped"

    objects = [json.loads(line) for line in run("--json", tmp_path).stdout.splitlines()]
    assert objects[0] == {
        "file": str(tmp_path / "a.py"),
        "line": 2,
        "column": 1,
        "code": "no-heart-beats",
        "problem": CODES["no-heart-beats"][0],
        "remedy": CODES["no-heart-beats"][1],
    }
    assert objects[1].keys() == {"file", "reason"}

    (tmp_path / "a.py").write_text(GOOD)
    assert run(tmp_path).exit_code == 0
    assert run(tmp_path / "none").exit_code == 2


@pytest.mark.skipif(sys.platform != "linux", reason="names of any octets")
def test_names_cannot_command_a_terminal(tmp_path):
    for name in ("a\x1b[31m.py", "b\udcff.py", "c\n.py"):
        (tmp_path / name).write_text("def f(:\n")
    done = run(tmp_path)
    assert done.exit_code == 0
    assert "\x1b" not in done.stdout
    assert len(done.stdout.splitlines()) == 4
    assert len(run("--json", tmp_path).stdout.splitlines()) == 3


def test_our_own_page_says_every_code():
    page = Path(__file__).parents[2] / "docs" / "compat.md"
    if not page.is_file():
        pytest.skip("no checkout")
    text = page.read_text(encoding="utf-8")
    assert [code for code in CODES if f"`{code}`" not in text] == []
