"""Values of headers of SEND by which a broker loses the message, or ends the connection and does not say why."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

#: Returns what a value has to be; None for one that the broker takes.
Rule = Callable[[str], "str | None"]

#: Digits of any script, as Java reads numbers.
_WHOLE = re.compile(r"[+-]?\d{1,40}")
_CRON = re.compile(r"[0-9*/,-]+( [0-9*/,-]+){4}")
_MODE = re.compile(r"[0-9]{1,9}|(non_)?persistent", re.IGNORECASE)


def _whole(low: int, high: int, value: str) -> str | None:
    fits = _WHOLE.fullmatch(value) and low <= int(value) <= high
    return None if fits else f"a whole number from {low} to {high}"


def _form(form: re.Pattern[str], what: str, value: str) -> str | None:
    return None if form.fullmatch(value) else what


def _type(value: str) -> str | None:
    return None if value in ("ANYCAST", "MULTICAST") else "ANYCAST or MULTICAST"


def _internal(value: str) -> str | None:
    return "left out, since the broker writes it itself"


def _name(value: str) -> str | None:
    return "a name behind its prefix" if value.rstrip(" ") in ("/queue/", "/topic/") else None


def _destination(value: str) -> str | None:
    return _name(value) if value else "a name"


_INT, _LONG = partial(_whole, -(2**31), 2**31 - 1), partial(_whole, -(2**63), 2**63 - 1)
_COUNT, _MILLISECONDS = partial(_whole, 0, 2**31 - 1), partial(_whole, 0, 2**63 - 1)

#: Of ActiveMQ, which closes the connection without an ERROR.
ACTIVEMQ: Mapping[str, Rule] = {
    "destination": _destination,
    "priority": _INT,
    "expires": _LONG,
    "timestamp": _LONG,
    "reply-to": _name,
    "AMQ_SCHEDULED_DELAY": _MILLISECONDS,
    "AMQ_SCHEDULED_PERIOD": _MILLISECONDS,
    "AMQ_SCHEDULED_REPEAT": _COUNT,
    "AMQ_SCHEDULED_CRON": partial(_form, _CRON, "five fields, such as */5 * * * *"),
    "JMSDeliveryMode": partial(_form, _MODE, "PERSISTENT or NON_PERSISTENT"),
    "JMSExpiration": _LONG,
    "JMSPriority": _INT,
    "JMSTimestamp": _LONG,
    "JMSXDeliveryCount": _INT,
    "JMSXGroupSeq": _INT,
}
#: Of Artemis, which confirms a message with another priority or a negative expiry and drops it, and closes at others.
ARTEMIS: Mapping[str, Rule] = {
    "priority": partial(_whole, 0, 9),
    "expires": _MILLISECONDS,
    "AMQ_SCHEDULED_DELAY": _LONG,
    "AMQ_SCHEDULED_TIME": _LONG,
    "destination-type": _type,
    "_AMQ_BRIDGE_DUP": _internal,
    "_AMQ_INGRESS_TIMESTAMP": _LONG,
    "_AMQ_ROUTE_TO": _internal,
    "_AMQ_ROUTING_TYPE": _internal,
}


def fault_in(rules: Mapping[str, Rule], name: str, value: object) -> str | None:
    """Return what the value of a header has to be for a broker; None if the broker takes it.

    >>> fault_in(ARTEMIS, "priority", "12"), fault_in(ACTIVEMQ, "priority", "12"), fault_in(ACTIVEMQ, "n", "x")
    ('a whole number from 0 to 9', None, None)
    """
    rule = rules.get(name)
    return rule(value) if rule is not None and isinstance(value, str) else None
