"""Handlers of SUBSCRIBE and UNSUBSCRIBE. `queues/consumer.py` reads their headers."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator

from stompcodec.broker.loop_quota import Line
from stompcodec.broker.memory import subscription_cost
from stompcodec.broker.queues.backlog import Looked, Wait
from stompcodec.broker.queues.consumer import AUTO, Consumer, SubscribeRequest, read_request
from stompcodec.broker.queues.outbox import EOL
from stompcodec.broker.routing.addresses import named
from stompcodec.broker.sessions.receipts import confirm, hold_receipts
from stompcodec.broker.sessions.send import parts_of
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.settings import Address, Kind
from stompcodec.broker.values import Refused
from stompcodec.codec import Frame, serialize

#: The value of the header `browser` that asks for names.
NAMES = "names"
#: The most names in one answer.
PAGE = 1000
#: Names that are looked at in one turn.
_LOOKS = 500


def list_names(session: Session, frame: Frame, pattern: str, key: str | None) -> Iterator[Line]:
    """Answer a RECEIVE that asks for names, in steps. Its `from-name` says after which name to go on; `pattern` is a
    name, or the beginning of names and a star.
    """
    after = session.header(frame, "from-name") or ""
    destinations = session.virtual_host.destinations
    head, star = pattern.removesuffix("*"), pattern.endswith("*")
    seen = []  # `next` is a name, too
    for count, (kind, name) in enumerate(
        [(Kind.QUEUE, name) for name in destinations.queues]
        + [(Kind.TOPIC, name) for name in destinations.topics.by_name],
        1,
    ):
        if name > after and name.startswith(head) and (star or name == pattern) and _may_see(session, kind, name):
            seen.append(name)
        if not count % _LOOKS:
            yield session.broker.quota
            if session.ended:
                return
    names = heapq.nsmallest(PAGE + 1, seen)
    page = {
        "destinations": [_row(session, name) for name in names[:PAGE]],
        "next": names[PAGE - 1] if len(names) > PAGE else None,
        "management": session.broker.config.management_prefix,
    }
    headers = [] if key is None else [("subscription", key)]
    number = session.next_number
    session.next_number += 1
    headers += [("message-id", f"{session.id}-{number}-names"), ("destination", pattern)]
    headers += [("browser", NAMES), ("content-type", "application/json")]
    answer = Frame("MESSAGE", headers, json.dumps(page, separators=(",", ":")).encode())
    session.reply(serialize(answer, session.version) + EOL)
    confirm(session, frame)


def _may_see(session: Session, kind: Kind, name: str) -> bool:
    destinations = session.virtual_host.destinations
    if not name.isprintable() or destinations.naming.is_temporary(name) or name in destinations.owners:
        return False
    return destinations.why_unseen(session, Address(kind, *destinations.naming.split(name)[1:], literal=True)) is None


def _row(session: Session, name: str) -> dict[str, str | int]:
    queue = session.virtual_host.destinations.queues.get(name)
    if queue is None:
        return {"destination": name, "kind": "topic", "ready": 0, "messages": 0}
    paged = queue.total - queue.count
    return {"destination": name, "kind": "queue", "ready": len(queue.messages) + paged, "messages": queue.total}


#: The answer to RECEIVE from an empty queue.
EMPTY = "EMPTY"
#: The least number of bytes that an answer counts while its peer does not read.
_LEAST = 256
_PONG = b"PONG\n\n\0" + EOL


def ping(session: Session, frame: Frame) -> None:
    session.reply(_PONG)
    confirm(session, frame)


def receive(session: Session, frame: Frame) -> None:
    """Handle RECEIVE, or raise Refused if it cannot be served."""
    if session.header(frame, "browser") == NAMES:
        request = _checked(session, frame)
        head, star, _ = request.destination.partition("*")
        if star and not session.broker.auth.may_all(session.user, "subscribe", head, some=True):
            raise Refused("not allowed to subscribe there", "The broker's access rules do not allow it.")
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
    if len([named(part) for part in parts_of(request.destination, session.broker.config.composite)]) > 1:
        raise Refused("RECEIVE takes one destination", "Send a RECEIVE for each of them.")
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


def subscribe(session: Session, frame: Frame) -> None:
    """Handle SUBSCRIBE, or raise Refused. Each part of a composite destination is a subscription of the same id."""
    config = session.broker.config
    request = read_request(session, frame)
    name = _name(request.destination, request.key)
    if name in session.consumers:
        raise Refused("subscription exists", "This session has a subscription with that id.")
    if config.reply_to_subscribes and session.virtual_host.naming.is_temporary(request.destination):
        raise Refused("invalid destination", "Temporary destinations are for reply-to, which subscribes to them.")
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
    if config.page and consumer.address is None and consumer.queue.count > config.page:
        window = min(window, config.page)
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
    if session.broker.config.ack_after_unsubscribe:
        session.kept = session.kept or []
    session.virtual_host.stop(consumers, (), True, kept=session.kept)
    for durable in durables:
        session.virtual_host.end(durable)
    confirm(session, frame)
