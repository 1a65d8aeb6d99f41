"""The libraries of `bench codec`: our backends, and other libraries as their own clients use them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from itertools import chain
from typing import Any, NamedTuple

from stompcodec.codec import BACKEND, backend

_NAMES = {"c": "stompcodec C", "python": "stompcodec Python"}


class Part(NamedTuple):
    """The content of a frame."""

    command: str
    pairs: list[tuple[str, str]]
    body: bytes

    @property
    def first(self) -> dict[str, str]:
        """The headers; the first entry of a repeated name counts."""
        return dict(reversed(self.pairs))


@dataclass(frozen=True)
class Library:
    """A library in the race.

    Attributes:
        name: for output.
        version: of its distribution.
        parser: makes a parser of a stream.
        frames: yields the frames in pieces of a stream.
        decode: functions that consume such frames, by measure.
        native: makes one of the library's own frames.
        encode: functions that serialize such frames, by measure.
    """

    name: str
    version: str
    parser: Callable[[], Any]
    frames: Callable[[Any, list[bytes]], Iterable[Any]]
    decode: dict[str, Callable[[Iterable[Any]], None]]
    native: Callable[[Part], Any]
    encode: dict[str, Callable[[list[Any]], object]]


def _untouched(frames: Iterable[Any]) -> None:
    for _frame in frames:
        pass


def _read(frames: Iterable[Any]) -> None:
    for frame in frames:
        frame.get("destination")
        frame.get("message-id")
        frame.body  # noqa: B018  # the access is timed


def _as_dict(frames: Iterable[Any]) -> None:
    for frame in frames:
        dict(frame.headers)


def _read_theirs(frames: Iterable[Any]) -> None:
    for frame in frames:
        frame.headers.get("destination")
        frame.headers.get("message-id")
        getattr(frame, "body", b"")  # stompman has frames without a body


def _their_dict(frames: Iterable[Any]) -> None:
    for frame in frames:
        frame.headers  # noqa: B018  # the access is timed; it is a dict already


def _each(dump: Callable[[Any], object], frames: list[Any]) -> None:
    for frame in frames:
        dump(frame)


def ours() -> list[Library]:
    """Return the available backends, the one in use first.

    >>> [library.name for library in ours()][-1]
    'stompcodec Python'
    """
    from stompcodec import __version__

    found = []
    for name in sorted(_NAMES, key=lambda name: name != BACKEND):
        try:
            codec = backend(name)
        except ImportError:  # not built
            continue
        found.append(
            Library(
                _NAMES[name],
                __version__,
                parser=codec.Parser,
                frames=lambda parser, pieces: chain.from_iterable(map(parser.feed, pieces)),
                decode={"decode": _untouched, "read": _read, "dict": _as_dict},
                # a lambda's default is untyped
                native=lambda part, make=codec.Frame: make(*part),  # type: ignore[misc]
                encode={"serialize": partial(_each, codec.serialize), "serialize_many": codec.serialize_many},
            )
        )
    return found


def _stomp_py() -> Library:
    """Return stomp.py: its transport's splitting of received data, then parse_frame. Bodies stay bytes."""
    os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")  # otherwise importing it queries name servers
    utils, transport = import_module("stomp.utils"), import_module("stomp.transport")

    def parser() -> Any:
        made = transport.BaseTransport(auto_decode=False)
        made.running, made.blocking = True, False
        return made

    def reads(made: Any, pieces: list[bytes]) -> Iterator[list[bytes]]:
        left: Any = iter(pieces)
        made.receive = partial(next, left, b"")
        while left.__length_hint__():
            yield made._BaseTransport__read()

    def frames(made: Any, pieces: list[bytes]) -> Iterator[Any]:
        return filter(None, map(utils.parse_frame, chain.from_iterable(reads(made, pieces))))

    return Library(
        "stomp.py",
        metadata.version("stomp.py"),
        parser,
        frames,
        decode={"decode": _untouched, "read": _read_theirs, "dict": _their_dict},
        native=lambda part: utils.Frame(part.command, part.first, part.body),
        encode={"serialize": partial(_each, lambda frame: utils.pack(utils.convert_frame(frame)))},
    )


def _stompman() -> Library:
    """Return stompman: the loop of its Connection.read_frames."""
    serde = import_module("stompman.serde")
    return Library(
        "stompman",
        metadata.version("stompman"),
        parser=serde.FrameParser,
        frames=lambda parser, pieces: chain.from_iterable(map(parser.parse_frames_from_chunk, pieces)),
        decode={"decode": _untouched, "read": _read_theirs, "dict": _their_dict},
        native=lambda part: serde.make_frame_from_parts(
            command=part.command.encode(), headers=part.first, body=part.body
        ),
        encode={"serialize": partial(_each, serde.dump_frame)},
    )


#: Libraries for --compare.
PEERS: dict[str, Callable[[], Library]] = {"stomp.py": _stomp_py, "stompman": _stompman}


def peer(name: str) -> Library:
    """Return one of `PEERS`; raise ImportError or AttributeError without a supported version of it."""
    return PEERS[name]()
