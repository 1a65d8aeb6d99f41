"""What a broker in a test does wrong when it is told to: to this frame, or to the next such frames."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stompcodec.codec import Frame
from stompcodec.testing.record import matches

__all__ = ["Fault", "FrameFaults"]

#: What a broker sends; all else comes from clients.
_OURS = frozenset({"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"})
#: Where several faults happen to one frame, in this order.
_ORDER = ("error", "change", "crlf", "duplicate", "lose", "delay", "cut")
#: What a change may be made to.
Change = Callable[[Frame], "Frame | bytes | None"]


@dataclass(eq=False)
class Fault:
    """What happens to certain frames. `FrameFaults` makes them."""

    action: str
    """error, change, crlf, duplicate, lose, delay or cut."""
    command: str
    """Of the frames that it may happen to; CONNECT stands for STOMP, too."""
    nth: int
    """The first of the matching frames that it happens to, counted from 1 when the fault was set."""
    times: int | None
    """To how many in a row; None for all from there on."""
    headers: Mapping[str, Any]
    """What matching frames have, see `matches`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    matched: int = 0
    """Frames that matched so far."""
    happened: int = 0
    """How often it has happened."""

    def is_due(self, frame: Frame) -> bool:
        """Whether it happens to this frame, which is counted."""
        command = "CONNECT" if frame.command == "STOMP" else frame.command
        if command != self.command or not matches(frame, self.headers):
            return False
        self.matched += 1
        if self.matched < self.nth or (self.times is not None and self.happened >= self.times):
            return False
        self.happened += 1
        return True


class FrameFaults:
    """The faults of a `StompBroker`: its attribute `faults`. Any thread may set them; they hold for frames to come.

    All methods that take a command take `nth` (the first matching frame that it happens to, from 1), `times` (to how
    many; None for all) and headers that matching frames have, as `StompBroker.expect` does. What they return tells how
    often it has `happened`.

    >>> faults = FrameFaults()
    >>> lost = faults.lose("RECEIPT", nth=2)
    >>> [len(faults.due(Frame("RECEIPT", {"receipt-id": "1"}))) for _ in range(3)], lost.happened
    ([0, 1, 0], 1)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self.silent = False
        """Send no heart-beats, as a peer that hangs."""

    def due(self, frame: Frame) -> list[Fault]:
        """The faults that happen to a frame."""
        with self._lock:
            due = [fault for fault in self._faults if fault.is_due(frame)]
        return sorted(due, key=lambda fault: _ORDER.index(fault.action))

    def clear(self) -> None:
        """Do everything right again."""
        with self._lock:
            self._faults.clear()
        self.silent = False

    def _set(self, action: str, command: str, nth: int, times: int | None, headers: Any, **options: Any) -> Fault:
        if nth < 1 or (times is not None and times < 1):
            raise ValueError(f"nth is {nth} and times {times}: both count from 1")
        fault = Fault(action, "CONNECT" if command == "STOMP" else command, nth, times, headers, options)
        with self._lock:
            self._faults.append(fault)
        return fault

    # ---- what may be set ----

    def refuse(self, message: str = "refused", *, nth: int = 1, times: int | None = None, **headers: Any) -> Fault:
        """Answer CONNECT by ERROR; every one, unless `times` says otherwise."""
        return self.error("CONNECT", message, nth=nth, times=times, **headers)

    def error(
        self, command: str, message: str = "a fault", *, nth: int = 1, times: int | None = 1, **headers: Any
    ) -> Fault:
        """Answer a client's frame by ERROR, and end the connection. The frame takes no effect.

        Raises:
            ValueError: it is not a client's frame.
        """
        _checked(command, "error", ours=False)
        return self._set("error", command, nth, times, headers, message=message)

    def lose(self, command: str, *, nth: int = 1, times: int | None = 1, **headers: Any) -> Fault:
        """A frame gets lost on its way: a client's takes no effect, the broker's is not sent."""
        return self._set("lose", command, nth, times, headers)

    def cut(
        self,
        command: str,
        *,
        octets: int = 0,
        after: bool = False,
        nth: int = 1,
        times: int | None = 1,
        **headers: Any,
    ) -> Fault:
        """Cut the connection at a frame.

        Args:
            octets: of a frame of the broker, so many are sent before.
            after: a client's frame takes effect before, but nothing of what the broker says to it is sent; a frame of
                the broker is sent whole.
        """
        if octets and (after or command not in _OURS):
            raise ValueError("octets is for frames that the broker sends, and not together with after")
        return self._set("cut", command, nth, times, headers, octets=octets, after=after)

    def duplicate(self, command: str, *, nth: int = 1, times: int | None = 1, **headers: Any) -> Fault:
        """A frame comes twice."""
        return self._set("duplicate", command, nth, times, headers)

    def delay(self, command: str, seconds: float, *, nth: int = 1, times: int | None = 1, **headers: Any) -> Fault:
        """Send a frame of the broker later, and all behind it: TCP keeps the order.

        Raises:
            ValueError: it is not a frame of the broker.
        """
        _checked(command, "delay", ours=True)
        return self._set("delay", command, nth, times, headers, seconds=seconds)

    def change(self, command: str, change: Change, *, nth: int = 1, times: int | None = 1, **headers: Any) -> Fault:
        """Put something else in the place of a frame.

        Args:
            change: called with the frame, in the broker's thread. It returns a frame, or None for none at all; in place
                of a frame of the broker also the octets that are to be sent, right or wrong.

        >>> def other_id(frame):
        ...     return Frame(frame.command, {**frame.headers, "ack": "no-such"}, frame.body)
        >>> FrameFaults().change("MESSAGE", other_id).happened
        0
        """
        return self._set("change", command, nth, times, headers, change=change)

    def crlf(self, command: str = "MESSAGE", *, nth: int = 1, times: int | None = None, **headers: Any) -> Fault:
        """End the lines of a broker's frame by CR LF, as 1.2 allows; of every one, unless `times` says otherwise."""
        _checked(command, "crlf", ours=True)
        return self._set("crlf", command, nth, times, headers)

    def repeat_headers(
        self, command: str = "MESSAGE", *, nth: int = 1, times: int | None = None, **headers: Any
    ) -> Fault:
        """Give every header of a frame a second entry, which does not count; of every frame by default."""
        return self.change(command, _with_repeated_headers, nth=nth, times=times, **headers)


def _checked(command: str, action: str, *, ours: bool) -> None:
    if (command in _OURS) is not ours:
        who = "the broker's" if ours else "clients'"
        raise ValueError(f"{action} is for {who} frames, and {command} is none")


def _with_repeated_headers(frame: Frame) -> Frame:
    pairs = list(frame.headers.pairs())
    more = [(name, "the second entry") for name, _ in pairs if name != "content-length"]
    return Frame(frame.command, [*pairs, *more], frame.body)
