"""Slices: what would take too long for one turn, where a queue has very many messages. Each turn does a part of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from stompcodec.broker.loop_quota import AT_ONCE, Line, Turns
from stompcodec.broker.queues.dispatcher import Contents
from stompcodec.broker.queues.faults import Undelivered

if TYPE_CHECKING:
    from stompcodec.broker.message import Message
    from stompcodec.broker.queues.backlog import Backlog, Fifo
    from stompcodec.broker.queues.dispatcher import Picking

__all__ = ["Divided", "forgetting", "put_back", "restoring", "sweeping"]

#: To look at a message takes a fifth of what it takes to deliver it.
_LOOKS = 5


class Divided(Contents, Protocol):
    """A queue, as what does its work by parts knows it."""

    #: When expired messages are looked for next, in seconds, and whether there may be any.
    swept: float
    expiring: bool

    @property
    def key(self) -> str:
        """How the store knows it."""

    @property
    def closed(self) -> bool: ...
    @property
    def messages(self) -> Fifo | Backlog:
        """READY."""

    @property
    def picking(self) -> Picking | None:
        """Not None where consumers differ."""

    @property
    def wall(self) -> Callable[[], float]:
        """The time in seconds since 1970."""

    def pick(self) -> Picking:
        """From now on consumers may differ."""

    def rank(self) -> None:
        """Expect messages of other priorities than most."""

    def put_back(self, messages: list[Message]) -> None:
        """Make messages READY again, each in its old place."""

    def take_seqs(self, seqs: set[int]) -> list[Message]:
        """Remove and return the READY messages with these seqs."""

    def add_ready(self, message: Message) -> None:
        """Take a message that nobody can have now."""

    def forget(self, messages: Iterable[Message]) -> None:
        """Take messages out of the store that nobody will get."""

    def go_on(self) -> None:
        """Deliver again."""


def put_back(queue: Divided, messages: list[Message]) -> None:
    """Make messages READY that were delivered in vain, each in its old place."""
    back = [message.again() for message in messages]
    if queue.journal is not None:
        for message in back:
            if message.persistent:
                queue.journal.update(queue.key, message)
    if any(message.group is not None or message.faults for message in back):
        queue.pick()
    if queue.picking is not None:
        for message in sorted(back, key=queue.picking.backlog.place):
            _put_back_one(queue, queue.picking, message)
    elif back:
        if any(message.priority != 4 for message in back):
            queue.rank()
        queue.put_back(back)


def _put_back_one(queue: Divided, picking: Picking, message: Message) -> None:
    if queue.is_expired(message):
        queue.expire(message)
        return
    try:
        consumer = picking.give(message)
    except Undelivered as failure:
        queue.keep_left(message, failure.message)
        return
    if consumer is None:
        queue.add_ready(message)
    elif not consumer.acks:
        queue.less(1, message.size)


def restoring(queue: Divided, messages: list[Message], turns: Turns) -> Iterator[Line]:
    """Put messages back, the last ones first, so that each has its place in front. The queue is parked meanwhile."""
    messages = sorted(messages, key=attrgetter("seq"))
    while messages:
        some = messages[-AT_ONCE:]
        del messages[-AT_ONCE:]
        if queue.closed:
            queue.forget(some)
        else:
            put_back(queue, some)
        if messages:
            yield turns
    queue.go_on()


def forgetting(queue: Divided, messages: list[Message], turns: Turns, done: Callable[[], object]) -> Iterator[Line]:
    """Take messages out of the store that nobody will get; then say that it is done."""
    while messages:
        some = messages[-AT_ONCE:]
        del messages[-AT_ONCE:]
        queue.forget(some)
        if messages:
            yield turns if queue.journal is None else queue.journal.line
    done()


def sweeping(queue: Divided, now: float, turns: Turns) -> Iterator[Line]:
    """Look for expired messages, then remove them."""
    messages, wall = deque(queue.messages), queue.wall()
    length, others = len(messages), False
    found: list[int] = []
    queue.swept, queue.expiring = inf, False  # from now on it says whether others have come
    while messages:
        for _ in range(min(_LOOKS * AT_ONCE, len(messages))):
            message = messages.popleft()
            if message.expires is not None:
                if message.expires <= wall:
                    found.append(message.seq)
                else:
                    others = True
        yield turns
    for at in range(0, len(found), AT_ONCE):
        for message in [] if queue.closed else queue.take_seqs(set(found[at : at + AT_ONCE])):
            queue.expire(message)
        yield turns if queue.journal is None else queue.journal.line
    queue.expiring = queue.expiring or others
    queue.swept = now + max(1.0, length * 1e-5)
