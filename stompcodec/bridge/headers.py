"""The rules by which headers of a MESSAGE become those of a SEND to another broker. docs/bridge.md has the table."""

from __future__ import annotations

import ipaddress
import platform
import re
import socket
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import NamedTuple

from stompcodec.client.dialects import BROKERS
from stompcodec.client.headers import TEMPORARY, AsIs, fault_in, of
from stompcodec.codec import Frame, Headers
from stompcodec.uri import Address

#: The header with the names of the brokers that a message was carried from, first to last, with commas between.
PATH = "bridge-path"
#: The most brokers in a path: a longer one is a circle whose brokers have several names.
MOST_HOPS = 16
_MOST_NAME = 255


def broker_name(addresses: list[Address]) -> str:
    """Return the name of a broker in paths and keys: host:port, with the virtual host if the URL has one.

    A list for failover is one broker, whatever its order; the loopback interface is this machine.
    """
    return min(_name(address) for address in addresses)


def _name(address: Address) -> str:
    host = platform.node().lower() if _is_loopback(address.host) else _folded(address.host)
    vhost = "" if address.vhost is None else f"/{address.vhost}"
    return f"{host}:{address.port}{vhost}".replace(",", "%2C").replace(" ", "%20")


def check_name(name: str) -> str:
    """Return the name that a user gave a broker. Raise ValueError if it cannot stand in a path."""
    if not name or not name.isprintable() or "," in name or name != name.strip() or len(name) > _MOST_NAME:
        raise ValueError(f"{name[:80]!r}: a name has 1 to {_MOST_NAME} printable characters, without commas")
    return name


def _folded(host: str) -> str:
    """Return a host for comparisons: in lower case, without the dot that may end a complete name."""
    return host.lower().removesuffix(".")


def _is_loopback(host: str) -> bool:
    """Return whether a host is the loopback interface, to which a connection to 0.0.0.0 leads, too."""
    if _folded(host) == "localhost":
        return True
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    address = getattr(found, "ipv4_mapped", None) or found
    return address.is_loopback or address.is_unspecified


def same_broker(one: list[Address], other: list[Address]) -> bool:
    """Return whether two URLs lead to one broker: the same host, by name or address, port and virtual host.

    It resolves host names, and does not connect. Two ports of one broker are noticed
    only once both are connected to: see `may_be_one`.
    """
    return any(_is_same(a, b) for a in one for b in other)


def _is_same(one: Address, other: Address) -> bool:
    if one.port != other.port or (one.vhost or "") != (other.vhost or ""):
        return False
    return _folded(one.host) == _folded(other.host) or not _resolved(one.host).isdisjoint(_resolved(other.host))


def may_be_one(one: list[Address], other: list[Address]) -> bool:
    """Return whether two URLs lead to one machine, where one broker may have several ports and virtual hosts."""
    hosts = ({each for address in addresses for each in _machine(address.host)} for addresses in (one, other))
    return not set.isdisjoint(*hosts)


def _machine(host: str) -> set[str]:
    own = _resolved(platform.node()) if _is_loopback(host) else set()
    return {_folded(host), *_resolved(host), *own}


def _resolved(host: str) -> set[str]:
    if _is_loopback(host):
        return {"127.0.0.1", "::1"}
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return set()


def extended(path: str | None, source: str) -> str:
    """Return the path of a message that is carried from a source."""
    return f"{path},{source}" if path else source


def circle(path: str | None, source: str, target: str) -> str | None:
    """Return why a message must not be carried on, or None: its path has this source, or this target."""
    if not path:
        return None
    names = path.split(",")
    for name in (target, source):
        if name in names:
            return f"loop: it was carried from {name} before (bridge-path: {path[:_MOST_NAME]})"
    if len(names) >= MOST_HOPS:
        return f"loop: it was carried {len(names)} times (bridge-path: {path[:_MOST_NAME]})"
    return None


def idempotency_key(source: str, destination: str, ident: str) -> str:
    """Return the key of a message, which is the same each time that it is carried: from the name of the source, the
    destination in its spelling, and the message's lasting name there.

    >>> idempotency_key("a:61613", "/queue/a", "7"), len(idempotency_key("a", "b" * 4000, "c"))
    ('bridge-8ec564878eaeffa8a677ec57f8b22070', 39)
    """
    digest = blake2b(digest_size=16)
    for part in (source, destination, ident):
        octets = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(octets), octets))
    return f"bridge-{digest.hexdigest()}"


#: Put before the name of a header that says something about the source.
ORIGINAL = "original-"
#: Headers that were left out because the target does not take them, by name.
DROPPED = "bridge-dropped"
#: Headers that were percent-encoded, by their new names.
ESCAPED = "bridge-escaped"
#: The header in which our broker shows where in its queue a message is.
SEQ = "bridge-seq"
#: The header of dead letters that keeps them out of subscriptions by wildcard. A name that selectors can have.
REFUSED = "bridge_refused"
#: The headers by which a dead letter says why it was refused, and where it was to go.
_REASON, _TARGET = "dead-letter-reason", "bridge-target"
#: Headers of one delivery, or between a client and its broker: the target would misunderstand or ignore them.
DELIVERY = of("delivery") | {DROPPED, ESCAPED, REFUSED, PATH}
#: Headers that the source made, or that asked it for something. They stay readable under ORIGINAL.
SOURCES = of("place", "key", "schedule", "made", "stamp", "death")
#: Arguments for a queue that a SEND makes. They applied to the queue at the source.
ARGUMENTS = of("argument", "type")
_YES = frozenset({"true", "1", "2"})
#: Milliseconds, as all brokers take them.
_NUMBER = re.compile(r"[0-9]{1,18}")
_PRIORITY = re.compile(r"[0-9]{1,3}")
#: The values of these headers that each broker takes.
_FORMS = {"expires": _NUMBER, "expiration": _NUMBER, "JMSXGroupSeq": re.compile(r"-?[0-9]{1,9}")}


class Taker(NamedTuple):
    """The headers of SEND that a broker understands, and its limits."""

    name: str
    expires: bool = True
    """It knows `expires`, in milliseconds since 1970."""
    expiration: bool = False
    """It knows `expiration`, in milliseconds from now on."""
    repeated: bool = False
    """It keeps more than the first of several headers of one name."""
    arguments: bool = False
    """It reads `ARGUMENTS`."""
    line: int = 60_000
    """Bytes of the longest header."""
    most: int = 900
    """The most headers."""
    most_priority: int = 9


#: By the name of the dialect; `stompcodec` is our own broker in every dialect.
TAKERS: dict[str, Taker] = {
    taker.name: taker
    for taker in (
        Taker("stompcodec", expiration=True, repeated=True, arguments=True),
        Taker("rabbitmq", expires=False, expiration=True, arguments=True, most_priority=255),
        Taker("activemq", line=10_000),
        Taker("artemis", arguments=True),
        Taker("unknown", expiration=True, arguments=True),
    )
}

#: Characters that versions before 1.2 cannot write in a value, and in a name.
_UNWRITABLE = {"1.0": ("\r\n\0", "\r\n\0:"), "legacy": ("\r\n\0", "\r\n\0:"), "1.1": ("\r\0", "\r\0")}


class Hop(NamedTuple):
    """The way from one broker to another, which turns the headers of a MESSAGE into those of a SEND."""

    source: str
    """The name of the source, for paths."""
    giver: str
    """The dialect of the source: a key of `TAKERS`."""
    taker: str
    """The dialect of the target."""
    version: str
    """The STOMP version at the target."""
    target_of: Callable[[str], str | None] = lambda destination: None
    """Returns where the messages of a destination go, for reply-to."""
    persistent: bool = False
    """Mark every message as persistent."""
    text: bool | None = None  # as `Way.text`

    def headers(self, pairs: Iterable[tuple[str, str]], key: str | None, now: float) -> AsIs:
        """Return the headers of the SEND, without destination, from those of the MESSAGE and the idempotency key."""
        taker = TAKERS[self.taker]
        given = list(pairs)
        names = {name for name, _ in given}
        path: str | None = None
        kept: list[tuple[str, str]] = []
        seen: set[str] = set()
        for name, value in given:
            if name == PATH and path is None:
                path = value
            if name in DELIVERY or (name in seen and not taker.repeated):
                continue
            seen.add(name)
            kept += self._one(taker, name, value, names, now)
        if self.persistent:
            kept = [pair for pair in kept if pair[0] != "persistent"] + [("persistent", "true")]
        kept = self._written(taker, kept)
        kept.append((PATH, extended(path, self.source)))
        if key is not None:
            kept.append((BROKERS[self.taker].duplicate, key))
        return AsIs(kept)

    def body(self, frame: Frame) -> bytes | str:
        """Return the body: as text if this is a text message, or its content-type says so."""
        is_typed = self.text is None and (frame.get("content-type") or "").startswith("text/")
        return BROKERS[self.giver].body_of(frame, is_typed or self.text)

    def _one(self, taker: Taker, name: str, value: str, names: set[str], now: float) -> list[tuple[str, str]]:
        """Return the headers of the SEND for one header of the MESSAGE."""
        if name in ("expires", "expiration"):
            return self._expiry(taker, name, value, now)
        if name == "reply-to":
            if not value.startswith(TEMPORARY) and taken_value(taker, name, value) is not None:
                return [(name, self.target_of(value) or value)]
        elif name not in SOURCES and not (taker.arguments and name in ARGUMENTS):
            taken = taken_value(taker, name, value)
            if taken is not None:
                return [(name, taken)]
        return [] if ORIGINAL + name in names else [(ORIGINAL + name, value)]  # the first origin stays

    def _expiry(self, taker: Taker, name: str, value: str, now: float) -> list[tuple[str, str]]:
        """Return the expiry in the form that the target reads. A point in time stays the same."""
        if not _NUMBER.fullmatch(value):
            return [(ORIGINAL + name, value)]
        if getattr(taker, name):
            return [(name, value)]
        millis = round(now * 1000)
        if name == "expiration":
            return [("expires", str(millis + int(value)))]
        if not int(value):  # never
            return []
        return [("expiration", str(max(int(value) - millis, 0)))]

    def _written(self, taker: Taker, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Escape characters that the version cannot write, and leave out headers that exceed a limit of the target."""
        in_value, in_name = _UNWRITABLE.get(self.version, ("", ""))
        escaped: list[str] = []
        dropped: list[str] = []
        written: list[tuple[str, str]] = []
        for name, value in pairs:
            pair = name, value
            if any(letter in in_name for letter in name) or any(letter in in_value for letter in value):
                pair = _percent(name, in_name), _percent(value, in_value)  # both: the reader decodes both
                escaped.append(pair[0])
            if len(pair[0].encode()) + len(pair[1].encode()) + 1 > taker.line or len(written) >= taker.most:
                dropped.append(pair[0][:100])
            else:
                written.append(pair)
        for name, which in ((ESCAPED, escaped), (DROPPED, dropped)):
            if which:
                written.append((name, " ".join(which)[: taker.line // 8]))
        return written


def taken_value(taker: Taker, name: str, value: str) -> str | None:
    """Return the value of a header as a broker takes it; None for one that makes it refuse the message."""
    if name == "persistent":
        return "true" if value.strip(" ").lower() in _YES else "false"
    if name == "priority":
        digits = value.strip(" ")
        return str(min(int(digits), taker.most_priority)) if _PRIORITY.fullmatch(digits) else None
    if name not in _FORMS:
        rules = BROKERS[taker.name].values
        return value if name not in rules or fault_in(rules, name, value) is None else None
    return value.strip(" ") if _FORMS[name].fullmatch(value.strip(" ")) else None


def dead_letter(headers: Headers, target: str, reason: str, broker: str = "stompcodec") -> list[tuple[str, str]]:
    """Return the headers of a dead letter: those of the message, and why it was refused. `broker`, whose dead letter it
    is, is a key of `TAKERS`.
    """
    made = {"destination", "message-id", "expires", "expiration", "delay", "x-delay", _REASON, _TARGET, REFUSED}
    made |= {"idempotency-key", "_AMQ_DUPL_ID", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_CRON"}
    given = headers.pairs()
    kept = [pair for pair in given if pair[0] not in made and (pair[0] not in DELIVERY or pair[0] == PATH)]
    letter: list[tuple[str, str]] = []
    names = {name for name, _ in kept}
    origin = [(ORIGINAL + name, headers[name]) for name in ("destination", "message-id") if name in headers]
    for name, value in kept:
        taken = None if name in ARGUMENTS else taken_value(TAKERS[broker], name, value)
        if taken is not None:
            letter.append((name, taken))
        else:
            origin.append((ORIGINAL + name, value))
    letter += [pair for pair in origin if pair[0] not in names]
    return [*letter, (_REASON, reason), (_TARGET, target), (REFUSED, "true")]


def _percent(text: str, bad: str) -> str:
    """Return text with these characters, and the percent sign, percent-encoded."""
    return "".join(f"%{ord(letter):02X}" if letter in bad or letter == "%" else letter for letter in text)
