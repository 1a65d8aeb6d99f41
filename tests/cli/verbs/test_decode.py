"""stompcodec decode and encode, the reader below them, and captures in all verbs that read files of frames."""

import gzip
import io
import json
import os
import sys
from base64 import b64decode
from functools import partial

import pytest
from cli.running import ended, objects
from cli.running import run as run_verb
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame, serialize, serialize_many
from stompcodec.capture import Capture, CaptureWriter, octets_of
from stompcodec.capture.index import index_path
from stompcodec.cli.files import frame_of
from stompcodec.cli.inputs import Broken, FrameReader
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


CARETS = b"CONNECT\nhost:a\n\n^@\nSEND\ndestination:/q\n\nhello^@\nACK\nid:1\n\n^@\n"


@pytest.mark.parametrize("verb", ["decode", "decode --summary", "decode --resync", "lint", "inspect"])
@pytest.mark.parametrize(("text", "frames"), [(CARETS, 3), (CARETS[19:], 2), (LOGIN + CARETS, 1)])
def test_the_carets_of_a_pasted_log_are_nuls(verb, text, frames):
    """But not once there was a NUL: then they are what the body holds."""
    result = run_verb(*verb.split(), input=text)
    assert ("^@ is two characters here" in result.stderr) is (frames > 1)
    assert result.exit_code == (frames == 1)
    assert f"frames {frames}" in result.stdout or verb == "inspect"


def test_a_caret_may_end_what_was_read():
    pieces = iter([CARETS[:21], *(CARETS[at : at + 1] for at in range(21, len(CARETS)))])
    found = [place.frame.command for batch in FrameReader(lambda _: next(pieces, b"")).places() for place in batch]
    assert found == ["CONNECT", "SEND", "ACK"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_keeps_to_the_width(width):
    wide = serialize(Frame("SEND", {"destination": "/queue/" + "日本" * 99, "x": "y" * 5000}, "äöü".encode() * 999))
    output = run(input=wide * 3, columns=width).output
    cells = [sum(1 + (letter in "日本") for letter in line) for line in output.splitlines()[:-1]]
    assert (max(cells) <= max(width, 80), len(cells)) == (True, 4)


def test_json_pretty_and_summary():
    frames = [Frame("CONNECTED", {"version": "1.2"}), Frame("MESSAGE", [("a", "1"), ("a", "ü:\n")], "grün\n".encode())]
    frames += [Frame("MESSAGE", {}, b"\xff\0")]
    data = b"\n".join(serialize(frame) for frame in frames)
    lines = objects(run("--json", input=data))
    assert [*map(list, lines)] == [["offset", "command", "headers", key] for key in ("body", "body", "body_b64")]
    assert [line["offset"] for line in lines] == [0, len(serialize(frames[0])) + 1, data.rindex(b"MESSAGE")]
    assert lines[1]["headers"] == [["a", "1"], ["a", "ü:\n"], ["content-length", "6"]]
    assert lines[1]["body"] == "grün\n"
    assert b64decode(lines[2]["body_b64"]) == b"\xff\0"
    packed = Frame("MESSAGE", {"content-encoding": "gzip"}, gzip.compress(b"<a><b x='1'>t</b><c/></a>"))
    result = run("--pretty", input=RAILWAY + serialize(packed))
    assert '  "RTPPMDataMsgV1": {\n    "owner": "x",\n' in result.output
    assert "(content-encoding gzip: decompressed to 25 bytes)" in result.output
    assert '<a>\n  <b x="1">t</b>\n  <c/>\n</a>\n' in result.output
    assert "message-id: ID:mq1-33946-140291-1:568:3:44:5474\n" in result.output
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
    assert run(good, good, columns=40).stdout.splitlines().count(f"==> {good} <==") == 2
    ended(run("--json", torn), 1, "cannot be read")


def test_versions_and_limits():
    assert run("--version", "1.0", "--json", input=b"SEND\na:\\q\n\nx\0").exit_code == 0
    assert "limit-exceeded" in run("--limit", "max_body=1", input=RAILWAY).stderr
    assert "--limit max_body=SIZE" in run("--limit", "max_body=1", input=RAILWAY).stderr
    assert run("--limit", "max_body=1K", "--limit", "max_headers=9", input=RAILWAY).exit_code == 0
    for wrong in ("max_body", "max_body=-1", "body=1", "max_body=1X", "max_headers=9999999"):
        assert run("--limit", wrong, input=RAILWAY).exit_code == 2


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
        assert len(body_of(Frame("SEND", headers, body)).text) < 100 * len(body) + 1000
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


encode = partial(run_verb, "encode")


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
        *(("NONSENSE", "unknown-command"), ("ACK -b x", "body-not-allowed"), ("CONNECT -H a:b\nc", "unencodable")),
        *(("SEND -H content-length:7 -b x", "bad-content-length"), ("SEND -H passcode:a\0b", "unencodable")),
        *(("SEND -b @/no/such/file", "cannot be read"), ("--json no_such_file", "cannot be read")),
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


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_version_is_followed(version):
    greeting = {"1.0": {"session": "a"}}.get(version, {"version": version})
    value = {"1.0": "\\:x", "1.1": "\r\n:\\", "1.2": "\r\n:\\"}[version]
    data = serialize(Frame("CONNECTED", greeting), version) + serialize(Frame("MESSAGE", {"a": value}, b"x"), version)
    assert encode(input=decoded(data)).stdout_bytes == data


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


# ---- captures, folders and single files ----
TIME = 1_700_000_000_000_000
CAPTURED = [
    octets_of(Frame("MESSAGE", {"destination": "/queue/a", "message-id": str(n), "subscription": "1"}, b"x" * n))
    for n in range(4)
]
#: Its \q is no escape.
BROKEN = b"SEND\ndestination:/queue/a\nx:\\q\n\n\0"
#: The command lines that read a file, whose name goes to the place of {}.
READERS = ["decode --json {}", "decode --summary {}", "lint {}", "inspect --json {}", "convert {} -"]
each_reader = pytest.mark.parametrize("reader", READERS)


def reading(reader, file, **options):
    return run_verb(*(file if word == "{}" else word for word in reader.split()), **options)


def write(path, parts, **options):
    """Write a capture with a row, and in a folder a segment, for each part."""
    with CaptureWriter(path, segment_octets=1, **{"single": False, **options}) as writer:
        for number, part in enumerate(parts):
            writer.append(part, TIME + number)
            writer.sync()
    return path


def files_of(path):
    return [segment.path for segment in Capture(path).segments()]


@pytest.fixture(params=["folder", "single"])
def capture(request, tmp_path):
    return write(tmp_path / "a.stompcap", CAPTURED, single=request.param == "single")


def test_lint_names_the_segment_and_the_offset_in_it(capture):
    bad, good = octets_of(Frame("SEND", {}, b"")), run_verb("lint", capture)
    assert (good.exit_code, good.stderr) == (0, "")
    counts = [line.rpartition(" ")[2] for line in good.stdout.splitlines() if ": errors 0, " in line]
    assert counts == (["4"] if capture.is_file() else ["1"] * 4)
    with CaptureWriter(capture, segment_octets=1) as writer:
        writer.append(CAPTURED[0] + bad, TIME)
    last = files_of(capture)[-1]
    at, result = last.read_bytes().index(bad), run_verb("lint", "--format", "json", capture)
    assert (result.exit_code, result.stderr) == (1, "")
    (error,) = (each for each in objects(result) if each["severity"] == "error")
    assert (error["rule"], error["file"], error["offset"]) == ("S12-SND-01", str(last), at)
    (sarif,) = json.loads(run_verb("lint", "--format", "sarif", capture).stdout)["runs"]
    (place,) = (each["locations"][0]["physicalLocation"] for each in sarif["results"] if each["ruleId"] == "S12-SND-01")
    assert place == {"artifactLocation": {"uri": last.as_posix()}, "region": {"byteOffset": at, "byteLength": 1}}
    assert f"{last}: errors 1," in run_verb("lint", capture).stdout


@each_reader
def test_sealed_files_and_pipes_are_known_by_their_bytes(tmp_path, reader):
    """A pipe is read once, as in a shell's `stompcodec convert <(zcat frames.stomp.gz) -`."""
    inputs = [tmp_path / "a.bin"]
    inputs[0].write_bytes(write(tmp_path / "a.stompcap", CAPTURED, single=True).read_bytes())
    if sys.platform != "win32":
        read, write_ = os.pipe()
        os.write(write_, b"".join(CAPTURED))
        os.close(write_)
        inputs.append(f"/dev/fd/{read}")
    for each in inputs:
        result = reading(reader, each)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "frames 4" in result.stdout or len(result.stdout.splitlines()) == 4


@pytest.mark.parametrize("view", ["", "--json", "--pretty", "--hex", "--summary", "--summary --resync"])
def test_decode_stops_at_a_broken_frame_and_goes_on_with_the_next_segment(tmp_path, view):
    path = write(tmp_path / "a.stompcap", [CAPTURED[0], CAPTURED[1] + BROKEN + CAPTURED[2], CAPTURED[3]])
    result, resync = run_verb("decode", *view.split(), path), "--resync" in view
    (line,) = result.stderr.splitlines()
    at = len(CAPTURED[1]) + BROKEN.index(b"\\")
    assert (result.exit_code, ("continued at" if resync else "--resync continues") in line) == (1, True)
    assert line.startswith(f"stompcodec: {files_of(path)[1]}: octet {at}: bad-escape: ")
    assert view != "--json" or [dict(each["headers"])["message-id"] for each in objects(result)] == ["0", "1", "3"]
    assert "--summary" not in view or f", frames {4 if resync else 3}, " in result.stdout


@each_reader
@pytest.mark.parametrize(
    ("damage", "said", "left"),
    [
        *(("index", "the index is damaged", 4), ("frames", "do not match their checksum", 4)),
        *(("no index", "no index, so", 4), ("unreadable", "cannot be ", 2)),
    ],
)
def test_damage_is_told_and_the_frames_are_shown(tmp_path, damage, said, left, reader):
    path = write(tmp_path / "a.stompcap", CAPTURED)
    file = files_of(path)[2]
    if damage == "no index":
        index_path(file).unlink()
    elif damage == "unreadable":
        file.unlink()
        file.mkdir()
    else:
        broken, at = (index_path(file), 30) if damage == "index" else (file, file.read_bytes().rindex(b"x"))
        data = bytearray(broken.read_bytes())
        data[at] ^= 1
        broken.write_bytes(data)
    result = reading(reader, path)
    (line,) = result.stderr.splitlines()
    assert (result.exit_code, file.stem in line, said in line) == (1, True, True)
    if reader in (READERS[0], READERS[-1]):
        assert len(result.stdout.splitlines()) == left


@each_reader
def test_an_empty_capture_is_good_and_a_folder_of_something_else_is_not(tmp_path, reader):
    for single in (False, True):
        result = reading(reader, write(tmp_path / f"{single}.stompcap", [], single=single))
        assert (result.exit_code, result.stderr) == (0, "")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x.txt").write_text("x")
    for name, why in (("folder", "a folder without segments is not a capture"), ("none.stompcap", os.strerror(2))):
        result = reading(reader, tmp_path / name)
        (line,) = result.stderr.splitlines()
        assert (result.exit_code, line.endswith(f"{name}: cannot be read: {why}")) == (1, True)


def cut(data, size):
    stream = io.BytesIO(data)
    return lambda wanted: stream.read(min(wanted, size))


def everything(data, size=2**18, **options):
    found = []
    for batch in FrameReader(cut(data, size), **options).places():
        if isinstance(batch, Broken):
            found.append(batch)
        else:
            found += batch
    return found


def starts(found):
    return [item.start for item in found]


PIECES = st.lists(
    st.tuples(
        st.sampled_from([b"", b"\n", b"\r\n", b"\n\n\r\n"]),
        st.sampled_from(["SEND", "MESSAGE", "ACK"]),
        st.sampled_from([b"", b"x", b"hello\nworld", b"\0\0", b"x" * 50]),
    ),
    max_size=8,
)


@given(frames=PIECES, size=st.integers(1, 60), stream_over=st.sampled_from([None, 0, 10]))
def test_places_are_exact(frames, size, stream_over):
    data, expected = b"", []
    for gap, command, body in frames:
        frame = Frame(command, {"id": "a:b"}, b"" if command == "ACK" else body)
        data += gap
        start = len(data)
        data += serialize(frame)
        expected.append((start, len(data) - 1 - len(frame.body), len(data), len(frame.body)))
    reader, found = FrameReader(cut(data, size), stream_over=stream_over), []
    for batch in reader.places():
        assert not isinstance(batch, Broken)
        for place in batch:
            assert stream_over is not None or reader.octets(place.start, place.end) == data[place.start : place.end]
        found += batch
    assert [(place.start, place.body, place.end, place.size) for place in found] == expected


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_lenient_reading_skips_nuls_and_legacy_reading_blank_lines(size):
    assert starts(everything(b"\0\n\0\0SEND\n\nhi\0\0SEND\n\n\0", size, lenient=True)) == [4, 14]
    legacy = b"  \r\n \nsend\ndestination:a\n\nhi\0\r\r\nSEND\n\n\0"
    assert starts(everything(legacy, size, version="legacy")) == [6, 32]


GOOD = b"SEND\ndestination:/queue/a\n\nhi\0"


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("broken", "kind", "offset"),
    [
        (b"SEND\na:\\q\n\nbody\0\n\n", "bad-escape", 7),
        (b"garbage that never was a frame\n{}\0\r\n", "unknown-command", 0),
        *((b"SEND\nfoo\0", "unexpected-nul", 8), (b"SEND\ncontent-length:1\n\nlonger\0", "missing-null", 24)),
        (b"SEND\ncontent-length:40\n\nshort\0", "missing-null", 64),
        (b"SEND\ncontent-length:9000\n\nshort\0", "truncated", None),
        (b"SEND\ncontent-length:x\n\n\0" + b"\n" * 300, "bad-content-length", 20),
    ],
)
def test_resync(broken, kind, offset, size):
    data = GOOD + broken + GOOD + GOOD
    found = everything(data, size, resync=True)
    assert starts(found) == [0, len(GOOD), len(GOOD + broken), len(GOOD + broken + GOOD)]
    problem = found[1]
    assert isinstance(problem, Broken)
    assert (problem.resumed, problem.error.kind) == (len(GOOD + broken), kind)
    assert problem.error.offset == (len(data) if offset is None else len(GOOD) + offset)
    assert problem.head.startswith(broken[:6])
