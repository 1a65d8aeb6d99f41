"""Walker: goes through the READY messages of a queue in the order of their seqs, to show them or to take them out.

It serves orders of managers, where a browser serves a subscription: it has no consumer, and nothing is sent.
"""

from __future__ import annotations

from stompcodec.broker.loop_quota import Line
from stompcodec.broker.message import Message
from stompcodec.broker.queues.backlog import Wait
from stompcodec.broker.queues.browser import Copies
from stompcodec.broker.queues.dispatcher import Dispatcher
from stompcodec.broker.queues.queue import Queue


class Walker:
    """The READY messages of a queue with seqs above `seq`, up to `last`. Call `close` at the end.

    Messages that are in the store only are read some at a time. Others may take messages meanwhile: each one returned
    is READY at that moment.
    """

    __slots__ = ("_copies", "_dispatcher", "last", "seq", "source")

    def __init__(self, source: Queue, seq: int, last: int) -> None:
        self.source = source
        #: The seq of the last message that was returned.
        self.seq = seq
        self.last = last
        self._dispatcher: Dispatcher | None = None
        #: Those that are in the store only.
        self._copies = Copies(source, lambda _waiters: None)

    def next(self) -> Message | Wait | None:
        """Return the next READY message; `WAIT` if it must be read first, None after the last."""
        queue = self.source
        if queue.closed:
            return None
        message = self._copies.next(self.seq, self.last, queue.messages.indexed().after_seq(self.seq))
        if isinstance(message, Wait):
            self.seq = self._copies.start
            self._watch()
            return message
        if message is None or message.seq > self.last:
            return None
        self.seq = message.seq
        return message

    def _watch(self) -> None:
        """Have the dispatcher tell from now on which messages are gone."""
        if self._dispatcher is None:
            self._dispatcher = self.source.make_selective()
            self._dispatcher.browsers[self] = None

    @property
    def pages(self) -> Line:
        """The place to wait for the next page."""
        return self._copies

    @property
    def page_cost(self) -> int:
        """Bytes of memory that its page takes."""
        return self._copies.cost

    def note(self, message: Message) -> None:
        """Do nothing when a message becomes READY: it is found when its turn comes."""

    def forget(self, seqs: set[int]) -> None:
        """Drop the copies of messages that are gone."""
        self._copies.forget(seqs)

    def close(self) -> None:
        """End the walk. The queue delivers again what it can."""
        queue, dispatcher = self.source, self._dispatcher
        self._copies.close()
        if dispatcher is not None:
            dispatcher.browsers.pop(self, None)
        if not queue.closed:
            queue.make_plain()
            queue.dispatch()
