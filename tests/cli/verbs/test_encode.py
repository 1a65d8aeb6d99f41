"""stompcodec encode, and that it undoes decode --json."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from railway import capture

pytest.importorskip("click")

from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame, serialize, serialize_many
from stompcodec.cli.app import app
from stompcodec.cli.files.sources import frame_of


def run(*arguments: str, input: bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["encode", *arguments], input=input)


def decoded(data: bytes, *arguments: str) -> bytes:
    result = CliRunner().invoke(app, ["decode", "--json", *arguments], input=data)
    assert result.exit_code == 0, result.stderr
    return result.stdout_bytes


def test_one_frame() -> None:
    result = run("SEND", "-H", "destination:/queue/a", "-H", "x: a:b", "-b", "grün")
    assert result.stdout_bytes == "SEND\ndestination:/queue/a\nx: a\\cb\ncontent-length:5\n\ngrün\0".encode()
    assert run("SEND", "--content-length", "never", "-b", "hi").stdout_bytes == b"SEND\n\nhi\0"
    assert run("ACK", "-H", "id:1", "--content-length", "always").stdout_bytes == b"ACK\nid:1\ncontent-length:0\n\n\0"
    assert run("SEND", "-H", "a:b:c", "--version", "1.0").stdout_bytes == b"SEND\na:b:c\n\n\0"
    assert run("PING", "--command", "PING").stdout_bytes == b"PING\n\n\0"


def test_lines_may_be_compressed(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"command":"BEGIN","headers":{"transaction":"1"}}\n\n'))
    assert run("--json", str(file)).stdout_bytes == b"BEGIN\ntransaction:1\n\n\0"


def test_bodies_from_files_and_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "body"
    file.write_bytes(b"\0\xff")
    assert run("SEND", "-b", f"@{file}").stdout_bytes == b"SEND\ncontent-length:2\n\n\0\xff\0"
    assert run("SEND", "-b", "-", input=b"\r\n").stdout_bytes == b"SEND\ncontent-length:2\n\n\r\n\0"
    missing = run("SEND", "-b", f"@{tmp_path / 'none'}")
    assert missing.exit_code == 1
    assert "cannot be read" in missing.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("NONSENSE",), "unknown-command"),
        (("ACK", "-b", "x"), "body-not-allowed"),
        (("CONNECT", "-H", "a:b\nc"), "unencodable"),
        (("SEND", "-H", "content-length:7", "-b", "x"), "bad-content-length"),
        (("SEND", "-H", "passcode:a\0b"), "unencodable"),
    ],
)
def test_what_cannot_be_written(arguments: tuple[str, ...], text: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stdout_bytes == b""
    (line,) = result.stderr.splitlines()
    assert text in line
    assert "a\0b" not in line


def test_wrong_usage() -> None:
    for arguments in (("SEND", "-H", "no colon"), ("SEND", "ACK"), ("--json", "-H", "a:b"), ("SEND", "--version", "2")):
        assert run(*arguments).exit_code == 2


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
def test_encode_undoes_decode(frames: list[Frame]) -> None:
    data = serialize_many(frames, "1.2")
    assert run("--json", input=decoded(data)).stdout_bytes == data


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_version_is_followed(version: str) -> None:
    greeting = {"1.0": {"session": "a"}}.get(version, {"version": version})
    value = {"1.0": "\\:x", "1.1": "\r\n:\\", "1.2": "\r\n:\\"}[version]
    data = serialize(Frame("CONNECTED", greeting), version) + serialize(Frame("MESSAGE", {"a": value}, b"x"), version)
    assert run(input=decoded(data)).stdout_bytes == data


def test_a_whole_capture_comes_back_but_for_its_heart_beats() -> None:
    data = b"".join(piece.rstrip(b"\n") for piece in capture(150))
    lines = decoded(data)
    again = [json.loads(line) for line in decoded(run(input=lines).stdout_bytes).splitlines()]
    for line, other in zip(map(json.loads, lines.splitlines()), again):
        assert [pair for pair in other["headers"] if pair in line["headers"]] == line["headers"]
        assert [line.get(key) for key in ("body", "body_b64")] == [other.get(key) for key in ("body", "body_b64")]
    assert len(again) == len(lines.splitlines())


def test_octets_that_are_no_utf8_come_back_leniently() -> None:
    data = b"SEND\na:\xff\n\n\0"
    lines = decoded(data, "--lenient")
    assert run("--lenient", input=lines).stdout_bytes == data
    assert "unencodable" in run(input=lines).stderr


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        "{}",
        '{"command": 1}',
        '{"command": "SEND", "headers": 5}',
        '{"command": "SEND", "headers": [["a"]]}',
        '{"command": "SEND", "headers": ["ab"]}',
        '{"command": "SEND", "headers": [["a", 1]]}',
        '{"command": "SEND", "headers": null}',
        '{"command": "SEND", "body": 1}',
        '{"command": "SEND", "body": "a", "body_b64": ""}',
        '{"command": "SEND", "body_b64": "?"}',
        '{"command": "SEND", "body": "\\ud800"}',
        "[" * 100_000,
    ],
)
def test_lines_that_are_no_frames(line: str, tmp_path: Path) -> None:
    file = tmp_path / "frames.jsonl"
    file.write_text('{"command": "ACK", "headers": {"id": "1"}}\n\n' + line + "\n")
    result = run("--json", str(file))
    assert result.exit_code == 1
    assert result.stdout_bytes == b"ACK\nid:1\n\n\0"
    (text,) = result.stderr.splitlines()
    assert text.startswith(f"stompcodec: {file}: line 3: ")
    with pytest.raises(ValueError, match=r"."):
        frame_of(line.encode())


def test_a_missing_file() -> None:
    result = run("--json", "no such file")
    assert result.exit_code == 1
    assert "cannot be read" in result.stderr


def test_json_form_is_documented() -> None:
    line = {"offset": 3, "command": "SEND", "headers": [["a", "1"]], "body": "x", "file": "f"}
    assert frame_of(json.dumps(line).encode()) == Frame("SEND", {"a": "1"}, b"x")
