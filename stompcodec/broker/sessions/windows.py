"""Windows: how the subscriptions of a session share the messages that it may leave unacknowledged.

A subscription gets the window that it asks for, as long as `sessions.max_unacked` has room. When a new one does not
fit, the windows above an equal share shrink to it, so a session may have many subscriptions that ask for everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompcodec.broker.errors import Refused

if TYPE_CHECKING:
    from stompcodec.broker.queues.consumer import Consumer
    from stompcodec.broker.sessions.session import Session

__all__ = ["claim", "join", "leave"]


def claim(session: Session, asked: int) -> int:
    """Return the window of a new subscription of a session, and make room for it.

    Args:
        session: that subscribes.
        asked: the most unacknowledged messages that the subscription may have, by its SUBSCRIBE or the defaults.

    Raises:
        Refused: the session has too many subscriptions for that, or has not acknowledged the messages it has.
    """
    most, parts = session.broker.config.max_unacked, _parts(session.ackers + 1)
    asked = min(asked, most)
    share = min(asked, _share(most, parts))
    left = most - session.window - session.overdue
    if left < share:
        _divide(session, parts)
        left = most - session.window - session.overdue
    if left < 1:
        raise Refused(
            "too many unacknowledged messages",
            f"The subscriptions of this session have {session.window + session.overdue} together: acknowledge some.",
        )
    return min(asked if session.parts == 1 else share, left)


def join(session: Session, window: int) -> None:
    """Count a new subscription that has claimed a window."""
    session.ackers += 1
    session.window += window


def leave(session: Session, window: int) -> None:
    """Count a subscription no more. When few are left, their windows grow again.

    Args:
        session: whose subscription has ended, and is not among its consumers any more.
        window: that it had.
    """
    session.ackers -= 1
    session.window -= window
    # The factor keeps a session that subscribes and unsubscribes in turn from changing all windows each time.
    if session.parts > 1 and (session.ackers <= 1 or session.ackers * 4 <= session.parts):
        _divide(session, _parts(session.ackers))


def _parts(count: int) -> int:
    """Return how many shares there are for so many subscriptions: a power of two, so that they seldom change.

    >>> [_parts(count) for count in (0, 1, 2, 3, 50)]
    [1, 1, 2, 4, 64]
    """
    return 1 << max(0, count - 1).bit_length()


def _share(most: int, parts: int) -> int:
    return max(1, most // parts)


def _divide(session: Session, parts: int) -> None:
    """Give each subscription what it asks for, but not more than its share."""
    share = _share(session.broker.config.max_unacked, parts)
    session.parts = parts
    window = overdue = 0
    grown: list[Consumer] = []
    for consumer in session.consumers.values():
        if not consumer.acks or consumer.closed:
            continue
        if not consumer.window:  # it holds what came by one RECEIVE
            window += 1
            continue
        size = min(consumer.wanted.window, share)
        if size > consumer.window:
            grown.append(consumer)
        consumer.resize(size)
        window += size
        overdue += max(0, len(consumer.unacked) - size)
    session.window, session.overdue = window, overdue
    for consumer in grown:
        if not consumer.waiting:
            consumer.queue.offer(consumer)
