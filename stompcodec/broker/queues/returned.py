"""Returned messages: those that are requeued, at once or after a pause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Protocol

from stompcodec.broker.loop_quota import AT_ONCE, Line, LoopQuota, Work
from stompcodec.broker.message import Message
from stompcodec.broker.queues.dispatcher import Contents, Dispatcher
from stompcodec.broker.queues.faults import Undelivered
from stompcodec.broker.queues.ready_messages import ReadyMessages


class Home(Contents, Protocol):
    """A queue, as its returned messages see it. `Queue` says what each member means."""

    @property
    def closed(self) -> bool: ...
    @property
    def dispatcher(self) -> Dispatcher | None: ...
    @property
    def key(self) -> str: ...
    @property
    def messages(self) -> ReadyMessages: ...
    def add_ready(self, message: Message) -> None: ...
    def dispatch(self) -> int: ...
    def go_on(self) -> None: ...
    def make_selective(self) -> Dispatcher: ...
    def suspend(self) -> None: ...
    def unstore(self, messages: Iterable[Message]) -> None: ...


class Returned:
    """The returned messages of one queue."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        #: Messages that wait for their next attempt, by seq.
        self.held: dict[int, Message] = {}

    def requeue(self, queue: Home, messages: list[Message]) -> None:
        """Requeue UNACKED messages in their old places, many of them a share in each turn."""
        if queue.closed:
            queue.unstore(messages)
        elif len(messages) > AT_ONCE and queue.quota is not None:
            queue.suspend()
            queue.quota.line_up(Work(self._requeuing(queue, messages, queue.quota)))
        else:
            self._requeue(queue, messages)
            queue.dispatch()

    def _requeuing(self, queue: Home, messages: list[Message], quota: LoopQuota) -> Iterator[Line]:
        """Requeue the last messages first, so that each has its place in front. The queue is parked meanwhile."""
        messages = sorted(messages, key=attrgetter("seq"))
        while messages:
            some = messages[-AT_ONCE:]
            del messages[-AT_ONCE:]
            if queue.closed:
                queue.unstore(some)
            else:
                self._requeue(queue, some)
            if messages:
                yield quota
        queue.go_on()

    def hold(self, queue: Home, messages: list[Message]) -> list[Message]:
        """Take back UNACKED messages that wait for their next attempt, and return them as they will be delivered."""
        back = _again(queue, messages)
        self.held.update((message.seq, message) for message in back)
        return back

    def resume(self, queue: Home, seqs: list[int]) -> None:
        """Make messages READY whose time for the next attempt has come, if they are still there."""
        back = [self.held.pop(seq) for seq in seqs if seq in self.held]
        if back:
            self._put_back(queue, back)
            queue.dispatch()

    def _requeue(self, queue: Home, messages: list[Message]) -> None:
        self._put_back(queue, _again(queue, messages))

    def _put_back(self, queue: Home, back: list[Message]) -> None:
        if any(message.group is not None or message.faults for message in back):
            queue.make_selective()
        dispatcher = queue.dispatcher
        if dispatcher is not None:
            for message in sorted(back, key=dispatcher.backlog.place):
                self._requeue_one(queue, dispatcher, message)
        elif back:
            queue.messages.put_back(back)

    def _requeue_one(self, queue: Home, dispatcher: Dispatcher, message: Message) -> None:
        if queue.is_expired(message):
            queue.expire(message)
            return
        try:
            consumer = dispatcher.give(message)
        except Undelivered as failure:
            queue.requeue_failed(message, failure.message)
            return
        if consumer is None:
            queue.add_ready(message)
        elif not consumer.acks:
            queue.tally.count_sent()
            queue.count_out(1, message.size)


def _again(queue: Home, messages: list[Message]) -> list[Message]:
    """Count an attempt of each message."""
    back = [message.again() for message in messages]
    queue.tally.redelivered += len(back)
    if queue.journal is not None:
        for message in back:
            if message.persistent:
                queue.journal.update(queue.key, message)
    return back
