"""Where a SEND goes, whether it may, and when it takes effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from stompcodec.broker.errors import Refused
from stompcodec.broker.memory import MESSAGE
from stompcodec.broker.message import Message
from stompcodec.broker.queues.arguments import Terms, terms_of
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.retained import Retaining
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.sessions.goal import Goal, Sink
from stompcodec.codec import Frame

if TYPE_CHECKING:
    from stompcodec.broker.routing.virtual_host import Router
    from stompcodec.broker.sessions.session import Session

__all__ = ["goals_of", "in_order", "parts_of", "put", "put_keyed", "put_late", "sink_of", "usual_sink"]

#: Destinations that a session remembers.
_MOST_SINKS = 1000
#: In front of one that stands for a sink only as long as no header says something else. No destination begins with it.
_UNLESS_TOLD = "\0"
#: Parts of a composite destination. Each has a copy of the message.
_MOST_PARTS = 16


def goals_of(session: Session, frame: Frame) -> list[Goal]:
    """Where a SEND goes; several for a composite destination.

    Raises:
        Refused: it may not, or cannot, go to one of them.
    """
    config, destination = session.broker.config, session.header(frame, "destination") or ""
    if config.refuse_message_id and frame.get("message-id") is not None:
        raise Refused("message-id must not be set", "Only the broker gives messages their message-id.")
    sink = session.sinks.get(destination)
    if sink is not None:  # whatever its other headers say
        return [Goal(destination, sink=sink)]
    goal = Goal(destination, session.header(frame, "destination-type"), session.header(frame, "retain"))
    goals = [goal._replace(destination=part) for part in parts_of(destination, config.composite)]
    heeds = config.queue_arguments != "ignore"
    terms = terms_of(frame.get if session.exact else partial(session.header, frame)) if heeds else None
    return [goal._replace(sink=sink_of(session, goal, terms)) for goal in goals]


def parts_of(destination: str, composite: bool) -> list[str]:
    """The parts of a destination, with commas between; only itself if that means nothing here.

    Raises:
        Refused: there are too many of them.

    >>> parts_of("/queue/a,/topic/b", True), parts_of("a,b", False)
    (['/queue/a', '/topic/b'], ['a,b'])
    """
    if not composite or "," not in destination:
        return [destination]
    if destination.count(",") >= _MOST_PARTS:
        raise Refused("too many destinations", f"A composite destination has at most {_MOST_PARTS} parts.")
    return list(dict.fromkeys(part.strip() for part in destination.split(",")))


def usual_sink(session: Session, frame: Frame, destination: str) -> Queue | Topic | None:
    """Where a SEND goes, if it has none of the headers that may send it elsewhere, and this is known already."""
    sink = session.sinks.get(_UNLESS_TOLD + destination)
    if sink is not None:
        for name in session.router.destinations.telling:
            if frame.get(name) is not None:
                return None
    return sink


def sink_of(session: Session, goal: Goal, terms: Terms | None = None) -> Sink | None:
    """Where a SEND of this session goes; None for nowhere.

    Args:
        session: that sends.
        goal: of the SEND.
        terms: what it says of the queue, if it is one.

    Raises:
        Refused: it may not, or cannot.
    """
    destination = goal.destination
    sink = session.sinks.get(destination)
    if sink is not None:
        return sink
    destinations = session.router.destinations
    address = destinations.named(destinations.addresses.find(destination, goal.routing, False), session)
    if not session.broker.auth.may(session.user, "send", address.name):
        raise Refused("not allowed to send there", "The rules of the broker do not allow it.")
    found = destinations.sink(address, session, goal.retain)
    if found is None:
        return None
    if isinstance(found, Queue):
        if not address.found:
            destinations.agree(found, terms, session)
        if found.refuses:
            raise Refused("the queue is full", "Its argument x-overflow is reject-publish: send it again later.")
    for queue in found.holders():
        if queue.full and session.acknowledges(queue) and not queue.may_grow:
            raise Refused("the queue is full", "Acknowledge messages before you send more to it.")
    if isinstance(found, Retaining) or (isinstance(found, Queue) and found.terms is not None):
        return found
    if destinations.is_lasting(address):
        certain = destinations.is_certain(destination, address)
        if certain or (goal.routing is None and goal.retain is None):
            if len(session.sinks) >= _MOST_SINKS:
                session.forget_sinks()
            session.remember(destination if certain else _UNLESS_TOLD + destination, found)
    return found


def check_space(session: Session, sinks: Iterable[Sink | None]) -> None:
    """See to it that the store takes a persistent message.

    Args:
        session: that sends it.
        sinks: where it goes; None where that is not known yet.

    Raises:
        Refused: the disk has little room, and one of the sinks stores it.
    """
    if session.broker.journal.short and any(_stores(sink) for sink in sinks):
        raise Refused(
            "the disk is full", "The broker stores no more until there is room: consume messages, or free some space."
        )


def _stores(sink: Sink | None) -> bool:
    if isinstance(sink, Queue):
        return sink.journal is not None
    return bool(sink.holders()) if isinstance(sink, Topic) else True


def put(session: Session, sink: Sink, message: Message) -> None:
    """A message takes its place, and effect, behind what this session has sent before."""
    session.broker.place(message)
    if session.behind is None:
        if _into(session, sink, message):
            _block(session, sink, message)
        return
    journal = session.broker.journal
    queues = sink.stores(message)
    for queue in queues:
        journal.append(queue, message)
    journal.charge(session.behind, message.size + MESSAGE)
    in_order(session, partial(put_late, session, sink, message, queues), message.seq)


def put_keyed(session: Session, sink: Sink, message: Message) -> None:
    """Put a message with an idempotency key; a persistent one takes effect when it is stored, as by a COMMIT.

    Nobody may get it before: if the broker crashed then, its sender would send it again, and it would come with
    another message-id and without a mark of redelivery. What is behind a commit is undone with it, like its key.
    """
    if not message.persistent and session.behind is None:
        put(session, sink, message)
        return
    broker, journal = session.broker, session.broker.journal
    broker.place(message)
    queues: Sequence[Queue] = ()
    if message.persistent:
        queues = sink.stores(message)
        store = journal.store
        assert store is not None
        for queue in queues:
            store.append(queue.key, message)
        session.behind = journal.batch
        session.plain = False
    assert session.behind is not None
    journal.charge(session.behind, message.size + MESSAGE)
    in_order(session, partial(_put_committed, session, sink, message, queues), message.seq)


def _put_committed(session: Session, sink: Sink, message: Message, queues: Sequence[Queue], committed: bool) -> None:
    if committed:
        put_late(session, sink, message, queues)


def put_late(session: Session, sink: Sink, message: Message, queues: Sequence[Queue], _committed: bool = True) -> None:
    """A message takes effect that has its place already, and was stored for these queues."""
    if _into(session, sink, message, stored=True):
        _block(session, sink, message)
    if isinstance(sink, Retaining) and session.behind is not None:
        session.waits_on = True  # the one before goes from the store now, behind that commit
    for queue in queues:
        if queue.closed:  # it has ended meanwhile
            queue.forget((message,))
    if isinstance(sink, Queue) and sink.messages.is_disordered:
        session.broker.journal.late(sink, message.seq)


def _into(session: Session, sink: Sink, message: Message, stored: bool = False) -> bool:
    """Into the queue or topic, or where it waits for its time. True: the sender should wait."""
    if message.due is None:
        return sink.put(message, stored)
    return session.broker.delayed.hold(message, sink, lambda: _now(session.router, sink), stored)


def _block(session: Session, sink: Sink, message: Message) -> None:
    """Make the sender of a message wait."""
    if message.due is not None and not isinstance(sink, Queue):
        session.broker.delayed.block(session)
    else:
        sink.block(session)


def _now(router: Router, sink: Sink) -> Sink:
    """The sink as it is when a message is due: topics come and go meanwhile."""
    return router.topics.get(sink.name, sink) if isinstance(sink, Topic) else sink


def in_order(session: Session, action: Callable[[bool], None], first: int | None = None) -> None:
    """Do something now (True), or if a transaction of this session waits for the store, behind that.

    Args:
        session: whose doing it is.
        action: told whether that commit succeeded.
        first: the lowest seq of what it puts somewhere; None for nothing.
    """
    batch = session.behind
    if batch is None:
        action(True)
        return
    batch.actions.append(action)
    if first is not None:
        batch.first = first if batch.first is None else min(first, batch.first)
