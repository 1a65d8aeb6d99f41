"""The targets of a SEND: finding them, checking permission, and delivering now or after a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from stompcodec.broker.memory import MESSAGE
from stompcodec.broker.message import Message, is_text
from stompcodec.broker.queues.consumer import QueueArguments, read_arguments
from stompcodec.broker.queues.paging import NOT_PAGED
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.delayed import RetainTarget
from stompcodec.broker.routing.registry import VirtualHost
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.sessions.transaction import QueueOrTopic, Target
from stompcodec.broker.settings import Kind
from stompcodec.broker.values import Refused, Unready
from stompcodec.codec import Frame
from stompcodec.frame import is_utf8

#: Targets that a session caches.
_MOST_TARGETS = 1000
#: Prefix of cached destinations that headers of a SEND can redirect. No destination begins with it.
_UNLESS_TOLD = "\0"
#: Parts of a composite destination. Each gets a copy of the message.
_MOST_PARTS = 16


def targets_of(session: Session, frame: Frame) -> list[Target]:
    """Return the targets of a SEND, several of a composite destination. Raise Refused if one is not possible."""
    config, destination = session.broker.config, session.header(frame, "destination") or ""
    if config.refuse_message_id and frame.get("message-id") is not None:
        raise Refused("message-id must not be set", "Only the broker gives messages their message-id.")
    if config.utf8_texts and is_text(frame) and not is_utf8(frame.body or b""):
        raise Refused("the body is not UTF-8", f"{config.dialect} would change it: send a content-length.")
    queue = session.cached_targets.get(destination)
    if queue is not None:  # its other headers make no difference
        return [Target(destination, queue=queue)]
    target = Target(destination, session.header(frame, "destination-type"), session.header(frame, "retain"))
    targets = [target._replace(destination=part) for part in parts_of(destination, config.composite)]
    heeds = config.queue_arguments != "ignore"
    arguments = read_arguments(frame.get if session.exact else partial(session.header, frame)) if heeds else None
    return [target._replace(queue=queue_of(session, target, arguments)) for target in targets]


def parts_of(destination: str, composite: bool) -> list[str]:
    """Return the parts of a destination in SEND or SUBSCRIBE, which commas separate if it is `composite`. Raise Refused
    if there are too many.
    """
    if not composite or "," not in destination:
        return [destination]
    if destination.count(",") >= _MOST_PARTS:
        raise Refused("too many destinations", f"A composite destination has at most {_MOST_PARTS} parts.")
    return list(dict.fromkeys(part.strip() for part in destination.split(",")))


def cached_target(session: Session, frame: Frame, destination: str) -> Queue | Topic | None:
    """Return the cached target of a SEND without headers that can redirect it; None if there is none."""
    queue = session.cached_targets.get(_UNLESS_TOLD + destination)
    if queue is not None:
        for name in session.virtual_host.destinations.routing_headers:
            if frame.get(name) is not None:
                return None
    return queue


def queue_of(session: Session, target: Target, arguments: QueueArguments | None = None) -> QueueOrTopic | None:
    """Return the queue or topic of a target; None if nothing takes the message. The queue arguments in the SEND are for
    a queue. Raise Refused if sending there is impossible or not allowed.
    """
    destination = target.destination
    queue = session.cached_targets.get(destination)
    if queue is not None:
        return queue
    destinations = session.virtual_host.destinations
    address = destinations.canonical(destinations.addresses.find(destination, target.routing, False), session)
    if not session.broker.auth.may(session.user, "send", address.name):
        raise Refused("not allowed to send there", "The broker's access rules do not allow it.")
    found = destinations.target(address, session, target.retain)
    if found is None:
        return None
    if isinstance(found, Queue):
        if not address.found:
            destinations.agree(found, arguments, session)
        if found.refuses:
            raise Refused(
                "the queue is full", f"It has x-overflow:reject-publish. Send the message again later. {NOT_PAGED}"
            )
    for each in found.holders():
        if each.full and session.acknowledges(each) and not each.may_grow:
            raise Refused("the queue is full", f"Acknowledge messages before you send more to it. {NOT_PAGED}")
    if isinstance(found, RetainTarget) or (isinstance(found, Queue) and found.arguments is not None):
        return found
    if not address.found and address.kind in (Kind.QUEUE, Kind.TOPIC):  # it lasts until destinations are removed
        certain = destinations.is_certain(destination, address)
        if certain or (target.routing is None and target.retain is None):
            if len(session.cached_targets) >= _MOST_TARGETS:
                session.forget_targets()
            session.cache_target(destination if certain else _UNLESS_TOLD + destination, found)
    return found


def check_space(session: Session, queues: Iterable[QueueOrTopic | None]) -> None:
    """Check that the store can take a persistent message for these queues or topics; None stands for one that is not
    known yet. Raise Refused if the disk is almost full, and one of them stores the message.
    """
    if session.broker.journal.short and any(_stores(queue) for queue in queues):
        raise Unready(
            "the disk is full", "The broker stores no more until there is room: consume messages, or free disk space."
        )


def _stores(queue: QueueOrTopic | None) -> bool:
    if isinstance(queue, Queue):
        return queue.journal is not None
    return bool(queue.holders()) if isinstance(queue, Topic) else True


def is_stored(session: Session, said: bool | None, queue: QueueOrTopic | None) -> bool:
    """Return whether a message to this target is stored, when its header `persistent` says this; None without it."""
    if said is None:
        return session.broker.stores_all and queue.__class__ is Queue and queue.journal is not None
    return said and session.broker.stores_some


def put(session: Session, queue: QueueOrTopic, message: Message) -> None:
    """Number a message and deliver it, after everything that the session has sent before."""
    session.broker.place(message)
    if session.behind is None:
        if _into(session, queue, message):
            _block(session, queue, message)
        return
    journal = session.broker.journal
    stored_in = queue.stores(message)
    for each in stored_in:
        journal.append(each, message)
    journal.charge(session.behind, message.size + MESSAGE)
    in_order(session, partial(put_late, session, queue, message, stored_in), message.seq)


def put_keyed(session: Session, queue: QueueOrTopic, message: Message) -> None:
    """Put a message with an idempotency key. A persistent one takes effect after it is stored, as with COMMIT.

    It must not be delivered earlier. If the broker crashed in between, the sender would send it again, and it would be
    delivered with another message-id and not marked as redelivered. If the commit fails, message and key are undone.
    """
    if not message.persistent and session.behind is None:
        put(session, queue, message)
        return
    broker, journal = session.broker, session.broker.journal
    broker.place(message)
    stored_in: Sequence[Queue] = ()
    if message.persistent:
        stored_in = queue.stores(message)
        store = journal.store
        assert store is not None
        for each in stored_in:
            store.append(each.key, message)
        session.behind = journal.batch
        session.plain = False
    assert session.behind is not None
    journal.charge(session.behind, message.size + MESSAGE)
    in_order(session, partial(_put_committed, session, queue, message, stored_in), message.seq)


def _put_committed(
    session: Session, queue: QueueOrTopic, message: Message, stored_in: Sequence[Queue], committed: bool
) -> None:
    if committed:
        put_late(session, queue, message, stored_in)


def put_late(
    session: Session, queue: QueueOrTopic, message: Message, stored_in: Sequence[Queue], _committed: bool = True
) -> None:
    """Deliver a message that was numbered before, and was stored for some queues."""
    if queue.put(message, True) if message.due is None else _into(session, queue, message, stored=True):
        _block(session, queue, message)
    if isinstance(queue, RetainTarget) and session.behind is not None:
        session.waits_on = True  # the message that it replaces leaves the store only now, after that commit
    for each in stored_in:
        if each.closed:  # it ended in the meantime
            each.unstore((message,))
    if isinstance(queue, Queue) and queue.messages.is_disordered:
        session.broker.journal.late(queue, message.seq)


def _into(session: Session, queue: QueueOrTopic, message: Message, stored: bool = False) -> bool:
    """Put a message into its queue or topic, or delay it. Return True if the sender should wait."""
    if message.due is None:
        return queue.put(message, stored)
    return session.broker.delayed.defer(message, queue, lambda: _now(session.virtual_host, queue), stored)


def _block(session: Session, queue: QueueOrTopic, message: Message) -> None:
    """Make the sender of a message wait."""
    if message.due is not None and not isinstance(queue, Queue):
        session.broker.delayed.block(session)
    else:
        queue.block(session)


def _now(host: VirtualHost, queue: QueueOrTopic) -> QueueOrTopic:
    """Return the target of a delayed message when it is due. A topic may have been replaced since."""
    return host.topics.get(queue.name, queue) if isinstance(queue, Topic) else queue


def in_order(session: Session, action: Callable[[bool], None], first: int | None = None) -> None:
    """Do something now, or after the commit if a transaction of this session is being committed.

    `action` is called with True, or with False if that commit has failed. `first` is the lowest seq of the messages
    that it puts.
    """
    batch = session.behind
    if batch is None:
        action(True)
        return
    batch.actions.append(action)
    if first is not None:
        batch.first = first if batch.first is None else min(first, batch.first)
