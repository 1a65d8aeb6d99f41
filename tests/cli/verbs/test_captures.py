"""Captures, folders and single files, in the verbs that read files of frames: decode, lint, inspect, convert."""

import gzip
import json
import os
import sys
from pathlib import Path

import pytest
from cli.running import objects, run

from stompcodec import Frame
from stompcodec.capture import Capture, CaptureWriter, octets_of
from stompcodec.capture.index import index_path

TIME = 1_700_000_000_000_000
FRAMES = [
    octets_of(Frame("MESSAGE", {"destination": "/queue/a", "message-id": str(n), "subscription": "1"}, b"x" * n))
    for n in range(4)
]
#: Its \q is no escape.
BROKEN = b"SEND\ndestination:/queue/a\nx:\\q\n\n\0"
#: The command lines that read a file, whose name goes to the place of {}.
READERS = ["decode --json {}", "decode --summary {}", "lint {}", "inspect --json {}", "convert {} -"]
each_reader = pytest.mark.parametrize("reader", READERS)


def reading(reader, file, **options):
    return run(*(file if word == "{}" else word for word in reader.split()), **options)


def ids(found):
    return [dict(each["headers"])["message-id"] for each in found]


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
    return write(tmp_path / "a.stompcap", FRAMES, single=request.param == "single")


# What is in them


def test_decode_shows_the_frames_with_their_file_and_their_offset_in_it(capture, tmp_path):
    raw = tmp_path / "raw.stomp"
    raw.write_bytes(FRAMES[0])
    result = run("decode", "--json", capture)
    assert (result.exit_code, result.stderr) == (0, "")
    found = objects(result)
    assert ids(found) == ["0", "1", "2", "3"]
    names = [each.get("file") for each in found]
    assert names == ([None] * 4 if capture.is_file() else [str(path) for path in files_of(capture)])
    for each, octets in zip(found, FRAMES):
        assert Path(each.get("file", capture)).read_bytes()[each["offset"] :].startswith(octets)
    several = [each["file"] for each in objects(run("decode", "--json", capture, raw))]
    assert several[-2:] == [str((files_of(capture) * 4)[3]), str(raw)]


def test_lint_names_the_segment_and_the_offset_in_it(capture):
    bad = octets_of(Frame("SEND", {}, b""))
    good = run("lint", capture)
    assert (good.exit_code, good.stderr) == (0, "")
    counts = [line.rpartition(" ")[2] for line in good.stdout.splitlines() if ": errors 0, " in line]
    assert counts == (["4"] if capture.is_file() else ["1"] * 4)
    with CaptureWriter(capture, segment_octets=1) as writer:
        writer.append(FRAMES[0] + bad, TIME)
    last = files_of(capture)[-1]
    at = last.read_bytes().index(bad)
    result = run("lint", "--json", capture)
    assert (result.exit_code, result.stderr) == (1, "")
    (error,) = (each for each in objects(result) if each["severity"] == "error")
    assert (error["rule"], error["file"], error["offset"]) == ("S12-SND-01", str(last), at)
    (sarif,) = json.loads(run("lint", "--format", "sarif", capture).stdout)["runs"]
    (place,) = (each["locations"][0]["physicalLocation"] for each in sarif["results"] if each["ruleId"] == "S12-SND-01")
    assert place == {"artifactLocation": {"uri": last.as_posix()}, "region": {"byteOffset": at, "byteLength": 1}}
    assert f"{last}: errors 1," in run("lint", capture).stdout


@each_reader
def test_sealed_files_and_pipes_are_known_by_their_bytes(tmp_path, reader):
    """A pipe is read once, as in a shell's `stompcodec convert <(zcat frames.stomp.gz) -`."""
    inputs = [tmp_path / "a.bin"]
    inputs[0].write_bytes(write(tmp_path / "a.stompcap", FRAMES, single=True).read_bytes())
    if sys.platform != "win32":
        read, write_ = os.pipe()
        os.write(write_, b"".join(FRAMES))
        os.close(write_)
        inputs.append(f"/dev/fd/{read}")
    for each in inputs:
        result = reading(reader, each)
        assert (result.exit_code, result.stderr) == (0, "")
        assert "frames 4" in result.stdout or len(result.stdout.splitlines()) == 4


# What is wrong with them


@pytest.mark.parametrize("view", ["", "--json", "--pretty", "--hex", "--summary", "--summary --resync"])
def test_decode_stops_at_a_broken_frame_and_goes_on_with_the_next_segment(tmp_path, view):
    path = write(tmp_path / "a.stompcap", [FRAMES[0], FRAMES[1] + BROKEN + FRAMES[2], FRAMES[3]])
    result, resync = run("decode", *view.split(), path), "--resync" in view
    (line,) = result.stderr.splitlines()
    at = len(FRAMES[1]) + BROKEN.index(b"\\")
    assert (result.exit_code, ("continued at" if resync else "--resync continues") in line) == (1, True)
    assert line.startswith(f"stompcodec: {files_of(path)[1]}: octet {at}: bad-escape: ")
    assert view != "--json" or ids(objects(result)) == ["0", "1", "3"]
    assert "--summary" not in view or f", frames {4 if resync else 3}, " in result.stdout


def test_decode_does_not_go_on_within_a_file(tmp_path):
    path = write(tmp_path / "a.stompcap", [FRAMES[0], BROKEN, FRAMES[1]], single=True)
    result = run("decode", "--json", path)
    (line,) = result.stderr.splitlines()
    at = len(FRAMES[0]) + BROKEN.index(b"\\")
    assert (ids(objects(result)), f"stompcodec: {path}: octet {at}: bad-escape: " in line) == (["0"], True)
    assert len(objects(run("decode", "--json", "--resync", path))) == 2


@each_reader
@pytest.mark.parametrize(
    ("damage", "said", "left"),
    [
        ("index", "the index is damaged", 4),
        ("frames", "do not match their checksum", 4),
        ("no index", "no index, so", 4),
        ("unreadable", "cannot be ", 2),
    ],
)
def test_damage_is_told_and_the_frames_are_shown(tmp_path, damage, said, left, reader):
    path = write(tmp_path / "a.stompcap", FRAMES)
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


# Other inputs


@pytest.mark.parametrize("reader", [READERS[0], *READERS[2:]])
def test_a_compressed_capture_ends_with_a_hint(tmp_path, reader):
    data = write(tmp_path / "a.stompcap", FRAMES, single=True).read_bytes()
    packed = tmp_path / "a.stompcap.gz"
    packed.write_bytes(gzip.compress(data))
    for result in (reading(reader, packed), reading(reader, "-", input=data)):
        assert result.exit_code == 1
        if reader == "lint {}":
            assert ("error S12-" in result.stdout, ", frames 4\n" in result.stdout) == (True, True)
        else:
            assert len(result.stdout.splitlines()) == 4 + reader.startswith("inspect")
        (line,) = (line for line in result.output.splitlines() if "this is the index of a capture" in line)
        assert "content-length" not in line
