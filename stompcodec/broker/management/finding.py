"""Find the queues, messages and conditions that the fields of a request name."""

from __future__ import annotations

from stompcodec.broker.management.asker import Asker
from stompcodec.broker.management.reading import BadRequest
from stompcodec.broker.message import Message
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.durable import Durable
from stompcodec.broker.selectors.selector import Selector


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
