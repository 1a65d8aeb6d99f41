"""The policies for messages whose handler returns or fails; and the message whose handler sends something."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypedDict

from stompcodec.client.bodies.unreadable import OnUnreadable
from stompcodec.client.dialects import BrokerDialect
from stompcodec.client.message import BaseMessage
from stompcodec.client.owned import HeaderSource
from stompcodec.errors import LocalProtocolError, StaleAckError, StompError

log = logging.getLogger("stompcodec.client")

#: Policy -> (command, requeue) for the message of a handler that raised; None leaves it unsettled.
POLICIES: dict[str, tuple[str, bool | None] | None] = {
    "nack": ("NACK", None),
    "requeue": ("NACK", True),
    "discard": ("NACK", False),
    "ack": ("ACK", None),
    "ignore": None,
    "stop": None,
}
#: The most threads or tasks of a handler.
_MOST = 10_000
#: Versions of STOMP without NACK.
WITHOUT_NACK = ("1.0", "legacy")
#: One of the names above, or a function of the message and the error that returns one of them.
Policy = str | Callable[[Any, Exception], str]


class SubscribeOptions(TypedDict, total=False):
    """The keywords of `subscribe` except `handler`."""

    ack: str
    prefetch: int | None
    selector: str | None
    durable: str | None
    id: str | None
    headers: HeaderSource
    confirm: bool
    timeout: float | None
    on_unreadable: OnUnreadable
    on_error: Policy
    concurrency: int
    key: Callable[[Any], object] | None


def check_handling(
    on_error: Policy, concurrency: int, dialect: BrokerDialect, ack: str, handler: object, key: object = None
) -> None:
    """Check a handler, which may be None, and its options; `ack` is the mode of its subscription.

    Raises:
        TypeError: the concurrency is no number, or the handler or the key is no function.
        ValueError: an unknown policy, a concurrency below 1 or above 10,000, or one above 1 with ack="client": the ACK
            of a message would also cover messages that other calls of the handler still work on.
        LocalProtocolError: the broker does not support the policy: messages would stay unsettled.

    >>> from stompcodec.client.dialects import BROKERS
    >>> check_handling("requeue", 1, BROKERS["activemq"], "client", print)
    Traceback (most recent call last):
        ...
    stompcodec.errors.LocalProtocolError: on_error='requeue': the NACK of activemq cannot requeue a message
    """
    for name, function in (("handler", handler), ("key", key)):
        if function is not None and not callable(function):
            raise TypeError(f"{name} is {function!r:.60}: it must be a function")
    if type(concurrency) is not int:
        raise TypeError(f"concurrency is {concurrency!r:.60}: it must be a whole number")
    if not 0 < concurrency <= _MOST:
        raise ValueError(f"concurrency is {concurrency!r:.60}: it must be 1 or more, and at most {_MOST}")
    if concurrency > 1 and ack == "client" and handler is not None:
        raise ValueError(
            f"concurrency={concurrency} with ack='client' would acknowledge messages that are still being handled:"
            " use ack='client-individual'"
        )
    if not callable(on_error) and not (isinstance(on_error, str) and on_error in POLICIES):
        raise ValueError(
            f"on_error is {on_error!r:.60}: use {', '.join(POLICIES)}, or a function that returns one of them"
        )
    if on_error == "requeue" and ack != "auto" and handler is not None:
        try:
            dialect.nack_headers(True)
        except LocalProtocolError as error:
            raise LocalProtocolError(f"on_error={on_error!r}: {error}") from None


def decide(on_error: Policy, message: BaseMessage, error: Exception) -> str:
    """Log an exception of a handler, and return the policy for it."""
    log.error("the handler of %s failed", message.subscription.destination, exc_info=error)
    if not callable(on_error):
        return on_error
    try:
        policy = on_error(message, error)
    except Exception:
        log.exception("the on_error function failed, too: the message stays unsettled")
        return "ignore"
    if policy not in POLICIES:
        log.error("the on_error function returned %r: the message stays unsettled", policy)
        return "ignore"
    return policy


def answer_of(policy: str, dialect: BrokerDialect, version: str | None) -> tuple[str, bool | None] | None:
    """Return what a policy sends: (command, requeue), or None.

    "discard" works with every broker: where no NACK drops a message, ACK does.

    >>> from stompcodec.client.dialects import BROKERS
    >>> answer_of("discard", BROKERS["rabbitmq"], "1.2"), answer_of("discard", BROKERS["rabbitmq"], "1.0")
    (('NACK', False), ('ACK', None))
    """
    if policy == "discard" and (dialect.discard is None or version in WITHOUT_NACK):
        return "ACK", None
    return POLICIES[policy]


def ended_by(error: BaseException) -> Exception:
    """Return an Exception for policies, in place of a BaseException that would end the worker.

    >>> ended_by(SystemExit(1))
    RuntimeError('the handler raised SystemExit(1)')
    """
    failure = RuntimeError(f"the handler raised {error!r}")
    failure.__cause__ = error
    return failure


def leave(message: BaseMessage) -> None:
    """Count a message that stays unsettled after its handler failed; log if such messages fill the prefetch."""
    subscription = message.subscription
    if subscription.closed or subscription.prefetch is None:
        return
    subscription.left += 1
    held = subscription.open - len(subscription.inbox) - len(subscription.batch)
    if subscription.left >= subscription.prefetch <= held:
        log.error(
            "%s: the broker stops until a message is settled or the connection ends: the messages that failed handlers "
            "left unsettled hold the whole prefetch of %d",
            subscription.destination,
            subscription.prefetch,
        )


def note(error: Exception) -> None:
    """Log that a message could not be settled, so that the broker may deliver it again."""
    level = logging.INFO if isinstance(error, StaleAckError) else logging.WARNING
    log.log(level, "not settled: %s", error, exc_info=None if isinstance(error, StompError) else error)


# ---- the message in whose handling a program sends: our broker counts a refused frame as an attempt of it ----


class Hand:
    """The message that a thread, or a task with those it starts, works on; None once its handler has returned."""

    __slots__ = ("message",)

    def __init__(self, message: BaseMessage) -> None:
        self.message: BaseMessage | None = message


_hand: ContextVar[Hand | None] = ContextVar("stompcodec_hand", default=None)


def take_up(message: BaseMessage) -> Hand:
    """Return the hand for a message whose handler is called next. Tasks that it starts keep this one."""
    hand = Hand(message)
    _hand.set(hand)
    return hand


@contextmanager
def holding(message: BaseMessage) -> Iterator[None]:
    """Have what is sent inside name a message as its cause."""
    before = _hand.get()
    _hand.set(Hand(message))
    try:
        yield
    finally:
        _hand.set(before)


def cause(epoch: int) -> list[tuple[str, str]]:
    """Return the headers that name the message in hand; none if this connection has not delivered it, or it is settled.

    A message that an open transaction settles comes back if that is refused.
    """
    hand = _hand.get()
    message = None if hand is None else hand.message
    if message is None or message.epoch != epoch:
        return []
    subscription = message.subscription
    if not subscription.explicit or (message.settled and message.seq not in subscription.claims):
        return []
    return [("ack", message.id), ("subscription", subscription.id)]
