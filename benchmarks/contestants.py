"""The STOMP libraries that are measured, each driven as its own client drives it.

A loop is kept as text and compiled once for each use of a frame, as timeit does it, so that no contestant pays for a
call per frame. `{use}` is where the loop does something with `frame`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from textwrap import indent
from typing import Any

C, PYTHON = "stompcodec C", "stompcodec Python"
Plain = tuple[str, dict[str, str], bytes]


@dataclass
class Contestant:
    """One library."""

    name: str
    parser: Callable[[str], Any]  # of a version of STOMP
    loop: str  # source of the body of `run(parser, pieces)`
    read: str  # source that takes two headers and the body of a frame
    headers: str  # source that makes a dict of all headers
    plain: Callable[[Any], Plain | None]  # None for a heart-beat
    native: Callable[[str, list[tuple[str, str]], bytes], Any]  # what `dump` takes
    dump: str  # source of the expression that gives the bytes of {frame}
    names: dict[str, Any] = field(default_factory=dict)  # what the sources refer to

    def decode(self, use: str = "pass") -> Callable[..., None]:
        """Return run(parser, pieces, keep=None): the decoding loop, which does something with each `frame`."""
        return self._compile("parser, pieces, keep=None", self.loop.replace("{use}", use))

    def encode(self) -> Callable[[list[Any]], None]:
        """Return run(frames), which serializes each."""
        return self._compile("frames", "for frame in frames:\n    " + self.dump.replace("{frame}", "frame"))

    def collect(self, version: str, pieces: list[bytes]) -> tuple[list[Plain], bool]:
        """Return all frames of a stream, and whether it came to its end. Frames before an error count."""
        frames: list[Plain | None] = []
        ended = False
        with suppress(Exception):  # whatever a peer raises
            self.decode("keep(frame)")(self.parser(version), pieces, lambda frame: frames.append(self.plain(frame)))
            ended = True
        return [frame for frame in frames if frame is not None], ended

    def _compile(self, arguments: str, body: str) -> Callable[..., None]:
        scope = dict(self.names)
        exec(f"def run({arguments}):\n{indent(body, '    ')}", scope)
        return scope["run"]


def judged(contestant: Contestant, version: str, pieces: list[bytes], truth: list[Plain]) -> str:
    """Return "right", "wrong" where some frames are not, or "fails" where it raises or a quarter of them is missing.
    Our own backends must be right.
    """
    got, ended = contestant.collect(version, pieces)
    if got == truth:
        return "right"
    assert contestant.name not in (C, PYTHON), f"{contestant.name} is wrong"
    return "wrong" if ended and len(got) * 4 >= len(truth) * 3 else "fails"


def first_wins(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return the headers as a dict; of a repeated name the first one counts."""
    return dict(reversed(pairs))


def ours(backend: str) -> Contestant:
    """One of our backends; ImportError when it is not built."""
    from stompcodec.codec import backend as load

    codec = load(backend)
    return Contestant(
        name={"c": C, "python": PYTHON}[backend],
        parser=codec.Parser,
        loop="for piece in pieces:\n    for frame in parser.feed(piece):\n        {use}",
        read='frame.get("destination"); frame.get("message-id"); frame.body',
        headers="dict(frame.headers)",
        plain=lambda frame: (frame.command, dict(frame.headers), frame.body),
        native=codec.Frame,
        dump="serialize({frame})",
        names={"serialize": codec.serialize},
    )


def stomp_py() -> Contestant:
    """stomp.py: the transport's own splitting of what it receives, then parse_frame. Bodies are left bytes."""
    os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")
    from stomp import utils
    from stomp.transport import BaseTransport

    def parser(_version: str) -> BaseTransport:
        transport = BaseTransport(auto_decode=False)
        transport.running, transport.blocking = True, False
        return transport

    loop = """\
left = iter(pieces)
parser.receive = partial(next, left, b"")
while left.__length_hint__():
    for raw in parser._BaseTransport__read():
        if is_eol(raw):
            continue
        frame = parse_frame(raw)
        if frame is not None:
            {use}"""
    names = {"partial": partial, "is_eol": utils.is_eol_default, "parse_frame": utils.parse_frame}
    names |= {"pack": utils.pack, "convert_frame": utils.convert_frame}
    return Contestant(
        name="stomp.py",
        parser=parser,
        loop=loop,
        read='frame.headers.get("destination"); frame.headers.get("message-id"); frame.body',
        headers="frame.headers",
        plain=lambda frame: (frame.cmd, frame.headers, frame.body),
        native=lambda command, pairs, body: utils.Frame(command, first_wins(pairs), body),
        dump="pack(convert_frame({frame}))",
        names=names,
    )


def stompman() -> Contestant:
    """stompman: the loop of its Connection.read_frames."""
    from stompman import frames, serde

    def plain(frame: Any) -> Plain | None:
        if isinstance(frame, frames.HeartbeatFrame):
            return None
        return serde.FRAMES_TO_COMMANDS[type(frame)].decode(), frame.headers, getattr(frame, "body", b"")

    make = serde.make_frame_from_parts
    names = {"Heartbeat": frames.HeartbeatFrame, "bodied": serde.FRAMES_WITH_BODY, "dump_frame": serde.dump_frame}
    read = 'frame.headers.get("destination"); frame.headers.get("message-id"); frame.__class__ in bodied and frame.body'
    return Contestant(
        name="stompman",
        parser=lambda _version: serde.FrameParser(),
        loop="for piece in pieces:\n    for frame in parser.parse_frames_from_chunk(piece):\n        {use}",
        read=f"if frame.__class__ is not Heartbeat: {read}",
        headers="frame.__class__ is Heartbeat or frame.headers",
        plain=plain,
        native=lambda command, pairs, body: make(command=command.encode(), headers=first_wins(pairs), body=body),
        dump="dump_frame({frame})",
        names=names,
    )


#: The makers of all contestants; ours come first. A maker raises ImportError where its library is not installed.
MAKERS: dict[str, Callable[[], Contestant]] = {
    C: partial(ours, "c"),
    PYTHON: partial(ours, "python"),
    "stomp.py": stomp_py,
    "stompman": stompman,
}
