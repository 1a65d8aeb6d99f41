"""The Python of the playground, in CPython: what it reads, refuses, cuts and shares; how the build brings Pyodide."""

import doctest
import gzip
import json
import random
import zlib
from base64 import urlsafe_b64encode
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sitepages import staging

from stompcodec.capture import CaptureWriter

PAGE = staging.STATIC / "playground"
MEGABYTE = 2**20
FRAMES = (
    "SEND\ndestination:/queue/a\ncontent-type:application/json\n\n{}^@\n",
    "CONNECT^M\naccept-version:1.1,1.2^M\nhost:a^M\n^M\n^@",
    "CONNECTED\nversion:1.1\n\n^@\nMESSAGE\ndestination:/a\nmessage-id:1\nsubscription:0\ncontent-length:3\n\na^@b^@\n\n",
    "ACK\nid:7\\c1\n\n^@SEND\ndestination:/queue/\u00e4\n\n\u00e4\u00f6^@",
    "SEND\nbad\\escape:1\n\n^@",
    "SEND\ndestination:/queue/a\n\nno end",
)


class Asked:
    """The playground as its page asks it."""

    def __init__(self, module: ModuleType) -> None:
        self._playground = module.Playground()

    def __call__(self, what: str, data: bytes | None = None, **more: Any) -> Any:
        return json.loads(self._playground.answer(json.dumps({"what": what, **more}), data))

    def look(self, version: str = "auto", lenient: bool = False) -> Any:
        return self("look", version=version, lenient=lenient)


@pytest.fixture
def ask(module: ModuleType) -> Asked:
    return Asked(module)


def test_its_doctests(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("text", FRAMES)
@pytest.mark.parametrize("version", ["auto", "1.0", "1.2"])
def test_every_cut_gives_the_same_events(ask: Asked, text: str, version: str) -> None:
    """S12-FRM-09"""
    size = ask("text", text=text)["size"]
    ask.look(version)
    everywhere = ask("everywhere")
    assert everywhere == {"cuts": size - 1, "events": everywhere["events"], "different": []}
    for at in range(size + 1):
        answer = ask("cut", at=at)
        assert answer["same"]
        assert len(answer["first"] + answer["second"]) == everywhere["events"]


def test_escapes(ask: Asked) -> None:
    rows = ask("escapes", value="a:b\n")["rows"]
    assert [row[1] for row in rows][1:] == [r"a\cb\n", r"a\cb\n"]
    assert rows[0][1].startswith("cannot be written")
    rows = ask("escapes", value=r"a\cb\r")["rows"]
    assert [row[2] for row in rows] == [r"a\cb\r", "bad-escape at byte 4 of the value", "a:b^M"]
    assert [row[1] for row in rows][1:] == [r"a\\cb\\r", r"a\\cb\\r"]


def refused(answer: Any) -> str:
    assert list(answer) == ["line"]
    assert "\n" not in answer["line"]
    return str(answer["line"])


def test_what_is_too_large(ask: Asked) -> None:
    """At the limit and one past it; unpacked, too."""
    assert ask("file", b"\n" * (8 * MEGABYTE), name="a")["size"] == 8 * MEGABYTE
    packed = gzip.compress(b"ACK\nid:7\n\n\0") * 2
    assert ask("file", packed, name="a.gz")["size"] == 22
    for answer, words in (
        (ask("file", b"\n" * (8 * MEGABYTE + 1), name="a"), "up to 8 MB"),
        (ask("text", text="a" * (8 * MEGABYTE + 1)), "up to 8 MB"),
        (ask("file", gzip.compress(bytes(64 * MEGABYTE)), name="a.gz"), "more than 8 MB unpacked"),
        (ask("file", packed[:-3], name="a.gz"), "cut short"),
        (ask("file", b"\x1f\x8bxxx", name="a.gz"), "cannot be unpacked"),
    ):
        assert words in refused(answer)


def packed(text: bytes) -> str:
    return "frames=" + urlsafe_b64encode(zlib.compress(text)).decode().rstrip("=")


@pytest.mark.parametrize(
    "fragment",
    [
        *("", "frames=", "frames=AAAA", "frames=A", "frames=<img src=x>", "other"),
        *(packed(b"auto\nACK\nid:7\n\n\0")[:-6], packed(b"9.9\nACK\nid:7\n\n\0"), packed(b"\xff\n"), packed(b"auto")),
        *(packed(b"auto\n" + bytes(9 * MEGABYTE)), packed(b"auto\n" + random.Random(1).randbytes(40_000))),
    ],
)
def test_a_broken_fragment(ask: Asked, fragment: str) -> None:
    assert "The link is broken" in refused(ask("fragment", fragment=fragment))


@pytest.mark.parametrize("text", FRAMES)
@pytest.mark.parametrize("version", ["auto", "1.1"])
def test_a_link_gives_the_same_frames(module: ModuleType, ask: Asked, text: str, version: str) -> None:
    ask("text", text=text)
    found = ask.look(version)
    other = Asked(module)
    opened = other("fragment", fragment=ask("share")["fragment"])
    assert (opened["text"], opened["version"]) == (text, version)
    assert other.look(version) == found


SECRETS = (
    "CONNECT\naccept-version:1.2\nhost:a\npasscode:{}\n\n^@",
    "CONNECT^M\npasscode: {}^M\n^M\n^@",
    "SEND\nX-Auth-TOKEN-2:{}\n\n^@",
    "SEND\ndestination:/a\n\npassword {}\nx^@",
    'SEND\ndestination:/a\n\n{{"Password":"{}"}}^@',
    "SEND\nurl:stomp\\c//me\\c{}@host\\c61613\n\n^@",
    "SEND\ndestination:/a\n\nstomp://me:{}@host:61613/^@",
    "CONNECT\npasscode{}",
    "broken passcode:{}",
)


@pytest.mark.parametrize("text", SECRETS)
def test_a_passcode_is_never_in_a_link(module: ModuleType, ask: Asked, text: str) -> None:
    size = ask("text", text=text.format("hunter2"))["size"]
    ask.look()
    shared = ask("share")
    assert shared["masked"]
    opened = Asked(module)("fragment", fragment=shared["fragment"])
    assert "hunter2" not in opened["text"]
    assert opened["size"] == size
    assert ask("share") == shared  # and the page keeps what it has
    assert "nter2" not in json.dumps(ask("cut", at=size - 4))


@pytest.mark.parametrize("wire", [b"://" + b":" * 2 * MEGABYTE, b"token" * MEGABYTE, b"://a@" * MEGABYTE])
def test_masking_takes_linear_time(module: ModuleType, wire: bytes) -> None:
    """Quadratic time would be hours."""
    assert len(module.masked(wire)) == len(wire)


def test_a_capture(ask: Asked, tmp_path: Path) -> None:
    frame = b"MESSAGE\ndestination:/queue/a\nmessage-id:1\nsubscription:0\n\nhello\0"
    with CaptureWriter(tmp_path / "a.stompcap", single=True) as writer:
        writer.append(frame, time=1_700_000_000_000_000)
    taken = ask("file", (tmp_path / "a.stompcap").read_bytes(), name="another name")
    assert (taken["form"], taken["text"]) == ("capture", None)
    found = ask.look()
    [entry] = found["entries"]
    assert (entry["command"], entry["time"]) == ("MESSAGE", "2023-11-14 22:13:20.000000")
    assert found["problems"] == []
    assert "not a capture" in refused(ask("share"))
    assert "Cutting is for frames" in refused(ask("cut", at=1))


def test_the_policy_allows_no_other_host_and_the_page_inserts_text_only() -> None:
    text = (PAGE / "index.html").read_text("utf-8")
    policy = text.partition('Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.startswith("default-src 'none';")
    assert [word for word in ("unsafe-inline", "'unsafe-eval'", "http") if word in policy] == []
    ways = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", ".style")
    for script in PAGE.glob("*.js"):
        text = script.read_text("utf-8")
        assert [way for way in ways if way in text] == [], script.name
