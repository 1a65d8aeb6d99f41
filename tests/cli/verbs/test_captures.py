"""Captures, folders and single files, in the verbs that read files of frames: decode, lint, inspect, convert."""

from __future__ import annotations

import gzip
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")

from cli.packets import pcap, pcapng
from click.testing import CliRunner, Result

from stompcodec import Frame
from stompcodec.capture import Capture, CaptureWriter, octets_of
from stompcodec.capture.index import index_path
from stompcodec.cli.app import app

TIME = 1_700_000_000_000_000
VIEWS: list[list[str]] = [[], ["--json"], ["--pretty"], ["--hex"], ["--summary"], ["--summary", "--resync"]]
FRAMES = [
    octets_of(Frame("MESSAGE", {"destination": "/queue/a", "message-id": str(n), "subscription": "1"}, b"x" * n))
    for n in range(4)
]
#: Its \q is no escape.
BROKEN = b"SEND\ndestination:/queue/a\nx:\\q\n\n\0"
#: The command lines that read a file, up to its name, and after it.
READERS: list[tuple[list[str], list[str]]] = [
    (["decode", "--json"], []),
    (["decode", "--summary"], []),
    (["lint"], []),
    (["inspect", "--json"], []),
    (["convert"], ["-"]),
]


def run(*arguments: str | Path, input: bytes | None = None) -> Result:
    return CliRunner(env={"COLUMNS": "120"}).invoke(app, [*map(str, arguments)], input=input)


def objects(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout_bytes.splitlines()]


def write(path: Path, parts: list[bytes], *, chain: str = "frames", **options: Any) -> Path:
    """Write a capture with a row, and in a folder a segment, for each part."""
    options.setdefault("single", False)
    with CaptureWriter(path, segment_octets=1, **options) as writer:
        for number, part in enumerate(parts):
            writer.append(part, TIME + number, chain)
            writer.sync()
    return path


def files_of(path: Path) -> list[Path]:
    return [segment.path for segment in Capture(path).segments()]


@pytest.fixture(params=["folder", "single"])
def capture(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path / "a.stompcap", FRAMES, single=request.param == "single")


# What is in them


def test_decode_shows_the_frames_with_their_file_and_their_offset_in_it(capture: Path) -> None:
    result = run("decode", "--json", capture)
    assert (result.exit_code, result.stderr) == (0, "")
    found = objects(result)
    assert [dict(each["headers"])["message-id"] for each in found] == ["0", "1", "2", "3"]
    names = [each.get("file") for each in found]
    assert names == ([None] * 4 if capture.is_file() else [str(path) for path in files_of(capture)])
    for each, octets in zip(found, FRAMES):
        data = Path(each.get("file", capture)).read_bytes()
        assert data[each["offset"] :].startswith(octets)


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_shows_a_capture_without_its_index(capture: Path, view: list[str]) -> None:
    result = run("decode", *view, capture)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "MESSAGE" in result.stdout
    heads = [line for line in result.stdout.splitlines() if line.startswith("==> ")]
    shown = capture.is_dir() and "--json" not in view and "--summary" not in view
    assert heads == ([f"==> {path} <==" for path in files_of(capture)] if shown else [])
    if "--summary" in view:
        assert f"bytes {sum(map(len, FRAMES)):,}, frames 4, heart-beats 0" in result.stdout


def test_several_files_one_of_them_a_capture(capture: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw.stomp"
    raw.write_bytes(FRAMES[0])
    found = objects(run("decode", "--json", capture, raw))
    assert [each["file"] for each in found][-2:] == [str((files_of(capture) * 4)[3]), str(raw)]


def test_lint_names_the_segment_and_the_offset_in_it(capture: Path) -> None:
    bad = octets_of(Frame("SEND", {}, b""))
    with CaptureWriter(capture, segment_octets=1) as writer:
        writer.append(FRAMES[0] + bad, TIME)
    last = files_of(capture)[-1]
    at = last.read_bytes().index(bad)
    result = run("lint", "--json", capture)
    assert (result.exit_code, result.stderr) == (1, "")
    (error,) = (each for each in objects(result) if each["severity"] == "error")
    assert (error["rule"], error["file"], error["offset"]) == ("S12-SND-01", str(last), at)
    (run_,) = json.loads(run("lint", "--format", "sarif", capture).stdout)["runs"]
    (place,) = (each["locations"][0]["physicalLocation"] for each in run_["results"] if each["ruleId"] == "S12-SND-01")
    assert place == {"artifactLocation": {"uri": last.as_posix()}, "region": {"byteOffset": at, "byteLength": 1}}
    assert f"{last}: errors 1," in run("lint", capture).stdout


def test_a_capture_without_errors_is_good(capture: Path) -> None:
    result = run("lint", capture)
    assert (result.exit_code, result.stderr) == (0, "")
    counts = [line.rpartition(" ")[2] for line in result.stdout.splitlines() if ": errors 0, " in line]
    assert counts == (["4"] if capture.is_file() else ["1"] * 4)


SUBSCRIBE = b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:auto\n\n\0"


def test_a_conversation_goes_on_in_the_next_segment_but_not_in_another_chain_nor_behind_a_gap(tmp_path: Path) -> None:
    path = write(tmp_path / "a.stompcap", [SUBSCRIBE] * 2)
    write(path, [SUBSCRIBE], chain="other")
    found = [(each["rule"], each["file"]) for each in objects(run("lint", "--json", path))]
    assert found == [("S12-SUB-06", str(files_of(path)[1]))]
    again = write(tmp_path / "b.stompcap", [SUBSCRIBE, FRAMES[0], SUBSCRIBE])
    assert "S12-SUB-06" in run("lint", again).stdout
    files_of(again)[1].unlink()
    result = run("lint", again)
    assert "S12-SUB-06" not in result.stdout
    assert (result.exit_code, "are missing" in result.stderr) == (1, True)


@pytest.mark.parametrize("verb", ["decode", "lint"])
def test_the_version_has_no_effect_because_captures_have_one(capture: Path, verb: str) -> None:
    """In STOMP 1.0 the body would be a warning less, and the \\c no escape."""
    with CaptureWriter(capture) as writer:
        writer.append(b"SEND\ndestination:/queue/a\nx:a\\cb\n\n\0", TIME)
    for version in ("1.0", "legacy"):
        given, without = (run(verb, "--json", *more, capture) for more in (["--version", version], []))
        assert (given.exit_code, given.stdout) == (without.exit_code, without.stdout) == (0, without.stdout)
    assert verb == "lint" or dict(objects(without)[-1]["headers"])["x"] == "a:b"


@pytest.mark.parametrize(("before", "after"), READERS)
def test_a_sealed_file_is_known_by_its_end(tmp_path: Path, before: list[str], after: list[str]) -> None:
    named, other = write(tmp_path / "a.stompcap", FRAMES, single=True), tmp_path / "a.bin"
    other.write_bytes(named.read_bytes())
    result = run(*before, other, *after)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "--summary" in before or len(result.stdout.splitlines()) >= 4


# What is wrong with them


@pytest.mark.parametrize("view", VIEWS)
def test_decode_stops_at_a_broken_frame_and_goes_on_with_the_next_segment(tmp_path: Path, view: list[str]) -> None:
    path = write(tmp_path / "a.stompcap", [FRAMES[0], FRAMES[1] + BROKEN + FRAMES[2], FRAMES[3]])
    result = run("decode", *view, path)
    resync = "--resync" in view
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    at = len(FRAMES[1]) + BROKEN.index(b"\\")
    assert line.startswith(f"stompcodec: {files_of(path)[1]}: octet {at}: bad-escape: ")
    assert ("continued at" if resync else "--resync continues") in line
    if view == ["--json"]:
        assert [dict(each["headers"])["message-id"] for each in objects(result)] == ["0", "1", "3"]
    if "--summary" in view:
        assert f", frames {4 if resync else 3}, " in result.stdout


def test_decode_does_not_go_on_within_a_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.stompcap", [FRAMES[0], BROKEN, FRAMES[1]], single=True)
    result = run("decode", "--json", path)
    assert [dict(each["headers"])["message-id"] for each in objects(result)] == ["0"]
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"stompcodec: {path}: octet {len(FRAMES[0]) + BROKEN.index(bytes([92]))}: bad-escape: ")
    assert len(objects(run("decode", "--json", "--resync", path))) == 2


def test_lint_continues_after_a_broken_frame(tmp_path: Path) -> None:
    path = write(tmp_path / "a.stompcap", [FRAMES[0], FRAMES[1] + BROKEN + FRAMES[2], FRAMES[3]])
    result = run("lint", path)
    assert result.exit_code == 1
    assert f"{files_of(path)[1]}:{len(FRAMES[1]) + BROKEN.index(bytes([92]))}: error " in result.stdout
    (counts,) = (line for line in result.stdout.splitlines() if line.startswith(f"{files_of(path)[1]}: errors 1, "))
    assert counts.endswith(", frames 2")
    assert f"{files_of(path)[2]}: errors 0, " in result.stdout


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("damage", ["index", "frames", "no index"])
def test_damage_is_told_and_the_frames_are_shown(tmp_path: Path, damage: str, reader: Any) -> None:
    path = write(tmp_path / "a.stompcap", FRAMES)
    file = files_of(path)[2]
    if damage == "no index":
        index_path(file).unlink()
    else:
        broken = index_path(file) if damage == "index" else file
        at = 30 if damage == "index" else file.read_bytes().rindex(b"x")
        data = bytearray(broken.read_bytes())
        data[at] ^= 1
        broken.write_bytes(data)
    before, after = reader
    result = run(*before, path, *after)
    said = {"index": "the index is damaged", "frames": "do not match their checksum", "no index": "no index, so"}
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert file.stem in line
    assert said[damage] in line
    if before in (["decode", "--json"], ["convert"]):
        assert len(result.stdout.splitlines()) == 4


@pytest.mark.parametrize("reader", READERS)
def test_a_segment_that_cannot_be_read_costs_no_frame_before_it(tmp_path: Path, reader: Any) -> None:
    path = write(tmp_path / "a.stompcap", FRAMES)
    file = files_of(path)[2]
    file.unlink()
    file.mkdir()
    before, after = reader
    result = run(*before, path, *after)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert f"{file}: cannot be " in line
    if before in (["decode", "--json"], ["convert"], ["inspect", "--json"]):
        assert len(result.stdout.splitlines()) == 2


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("verb", ["decode", "lint"])
def test_an_unfinished_capture_has_what_was_synced(tmp_path: Path, verb: str, single: bool) -> None:
    path = tmp_path / "a.stompcap"
    writer = CaptureWriter(path, single=single)
    try:
        writer.append(FRAMES[0], TIME)
        writer.sync()
        writer.append(FRAMES[1], TIME)  # on its way
        result = run(verb, path)
    finally:
        writer.close(seal=False)
    (file,) = files_of(path)
    with file.open("ab") as stream:
        stream.write(FRAMES[2][:-9])  # as a crash leaves it
    again = run(verb, path)
    for each in (result, again):
        assert (each.exit_code, each.stderr) == (0, "")
        assert each.stdout.splitlines()[-1].startswith("frames 1, ") or each.stdout.endswith(", frames 1\n")
    index_path(file).unlink()
    torn = run(verb, path)
    assert torn.exit_code == 1
    assert "are not whole frames: skipped" in torn.stderr.splitlines()[-1]
    assert "frames 2" in torn.stdout


@pytest.mark.parametrize(("before", "after"), READERS)
def test_an_empty_capture_is_good_and_a_folder_of_something_else_is_not(
    tmp_path: Path, before: list[str], after: list[str]
) -> None:
    for single in (False, True):
        result = run(*before, write(tmp_path / f"{single}.stompcap", [], single=single), *after)
        assert (result.exit_code, result.stderr) == (0, "")
        if before == ["lint"]:
            assert result.stdout.endswith(".stompcap: errors 0, warnings 0, notes 0, frames 0\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x.txt").write_text("x")
    result = run(*before, tmp_path / "folder", *after)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.endswith("folder: cannot be read: a folder without segments is not a capture")
    result = run(*before, tmp_path / "none.stompcap", *after)
    assert result.exit_code == 1
    assert result.stderr.endswith(f"none.stompcap: cannot be read: {os.strerror(2)}\n")


# Other inputs


@pytest.mark.parametrize(("before", "after"), [READERS[0], *READERS[2:]])
def test_a_capture_in_a_pipe_or_compressed_ends_with_a_hint(
    tmp_path: Path, before: list[str], after: list[str]
) -> None:
    data = write(tmp_path / "a.stompcap", FRAMES, single=True).read_bytes()
    packed = tmp_path / "a.stompcap.gz"
    packed.write_bytes(gzip.compress(data))
    for result in (run(*before, packed, *after), run(*before, "-", *after, input=data)):
        assert result.exit_code == 1
        if before == ["lint"]:
            assert "error S12-" in result.stdout
            assert ", frames 4\n" in result.stdout
        else:
            assert len(result.stdout.splitlines()) == 4 + (before[0] == "inspect")
        (line,) = (line for line in result.output.splitlines() if "this is the index of a capture" in line)
        assert "content-length" not in line


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no named pipes among its files")
@pytest.mark.parametrize(("before", "after"), READERS)
def test_a_named_pipe_is_read_once(tmp_path: Path, before: list[str], after: list[str]) -> None:
    """As in a shell's `stompcodec convert <(zcat frames.stomp.gz) -`."""
    read, write_ = os.pipe()
    os.write(write_, b"".join(FRAMES))
    os.close(write_)
    try:
        result = run(*before, f"/dev/fd/{read}", *after)
    finally:
        os.close(read)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "frames 4" in result.stdout or len(result.stdout.splitlines()) == 4


@pytest.mark.parametrize("verb", ["decode", "lint"])
@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (pcapng([]), "inspect and convert read it"),
        (pcap([]), "inspect and convert read it"),
        (pcap([])[3::-1] + pcap([])[4:], "inspect and convert read it"),
        (b'{"command":"ACK"}\n', "encode --json writes its frames"),
        (b"PAR1\0\0", "convert reads it"),
    ],
    ids=["ng", "big", "little", "json", "parquet"],
)
def test_other_formats_get_a_hint(tmp_path: Path, verb: str, data: bytes, hint: str) -> None:
    file = tmp_path / "a"
    file.write_bytes(data)
    result = run(verb, file)
    assert result.exit_code == 1
    assert hint in result.output
