"""stompcodec inspect: where the parts of frames are, what is broken, and the panes."""

from __future__ import annotations

import gzip
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")

from cli.inspected import BROKEN, LOGIN, SEND, Page, objects, run
from cli.packets import CLIENT, SERVER, SYN, ethernet, pcap, pcapng, tcp
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame, serialize
from stompcodec.capture import CaptureWriter, octets_of

TIME = 1_700_000_000_123_456

# Where the parts are

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
FRAMES = st.lists(
    st.builds(
        lambda headers, body: Frame("SEND", [("destination", "/q"), *headers], body),
        st.lists(st.tuples(TEXTS.filter(lambda name: name not in ("", "content-length")), TEXTS), max_size=5),
        st.binary(max_size=30),
    ),
    min_size=1,
    max_size=4,
)


@given(frames=FRAMES, eols=st.sampled_from([b"", b"\n", b"\r\n\n"]))
def test_the_parts_are_where_they_are(frames: list[Frame], eols: bytes) -> None:
    data = eols.join(serialize(frame) for frame in frames)
    found = objects("-", "--version", "1.2", input=data)
    assert len(found) == len(frames)
    for frame, each in zip(frames, found):
        octets = serialize(frame)
        assert data[each["offset"] : each["end"]] == octets
        lines = octets.partition(b"\n\n")[0].split(b"\n")
        cuts = [(part["part"], data[part["start"] : part["end"]]) for part in each["parts"]]
        headers = [text for part, text in cuts if part == "header"]
        assert (("command", lines[0]), headers) == (cuts[0], lines[1:])
        assert [text for part, text in cuts if part == "body"] == ([frame.body] if frame.body else [])
        assert cuts[-1] == ("end", b"\0")
        named = [part["name"] for part in each["parts"] if part["part"] == "header"]
        assert named[: len(frame.headers.pairs())] == [name for name, _ in frame.headers.pairs()]


@pytest.mark.parametrize(
    ("options", "data", "expected", "kept"),
    [
        ([], b"ACK\r\nid:7\r\n\r\n\0", [b"ACK", b"id:7", b"\0"], ["id"]),
        (["--version", "1.0"], b"ACK\nid:7\r\n\n\0", [b"ACK", b"id:7\r", b"\0"], ["id"]),
        (["--lenient"], b"\0ACK\nno colon\n:x\nid:7\n\n\0", [b"ACK", b"no colon", b":x", b"id:7", b"\0"], ["id"]),
        (["--lenient", "--version", "1.0"], b"ACK\n id : 7\n :x\n\n\0", [b"ACK", b" id : 7", b" :x", b"\0"], ["id"]),
        (["--lenient", "--version", "1.0"], b"ACK\r\nid:7\r\n\r\n\0", [b"ACK", b"id:7", b"\0"], ["id"]),
        (["--lenient"], b"ACK\n :x\nid:7\n\n\0", [b"ACK", b" :x", b"id:7", b"\0"], [" ", "id"]),
        (["--version", "legacy"], b"ack\nID: 7 \r\n  \n\0", [b"ack", b"ID: 7 ", b"\0"], ["id"]),
    ],
)
def test_the_parts_of_odd_heads(options: list[str], data: bytes, expected: list[bytes], kept: list[str]) -> None:
    (found,) = objects("-", *options, input=data)
    assert [data[part["start"] : part["end"]] for part in found["parts"]][: len(expected)] == expected
    assert len(found["parts"]) == len(expected)
    headers = [part["name"] for part in found["parts"] if part["part"] == "header"]
    assert headers == kept


@given(
    lines=st.lists(st.text("ab:\\\\c \rü", max_size=6), max_size=5),
    eol=st.sampled_from(["\n", "\r\n"]),
    version=st.sampled_from(["auto", "1.0", "1.1", "1.2", "legacy"]),
    lenient=st.sampled_from([[], ["--lenient"]]),
)
def test_no_head_is_too_odd(lines: list[str], eol: str, version: str, lenient: list[str]) -> None:
    data = eol.join(["SEND", *lines, "", "body\0"]).encode()
    result = run("--json", "--version", version, *lenient, input=data)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    for line in result.stdout_bytes.splitlines():
        parts = json.loads(line)["parts"]
        for before, part in pairwise(parts):
            assert set(data[before["end"] : part["start"]]) <= set(b"\r\n "), (before, part)
            assert before["end"] <= part["start"]
    text = Page("--version", version, *lenient, input=data, status=result.exit_code).text
    assert "use strict" in text


def test_marks_stand_at_what_they_are_about() -> None:
    data = LOGIN + b"SEND\nid:a:b\nid:2\n\nhi\0"
    send = objects("-", input=data)[1]
    marks = {mark["rule"]: mark["part"] for mark in send["lint"]}
    assert marks["S12-SND-01"] is None
    assert send["parts"][marks["S12-FRM-05"]]["start"] == len(LOGIN) + 5
    assert send["parts"][marks["S12-HDR-02"]]["start"] == len(LOGIN) + 12
    page = Page(input=data).entries[1]
    assert {mark["rule"]: mark["part"] for mark in page["marks"]} == marks
    lines = [line.strip() for line in run("--frame", "2", input=data).output.splitlines()]
    assert "error S12-SND-01: SEND has no header destination (add it)" in lines
    at = next(index for index, line in enumerate(lines) if line.endswith("id           a:b") or line.endswith("a:b"))
    assert lines[at + 1].startswith("warning S12-FRM-05: ")


def test_marks_know_what_came_before() -> None:
    subscribe = b"SUBSCRIBE\nid:1\ndestination:/q\n\n\0"
    _, first, second = objects("-", input=LOGIN + 2 * subscribe)
    assert first["lint"] == []
    assert [mark["rule"] for mark in second["lint"]] == ["S12-SUB-06"]


def test_json_holds_no_value_and_no_octet() -> None:
    result = run("--json", input=LOGIN + BROKEN)
    assert "hunter2" not in result.output
    assert "ann" not in result.output


# What is broken


def test_a_fault_is_an_entry() -> None:
    data = SEND + BROKEN + SEND
    first, fault = objects("-", input=data, status=1)
    assert first["offset"] == 0
    assert fault["offset"] == len(SEND)
    at = data.index(b"\\q")
    assert fault["fault"]["kind"] == "bad-escape"
    assert (fault["fault"]["offset"], fault["fault"]["resumed"]) == (at, None)
    assert "fix the sender" in fault["fault"]["remedy"]
    assert fault["parts"] == [{"part": "fault", "name": "fault", "start": at, "end": at + 1}]
    assert [mark["rule"] for mark in fault["lint"]] == ["S12-ESC-05"]
    assert "no further frame was found" not in fault["lint"][0]["text"]
    entry = Page(input=data, status=1).entries[1]
    assert entry["fault"]["at"] == at
    assert entry["parts"][0]["start"] == at - len(SEND)
    result = run("--frame", "2", input=data)
    assert result.exit_code == 1
    assert f"octet {at}: undefined escape in a header" in result.stdout
    assert "--resync continues after it" in result.stderr


def test_resync_goes_on() -> None:
    first, fault, last = objects("--resync", input=SEND + BROKEN + SEND, status=1)
    assert fault["fault"]["resumed"] == last["offset"] == len(SEND + BROKEN)
    assert first["parts"][0]["end"] == 4
    assert "no further frame was found" not in fault["lint"][0]["text"]
    assert "no further frame was found" in objects("--resync", input=BROKEN, status=1)[0]["lint"][0]["text"]


def test_a_stream_cut_short(tmp_path: Path) -> None:
    page = Page(input=SEND + SEND[:-3], status=1)
    assert [entry["command"] for entry in page.entries] == ["SEND", "truncated"]
    assert page.octets(2)[0] == SEND[:-3]
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(SEND * 9)[:-12])
    result = run(packed, "--json")
    assert result.exit_code == 1
    assert "cannot be read: " in result.stderr


def test_files_that_cannot_be_read_make_no_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run(tmp_path / "none", "-o", page)
    assert result.exit_code == 1
    assert "none: cannot be read: " in result.stderr
    assert not page.exists()


def test_pages_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "a.stomp"
    file.write_bytes(SEND)
    result = run(file, "-o", tmp_path / "none" / "page.html")
    assert result.exit_code == 1
    assert "page.html: cannot be written: " in result.stderr
    assert run(file, "-o", file).exit_code == 2
    assert file.read_bytes() == SEND


@pytest.mark.parametrize("wrong", [["a", "b"], ["--frame", "1", "--json"], ["-o", "x", "--json"], ["x.jsonl"]])
def test_wrong_usage(wrong: list[str]) -> None:
    result = run(*wrong)
    assert result.exit_code == 2
    assert "Error: " in result.stderr


def test_an_empty_stream() -> None:
    assert Page(input=b"").entries == []
    result = run(input=b"\n\n")
    assert result.exit_code == 1
    assert "no frame 1: it has 0" in result.stderr


# Captures and packets


def test_a_capture_with_times(tmp_path: Path) -> None:
    path = tmp_path / "a.stompcap"
    with CaptureWriter(path) as writer:
        for number in range(3):
            writer.append(octets_of(Frame("MESSAGE", {"message-id": str(number)}, b"x" * number)), TIME + number)
    found = objects(path)
    assert [each["time"] for each in found] == [TIME, TIME + 1, TIME + 2]
    assert [each["offset"] for each in found] == [0, found[0]["end"], found[1]["end"]]
    page = Page(path)
    assert [entry["time"] for entry in page.entries][::2] == [
        "2023-11-14 22:13:20.123456",
        "2023-11-14 22:13:20.123458",
    ]
    assert page.octets(3)[0].endswith(b"\n\nxx\0")
    assert "22:13:20.123" in run(path).output


def test_offsets_of_a_capture_are_those_of_its_chain(tmp_path: Path) -> None:
    (tmp_path / "frames-00000000000000000100.stomp").write_bytes(SEND * 2)
    (tmp_path / "other-00000000000000000000.stomp").write_bytes(SEND)
    found = objects(tmp_path, status=1)  # there is no index, which is told
    assert [(each["flow"], each["offset"]) for each in found] == [
        ("frames", 100),
        ("frames", 100 + len(SEND)),
        ("other", 0),
    ]
    assert found[0]["parts"][1]["start"] == 105
    assert found[0]["end"] == 100 + len(SEND)
    assert Page(tmp_path, status=1).octets(2) == {0: SEND}


def test_a_fault_in_a_capture_whose_begin_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "a.stompcap"
    with CaptureWriter(path, segment_octets=1) as writer:
        for octets in (SEND, BROKEN):
            writer.append(octets, TIME)
            writer.sync()
    first, _ = sorted(path.glob("*.stomp"))
    first.unlink()
    (fault,) = objects(path, status=1)
    assert fault["offset"] == len(SEND)
    assert fault["fault"]["offset"] == len(SEND) + BROKEN.index(b"\\q")
    assert fault["time"] == TIME
    assert Page(path, status=1).entries[0]["parts"][0]["start"] == BROKEN.index(b"\\q")


def conversation(client: bytes, server: bytes, kind: Any = pcapng) -> bytes:
    """Each octet of it in a packet of its own."""
    packets = [(TIME, ethernet(tcp(CLIENT, SERVER, 9, b"", SYN))), (TIME, ethernet(tcp(SERVER, CLIENT, 99, b"", SYN)))]
    packets += [(TIME + n, ethernet(tcp(CLIENT, SERVER, 10 + n, client[n : n + 1]))) for n in range(len(client))]
    packets += [
        (TIME + 1000 + n, ethernet(tcp(SERVER, CLIENT, 100 + n, server[n : n + 1]))) for n in range(len(server))
    ]
    return bytes(kind(packets))


@pytest.mark.parametrize("kind", [pcapng, pcap])
@pytest.mark.parametrize("standard_input", [False, True])
def test_packets(kind: Any, standard_input: bool, tmp_path: Path) -> None:
    client, server = LOGIN + b"\n" + SEND, b"CONNECTED\nversion:1.2\n\n\0\r\n\nMESSAGE\nx:a\\rb\n\nhi\0"
    file = tmp_path / "a.bin"
    file.write_bytes(conversation(client, server, kind))
    found = objects("-", input=file.read_bytes()) if standard_input else objects(file)
    there, back = "10.0.0.1:50000 to 10.0.0.2:61613", "10.0.0.2:61613 to 10.0.0.1:50000"
    assert [each["flow"] for each in found] == [there, there, back, back]
    for each, stream in zip(found, [client, client, server, server]):
        line = stream[each["parts"][0]["start"] : each["parts"][0]["end"]]
        assert line.decode() == each["command"]
        assert each["time"] == (TIME if stream is client else TIME + 1000) + each["end"] - 1
        assert stream[each["end"] - 1] == 0
        header = each["parts"][1]
        assert stream[header["start"] : header["end"]].startswith(header["name"].encode() + b":")
    assert "S12-FRM-07" not in {mark["rule"] for each in found for mark in each["lint"]}  # each side by itself
    page = Page(file)
    assert [page.octets(n + 1)[0] for n in (1, 2, 3)] == [SEND, server[:24], server[27:]]
    assert [entry["flow"] for entry in page.entries] == [there, there, back, back]
    assert f"A {there}" in run(file).output


def test_what_is_broken_in_packets_is_an_entry_and_nothing_comes_twice(tmp_path: Path) -> None:
    file = tmp_path / "a.pcapng"
    client = LOGIN + SEND * 3 + BROKEN + SEND + BROKEN + SEND
    packets = [(TIME, ethernet(tcp(CLIENT, SERVER, 9, b"", SYN))), (TIME, ethernet(tcp(CLIENT, SERVER, 10, client)))]
    file.write_bytes(pcapng(packets))
    found = objects(file, status=1)
    commands = [each.get("command", "fault") for each in found]
    assert commands == ["CONNECT", *["SEND"] * 3, "fault", "SEND", "fault", "SEND"]
    assert [each["offset"] for each in found if "fault" in each] == [client.index(BROKEN), client.rindex(BROKEN)]
    assert [each["fault"]["offset"] for each in found if "fault" in each][1] == client.rindex(b"\\q")
    assert found[-1]["end"] == len(client)
    assert "hunter2" not in Page(file, status=1).everything()


def test_octets_between_frames_and_a_connection_of_the_same_addresses(tmp_path: Path) -> None:
    file = tmp_path / "a.pcapng"
    packets = [(TIME, tcp(CLIENT, SERVER, 9, b"", SYN)), (TIME, tcp(CLIENT, SERVER, 10, SEND + b"\r\n\n\0" + SEND))]
    packets += [(TIME, tcp(CLIENT, SERVER, 999, b"", SYN)), (TIME, tcp(CLIENT, SERVER, 1000, b"\n" + SEND))]
    file.write_bytes(pcapng(packets, link=101))
    found = objects("--lenient", file)
    assert [each["offset"] for each in found] == [0, len(SEND) + 4, 1]
    page = Page("--lenient", file)
    assert [page.octets(number) for number in (1, 2, 3)] == [{0: SEND}] * 3


# The terminal


def test_the_panes() -> None:
    data = LOGIN + SEND * 20
    lines = run("--frame", "11", input=data).output.splitlines()
    numbers = [int(line[1:8]) for line in lines if re.match(r"[> ] +\d+ +\d+  \w", line)]
    assert numbers == list(range(5, 18))
    assert next(line for line in lines if line.startswith(">")).split()[1:4] == [
        "11",
        str(len(LOGIN + SEND * 9)),
        "SEND",
    ]
    shown = "".join(re.findall(r"^[0-9a-f]{8}  (.{48})", "\n".join(lines), re.MULTILINE))
    assert bytes.fromhex(shown) == SEND
    assert lines[-1] == "hello"
    last = run("--frame", "21", input=data)
    assert last.exit_code == 0
    assert [int(number) for number in re.findall(r"^[> ] +(\d+) +\d+  \w", last.output, re.MULTILINE)] == [
        *range(15, 22)
    ]
    result = run("--frame", "22", input=data)
    assert result.exit_code == 1
    assert "no frame 22: it has 21" in result.stderr


def test_no_escape_sequences_in_a_pipe_or_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = Frame("SEND", {"destination": "\x1b[2J", "\x1b[2J": "\x07"}, b"\x1b[2J")
    data = serialize(evil) + SEND
    assert not {"\x1b", "\x07"} & set(run(input=data).output)
    assert not {"\x1b", "\x07"} & set(run(input=data, NO_COLOR="1", FORCE_COLOR="1", TERM="xterm").output)
    coloured = run(input=data, FORCE_COLOR="1", TERM="xterm", NO_COLOR="").output
    assert "\x1b[" in coloured
    assert "\x1b[2J" not in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert plain == run(input=data).output


def test_the_octets_have_the_colours_of_their_parts() -> None:
    coloured = run(input=SEND, FORCE_COLOR="1", TERM="xterm", NO_COLOR="").output
    pieces = re.findall(r"(\x1b\[[0-9;]*m)([0-9a-f ]+?|[^\x1b\n]*?)\x1b\[0m", coloured)
    hexes = {style: [text for s, text in pieces if s == style] for style, _ in pieces}
    assert ["53 45 4e 44", "SEND"] == [text for text in hexes["\x1b[1;35m"] if text in ("53 45 4e 44", "SEND")]
    assert "hello" in hexes["\x1b[32m"]
