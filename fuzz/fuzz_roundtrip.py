"""Invariant: a frame that is written reads back as it was. Both backends write the same, or refuse for the same reason,
whether it came from the wire of any version or was made in Python."""

from __future__ import annotations

import string
from contextlib import suppress
from typing import Any

from case import COMMANDS, VERSIONS, Case, case_of
from engine import drive

from stompcodec import FrameError, _codec_c, _codec_py
from stompcodec.spec import Limits

WIDE = Limits(max_command_line=2**20, max_header_line=2**20, max_headers=2000, max_body=2**30)
MODES = ("auto", "always", "never")
LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)


def check(data: bytes) -> None:
    case = case_of(data)
    version, mode = VERSIONS[case.plan % 5], MODES[case.plan // 5 % 3]
    options = {"content_length": mode, "lenient": case.plan // 15 % 4 == 3, "commands": case.options["commands"]}
    for c, python in (*from_wire(case), *made(case.wire)):
        rebuilt = _codec_c.Frame(c.command, c.headers.pairs(), c.body)
        wire = written(_codec_c, c, version, options)
        same = written(_codec_c, rebuilt, version, options), written(_codec_py, python, version, options)
        assert same == (wire, wire), f"{python!r} in {version} with {options}\n       C: {wire!r}\n   other: {same!r}"
        check_tail(c, rebuilt, python, version)
        if type(wire) is bytes:
            check_parts(c, version, options, wire)
            if not options["lenient"]:
                check_read(python, version, options, wire)


def from_wire(case: Case) -> list[tuple[Any, Any]]:
    """The frames of the wire, as each backend reads them."""
    options = {**case.options, "stream_over": None, "heartbeats": False, "limits": WIDE}
    read = []
    for codec in (_codec_c, _codec_py):
        frames: list[Any] = []
        with suppress(FrameError):  # what comes before the error counts: extend() keeps it
            frames.extend(codec.Parser(**options).feed(case.wire))
        read.append(frames)
    return list(zip(*read, strict=True))


def made(wire: bytes) -> list[tuple[Any, Any]]:
    """A frame made in Python from any text, which no wire could hold."""
    texts = [text.decode("utf-8", "surrogatepass" if len(wire) % 2 else "surrogateescape") for text in split(wire)]
    command = texts[0] if texts[0] in ("SEND", "CONNECT", "BEGIN", "send") else "MESSAGE"
    pairs = list(zip(texts[1::2], texts[2::2]))
    body = wire[-(len(wire) % 7) :] if len(wire) % 7 else b""
    return [(_codec_c.Frame(command, pairs, body), _codec_py.Frame(command, pairs, body))]


def split(wire: bytes) -> list[bytes]:
    """Pieces of the wire that decode: cut at LF and colon, so that seeds make sense, and 0xfe stands for these two."""
    pieces = wire[:2000].replace(b"\n", b":").split(b":")
    good = []
    for piece in pieces:
        piece = piece.replace(b"\xfe", b"\n").replace(b"\xfd", b":")
        try:
            piece.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            piece = piece.decode("latin-1").encode()
        good.append(piece)
    return good


def written(codec: Any, frame: Any, version: str | None, options: dict[str, Any]) -> bytes | str:
    """The octets, or the kind of the error."""
    try:
        data: bytes = codec.serialize(frame, version, **options)
    except FrameError as error:
        return error.kind if error.offset is None else f"{error.kind} at an offset"
    return data


def check_tail(c: Any, rebuilt: Any, python: Any, version: str | None) -> None:
    """A tail is alike from all, and makes one frame behind any command."""
    if version not in ("1.0", "1.1", "1.2"):
        return
    without = ("receipt", "destination")
    tails = [_codec_c.serialize_tail(frame, version, without=without) for frame in (c, rebuilt)]
    assert tails == [_codec_py.serialize_tail(python, version, without=without)] * 2, (
        f"{python!r} in {version}: {tails}"
    )
    frames = list(_codec_py.Parser(version, limits=WIDE).feed(b"MESSAGE\n" + tails[0]))
    assert len(frames) == 1, f"{python!r} in {version}: {tails[0]!r}"
    assert frames[0].body == python.body


def check_parts(frame: Any, version: str | None, options: dict[str, Any], wire: bytes) -> None:
    parts = _codec_c.serialize_parts(frame, version, **options)
    assert b"".join(parts) == wire
    assert len(parts) == 1 or parts[1] is frame.body
    assert _codec_c.serialize_many([frame] * 3, version, **options) == wire * 3


def check_read(frame: Any, version: str | None, options: dict[str, Any], wire: bytes) -> None:
    """What was written strictly is one whole frame, and the same one."""
    command, pairs = frame.command, frame.headers.pairs()
    if version == "legacy":
        command, pairs = command.translate(UPPER), [(name.translate(LOWER), value) for name, value in pairs]
        # Legacy readers drop spaces at the ends, and there is no way to write them.
        if any(value != value.strip(" ") or name != name.rstrip(" ") for name, value in pairs):
            return
    frames = list(_codec_py.Parser(version, limits=WIDE, commands=COMMANDS[1]).feed(wire))
    assert len(frames) == 1, f"{frame!r} in {version} became {wire!r}"
    read = frames[0].headers.pairs()
    if options["content_length"] == "never":
        pairs = [pair for pair in pairs if pair[0] != "content-length"]
    elif "content-length" not in dict(pairs) and "content-length" in dict(read):
        pairs = [*pairs, ("content-length", str(len(frame.body)))]
    assert (frames[0].command, read, frames[0].body) == (command, pairs, frame.body), f"{frame!r} became {wire!r}"


if __name__ == "__main__":
    drive(check)
