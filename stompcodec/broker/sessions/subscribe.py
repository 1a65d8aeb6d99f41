"""Handlers of SUBSCRIBE and UNSUBSCRIBE. `queues/subscribe_request.py` reads their headers."""

from __future__ import annotations

from stompcodec.broker.errors import Refused
from stompcodec.broker.memory import subscription_cost
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.queues.subscribe_request import AUTO, SubscribeRequest, read_request
from stompcodec.broker.sessions.receipts import confirm, hold_receipts
from stompcodec.broker.sessions.send import parts_of
from stompcodec.broker.sessions.session import Session
from stompcodec.codec import Frame


def subscribe(session: Session, frame: Frame) -> None:
    """Handle SUBSCRIBE, or raise Refused. A composite destination makes one subscription for each part, all with the
    same id.
    """
    config = session.broker.config
    request = read_request(session, frame)
    name = _name(request.destination, request.key)
    if name in session.consumers:
        raise Refused("subscription exists", "This session has a subscription with that id.")
    consumers, durables = [], session.virtual_host.destinations.durables
    had = len(durables)
    try:
        for number, part in enumerate(parts_of(request.destination, config.composite)):
            consumers.append(_subscribe(session, name + _PART * number, request._replace(destination=part)))
    except Refused:
        for durable in durables.made_since(had):  # created for another part of the destination
            durables.delete(durable)
        raise
    if session.broker.stores_some and any(consumer.is_stored for consumer in consumers):
        hold_receipts(session, frame)
    confirm(session, frame)
    for consumer in consumers:
        if not consumer.closed:  # the messages of another part may have ended the session
            session.virtual_host.start(consumer)


#: Appended to a subscription's name for each further part of a composite destination. No header contains it.
_PART = "\0"


def _name(destination: str, key: str | None) -> str:
    """Return the name of a subscription: its id or, since 1.0 allows none, its destination."""
    return f"destination:{destination}" if key is None else f"id:{key}"


def _subscribe(session: Session, name: str, request: SubscribeRequest) -> Consumer:
    """Create a subscription without starting it."""
    config = session.broker.config
    if len(session.consumers) >= config.max_subscriptions:
        raise Refused("too many subscriptions", f"A session may have {config.max_subscriptions} subscriptions.")
    if request.mode != AUTO:
        request = request._replace(window=min(request.window, config.max_unacked))
    _check_selectors(session, request)
    cost = subscription_cost(name, request.destination, request.selector_text)
    session.memory.check(cost)
    window = request.window if request.mode == AUTO else session.windows.claim(request.window)
    number = session.next_number
    consumer = session.virtual_host.subscribe(session, number, request)
    if request.mode == AUTO and consumer.address is None and not request.browser:
        session.outbox.bound()
    session.next_number += 1
    session.consumers[name] = session.by_number[str(number)] = consumer
    if consumer.selector is not None:
        session.selectors.add(consumer.selector.text)
    consumer.cost = cost
    session.memory.charge(cost)
    if request.mode != AUTO:
        if window < request.window:
            consumer.resize(window)
        session.windows.join(window)
    return consumer


#: Characters of the different selectors of a session. In memory each takes sixty times as much.
_MOST_SELECTED = 65_536


def _check_selectors(session: Session, request: SubscribeRequest) -> None:
    selector = request.selector
    if selector is not None and session.selectors.with_one(selector.text) > _MOST_SELECTED:
        raise Refused("too many selectors", f"Together they may have {_MOST_SELECTED} characters.")


def reply_address(session: Session, reply_to: str) -> str | None:
    """Return the public name of a temporary destination in reply-to; None to keep the header.

    In the RabbitMQ dialect this also subscribes to the destination, with its name as the id, or raises Refused.
    """
    host = session.virtual_host
    address = host.destinations.address(reply_to, session)
    if address == reply_to:
        return None
    name = _name(reply_to, reply_to)
    if session.broker.config.reply_to_subscribes and name not in session.consumers:
        host.start(_subscribe(session, name, SubscribeRequest(reply_to, reply_to)))
    return address


def unsubscribe(session: Session, frame: Frame) -> None:
    """Handle UNSUBSCRIBE. With the name of a durable subscription, delete that, too. Raise Refused if it is unknown."""
    destination, key = session.header(frame, "destination"), session.header(frame, "id")
    consumers: list[Consumer] = []
    name = _name(destination or "", key)
    while name + _PART * len(consumers) in session.consumers:
        consumers.append(session.consumers[name + _PART * len(consumers)])
    request = read_request(session, frame)
    durables = session.virtual_host.durables_of(session, request, consumers)
    if not consumers and not durables:
        raise Refused("no such subscription", "This session has no subscription with that id.")
    for part, consumer in enumerate(consumers):
        del session.consumers[name + _PART * part]
        del session.by_number[str(consumer.number)]
        session.memory.charge(-consumer.cost)
        if consumer.acks:
            session.windows.leave(consumer.window)
        if consumer.selector is not None:
            session.selectors.remove(consumer.selector.text)
    persistent = any(message.persistent for consumer in consumers for message in consumer.unacked.values())
    if persistent or (durables and session.broker.stores_some):
        hold_receipts(session, frame)
    session.virtual_host.stop(consumers, (), True)
    for durable in durables:
        session.virtual_host.end(durable)
    confirm(session, frame)
