"""The orders, as generators like the questions: each yields where it waits, and returns the answer.

A purge or a move takes out some messages in each turn. Where messages are stored, a share takes effect like a
transaction: store and queues change after its commit, or not at all. So a crash neither loses nor doubles a message.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stompcodec.broker.core import Broker
from stompcodec.broker.loop_quota import Line, Waiter
from stompcodec.broker.management.questions import Walker, durable_named, is_wanted, queue_named, selector_of, seq_of
from stompcodec.broker.management.schema import Asker, BadRequest
from stompcodec.broker.memory import MESSAGE
from stompcodec.broker.message import OF_DURABLE, RETURNS, SPOOLED, STRAYS, WITHOUT, Message, reload_schedule
from stompcodec.broker.queues.backlog import Wait
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.dead_letters import SAYS
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.values import Refused
from stompcodec.codec import Frame, serialize_tail

Target = Queue | Topic


class Letter(NamedTuple):
    """A message on its way to another queue or topic."""

    message: Message
    target: Target
    mark: bytes | None = None
    """The mark of a dead letter that stays one."""


#: Makes the letter of a message. None removes it; a text says why the order has to end there; False leaves it.
LetterOf = Callable[[Message], Letter | str | bool | None]


class _Taken(NamedTuple):
    """A message that has left READY, what becomes of it, and the queues that store that."""

    message: Message
    letter: Letter | None
    stored_in: Sequence[Queue]


class Share:
    """The messages of an order, some at a time. A taken one counts in its queue until the commit; else it returns."""

    def __init__(self, broker: Broker, queue: Queue) -> None:
        self._broker = broker
        self._queue = queue
        self._taken: list[Message] = []
        self._letters: list[Letter | None] = []
        #: Messages that were taken, and those that are done for good.
        self.taken = self.done = 0
        #: Messages that stay, because they cannot go to where they came from, or that is not known.
        self.skipped = 0
        #: Why the order cannot go on.
        self.stopped: str | None = None
        #: A commit has failed.
        self.failed = False
        #: Some of the messages are stored.
        self.is_stored = False
        #: Shares that wait for their commit.
        self.open = 0
        self._waiters: list[Waiter] = []
        #: Messages on their way to each queue or topic.
        self._coming: Counter[Target] = Counter()

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, message: Message, letter_of: LetterOf, goes_back: bool = False) -> bool:
        """Take out a READY message. Return whether it was. One that `goes_back` is skipped if its target is full."""
        letter = letter_of(message)
        if isinstance(letter, str):
            self.stopped = letter
            return False
        if letter is False or letter is True:
            self.skipped += 1
            return False
        if letter is not None and not self._has_room(letter.target):
            if goes_back:
                self.skipped += 1
                return False
            self.stopped = f"{letter.target.name} is full"
            return False
        if not self._queue.take_out(message):
            return False
        if letter is not None:
            self._coming[letter.target] += 1
        self._taken.append(message)
        self._letters.append(letter)
        self.taken += 1
        return True

    def _has_room(self, target: Target) -> bool:
        if isinstance(target, Topic):
            return True
        more = self._coming[target] + 1
        return target.count + more <= target.bound.messages and target.total + more <= target.bound.total

    def apply(self) -> None:
        """Let the taken messages take effect: after the commit if some of them are stored, otherwise at once."""
        if not self._taken:
            return
        messages, self._taken = self._taken, []
        letters, self._letters = self._letters, []
        journal = self._broker.journal
        store, first, cost = journal.store, None, 0
        taken: list[_Taken] = []
        is_stored = False
        for message, letter in zip(messages, letters):
            stored_in: Sequence[Queue] = ()
            if letter is not None:
                self._broker.place(letter.message)
                letter.message.mark_as(letter.mark)
                first = letter.message.seq if first is None else first
                cost += letter.message.size + MESSAGE
                stored_in = letter.target.stores(letter.message) if store is not None else ()
                for each in stored_in:
                    assert store is not None
                    store.append(each.key, letter.message)
            if store is not None and message.persistent and self._queue.journal is not None:
                store.remove(self._queue.key, message)
                is_stored = True
            is_stored = is_stored or bool(stored_in)
            taken.append(_Taken(message, letter, stored_in))
        if not is_stored:
            self._take_effect(taken, True)
            return
        self.is_stored = True
        self.open += 1
        batch = journal.batch
        batch.actions.append(lambda committed: self._committed(taken, committed))
        journal.charge(batch, cost)
        if first is not None:
            batch.first = first if batch.first is None else min(first, batch.first)
        self._broker.wake()

    def _committed(self, taken: list[_Taken], committed: bool) -> None:
        self.open -= 1
        self._take_effect(taken, committed)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self._broker.quota.line_up(waiter)

    def line_up(self, waiter: Waiter) -> None:
        self._waiters.append(waiter)

    def _take_effect(self, taken: list[_Taken], committed: bool) -> None:
        queue = self._queue
        if not committed:
            self.failed = True
            for message, _, _ in taken:
                queue.requeue_failed(message, message)
            if not queue.closed:
                queue.dispatch()
            return
        for _, letter, stored_in in taken:
            if letter is not None:
                self._put(letter, stored_in)
        queue.settle([(0, message) for message, _, _ in taken], stored=True)
        self.done += len(taken)

    def _put(self, letter: Letter, stored_in: Sequence[Queue]) -> None:
        self._coming[letter.target] -= 1
        target, message = letter.target, letter.message
        target.put(message, True)
        for each in stored_in:
            if each.closed:  # it ended in the meantime
                each.unstore((message,))
        if isinstance(target, Queue) and target.messages.is_disordered:
            self._broker.journal.late(target, message.seq)


class Place(NamedTuple):
    """Where messages are moved to."""

    target: Target
    destination: str
    """The header `destination` of the messages there."""


def place_for(asker: Asker, name: str) -> Place:
    """Return the place of a name, whose queue is made if need be. Raise BadRequest if it cannot be."""
    durable = durable_named(asker, name)
    if durable is not None and name not in asker.host.queues:
        return Place(durable.queue, durable.address.name)
    return _made_for(asker, name)


def _made_for(asker: Asker, name: str, routing: str | None = None) -> Place:
    """Return the place that a SEND of the broker would go to. `routing` is its header destination-type."""
    host = asker.host
    queue = host.queues.get(name)
    if queue is not None:
        return Place(queue, name)
    try:
        if host.naming.is_temporary(name):
            raise Refused("no such destination", "It is a temporary one that does not exist.")
        address = host.destinations.addresses.find(name, routing, False)
        target = host.destinations.made(address)
    except Refused as error:
        raise BadRequest("to", f"{error.message}: {error.remedy}") from None
    if target is None:
        raise BadRequest("to", "it is a topic without subscriptions, so the messages would be lost")
    return Place(target, address.name)


def letter_for(
    broker: Broker, asker: Asker, queue: Queue, place: Place | None, message: Message
) -> Letter | str | bool:
    """Return the letter of a message; False if its origin is unknown or full, a text if the place takes no more."""
    found = _origin_of(asker, queue, message) if place is None else place
    if found is None:
        return False
    if message.persistent and broker.journal.short:
        return "the disk is nearly full"
    why_not = _refusal(found.target)
    if why_not is not None:
        return False if place is None else why_not
    if place is None:
        return Letter(_anew(message, found.destination, SAYS[:-1]), found.target)
    keeps = message.mark == RETURNS and isinstance(found.target, Queue)
    return Letter(_anew(message, found.destination, ()), found.target, RETURNS if keeps else None)


def _refusal(target: Target) -> str | None:
    if isinstance(target, Queue) and target.closed:
        return f"{target.name} was deleted"
    if isinstance(target, Topic) and not (target.consumers or target.durables):
        return f"{target.name} has no subscriptions any more"
    if target.full and isinstance(target, Topic):
        target.full = _is_full(target)  # it is as the latest message left it, and its subscribers go on
    if target.full or (isinstance(target, Queue) and target.refuses):
        return f"{target.name} is full"
    return None


def _is_full(topic: Topic) -> bool:
    own = (each.queue for each in topic.consumers if isinstance(each.queue, Queue))
    return any(queue.full for queue in (*own, *(durable.queue for durable in topic.durables)))


def _origin_of(asker: Asker, queue: Queue, message: Message) -> Place | None:
    """Return the place that a dead letter came from, as the broker says; None if that is unknown or not a queue."""
    name, mark = message.origin, message.mark
    if name is None or mark == STRAYS:
        return None
    if mark == OF_DURABLE:
        durable = durable_named(asker, asker.host.naming.of_letters(queue.name) or "")
        return None if durable is None else Place(durable.queue, name)
    try:
        found = _made_for(asker, name, message.frame.get("destination-type"))
    except BadRequest:
        return None
    return found if isinstance(found.target, Queue) and found.target is not queue else None


def _anew(message: Message, destination: str, without: Sequence[str]) -> Message:
    """Return a message for another place, with the same body, headers and time to live. It has not failed there yet."""
    frame = message.frame
    gone = {*WITHOUT, *without, "destination"}
    pairs = [pair for pair in frame.headers.pairs() if pair[0] not in gone]
    tail = serialize_tail(Frame("MESSAGE", [("destination", destination), *pairs], frame.body), "1.2")
    fresh = message.anew(destination, tail)
    fresh.expires = message.expires
    if fresh.persistent == SPOOLED:
        fresh.persistent = False
    return reload_schedule(fresh)


#: Messages that one turn takes out, or looks at.
_TAKEN_AT_ONCE, _LOOKS_AT_ONCE = 50, 500
Answering = Generator[Line, None, dict[str, Any]]


class _AfterCommit(NamedTuple):
    """The place to wait until what has been done is stored."""

    broker: Broker

    def line_up(self, waiter: Waiter) -> None:
        """Have a waiter go on after the commit of all that was done; in the next turn if nothing is to be stored."""
        journal, quota = self.broker.journal, self.broker.quota
        batch = journal.batch if journal.store is not None and journal.store.pending else journal.busy
        if batch is None:
            quota.line_up(waiter)
            return

        def go_on(committed: bool) -> None:
            quota.line_up(waiter)

        batch.actions.append(go_on)
        self.broker.wake()


class _Backup:
    """A backup that is made in a thread of its own, and the place to wait for it."""

    def __init__(self, broker: Broker, make: Callable[[], int]) -> None:
        self._broker, self._waiters = broker, list[Waiter]()
        #: The bytes of the database, or why it has failed; None while it goes on.
        self.result: int | str | None = None
        threading.Thread(target=self._run, args=(make,), name="stompcodec-backup", daemon=True).start()

    def _run(self, make: Callable[[], int]) -> None:
        try:
            self.result = make()
        except Exception as error:
            self.result = str(error)
        if self._broker.call_soon is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._broker.call_soon(self._end)

    def _end(self) -> None:
        for waiter in self._waiters:
            self._broker.quota.line_up(waiter)
        self._broker.wake()

    def line_up(self, waiter: Waiter) -> None:
        self._waiters.append(waiter)


class Orders:
    """The orders to one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._backup: _Backup | None = None

    # ---- messages ----
    def purge(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        queue = queue_named(asker, fields["destination"])
        share = Share(self._broker, queue)
        yield from self._take(share, queue, fields, lambda message: None)
        self._check(share)
        return {"destination": queue.name, "messages": share.done}

    def move(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        queue, to = queue_named(asker, fields["destination"]), fields["to"]
        place = None if to is None else place_for(asker, to)
        if place is not None and place.target is queue:
            raise BadRequest("to", "it is the queue itself")
        share = Share(self._broker, queue)
        letter_of = partial(letter_for, self._broker, asker, queue, place)
        yield from self._take(share, queue, fields, letter_of, place is None)
        self._check(share)
        return {"destination": queue.name, "messages": share.done, "skipped": share.skipped, "stopped": share.stopped}

    def _check(self, share: Share) -> None:
        if share.failed:
            raise BadRequest(
                "destination",
                f"the store has failed: {share.done} messages were done, the others stay. See the broker's log",
            )

    def _take(
        self, share: Share, queue: Queue, fields: dict[str, Any], letter_of: LetterOf, goes_back: bool = False
    ) -> Generator[Line, None, None]:
        """Take out the messages that an order is about, and wait until all of it is stored."""
        selector, message_id, quota = selector_of(fields["selector"]), fields["message_id"], self._broker.quota
        seq, left = seq_of(message_id), fields["limit"]
        upto = self._broker.seq if seq is None else seq
        walker = Walker(queue, -1 if seq is None else seq - 1, upto)
        looked = 0
        try:
            while (left is None or left > 0) and not share.stopped and not share.failed:
                message = walker.next()
                if message is None:
                    break
                if isinstance(message, Wait):
                    share.apply()
                    yield walker.pages
                    continue
                looked += 1
                if is_wanted(message, selector, message_id) and not queue.is_expired(message):
                    taken = share.take(message, letter_of, goes_back)
                    left = None if left is None else left - taken
                if len(share) >= _TAKEN_AT_ONCE or looked >= _LOOKS_AT_ONCE:
                    looked = 0
                    share.apply()
                    yield self._broker.journal.line if share.is_stored else quota
            share.apply()
        finally:
            share.apply()
            walker.close()
        if message_id is not None and not share.taken:
            raise BadRequest("message_id", "no ready message of this queue has it")
        while share.open:
            yield share

    # ---- destinations ----
    def delete(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        name, destinations = fields["destination"], asker.host.destinations
        topic, queue = asker.host.topics.get(name), asker.host.queues.get(name)
        durable = durable_named(asker, name)
        if queue is None and durable is None and topic is not None:
            if not destinations.delete_topic(name):
                raise BadRequest("destination", "it has subscriptions: end or close them first")
            return {"destination": name, "messages": 0}
        found = queue_named(asker, name)
        if found.members:
            raise BadRequest("destination", f"it has {len(found.members)} consumers: end or close them first")
        if destinations.naming.is_temporary(name) or name in destinations.owners:
            raise BadRequest("destination", "it ends with its session")
        total, ended = found.total, threading.Event()
        if durable is None or queue is not None:
            goes_on = destinations.delete(name, ended.set)
        else:
            goes_on = destinations.durables.delete(durable, ended.set)
        while goes_on and not ended.is_set():
            yield self._broker.quota
        for _ in range(2):  # a commit may leave removals to the next one
            yield _AfterCommit(self._broker)
        return {"destination": name, "messages": total}

    def pause(self, asker: Asker, fields: dict[str, Any]) -> dict[str, Any]:
        queue = queue_named(asker, fields["destination"])
        return {"destination": queue.name, "changed": queue.pause(True)}

    def resume(self, asker: Asker, fields: dict[str, Any]) -> dict[str, Any]:
        queue = queue_named(asker, fields["destination"])
        return {"destination": queue.name, "changed": queue.pause(False)}

    # ---- the rest ----
    def backup(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        store, to = self._broker.journal.store, Path(fields["to"])
        if store is None:
            raise BadRequest("to", "the broker has no data folder")
        if not to.is_absolute():
            raise BadRequest("to", "it must be an absolute path")
        if self._backup is not None and self._backup.result is None:
            raise BadRequest("to", "another backup is being made")
        self._backup = backup = _Backup(self._broker, partial(store.backup, to))
        while backup.result is None:
            yield backup
        if isinstance(backup.result, str):
            raise BadRequest("to", backup.result)
        return {"to": str(to), "bytes": backup.result}

    def close(self, asker: Asker, fields: dict[str, Any]) -> dict[str, Any]:
        session = self._broker.sessions.get(fields["session"])
        if session is None or session.ended or not session.version or session.virtual_host is not asker.host:
            raise BadRequest("session", "there is no session with this id")
        if session.id == asker.session:
            raise BadRequest("session", "it is the session that sends this order: disconnect it instead")
        session.fail("the session was closed by a manager", "Ask the operator of the broker why.")
        return {"session": session.id}

    def log_level(self, asker: Asker, fields: dict[str, Any]) -> dict[str, Any]:
        log, level = self._broker.log, fields["level"]
        before = logging.getLevelName(log.getEffectiveLevel()).lower()
        log.setLevel(level.upper())
        orders = logging.getLogger("stompcodec.broker.management")
        orders.setLevel(logging.WARNING if level == "error" else logging.NOTSET)  # orders are logged in any case
        return {"level": level, "before": before}
