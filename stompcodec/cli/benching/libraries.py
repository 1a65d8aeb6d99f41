"""What `bench codec` measures: our backends, and other libraries as they are used by their own clients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from itertools import chain
from typing import Any, NamedTuple

from stompcodec.codec import BACKEND, backend

__all__ = ["PEERS", "Library", "Part", "ours", "peer"]

_NAMES = {"c": "stompcodec C", "python": "stompcodec Python"}


class Part(NamedTuple):
    """What a frame consists of."""

    command: str
    pairs: list[tuple[str, str]]
    body: bytes

    @property
    def first(self) -> dict[str, str]:
        """The headers; of a repeated name the first entry counts."""
        return dict(reversed(self.pairs))


@dataclass(frozen=True)
class Library:
    """A contestant.

    Attributes:
        name: for people.
        version: of its distribution.
        parser: makes what decodes a stream from its start.
        frames: gives the frames that are in some pieces of a stream.
        decode: for each way of decoding, what goes through such frames.
        native: makes a frame of its own.
        encode: for each way of encoding, what does it with such frames.
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
        frame.body  # noqa: B018  # reading it is what is timed


def _as_dict(frames: Iterable[Any]) -> None:
    for frame in frames:
        dict(frame.headers)


def _read_theirs(frames: Iterable[Any]) -> None:
    for frame in frames:
        frame.headers.get("destination")
        frame.headers.get("message-id")
        getattr(frame, "body", b"")  # stompman has frames without one


def _their_dict(frames: Iterable[Any]) -> None:
    for frame in frames:
        frame.headers  # noqa: B018  # reading it is what is timed; it is a dict already


def _each(dump: Callable[[Any], object], frames: list[Any]) -> None:
    for frame in frames:
        dump(frame)


def ours() -> list[Library]:
    """The backends that there are; the one in use comes first.

    >>> [library.name for library in ours()][-1]
    'stompcodec Python'
    """
    from stompcodec import __version__

    found = []
    for name in sorted(_NAMES, key=lambda name: name != BACKEND):
        try:
            codec = backend(name)
        except ImportError:  # it is not built
            continue
        found.append(
            Library(
                _NAMES[name],
                __version__,
                parser=codec.Parser,
                frames=lambda parser, pieces: chain.from_iterable(map(parser.feed, pieces)),
                decode={"decode": _untouched, "read": _read, "dict": _as_dict},
                # a lambda's default has no type of its own
                native=lambda part, make=codec.Frame: make(*part),  # type: ignore[misc]
                encode={"serialize": partial(_each, codec.serialize), "serialize_many": codec.serialize_many},
            )
        )
    return found


def _stomp_py() -> Library:
    """stomp.py: the transport's own splitting of what it receives, then parse_frame. Bodies are left bytes."""
    os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")  # or importing it asks name servers
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
    """stompman: the loop of its Connection.read_frames."""
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


#: What --compare may name.
PEERS: dict[str, Callable[[], Library]] = {"stomp.py": _stomp_py, "stompman": _stompman}


def peer(name: str) -> Library:
    """A library of others.

    Args:
        name: one of `PEERS`.

    Raises:
        ImportError, AttributeError: it is not installed, or of a version that is made otherwise.
    """
    return PEERS[name]()
