"""A session of the broker that records its frames and applies faults."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from stompcodec.broker.sessions.session import Session
from stompcodec.codec import Frame, frame_ends, parse, serialize
from stompcodec.errors import FrameError
from stompcodec.spec import Limits
from stompcodec.testing.frame_faults import Fault, FrameFaults, with_crlf
from stompcodec.testing.record import Record, RecordedFrame

if TYPE_CHECKING:
    from stompcodec.broker.server import Clock
    from stompcodec.broker.sessions.host import Host

__tracebackhide__ = True  # pytest shows the test's line instead
#: Large enough for the broker's own frames, which are parsed to record them.
_LIMITS = Limits(max_header_line=2**20, max_headers=4000, max_body=2**62)


class Watch:
    """The link from the sessions of a `StompBroker` to its record and its faults."""

    def __init__(self, record: Record, clock: Clock, faults: FrameFaults) -> None:
        self.faults = faults
        self.real_start = 0.0
        self._record = record
        self._clock = clock
        #: The numbers of connections.
        self.numbers = itertools.count(1)
        self._start = 0.0
        self._errors: list[Exception] = []
        #: Note that a frame took effect, or that a session has ended.
        self.change = record.change
        #: Keep an error of a fault, which fails the test.
        self.failed = self._errors.append

    def begin(self) -> None:
        """Note a start. After a restart, time continues."""
        if not self.real_start:
            self._start, self.real_start = self._clock.monotonic(), time.monotonic()

    def end(self) -> None:
        """Raise the first error since the start, if there was one."""
        errors, self._errors[:] = self._errors[:], []
        if errors:
            raise errors[0]

    def note(self, number: int, direction: str, frame: Frame) -> None:
        self._record.add(RecordedFrame(self._clock.monotonic() - self._start, number, direction, frame))


class WatchedSession(Session):
    """A recorded session."""

    __slots__ = ("_closes", "_free", "_held", "_is_cut", "_number", "_watch")

    def __init__(self, watch: Watch, broker: Host, id: str, now: float, **options: Any) -> None:
        self._watch = watch
        self._number = next(watch.numbers)
        #: A delayed frame and the output after it; None if no frame is delayed.
        self._held: list[bytes] | None = None
        #: Output that was held, and is sent next.
        self._free: list[bytes] = []
        #: The end of the connection is held too.
        self._closes = False
        #: Later output is dropped.
        self._is_cut = False
        super().__init__(broker, id, now, **options)
        self.handlers = {command: partial(self.came, handler) for command, handler in self.handlers.items()}

    # ---- receiving ----
    def came(self, handler: Callable[[Session, Frame], None], _session: Session, frame: Frame) -> None:
        """Record a frame of the client, apply its faults and process it."""
        self._watch.note(self._number, "in", frame)
        frames, cut, said = [frame], False, len(self.outbox.chunks)
        for fault in self._watch.faults.due(frame):
            if fault.action == "error":
                self.fail(fault.options["message"], "A test asked for this.", frame)
                return
            cut = cut or fault.action == "cut"
            frames = [made for each in frames for made in self._made_of_theirs(fault, each)]
        for each in frames:
            if not self.ended:
                handler(self, each)
        if cut and not self.closing:  # output from before the frame is still sent, its own output is not
            self.end()
            del self.outbox.chunks[said:]
            self.closing = True
            self.outbox.schedule_flush()
        self._watch.change()

    def _made_of_theirs(self, fault: Fault, frame: Frame) -> list[Frame]:
        match fault.action:
            case "lose":
                return []
            case "duplicate":
                return [frame, frame]
            case "cut":
                return [frame] if fault.options["after"] else []
            case _:
                return [self._changed(fault, frame, Frame)]

    def _changed(self, fault: Fault, frame: Frame, *kinds: type) -> Any:
        try:
            changed = fault.options["change"](frame)
            if isinstance(changed, kinds):
                return changed
            names = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"change returned {changed!r:.60}: it must return {names}; lose drops a {frame.command}")
        except Exception as error:
            self._watch.failed(error)
            return frame

    def lost(self, now: float, error: BaseException | None = None) -> None:
        """End the session as Session does, and note it."""
        super().lost(now, error)
        self._watch.change()

    # ---- sending ----
    def take_output(self) -> list[bytes]:
        """Return the output after recording it and applying its faults."""
        data = b"".join(super().take_output())
        goes, self._free = self._free, []
        for part in _parts(data):
            made = [] if self._is_cut else self._goes(part)
            (goes if self._held is None else self._held).extend(made)
        if self._held is not None and self.closing and not self._is_cut:
            self._closes, self.closing = True, False
        return goes

    def _goes(self, octets: bytes) -> list[bytes]:
        faults = self._watch.faults
        if octets == b"\n":
            return [] if faults.silent else [octets]
        commands = self.broker.config.commands
        try:
            (frame,) = parse(octets, version=self.version or None, limits=_LIMITS, commands=commands)
        except ValueError:  # FrameError is one
            return [octets]
        self._watch.note(self._number, "out", frame)
        goes = [octets]
        for fault in faults.due(frame):
            if fault.action == "change":
                changed = self._changed(fault, frame, Frame, bytes)
                if isinstance(changed, bytes):
                    return [changed]
                frame, goes = changed, self._written(changed)
            else:
                goes = self._made_of_ours(fault, goes)
        return goes

    def _made_of_ours(self, fault: Fault, goes: list[bytes]) -> list[bytes]:
        options = fault.options
        match fault.action:
            case "lose":
                return []
            case "duplicate":
                return goes * 2
            case "cut":
                self._is_cut = self.closing = True
                return goes if options["after"] else [b"".join(goes)[: options["octets"]]]
            case "delay":
                if self._held is None:
                    self._held = []
                    asyncio.get_running_loop().call_later(options["seconds"], self._release)
                return goes
            case _:
                return [with_crlf(octets) for octets in goes]

    def _written(self, frame: Frame) -> list[bytes]:
        pairs = [pair for pair in frame.headers.pairs() if pair[0] != "content-length"]  # it is added for the new body
        length: Literal["never", "auto"] = "never" if frame.command == "ERROR" else "auto"
        whole = Frame(frame.command, pairs, frame.body)
        try:
            octets = serialize(whole, self.version or None, content_length=length, commands=self.broker.config.commands)
        except FrameError as error:
            self._watch.failed(error)
            return []
        return [octets + b"\n"]

    def _release(self) -> None:
        self._free, self._held = self._held or [], None
        self.closing = self.closing or self._closes
        self.outbox.schedule_flush()
        self.broker.wake()


def _parts(data: bytes) -> list[bytes]:
    """Split output into frames, each with the EOL after it, and heart-beats."""
    parts, at = [], 0
    for end in [*frame_ends(data, limits=_LIMITS), len(data)]:
        while at < end and data[at] == 10:
            parts.append(b"\n")
            at += 1
        if at < end:
            end += data[end : end + 1] == b"\n"
            parts.append(data[at:end])
            at = end
    return parts
