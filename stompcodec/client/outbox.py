"""Frames that wait to be sent: while there is no connection, or while the transport takes no more. Bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from stompcodec.client.receipts import Call
from stompcodec.codec import Frame, parse, serialize
from stompcodec.errors import StompError
from stompcodec.spec import Limits

__all__ = ["Block", "Outbox", "OutboxFullError", "Waiting"]

#: What a frame takes beside its body, roughly.
_HEAD = 256
#: For reading back what we wrote: nothing of it is too large.
_OUR_OWN = Limits(max_header_line=2**20, max_headers=4000, max_body=2**62)


class OutboxFullError(StompError):
    """The outbox had no room, and got none within the time allowed. Nothing was sent."""


class Block:
    """Many SEND frames as octets, one after the other. They go out together, in one write where that is allowed.

    >>> block = Block(b"SEND\\ndestination:a\\n\\n\\0" * 2, 2, "1.2")
    >>> block.chunks("1.2", whole_frames=False) == [block.body], len(block.chunks("1.2", whole_frames=True))
    (True, 2)
    """

    __slots__ = ("body", "count", "last", "version")

    command = "SEND"

    def __init__(self, body: bytes, count: int, version: str, last: int = 0) -> None:
        self.body = body
        self.count = count
        self.version = version
        self.last = last
        """Where the last frame begins, if that matters."""

    def with_receipt(self, receipt: str) -> Block:
        """The same with a receipt header in the last frame. In front: the first of repeated headers counts.

        >>> Block(b"SEND\\ndestination:a\\n\\n\\0", 1, "1.2").with_receipt("r1").body
        b'SEND\\nreceipt:r1\\ndestination:a\\n\\n\\x00'
        """
        command, rest = memoryview(self.body)[: self.last + 5], memoryview(self.body)[self.last + 5 :]
        octets = b"".join((command, b"receipt:%b\n" % receipt.encode(), rest))
        return Block(octets, self.count, self.version, self.last)

    def frames(self) -> list[Frame]:
        """The frames, read back."""
        return parse(self.body, self.version, limits=_OUR_OWN)

    def chunks(self, version: str | None, whole_frames: bool) -> list[bytes]:
        """The octets for a connection, which may not be the one they were written for.

        Raises:
            FrameError: this version cannot carry them.
        """
        if version == self.version and not whole_frames:
            return [self.body]
        return [
            serialize(frame, version, content_length="never" if frame.get("content-length") is None else "auto")
            for frame in self.frames()
        ]


class Waiting(NamedTuple):
    """What waits in the outbox: a frame, or a block of them."""

    frame: Frame | Block
    call: Call | None
    epoch: int
    """The connection it belongs to; 0 for any. Acknowledgements and transactions belong to one."""
    text: bool = False
    """The body was given as text."""


def _weight(frame: Frame | Block) -> tuple[int, int]:
    """How many frames, and how many octets they count for."""
    if isinstance(frame, Block):
        return frame.count, len(frame.body)
    return 1, len(frame.body) + _HEAD


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

    def has_room(self, octets: int, frames: int = 1) -> bool:
        """Whether a frame with a body of so many octets may come, or a block. What is too large may come alone."""
        return not self.frames or (
            self.frames + frames <= self._most_frames and self.octets + octets + _HEAD <= self._most_octets
        )

    def is_half_empty(self) -> bool:
        """Whether those that wait for room may go on: all at once, not one for each frame that leaves."""
        return self.frames * 2 <= self._most_frames and self.octets * 2 <= self._most_octets

    def passed(self, frame: Frame | Block) -> None:
        """Count what went to the connection, until `flushed`."""
        count, size = _weight(frame)
        self.frames += count
        self.octets += size
        self._passed_frames += count
        self._passed_octets += size

    def flushed(self) -> None:
        """The transport has taken all that was passed."""
        self.frames -= self._passed_frames
        self.octets -= self._passed_octets
        self._passed_frames = self._passed_octets = 0

    def push(self, waiting: Waiting) -> None:
        """Put a frame at the end."""
        self._waiting.append(waiting)
        self._count(waiting)

    def push_front(self, waiting: list[Waiting]) -> None:
        """Put frames before all others, in their order."""
        self._waiting.extendleft(reversed(waiting))
        for each in waiting:
            self._count(each)

    def pop(self) -> Waiting:
        """Take the first frame out."""
        waiting = self._waiting.popleft()
        self._count(waiting, -1)
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
                self._count(each, -1)
                return True
        return False

    def _count(self, waiting: Waiting, sign: int = 1) -> None:
        count, size = _weight(waiting.frame)
        self.frames += sign * count
        self.octets += sign * size
