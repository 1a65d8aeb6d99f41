"""Dead letters: messages that could not be processed, in their dead letter queues, with the reason in headers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping

from stompcodec.broker.config import Config
from stompcodec.broker.connections import Maker
from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.memory import DELAY, Account
from stompcodec.broker.message import DELAYS, OF_DURABLE, RETURNS, STRAYS, WITHOUT, Message
from stompcodec.broker.queues.consumer import Delivery, Source
from stompcodec.broker.queues.dispatcher import UNDELIVERABLE
from stompcodec.broker.queues.queue import EXPIRED, Queue
from stompcodec.broker.routing.addresses import Addresses, Naming
from stompcodec.broker.settings import Kind
from stompcodec.broker.values import Refused
from stompcodec.codec import Frame, serialize_tail

#: When a message may be delivered again, a unique number, its queue and its seq.
_Entry = tuple[float, int, Queue, int]


class Retries:
    """The messages of a broker that wait for their next attempt, at most `most`: further ones do not wait.

    They are in the `held` of their queues. The pause is not stored: after a restart they are READY.
    """

    __slots__ = ("_account", "_heap", "_most", "_new", "_now", "_number")

    def __init__(self, account: Account, now: Callable[[], float], most: int) -> None:
        self._account, self._now, self._most = account, now, most
        self._heap: list[_Entry] = []
        #: Seconds, queue and seq of those whose pause begins at the end of this turn: only then is the time known.
        self._new: list[tuple[float, Queue, int]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._heap) + len(self._new)

    @property
    def next(self) -> float | None:
        """The time at which the first of them may be delivered; None without any. To be asked after each turn."""
        for seconds, queue, seq in self._new:
            self._number += 1
            heapq.heappush(self._heap, (self._now() + seconds, self._number, queue, seq))
        self._new.clear()
        return self._heap[0][0] if self._heap else None

    def hold(self, queue: Queue, messages: list[Message], seconds: float) -> None:
        """Requeue messages after a number of seconds."""
        if seconds > 0 and len(self) + len(messages) > self._most:
            # Forget those whose queue has ended.
            before = len(self)
            self._new = [entry for entry in self._new if entry[2] in entry[1].returned.held]
            self._heap = [entry for entry in self._heap if entry[3] in entry[2].returned.held]
            heapq.heapify(self._heap)
            self._account.used -= DELAY * (before - len(self))
        if seconds <= 0 or queue.closed or len(self) + len(messages) > self._most:
            queue.requeue(messages)
            return
        self._account.used += DELAY * len(messages)
        self._new += [(seconds, queue, message.seq) for message in queue.returned.hold(queue, messages)]

    def release(self, now: float) -> None:
        """Requeue those whose time has come."""
        due: dict[Queue, list[int]] = {}
        for _ in range(AT_ONCE):  # the rest at the next call
            if not self._heap or self._heap[0][0] > now:
                break
            _, _, queue, seq = heapq.heappop(self._heap)
            self._account.used -= DELAY
            due.setdefault(queue, []).append(seq)
        for queue, seqs in due.items():
            queue.returned.resume(queue, seqs)


#: The reasons for a NACK: it was the last attempt, or asked for no more. `queue.py` has others.
MAX_ATTEMPTS, REJECTED = "max-attempts", "rejected"
#: The headers that a dead letter gets, instead of those of an earlier dead letter.
SAYS = (
    *("dead-letter-reason", "original-destination", "original-message-id", "dead-letter-attempts", "dead-letter-time"),
    "dead-letter-first-time",
)
#: Headers that must not take effect a second time.
_OVER = ("destination", "expires", "expiration", "deliver-at", *DELAYS)


class DeadLetters:
    """The dead letters of a virtual host.

    `queue_of` returns the queue of a name, created for a maker if need be, or raises Refused; `queues` are those that
    there are. `place` gives a message its message-id and its place in the order. `hold` requeues messages after a
    number of seconds.
    """

    __slots__ = ("_addresses", "_burying", "_config", "_hold", "_naming", "_place", "_queue_of", "_queues", "_wall")

    def __init__(
        self,
        config: Config,
        naming: Naming,
        addresses: Addresses,
        queues: Mapping[str, Queue],
        queue_of: Callable[[str, Maker | None], Queue],
        place: Callable[[Message], None],
        wall: Callable[[], float],
        hold: Callable[[Queue, list[Message], float], None],
    ) -> None:
        self._config = config
        self._naming = naming
        self._addresses = addresses
        self._queues = queues
        self._queue_of = queue_of
        self._place = place
        self._wall = wall
        self._hold = hold
        self._burying = False

    def reject(
        self, queue: Source, deliveries: list[Delivery], requeue: bool = True, pause: float | None = None
    ) -> None:
        """Requeue messages after a NACK, or make dead letters of them: after the last attempt, or without `requeue`.

        The consumer asks for `pause` seconds before the next attempt; None for what the configuration says.
        """
        back = []
        for _tag, message in deliveries:
            is_last = message.attempts + 1 >= self._config.max_attempts
            if (is_last or not requeue) and self.bury(queue, message, REJECTED if not requeue else MAX_ATTEMPTS):
                queue.settle([(0, message)])
            else:
                back.append(message)
        if isinstance(queue, Queue):
            self._retry(queue, back, pause)
        else:
            queue.requeue(back)

    def _retry(self, queue: Queue, messages: list[Message], pause: float | None) -> None:
        """Requeue messages after their pauses: those of one length together, so that they come back in order."""
        pauses = self._addresses.setting(queue.name).redelivery_delay or self._config.redelivery_delay
        lengths: dict[float, list[Message]] = {}
        for message in messages:
            seconds = pauses.after(message.attempts + 1) if pause is None else pause
            lengths.setdefault(seconds, []).append(message)
        for seconds, some in lengths.items():
            self._hold(queue, some, seconds)

    def spent(self, queue: Source, messages: list[Message]) -> list[Message]:
        """Make dead letters of messages whose last attempt this was, and return the others."""
        last = [message for message in messages if message.attempts + 1 >= self._config.max_attempts]
        buried = [message for message in last if self.bury(queue, message, MAX_ATTEMPTS)]
        for message in buried:
            queue.settle([(0, message)])
        return [message for message in messages if message not in buried]

    def give_back(self, queue: Source, messages: list[Message], culprit: Message | None) -> None:
        """Requeue messages that are spared: an attempt, perhaps the last one, of the message at fault only."""
        at_fault = [message for message in messages if message is culprit]
        for message in at_fault:
            if message.attempts + 1 >= self._config.max_attempts and self.bury(queue, message, MAX_ATTEMPTS):
                queue.settle([(0, message)])
                messages = [each for each in messages if each is not message]
        queue.requeue([each if each in at_fault else each.spared() for each in messages])

    def drop(self, queue: Queue, message: Message, reason: str) -> bool:
        """Make a dead letter of a message that a queue drops, if the configuration or the queue asks for it.

        A message that expires after a failed delivery is UNDELIVERABLE. Return False without a dead letter.
        """
        if reason == EXPIRED and message.faults:
            reason = UNDELIVERABLE
        kept = reason == UNDELIVERABLE or (self._config.dead_letter_expired and reason == EXPIRED)
        if (kept or (queue.arguments is not None and queue.arguments.dead_letter_queue)) and not queue.closed:
            return self.bury(queue, message, reason)
        return False

    def bury(self, queue: Source, message: Message, reason: str) -> bool:
        """Put a dead letter made of a message into the dead letter queue.

        Return False if the queue is full, or the message is a dead letter already. Then a message that was refused by
        NACK stays in its queue, and an expired one is dropped. Where the dialect keeps no letter of it, it is dropped.
        """
        name, letters = self._naming.dead_letter(queue.name), self._config.letters
        if queue.arguments is not None and queue.arguments.dead_letter_queue is not None:
            name = self._config.queue_prefixes[0] + queue.arguments.dead_letter_queue
        elif letters == "none" or (letters == "persistent" and message.frame.get("persistent") != "true"):
            return True
        if name == queue.name:
            return False
        try:
            target = self._queue_of(name, queue.maker)
        except Refused:
            return False
        if target.full or self._burying:  # a loop of dead letter queues drops it
            return False
        origin, mark = self._origin(queue, message)
        letter = message.anew(name, self._tail(name, message, reason, origin))
        self._place(letter)
        letter.mark_as(mark)
        self._burying = True
        try:
            target.put(letter)
            queue.tally.dead += 1
            if queue.journal is not None:
                queue.journal.move(queue, message, target, letter)
        finally:
            self._burying = False
        return True

    def _origin(self, queue: Source, message: Message) -> tuple[str, bytes]:
        """Return where a message came from, for its dead letter, and the mark of that."""
        if queue.journal is None:
            return message.destination, STRAYS
        if self._queues.get(queue.name) is not queue:
            return message.destination, OF_DURABLE
        routing = message.frame.get("destination-type")  # the letter keeps it
        for name in (queue.name, message.destination):
            if self._leads_to(name, routing, queue.name):
                return name, RETURNS
        return message.destination, STRAYS

    def _leads_to(self, name: str, routing: str | None, queue: str) -> bool:
        if self._config.composite and "," in name:
            return False
        try:
            address = self._addresses.find(name, routing, False)
        except Refused:
            return False
        return address.kind is Kind.QUEUE and address.name == queue and not address.found

    def _tail(self, name: str, message: Message, reason: str, origin: str) -> bytes:
        frame, now = message.frame, str(int(self._wall() * 1000))
        attempts = message.attempts + (reason in (MAX_ATTEMPTS, REJECTED))
        first = frame.get("dead-letter-first-time") or now
        says = zip(SAYS, (reason, origin, message.id, str(attempts), now, first))
        gone = {*WITHOUT, *SAYS, *_OVER}
        others = [pair for pair in frame.headers.pairs() if pair[0] not in gone]
        return serialize_tail(Frame("MESSAGE", [("destination", name), *says, *others], frame.body), "1.2")
