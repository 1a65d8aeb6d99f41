"""stompcodec convert: what goes in comes out, in every form, and what is wrong is told."""

import gzip
import io
import os
import struct
import sys
from pathlib import Path

import pytest
from cli.packets import ACK, CLIENT, FIN, SERVER, SYN, block, ethernet, pcap, pcapng, section, tcp
from cli.running import objects
from cli.running import run as run_verb
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame, parse, serialize
from stompcodec.capture import Capture, CaptureWriter, octets_of
from stompcodec.cli.packets import Dissection, Flow, packets

TIME = 1_700_000_000_123_456
FRAMES = [
    Frame("MESSAGE", [("destination", "/queue/a"), ("message-id", "1"), ("a:b", "x\n"), ("a:b", "again")], b"hello"),
    Frame("MESSAGE", {"destination": "/queue/b", "message-id": "2", "content-length": "3"}, b"\0\xff\0"),
    Frame("ERROR", {"message": "no"}, "\u20ac".encode()),
]


def run(*arguments, **options):
    return run_verb("convert", *arguments, **options)


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


def test_standard_input_and_output(capture):
    shown = objects(good(capture, "-"))
    assert [each["received_at"] for each in shown] == [TIME, TIME + 1, TIME + 2]
    assert shown[0]["headers"] == [list(pair) for pair in FRAMES[0].headers.pairs()]
    raw = b"".join(map(octets_of, FRAMES))
    assert [each["command"] for each in objects(good("-", "-", input=raw))] == ["MESSAGE", "MESSAGE", "ERROR"]
    assert parse(good("--to", "raw", capture, "-"))[0] == FRAMES[0]
    (frame,) = parse(good("--from", "json", "--to", "raw", "-", "-", input=b'{"command":"BEGIN"}\n\n'))
    assert frame.command == "BEGIN"


def test_nothing_is_written_over(capture, tmp_path):
    (tmp_path / "x.jsonl").write_text("mine")
    for target in ("x.jsonl", capture.name):
        result = run(capture, tmp_path / target)
        assert (result.exit_code, "exists already" in result.stderr) == (1, True)
    assert ((tmp_path / "x.jsonl").read_text(), len(held(capture))) == ("mine", 3)

    assert run(capture, tmp_path / "no" / "x.jsonl").exit_code == 1


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
    result = run(capture, tmp_path / "x.parquet")
    assert (result.exit_code, "pip install 'stompcodec[spark]'" in result.stderr) == (1, True)
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
    """Through a stream that gives few octets at a time."""
    told = [] if problems is None else problems
    stream = io.BytesIO(data)
    found = list(Dissection(told.append).frames(packets(lambda size: stream.read(min(size, 700)), told.append)))
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


def test_ipv6():
    a, b = (bytes(15) + b"\x01", 1), (bytes(15) + b"\x02", 2)
    found = dissected(file_of([tcp(a, b, 7, flags=SYN), tcp(a, b, 8, serialize(Frame("SEND", {"destination": "a"})))]))
    assert [frame.command for _, frame in found] == ["SEND"]


def test_a_packet_that_is_missing_costs_its_frame_only():
    sent = conversation()
    lost = next(number for number, data in enumerate(sent) if b"x" * 70 in data)
    problems = []
    found = dissected(file_of([data for n, data in enumerate(sent) if n != lost]), problems)
    assert sorted(frame.command for _, frame in found) == sorted(set(COMMANDS) - {"SEND"})
    (problem,) = problems
    assert "10.0.0.1:50000 to 10.0.0.2:61613: bytes are missing" in problem


def test_other_protocols_are_passed_over():
    web = [tcp(CLIENT, SERVER, 1, flags=SYN), tcp(CLIENT, SERVER, 2, b"GET / HTTP/1.1\r\n\r\n")]
    udp = tcp(CLIENT, SERVER, 0)[:9] + b"\x11" + tcp(CLIENT, SERVER, 0)[10:]
    assert dissected(file_of([*web, udp, b"\x45", b""])) == []


INTERFACE = block(1, struct.pack("<HHI", 1, 0, 0))


@pytest.mark.parametrize(
    ("blocks", "problem"),
    [
        (block(1, bytes(4)), "interface is too short"),
        (block(3, bytes(8)), "a packet has no interface"),
        (INTERFACE + block(6, bytes(16)), "a packet is too short"),
        (INTERFACE + block(6, struct.pack("<5I", 0, 0, 0, 5, 5) + bytes(4)), "longer than it is"),
        (INTERFACE + struct.pack("<II", 6, 8), "an impossible size"),
        (INTERFACE + struct.pack("<II", 6, 2**31), "is impossible"),
        (INTERFACE + block(5, bytes(12))[:16], "ends inside a block"),
    ],
)
def test_a_malformed_block_is_told(blocks, problem):
    problems = []
    assert dissected(section() + blocks, problems) == []
    assert [problem in each for each in problems] == [True]


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
