"""What waits in a client: calls for their outcome, and frames, blocks and uploads for a connection or room in it.

A call is accepted (`error` is None), rejected (RejectedError), or its outcome is unknown (ConnectionLostError,
ReceiptTimeoutError). Every call gets exactly one outcome. The outbox bounds the frames and bytes that wait.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import count
from typing import Any, ClassVar, NamedTuple

from stompcodec.client.bodies import PIECE, BodySourceError
from stompcodec.codec import Frame, parse, serialize
from stompcodec.errors import FrameError, StompError
from stompcodec.spec import Limits

_TIDY = 1024


def seconds_of(name: str, value: float) -> float:
    """Return a time in seconds as a float, `math.inf` for ever; ValueError: it is nan, or too large an integer."""
    if type(value) is float and value == value:
        return value
    given: Any = value
    if isinstance(given, str | bytes | bytearray) or not (hasattr(given, "__float__") or hasattr(given, "__index__")):
        raise TypeError(f"{name} is {given!r:.60}: it must be a number of seconds")
    try:
        seconds = float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large an integer: use math.inf for no limit") from None
    if math.isnan(seconds):
        raise ValueError(f"{name} is nan: it must be a number of seconds")
    return seconds


class Group:
    """Calls that keep an order: once one has failed, those that were not sent yet are not sent."""

    failed: Exception | None = None


@dataclass(eq=False, slots=True)
class Call:
    """A request that is waited for. The shell calls `wake`, under no lock, when it has its outcome.

    `what` names it in messages, as in "SEND to /queue/a". The timeout is in seconds from the time it is opened. With
    `resend` it is sent again if the connection is lost before its receipt.
    """

    what: str
    timeout: float
    command: str = ""
    _: KW_ONLY
    resend: bool = False
    id: str = ""
    deadline: float = 0.0
    done: bool = False
    error: Exception | None = None
    result: Any = None
    sent: bool = False  # its frame was passed to a connection, at least once
    frame: Any = None  # kept while it may be sent again
    group: Group | None = None
    needs_reply: bool = False
    asks: bool = True  # for a receipt, without which it is accepted once its frame is written
    subject: Any = None  # the subscription or transaction it is about
    after: Callable[[Call], object] | None = None  # called with the outcome, in the core
    wake: Callable[[], object] | None = None
    loop: Any = None  # the event loop in which it may be awaited
    read: Callable[[Call], object] | None = None  # called by a thread that waits for it; it may return without outcome

    @property
    def receipt(self) -> list[tuple[str, str]]:
        """The header that asks for its receipt, if it does."""
        return [("receipt", self.id)] if self.asks else []

    def __repr__(self) -> str:
        state = "waits" if not self.done else "accepted" if self.error is None else type(self.error).__name__
        return f"<Call {self.what}: {state}>"


#: The commands whose answers are waited for in any case: whoever offers PING and RECEIVE answers receipts.
ANSWERED = ("DISCONNECT", "PING", "RECEIVE")


class Calls:
    """The open calls, and the finished ones whose callers were not woken yet. `asks` is the option `receipts`."""

    def __init__(self, asks: bool = True) -> None:
        self._asks = asks
        self.answered: set[str] = set()  # the commands of calls that a RECEIPT has answered
        self.sent: dict[str, Call] = {}  # by receipt-id, in the order of sending: their frames went to the connection
        self.finished: list[Call] = []
        self.deadlines = Deadlines()
        self.read: Callable[[Call], object] | None = None  # that of all calls
        self._ids = count(1)

    def make(self, what: str, timeout: float, command: str = "", *, resend: bool = False) -> Call:
        """Return a new call with a unique id, not open yet. Any thread may call this."""
        asks = self._asks or command in ANSWERED
        call = Call(what, seconds_of("timeout", timeout), command, resend=resend, asks=asks)
        call.id, call.read = f"r{next(self._ids)}", self.read
        return call

    def open(self, call: Call, now: float) -> None:
        self.deadlines.add(call, now)

    def finish(self, call: Call, error: Exception | None = None, result: Any = None) -> bool:
        """Give a call its outcome; return False if it has one already."""
        if call.done:
            return False
        call.error, call.result, call.frame = error, result, None
        call.done = True  # after the outcome: other threads look at it without a lock
        self.sent.pop(call.id, None)
        self.finished.append(call)
        return True


class Deadlines:
    """The deadlines of calls, in one queue for each timeout: calls with the same timeout expire in their order."""

    def __init__(self) -> None:
        self._queues: dict[float, deque[Call]] = {}
        self.soonest = math.inf  # the first deadline that was added since the I/O thread last set this
        self._tidy_at: dict[float, int] = {}  # the length at which finished calls are removed

    def add(self, call: Call, now: float) -> None:
        call.deadline = now + call.timeout
        self.soonest = min(self.soonest, call.deadline)
        queue = self._queues.get(call.timeout)
        if queue is None:
            queue = self._queues[call.timeout] = deque()
        while queue and queue[0].done:
            queue.popleft()
        if len(queue) >= self._tidy_at.get(call.timeout, _TIDY):
            queue = self._queues[call.timeout] = deque(each for each in queue if not each.done)
            self._tidy_at[call.timeout] = max(_TIDY, 2 * len(queue))
        queue.append(call)

    def next(self) -> float | None:
        """Return the first deadline, in seconds; None without open calls."""
        first = None
        for timeout, queue in list(self._queues.items()):
            while queue and queue[0].done:
                queue.popleft()
            if not queue:
                del self._queues[timeout]
                self._tidy_at.pop(timeout, None)
            elif first is None or queue[0].deadline < first:
                first = queue[0].deadline
        return first

    def expired(self, now: float) -> Iterator[Call]:
        """Take out and yield the calls whose deadline has passed."""
        for queue in list(self._queues.values()):
            while queue and (queue[0].done or queue[0].deadline <= now):
                call = queue.popleft()
                if not call.done:
                    yield call


#: Roughly the bytes of a frame beside its body.
HEAD = 256
#: `Waiting.text` of a body that must stay text.
KEPT = "kept"
#: Bytes that are held back. In the middle of a body an EOL would belong to the body, so that one of these is sent when
#: a heart-beat is due.
_HELD_BACK = 64
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
        return parse(self.body, self.version, limits=_OUR_OWN)

    def chunks(self, version: str | None, whole_frames: bool) -> list[bytes]:
        """Return the bytes for a connection, perhaps of another version; raise FrameError if that cannot carry them."""
        if version == self.version and not whole_frames:
            return [self.body]
        return [
            serialize(frame, version, content_length="never" if frame.get("content-length") is None else "auto")
            for frame in self.frames()
        ]


@dataclass(eq=False, repr=False, slots=True)
class Upload:
    """A SEND with a body of `size` bytes. `call` waits for its receipt; None without one."""

    command: ClassVar[str] = "SEND"
    body: ClassVar[bytes] = b""  # for the outbox: only the head waits in memory
    what: str
    pairs: list[tuple[str, str]]
    size: int
    timeout: float
    call: Call | None = None
    state: str = "waiting"
    is_text: bool = False  # it is sent without content-length
    to_the_end: bool = True  # the caller waits for the receipt, too
    error: Exception | None = None  # why it is over
    at: int = 0  # bytes of the body that were handed over
    asked: Call | None = None  # the caller waits for this
    watch: Call | None = None  # bounds the time in which the next piece has to be given
    _held: bytes = b""

    def frame(self) -> Frame:
        """Return the frame without its body, for `on_frame`."""
        return Frame("SEND", self.pairs if self.is_text else [*self.pairs, ("content-length", str(self.size))])

    def head(self, version: str | None) -> bytes:
        """Return the bytes before the body; raise FrameError if this version cannot carry them."""
        if any(name == "content-length" for name, _ in self.pairs):
            raise FrameError("bad-content-length", detail="the length of a streamed body is not given as a header")
        octets = serialize(Frame("SEND", self.pairs), version or "1.2", content_length="never")
        return octets[:-1] if self.is_text else b"%bcontent-length:%d\n\n" % (octets[:-2], self.size)

    def wants(self, at: int) -> int:
        """Return how many bytes to read at an offset; 1 at the end, where there must not be any."""
        return min(PIECE, self.size - at) or 1

    def check(self, at: int, piece: bytes) -> None:
        """Raise BodySourceError if the source has ended too early, or not where it should."""
        if not piece and at < self.size:
            raise BodySourceError(f"{self.what}: the source gave {at} bytes, and {self.size} were announced")
        if piece and at >= self.size:
            raise BodySourceError(f"{self.what}: the source gave more than the {self.size} bytes that were announced")

    def restart(self) -> None:
        """Begin anew on the next connection."""
        self.state, self.at, self._held = "waiting", 0, b""
        self._unwatch()

    def take(self, piece: bytes) -> bytes:
        """Note the next piece of the body; return the bytes to send, which are held back a little."""
        self._unwatch()
        self.at += len(piece)
        octets = self._held + piece
        self._held = octets[-_HELD_BACK:]
        return octets[:-_HELD_BACK]

    def dribble(self) -> bytes:
        """Return a byte of the body as a sign of life; b"" if none is left."""
        byte, self._held = self._held[:1], self._held[1:]
        return byte

    def rest(self) -> bytes:
        """Return the bytes that were held back, at the end of the body."""
        self._unwatch()
        rest, self._held = self._held, b""
        return rest

    def over(self, error: Exception | None) -> None:
        """Note the outcome."""
        if self.state != "over":
            self.state, self.error, self._held = "over", error, b""
            self._unwatch()

    def _unwatch(self) -> None:
        if self.watch is not None:
            self.watch.done = True
            self.watch = None


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
