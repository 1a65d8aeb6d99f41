"""Walker: goes through the READY messages of a queue in the order of their seqs, to show them or to take them out.

It serves orders of managers, where a browser serves a subscription: it has no consumer, and nothing is sent.
"""

from __future__ import annotations

from functools import partial

from stompcodec.broker.loop_quota import Line, Waiter
from stompcodec.broker.memory import MESSAGE
from stompcodec.broker.message import Message
from stompcodec.broker.queues.backlog import WAIT, Wait
from stompcodec.broker.queues.dispatcher import Dispatcher
from stompcodec.broker.queues.queue import Queue


class Walker:
    """The READY messages of a queue with seqs above `seq`, up to `last`. Call `close` at the end.

    Messages that are in the store only are read some at a time. Others may take messages meanwhile: each one returned
    is READY at that moment.
    """

    __slots__ = (
        *("_dispatcher", "_from", "_gone", "_reading", "_shown", "_upto", "_waiters", "last", "page_cost", "seq"),
        "source",
    )

    def __init__(self, source: Queue, seq: int, last: int) -> None:
        self.source = source
        #: The seq of the last message that was returned.
        self.seq = seq
        self.last = last
        #: Bytes of memory that the page takes.
        self.page_cost = 0
        self._dispatcher: Dispatcher | None = None
        #: A page of messages in the store only: those with `_from` < seq <= `_upto`.
        self._shown: list[Message] = []
        self._from = self._upto = 0
        self._reading = False
        #: Messages that have left the queue since the page was asked for.
        self._gone: set[int] = set()
        self._waiters: list[Waiter] = []

    def next(self) -> Message | Wait | None:
        """Return the next READY message; `WAIT` if it must be read first, None after the last."""
        queue, seq = self.source, self.seq
        if queue.closed:
            return None
        message, paging = queue.messages.indexed().after_seq(seq), queue.paging
        while paging is not None:
            after = paging.first_after(seq)
            if after is None or after >= self.last or (message is not None and message.seq <= after + 1):
                break
            if not self._from <= after < self._upto:
                self.seq = seq
                self._read(after)
                return WAIT
            found = next((each for each in self._shown if each.seq > after and queue.is_paged(each)), None)
            if found is not None:
                message = found if message is None or found.seq < message.seq else message
                break
            seq = self._upto
        if message is None or message.seq > self.last:
            return None
        self.seq = message.seq
        return message

    def _read(self, after: int) -> None:
        if self._reading or self.source.paging is None:
            return
        if self._dispatcher is None:  # from now on it tells which messages are gone
            self._dispatcher = self.source.make_selective()
            self._dispatcher.browsers[self] = None
        self._reading = True
        self.source.paging.browse(after, partial(self._turn_over, after))

    def _turn_over(self, start: int, end: int, messages: list[Message]) -> None:
        self._reading = False
        messages = [message for message in messages if message.seq not in self._gone]
        if self._dispatcher is None:  # closed meanwhile
            start, end, messages = 0, 0, []
        self._gone = set()
        cost = sum(message.size + MESSAGE for message in messages)
        self.source.account.used += cost - self.page_cost
        self._from, self._upto, self._shown, self.page_cost = start, end, messages, cost
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if self.source.quota is not None:
                self.source.quota.line_up(waiter)

    def line_up(self, waiter: Waiter) -> None:
        """Have a waiter go on when the next page has been read."""
        if self._reading or self.source.quota is None:
            self._waiters.append(waiter)
        else:
            self.source.quota.line_up(waiter)

    @property
    def pages(self) -> Line:
        """The place to wait for the next page."""
        return self

    def note(self, message: Message) -> None:
        """Do nothing when a message becomes READY: it is found when its turn comes."""

    def forget(self, seqs: set[int]) -> None:
        """Drop the copies of messages that are gone, now or when they have been read."""
        self._shown = [message for message in self._shown if message.seq not in seqs]
        if self._reading:
            self._gone |= seqs

    def close(self) -> None:
        """End the walk. The queue delivers again what it can."""
        queue, dispatcher, self._dispatcher = self.source, self._dispatcher, None
        self._turn_over(0, 0, [])
        if dispatcher is not None:
            dispatcher.browsers.pop(self, None)
        if not queue.closed:
            queue.make_plain()
            queue.dispatch()
