"""Who is measured, and how each is driven: as its own client drives it.

A loop is kept as text and compiled once for each use of a frame, as timeit does it, so that no contestant pays for a
call a frame. `{use}` is where the loop does something with `frame`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from textwrap import indent
from typing import Any

#: What a loop does with each frame.
USES = ("untouched", "read", "dict")


@dataclass
class Contestant:
    """One library.

    Attributes:
        parser: version of STOMP -> what the loop works on.
        loop: source of the body of `run(parser, pieces)`.
        uses: source for each of USES: nothing; two headers and the body; a dict of all headers.
        plain: a frame -> (command, headers, body), or None for a heart-beat.
        native: (command, pairs, body) -> what `dump` takes.
        dump: source of the expression that gives the octets of {frame}.
        make: source of the expression for {frame}, from `command, headers, body`; headers is a dict.
        names: what the sources refer to.
        backend: the module, when it is ours.
    """

    name: str
    parser: Callable[[str], Any]
    loop: str
    uses: dict[str, str]
    plain: Callable[[Any], tuple[str, dict[str, str], bytes] | None]
    native: Callable[[str, list[tuple[str, str]], bytes], Any]
    dump: str
    make: str
    names: dict[str, Any] = field(default_factory=dict)
    backend: Any = None

    def decode(self, use: str) -> Callable[[Any, list[bytes]], None]:
        """run(parser, pieces): the decoding loop."""
        return self._compile("parser, pieces", self.loop.replace("{use}", self.uses[use]))

    def keep(self) -> Callable[[Any, list[bytes], Callable[[Any], Any]], None]:
        """run(parser, pieces, keep): calls keep with each frame."""
        return self._compile("parser, pieces, keep", self.loop.replace("{use}", "keep(frame)"))

    def collect(self, version: str, pieces: list[bytes]) -> tuple[list[tuple[str, dict[str, str], bytes]], bool]:
        """All frames of a stream, and whether it came to its end: frames before an error count."""
        frames: list[Any] = []
        ended = False
        with suppress(Exception):  # whatever a peer raises
            self.keep()(self.parser(version), pieces, lambda frame: frames.append(self.plain(frame)))
            ended = True
        return [frame for frame in frames if frame is not None], ended

    def encode(self) -> Callable[[list[Any]], None]:
        """run(frames): serializes each."""
        return self._compile("frames", "for frame in frames:\n    " + self.dump.replace("{frame}", "frame"))

    def build(self) -> Callable[[list[Any]], None]:
        """run(parts): makes a frame of each (command, dict, body), and serializes it."""
        dump = self.dump.replace("{frame}", self.make)
        return self._compile("parts", f"for command, headers, body in parts:\n    {dump}")

    def _compile(self, arguments: str, body: str) -> Callable[..., None]:
        scope = dict(self.names)
        exec(f"def run({arguments}):\n{indent(body, '    ')}", scope)
        return scope["run"]


def _first_wins(pairs: list[tuple[str, str]]) -> dict[str, str]:
    return dict(reversed(pairs))


def ours(backend: str) -> Contestant:
    """One of our backends; ImportError when it is not built."""
    from stompcodec.codec import backend as load

    codec = load(backend)
    return Contestant(
        name={"c": "stompcodec C", "python": "stompcodec Python"}[backend],
        parser=codec.Parser,
        loop="for piece in pieces:\n    for frame in parser.feed(piece):\n        {use}",
        uses={
            "untouched": "pass",
            "read": 'frame.get("destination"); frame.get("message-id"); frame.body',
            "dict": "dict(frame.headers)",
        },
        plain=lambda frame: (frame.command, dict(frame.headers), frame.body),
        native=codec.Frame,
        dump="serialize({frame})",
        make="Frame(command, headers, body)",
        names={"serialize": codec.serialize, "Frame": codec.Frame},
        backend=codec,
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
    return Contestant(
        name="stomp.py",
        parser=parser,
        loop=loop,
        uses={
            "untouched": "pass",
            "read": 'frame.headers.get("destination"); frame.headers.get("message-id"); frame.body',
            "dict": "frame.headers",
        },
        plain=lambda frame: (frame.cmd, frame.headers, frame.body),
        native=lambda command, pairs, body: utils.Frame(command, _first_wins(pairs), body),
        dump="pack(convert_frame({frame}))",
        make="Frame(command, headers, body)",
        names={
            "partial": partial,
            "is_eol": utils.is_eol_default,
            "parse_frame": utils.parse_frame,
            "pack": utils.pack,
            "convert_frame": utils.convert_frame,
            "Frame": utils.Frame,
        },
    )


def stompman() -> Contestant:
    """stompman: the loop of its Connection.read_frames."""
    from stompman import frames, serde

    def plain(frame: Any) -> tuple[str, dict[str, str], bytes] | None:
        if isinstance(frame, frames.HeartbeatFrame):
            return None
        return serde.FRAMES_TO_COMMANDS[type(frame)].decode(), frame.headers, getattr(frame, "body", b"")

    make = "make_frame(command=command.encode(), headers=headers, body=body)"
    read = 'frame.headers.get("destination"); frame.headers.get("message-id"); frame.__class__ in bodied and frame.body'
    return Contestant(
        name="stompman",
        parser=lambda _version: serde.FrameParser(),
        loop="for piece in pieces:\n    for frame in parser.parse_frames_from_chunk(piece):\n        {use}",
        uses={
            "untouched": "pass",
            "read": f"if frame.__class__ is not Heartbeat: {read}",
            "dict": "frame.__class__ is Heartbeat or frame.headers",
        },
        plain=plain,
        native=lambda command, pairs, body: serde.make_frame_from_parts(
            command=command.encode(), headers=_first_wins(pairs), body=body
        ),
        dump="dump_frame({frame})",
        make=make,
        names={
            "Heartbeat": frames.HeartbeatFrame,
            "bodied": serde.FRAMES_WITH_BODY,
            "dump_frame": serde.dump_frame,
            "make_frame": serde.make_frame_from_parts,
        },
    )


def stompest() -> Contestant:
    """stompest: add, then get while it can read."""
    from stompest.protocol import StompFrame, StompParser

    return Contestant(
        name="stompest",
        parser=StompParser,
        loop="for piece in pieces:\n    parser.add(piece)\n    while parser.canRead():\n"
        "        frame = parser.get()\n        {use}",
        uses={
            "untouched": "pass",
            "read": 'if frame: h = frame.headers; h.get("destination"); h.get("message-id"); frame.body',
            "dict": "if frame: frame.headers",
        },
        plain=lambda frame: (frame.command, frame.headers, frame.body) if frame else None,
        native=lambda command, pairs, body: StompFrame(command, rawHeaders=pairs, body=body, version="1.2"),
        dump="bytes({frame})",
        make='Frame(command, headers, body, version="1.2")',
        names={"Frame": StompFrame},
    )


def aiostomp() -> Contestant:
    """aiostomp: what its data_received does."""
    from aiostomp.protocol import StompProtocol

    def plain(frame: Any) -> tuple[str, dict[str, str], bytes] | None:
        return None if frame.command == "HEARTBEAT" else (frame.command, frame.headers, frame.body or b"")

    return Contestant(
        name="aiostomp",
        parser=lambda _version: StompProtocol(),
        loop="for piece in pieces:\n    parser.feed_data(piece)\n    for frame in parser.pop_frames():\n        {use}",
        uses={
            "untouched": "pass",
            "read": 'frame.headers.get("destination"); frame.headers.get("message-id"); frame.body',
            "dict": "frame.headers",
        },
        plain=plain,
        native=lambda command, pairs, body: (command, _first_wins(pairs), body),
        dump="build_frame(*{frame})",
        make="(command, headers, body)",
        names={"build_frame": StompProtocol().build_frame},
    )


PEERS = {
    "stomp.py": ("stomp.py==9.0.0", stomp_py),
    "stompman": ("stompman==3.16.0", stompman),
    "stompest": ("stompest==2.3.0", stompest),
    "aiostomp": ("aiostomp==1.7.3", aiostomp),
}


def everyone() -> list[Contestant]:
    """All that can be imported; ours come first."""
    makers: list[Callable[[], Contestant]] = [partial(ours, "c"), partial(ours, "python")]
    makers += [maker for _requirement, maker in PEERS.values()]
    found = []
    for maker in makers:
        try:
            found.append(maker())
        except ImportError as error:
            print(f"not measured: {error}")
    return found
