"""The carrier: it sends taken messages to the target, in order, until each has its outcome.

    unsent -- SEND --> sent -- RECEIPT --> outcomes (ACK at the source)
      ^                 |
      |                 +-- refused -----> outcomes (dead letter at the source)
      +--- lost --------+

Invariant: `sent` and then `unsent` hold the messages in the order in which they were taken. Messages that are
lost with a connection go back to the front of `unsent`, ahead of all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from stompcodec.bridge.headers import Hop
from stompcodec.bridge.sources import BridgeError
from stompcodec.client import AsyncClient, AsyncMessage, AsyncReceipt, RejectedError
from stompcodec.errors import FrameError, StompError

#: Destinations that are counted one by one.
_MOST = 1000
#: Counts those beyond that.
OTHERS = "_other"


class Tally:
    """Counts of a bridge's work so far.

    >>> tally = Tally()
    >>> tally.carry("/queue/a", 5)
    >>> tally.counts()["carried"], tally.counts()["destinations"]
    (1, {'/queue/a': 1})
    """

    def __init__(self) -> None:
        self.carried = 0
        """Messages that the target has confirmed."""
        self.octets = 0
        """The bytes of their bodies."""
        self.refused = 0
        """Messages that went to the dead letters of the source."""
        self.looped = 0
        """Copies that were not carried because of a loop: they came from the target."""
        self.again = 0
        """Messages that the source delivered again after they were carried; they were acknowledged at once."""
        self.resent = 0
        """Messages that were sent again after a lost connection."""
        self.left: int | None = None
        """Messages that are still at our broker after `Request.drain`: delayed, or held by others. None: not asked."""
        self.destinations: dict[str, int] = {}
        """Carried messages by destination of the source; `_other` for those beyond a thousand."""

    def carry(self, destination: str, octets: int) -> None:
        """Count a message that the target has."""
        self.carried += 1
        self.octets += octets
        by = self.destinations
        if destination not in by and len(by) >= _MOST:
            destination = OTHERS
        by[destination] = by.get(destination, 0) + 1

    def counts(self) -> dict[str, Any]:
        """Return all counts by name."""
        return {
            "carried": self.carried,
            "bytes": self.octets,
            "refused": self.refused,
            "looped": self.looped,
            "again": self.again,
            "resent": self.resent,
            "left": self.left,
            "destinations": dict(self.destinations),
        }


#: The most messages, and bytes, that are taken and have no outcome.
MOST_OPEN = 1000
MOST_OCTETS = 32 * 2**20
#: Seconds to wait for a receipt: a target that is full may take days. Heart-beats tell whether it is alive.
PATIENCE = math.inf
#: The number of connections that one message alone may end before it is refused: by an ERROR, or without one.
_ERRORS, _SILENT = 2, 5
#: The refusals that pass: the message is sent again, and later ones wait for it.
_PASSING = (
    *("shutting down", "disk is full", "could not be stored", "queue is full", "no room for large"),
    *("too many large messages", "could not be kept", "the session has ended"),
    *("resourceallocationexception", "usage manager", "memory limit", "address is full", "resource alarm"),
)


class Session(Protocol):
    """A connection to the source."""

    ended: bool


@dataclass(eq=False, slots=True)
class Entry:
    """A message on its way."""

    message: AsyncMessage
    session: Session
    """The connection to the source over which it came. A new delivery, over a later one, replaces both."""
    target: str
    key: str | None
    """The idempotency key, if another delivery would have the same one."""
    once: str
    """The idempotency key of this delivery, used if `key` is None."""
    attempts: int = 0
    sent: bool = False  # at least once

    @property
    def is_stale(self) -> bool:
        """True if the source will deliver the message again, because its session has ended before the ACK."""
        return self.message.subscription.explicit and self.session.ended

    @property
    def octets(self) -> int:
        """The bytes that count for the window."""
        return len(self.message.body) + 500


class Carrier:
    """The messages between both ends, with their order: `batch` in a transaction; 0 for none. `most_refused` refused
    messages in a row end the bridge. `on_outcome` is called with an entry, and why it was refused; None if the target
    has it; `on_drop` with an entry that the source will deliver again.
    """

    def __init__(
        self,
        tally: Tally,
        batch: int,
        most_refused: int,
        on_outcome: Callable[[Entry, str | None], object],
        on_drop: Callable[[Entry], object],
    ) -> None:
        self._tally = tally
        self._batch = batch
        self._most_refused = most_refused
        self._on_outcome = on_outcome
        self._on_drop = on_drop
        self.unsent: deque[Entry] = deque()
        self.sent: deque[tuple[Entry, AsyncReceipt]] = deque()
        self.octets = 0
        self._hop: Hop
        self._refused_in_row = 0
        self._careful = 0  # messages to be sent one by one, to find the one that ends the connection
        self._fruitless = 0  # connections that were lost without one receipt
        self._blamed = False  # this connection's ERROR named its message
        self._writing: set[Entry] = set()  # first of `unsent`, and perhaps on the wire
        self._changed = asyncio.Event(), asyncio.Event()  # for the writer, and for what waits for receipts
        self._waiting: deque[asyncio.Future[None]] = deque()  # for room

    @property
    def is_full(self) -> bool:
        """True if messages wait for room."""
        return bool(self._waiting)

    def __len__(self) -> int:
        return len(self.unsent) + len(self.sent)

    # ---- taking ----
    async def take(self, entry: Entry) -> None:
        """Put a message behind the others, once there is room."""
        while len(self) and not self._has_room(entry):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake_one()
                raise
        self.unsent.append(entry)
        self.octets += entry.octets
        self._note_change()
        self._wake_one()  # there may be room for a smaller one

    def _has_room(self, entry: Entry) -> bool:
        return len(self) < MOST_OPEN and self.octets + entry.octets <= MOST_OCTETS

    def _wake_one(self) -> None:
        """Have the next message that waits for room check again."""
        while len(self) < MOST_OPEN and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _note_change(self) -> None:
        for event in self._changed:
            event.set()

    def forget_stale(self) -> None:
        """Drop messages that are not being sent and that the source will deliver again.

        They are dropped all at once. If some were kept, their new deliveries would replace them where they are, ahead
        of the new deliveries of earlier messages that were dropped.
        """
        for entry in [entry for entry in self.unsent if entry.is_stale and entry not in self._writing]:
            self._drop(entry)

    # ---- sending ----
    async def run(self, client: AsyncClient, hop: Hop) -> None:
        """Send over one connection to the target until that is lost, and raise why; BridgeError: all is refused."""
        self._hop, self._blamed = hop, False
        confirmed = self._tally.carried
        tasks = [asyncio.create_task(self._write(client)), asyncio.create_task(self._confirm())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except BridgeError:
            raise
        except StompError as error:
            await _ended(tasks)
            await client.close(0.5)
            cause = client.error if isinstance(client.error, StompError) else error  # says more than "it is closed"
            await self._salvage(cause, self._tally.carried > confirmed)
            raise cause from None
        finally:
            await _ended(tasks)

    async def _write(self, client: AsyncClient) -> None:
        while True:
            while not self.unsent or (self._careful and self.sent):
                await _next(self._changed[0])
            if self._batch and not self._careful:
                await self._write_batch(client)
                continue
            entry = self.unsent[0]
            if entry.is_stale:
                self._drop(entry)
                continue
            self._begin([entry])
            try:
                receipt = await client.send_for_receipt(*self._content(entry), timeout=PATIENCE, resend=False)
            except (FrameError, TypeError) as error:
                self._refuse(entry, f"it cannot be written: {error}")
                continue
            self._writing.clear()
            self.unsent.popleft()
            self.sent.append((entry, receipt))
            self._note_change()

    async def _write_batch(self, client: AsyncClient) -> None:
        """Send the next messages in one transaction."""
        batch: list[Entry] = []
        for entry in list(self.unsent):
            if entry.is_stale:
                self._drop(entry)
            elif len(batch) < self._batch:
                batch.append(entry)
        if not batch:
            return
        self._begin(batch)
        try:
            async with client.transaction(timeout=PATIENCE) as transaction:
                for entry in batch:
                    await transaction.send(*self._content(entry))
        except (RejectedError, FrameError, TypeError) as error:
            self._careful = len(batch)  # one of them is the culprit
            if isinstance(error, RejectedError):
                raise
            self._writing.clear()
            return
        for entry in batch:
            self._deliver(entry)

    def _content(self, entry: Entry) -> tuple[str, bytes | str, list[tuple[str, str]]]:
        """Return destination, body and headers."""
        message = entry.message
        headers = self._hop.headers(message.headers.pairs(), entry.key or entry.once, time.time())
        return entry.target, self._hop.body(message.frame), headers

    def _begin(self, entries: list[Entry]) -> None:
        """Note that the first messages are being sent."""
        self._writing = set(entries)
        for entry in entries:
            self._tally.resent += entry.sent
            entry.sent = True

    async def _confirm(self) -> None:
        while True:
            while not self.sent:
                await _next(self._changed[1])
            entry, receipt = self.sent[0]
            try:
                await receipt.wait()
            except RejectedError as error:
                if is_passing(error):
                    raise
                self._blamed = True
                self._refuse(entry, reason_of(error))
            else:
                self._deliver(entry)

    # ---- outcomes ----
    def _remove(self, entry: Entry) -> None:
        if self.sent and self.sent[0][0] is entry:
            self.sent.popleft()
        else:
            self.unsent.remove(entry)
        self.octets -= entry.octets
        self._writing.discard(entry)
        self._careful = max(0, self._careful - 1)
        self._note_change()
        self._wake_one()

    def _drop(self, entry: Entry) -> None:
        self._remove(entry)
        self._on_drop(entry)

    def _deliver(self, entry: Entry) -> None:
        self._remove(entry)
        self._refused_in_row = 0
        self._tally.carry(entry.message.destination, len(entry.message.body))
        self._on_outcome(entry, None)

    def _refuse(self, entry: Entry, reason: str) -> None:
        self._remove(entry)
        self.refuse(entry, reason)

    def refuse(self, entry: Entry, reason: str) -> None:
        """Give an entry that has not been sent the outcome "refused"; BridgeError: too many in a row were refused."""
        self._refused_in_row += 1
        if self._refused_in_row > self._most_refused:
            raise BridgeError(
                f"{self._most_refused} messages in a row were refused, the last one because of: {reason} "
                "(the rest was left at the source)"
            )
        self._on_outcome(entry, reason)

    async def _salvage(self, error: StompError, progress: bool) -> None:
        """Find the outcomes of messages that were sent over a lost connection, and put the others back."""
        said = error_frame(error)
        alone = self._careful > 0
        again: list[Entry] = []
        for entry, receipt in list(self.sent):
            try:
                if not receipt.done:  # the client is closed: every call has its outcome
                    raise error
                await receipt.wait()
            except RejectedError as refusal:
                if is_passing(refusal):
                    again.append(entry)
                else:
                    self._blamed = True
                    self._refuse(entry, reason_of(refusal))
            except StompError:
                again.append(entry)
            else:
                self._deliver(entry)
                continue
            if self.sent and self.sent[0][0] is entry:
                self.sent.popleft()
        self.unsent.extendleft(reversed(again))
        self._writing.clear()
        self.forget_stale()
        again = [entry for entry in again if not entry.is_stale]
        tried = sum(entry.sent for entry in self.unsent)
        self._fruitless = 0 if progress or self._blamed else self._fruitless + bool(tried)
        if self._blamed or (said is not None and is_passing(said)):
            return
        if alone and again:
            self._suspect(again[0], said)
        elif said is not None or self._fruitless >= 2:
            self._careful = max(self._careful, tried)

    def _suspect(self, entry: Entry, said: RejectedError | None) -> None:
        """Refuse a message that has ended its connection several times, alone."""
        entry.attempts += 1
        if said is not None and entry.attempts >= _ERRORS:
            self._refuse(entry, reason_of(said))
        elif entry.attempts >= _SILENT:
            self._refuse(entry, f"the connection ended {entry.attempts} times when it was sent")


async def _next(event: asyncio.Event) -> None:
    event.clear()
    await event.wait()


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, StompError):
            await task


def error_frame(error: BaseException | None) -> RejectedError | None:
    """Return the ERROR frame that caused an error; None if there is none."""
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, RejectedError):
            return error
        error, seen = error.__cause__, seen + 1
    return None


def reason_of(error: RejectedError) -> str:
    """Return what the target said, as text for a header."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(error))
    return text[:500]


def is_passing(error: RejectedError) -> bool:
    """Return whether a refusal is about the state of the target, not about the message."""
    text = str(error).lower()
    return any(sign in text for sign in _PASSING)
