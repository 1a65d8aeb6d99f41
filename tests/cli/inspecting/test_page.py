"""stompcodec inspect: the page, from which nothing breaks out, its bounds, and secrets."""

from __future__ import annotations

import gzip
import hashlib
import re
from base64 import b64encode
from pathlib import Path

import pytest

pytest.importorskip("click")

from cli.inspected import BROKEN, LOGIN, SEND, Page, objects, run

from stompcodec import Frame, serialize

EVIL = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\u2028\u2029]]>&lt;"


# Secrets


@pytest.mark.parametrize("name", ["passcode", "X-Token", "Authorization", "my-password"])
def test_secrets_are_nowhere(name: str) -> None:
    good = f"STOMP\naccept-version:1.2\nhost:a\n{name}:hunter2\\c!\n\n\0".encode()
    broken = f"SEND\n{name}:hunter2\nx:\\q\n\n\0".encode()
    skipped = f"SEND\n{name} hunter2\ndestination:/q\n\n\0".encode()
    data = good + broken
    page = Page("--resync", input=data, status=1)
    assert "hunter2" not in page.everything()
    assert b64encode(b"hunter2").decode()[:8] not in page.text
    assert page.octets()[0] == good.replace(b"hunter2\\c!", b"*" * 10)
    assert page.entries[0]["parts"][3]["meant"] == "***"
    for number in ("1", "2"):
        assert "hunter2" not in run("--resync", "--frame", number, input=data).output.replace("  |", "")
        joined = "".join(re.findall(r"\|(.*)\|", run("--resync", "--frame", number, input=data).output))
        assert "*******" in joined
        assert "hunter2" not in joined
    assert "hunter2" not in Page("--lenient", input=skipped).everything()


def test_secrets_on_request() -> None:
    page = Page("--secrets", input=LOGIN + BROKEN, status=1)
    assert page.octets(1)[0] == LOGIN
    assert page.octets(2)[0] == BROKEN
    assert page.entries[0]["parts"][2]["meant"] == "hunter2"
    assert "passcode        hunter2" in run("--secrets", input=LOGIN).output


# The page


def hostile() -> bytes:
    frame = Frame("SEND", {"destination": EVIL, EVIL: EVIL, "content-type": EVIL}, (EVIL * 3).encode())
    return LOGIN + serialize(frame) + b"SEND\n" + EVIL.encode() + b"\n\n\0"


def test_nothing_breaks_out_of_the_page(tmp_path: Path) -> None:
    file = tmp_path / "<script>alert(3)<!-- .stomp".replace("/", "")
    file.write_bytes(hostile())
    page, plain = Page(file, status=1), Page(input=LOGIN)
    assert [tag for tag, _ in page.parsed.elements] == [tag for tag, _ in plain.parsed.elements]
    scripts = [attributes for tag, attributes in page.parsed.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "book"}, {}]
    book, script = (text for tag, text in page.parsed.texts if tag == "script")
    assert script == next(text for tag, text in plain.parsed.texts if tag == "script" and "use strict" in text)
    assert not set("<>&\u2028\u2029") & set(book)
    assert page.text.count("alert(1)") == book.count("alert(1)")
    assert page.entries[1]["body"]["text"].startswith("</script><script>")


def test_only_its_own_script_may_run() -> None:
    page = Page(input=hostile(), status=1)
    (policy,) = [
        attributes["content"]
        for tag, attributes in page.parsed.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)

    def hashed(text: str) -> str:
        return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    none = "'none'"
    assert rules.pop("script-src") == hashed(script)
    assert rules.pop("style-src") == hashed(style)
    assert rules == {"default-src": none, "base-uri": none, "form-action": none}
    assert page.text.index("Content-Security-Policy") < page.text.index("<style>")
    assert "innerHTML" not in script
    assert "insertAdjacent" not in script
    assert not re.search(r"\b(eval|Function|document\.write|fetch|import)\b *\(", script)
    assert not re.search(r"url\(|@import", style)
    assert {name for _, attributes in page.parsed.elements for name in attributes} & {"src", "href", "style"} == set()
    assert not [tag for tag, _ in page.parsed.elements if tag in ("link", "img", "iframe", "object", "base")]


def test_headers_as_meant_and_as_written() -> None:
    page = Page(input=b"SEND\ndestination:/queue/a\nx\\cy:a\\nb\\\\\n\n\0")
    _, plain, escaped, _ = page.entries[0]["parts"]
    assert (plain["meant"], plain["plain"]) == ("/queue/a", True)
    assert (escaped["name"], escaped["meant"], escaped["plain"]) == ("x:y", "a\nb\\", False)
    assert escaped["written"] == "x\\cy:a\\nb\\\\"
    out = run(input=b"SEND\ndestination:/queue/a\nx:a\\nb\\\\\n\n\0").output
    assert "written as x:a\\nb\\\\" in out
    assert "written as destination" not in out


@pytest.mark.parametrize(
    ("headers", "body", "form", "text"),
    [
        ({}, b'{"a":[1]}', "json", '{\n  "a": [\n    1\n  ]\n}'),
        ({}, b"<a><b/></a>", "xml", "<b/>"),
        ({"content-encoding": "gzip"}, gzip.compress(b'{"a":1}', mtime=0), "json", '{\n  "a": 1\n}'),
        ({}, b"\0\xff", "binary", "00 ff"),
    ],
)
def test_bodies_are_readable(headers: dict[str, str], body: bytes, form: str, text: str) -> None:
    data = serialize(Frame("SEND", {"destination": "/q", **headers}, body))
    shown = Page(input=data).entries[0]["body"]
    assert shown["form"] == form
    assert text in shown["text"]
    assert text in run(input=data).output


def test_inflating_is_bounded() -> None:
    data = serialize(Frame("SEND", {"content-encoding": "gzip"}, gzip.compress(bytes(2**20 + 1))))
    assert any("more than 1048576 bytes" in note for note in Page(input=data).entries[0]["body"]["notes"])
    data = serialize(Frame("SEND", {"content-encoding": "gzip"}, gzip.compress(b"x" * 2**20)))
    assert any("decompressed to 1048576 bytes" in note for note in Page(input=data).entries[0]["body"]["notes"])


# Bounds


@pytest.mark.parametrize(("most", "left"), [(2, 1), (3, 0), (4, 0)])
def test_most_frames(most: int, left: int) -> None:
    page = Page("--most", str(most), input=SEND * 3)
    assert len(page.entries) == 3 - left
    assert page.book["left"] == left
    assert len(objects("--most", str(most), input=SEND * 3)) == 3 - left


def test_most_frames_by_default(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run("-o", page, input=b"ACK\nid:1\n\n\0" * 2001)
    assert result.exit_code == 0
    assert result.stderr == f"2,000 entries written to {page}, 1 left out (see --most)\n"
    assert page.read_text(encoding="utf-8").count('"command":"ACK"') == 2000
    assert len(objects("-", input=b"ACK\nid:1\n\n\0" * 2001)) == 2001


def test_the_size_of_a_page_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from stompcodec.cli.verbs import inspect

    monkeypatch.setattr(inspect, "_PAGE", len(Page(input=SEND).text) + 1000)
    page = Page(input=SEND * 30)
    assert 1 <= len(page.entries) < 5
    assert len(page.entries) + page.book["left"] == 30


@pytest.mark.parametrize(("most", "end"), [(4, -2), (5, None), (6, None), (0, -6)])
def test_bodies_are_cut(most: int, end: int | None) -> None:
    page = Page("--body", str(most), input=SEND)
    assert page.octets() == {0: SEND[:end]}
    assert page.entries[0]["body"]["text"] == "hello"[: 2 * most]
    assert page.entries[0]["length"] == len(SEND)
    out = run("--body", str(most), input=SEND).output
    assert ("more bytes)" in out) == (end is not None)
    assert bytes.fromhex("".join(re.findall(r"^[0-9a-f]{8}  (.{48})", out, re.MULTILINE))) == SEND[:end]


@pytest.mark.parametrize(("size", "shown"), [(4096, 4096), (4097, 4096)])
def test_bodies_are_cut_by_default(size: int, shown: int) -> None:
    page = Page(input=serialize(Frame("SEND", {"destination": "/q"}, b"x" * size)))
    assert page.octets()[0].count(b"x") == shown


def test_long_heads_are_cut_and_the_body_is_there() -> None:
    data = serialize(Frame("SEND", [("destination", "/q"), *[("x" * 40, "y" * 2100)] * 20], b"hello"))
    page = Page(input=data)
    body = data.index(b"hello")
    assert page.octets() == {0: data[: 16 * 1024], body: b"hello\0"}
    assert page.entries[0]["more"] == 22 - 9
    assert max(len(part.get("meant", "")) for part in page.entries[0]["parts"]) == 2000
    marks = page.entries[0]["marks"]
    assert all(mark["part"] is None or mark["part"] < len(page.entries[0]["parts"]) for mark in marks)


# What is shown first, the rules, the size

CONNECTED = b"CONNECTED\nversion:1.2\n\n\0"
MESSAGE = b"MESSAGE\ndestination:/queue/b\nmessage-id:1\nsubscription:s\n\nhi\0"


@pytest.mark.parametrize(
    ("data", "first", "status"),
    [
        (CONNECTED + SEND + MESSAGE + MESSAGE, 3, 0),
        (CONNECTED + SEND, 2, 0),
        (CONNECTED, 1, 0),
        (BROKEN, 1, 1),
        (BROKEN + MESSAGE, 2, 1),
        (CONNECTED * 40 + MESSAGE + SEND * 40, 41, 0),
    ],
)
def test_it_opens_at_the_first_message(data: bytes, first: int, status: int) -> None:
    page = Page("--resync", input=data, status=status)
    assert page.book["first"] == first - 1
    assert "choose(book.first)" in page.text
    assert re.findall(r"^> +(\d+)", run("--resync", input=data).output, re.MULTILINE) == [str(first)]
    assert re.findall(r"^> +(\d+)", run("--resync", "--frame", "1", input=data).output, re.MULTILINE) == ["1"]


def test_rules_have_their_titles() -> None:
    data = SEND + b"MESSAGE\ndestination:/q\nmessage-id:1\n\nhi\0"
    title = "MESSAGE MUST have a subscription header equal to the id of a client's subscription."
    page = Page(input=data)
    rules = {mark["rule"] for entry in page.entries for mark in entry["marks"]}
    assert set(page.book["rules"]) == rules
    assert all(page.book["rules"].values())
    (line,) = [line for line in objects(input=data) if line["lint"]][:1]
    assert all(mark["title"] == page.book["rules"][mark["rule"]] for mark in line["lint"])
    shown = run("--frame", "2", input=data).output
    assert all(f"rule: {page.book['rules'][mark['rule']]}" in shown for mark in page.entries[1]["marks"])
    assert title in page.book["rules"].values() or "S12-MSG-04" in rules


@pytest.mark.parametrize("body", [b"x" * 4096, b"\0\xff" * 2048, EVIL.encode() * 30, b""])
@pytest.mark.parametrize("more", [(), ("--most", "100000"), ("--body", "100000000")], ids=" ".join)
def test_a_page_has_at_most_2_mb(body: bytes, more: tuple[str, ...], tmp_path: Path) -> None:
    frame = serialize(Frame("SEND", [("destination", EVIL), *[(f"h{number}", "v") for number in range(30)]], body))
    page = Page(*more, input=frame * 1500)
    assert len(page.text.encode()) <= 2_000_000
    assert len(page.entries) > 250
    assert len(page.entries) + page.book["left"] == 1500
    sizes = [sum(map(len, page.octets(number + 1).values())) for number in range(len(page.entries))]
    assert sizes == sorted(sizes, reverse=True)  # the bodies of later frames are the ones that are cut
    assert len(frame) - sizes[-1] <= max(0, len(body) + 1 - 256)


def test_the_message_that_is_shown_first_has_its_whole_body() -> None:
    """However many frames there are, and wherever it stands among them."""
    long = serialize(Frame("MESSAGE", {"destination": "/q", "message-id": "1", "subscription": "s"}, b"x" * 4000))
    for before in (0, 1, 300):
        page = Page(input=CONNECTED * before + long * 2500)
        first = page.book["first"]
        assert first == before
        assert sum(map(len, page.octets(first + 1).values())) == len(long)
        assert page.entries[first]["body"]["notes"] == []
        assert len(page.text.encode()) <= 2_000_000


def test_one_enormous_frame_does_not_break_the_bound() -> None:
    frame = serialize(Frame("SEND", [(f"h{number}", "v" * 5000) for number in range(500)], b"x" * 5_000_000))
    page = Page("--body", "5000000", input=MESSAGE + frame)
    assert len(page.text.encode()) <= 2_000_000
    assert len(page.entries) == 2
