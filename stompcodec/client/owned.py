"""The headers by which the client keeps account. A program gives them by arguments, never in `headers=`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from stompcodec.client.headers import LEFT, is_received
from stompcodec.codec import Frame

HeaderSource = Mapping[str, str] | Iterable[tuple[str, str]]

_DELIVERED = "only a received message has it: leave it out"
_SETTLED = "the client names the message to the broker itself: leave it out"
_RECEIPT = "use receipt=True"

#: Command, or kind of SEND -> header that belongs to the client -> what to use instead.
OWNED: dict[str, dict[str, str]] = {
    "CONNECT": {
        "receipt": "CONNECTED is the answer to CONNECT",
        "transaction": "use client.transaction()",
    },
    "SEND": {
        "destination": "use the argument destination",
        "message-id": _DELIVERED,
        "receipt": f"{_RECEIPT}, or receipt_every= of send_many",
        "subscription": _DELIVERED,
        "transaction": "use client.transaction(), or transaction= of send_many",
    },
    "SUBSCRIBE": {
        "ack": "use ack=",
        "destination": "use the argument destination",
        "id": "use id=",
        "message-id": _DELIVERED,
        "receipt": "the client asks for one itself: see confirm= of subscribe",
        "subscription": "use id=",
        "transaction": "a transaction has only SEND, ACK and NACK",
    },
    "ACK": {
        "id": _SETTLED,
        "message-id": _SETTLED,
        "receipt": _RECEIPT,
        "subscription": _SETTLED,
        "transaction": "use transaction.ack()",
    },
}
OWNED["RECEIVE"] = OWNED["SUBSCRIBE"]
#: Of a Frame, which names its destination itself.
OWNED["frame"] = {name: OWNED["SEND"][name] for name in ("receipt", "transaction")}
#: For one fast look at the headers of a SEND.
SENT = frozenset(OWNED["SEND"])
#: More of them for the SEND of a request.
REQUEST = {
    "correlation-id": "client.request() matches the reply by it",
    "reply-to": "client.request() names its own queue",
}
OWNED["request"] = OWNED["SEND"] | REQUEST
OWNED["reply"] = OWNED["SEND"]
#: Header of CONNECT -> the option that writes it.
WRITTEN = {
    "accept-version": "versions",
    "client-id": "client_id",
    "heart-beat": "heart_beat",
    "host": "vhost",
    "login": "login",
    "passcode": "passcode",
    "username": "login",
}
#: The rows of `OWNED` that take the headers of a received message -> the headers that they leave out of them.
_FORWARDS = {"ACK": LEFT | {"id"}, "SEND": LEFT, "frame": LEFT - {"destination"}}
_FORWARDS |= {"reply": LEFT | {"correlation-id"}, "request": LEFT | REQUEST.keys()}


def pairs_of(command: str, headers: HeaderSource) -> Iterable[tuple[str, str]]:
    """Return the pairs of the argument `headers`; the name of a row of `OWNED` says what they are for.

    Those of a received message, or a copy of them, lose what belongs to its delivery.

    Raises:
        TypeError: they are neither a mapping nor pairs.
        ValueError: one of them belongs to the client.
    """
    owned = OWNED[command]
    if type(headers) is list:  # a loop is the fastest for a few of them
        try:
            for name, _ in headers:
                if name in owned:
                    break
            else:
                return headers
        except (TypeError, ValueError):  # no pairs: said below
            pass
    pairs: Iterable[tuple[str, str]]
    names: Collection[str]
    if type(headers) is not list and isinstance(headers, Mapping):
        pairs, names = headers.items(), headers
    else:
        try:
            pairs = list(headers)
            names = {name for name, _ in pairs}
        except (TypeError, ValueError):
            raise TypeError(f"headers is {headers!r:.60}: it must be a mapping or pairs of name and value") from None
    if not owned.keys().isdisjoint(names):
        if command in _FORWARDS and is_received(names):
            return _without(_FORWARDS[command], pairs)
        own = owned_of(command, names)
        if own is not None:
            raise ValueError(f"headers= holds {own!r}, which belongs to the client: {owned[own]}")
    return pairs


def sendable(frame: Frame) -> Frame:
    """Return a SEND of the program as it may be sent: without what its headers have for the delivery of a message."""
    if "message-id" not in frame.headers or "subscription" not in frame.headers:
        return frame
    return Frame(frame.command, _without(_FORWARDS["frame"], frame.headers.pairs()), frame.body)


def _without(left: Collection[str], pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [pair for pair in pairs if pair[0] not in left]


def owned_of(command: str, names: Iterable[str]) -> str | None:
    """Return the first of these names that belongs to the client; None if they may be sent."""
    given, owned = list(names), OWNED[command]
    if command in _FORWARDS and is_received(given):
        return None
    return next((name for name in given if name in owned), None)
