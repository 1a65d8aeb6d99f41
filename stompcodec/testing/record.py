"""The record of frames on the wire, in both directions, and waiting for expected ones."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import eq
from typing import Any

from stompcodec.arguments import check_values, checks, meant
from stompcodec.codec import Frame
from stompcodec.frame import Headers
from stompcodec.spec import CLIENT_1_1, SERVER

__tracebackhide__ = True  # pytest shows the test's line instead
#: The most frames that an error shows.
_SHOWN = 20
_COMMANDS = {*CLIENT_1_1, *SERVER, "PING", "PONG", "RECEIVE", "EMPTY"}
#: The headers of frames that the broker makes alone; others may have any.
_HEADERS = {
    "CONNECTED": "commands heart-beat server session version",
    "ERROR": "content-length content-type message receipt-id version",
    "RECEIPT": "receipt-id",
}


@dataclass(eq=False)
class RecordedFrame:
    """A frame on the wire, recorded by a test's broker.

    >>> seen = RecordedFrame(0.25, 1, "in", Frame("SEND", {"destination": "/queue/a"}, b"hi"))
    >>> seen
      0.250 s  1 > SEND destination='/queue/a' body=2 bytes b'hi'
    >>> seen.command, seen.headers["destination"], seen.body
    ('SEND', '/queue/a', b'hi')
    """

    at: float
    """The time in seconds since the broker was started, by its clock."""
    connection: int
    """The number of the connection, counted from 1."""
    direction: str
    """"in": to the broker; "out": from it."""
    frame: Frame
    is_taken: bool = field(default=False, repr=False)
    """True if `expect` has returned it."""

    @property
    def command(self) -> str:
        """The command of the frame."""
        return self.frame.command

    @property
    def headers(self) -> Headers:
        """The headers of the frame."""
        return self.frame.headers

    @property
    def body(self) -> bytes:
        """The body of the frame."""
        return self.frame.body

    def get(self, name: str) -> str | None:
        """Return the first value of a header, or None."""
        return self.frame.get(name)

    def text(self) -> str:
        """Return the body as text; see `Frame.text`."""
        return self.frame.text()

    def __repr__(self) -> str:
        shown = repr(self.frame)[len("<Frame ") : -1]  # secrets are masked, long things cut
        return f"{self.at:7.3f} s {self.connection:2} {'>' if self.direction == 'in' else '<'} {shown}"


def check_frame(command: str, headers: Mapping[str, Any]) -> None:
    """Raise ValueError if no frame can be of this command, or have these headers and it; TypeError for a wrong body."""
    if "body" in headers:
        check_values(bytes | str | re.Pattern | Callable | None, body=headers["body"])
    if command not in _COMMANDS:
        hint = meant(command, _COMMANDS)
        raise ValueError(f"unknown command {command!r:.60}" + (f": did you mean {hint}?" if hint else ""))
    known = _HEADERS.get(command, "").split()
    for name in headers:
        if known and name != "body" and name.replace("_", "-") not in known:
            raise ValueError(f"a {command} has no header {name!r:.60}, only {', '.join(known)}")


def matches(frame: Frame, headers: Mapping[str, Any], same: Callable[[str, str], bool] = eq) -> bool:
    """Return whether a frame has certain headers, and `body`. In a name "_" may stand for "-".

    A value is a text, bytes, a compiled pattern to search for, a function that returns whether the frame's value is
    right, or None for a header that must be absent. `same` compares destinations.
    """
    for name, wanted in headers.items():
        value: Any = frame.get(name)
        if name == "body":
            is_text = isinstance(getattr(wanted, "pattern", wanted), str)
            value = frame.body.decode(errors="replace") if is_text else frame.body
        elif value is None:
            value = frame.get(name.replace("_", "-"))
        if value is None or wanted is None:
            right = value is wanted
        elif callable(wanted) or isinstance(wanted, re.Pattern):
            right = bool((wanted.search if isinstance(wanted, re.Pattern) else wanted)(value))
        elif name == "destination":
            right = same(value, str(wanted))
        else:
            right = value == (wanted if name == "body" else str(wanted))
        if not right:
            return False
    return True


@checks()
class Record:
    """The recorded frames. Any thread may call its methods.

    Args:
        keep: the number of frames to keep; older ones are dropped.
        same: tells whether two names are of one destination.

    >>> record = Record(keep=100)
    >>> record.add(RecordedFrame(0.0, 1, "in", Frame("SEND", {"destination": "/queue/a"})))
    >>> record.expect("SEND", {"destination": "/queue/a"}, timeout=1.0).connection
    1
    """

    def __init__(self, keep: int, same: Callable[[str, str], bool] = eq) -> None:
        self._same = same
        self._frames: deque[RecordedFrame] = deque(maxlen=keep)
        self._changed = threading.Condition()
        self._total = 0
        """All frames so far, including dropped ones."""
        self.version = 0
        """A number that grows with each event."""

    def frames(self) -> list[RecordedFrame]:
        """Return the recorded frames, in order."""
        with self._changed:
            return list(self._frames)

    def add(self, seen: RecordedFrame) -> None:
        """Record a frame."""
        with self._changed:
            self._frames.append(seen)
            self._total += 1
        self.change()

    def change(self) -> None:
        """Note an event, and wake waiting threads."""
        with self._changed:
            self.version += 1
            self._changed.notify_all()

    def wait(self, version: int, timeout: float) -> bool:
        """Wait for an event after a version. Return False after `timeout` seconds without one."""
        with self._changed:
            return self._changed.wait_for(lambda: self.version != version, min(timeout, threading.TIMEOUT_MAX))

    def clear(self) -> None:
        """Drop all recorded frames."""
        with self._changed:
            self._frames.clear()

    def expect(self, command: str, headers: Mapping[str, Any], *, timeout: float) -> RecordedFrame:
        """Return the first matching frame that was not returned before, as `StompBroker.expect` does."""
        seen = self._await(command, headers, timeout)
        if seen is None:
            near = self._near(command, headers)
            raise AssertionError(f"no {_wanted(command, headers)} within {timeout:g} s; {near}{self.expectations()}")
        seen.is_taken = True
        return seen

    def expect_none(self, command: str, headers: Mapping[str, Any], *, timeout: float) -> None:
        """Wait, and raise AssertionError as soon as there is a frame that `expect` would return."""
        seen = self._await(command, headers, timeout)
        if seen is not None:
            raise AssertionError(f"{_wanted(command, headers)} was not expected: {seen!r}; {self.expectations()}")

    def _await(self, command: str, headers: Mapping[str, Any], timeout: float) -> RecordedFrame | None:
        check_frame(command, headers)
        until = time.monotonic() + timeout
        looked = 0
        while True:
            with self._changed:
                version, total = self.version, self._total
                found = self._find(total - looked, command, headers)
                looked = total
                if found is not None:
                    return found
            left = until - time.monotonic()
            if left <= 0 or not self.wait(version, left):
                return None

    def _find(self, newest: int, command: str, headers: Mapping[str, Any]) -> RecordedFrame | None:
        """Return the first match among the newest frames."""
        found = None
        for seen in itertools.islice(reversed(self._frames), newest):
            if seen.frame.command == command and not seen.is_taken and matches(seen.frame, headers, self._same):
                found = seen
        return found

    def _near(self, command: str, headers: Mapping[str, Any]) -> str:
        """Return where the body of a frame with the right headers begins to differ; "" without such a frame."""
        body, others = headers.get("body"), {name: headers[name] for name in headers if name != "body"}
        wanted = body.encode() if isinstance(body, str) else body
        if not isinstance(wanted, bytes):
            return ""
        with self._changed:
            if (seen := self._find(len(self._frames), command, others)) is None:
                return ""
        least = min(len(wanted), len(seen.body))
        at = next((each for each in range(least) if wanted[each] != seen.body[each]), least)
        near = slice(max(0, at - 20), at + 20)
        return f"the body of one differs at byte {at}: {seen.body[near]!r}, not {wanted[near]!r}; "

    def expectations(self) -> str:
        """Return the last frames as text for an error, with those that a test has expected marked."""
        frames = self.frames()
        if not frames:
            return "no frames were recorded"
        head = f"the last {_SHOWN} of {len(frames)} frames" if len(frames) > _SHOWN else "the recorded frames"
        return "\n".join([f"{head} (> to the broker, < from it):", *lines(frames[-_SHOWN:])])


def _wanted(command: str, headers: Mapping[str, Any]) -> str:
    return " ".join([command, *(f"{name}={value!r}" for name, value in headers.items())])


def lines(frames: Iterable[RecordedFrame]) -> list[str]:
    """Return a line for each frame, with those that a test has expected marked."""
    return [f"{seen!r}{'  [expected]' if seen.is_taken else ''}" for seen in frames]
