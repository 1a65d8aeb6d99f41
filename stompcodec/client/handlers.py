"""Handlers: their options, how often they are called with a message, what becomes of it, and what they send.

A message that cannot be handled is given up: by NACK, or a copy and then ACK. docs/broker.md has the table.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypedDict

from stompcodec.client.dialects import BrokerDialect, lasting_identity
from stompcodec.client.headers import ANYCAST, HeaderSource, of, type_of
from stompcodec.client.messages import BaseMessage, OnUnreadable
from stompcodec.client.outbox import KEPT
from stompcodec.errors import ContentError, LocalProtocolError, StompError

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
#: Classes of errors.
Errors = type[Exception] | tuple[type[Exception], ...]
#: How often a handler is called with one message, and the errors that another call would raise again.
ATTEMPTS = 6
GIVE_UP: Errors = (ContentError, UnicodeDecodeError, json.JSONDecodeError)
#: The pauses between calls, in seconds: each one is twice the one before, up to the longest.
FIRST, LONGEST = 0.1, 30.0
#: The most messages in a row that are given up at once.
_AT_ONCE_AT_MOST = 10
#: The policies that act at the first failure.
_AT_ONCE = ("stop", "ignore")
#: The most messages whose calls are remembered while they come again.
_REMEMBERED = 1000


class SubscribeOptions(TypedDict, total=False):
    """The keywords of `subscribe` except `handler`."""

    ack: str | None
    prefetch: int | None
    selector: str | None
    durable: str | None
    id: str | None
    headers: HeaderSource
    confirm: bool
    timeout: float | None
    on_unreadable: OnUnreadable
    on_error: Policy | None
    concurrency: int
    key: Callable[[Any], object] | None
    attempts: int
    give_up: Errors
    dead_letter: str | None


class Handling(NamedTuple):
    """A handler and its options, as `subscribe` takes them. Without `ack` it is that of the defaults."""

    handler: Callable[[Any], Any] | None = None
    ack: str | None = None
    on_error: Policy | None = None
    concurrency: int = 1
    key: Callable[[Any], object] | None = None
    attempts: int = ATTEMPTS
    give_up: Errors = GIVE_UP

    def checked(self, dialect: BrokerDialect) -> Handling:
        """Return it with its defaults, which need no handler. Raises as `Client.subscribe`."""
        for name, number in (("concurrency", self.concurrency), ("attempts", self.attempts)):
            if not 0 < number <= _MOST:
                raise ValueError(f"{name} is {number!r:.60}: it must be 1 or more, and at most {_MOST}")
        errors = (self.give_up,) if isinstance(self.give_up, type) else tuple(self.give_up)
        ack = self.ack
        if ack is None:
            ack = "auto" if self.handler is None else "client-individual"
        if self.concurrency > 1 and ack == "client" and self.handler is not None:
            raise ValueError(
                f"concurrency={self.concurrency} with ack='client' would acknowledge messages that are still being"
                " handled: use ack='client-individual'"
            )
        return self._replace(ack=ack, on_error=self._policy(dialect, ack), give_up=errors)

    def _policy(self, dialect: BrokerDialect, ack: str) -> Policy:
        policy = self.on_error
        if policy is None:
            return "nack"
        if not callable(policy) and not (isinstance(policy, str) and policy in POLICIES):
            raise ValueError(
                f"on_error is {policy!r:.60}: use {', '.join(POLICIES)}, or a function that returns one of them"
            )
        if self.ack == "auto":
            raise ValueError(
                f"on_error={policy!r:.60} has no effect with ack='auto', where the broker forgets each message that it"
                " sends: leave out one of them"
            )
        if policy == "requeue" and ack != "auto":
            try:
                dialect.nack_headers(True)
            except LocalProtocolError as error:
                raise LocalProtocolError(f"on_error={policy!r}: {error}") from None
        return policy

    @property
    def acts_at_once(self) -> bool:
        """Whether a failed call is not repeated."""
        return self.attempts == 1 or self.on_error in _AT_ONCE


class Retries:
    """The failures of a subscription's handler, and the pauses that follow. Its threads or tasks share it.

    A message that was not given up, but comes again, keeps the number of its calls, if it keeps its message-id.
    """

    def __init__(self, handling: Handling) -> None:
        self._attempts = handling.attempts
        self._give_up = handling.give_up
        self._next = FIRST  # the first pause of the next message
        self._said = ""  # the last failure whose traceback was logged
        self._at_once = 0  # messages in a row that were given up at once
        self._calls: dict[str, int] = {}  # by identity, or message-id, of messages that come again
        self.held: float | None = None
        """The last pause, in seconds, after a copy of a message failed that is given up; None if none did."""
        self.watched = False
        """True after a failure, until a call succeeds and the window is that of the subscription again."""

    def calls_of(self, message: BaseMessage) -> int:
        """Return the number of calls with earlier deliveries of a message. Some brokers use ids again for others."""
        identity = message.identity
        calls = self._calls.pop(identity or message.id, 0)
        return calls if identity is not None or message.redelivered else 0

    def keep(self, message: BaseMessage, calls: int) -> None:
        """Remember the calls with a message that comes again, and is left to the broker."""
        log.info("%s: message %s is left after %d calls", message.subscription.destination, message.id, calls)
        while len(self._calls) >= _REMEMBERED:
            self._calls.pop(next(iter(self._calls)), None)
        self._calls[message.identity or message.id] = calls

    def is_last(self, calls: int, error: Exception) -> bool:
        """Return whether a message is given up after so many calls, the last of which has raised an error."""
        self.watched = True
        self._at_once += calls == 1 and isinstance(error, self._give_up)
        return calls >= self._most(error) or (isinstance(error, self._give_up) and self._at_once <= _AT_ONCE_AT_MOST)

    def _most(self, error: Exception) -> int:
        """Return the most calls: in vain, they hold up the queue for 3 s a message, whatever `attempts` is."""
        return min(self._attempts, ATTEMPTS) if isinstance(error, self._give_up) else self._attempts

    def pause(self, before: float | None, error: Exception | None = None) -> float:
        """Return the next pause of a message in seconds, by the one before, or by those of the subscription, which
        grow with errors that are not in `give_up`.
        """
        if isinstance(error, self._give_up):
            return FIRST if before is None else min(2 * before, LONGEST)
        pause = self._next if before is None else min(2 * before, LONGEST)
        self._next = max(self._next, min(2 * pause, LONGEST))
        return pause

    def succeed(self) -> None:
        """Begin anew: a call has succeeded."""
        self._next, self._said, self._at_once, self.watched = FIRST, "", 0, False

    def say(self, message: BaseMessage, error: Exception, pause: float) -> None:
        """Log the first failure of a message; the same error in a row without its traceback."""
        said, self._said = self._said, repr(error)
        brake = f" (a brake after {_AT_ONCE_AT_MOST} such messages in a row; attempts=1 has none)"
        log.warning(
            "the handler of %s failed (%.200s): message %s is handled again in %g s, %d times in all at most%s",
            *(message.subscription.destination, self._said, message.id, pause, self._most(error)),
            brake if isinstance(error, self._give_up) else "",
            exc_info=None if said == self._said else error,
        )


def decide(on_error: Policy, message: BaseMessage, error: Exception, calls: int) -> str:
    """Log the last exception of a handler after so many calls, and return the policy for it."""
    destination = message.subscription.destination
    times, trace = ("once", error) if calls == 1 else (f"{calls} times", None)
    fate = "stays unsettled" if on_error in _AT_ONCE else "is given up"
    words = "the handler of %s failed %s: message %s %s: %.200r"
    log.error(words, destination, times, message.id, fate, error, exc_info=trace)
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


def answer_of(policy: str, version: str | None) -> tuple[str, bool | None] | None:
    """Return what a policy sends: (command, requeue), or None.

    "discard" works in every version: where there is no NACK, ACK drops the message.
    """
    if policy == "discard" and version in WITHOUT_NACK:
        return "ACK", None
    return POLICIES[policy]


def check_returned(result: object) -> None:
    """Raise TypeError if a handler has returned code that nobody runs."""
    if isinstance(result, Awaitable | Generator | AsyncGenerator):
        getattr(result, "close", bool)()  # it would warn
        raise TypeError(f"the handler returned {result!r:.60}, which nobody runs: call what does the work")


def ended_by(error: BaseException) -> Exception:
    """Return an Exception for policies, in place of a BaseException that would end the worker."""
    failure = RuntimeError(f"the handler raised {error!r}")
    failure.__cause__ = error
    return failure


def leave(message: BaseMessage) -> None:
    """Count a message that stays unsettled after its handler failed; log if such messages fill the prefetch."""
    subscription = message.subscription
    window = subscription.window
    if subscription.closed or window is None:
        return
    subscription.left += 1
    held = subscription.open - len(subscription.inbox) - len(subscription.batch)
    if subscription.left >= window <= held:
        log.error(
            "%s: the broker stops until a message is settled or the connection ends: the messages that failed handlers "
            "left unsettled hold the whole prefetch of %d",
            subscription.destination,
            window,
        )


def note(error: Exception) -> None:
    """Log that a message could not be settled, so that the broker may deliver it again."""
    log.warning("not settled: %s", error, exc_info=None if isinstance(error, StompError) else error)


# ---- the message in whose handling a program sends: our broker counts a refused frame as an attempt of it ----
class Hand:
    """The message that a thread, or a task with those it starts, works on; None once its handler has returned."""

    __slots__ = ("message", "pauses")

    def __init__(self, message: BaseMessage | None = None) -> None:
        self.message = message
        self.pauses = False  # between two calls of the handler


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


def own_hand() -> Hand:
    """Return the hand of the present thread or task, or a new one."""
    return _hand.get() or Hand()


def in_hand() -> BaseMessage | None:
    """Return the message that the present code works on; None if it is not known."""
    hand = _hand.get()
    return None if hand is None else hand.message


def cause(epoch: int) -> list[tuple[str, str]]:
    """Return the headers that name the message in hand; none if it is settled, or of another connection."""
    message = in_hand()
    if message is None or message.epoch != epoch:
        return []
    subscription = message.subscription
    if not subscription.explicit or (message.settled and message.seq not in subscription.claims):
        return []
    return [("ack", message.id), ("subscription", message.frame.get("subscription", subscription.id))]


#: The headers of the copy that say where it comes from, and why.
ORIGIN, ORIGIN_ID, REASON = "original-destination", "original-message-id", "dead-letter-reason"
#: Headers of one delivery, and those that the copy has of its own.
_DROPPED = of("place", "delivery", "type") | {"timestamp", "persistent", ORIGIN, ORIGIN_ID, REASON}
#: Headers that would take effect a second time, or make another queue: they stay readable as `original-…`.
_ONCE = of("key", "schedule", "argument") | {"expires", "expiration", "deliver-at", "_AMQ_SCHED_DELIVERY"}
#: The most characters of a reason.
_LONGEST_REASON = 200


class Way(NamedTuple):
    """How a message is given up."""

    command: str
    """NACK, SEND (a copy, and then ACK), or "" if there is no way."""
    to: str = ""
    """Where the copy goes."""
    why: str = ""
    """Why there is no way."""


def way_of(message: BaseMessage, dialect: BrokerDialect, version: str | None, named: str | None) -> Way:
    """Return how a message is given up; `named` is the option `dead_letter`, without which mode `auto` does nothing."""
    subscription, source = message.subscription, message.frame.get("destination") or ""
    named = subscription.dead_letter or named
    if not subscription.explicit and named is None:
        return Way("")
    if subscription.cumulative and len(subscription.covered(message.seq)) > 1:
        return Way("", why="earlier messages are unsettled, which it would settle in mode ack='client'")
    to = named or dialect.letters_of(subscription.destination)
    if not to:
        return Way("", why=f"this broker ({dialect.name}) has no known dead letter queue: name one by dead_letter=")
    if dialect.is_read(source, to) or dialect.is_read(subscription.destination, to):
        if dialect.gives_up != "nack" or named is not None:
            return Way("", why=f"it is in {to} already, where it would be sent: name another queue by dead_letter=")
    elif named is None and dialect.gives_up == "persistent" and version not in WITHOUT_NACK:
        keeps = message.frame.get("persistent") == "true" and subscription.keeps_messages
        return Way("NACK") if keeps else Way("SEND", to)
    if named is None and dialect.gives_up == "nack" and version not in WITHOUT_NACK:
        return Way("NACK")
    return Way("SEND", to)


def copy_of(
    message: BaseMessage, dialect: BrokerDialect, to: str, error: object, client_id: str | None
) -> list[tuple[str, str]]:
    """Return the headers of the copy.

    Those that would take effect again are renamed. A key makes a second copy of the same message a duplicate, where it
    can be told to be the same one, and the broker knows keys.
    """
    given = message.headers.pairs()
    names = {name for name, _ in given}
    pairs = [("destination", to)]
    for name, value in given:
        if name in _ONCE:
            if f"original-{name}" not in names and not (name == "expires" and value == "0"):
                pairs.append((f"original-{name}", value))
        elif name not in _DROPPED:
            pairs.append((name, value))
    pairs.append(("persistent", "true"))
    if type_of(to) is None and "::" not in to:  # without a type the copy would be dropped where there is no such queue
        pairs += dialect.queue_type
    pairs += [(ORIGIN, message.headers.get("destination", "")), (ORIGIN_ID, message.headers.get("message-id", ""))]
    pairs.append((REASON, _line(error)))
    return [*pairs, *key_of(message, dialect, to, client_id)]


def text_of(message: BaseMessage, dialect: BrokerDialect) -> bool | str:
    """Return whether the copy is text, for the outbox: as the message."""
    if not dialect.is_text(message.headers):
        return False
    try:
        decoder = codecs.getincrementaldecoder("utf-8")()
        plain = all("\0" not in decoder.decode(piece) for piece in message.reader())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return KEPT if plain else False


def key_of(message: BaseMessage, dialect: BrokerDialect, to: str, client_id: str | None) -> list[tuple[str, str]]:
    """Return the header with the key of a copy, equal for each delivery of a message to the same consumers; or none."""
    subscription = message.subscription
    keeps, kind = subscription.keeps_messages, dict(subscription.asked).get("subscription-type")
    if subscription.durable is None and (kind is not None or dialect.shared):
        keeps = kind == ANYCAST  # whatever the name looks like
    identity = lasting_identity(dialect, message.headers) if keeps else None
    if identity is None:
        return []
    durable = None if subscription.durable is None else (client_id, subscription.durable)
    parts = repr((to, subscription.destination, durable, identity))
    return [(dialect.duplicate, f"given-up-{hashlib.sha256(parts.encode()).hexdigest()[:32]}")]


def has_key(copy: list[tuple[str, str]], dialect: BrokerDialect) -> bool:
    """Return whether a copy can be sent again, since the broker drops the second one of two."""
    return dialect.knows_keys and any(name == dialect.duplicate for name, _ in copy)


def _line(error: object) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in repr(error)[:_LONGEST_REASON])
