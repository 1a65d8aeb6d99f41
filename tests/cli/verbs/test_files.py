"""stompcodec convert and inspect: what goes in comes out, in every form; the parts of frames, and the page."""

import gzip
import hashlib
import io
import json
import os
import re
import struct
import sys
from base64 import b64decode, b64encode
from functools import partial
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from cli.packets import ACK, CLIENT, FIN, SERVER, SYN, block, ethernet, pcap, pcapng, section, tcp
from cli.running import ended, objects
from cli.running import run as run_verb
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame, serialize
from stompcodec.capture import Capture, CaptureWriter, octets_of
from stompcodec.cli.packets import Dissection, Flow, packets
from stompcodec.cli.verbs import convert

TIME = 1_700_000_000_123_456
FRAMES = [
    Frame("MESSAGE", [("destination", "/queue/a"), ("message-id", "1"), ("a:b", "x\n"), ("a:b", "again")], b"hello"),
    Frame("MESSAGE", {"destination": "/queue/b", "message-id": "2", "content-length": "3"}, b"\0\xff\0"),
    Frame("ERROR", {"message": "no"}, "\u20ac".encode()),
]


run, look = partial(run_verb, "convert"), partial(run_verb, "inspect")


def good(*arguments, **options):
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result.stdout_bytes


@pytest.fixture
def capture(tmp_path):
    path = tmp_path / "a.stompcap"
    with CaptureWriter(path) as writer:
        for number, frame in enumerate(FRAMES):
            writer.append(octets_of(frame), TIME + number)
    return path


def held(path):
    return [(time, frame) for _, time, frame in Capture(path).frames()]


@pytest.mark.parametrize("through", ["x.stomp", "x.jsonl", "x.stompcap", "x.parquet"])
def test_there_and_back(capture, tmp_path, through):
    if through == "x.parquet":
        pytest.importorskip("pyarrow")
    good(capture, tmp_path / through)
    good(tmp_path / through, tmp_path / "back.stompcap")
    expected, found = held(capture), held(tmp_path / "back.stompcap")
    assert [frame for _, frame in found] == [frame for _, frame in expected]
    assert [time for time, _ in found] == ([0] * 3 if through == "x.stomp" else [time for time, _ in expected])


BODIES = (
    *(b'{"n":1.5,"s":"\\ud800"}', b" [1,\n2] ", b'"a"', b"", b"oops", b"\xff", b"NaN", b"1e999", b"[" * 10**5),
    *(b"[1]\0", '{"a":1}'.encode("utf-16")),
)


def test_json_bodies_are_values_in_lines_on_demand(tmp_path):
    (tmp_path / "a.stomp").write_bytes(
        b"".join(octets_of(Frame("SEND", {"destination": "/queue/a"}, body)) for body in BODIES)
    )
    result = run(tmp_path / "a.stomp", tmp_path / "x.jsonl", "--body", "json")
    ended(result, 0, "bodies that are not JSON stay as they are: 7\n")
    lines = objects((tmp_path / "x.jsonl").read_bytes())
    assert [line.get("body") for line in lines[:7]] == [{"n": 1.5, "s": "\ud800"}, [1, 2], "a", "", "oops", None, "NaN"]
    assert [at for at, line in enumerate(lines) if "body_b64" in line] == [5, 10]
    ended(run(tmp_path / "x.jsonl", "-"), 1, 'line 1: "body" and "body_b64" must be strings')


def test_bodies_are_text_in_parquet_on_demand(capture, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    ended(run(capture, tmp_path / "x.parquet", "--body", "text"), 1, "1: invalid start byte: leave out --body text")
    assert parquet.read_table(tmp_path / "x.parquet").column("body").to_pylist() == ["hello", "\u20ac"]
    good(tmp_path / "x.parquet", tmp_path / "back.stompcap")
    assert [frame for _, frame in held(tmp_path / "back.stompcap")] == FRAMES[::2]
    for wrong in ("x.stomp", "text"), ("x.jsonl", "text"), ("y.parquet", "json"):
        ended(run(capture, tmp_path / wrong[0], "--body", wrong[1]), 2, f"--body {wrong[1]} is for ")


@pytest.mark.parametrize(("limit", "groups"), [({}, 1), ({"_ROWS": 2}, 2), ({"_GROUP": 1}, 3)])
def test_row_groups_of_parquet_are_bounded(capture, tmp_path, monkeypatch, limit, groups):
    parquet = pytest.importorskip("pyarrow.parquet")
    for name, value in {"_JOINED": 1, **limit}.items():
        monkeypatch.setattr(convert, name, value)
    good(capture, tmp_path / "x.parquet")
    assert parquet.ParquetFile(tmp_path / "x.parquet").metadata.num_row_groups == groups


@pytest.mark.parametrize(
    ("raw", "frame"),
    [
        (b"MESSAGE\r\na:1\r\n\r\nhi\0SEND\ncontent-length:2\n\n\0\0\0", Frame("MESSAGE", {"a": "1"}, b"hi")),
        # A capture is in 1.2; a raw stream follows its CONNECTED.
        (b"CONNECTED\nversion:1.0\n\n\0MESSAGE\nwindows:c:\\new\n\nhi\0", Frame("CONNECTED", {"version": "1.0"})),
    ],
    ids=["as it was", "by version"],
)
def test_a_raw_stream_comes_out_of_a_capture_as_it_was(raw, frame, tmp_path):
    (tmp_path / "a.stomp.gz").write_bytes(gzip.compress(b"\n\n" + raw + b"\n", mtime=0))
    good(tmp_path / "a.stomp.gz", tmp_path / "a.stompcap")
    assert held(tmp_path / "a.stompcap")[0][1] == frame
    assert held(tmp_path / "a.stompcap")[1][1].get("windows") in (None, "c:\\new")
    assert (tmp_path / "a.stompcap").read_bytes().startswith(raw) is (frame.command == "MESSAGE")
    good(tmp_path / "a.stompcap", tmp_path / "b.stomp")
    assert (tmp_path / "b.stomp").read_bytes() == raw


def test_nothing_is_written_over(capture, tmp_path):
    (tmp_path / "x.jsonl").write_text("mine")
    for target in ("x.jsonl", capture.name):
        ended(run(capture, tmp_path / target), 1, "exists already")
    assert ((tmp_path / "x.jsonl").read_text(), len(held(capture))) == ("mine", 3)

    assert run(capture, tmp_path / "no" / "x.jsonl").exit_code == 1


@pytest.mark.parametrize("name", ["x.csv", "x.stomp.gz", "x.parquet.gz", "x.pcap", "x.arrow/"])
def test_a_name_that_promises_another_format_is_refused(capture, tmp_path, name):
    ended(run(capture, f"{tmp_path}/{name}"), 2, "see --to" + " (or read Parquet with DuckDB" * name.endswith("csv"))
    assert list(tmp_path.iterdir()) == [capture]
    if name != "x.arrow/":
        assert run(capture, tmp_path / name, "--to", "raw").exit_code == 0


@pytest.mark.parametrize(
    ("name", "data", "said", "shown"),
    [
        ("a.stomp", octets_of(FRAMES[0]) + b"NONSENSE\n\n\0", "unknown-command", 1),
        ("a.stomp", octets_of(FRAMES[0]) + b"MESSAGE\n\nhal", "truncated", 1),
        ("a.stompcap", octets_of(FRAMES[0]) + b"NONSENSE\n\n\0", "are not whole frames", 1),
        ("a.jsonl", b'{"command":"BEGIN"}\n{"command":1}\n', "line 2: not a JSON object", 1),
        ("a.pcapng", b"\n\r\r\n" + bytes(20), "byte-order mark", 0),
        ("a.pcapng", b"hello", "it holds no packets", 0),
        ("a.stomp.gz", gzip.compress(b"\n" * 1000, mtime=0)[:15], "cannot be read", 0),
    ],
)
def test_what_is_broken_is_told_and_the_rest_is_written(tmp_path, name, data, said, shown):
    (tmp_path / name).write_bytes(data)
    result = run(tmp_path / name, "-")
    assert (result.exit_code, said in result.stderr, result.stderr.count("stompcodec: ")) == (1, True, 1)
    assert result.stderr.startswith(f"stompcodec: {tmp_path / name}: ")
    assert len(result.stdout.splitlines()) == shown


def test_a_missing_extra_is_named(capture, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ended(run(capture, tmp_path / "x.parquet"), 2, "pip install 'stompcodec[parquet]'")
    assert not (tmp_path / "x.parquet").exists()


def test_parquet_that_is_none(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + os.urandom(50) + b"PAR1")
    assert "cannot be read" in run(tmp_path / "a.parquet", "-").stderr
    parquet.write_table(pytest.importorskip("pyarrow").table({"command": ["SEND"]}), tmp_path / "b.parquet")
    assert "lacks the columns" in run(tmp_path / "b.parquet", "-").stderr


FORMS = ("stomp", "jsonl", "stompcap", "pcapng", "parquet")


@pytest.mark.parametrize("target", ["out.stomp", "out.stompcap", "out.parquet"])
@pytest.mark.parametrize("source", [*(f"none.{form}" for form in FORMS), "none/none"])
def test_nothing_is_made_where_nothing_can_be_read(source, target, tmp_path, monkeypatch):
    if "parquet" in source + target:
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    Path("foreign").write_bytes(b"root:x:0:0\n")
    Path("packed.gz").write_bytes(b"\x1f\x8bnothing")
    for each in (source, "foreign", "packed.gz"):
        result = run(each, target)
        assert (result.exit_code, each in result.stderr, "written to" in result.stderr) == (1, True, False)
        assert {path.name for path in tmp_path.iterdir()} == {"foreign", "packed.gz"}


# ---- packets ----
TALK = (
    (CLIENT, serialize(Frame("CONNECT", {"accept-version": "1.1,1.2", "host": "h"}), None)),
    (SERVER, serialize(Frame("CONNECTED", {"version": "1.1"}), None)),
    (CLIENT, b"\n" + serialize(Frame("SEND", {"destination": "/queue/a"}, b"x" * 300), "1.1")),
    (SERVER, serialize(Frame("MESSAGE", {"destination": "/queue/a", "cr": "c:\\\r"}, b"y" * 300), "1.1") + b"\n"),
    (CLIENT, serialize(Frame("DISCONNECT", {"receipt": "1"}), "1.1")),
    (SERVER, serialize(Frame("RECEIPT", {"receipt-id": "1"}), "1.1")),
)
OTHER = {CLIENT: SERVER, SERVER: CLIENT}
COMMANDS = ["CONNECT", "CONNECTED", "SEND", "MESSAGE", "DISCONNECT", "RECEIPT"]


def conversation(start=2**32 - 100, size=70):
    """IP packets of TALK; the numbers run over 2**32."""
    at = {CLIENT: start, SERVER: start + 5}
    found = [tcp(each, OTHER[each], at[each] - 1, flags=SYN) for each in at]
    for source, data in TALK:
        for cut in range(0, len(data), size):
            found.append(tcp(source, OTHER[source], at[source], data[cut : cut + size]))
            at[source] += len(data[cut : cut + size])
    return [*found, *(tcp(each, OTHER[each], at[each], flags=FIN | ACK) for each in at)]


def dissected(data, problems=None):
    told = [] if problems is None else problems
    stream = io.BytesIO(data)
    found = list(Dissection(told.append).frames(packets(lambda size: stream.read(min(size, 7)), told.append)))
    assert problems is not None or not told
    return found


def file_of(ip):
    return pcapng([(0, ethernet(each)) for each in ip])


@pytest.mark.parametrize("form", ["pcapng", "big-endian", "nanoseconds", "binary", "pcap", "raw link", "tagged"])
def test_forms_of_files(form):
    plain = conversation()
    timed = [(TIME + number, ethernet(data, form == "tagged")) for number, data in enumerate(plain)]
    data = {
        "big-endian": lambda: pcapng(timed, order=">"),
        "nanoseconds": lambda: pcapng([(ticks * 1000, data) for ticks, data in timed], unit=9),
        "binary": lambda: pcapng([(-(-(ticks << 20) // 10**6), data) for ticks, data in timed], unit=128 | 20),
        "pcap": lambda: pcap(timed),
        "raw link": lambda: pcapng([(ticks, data) for (ticks, _), data in zip(timed, plain)], link=101),
    }.get(form, lambda: pcapng(timed))()
    found = dissected(data)
    assert [frame.command for _, frame in found] == COMMANDS
    assert found[0][0] == TIME + 2  # behind two SYNs
    assert found[3][1].headers["cr"] == "c:\\\r"


def test_ipv6_is_read_and_other_protocols_are_passed_over():
    a, b = (bytes(15) + b"\x01", 1), (bytes(15) + b"\x02", 2)
    found = dissected(file_of([tcp(a, b, 7, flags=SYN), tcp(a, b, 8, serialize(Frame("SEND", {"destination": "a"})))]))
    assert [frame.command for _, frame in found] == ["SEND"]
    web = [tcp(CLIENT, SERVER, 1, flags=SYN), tcp(CLIENT, SERVER, 2, b"GET / HTTP/1.1\r\n\r\n")]
    udp = tcp(CLIENT, SERVER, 0)[:9] + b"\x11" + tcp(CLIENT, SERVER, 0)[10:]
    assert dissected(file_of([*web, udp, b"\x45", b""])) == []


def test_a_packet_that_is_missing_costs_its_frame_only():
    sent = conversation()
    lost = next(number for number, data in enumerate(sent) if b"x" * 70 in data)
    problems = []
    found = dissected(file_of([data for n, data in enumerate(sent) if n != lost]), problems)
    assert sorted(frame.command for _, frame in found) == sorted(set(COMMANDS) - {"SEND"})
    (problem,) = problems
    assert "10.0.0.1:50000 to 10.0.0.2:61613: bytes are missing" in problem


INTERFACE = block(1, struct.pack("<HHI", 1, 0, 0))


@pytest.mark.parametrize(
    ("blocks", "problem"),
    [
        *((block(1, bytes(4)), "interface is too short"), (block(3, bytes(8)), "a packet has no interface")),
        (INTERFACE + block(6, bytes(16)), "a packet is too short"),
        (INTERFACE + block(6, struct.pack("<5I", 0, 0, 0, 5, 5) + bytes(4)), "longer than it is"),
        (INTERFACE + struct.pack("<II", 6, 8), "an impossible size"),
        (INTERFACE + struct.pack("<II", 6, 2**31), "is impossible"),
        (INTERFACE + block(5, bytes(12))[:16], "ends inside a block"),
    ],
)
def test_a_malformed_block_is_told(blocks, problem):
    problems = []
    assert (dissected(section() + blocks, problems), [problem in each for each in problems]) == ([], [True])


@given(st.binary(max_size=300), st.integers(0, 2**32), st.booleans())
def test_any_octets_in_the_place_of_packets(noise, at, links):
    data = bytearray(file_of(conversation()))
    at %= len(data)
    data[at : at + len(noise)] = noise
    dissected(bytes(data), [])
    dissected(pcapng([(0, noise)], link=noise[0] if noise and links else 1), [])


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 30)), max_size=60), st.integers(0, 2**32 - 1))
def test_reassembly_gives_octets_once_and_in_order(parts, start):
    stream, flow, got, have = bytes(range(256)) * 2, Flow(), b"", set()
    flow.start(start - 1)
    for at, size in parts:
        have.update(range(at, min(at + size, len(stream))))
        got += b"".join(flow.feed((start + at) % 2**32, stream[at : at + size]))
        assert stream.startswith(got)
        assert len(got) == next(n for n in range(len(stream) + 1) if n not in have)


# ---- inspect: where the parts of frames are, the panes, the page and its bounds, secrets ----
LOGIN = b"CONNECT\nlogin:ann\npasscode:hunter2\naccept-version:1.2\nhost:a\n\n\0"
SEND = b"SEND\ndestination:/queue/a\ncontent-type:text/plain\ncontent-length:5\n\nhello\0"
BROKEN = b"SEND\nx:\\q\npasscode:hunter2\n\n\0"
CONNECTED = b"CONNECTED\nversion:1.2\n\n\0"
MESSAGE = b"MESSAGE\ndestination:/queue/b\nmessage-id:1\nsubscription:s\n\nhi\0"
EVIL = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\u2028\u2029]]>&lt;"


def listed(*arguments, input=None, status=0):
    result = look("--json", *arguments, input=input)
    assert result.exit_code == status, result.output
    return objects(result)


class Page(HTMLParser):
    def __init__(self, *arguments, input=None, status=0):
        super().__init__(convert_charrefs=True)
        result = look(*arguments, "-o", "-", input=input)
        assert result.exit_code == status, result.output
        self.text = result.stdout_bytes.decode()
        self.elements, self.texts = [], []
        self.feed(self.text)
        self.close()
        (book,) = re.findall(r'<script type="application/json" id="book">(.*?)</script>', self.text, re.DOTALL)
        self.book = json.loads(book)
        self.entries = self.book["entries"]
        #: Of each entry: start -> octets of its runs.
        self.octets = [{start: b64decode(data) for start, data in entry["runs"]} for entry in self.entries]
        #: The page and all octets in it.
        runs = [data for each in self.octets for data in each.values()]
        self.everything = self.text + book + b"\n".join(runs).decode("latin1")

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self.elements[-1][0] if self.elements else "", data))


@pytest.mark.parametrize(
    ("options", "data", "expected", "kept"),
    [
        ("", b"ACK\r\nid:7\r\n\r\n\0", b"ACK|id:7|\0", ["id"]),
        ("--version 1.0", b"ACK\nid:7\r\n\n\0", b"ACK|id:7\r|\0", ["id"]),
        ("--lenient", b"\0ACK\nno colon\n:x\nid:7\n\n\0", b"ACK|no colon|:x|id:7|\0", ["id"]),
        ("--lenient --version 1.0", b"ACK\n id : 7\n :x\n\n\0", b"ACK| id : 7| :x|\0", ["id"]),
        ("--lenient --version 1.0", b"ACK\r\nid:7\r\n\r\n\0", b"ACK|id:7|\0", ["id"]),
        ("--lenient", b"ACK\n :x\nid:7\n\n\0", b"ACK| :x|id:7|\0", [" ", "id"]),
        ("--version legacy", b"ack\nID: 7 \r\n  \n\0", b"ack|ID: 7 |\0", ["id"]),
    ],
)
def test_the_parts_of_odd_heads(options, data, expected, kept):
    (found,) = listed("-", *options.split(), input=data)
    assert b"|".join(data[part["start"] : part["end"]] for part in found["parts"]) == expected
    assert [part["name"] for part in found["parts"] if part["part"] == "header"] == kept


@given(
    lines=st.lists(st.text("ab:\\\\c \rü", max_size=6), max_size=5),
    eol=st.sampled_from(["\n", "\r\n"]),
    version=st.sampled_from(["auto", "1.0", "1.1", "1.2", "legacy"]),
    lenient=st.sampled_from([[], ["--lenient"]]),
)
def test_no_head_is_too_odd(lines, eol, version, lenient):
    data = eol.join(["SEND", *lines, "", "body\0"]).encode()
    result = look("--json", "--version", version, *lenient, input=data)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    for line in objects(result):
        for before, part in pairwise(line["parts"]):
            assert set(data[before["end"] : part["start"]]) <= set(b"\r\n "), (before, part)
            assert before["end"] <= part["start"]
    assert "use strict" in Page("--version", version, *lenient, input=data, status=result.exit_code).text


def test_marks_stand_at_what_they_are_about_with_the_titles_of_rules():
    data = LOGIN + b"SEND\nid:a:b\nid:2\n\nhi\0"
    send = listed("-", input=data)[1]
    marks = {mark["rule"]: mark["part"] for mark in send["lint"]}
    assert marks["S12-SND-01"] is None
    assert send["parts"][marks["S12-FRM-05"]]["start"] == len(LOGIN) + 5
    assert send["parts"][marks["S12-HDR-02"]]["start"] == len(LOGIN) + 12
    page = Page(input=data)
    assert {mark["rule"]: mark["part"] for mark in page.entries[1]["marks"]} == marks
    assert set(marks) <= set(page.book["rules"])
    assert all(mark["title"] == page.book["rules"][mark["rule"]] for mark in send["lint"])
    lines = [line.strip() for line in look("--frame", "2", input=data).output.splitlines()]
    assert "error S12-SND-01: SEND has no header destination (add it)" in lines
    assert f"rule: {page.book['rules']['S12-SND-01']}" in lines
    at = next(index for index, line in enumerate(lines) if line.endswith("a:b"))
    assert lines[at + 1].startswith("warning S12-FRM-05: ")


def test_a_fault_is_an_entry():
    data = SEND + BROKEN + SEND
    first, fault = listed("-", input=data, status=1)
    at = data.index(b"\\q")
    assert (first["offset"], fault["offset"]) == (0, len(SEND))
    assert fault["fault"].items() >= {"kind": "bad-escape", "offset": at, "resumed": None}.items()
    assert "fix the sender" in fault["fault"]["remedy"]
    assert fault["parts"] == [{"part": "fault", "name": "fault", "start": at, "end": at + 1}]
    assert [mark["rule"] for mark in fault["lint"]] == ["S12-ESC-05"]
    entry = Page(input=data, status=1).entries[1]
    assert (entry["fault"]["at"], entry["parts"][0]["start"]) == (at, at - len(SEND))
    result = look("--frame", "2", input=data)
    assert (result.exit_code, f"octet {at}: undefined escape in a header" in result.stdout) == (1, True)
    assert "--resync continues after it" in result.stderr
    _, fault, last = listed("--resync", input=data, status=1)
    assert fault["fault"]["resumed"] == last["offset"] == len(SEND + BROKEN)
    assert "no further frame was found" not in fault["lint"][0]["text"]
    assert "no further frame was found" in listed("--resync", input=BROKEN, status=1)[0]["lint"][0]["text"]


def test_pages_that_cannot_be_made(tmp_path):
    file, page = tmp_path / "a.stomp", tmp_path / "page.html"
    file.write_bytes(SEND)
    result = look(tmp_path / "none", "-o", page)
    assert (result.exit_code, "none: cannot be read: " in result.stderr, page.exists()) == (1, True, False)
    ended(look(file, "-o", tmp_path / "none" / "page.html"), 1, "page.html: cannot be written: ")
    assert (look(file, "-o", file).exit_code, file.read_bytes()) == (2, SEND)


# Captures and packets
def talk(client, server, kind=pcapng):
    packets = [(TIME, tcp(CLIENT, SERVER, 9, b"", SYN)), (TIME, tcp(SERVER, CLIENT, 99, b"", SYN))]
    packets += [(TIME + n, tcp(CLIENT, SERVER, 10 + n, client[n : n + 1])) for n in range(len(client))]
    packets += [(TIME + 1000 + n, tcp(SERVER, CLIENT, 100 + n, server[n : n + 1])) for n in range(len(server))]
    return bytes(kind([(time, ethernet(packet)) for time, packet in packets]))


@pytest.mark.parametrize(("kind", "standard_input"), [(pcapng, False), (pcap, True)])
def test_packets(kind, standard_input, tmp_path):
    client, server = LOGIN + b"\n" + SEND, b"CONNECTED\nversion:1.2\n\n\0\r\n\nMESSAGE\nx:a\\rb\n\nhi\0"
    file = tmp_path / "a.bin"
    file.write_bytes(talk(client, server, kind))
    found = listed("-", input=file.read_bytes()) if standard_input else listed(file)
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
    assert [octets[0] for octets in page.octets[1:]] == [SEND, server[:24], server[27:]]
    assert [entry["flow"] for entry in page.entries] == [there, there, back, back]
    assert f"A {there}" in look(file).output


def test_what_is_broken_in_packets_is_an_entry_and_nothing_comes_twice(tmp_path):
    file, client = tmp_path / "a.pcapng", LOGIN + SEND * 3 + BROKEN + SEND + BROKEN + SEND
    packets = [(TIME, tcp(CLIENT, SERVER, 9, b"", SYN)), (TIME, tcp(CLIENT, SERVER, 10, client))]
    file.write_bytes(pcapng(packets, link=101))
    found = listed(file, status=1)
    commands = [each.get("command", "fault") for each in found]
    assert " ".join(commands) == "CONNECT SEND SEND SEND fault SEND fault SEND"
    faults = [each for each in found if "fault" in each]
    assert [each["offset"] for each in faults] == [client.index(BROKEN), client.rindex(BROKEN)]
    assert (faults[1]["fault"]["offset"], found[-1]["end"]) == (client.rindex(b"\\q"), len(client))
    assert "hunter2" not in Page(file, status=1).everything


def test_octets_between_frames_and_a_connection_of_the_same_addresses(tmp_path):
    file = tmp_path / "a.pcapng"
    packets = [(TIME, tcp(CLIENT, SERVER, 9, b"", SYN)), (TIME, tcp(CLIENT, SERVER, 10, SEND + b"\r\n\n\0" + SEND))]
    packets += [(TIME, tcp(CLIENT, SERVER, 999, b"", SYN)), (TIME, tcp(CLIENT, SERVER, 1000, b"\n" + SEND))]
    file.write_bytes(pcapng(packets, link=101))
    assert [each["offset"] for each in listed("--lenient", file)] == [0, len(SEND) + 4, 1]
    assert Page("--lenient", file).octets == [{0: SEND}] * 3


def test_no_escape_sequences_in_a_pipe_or_with_no_color():
    evil = Frame("SEND", {"destination": "\x1b[2J", "\x1b[2J": "\x07"}, b"\x1b[2J")
    data = serialize(evil) + SEND
    assert not {"\x1b", "\x07"} & set(look(input=data).output)
    assert not {"\x1b", "\x07"} & set(look(input=data, NO_COLOR="1", FORCE_COLOR="1", TERM="xterm").output)
    coloured = look(input=data, FORCE_COLOR="1", TERM="xterm", NO_COLOR="").output
    assert "\x1b[" in coloured
    assert "\x1b[2J" not in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == look(input=data).output


@pytest.mark.parametrize("name", ["passcode", "X-Token", "Authorization", "my-password"])
def test_secrets_are_nowhere(name):
    good = f"STOMP\naccept-version:1.2\nhost:a\n{name}:hunter2\\c!\n\n\0".encode()
    broken = f"SEND\n{name}:hunter2\nx:\\q\n\n\0".encode()
    skipped = f"SEND\n{name} hunter2\ndestination:/q\n\n\0".encode()
    page = Page("--resync", input=good + broken, status=1)
    assert "hunter2" not in page.everything
    assert b64encode(b"hunter2").decode()[:8] not in page.text
    assert page.octets[0][0] == good.replace(b"hunter2\\c!", b"*" * 10)
    assert page.entries[0]["parts"][3]["meant"] == "***"
    for number in ("1", "2"):
        output = look("--resync", "--frame", number, input=good + broken).output
        joined = "".join(re.findall(r"\|(.*)\|", output))
        assert "*******" in joined
        assert "hunter2" not in output.replace("  |", "") + joined
    assert "hunter2" not in Page("--lenient", input=skipped).everything
    listed = look("--json", input=LOGIN + BROKEN).output  # no value and no octet
    assert not [word for word in ("hunter2", "ann") if word in listed]


def test_secrets_on_request():
    page = Page("--secrets", input=LOGIN + BROKEN, status=1)
    assert [octets[0] for octets in page.octets] == [LOGIN, BROKEN]
    assert page.entries[0]["parts"][2]["meant"] == "hunter2"
    assert "passcode        hunter2" in look("--secrets", input=LOGIN).output


HEADERS = {"destination": EVIL, EVIL: EVIL, "content-type": EVIL}
HOSTILE = LOGIN + serialize(Frame("SEND", HEADERS, (EVIL * 3).encode())) + b"SEND\n" + EVIL.encode() + b"\n\n\0"


def test_nothing_breaks_out_of_the_page_and_only_its_own_script_may_run(tmp_path):
    file = tmp_path / "<script>alert(3)<!-- .stomp".replace("/", "")
    file.write_bytes(HOSTILE)
    page, plain = Page(file, status=1), Page(input=LOGIN)
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "book"}, {}]
    book, script = (text for tag, text in page.texts if tag == "script")
    assert script == next(text for tag, text in plain.texts if tag == "script" and "use strict" in text)
    assert not set("<>&\u2028\u2029") & set(book)
    assert page.text.count("alert(1)") == book.count("alert(1)")
    assert page.entries[1]["body"]["text"].startswith("</script><script>")
    (policy,) = [attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes]
    assert 'http-equiv="Content-Security-Policy"' in page.text
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    (script,) = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    for name, text in (("script-src", script), ("style-src", style)):
        assert rules.pop(name) == f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert rules == {name: "'none'" for name in ("default-src", "base-uri", "form-action")}
    assert page.text.index("Content-Security-Policy") < page.text.index("<style>")
    assert not re.search(r"innerHTML|insertAdjacent|\b(eval|Function|document\.write|fetch|import)\b *\(", script)
    assert not re.search(r"url\(|@import", style)
    assert {name for _, attributes in page.elements for name in attributes} & {"src", "href", "style"} == set()
    assert not [tag for tag, _ in page.elements if tag in ("link", "img", "iframe", "object", "base")]


@pytest.mark.parametrize(("size", "note"), [(2**20, "decompressed to 1048576 bytes"), (2**20 + 1, "more than 1048576")])
def test_inflating_is_bounded(size, note):
    data = serialize(Frame("SEND", {"content-encoding": "gzip"}, gzip.compress(bytes(size))))
    assert any(note in each for each in Page(input=data).entries[0]["body"]["notes"])


@pytest.mark.parametrize(
    ("data", "first", "status"),
    [
        *((CONNECTED + SEND + MESSAGE + MESSAGE, 3, 0), (CONNECTED, 1, 0), (BROKEN + MESSAGE, 2, 1)),
        (CONNECTED * 40 + MESSAGE + SEND * 40, 41, 0),
    ],
)
def test_it_opens_at_the_first_message(data, first, status):
    page = Page("--resync", input=data, status=status)
    assert page.book["first"] == first - 1
    assert "choose(book.first)" in page.text
    assert re.findall(r"^> +(\d+)", look("--resync", input=data).output, re.MULTILINE) == [str(first)]
    assert re.findall(r"^> +(\d+)", look("--resync", "--frame", "1", input=data).output, re.MULTILINE) == ["1"]


def test_a_page_has_at_most_2000_frames(tmp_path):
    page = tmp_path / "page.html"
    result = look("-o", page, input=b"ACK\nid:1\n\n\0" * 2001)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"2,000 entries written to {page}, 1 left out (")
    assert page.read_text(encoding="utf-8").count('"command":"ACK"') == 2000
    assert len(listed("-", input=b"ACK\nid:1\n\n\0" * 2001)) == 2001


@pytest.mark.parametrize(("size", "shown", "pane"), [(512, 512, 512), (4096, 4096, 512), (4097, 4096, 512)])
def test_bodies_are_cut(size, shown, pane):
    data = serialize(Frame("SEND", {"destination": "/q"}, b"x" * size))
    page = Page(input=data)
    assert (page.octets[0][0].count(b"x"), page.entries[0]["length"]) == (shown, len(data))
    out = look(input=data).output
    assert ("more bytes)" in out) == (size > pane)
    assert bytes.fromhex("".join(re.findall(r"^[0-9a-f]{8}  (.{48})", out, re.MULTILINE))).count(b"x") == pane


def test_long_heads_are_cut_and_the_body_is_there():
    data = serialize(Frame("SEND", [("destination", "/q"), *[("x" * 40, "y" * 2100)] * 20], b"hello"))
    page = Page(input=data)
    (entry,) = page.entries
    assert page.octets[0] == {0: data[: 16 * 1024], data.index(b"hello"): b"hello\0"}
    assert (entry["more"], max(len(part.get("meant", "")) for part in entry["parts"])) == (22 - 9, 2000)
    assert all(mark["part"] is None or mark["part"] < len(entry["parts"]) for mark in entry["marks"])


@pytest.mark.parametrize("body", [b"x" * 4096, b"\0\xff" * 2048, EVIL.encode() * 30, b""], ids=["x", "bin", "evil", ""])
def test_a_page_has_at_most_2_mb(body):
    frame = serialize(Frame("SEND", [("destination", EVIL), *[(f"h{number}", "v") for number in range(30)]], body))
    page = Page(input=frame * 1500)
    assert len(page.text.encode()) <= 2_000_000
    assert len(page.entries) > 250
    assert len(page.entries) + page.book["left"] == 1500
    sizes = [sum(map(len, octets.values())) for octets in page.octets]
    assert sizes == sorted(sizes, reverse=True)  # the bodies of later frames are the ones that are cut
    assert len(frame) - sizes[-1] <= max(0, len(body) + 1 - 256)
    huge = serialize(Frame("SEND", [(f"h{number}", "v" * 5000) for number in range(500)], body * 1_000))
    page = Page(input=MESSAGE + huge)
    assert (len(page.text.encode()) <= 2_000_000, len(page.entries)) == (True, 2)
