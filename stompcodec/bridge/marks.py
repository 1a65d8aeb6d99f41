"""Marks of carried messages: the brokers they came through, and the key by which a target stores each once."""

from __future__ import annotations

import ipaddress
import platform
import socket
from hashlib import blake2b

from stompcodec.uri import Address

#: The header with the names of the brokers that a message was carried from, first to last, with commas between.
PATH = "bridge-path"
#: The most brokers in a path: a longer one is a circle whose brokers have several names.
MOST_HOPS = 16
_MOST_NAME = 255


def broker_name(addresses: list[Address]) -> str:
    """Return the name of a broker in paths and keys: host:port, with the virtual host if the URL has one.

    A list for failover is one broker, whatever its order; the loopback interface is this machine.

    >>> from stompcodec.uri import parse_uri
    >>> broker_name(parse_uri("stomp://ann:secret@Orders.example/eu"))
    'orders.example:61613/eu'
    """
    return min(_name(address) for address in addresses)


def _name(address: Address) -> str:
    host = platform.node().lower() if _is_loopback(address.host) else _folded(address.host)
    vhost = "" if address.vhost is None else f"/{address.vhost}"
    return f"{host}:{address.port}{vhost}".replace(",", "%2C").replace(" ", "%20")


def check_name(name: str) -> str:
    """Check the name that a user gave a broker, and return it.

    Raises:
        ValueError: it cannot stand in a path.

    >>> check_name("north")
    'north'
    """
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

    >>> from stompcodec.uri import parse_uri
    >>> same_broker(parse_uri("stomp://localhost"), parse_uri("failover:(stomp://a.invalid:1,tcp://127.0.0.1:61613)"))
    True
    """
    return any(_is_same(a, b) for a in one for b in other)


def _is_same(one: Address, other: Address) -> bool:
    if one.port != other.port or (one.vhost or "") != (other.vhost or ""):
        return False
    return _folded(one.host) == _folded(other.host) or not _resolved(one.host).isdisjoint(_resolved(other.host))


def may_be_one(one: list[Address], other: list[Address]) -> bool:
    """Return whether two URLs lead to one machine, where one broker may have several ports and virtual hosts.

    >>> from stompcodec.uri import parse_uri
    >>> may_be_one(parse_uri("stomp://localhost"), parse_uri("ws://127.0.0.1:15674/ws"))
    True
    """
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
    """Return the path of a message that is carried from a source.

    >>> extended(None, "a:61613"), extended("a:61613", "b:61613")
    ('a:61613', 'a:61613,b:61613')
    """
    return f"{path},{source}" if path else source


def circle(path: str | None, source: str, target: str) -> str | None:
    """Return why a message must not be carried on, or None: its path has this source, or this target.

    >>> circle("a:61613", "b:61613", "a:61613")
    'loop: it was carried from a:61613 before (bridge-path: a:61613)'
    >>> circle("a:61613", "b:61613", "c:61613") is None
    True
    """
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
    """Return the key of a message, which is the same each time that it is carried.

    Args:
        source: the name of the broker.
        destination: in the broker's spelling.
        ident: its lasting name there.

    >>> idempotency_key("a:61613", "/queue/a", "7"), len(idempotency_key("a", "b" * 4000, "c"))
    ('bridge-8ec564878eaeffa8a677ec57f8b22070', 39)
    """
    digest = blake2b(digest_size=16)
    for part in (source, destination, ident):
        octets = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(octets), octets))
    return f"bridge-{digest.hexdigest()}"
