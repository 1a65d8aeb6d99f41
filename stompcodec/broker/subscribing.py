"""SUBSCRIBE and UNSUBSCRIBE: what their headers ask for, in the spellings of several brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompcodec.broker.consumer import AUTO, MODES
from stompcodec.broker.destination import Kind
from stompcodec.broker.message import Refused
from stompcodec.codec import Frame

if TYPE_CHECKING:
    from stompcodec.broker.session import Session

__all__ = ["subscribe", "unsubscribe"]


def subscribe(session: Session, frame: Frame) -> None:
    """SUBSCRIBE.

    Raises:
        Refused: it cannot be served.
    """
    destination, key = session.header(frame, "destination") or "", session.header(frame, "id")
    mode = session.header(frame, "ack") or AUTO
    config = session.broker.config
    if mode not in MODES:
        raise Refused("unknown ack mode", "ack is auto, client or client-individual.")
    _refuse_what_is_missing(session, frame, destination)
    # In 1.0 the id may be missing: then the destination tells subscriptions apart.
    name = f"destination:{destination}" if key is None else f"id:{key}"
    if name in session.consumers:
        raise Refused("subscription exists", "This session has a subscription with that id.")
    if len(session.consumers) >= config.max_subscriptions:
        raise Refused("too many subscriptions", f"A session has at most {config.max_subscriptions}.")
    if not session.broker.auth.may(session.user, "subscribe", destination):
        raise Refused("not allowed to subscribe there", "The rules of the broker do not allow it.")
    window = 1 if mode == AUTO else min(_prefetch(frame, config.prefetch), config.max_unacked - session.window)
    if window < 1:
        raise Refused("too many unacknowledged messages", f"The subscriptions have {session.window} together already.")
    number = session.next_number
    consumer = session.router.subscribe(session, destination, key, number, mode, window)
    session.next_number += 1
    session.consumers[name] = session.by_number[str(number)] = consumer
    if mode != AUTO:
        session.window += window
    session.answer(frame)
    session.router.start(consumer)


#: Headers that ask for a durable subscription of a topic, as brokers spell it.
_DURABLE = ("durable-subscription-name", "durable-subscriber-name", "activemq.subscriptionName")


def _refuse_what_is_missing(session: Session, frame: Frame, destination: str) -> None:
    """Whoever asks for messages by a selector, or for those sent while it is away, must not go without in silence."""
    if frame.get("selector") is not None:
        raise Refused("selectors are not supported", "Leave the selector header out, and pick messages yourself.")
    durable = frame.get("durable") == "true" or frame.get("persistent") == "true"
    durable = durable or any(frame.get(name) is not None for name in _DURABLE)
    if durable and session.router.naming.kind(destination) is Kind.TOPIC:
        raise Refused("durable subscriptions are not supported", "Send to a queue, which keeps messages for you.")


#: Headers that say how many unacknowledged messages a subscription may have, as brokers spell it.
_PREFETCH = ("prefetch-count", "activemq.prefetchSize", "credit")


def _prefetch(frame: Frame, default: int) -> int:
    for name in _PREFETCH:
        text = frame.get(name)
        if text is None:
            continue
        number = text.partition(",")[0]  # credit:COUNT,SIZE
        if not (number.isdigit() and number.isascii() and len(number) < 10):
            raise Refused("bad prefetch", f"{name} is a number of messages; 0 for as many as the broker allows.")
        return int(number) or 10**9
    octets = frame.get("consumer-window-size")
    if octets is not None:  # octets are not counted: only its two special values mean something
        return {"0": 1, "-1": 10**9}.get(octets, default)
    return default


def unsubscribe(session: Session, frame: Frame) -> None:
    """UNSUBSCRIBE.

    Raises:
        Refused: there is no such subscription.
    """
    destination, key = session.header(frame, "destination"), session.header(frame, "id")
    consumer = session.consumers.pop(f"destination:{destination}" if key is None else f"id:{key}", None)
    if consumer is None:
        raise Refused("no such subscription", "This session has no subscription with that id.")
    del session.by_number[str(consumer.number)]
    if consumer.acks:
        session.window -= consumer.window
    if any(message.persistent for message in consumer.unacked.values()):
        session.store_waits(frame)
    session.router.stop([consumer], ())
    session.answer(frame)
