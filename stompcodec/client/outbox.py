"""Frames that wait to be sent: while there is no connection, or while the transport takes no more. Bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from stompcodec.client.receipts import Call
from stompcodec.codec import Frame
from stompcodec.errors import StompError

__all__ = ["Outbox", "OutboxFullError", "Waiting"]

#: What a frame takes beside its body, roughly.
_HEAD = 256


class OutboxFullError(StompError):
    """The outbox had no room, and got none within the time allowed. Nothing was sent."""


class Waiting(NamedTuple):
    """A frame in the outbox."""

    frame: Frame
    call: Call | None
    epoch: int
    """The connection it belongs to; 0 for any. Acknowledgements and transactions belong to one."""
    text: bool = False
    """The body was given as text."""


class Outbox:
    """A queue of frames with bounds on their number and octets.

    Frames handed to the connection count too until the transport has taken them (`flushed`). Acknowledgements are
    never refused: there are only as many as messages came.

    >>> outbox = Outbox(2, 10_000)
    >>> outbox.passed(Frame("SEND", {"destination": "/queue/a"}, b"hello"))
    >>> outbox.frames, outbox.octets, outbox.has_room(100), outbox.has_room(10_000)
    (1, 261, True, False)
    """

    def __init__(self, most_frames: int, most_octets: int) -> None:
        self._most_frames = most_frames
        self._most_octets = most_octets
        self._waiting: deque[Waiting] = deque()
        self.frames = 0
        self.octets = 0
        self._passed_frames = 0
        self._passed_octets = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._waiting)

    def has_room(self, octets: int) -> bool:
        """Whether a frame with a body of so many octets may come. One that is too large alone may come alone."""
        return not self.frames or (
            self.frames < self._most_frames and self.octets + octets + _HEAD <= self._most_octets
        )

    def is_half_empty(self) -> bool:
        """Whether those that wait for room may go on: all at once, not one for each frame that leaves."""
        return self.frames * 2 <= self._most_frames and self.octets * 2 <= self._most_octets

    def passed(self, frame: Frame) -> None:
        """Count a frame that went to the connection, until `flushed`."""
        size = len(frame.body) + _HEAD
        self.frames += 1
        self.octets += size
        self._passed_frames += 1
        self._passed_octets += size

    def flushed(self) -> None:
        """The transport has taken all that was passed."""
        self.frames -= self._passed_frames
        self.octets -= self._passed_octets
        self._passed_frames = self._passed_octets = 0

    def push(self, waiting: Waiting) -> None:
        """Put a frame at the end."""
        self._waiting.append(waiting)
        self.frames += 1
        self.octets += len(waiting.frame.body) + _HEAD

    def push_front(self, waiting: list[Waiting]) -> None:
        """Put frames before all others, in their order."""
        self._waiting.extendleft(reversed(waiting))
        self.frames += len(waiting)
        self.octets += sum(len(each.frame.body) + _HEAD for each in waiting)

    def pop(self) -> Waiting:
        """Take the first frame out."""
        waiting = self._waiting.popleft()
        self.frames -= 1
        self.octets -= len(waiting.frame.body) + _HEAD
        return waiting

    def discard(self, everything: bool = False) -> list[Waiting]:
        """Take out what belongs to one connection, or everything. The rest keeps its order."""
        waiting = [self.pop() for _ in range(len(self._waiting))]
        if everything:
            return waiting
        self.push_front([each for each in waiting if not each.epoch])
        return [each for each in waiting if each.epoch]

    def remove(self, call: Call) -> bool:
        """Take out the frame of a call; False where it does not wait here."""
        for index, each in enumerate(self._waiting):
            if each.call is call:
                del self._waiting[index]
                self.frames -= 1
                self.octets -= len(each.frame.body) + _HEAD
                return True
        return False
