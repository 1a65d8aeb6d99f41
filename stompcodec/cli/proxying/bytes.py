"""Bytes that pass a proxy: frames are observed in them, faults injected, and the rest carried."""

from __future__ import annotations

import logging
import random
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from stompcodec import END_OF_BODY, HEARTBEAT, Frame, FrameError, Limits, Parser, serialize
from stompcodec.cli.inputs import Broken, Place, version_after
from stompcodec.spec import SERVER, dialect_of
from stompcodec.testing.faults import Direction as ByteFaults
from stompcodec.testing.faults import Rules
from stompcodec.testing.frame_faults import Fault, FrameFaults, with_crlf, with_repeated_headers
from stompcodec.values import count, duration, shown_duration, size

Direction = Literal["client", "broker"]
#: The direction is named for its sender.
DIRECTIONS: tuple[Direction, Direction] = ("client", "broker")
#: Bytes of a body that are kept; larger ones are streamed.
KEEP = 2**20
#: Bytes of a head. A frame with a larger one ends the reading of its direction, and passes unchanged.
_HEAD = 2**20
#: Bytes kept of a streamed body, and of data that is not STOMP.
_BEGIN = 256
_LIMITS = Limits(max_body=2**62)


class Passed(NamedTuple):
    """A frame that has passed completely."""

    place: Place
    """Its frame and position. A body that is not kept is None."""
    head: bytes
    """Its bytes up to the body."""
    octets: bytes
    """All its bytes; b"" if they came before as `Raw`."""

    @property
    def streamed(self) -> bool:
        """True if the body was too large to be kept."""
        return not self.octets


class Beats(NamedTuple):
    """Heart-beats: EOLs between frames."""

    octets: bytes


class Raw(NamedTuple):
    """Bytes that belong to no whole frame: of a streamed frame, or not STOMP."""

    octets: bytes


class Foreign(NamedTuple):
    """The point from which a direction is not STOMP. What follows is `Raw`."""

    broken: Broken
    """The error, and the first bytes from the broken frame on."""
    octets: bytes
    """The bytes from there on; b"" at the end of the stream if all came before."""


Event = Passed | Beats | Raw | Foreign


class Observer:
    """The observer of one direction. Invariant: the octets of all events, joined, are the bytes that were fed. `follow`
    is called with the version of CONNECTED; it sets that of both directions. `keep` bytes of a body are kept.

    >>> observer = Observer()
    >>> [type(event).__name__ for event in observer.feed(b"ACK\\nid:7\\n\\n\\0\\nSEND")]
    ['Passed', 'Beats']
    >>> observer.between
    False
    >>> observer.feed(b" ?\\n")[0].broken.error.kind
    'unknown-command'
    """

    def __init__(self, follow: Callable[[str | None], None] = lambda version: None, keep: int = KEEP) -> None:
        self.fed = 0
        """Bytes so far."""
        self.foreign = 0
        """Those that are not STOMP."""
        self.broken: Broken | None = None
        """The error that ended the reading of frames."""
        self._follow = follow
        self._most = keep + _HEAD
        self._parser: Parser | None = Parser(None, limits=_LIMITS, heartbeats=True, stream_over=keep)
        self._at = 0  # the end of the last event
        self._kept = bytearray()  # the bytes from `_at` on
        self._beats = 0  # the end of heart-beats after `_at`, which become one event
        self._streamed: Place | None = None
        self._head = b""  # of the streamed frame

    @property
    def between(self) -> bool:
        return self._at == self.fed and self.may_write

    @property
    def may_write(self) -> bool:
        return self._streamed is None and self.broken is None

    def set_version(self, version: str | None) -> None:
        if self._parser is not None:
            self._parser.version = version

    def feed(self, data: bytes) -> list[Event]:
        self.fed += len(data)
        if self._parser is None:
            self.foreign += len(data)
            return [Raw(data)]
        self._kept += data
        events: list[Event] = []
        try:
            for event in self._parser.feed(data):
                self._take(event, self.fed - self._parser.buffered, events)
        except FrameError as error:
            self._add_beats(events)
            events.append(self._fail(error))
            return events
        self._add_beats(events)
        if len(self._kept) > self._most:
            events.append(self._fail(FrameError("limit-exceeded", self._at, limit="max_headers")))
        return events

    def end(self) -> list[Event]:
        """Note the end of the stream; return an event if it is in the middle of a frame."""
        if self._parser is None:
            return []
        try:
            self._parser.close()
        except FrameError as error:
            return [self._fail(error)]
        rest = self._cut(self.fed)
        return [Raw(rest)] if rest else []

    def _cut(self, at: int) -> bytes:
        size = at - self._at
        octets = bytes(self._kept[:size])
        del self._kept[:size]
        self._at = at
        return octets

    def _take(self, event: object, at: int, events: list[Event]) -> None:
        assert self._parser is not None
        if event is HEARTBEAT:
            self._beats = at
            return
        self._add_beats(events)
        start = self._at
        octets = self._cut(at)
        if isinstance(event, Frame):
            version = self._parser.version
            body: bytes | None = event.body
            if body is None:
                self._streamed, self._head = Place(event, start, at, at + 1, version, b""), octets
                events.append(Raw(octets))
                return
            size = len(body)
            place = Place(event, start, at - 1 - size, at, version, body[:_BEGIN])
            events.append(Passed(place, octets[: place.body - start], octets))
            if event.command == "CONNECTED":
                self._follow(version_after(event))
        elif self._streamed is not None:
            self._stream(event, at, octets, events)

    def _add_beats(self, events: list[Event]) -> None:
        if self._beats > self._at:
            events.append(Beats(self._cut(self._beats)))

    def _stream(self, event: object, at: int, octets: bytes, events: list[Event]) -> None:
        place = self._streamed
        assert place is not None
        if octets:
            events.append(Raw(octets))
        if event is END_OF_BODY:
            events.append(Passed(place._replace(end=at), self._head, b""))
            self._streamed, self._head = None, b""
        elif len(place.begin) < _BEGIN:
            assert isinstance(event, bytes)
            self._streamed = place._replace(begin=(place.begin + event[:_BEGIN])[:_BEGIN])

    def _fail(self, error: FrameError) -> Foreign:
        start, begin = self._at, bytes(self._kept[:_BEGIN])
        if self._streamed is not None:
            start, begin = self._streamed.start, self._head[:_BEGIN]
        version = None if self._parser is None else self._parser.version
        self.broken = Broken(error, start, None, version, begin)
        octets = self._cut(self.fed)
        self.foreign += len(octets)
        self._parser = self._streamed = None
        self._head = b""
        return Foreign(self.broken, octets)


class Exchange:
    """Both directions of a connection, in the version that the broker has chosen.

    >>> exchange = Exchange()
    >>> _ = exchange.feed("broker", b"CONNECTED\\nversion:1.1\\n\\n\\0")
    >>> exchange.feed("client", b"ACK\\nmessage-id:7\\nsubscription:0\\n\\n\\0")[0].place.version
    '1.1'
    """

    def __init__(self, keep: int = KEEP) -> None:
        self.sides: dict[Direction, Observer] = {"client": Observer(keep=keep), "broker": Observer(self._follow, keep)}

    def feed(self, direction: Direction, data: bytes) -> list[Event]:
        return self.sides[direction].feed(data)

    def end(self, direction: Direction) -> list[Event]:
        return self.sides[direction].end()

    def _follow(self, version: str | None) -> None:
        for side in self.sides.values():
            side.set_version(version)


#: Longest delay in seconds.
_LONGEST = 3600.0


class Action(NamedTuple):
    """An action on frames, as `FrameFaults` has it."""

    does: str
    """The action of `Fault`."""
    sender: str = ""
    """Whose frames: "client", "broker", or "" for both."""
    times: int | None = 1
    """How many frames by default; None for all."""
    options: tuple[str, ...] = ()


#: The actions on frames.
ACTIONS = {
    "refuse": Action("error", "client", None, ("message",)),
    "error": Action("error", "client", options=("message",)),
    "lose": Action("lose"),
    "drop": Action("lose"),
    "cut": Action("cut", options=("octets", "after")),
    "duplicate": Action("duplicate"),
    "delay": Action("delay", options=("seconds",)),
    "corrupt": Action("change"),
    "crlf": Action("crlf", "broker", None),
    "repeat_headers": Action("change", "broker", None),
}
#: Those of bytes, by direction, with their fields.
_SIDES = {"up": "client", "down": "broker"}
_FIELDS = ("cut_after", "delay", "piece", "swallow", "hold")
#: Words that stand alone.
_ALONE = ("silent", "unreachable", "fin")
_COMMANDS = dialect_of("1.2").commands


@dataclass
class Faults:
    """The faults of a proxy, for all its connections."""

    frames: FrameFaults = field(default_factory=FrameFaults)
    rules: Rules = field(default_factory=Rules)
    seed: int = 0
    any_frames: bool = False
    """True if there are faults of frames, so that frames pass one by one."""

    def bytes_of(self, sender: str) -> ByteFaults | None:
        rules = self.rules.up if sender == "client" else self.rules.down
        return None if rules == ByteFaults() else rules


def faults_of(texts: tuple[str, ...], seed: int = 0) -> Faults:
    """Return the faults that these texts name. Raise ValueError for a text that is not a fault.

    >>> faults = faults_of(("lose RECEIPT nth=2", "delay MESSAGE 0.5", "down piece=3"), 0)
    >>> faults.any_frames, faults.rules.down.piece
    (True, 3)
    """
    faults = Faults(seed=seed)
    for text in texts:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}") from None
        try:
            _add(faults, text, words)
        except ValueError as error:
            raise ValueError(f"{text!r}: {error}") from None
    return faults


def _add(faults: Faults, text: str, words: list[str]) -> None:
    name = words[0] if words else ""
    if name in _SIDES:
        _add_bytes(getattr(faults.rules, name), words[1:])
    elif name in _ALONE and len(words) == 1:
        if name == "silent":
            faults.frames.silent = faults.any_frames = True
        else:
            faults.rules.refuse = faults.rules.refuse or name == "unreachable"
            faults.rules.reset = faults.rules.reset and name != "fin"
    elif name in ACTIONS:
        faults.frames.add(_frame_fault(text, name, words[1:], faults.seed))
        faults.any_frames = True
    else:
        raise ValueError(f"the first word is one of {', '.join((*ACTIONS, *_SIDES, *_ALONE))}")


def _add_bytes(direction: ByteFaults, words: list[str]) -> None:
    if not words:
        raise ValueError(f"name one of {', '.join(_FIELDS)}")
    for word in words:
        name, _, value = word.partition("=")
        if name not in _FIELDS:
            raise ValueError(f"{word} is not one of {', '.join(_FIELDS)}")
        if name in ("swallow", "hold"):
            if value:
                raise ValueError(f"{name} takes no value")
            setattr(direction, name, True)
        elif name == "delay":
            direction.delay = _seconds(value)
        elif name == "piece":
            direction.piece = _number(name, value, 1, size)
        else:
            low, dots, high = value.partition("..")
            least = _number(name, low, 0, size)
            direction.cut_after = (least, _number(name, high, least, size)) if dots else least


def _frame_fault(text: str, name: str, words: list[str], seed: int) -> Fault:
    action = ACTIONS[name]
    if name == "refuse":
        words = ["CONNECT", *words]
    command = words[0].upper() if words else ""
    if command not in _COMMANDS:
        raise ValueError(f"{name} needs a command, such as {'MESSAGE' if action.sender != 'client' else 'SEND'}")
    if action.sender and (command in SERVER) is not (action.sender == "broker"):
        whose = "clients" if action.sender == "client" else "the broker"
        raise ValueError(f"{name} is for frames of {whose}, and {command} is not one")
    nth, times, headers = 1, action.times, {}
    options: dict[str, Any] = {"text": text}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if key == "nth":
            nth = _number(key, value, 1)
        elif key == "times":
            times = None if value == "all" else _number(key, value, 1)
        elif key in action.options or (name == "delay" and not equals):
            options.update(_option(key, equals, value))
        elif equals:
            headers[key] = value
        else:
            raise ValueError(f"{word}: write NAME=VALUE, for an option of {name} or a header of the frame")
    if name == "delay" and "seconds" not in options:
        raise ValueError("delay needs seconds, as in delay MESSAGE 0.5")
    if "after" in options and "octets" in options:
        raise ValueError("octets and after exclude each other")
    options.update(_change(name, seed))
    return Fault(action.does, "CONNECT" if command == "STOMP" else command, nth, times, headers, options)


def _option(key: str, equals: str, value: str) -> dict[str, Any]:
    if key == "message":
        return {key: value}
    if key == "octets":
        return {key: _number(key, value, 0, size)}
    if key == "after":
        if equals:
            raise ValueError("after takes no value")
        return {key: True}
    return {"seconds": _seconds(value if equals else key)}


def _change(name: str, seed: int) -> dict[str, Callable[..., Any]]:
    if name == "corrupt":
        roll = random.Random(seed)
        return {"flip": lambda octets: _flip(octets, roll)}
    return {"frame": with_repeated_headers} if name == "repeat_headers" else {}


def _flip(octets: bytes, roll: random.Random) -> bytes:
    at = roll.randrange(len(octets))  # anywhere in the frame
    return octets[:at] + bytes([octets[at] ^ (1 << roll.randrange(8))]) + octets[at + 1 :]


def _number(name: str, value: str, least: int, read: Callable[[str], int] = count) -> int:
    try:
        number = read(value)
    except ValueError as error:
        raise ValueError(f"{name} is {value!r}: {error}") from None
    if number < least:
        raise ValueError(f"{name} is {value!r}: it must be {least} or more")
    return number


def _seconds(value: str) -> float:
    try:
        seconds = duration(value)
    except ValueError as error:
        raise ValueError(f"the delay is {value!r}: {error}") from None
    if seconds > _LONGEST:
        raise ValueError(f"the delay is {value!r}: it must be at most {shown_duration(_LONGEST)}")
    return seconds


def error_frame(message: str, frame: Frame, version: str | None) -> bytes:
    """Return the ERROR that answers a frame.

    >>> error_frame("no", Frame("SEND", {"receipt": "7"}), "1.2").splitlines()[:3]
    [b'ERROR', b'message:no', b'receipt-id:7']
    """
    receipt = frame.get("receipt")
    pairs = [("message", message), *([] if receipt is None else [("receipt-id", receipt)])]
    body = b"A proxy that tests faults has made this.\n"
    made = Frame("ERROR", [*pairs, ("content-type", "text/plain")], body)
    return serialize(made, version, content_length="always", lenient=True) + b"\n"


def changed(fault: Fault, frame: Frame, octets: bytes, version: str | None) -> bytes:
    """Return the bytes of a frame after a fault that changes it; the same bytes if the result cannot be written."""
    if "flip" in fault.options:
        return bytes(fault.options["flip"](octets))
    if fault.action == "crlf":
        return with_crlf(octets)
    try:
        return serialize(fault.options["frame"](frame), version, lenient=True)
    except FrameError:
        return octets


log = logging.getLogger("stompcodec.proxy")
#: Kinds of WebSocket messages; ANY is text if it is UTF-8, else binary.
ANY, TEXT, BINARY = 0, 1, 2


class Chunk(NamedTuple):
    """Bytes to write."""

    data: bytes
    kind: int = ANY
    """Over WebSocket, the kind of the message."""
    end: bool = True
    """Over WebSocket, the end of the message."""


class Pause(NamedTuple):
    """A delay before the next step, in seconds."""

    seconds: float


class Answer(NamedTuple):
    """Bytes to write to the sender."""

    data: bytes


class Cut(NamedTuple):
    """The end of the connection, after what is written."""


Step = Chunk | Pause | Answer | Cut
#: Called with what has passed, and the faults that it met.
Tell = Callable[[Direction, Event, tuple[str, ...]], object]


class Carrier:
    """The carrier of one direction of a connection, named for its sender. If it is `framed`, each frame becomes a
    message, since only the target speaks WebSocket.

    >>> carrier = Carrier(Exchange(), "client", tell=lambda direction, event, faults: None)
    >>> carrier.take(Chunk(b"SEN")), carrier.take(Chunk(b"D"))
    ([Chunk(data=b'SEN', kind=0, end=True)], [Chunk(data=b'D', kind=0, end=True)])
    """

    def __init__(
        self,
        exchange: Exchange,
        direction: Direction,
        *,
        faults: Faults | None = None,
        framed: bool = False,
        tell: Tell,
    ) -> None:
        self._exchange = exchange
        self._observer = exchange.sides[direction]
        self._direction: Direction = direction
        self._faults = faults if faults is not None and faults.any_frames else None
        self._framed = framed
        self._tell = tell
        self._kind = ANY
        self._begun = False  # a message of several parts
        self._is_cut = False
        self._blind = False  # the observer has failed, which must not harm the stream

    @property
    def whole(self) -> bool:
        return self._framed or self._faults is not None

    def take(self, chunk: Chunk) -> list[Step]:
        self._kind = chunk.kind
        if self.whole:
            return self._steps(self._exchange.feed(self._direction, chunk.data))
        if not self._blind:
            try:
                for event in self._exchange.feed(self._direction, chunk.data):
                    self._tell(self._direction, event, ())
            except Exception:
                self._blind = True
                log.exception("frames of the %s are not shown from here on", self._direction)
        return [chunk]

    def end(self) -> list[Step]:
        events = [] if self._blind else self._exchange.end(self._direction)
        if self.whole:
            return self._steps(events)
        for event in events:
            self._tell(self._direction, event, ())
        return []

    def _steps(self, events: list[Event]) -> list[Step]:
        steps: list[Step] = []
        for event in events:
            if self._is_cut:
                break
            if isinstance(event, Passed) and event.octets:
                steps += self._frame(event)
                continue
            self._tell(self._direction, event, ())
            if isinstance(event, Beats):
                faults = self._faults
                if faults is None or not faults.frames.silent or self._direction == "client":
                    steps.append(Chunk(event.octets, self._kind))
            elif isinstance(event, Passed):
                steps.append(self._part(b"", end=True))
            else:  # of a streamed frame, or not STOMP
                foreign = isinstance(event, Foreign) or self._observer.broken is not None
                if event.octets or self._begun:
                    steps.append(self._part(event.octets, end=foreign))
        return steps

    def _part(self, data: bytes, *, end: bool) -> Chunk:
        self._begun = not end
        return Chunk(data, self._kind or BINARY, end)

    def _frame(self, event: Passed) -> list[Step]:
        frame, version = event.place.frame, event.place.version
        due = [] if self._faults is None else self._faults.frames.due(frame)
        self._tell(self._direction, event, tuple(fault.options["text"] for fault in due))
        before: list[Step] = []
        goes = [event.octets]
        for fault in due:
            options = fault.options
            match fault.action:
                case "error":
                    self._is_cut = True
                    free = self._exchange.sides["broker"].may_write
                    answer = error_frame(options.get("message", "refused"), frame, version)
                    return [*([Answer(answer)] if free else []), Cut()]
                case "lose":
                    goes = []
                case "duplicate":
                    goes = goes * 2
                case "delay":
                    before.append(Pause(options["seconds"]))
                case "cut":
                    self._is_cut = True
                    goes = goes if options.get("after") else [b"".join(goes)[: options.get("octets", 0)]]
                case _:
                    goes = [changed(fault, frame, octets, version) for octets in goes]
        made: list[Step] = [*before, *(Chunk(octets, self._kind) for octets in goes if octets)]
        return [*made, Cut()] if self._is_cut else made
