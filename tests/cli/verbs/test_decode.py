"""stompcodec decode and encode: the views, what they say about bad input, and that one undoes the other."""

import gzip
import json
from base64 import b64decode

import pytest
from cli.running import objects
from cli.running import run as run_verb
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame, serialize, serialize_many
from stompcodec.cli.files import frame_of
from stompcodec.cli.show import Sizes, body_of

#: In the shape of what a railway feed sends: no content-length, a message-id with raw colons, an EOL at the end.
RAILWAY = (
    b"MESSAGE\ntimestamp:1403964436156\npersistent:true\nmessage-id:ID:mq1-33946-140291-1:568:3:44:5474\n"
    b"destination:/topic/RTPPM_ALL\n\n"
    + json.dumps({"RTPPMDataMsgV1": {"owner": "x", "page": ["1"] * 9}}).encode()
    + b"\0\n"
)
LOGIN = b"CONNECT\nlogin:ann\npasscode:hunter2\naccept-version:1.2\nhost:a\n\n\0"


def run(*arguments, input=None, columns=100):
    return run_verb("decode", *arguments, input=input, COLUMNS=str(columns))


def test_the_table_is_the_default_and_reads_standard_input():
    result = run(input=RAILWAY + LOGIN)
    assert result.exit_code == 0
    head, first, second, last = result.output.splitlines()
    assert head.split() == ["OFFSET", "COMMAND", "DESTINATION", "HEADERS", "BODY", "BEGINS", "WITH"]
    size = len(RAILWAY.partition(b"\n\n")[2]) - 2
    assert first.split()[:5] == ["0", "MESSAGE", "/topic/RTPPM_ALL", "4", str(size)]
    assert second.split()[:3] == [str(len(RAILWAY)), "CONNECT", "-"]
    assert last == f"frames 2, bytes in bodies {size}, heart-beats 1"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_keeps_to_the_width(width):
    wide = serialize(Frame("SEND", {"destination": "/queue/" + "日本" * 99, "x": "y" * 5000}, "äöü".encode() * 999))
    output = run(input=wide * 3, columns=width).output
    cells = [sum(1 + (letter in "日本") for letter in line) for line in output.splitlines()[:-1]]
    assert max(cells) <= max(width, 80)


def test_json():
    frames = [Frame("CONNECTED", {"version": "1.2"}), Frame("MESSAGE", [("a", "1"), ("a", "ü:\n")], "grün\n".encode())]
    frames += [Frame("MESSAGE", {}, b"\xff\0")]
    data = b"\n".join(serialize(frame) for frame in frames)
    lines = objects(run("--json", input=data))
    assert [[*line] for line in lines] == [
        ["offset", "command", "headers", key] for key in ("body", "body", "body_b64")
    ]
    assert [line["offset"] for line in lines] == [0, len(serialize(frames[0])) + 1, data.rindex(b"MESSAGE")]
    assert lines[1]["headers"] == [["a", "1"], ["a", "ü:\n"], ["content-length", "6"]]
    assert lines[1]["body"] == "grün\n"
    assert b64decode(lines[2]["body_b64"]) == b"\xff\0"


def test_pretty():
    packed = Frame("MESSAGE", {"content-encoding": "gzip"}, gzip.compress(b"<a><b x='1'>t</b><c/></a>"))
    result = run("--pretty", input=RAILWAY + serialize(packed))
    assert '  "RTPPMDataMsgV1": {\n    "owner": "x",\n' in result.output
    assert "(content-encoding gzip: decompressed to 25 bytes)" in result.output
    assert '<a>\n  <b x="1">t</b>\n  <c/>\n</a>\n' in result.output
    assert "message-id: ID:mq1-33946-140291-1:568:3:44:5474\n" in result.output


def test_hex():
    lines = run("--hex", input=b"\n" + RAILWAY).output.splitlines()
    assert lines[0].startswith("MESSAGE at octet 1, body at ")
    assert lines[1] == "00000001  4d 45 53 53 41 47 45 0a  74 69 6d 65 73 74 61 6d  |MESSAGE.timestam|"
    assert b"".join(bytes.fromhex(line[10:58]) for line in lines[1:] if line) == RAILWAY[:-1]


def test_summary():
    bodies = [b"x" * size for size in (1, 2, 3, 4, 1000)]
    data = b"\n".join(serialize(Frame("SEND", {"destination": "/queue/a"}, body)) for body in bodies) + LOGIN
    output = run("--summary", input=data).output
    rows = [line.split() for line in output.splitlines()]
    for row in ("SEND /queue/a 5 1,010 1 3 1,000 1,000", "CONNECT - 1 0 0 0 0 0", "all 6 1,010 0 2 1,000 1,000"):
        assert row.split() in rows
    for words in (f"bytes {len(data):,}, frames 6, heart-beats 4", "MB/s", "frames/s"):
        assert words in output


@pytest.mark.parametrize("view", [[], ["--summary"], ["--summary", "--resync"]])
def test_large_bodies_are_measured_whole(view):
    size = 3 * 2**20
    result = run(*view, input=serialize(Frame("SEND", {}, b"x" * size)) + b"SEND\n\n" + b"y" * size + b"\0")
    assert result.exit_code == 0
    assert f"{2 * size:,}" in result.output or str(2 * size) in result.output


@pytest.mark.parametrize("view", [[], ["--pretty"], ["--summary"]])
def test_secrets_are_masked_for_people_only(view):
    result = run(*view, input=LOGIN + serialize(Frame("SEND", {"Authorization": "hunter2", "x-token": "hunter2"}, b"")))
    assert result.exit_code == 0
    assert "hunter2" not in result.output
    assert "hunter2" in run("--json", input=LOGIN).output
    assert "|passcode:hunter2|" in run("--hex", input=b"STOMP\nhost:1234\n" + LOGIN[18:]).output


def test_several_files_and_gzip(tmp_path):
    good, bad, torn = tmp_path / "good.stomp.gz", tmp_path / "bad.stomp", tmp_path / "torn.gz"
    good.write_bytes(gzip.compress(RAILWAY))
    bad.write_bytes(b"junk\n\n\0")
    torn.write_bytes(gzip.compress(RAILWAY * 5000)[:-30])
    result = run("--json", bad, tmp_path / "none", tmp_path, good)
    assert (result.exit_code, [line["file"] for line in objects(result)]) == (1, [str(good)])
    assert len(result.stderr.splitlines()) == 3
    assert "none: cannot be read: " in result.stderr
    assert f"==> {good} <==" in run(good, good).stdout
    result = run("--json", torn)
    assert (result.exit_code, "cannot be read" in result.stderr) == (1, True)


def test_versions_and_limits():
    assert run("--version", "1.0", "--json", input=b"SEND\na:\\q\n\nx\0").exit_code == 0
    assert "limit-exceeded" in run("--limit", "max_body=1", input=RAILWAY).stderr
    assert "--limit max_body=SIZE" in run("--limit", "max_body=1", input=RAILWAY).stderr
    assert run("--limit", "max_body=1K", "--limit", "max_headers=9", input=RAILWAY).exit_code == 0
    for wrong in ("max_body", "max_body=-1", "body=1", "max_body=1X", "max_headers=9999999"):
        assert run("--limit", wrong, input=RAILWAY).exit_code == 2


@pytest.mark.parametrize("view", [[], ["--json"], ["--pretty"], ["--hex"], ["--summary"]])
def test_no_frames(view):
    result = run(*view, input=b"\n")
    assert (result.exit_code, "MESSAGE" in result.stdout) == (0, False)


@pytest.mark.parametrize(
    "body",
    [
        *(b"[" * 5000, b"[" * 900 + b"]" * 900, b'{"a":' * 300 + b"1" + b"}" * 300, "\ufeff[1]".encode()),
        *(b"<a>" * 3000 + b"</a>" * 3000, b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", b"<" * 1000),
        *(b"\x1f\x8b" + b"x" * 100, gzip.compress(b"0" * 17 * 2**20)),
        *(b"\xff\xfe" * 1000, b"x" * (2**20 + 1), b"\0"),
    ],
)
def test_no_body_is_too_odd_to_be_shown(body):
    for headers in ({}, {"content-type": "text/plain;charset=nonsense"}, {"content-encoding": "deflate, x"}):
        shown = body_of(Frame("SEND", headers, body))
        assert len(shown.text) < 100 * len(body) + 1000
        assert run("--pretty", input=serialize(Frame("SEND", headers, body))).exit_code == 0


def test_sizes_stay_exact_until_there_are_many():
    sizes, other = Sizes(), Sizes()
    for size in range(10_000):
        sizes.add(size)
    assert (sizes.number, sizes.smallest, sizes.largest, sizes.total) == (10_000, 0, 9999, sum(range(10_000)))
    assert abs(sizes.percentile(50) - 5000) <= 50
    assert abs(sizes.percentile(99) - 9900) <= 99
    other.merge(sizes)
    assert (other.number, other.largest, other.total) == (sizes.number, sizes.largest, sizes.total)


# encode


def encode(*arguments, input=None):
    return run_verb("encode", *arguments, input=input)


def decoded(data, *arguments):
    result = run("--json", *arguments, input=data)
    assert result.exit_code == 0, result.stderr
    return result.stdout_bytes


def test_one_frame(tmp_path):
    result = encode("SEND", "-H", "destination:/queue/a", "-H", "x: a:b", "-b", "grün")
    assert result.stdout_bytes == "SEND\ndestination:/queue/a\nx: a\\cb\ncontent-length:5\n\ngrün\0".encode()
    assert encode("SEND", "-H", "a:b:c", "--version", "1.0").stdout_bytes == b"SEND\na:b:c\n\n\0"
    (tmp_path / "body").write_bytes(b"\0\xff")
    assert encode("SEND", "-b", f"@{tmp_path / 'body'}").stdout_bytes == b"SEND\ncontent-length:2\n\n\0\xff\0"
    assert encode("SEND", "-b", "-", input=b"\r\n").stdout_bytes == b"SEND\ncontent-length:2\n\n\r\n\0"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("NONSENSE", "unknown-command"),
        ("ACK -b x", "body-not-allowed"),
        ("CONNECT -H a:b\nc", "unencodable"),
        ("SEND -H content-length:7 -b x", "bad-content-length"),
        ("SEND -H passcode:a\0b", "unencodable"),
        ("SEND -b @/no/such/file", "cannot be read"),
        ("--json no_such_file", "cannot be read"),
    ],
)
def test_what_cannot_be_written(arguments, text):
    result = encode(*arguments.split(" "))
    assert (result.exit_code, result.stdout_bytes) == (1, b"")
    (line,) = result.stderr.splitlines()
    assert (text in line, "a\0b" in line) == (True, False)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
FRAMES = st.lists(
    st.builds(
        Frame,
        st.sampled_from(["SEND", "MESSAGE", "ERROR"]),
        st.lists(st.tuples(TEXT.filter(lambda name: name not in ("", "content-length")), TEXT), max_size=4),
        st.binary(max_size=20) | TEXT.map(str.encode),
    ),
    max_size=5,
)


@given(frames=FRAMES)
def test_encode_undoes_decode(frames):
    data = serialize_many(frames, "1.2")
    assert encode("--json", input=decoded(data)).stdout_bytes == data


def test_octets_that_are_no_utf8_come_back_leniently():
    data = b"SEND\na:\xff\n\n\0"
    lines = decoded(data, "--lenient")
    assert json.loads(lines)["headers"] == [["a", "\udcff"]]
    assert encode("--lenient", input=lines).stdout_bytes == data
    assert "unencodable" in encode(input=lines).stderr


@pytest.mark.parametrize(
    "line",
    [
        *("nonsense", "[]", "{}", '{"command": 1}', "[" * 100_000),
        *(f'{{"command": "SEND", "headers": {wrong}}}' for wrong in ("5", '[["a"]]', '["ab"]', '[["a", 1]]', "null")),
        *(f'{{"command": "SEND", {wrong}}}' for wrong in ('"body": 1', '"body": "a", "body_b64": ""')),
        *(f'{{"command": "SEND", {wrong}}}' for wrong in ('"body_b64": "?"', '"body": "\\ud800"')),
    ],
)
def test_lines_that_are_no_frames(line, tmp_path):
    file = tmp_path / "frames.jsonl.gz"
    file.write_bytes(gzip.compress(f'{{"command": "ACK", "headers": {{"id": "1"}}}}\n\n{line}\n'.encode()))
    result = encode("--json", file)
    assert (result.exit_code, result.stdout_bytes) == (1, b"ACK\nid:1\n\n\0")
    (text,) = result.stderr.splitlines()
    assert text.startswith(f"stompcodec: {file}: line 3: ")
    with pytest.raises(ValueError, match=r"."):
        frame_of(line.encode())
