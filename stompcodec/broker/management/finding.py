"""Find the queues, messages and conditions that the fields of a request name."""

from __future__ import annotations

from stompcodec.broker.loop_quota import Line
from stompcodec.broker.management.schema import Asker, BadRequest
from stompcodec.broker.message import Message
from stompcodec.broker.queues.backlog import Wait
from stompcodec.broker.queues.browser import Copies
from stompcodec.broker.queues.dispatcher import Dispatcher
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.durable import Durable
from stompcodec.broker.selectors.selector import Selector


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


def durable_named(asker: Asker, name: str) -> Durable | None:
    """Return the durable subscription whose queue has this name; None without one."""
    return asker.host.destinations.durables.by_name.get(name)


def queue_named(asker: Asker, name: str, field: str = "destination") -> Queue:
    """Return the queue of this name, or that of a durable subscription. Raise BadRequest if there is none."""
    queue = asker.host.queues.get(name)
    if queue is not None:
        return queue
    durable = durable_named(asker, name)
    if durable is not None:
        return durable.queue
    if name in asker.host.topics:
        raise BadRequest(field, "it is a topic, which keeps no messages; its durable subscriptions do")
    raise BadRequest(field, "there is no queue or durable subscription of this name")


def selector_of(text: str | None) -> Selector | None:
    """Return the condition of a field `selector`; None without one. Raise BadRequest if it is not valid."""
    if text is None:
        return None
    # Imported here, because only selectors need it.
    from stompcodec.broker.selectors.selector import SelectorError, compile_selector
    from stompcodec.errors import MissingExtraError

    try:
        return compile_selector(text)
    except (SelectorError, MissingExtraError) as error:
        raise BadRequest("selector", str(error)) from None


def seq_of(message_id: str | None) -> int | None:
    """Return the seq in a message-id; None without one. Raise BadRequest if it has none.

    >>> seq_of("18c2-17")
    17
    """
    if message_id is None:
        return None
    digits = message_id.rpartition("-")[2]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
        raise BadRequest("message_id", "it is not a message-id of this broker")
    return int(digits)


def is_wanted(message: Message, selector: Selector | None, message_id: str | None) -> bool:
    """Return whether an order is about a message."""
    if message_id is not None and message.id != message_id:
        return False
    return selector is None or selector.matches(message)
