"""Values: the headers whose values are booleans or numbers, and how each dialect reads them; `Refused`, for a bad one.

`KNOWN` is the one table of them. A value that our own dialect does not understand is refused with an ERROR that names
the header and the value. The other dialects do what their brokers do: some refuse it too; where they are silent, the
header is ignored, and the log says so once for each connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

from stompcodec.codec import Frame


class Refused(Exception):
    """A frame that the broker refuses: its sender gets ERROR, and the session ends.

    `message` is short, for the header of that name. The client may see it, so it must not contain secrets. `remedy`
    says what to do about it, for the body.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Unready(Refused):
    """A frame that the broker refuses for its own state, as on a full disk: no message of the session is at fault."""


#: The dialect that refuses every value that it does not understand.
OWN = "stompcodec"
#: The largest number of milliseconds, and of a position.
_LONG, _POSITION = 2**63 - 1, 2**62
#: More deliveries than any session may have: the largest number of messages.
UNLIMITED = 10**9
#: Headers with the pause before the next delivery, in milliseconds; it is at most a year.
REDELIVERY_DELAYS = ("redelivery-delay", "activemq.redeliveryDelay")
_PAUSE = 365 * 86_400_000
#: The largest argument of a queue.
_ARGUMENT = 10**15 - 1
_INT = 2**31 - 1
_SEND, _ACK = ("SEND",), ("ACK", "NACK")
_SUBSCRIBE = ("SUBSCRIBE", "UNSUBSCRIBE", "RECEIVE")
#: Characters of a value that an error shows.
_SHOWN = 40


class CreditGrant(NamedTuple):
    """The credit that a client grants: further deliveries, and their bytes."""

    messages: int = UNLIMITED
    octets: int | None = None
    """The number of bytes; None for no limit."""
    auto: bool = True
    """ACK gives back the credit that was used. Otherwise only a `credit` header of ACK adds credit."""


class Known(NamedTuple):
    """A header whose value is a boolean, a whole number, or several of them."""

    commands: tuple[str, ...]
    """The frames in which it is always read. An argument of a queue is read where the queue is declared."""
    least: int | None = None
    """The least number; None for a boolean."""
    most: int = 0
    refused_by: tuple[str, ...] = ()
    """The dialects, beside our own, whose brokers answer a value that they do not understand with an ERROR, or close
    the connection. The others ignore the header."""
    clips: bool = False
    """In the other dialects, a number below `least` counts as `least`, and one above `most` as `most`."""
    word: tuple[str, str] | None = None
    """A command in which the header may have another value, which is read elsewhere; and that value."""
    form: str = ""
    """The form of several values."""
    only: Mapping[str, tuple[int, int, str]] = MappingProxyType({})
    """Dialects in which a value below the first number, or above the second, is refused, and why."""

    @property
    def kind(self) -> str:
        """The values that it takes."""
        number = f"a whole number, {self.least} to {self.most}"
        return self.form or ("true or false" if self.least is None else number)


#: What RabbitMQ 4, ActiveMQ 6.3 and Artemis 2.40 refuse was seen there.
KNOWN: Mapping[str, Known] = MappingProxyType(
    {
        "persistent": Known((*_SEND, *_SUBSCRIBE), refused_by=("rabbitmq",)),
        "priority": Known(
            *(_SEND, 0, 9, ("rabbitmq", "activemq", "artemis")),
            clips=True,
            only={"artemis": (0, 9, "Artemis confirms the message, and never delivers it.")},
        ),
        "expires": Known(_SEND, 0, _LONG, ("activemq", "artemis"), clips=True),
        "expiration": Known(_SEND, 0, _LONG, ("rabbitmq",)),
        "delay": Known(_SEND, 0, _LONG),
        "AMQ_SCHEDULED_DELAY": Known(_SEND, 0, _LONG, ("activemq", "artemis")),
        "x-delay": Known(_SEND, 0, _LONG),
        "JMSXGroupSeq": Known(_SEND, -_INT - 1, _INT, ("activemq",)),
        "durable": Known(_SUBSCRIBE, refused_by=("rabbitmq",)),
        "auto-delete": Known(_SUBSCRIBE),
        "exclusive": Known(_SUBSCRIBE),
        "activemq.exclusive": Known(_SUBSCRIBE),
        "browser": Known(_SUBSCRIBE, word=("RECEIVE", "names")),
        "browser-end": Known(_SUBSCRIBE),
        "from-seq": Known(_SUBSCRIBE, -1, _POSITION),
        "consumer-priority": Known(_SUBSCRIBE, -_INT - 1, _INT),
        "activemq.priority": Known(_SUBSCRIBE, -_INT - 1, _INT),
        "x-priority": Known(_SUBSCRIBE, -_INT - 1, _INT, ("rabbitmq",)),
        "prefetch-count": Known(_SUBSCRIBE, 0, UNLIMITED, ("rabbitmq",)),
        "no-local": Known(_SUBSCRIBE, only={"artemis": (0, 0, "This broker has no such thing.")}),
        "activemq.noLocal": Known(
            _SUBSCRIBE, only=dict.fromkeys(("activemq", "artemis"), (0, 0, "This broker has no such thing."))
        ),
        "activemq.prefetchSize": Known(
            *(_SUBSCRIBE, -1, _POSITION, ("artemis",)),
            only={"activemq": (1, _POSITION, "ActiveMQ delivers no message then.")},
        ),
        "consumer-window-size": Known(_SUBSCRIBE, -1, _POSITION, ("artemis",)),
        "credit": Known((*_SUBSCRIBE, *_ACK), form="COUNT[,BYTES[,true or false]]"),
        "redelivery-delay": Known((*_SUBSCRIBE, "NACK"), 0, _PAUSE),
        "activemq.redeliveryDelay": Known((*_SUBSCRIBE, "NACK"), 0, _PAUSE),
        "requeue": Known(("NACK",)),
        "x-message-ttl": Known((), 0, _ARGUMENT),
        "x-expires": Known((), 1, _ARGUMENT),
        "x-max-length": Known((), 0, _ARGUMENT),
        "x-max-length-bytes": Known((), 0, _ARGUMENT),
    }
)
#: Headers that not all brokers read, with the dialects, beside our own, whose brokers do. The others ignore them.
READ_BY: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("delay", "x-delay", "message_group", "consumer-priority"), ()),
    **dict.fromkeys(("AMQ_SCHEDULED_DELAY", "_AMQ_DUPL_ID", "consumer-window-size"), ("artemis",)),
    **dict.fromkeys(("durable-subscriber-name", "durable-subscription-name"), ("artemis",)),
    **dict.fromkeys(("activemq.exclusive", "activemq.priority", "browser", "transformation"), ("activemq",)),
    **dict.fromkeys(("activemq.prefetchSize", "activemq.subscriptionName", "expires"), ("activemq", "artemis")),
    **dict.fromkeys(("JMSXGroupID", "selector"), ("activemq", "artemis")),
    **dict.fromkeys(("durable", "exclusive", "expiration", "prefetch-count", "requeue", "x-priority"), ("rabbitmq",)),
}


def is_read(name: str, dialect: str) -> bool:
    """Return whether the broker of a dialect reads a header."""
    return dialect == OWN or dialect in READ_BY.get(name, (dialect,))


#: The names of the headers that are read in each command.
NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        command: tuple(name for name, known in KNOWN.items() if command in known.commands)
        for command in (*_SEND, *_SUBSCRIBE, *_ACK)
    }
)
#: The values of a frame by the names of their headers: each a bool, an int or a `CreditGrant`.
Values: TypeAlias = Mapping[str, Any]
#: The values of a frame that has none of these headers.
NONE: Values = MappingProxyType({})
#: Headers of our own browsers, which work in every dialect.
_OF_BROWSERS = ("browser-end", "include-seq", "from-seq")
_TRUTHS = {"true": True, "false": False}
#: The dialects in which booleans have any case, with the beginning of their names; and spellings of one dialect.
_ANY_CASE = {OWN: "", "artemis": "", "activemq": "activemq."}
_SPELLINGS = {"rabbitmq": {"True": True, "False": False}}
_NUMBER = re.compile("-?[0-9]{1,19}")
#: Other brokers also take a plus, and spaces around a number.
_LOOSE_NUMBER = re.compile(" *[-+]?[0-9]{1,19} *")
_CREDIT = re.compile(
    r"\s*([0-9]{1,19})\s*(?:,\s*(-1|[0-9]{1,19})?\s*(?:,\s*(true|false)?\s*)?)?", re.IGNORECASE | re.ASCII
)


class Reader(Protocol):
    """A session, as far as it reads values."""

    #: A header had a value that the dialect ignores, and the log says so.
    had_odd: bool

    broker: Any

    def header(self, frame: Frame, name: str) -> str | None: ...


def read_values(session: Reader, frame: Frame) -> Values:
    """Return the known headers of a frame by name, without those that are ignored. Raise Refused for a bad one."""
    names = NAMES[frame.command]
    if not frame.has_any(*names):
        return NONE
    found: dict[str, Any] = {}
    dialect = session.broker.config.dialect
    for name in names:
        text = session.header(frame, name)
        if text is None or KNOWN[name].word == (frame.command, text):
            continue
        is_heeded = is_read(name, dialect) or (name == "browser" and frame.has_any(*_OF_BROWSERS))
        value = read_value(name, text, dialect) if is_heeded or dialect in KNOWN[name].refused_by else None
        if value is not None and is_heeded:
            found[name] = value
        elif not session.had_odd:
            session.had_odd = True
            session.broker.log.warning(
                "%s: the header %s of a %s is ignored, as %s does%s. Others of this session are not reported",
                *(session, name, frame.command, dialect),
                f": its value is not {KNOWN[name].kind}" if is_heeded else "",
            )
    return found


def read_value(name: str, text: str, dialect: str = OWN) -> Any:
    """Return the value of a known header: a bool, an int or a `CreditGrant`. If it has none of its kind, raise Refused,
    or return None if the dialect ignores that.
    """
    known = KNOWN[name]
    value: Any
    if known.form:
        value = _credit_of(text)
    else:
        value = _truth_of(text, name, dialect) if known.least is None else _number_of(text, known, dialect)
    least, most, why = known.only.get(dialect, (0, 0, ""))
    number = int(text) if why and known.least is not None and value is not None else value
    if why and value is not None and not least <= number <= most:
        raise Refused(f"bad {name}", f"{name} is {text}: {why}")
    if value is None and (dialect == OWN or dialect in known.refused_by or not known.commands):
        shown = ascii(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!a}..."
        raise Refused(f"bad {name}", f"{name} is {shown}: write {known.kind}.")
    return value


def _credit_of(text: str) -> CreditGrant | None:
    found = _CREDIT.fullmatch(text)
    count, octets = (0, 0) if found is None else (int(found[1]), int(found[2] or -1))
    if found is None or count > UNLIMITED or octets > _POSITION:
        return None
    return CreditGrant(count, None if octets < 0 else octets, (found[3] or "").lower() != "false")


def _truth_of(text: str, name: str, dialect: str) -> bool | None:
    """Return a boolean as the dialect spells it; None for any other text."""
    if name.startswith(_ANY_CASE.get(dialect, "\0")):
        return _TRUTHS.get(text.lower()) if len(text) < 6 and text.isascii() else None
    return _SPELLINGS.get(dialect, _TRUTHS).get(text, _TRUTHS.get(text))


def _number_of(text: str, known: Known, dialect: str) -> int | None:
    if (_NUMBER if dialect == OWN else _LOOSE_NUMBER).fullmatch(text) is None:
        return None
    assert known.least is not None
    value = int(text)
    if known.clips and dialect != OWN:
        return min(max(value, known.least), known.most)
    return value if known.least <= value <= known.most else None
