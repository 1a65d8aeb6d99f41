"""Where a SEND goes, whether it may, and when it takes effect."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from stompcodec.broker.message import Message, Refused
from stompcodec.broker.queue import Queue
from stompcodec.broker.topic import Topic

if TYPE_CHECKING:
    from stompcodec.broker.session import Session

__all__ = ["in_order", "put", "put_late", "sink_of"]

#: Destinations that a session remembers.
_MOST_SINKS = 1000


def sink_of(session: Session, destination: str) -> Queue | Topic | None:
    """Where a SEND of this session goes; None for nowhere.

    Raises:
        Refused: it may not, or cannot.
    """
    sink = session.sinks.get(destination)
    if sink is not None:
        return sink
    if not session.broker.auth.may(session.user, "send", destination):
        raise Refused("not allowed to send there", "The rules of the broker do not allow it.")
    sink = session.router.sink(destination, session)
    if sink is None:
        return None
    if isinstance(sink, Queue) and sink.full and session.acknowledges(sink.pool if sink.pool.full else sink):
        raise Refused("the queue is full", "Acknowledge messages before you send more to it.")
    if not session.router.naming.is_temporary(destination):
        if len(session.sinks) >= _MOST_SINKS:
            session.sinks.clear()
        session.sinks[destination] = sink
    return sink


def put(session: Session, sink: Queue | Topic, message: Message) -> None:
    """A message takes its place, and effect, behind what this session has sent before."""
    session.broker.place(message)
    if session.behind is None:
        if sink.put(message):
            sink.block(session)
        return
    if message.persistent and isinstance(sink, Queue) and sink.journal is not None:
        sink.journal.append(sink, message)
    in_order(session, partial(put_late, session, sink, message))


def put_late(session: Session, sink: Queue | Topic, message: Message, _committed: bool = True) -> None:
    """A message takes effect that has its place already, and was stored if it has to be."""
    if sink.put(message, stored=True):
        sink.block(session)
    if isinstance(sink, Queue) and sink.is_disordered:
        session.broker.journal.late(sink, message.seq)


def in_order(session: Session, action: Callable[[bool], None]) -> None:
    """Do something now (True), or if a transaction of this session waits for the store, behind that.

    Args:
        session: whose doing it is.
        action: told whether that commit succeeded.
    """
    if session.behind is None:
        action(True)
    else:
        session.behind.actions.append(action)
