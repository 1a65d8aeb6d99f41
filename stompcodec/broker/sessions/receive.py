"""RECEIVE and PING, from the wish-list for STOMP 1.1. The `commands` header of CONNECTED lists those that are enabled.

PING is answered by PONG. RECEIVE has the headers of SUBSCRIBE and is answered at once: by MESSAGE, or by EMPTY with the
same destination and subscription if no message is READY. A requested RECEIPT follows the answer.

With ack:client or client-individual the message stays unacknowledged until ACK or NACK. When the session ends it
returns to its queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from stompcodec.broker.errors import Refused
from stompcodec.broker.loop_quota import Line
from stompcodec.broker.memory import subscription_cost
from stompcodec.broker.queues.backlog import Looked, Wait
from stompcodec.broker.queues.consumer import EOL, Consumer
from stompcodec.broker.queues.subscribe_request import AUTO, SubscribeRequest, read_request
from stompcodec.broker.sessions.names import NAMES, list_names
from stompcodec.broker.sessions.receipts import confirm, hold_receipts
from stompcodec.broker.sessions.session import Session
from stompcodec.codec import Frame, serialize

#: The answer to RECEIVE from an empty queue.
EMPTY = "EMPTY"
#: The least number of bytes that an answer counts while its peer does not read.
_LEAST = 256
_PONG = b"PONG\n\n\0" + EOL


def ping(session: Session, frame: Frame) -> None:
    """Handle PING."""
    session.reply(_PONG)
    confirm(session, frame)


def receive(session: Session, frame: Frame) -> None:
    """Handle RECEIVE, or raise Refused if it cannot be served."""
    if session.header(frame, "browser") == NAMES:
        request = _checked(session, frame)
        session.work(frame, list_names(session, frame, request.destination, _key_of(session, request)))
        return
    request = _request(session, frame)
    number = session.next_number
    cost = subscription_cost(f"receive:{number}", request.destination, request.selector_text)
    session.memory.check(cost)
    consumer = session.virtual_host.subscribe(session, number, request)
    consumer.credit = consumer.window = 0  # it receives only what is delivered here
    consumer.single = False
    if not consumer.acks:
        session.outbox.bound()
    session.work(frame, _receiving(session, frame, request, consumer, cost))


def _receiving(
    session: Session, frame: Frame, request: SubscribeRequest, consumer: Consumer, cost: int
) -> Iterator[Line]:
    """Answer RECEIVE, perhaps after the first message was read from the store."""
    before, number = session.outbox.send_budget, consumer.number
    queue, looked = consumer.queue, Looked()
    try:
        while isinstance(taken := queue.take_one(consumer, looked), Wait):
            yield queue.pages
            before = session.outbox.send_budget
            if session.ended:
                session.virtual_host.end_with_last(consumer)
                return
    except Refused:
        session.virtual_host.end_with_last(consumer)
        raise
    if not taken:
        pairs = [("destination", request.destination)]
        if request.key is not None:
            pairs.append(("subscription", request.key))
        session.reply(serialize(Frame(EMPTY, pairs), session.version, commands=(EMPTY,)) + EOL)
    else:
        session.count_unread(max(before - session.outbox.send_budget, _LEAST))
        if consumer.acks:
            session.next_number += 1
            session.consumers[f"receive:{number}"] = session.by_number[str(number)] = consumer
            consumer.cost = cost
            session.memory.charge(cost)
            session.windows.join(1)
            if consumer.selector is not None:
                session.selectors.add(consumer.selector.text)
            queue.members[consumer] = None
    if consumer.durable is not None and session.broker.stores_some:
        hold_receipts(session, frame)
    session.virtual_host.end_with_last(consumer)
    confirm(session, frame)


def _request(session: Session, frame: Frame) -> SubscribeRequest:
    config = session.broker.config
    request = _checked(session, frame)
    if request.browser:
        raise Refused("RECEIVE cannot browse", "RECEIVE takes a message. Use SUBSCRIBE to browse.")
    if request.mode != AUTO:
        if len(session.consumers) >= config.max_subscriptions:
            raise Refused(
                "too many unacknowledged RECEIVEs", "ACK or NACK the messages: each counts as a subscription."
            )
        session.windows.claim(1)
    key = _key_of(session, request)
    request = request._replace(octets=None, credit=None, from_seq=None, exclusive=False, makes_durable=False)
    return request._replace(key=key, window=1)


def _checked(session: Session, frame: Frame) -> SubscribeRequest:
    request = read_request(session, frame)
    if not request.destination:
        raise Refused("RECEIVE lacks destination", "RECEIVE needs the headers of SUBSCRIBE.")
    return request


def _key_of(session: Session, request: SubscribeRequest) -> str | None:
    """Return the id of a RECEIVE, or its destination: a MESSAGE of 1.1 and 1.2 must have a subscription."""
    return request.destination if request.key is None and session.version in ("1.1", "1.2") else request.key


def release(session: Session, consumer: Consumer) -> None:
    """End the consumer of a RECEIVE whose message is acknowledged."""
    if session.consumers.pop(f"receive:{consumer.number}", None) is not None:
        del session.by_number[str(consumer.number)]
        session.memory.charge(-consumer.cost)
        session.windows.leave(1)
        if consumer.selector is not None:
            session.selectors.remove(consumer.selector.text)
        session.virtual_host.stop([consumer], ())
