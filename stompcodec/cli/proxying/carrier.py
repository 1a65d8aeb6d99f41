"""The carrier of one direction, without I/O: takes chunks of the sender, and says what to write, and what to tell.

Without faults, and between the same kinds of transports, each chunk is written as it was read. Otherwise frames pass
one by one: whole frames are what faults apply to, and what a WebSocket message is made of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from stompcodec.cli.proxying.faults import Faults, changed, error_frame
from stompcodec.cli.proxying.observer import Beats, Direction, Event, Exchange, Foreign, Passed

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
    """The carrier of one direction of a connection.

    Args:
        exchange: both directions as they are observed.
        direction: whose chunks it takes.
        faults: None for none.
        framed: whether each frame becomes a message, since only the target speaks WebSocket.
        tell: see `Tell`.

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
        """True if frames pass one by one."""
        return self._framed or self._faults is not None

    def take(self, chunk: Chunk) -> list[Step]:
        """Take a chunk of the sender, and return the steps to do."""
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
        """Note the end of the sender's stream, and return the steps to do."""
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
