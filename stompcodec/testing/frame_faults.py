"""Faults of a test's broker, for certain frames."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import eq
from typing import Any

from stompcodec.arguments import checks
from stompcodec.codec import Frame
from stompcodec.spec import SERVER
from stompcodec.testing.record import check_frame, matches

__tracebackhide__ = True  # pytest shows the test's line instead
#: The order of several faults of one frame.
_ORDER = ("error", "change", "crlf", "duplicate", "lose", "delay", "cut")
#: A function for `FrameFaults.change`.
Change = Callable[[Frame], "Frame | bytes"]


@dataclass(eq=False)
class Fault:
    """A fault, made by the methods of `FrameFaults`.

    >>> FrameFaults().lose("RECEIPT").happened
    0
    """

    action: str
    """error, change, crlf, duplicate, lose, delay or cut."""
    command: str
    """The command of the frames; CONNECT includes STOMP."""
    nth: int
    """The first matching frame to apply it to, counted from 1 since the fault was set."""
    times: int | None
    """The number of frames to apply it to; None for all."""
    headers: Mapping[str, Any]
    """Headers of matching frames; see `stompcodec.testing.record.matches`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    matched: int = 0
    """Matching frames so far."""
    happened: int = 0
    """Frames that it was applied to so far."""

    def __str__(self) -> str:
        headers = "".join(f", {name}={value!r}" for name, value in self.headers.items())
        return f"{self.action}({self.command!r}, nth={self.nth}{headers}), after {self.matched} matching frames"

    def is_due(self, frame: Frame, same: Callable[[str, str], bool]) -> bool:
        """Count a frame, and return whether the fault applies to it."""
        command = "CONNECT" if frame.command == "STOMP" else frame.command
        if command != self.command or not matches(frame, self.headers, same):
            return False
        self.matched += 1
        if self.matched < self.nth or (self.times is not None and self.happened >= self.times):
            return False
        self.happened += 1
        return True


@checks("due")
class FrameFaults:
    """The faults of a `StompBroker`: its attribute `faults`. Any thread may set them; they apply to later frames.

    Methods with a command also take `nth` (the first matching frame to apply it to, from 1), `times` (the number of
    frames to apply it to; None for all) and headers of matching frames, as `StompBroker.expect` does. The returned
    `Fault` counts how often it has `happened`. What cannot happen is a ValueError.

    >>> faults = FrameFaults()
    >>> lost = faults.lose("RECEIPT", nth=2)
    >>> [len(faults.due(Frame("RECEIPT", {"receipt-id": "1"}))) for _ in range(3)], lost.happened
    ([0, 1, 0], 1)
    """

    __slots__ = ("_faults", "_kept", "_lock", "_same", "excused", "silent", "strict")

    def __init__(self, same: Callable[[str, str], bool] = eq) -> None:
        self._lock = threading.Lock()
        self._same = same
        self._faults: list[Fault] = []
        self._kept: tuple[list[Fault], bool] = ([], False)
        self.silent = False
        """True to send no heart-beats, like a peer that hangs."""
        self.strict = True
        """False if faults may stay without effect: else each one that never happens fails the test."""
        self.excused = False
        """True for the rest of a test that has failed, whose faults need not happen."""

    def due(self, frame: Frame) -> list[Fault]:
        """Return the faults that apply to a frame, in order."""
        with self._lock:
            due = [fault for fault in self._faults if fault.is_due(frame, self._same)]
        return sorted(due, key=lambda fault: _ORDER.index(fault.action))

    def clear(self) -> None:
        """Remove all faults, kept ones, too."""
        self._kept = [], False
        self.restore()

    def keep(self) -> None:
        """Keep the faults so far at the end of each test, until `clear`: those of a fixture for several tests."""
        with self._lock:
            self._kept = [*self._faults], self.silent

    def restore(self) -> None:
        """Remove all faults but kept ones, at the end of a test."""
        self.excused = False
        with self._lock:
            self._faults[:], self.silent = self._kept

    def check(self) -> None:
        """Raise AssertionError for faults that never happened, but for kept ones, and unless `strict` is False."""
        ours = [fault for fault in self._faults if fault not in self._kept[0]]
        unused = [str(fault) for fault in ours if self.strict and not self.excused and not fault.happened]
        if unused:
            raise AssertionError(f"a fault never happened (see FrameFaults.strict): {'; '.join(unused)}")

    def _set(self, action: str, command: str, nth: int, times: int | None, headers: Any, **options: Any) -> Fault:
        check_frame(command, headers)
        return self.add(Fault(action, "CONNECT" if command == "STOMP" else command, nth, times, headers, options))

    def add(self, fault: Fault) -> Fault:
        """Set a fault that was made by other means than the methods below."""
        if fault.nth < 1 or (fault.times is not None and fault.times < 1):
            raise ValueError(f"nth is {fault.nth} and times {fault.times}: both count from 1")
        with self._lock:
            self._faults.append(fault)
        return fault

    # ---- faults ----
    def refuse(self, message: str = "refused", *, nth: int = 1, times: int | None = None, **headers: Any) -> Fault:
        """Answer CONNECT with ERROR; by default each one."""
        return self.error("CONNECT", message, nth=nth, times=times, **headers)

    def error(
        self, command: str, message: str = "a fault", *, nth: int = 1, times: int | None = 1, **headers: Any
    ) -> Fault:
        """Answer a client's frame with ERROR, and end the connection. The frame has no effect."""
        _checked(command, "error", ours=False)
        return self._set("error", command, nth, times, headers, message=message)

    def lose(self, command: str, *, nth: int = 1, times: int | None = 1, **headers: Any) -> Fault:
        """Lose a frame: a client's has no effect, one of the broker is not sent."""
        return self._set("lose", command, nth, times, headers)

    def cut(
        self, command: str, *, octets: int = 0, after: bool = False, nth: int = 1, times: int | None = 1, **headers: Any
    ) -> Fault:
        """Cut the connection at a frame.

        Args:
            octets: for a frame of the broker: how many of its bytes are sent before.
            after: cut after the frame: a client's frame takes effect, but the broker's reply is not sent; a frame of
                the broker is sent whole.
        """
        if octets and (octets < 0 or after or command not in SERVER):
            raise ValueError(f"octets is {octets}: it counts bytes of frames that the broker sends, without after")
        return self._set("cut", command, nth, times, headers, octets=octets, after=after)

    def duplicate(self, command: str, *, nth: int = 1, times: int | None = 1, **headers: Any) -> Fault:
        """Duplicate a frame."""
        return self._set("duplicate", command, nth, times, headers)

    def delay(self, command: str, seconds: float, *, nth: int = 1, times: int | None = 1, **headers: Any) -> Fault:
        """Delay a frame of the broker and all later output, since TCP keeps the order."""
        _checked(command, "delay", ours=True)
        return self._set("delay", command, nth, times, headers, seconds=seconds)

    def change(self, command: str, change: Change, *, nth: int = 1, times: int | None = 1, **headers: Any) -> Fault:
        """Replace a frame.

        Args:
            change: called with the frame in the broker's thread. It returns a frame; for a frame of the broker also
                bytes, which are sent unchecked.

        >>> def other_id(frame):
        ...     return Frame(frame.command, {**frame.headers, "ack": "no-such"}, frame.body)
        >>> FrameFaults().change("MESSAGE", other_id).happened
        0
        """
        return self._set("change", command, nth, times, headers, change=change)

    def crlf(self, command: str = "MESSAGE", *, nth: int = 1, times: int | None = None, **headers: Any) -> Fault:
        """End the lines of a broker's frame with CR LF, as 1.2 allows; by default of each one."""
        _checked(command, "crlf", ours=True)
        return self._set("crlf", command, nth, times, headers)

    def repeat_headers(
        self, command: str = "MESSAGE", *, nth: int = 1, times: int | None = None, **headers: Any
    ) -> Fault:
        """Add a second entry, which does not count, for each header of a frame; by default of each one."""
        return self.change(command, with_repeated_headers, nth=nth, times=times, **headers)


def _checked(command: str, action: str, *, ours: bool) -> None:
    if (command in SERVER) is not ours:
        who = "the broker's" if ours else "clients'"
        raise ValueError(f"{action} is for {who} frames, and {command} is none")


def with_repeated_headers(frame: Frame) -> Frame:
    """Return a frame with a second entry for each header."""
    pairs = frame.headers.pairs()
    more = [(name, "the second entry") for name, _ in pairs if name != "content-length"]
    return Frame(frame.command, [*pairs, *more], frame.body)


def with_crlf(octets: bytes) -> bytes:
    """Return the bytes of a frame whose lines end with CR LF."""
    head, _, body = octets.partition(b"\n\n")
    return head.replace(b"\n", b"\r\n") + b"\r\n\r\n" + body
