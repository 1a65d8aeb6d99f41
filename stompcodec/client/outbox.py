"""The bounded queue of frames that wait for a connection, or for the transport to take more."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from stompcodec.client.bodies import Upload
from stompcodec.client.receipts import Call
from stompcodec.codec import Frame, parse, serialize
from stompcodec.errors import StompError
from stompcodec.spec import Limits

#: Roughly the bytes of a frame beside its body.
HEAD = 256
#: `Waiting.text` of a body that must stay text.
KEPT = "kept"
#: For reading back frames that we wrote: none is too large.
_OUR_OWN = Limits(max_header_line=2**20, max_headers=4000, max_body=2**62)


class OutboxFullError(StompError):
    """The outbox had no room in time. Nothing was sent.

    >>> raise OutboxFullError("the outbox is full: 10000 frames wait to be sent")
    Traceback (most recent call last):
        ...
    stompcodec.client.outbox.OutboxFullError: the outbox is full: 10000 frames wait to be sent
    """


@dataclass(eq=False, repr=False, slots=True)
class Block:
    """Many SEND frames as bytes, one after the other. They are written together, where the transport allows it."""

    command: ClassVar[str] = "SEND"
    body: bytes
    count: int
    version: str
    last: int = 0
    """The offset of the last frame, for `with_receipt`."""

    def with_receipt(self, receipt: str) -> Block:
        """Return a copy whose last frame asks for a receipt. The header comes first, since the first one counts."""
        command, rest = memoryview(self.body)[: self.last + 5], memoryview(self.body)[self.last + 5 :]
        octets = b"".join((command, b"receipt:%b\n" % receipt.encode(), rest))
        return Block(octets, self.count, self.version, self.last)

    def frames(self) -> list[Frame]:
        """Return the frames, read back."""
        return parse(self.body, self.version, limits=_OUR_OWN)

    def chunks(self, version: str | None, whole_frames: bool) -> list[bytes]:
        """Return the bytes for a connection, perhaps of another version; raise FrameError if that cannot carry them."""
        if version == self.version and not whole_frames:
            return [self.body]
        return [
            serialize(frame, version, content_length="never" if frame.get("content-length") is None else "auto")
            for frame in self.frames()
        ]


class Waiting(NamedTuple):
    """An entry of the outbox: a frame or a block."""

    frame: Frame | Block | Upload
    call: Call | None
    epoch: int
    """The number of the connection it is bound to, as acknowledgements and transactions are; 0 for any."""
    text: bool | str = False
    """Whether the body was given as text; KEPT to send it without content-length, whatever the broker."""


def _weight(frame: Frame | Block | Upload) -> tuple[int, int]:
    """Return the number of frames, and the bytes that they count for."""
    if isinstance(frame, Block):
        return frame.count, len(frame.body)
    return 1, len(frame.body) + HEAD


class Outbox:
    """A queue of frames that bounds their number and bytes.

    Frames that were passed to the connection count until the transport has taken them (`flushed`). Acknowledgements are
    never refused: their number is bounded by that of the messages.

    >>> outbox = Outbox(2, 10_000)
    >>> outbox.passed(Frame("SEND", {"destination": "/queue/a"}, b"hello"))
    >>> outbox.frames, outbox.octets, outbox.has_room(100), outbox.has_room(10_000)
    (1, 261, True, False)
    """

    def __init__(self, most_frames: int, most_octets: int) -> None:
        self._most_frames = most_frames
        self._most_octets = most_octets
        self.waiting: deque[Waiting] = deque()  # to be changed by these methods only
        self.frames = 0
        self.octets = 0
        self._passed_frames = 0
        self._passed_octets = 0

    def __len__(self) -> int:
        return len(self.waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self.waiting)

    @property
    def first(self) -> Waiting:
        """The entry that `pop` takes."""
        return self.waiting[0]

    @property
    def unsent(self) -> int:
        """The frames that the connection does not have yet."""
        return self.frames - self._passed_frames

    def has_room(self, octets: int, frames: int = 1) -> bool:
        """Return whether a body or block of this size may be added. Into an empty outbox any may."""
        return not self.frames or (
            self.frames + frames <= self._most_frames and self.octets + octets + HEAD <= self._most_octets
        )

    def is_half_empty(self) -> bool:
        """Return whether callers that wait for room may go on: many at once, not one per frame that was sent."""
        return self.frames * 2 <= self._most_frames and self.octets * 2 <= self._most_octets

    def passed(self, frame: Frame | Block) -> None:
        """Count a frame that went to the connection, until `flushed`."""
        count, size = _weight(frame)
        self.frames += count
        self.octets += size
        self._passed_frames += count
        self._passed_octets += size

    def pass_one(self, octets: int) -> bool:
        """Count a frame with a body of this size that goes to the connection, until `flushed`, if there is room."""
        frames, weight = self.frames, self.octets + octets + HEAD
        if frames and (frames >= self._most_frames or weight > self._most_octets):
            return False
        self.frames = frames + 1
        self.octets = weight
        self._passed_frames += 1
        self._passed_octets += octets + HEAD
        return True

    def flushed(self) -> None:
        """Stop counting passed frames: the transport has taken them."""
        self.frames -= self._passed_frames
        self.octets -= self._passed_octets
        self._passed_frames = self._passed_octets = 0

    def push(self, waiting: Waiting) -> None:
        """Append an entry."""
        self.waiting.append(waiting)
        self._count(waiting)

    def push_front(self, waiting: list[Waiting]) -> None:
        """Put entries before all others, in their order."""
        self.waiting.extendleft(reversed(waiting))
        for each in waiting:
            self._count(each)

    def pop(self) -> Waiting:
        """Take the first entry."""
        waiting = self.waiting.popleft()
        self._count(waiting, -1)
        return waiting

    def discard(self, everything: bool = False) -> list[Waiting]:
        """Take out entries that are bound to a connection, or all. The others keep their order."""
        waiting = [self.pop() for _ in range(len(self.waiting))]
        if everything:
            return waiting
        self.push_front([each for each in waiting if not each.epoch])
        return [each for each in waiting if each.epoch]

    def remove(self, item: Call | Upload) -> bool:
        """Take out the entry of a call, or an upload; return False if there is none."""
        for index, each in enumerate(self.waiting):
            if each.call is item or each.frame is item:
                del self.waiting[index]
                self._count(each, -1)
                return True
        return False

    def _count(self, waiting: Waiting, sign: int = 1) -> None:
        count, size = _weight(waiting.frame)
        self.frames += sign * count
        self.octets += sign * size
