"""Detection of messages that were recorded before, and that a broker delivers again."""

from __future__ import annotations

import contextlib
import heapq
import os
from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b

from stompcodec.capture import Capture, Segment
from stompcodec.client.dialects import BROKERS, BrokerDialect, lasting_identity
from stompcodec.codec import Frame
from stompcodec.errors import FrameError, StoreError
from stompcodec.spec import Limits

#: The default number of messages to remember, at about 0.1 kB each.
WINDOW = 1_000_000
#: Captured messages have passed the limits of their client, which may be any.
_ANY = Limits(max_headers=10_000, max_body=2**40)
_OURS = BROKERS["stompcodec"]


class Dedupe:
    """The last recorded messages.

    Two messages are the same if destination, id and body are equal: ids may repeat among brokers, or after a broker has
    lost its memory.

    Args:
        header: the header with the id; None for the lasting identity. A message without it is never a duplicate.
        window: the number of messages to remember.

    Raises:
        ValueError: `window` is below 1.

    >>> dedupe, frame = Dedupe(), Frame("MESSAGE", {"destination": "/queue/a", "message-id": "1"}, b"hello")
    >>> key = dedupe.key(frame)
    >>> dedupe.remember([key])
    >>> key in dedupe, dedupe.key(Frame("MESSAGE", {"destination": "/queue/a", "message-id": "1"}, b"bye")) in dedupe
    (True, False)
    """

    def __init__(self, header: str | None = None, window: int = WINDOW) -> None:
        if window < 1:
            raise ValueError(f"window is {window}: it must be 1 or more")
        self.header = header
        self.window = window
        self._order: deque[int] = deque()
        self._known: set[int] = set()
        self._secret = os.urandom(16)  # prevents messages that are made to have equal keys

    @classmethod
    def of(cls, text: str, window: int = WINDOW) -> Dedupe | None:
        """Return the Dedupe for an option's value, messageId (or message-id), header:NAME, or none; else raise
        ValueError.

        >>> Dedupe.of("header:uuid").header, Dedupe.of("none")
        ('uuid', None)
        """
        if text == "none":
            return None
        if text in ("message-id", "messageId"):
            return cls(None, window)
        if text.startswith("header:") and len(text) > len("header:"):
            return cls(text[len("header:") :], window)
        raise ValueError(f"{text!r}: use messageId, header:NAME or none")

    def recognizes(self, dialect: BrokerDialect) -> bool:
        """Return whether messages of a broker can have an id."""
        return self.header is not None or bool(dialect.lasting)

    def key(self, frame: Frame, dialect: BrokerDialect = _OURS) -> int | None:
        """Return a key that is equal for all deliveries of a message by a broker of a dialect; None without an id."""
        name = lasting_identity(dialect, frame.headers) if self.header is None else frame.get(self.header)
        if name is None:
            return None
        destination = frame.get("destination", "") or ""
        ids = (destination.encode("utf-8", "surrogateescape"), name.encode("utf-8", "surrogateescape"))
        digest = blake2b(b"%d %d " % (len(ids[0]), len(ids[1])), digest_size=16, key=self._secret)
        for part in (*ids, frame.body):
            digest.update(part)
        return int.from_bytes(digest.digest(), "little")

    def __contains__(self, key: int | None) -> bool:
        return key in self._known

    def __len__(self) -> int:
        return len(self._known)

    def remember(self, keys: Iterable[int]) -> None:
        """Remember the keys of recorded messages, and forget the oldest."""
        known, order = self._known, self._order
        for key in keys:
            if key not in known:
                known.add(key)
                order.append(key)
        while len(order) > self.window:
            known.discard(order.popleft())

    def load(self, capture: Capture, dialect: BrokerDialect = _OURS) -> int:
        """Remember the last messages of a capture of a broker, over all its chains; return their number.

        It reads the newest segments first, until there are enough.
        """
        waiting = [[each for each in capture.segments() if each.chain == chain] for chain in capture.chains()]
        newest: list[tuple[int, int, Segment]] = []

        def offer(number: int) -> None:
            if waiting[number]:
                segment = waiting[number].pop()
                heapq.heappush(newest, (-_time_of(capture, segment), number, segment))

        for number in range(len(waiting)):
            offer(number)
        found: list[tuple[int, int]] = []
        while newest:
            time, number, segment = heapq.heappop(newest)
            if len(found) >= self.window and found[0][0] > -time:
                break
            found = [*self._keys(capture, segment, -time, dialect), *found]
            found.sort(key=lambda pair: pair[0])  # stable: messages with equal times keep their order
            del found[: -self.window]
            offer(number)
        self.remember(key for _, key in found)
        return len(found)

    def _keys(self, capture: Capture, segment: Segment, last: int, dialect: BrokerDialect) -> Iterator[tuple[int, int]]:
        """Yield time and key of each message of a segment."""
        end = min((each.base for each in capture.segments(segment.chain) if each.base > segment.base), default=None)
        frames = capture.frames(segment.chain, segment.base, limits=_ANY, lenient=True)
        known = 0
        with contextlib.suppress(FrameError, StoreError):  # readers of the capture report damage
            for offset, time, frame in frames:
                if end is not None and offset >= end:
                    return
                known = max(known, time)
                key = self.key(frame, dialect)
                if key is not None:
                    yield known or last, key


def _time_of(capture: Capture, segment: Segment) -> int:
    """Return the time of a segment's last bytes in µs, by its index or else by its file."""
    time = 0
    with contextlib.suppress(StoreError, OSError):
        time = max((row.time for row in capture.rows(segment)), default=0)
        return time or int(segment.path.stat().st_mtime * 1e6)
    return time
