"""What each frame of a client does. `HANDLERS` is the table; every function takes the session and the frame.

The connection has checked the order of the frames and the required headers. What else can be wrong raises Refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from sys import intern
from typing import TYPE_CHECKING

from stompcodec import __version__
from stompcodec.broker.config.heart_beats import answer
from stompcodec.broker.errors import Refused
from stompcodec.broker.jms import is_text, text_tail
from stompcodec.broker.loop_quota import AT_ONCE
from stompcodec.broker.message import LIFE_HEADERS, WITHOUT, Message, message_of
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.queues.scheduling import DELAYS, GROUPS, schedule
from stompcodec.broker.routing.idempotency import KEY_HEADERS, Mark, body_crc, key_of
from stompcodec.broker.sessions.acknowledge import acknowledge, grant
from stompcodec.broker.sessions.commit import abort, begin, commit, keep
from stompcodec.broker.sessions.connection_ttl import terms
from stompcodec.broker.sessions.receipts import confirm, hold_receipts, send_receipt
from stompcodec.broker.sessions.receive import let_go, ping, receive
from stompcodec.broker.sessions.send import cached_target, check_space, parts_of, put, put_keyed, targets_of
from stompcodec.broker.sessions.settling import settling
from stompcodec.broker.sessions.subscribe import reply_address, subscribe, unsubscribe
from stompcodec.broker.sessions.transaction import Sending, Settling
from stompcodec.broker.storage.large import is_streamed
from stompcodec.codec import Frame, serialize_tail

if TYPE_CHECKING:
    from stompcodec.broker.message import LargeBody
    from stompcodec.broker.sessions.session import Session

__all__ = ["HANDLERS", "SLOW_HEADERS"]

#: Headers that keep a SEND off the quick road. Those who serve them name them.
SLOW_HEADERS = ("transaction", "reply-to", *LIFE_HEADERS, *GROUPS, *DELAYS, *KEY_HEADERS)


def _connect(session: Session, frame: Frame) -> None:
    broker, config = session.broker, session.broker.config
    host, hosts = frame.get("host"), config.virtual_hosts
    if hosts is None:
        vhost = "/"
    elif host is None:
        vhost = hosts[0]
    elif host in hosts:
        vhost = host
    else:
        raise Refused("unknown virtual host", "The host header names a virtual host that this broker does not have.")
    login = frame.get("username" if session.connection.version == "legacy" else "login")
    user = broker.auth.login(login, frame.get("passcode"), vhost, broker.now)
    if user is None:
        raise Refused("login refused", "login or passcode is wrong, or the virtual host is not open to this user.")
    session.user = user
    session.owner = broker.auth.owner(user)
    session.virtual_host = broker.virtual_host(vhost)
    session.version = session.connection.version or ""
    session.exact = session.version != "1.0"
    session.plain = session.exact and broker.plain
    session.virtual_host.join(session, session.header(frame, "client-id"))
    manner = "" if config.dialect == "stompcodec" else f" as {config.dialect}"
    headers = [("session", session.id), ("server", f"stompcodec/{__version__}{manner}")]
    if config.commands:
        headers.append(("commands", ",".join(config.commands)))
    agreed = session.ttl = terms(config, session.version, frame.get("heart-beat"))
    if agreed is None:
        session.connection.accept(headers, heart_beat=answer(config, session.version, frame.get("heart-beat")))
    else:
        session.connection.accept(headers, heart_beat=agreed.heart_beat, silence=agreed.silence)
    broker.connected(session)


def _send(session: Session, frame: Frame) -> None:
    """SEND. This is the quick road, for messages that nothing special is about but that they may be persistent. The
    other one takes them all.
    """
    get = frame.get
    destination = get("destination", "")
    queue = session.cached_targets.get(destination)
    if queue is None:
        queue = cached_target(session, frame, destination)
    if queue is None or not session.plain or frame.has_any(*SLOW_HEADERS):
        _send_any(session, frame)
        return
    broker = session.broker
    broker.seq = seq = broker.seq + 1
    try:
        tail = serialize_tail(frame, "1.2", without=WITHOUT)
    except TypeError:  # its body is on its way
        _send_any(session, frame)
        return
    if get("persistent") != "true" or not broker.stores_some:
        full = queue.put_plain(destination, broker.ident, seq, tail)
    else:
        if broker.journal.short:
            check_space(session, (queue,))
        hold_receipts(session, frame)
        full = queue.put(Message(broker.ident % seq, seq, intern(destination), tail, True))
    if full:
        queue.block(session)
    receipt = get("receipt")
    if receipt is not None:
        send_receipt(session, receipt)


def _send_any(session: Session, frame: Frame, body: LargeBody | None = None) -> None:
    """SEND, in all its forms; with the body of a large one, or before that has come."""
    transaction, reply_to = session.header(frame, "transaction"), frame.get("reply-to")
    broker = session.broker
    marks = _marks(session, frame, body) if broker.sent.window else None
    if marks and transaction is None and None not in map(broker.sent.find, marks):
        for known in marks:
            broker.sent.is_known(session, known, frame)
        confirm(session, frame)
        return
    targets = targets_of(session, frame)
    persistent = broker.stores_some and (frame.get("persistent") == "true" or broker.stores_all)
    if broker.journal.short and (persistent or is_streamed(frame)):
        check_space(session, [target.queue if transaction is None else None for target in targets])
    if is_streamed(frame):
        session.take_large(frame, partial(_send_any, session))
        return
    if reply_to is not None:
        reply_to = reply_address(session, reply_to)
    for number, target in enumerate(targets):
        mark = marks[number] if marks is not None else None
        if mark is not None and transaction is None and broker.sent.is_known(session, mark, frame):
            continue
        message = message_of(frame, target.destination, persistent, broker.wall, reply_to)
        if body is not None:
            message.with_body(body)
        elif broker.config.jms and is_text(frame):
            message.tail = text_tail(message.tail)
            message.size = len(message.tail)
        message = schedule(message, frame, broker.wall)
        if message.due is not None:
            broker.delayed.check_room(1)
        if transaction is not None:
            keep(session, transaction, Sending(target, message, mark))
            continue
        if target.queue is not None:
            if persistent or (target.retain is not None and broker.stores_some):  # the one before goes from the store
                hold_receipts(session, frame)
            (put if mark is None else put_keyed)(session, target.queue, message)
        if mark is not None:
            if persistent:
                hold_receipts(session, frame)
            broker.sent.enter(mark, broker.now, stored=persistent, batch=session.behind)
    confirm(session, frame)


def _marks(session: Session, frame: Frame, body: LargeBody | None) -> list[Mark] | None:
    """Return the mark of a SEND for each of its destinations; None if it has no idempotency key, or no body yet."""
    key = key_of(session, frame)
    if key is None or (body is None and is_streamed(frame)):
        return None
    crc, routing = body_crc(frame, body), session.header(frame, "destination-type")
    parts = parts_of(session.header(frame, "destination") or "", session.broker.config.composite)
    return [session.broker.sent.mark(session, part, routing, key, crc) for part in parts]


def _ack(session: Session, frame: Frame) -> None:
    """Handle ACK: the quick road, for one delivery of 1.2. What it does not take goes to `_acknowledge`."""
    get = frame.get
    number, _, tag = get("id", "").partition("-")
    consumer = session.by_number.get(number)
    if (
        consumer is not None
        and consumer.single
        and get("transaction") is None
        and get("credit") is None
        and tag.isdecimal()
        and len(tag) < 20
    ):
        message = consumer.unacked.pop(int(tag), None)
        if message is not None:
            queue = consumer.queue
            consumer.credit += 1
            if message.persistent:
                hold_receipts(session, frame)
                if queue.journal is not None and not queue.closed:
                    queue.journal.settle(queue, message)
            queue.count_out_one(message.size)
            receipt = get("receipt")
            if receipt is not None:
                send_receipt(session, receipt)
            if not consumer.in_ring:
                queue.offer(consumer)
            return
    _acknowledge(True, session, frame)


def _acknowledge(accepted: bool, session: Session, frame: Frame) -> None:
    """ACK, or NACK."""
    get = frame.get
    if get("credit") is not None and grant(session, None, frame):
        return
    consumer, tag = _delivery(session, frame)
    receipt = get("receipt")
    if consumer is None:
        if receipt is not None:
            raise Refused("no such delivery", "Its subscription has ended, and the message went back to the queue.")
        return
    if consumer.request.browser:
        acknowledge(session, consumer, tag, accepted, frame)
        return
    transaction = get("transaction")
    if transaction is not None and session.broker.config.transactional_acks:
        operation = Settling(consumer, consumer.take(tag), accepted, get("requeue") != "false")
        keep(session, transaction if session.exact else transaction.strip(" "), operation)
        deliveries = None
    else:
        deliveries = consumer.take(tag)
        grant(session, consumer, frame)
        for _tag, message in deliveries:
            if message.persistent and accepted:
                hold_receipts(session, frame)
                break
    if deliveries is not None and len(deliveries) > AT_ONCE:
        session.work(frame, settling(session, consumer, deliveries, frame, accepted, get("requeue") != "false"))
        return
    if receipt is not None:  # before what may be delivered again
        send_receipt(session, receipt if session.exact else receipt.strip(" "))
    if deliveries is not None and accepted:
        consumer.queue.settle(deliveries)
    elif deliveries is not None:
        session.virtual_host.reject(consumer.queue, deliveries, get("requeue") != "false")
    if not consumer.window:
        let_go(session, consumer)
    elif not consumer.in_ring:
        consumer.queue.offer(consumer)


def _delivery(session: Session, frame: Frame) -> tuple[Consumer | None, int]:
    """What an ACK names; None for the consumer if the subscription was there once.

    Raises:
        Refused: there never was such a delivery.
    """
    if session.version == "1.2":
        number, _, tag = (frame.get("id") or "").partition("-")
        consumer = session.by_number.get(number)
        if tag.isdecimal() and len(tag) < 20:  # bounded, for the number is a peer's
            if consumer is not None:
                return consumer, int(tag)
            if number.isdecimal() and len(number) < 20 and int(number) < session.next_number:
                return None, 0
        raise Refused("no such delivery", "The id of ACK and NACK is the ack header of the MESSAGE.")
    message_id = session.header(frame, "message-id") or ""
    key = session.header(frame, "subscription")
    for consumer in session.consumers.values():
        found = consumer.tag_of(message_id) if key is None or consumer.key == key else None
        if found is not None:
            return consumer, found
    raise Refused("no such delivery", "message-id and subscription are those of the MESSAGE.")


def _disconnect(session: Session, frame: Frame) -> None:
    confirm(session, frame)
    session.close()


#: Command -> what it does.
HANDLERS: dict[str, Callable[[Session, Frame], None]] = {
    "CONNECT": _connect,
    "STOMP": _connect,
    "SEND": _send,
    "ACK": _ack,
    "NACK": partial(_acknowledge, False),
    "SUBSCRIBE": subscribe,
    "UNSUBSCRIBE": unsubscribe,
    "BEGIN": begin,
    "COMMIT": commit,
    "ABORT": abort,
    "DISCONNECT": _disconnect,
    "PING": ping,
    "RECEIVE": receive,
}
