"""Checks of HTTP requests to the broker: by the page that sends them (Origin), and by the name used for us (Host).

A browser sends requests of any page to any address, even to this machine. So the page has to be allowed, and the host
name it used has to be ours, because an attacker can point a name of their own to this address (DNS rebinding). Programs
other than browsers send no Origin.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_SCHEME = "[a-z][a-z0-9+.-]*"
#: A host name (international ones as xn--), an IPv4 address, or an IPv6 address in brackets.
_HOST = r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?|\[[0-9a-f:.]+\]"
_ORIGIN = re.compile(rf"({_SCHEME})://({_HOST})(?::([0-9]{{1,5}}|\*))?", re.IGNORECASE | re.ASCII)
_AUTHORITY = re.compile(rf"({_HOST})(?::[0-9]{{0,5}})?", re.IGNORECASE | re.ASCII)
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
#: Schemes of pages.
_PAGES = ("http", "https")
_PROXY = ("forwarded", "via", "x-real-ip", "x-client-ip")
_MOST_SHOWN = 100


class Origin(NamedTuple):
    """The origin of a page: scheme, host and port."""

    scheme: str
    host: str
    port: int | None
    """None means any port."""


def origin_of(text: str, *, listed: bool = False) -> Origin:
    """Parse an origin as browsers write it: scheme, host, and a non-default port, without a path or trailing slash. If
    it is `listed` in the configuration, the port may be `*`. Anything else, and `null`, raises ValueError.

    >>> origin_of("HTTPS://App.Example:443") == origin_of("https://app.example.")
    True
    >>> origin_of("http://[::1]:*", listed=True)
    Origin(scheme='http', host='::1', port=None)
    """
    if text.lower() == "null":
        raise ValueError("Pages without an origin ('null': a file, or a sandboxed frame) may not use this broker")
    found = _ORIGIN.fullmatch(text)
    if found is None:
        raise ValueError(f"{_shown(text)} is not an origin such as https://app.example or http://localhost:3000")
    scheme, name, digits = found[1].lower(), found[2], found[3]
    if digits == "*":
        if not listed:
            raise ValueError(f"{_shown(text)} is not an origin: its port is not a number")
        return Origin(scheme, _normal(name), None)
    port = _PORTS.get(scheme, 0) if digits is None else int(digits)
    if port > 65535:
        raise ValueError(f"{_shown(text)} is not an origin: its port is above 65535")
    return Origin(scheme, _normal(name), port)


def host_of(text: str) -> str:
    """Parse the host of a Host header, or raise ValueError. The port is ignored, because it may be forwarded.

    >>> host_of("LOCALHOST.:15674"), host_of("[::1]"), host_of("[::ffff:127.0.0.1]:80")
    ('localhost', '::1', '127.0.0.1')
    """
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise ValueError(f"{_shown(text)} is not a host such as broker.example or 127.0.0.1:15674")
    return _normal(found[1])


def is_loopback(host: str) -> bool:
    """Return whether a host, as from `host_of`, can only be this machine: `localhost` or a loopback address.

    >>> is_loopback("localhost"), is_loopback("127.8.9.1"), is_loopback("::1"), is_loopback("127.0.0.1.evil.example")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def network_of(peer: str) -> str | None:
    """Return the address for which a peer such as "10.1.2.3:4711" counts; None if it has none. A client has all
    addresses of its /64, so an IPv6 address counts by that.

    >>> network_of("10.1.2.3:4711"), network_of("[2001:db8::1:2]:9"), network_of("[::1]:9"), network_of("/run/stomp")
    ('10.1.2.3', '2001:db8::', '::1', None)
    """
    host, _, port = peer.rpartition(":")
    address = _address(host.strip("[]")) if port else None
    if isinstance(address, ipaddress.IPv6Address) and not address.is_loopback:
        address = ipaddress.IPv6Address(int(address) >> 64 << 64)
    return None if address is None else str(address)


def far_network_of(peer: str) -> str | None:
    """Return the same; None for a peer of this machine, too, where all clients of a local proxy come from.

    >>> far_network_of("10.1.2.3:4711"), far_network_of("[::1]:9")
    ('10.1.2.3', None)
    """
    network = network_of(peer)
    return None if network is None or is_loopback(network) else network


def own_names(host: str) -> list[str]:
    """Return the host names implied by a listening address: none for loopback and wildcard addresses.

    >>> own_names("broker.example"), own_names("0.0.0.0"), own_names("127.0.0.1")
    (['broker.example'], [], [])
    """
    try:
        name = _plain_host(host.partition("%")[0])
    except ValueError:
        return []
    address = _address(name)
    if is_loopback(name) or (address is not None and address.is_unspecified):
        return []
    return [name]


def fault_of(origins: Iterable[str], hosts: Iterable[str]) -> str | None:
    """Return the error in the lists of a configuration, or None.

    >>> fault_of(["https://app.example", "http://localhost:*"], ["broker.example"])
    >>> fault_of(["*"], [])
    "'*' is not an origin such as https://app.example or http://localhost:3000"
    """
    try:
        Gate(origins, hosts, local=False)
    except ValueError as error:
        return str(error)
    return None


def is_forwarded(headers: Iterable[tuple[str, str]]) -> bool:
    """Return whether a proxy has passed a request on.

    >>> is_forwarded([("X-Forwarded-For", "192.0.2.1")]), is_forwarded([("Host", "localhost")])
    (True, False)
    """
    names = (name.lower() for name, _ in headers)
    return any(name in _PROXY or name.startswith("x-forwarded") for name in names)


def has_origin(headers: Iterable[tuple[str, str]]) -> bool:
    """Return whether a page has sent a request.

    >>> has_origin([("origin", "http://localhost")]), has_origin([])
    (True, False)
    """
    return any(name.lower() == "origin" for name, _ in headers)


def is_own_origin(headers: Iterable[tuple[str, str]]) -> bool:
    """Return whether the page that has sent a request came from the host and port to which the request goes.

    >>> is_own_origin([("Host", "localhost:15674"), ("Origin", "http://localhost:15674")])
    True
    >>> is_own_origin([("Host", "localhost:15674"), ("Origin", "http://localhost:3000")])
    False
    """
    found = list(headers)
    hosts = [value for name, value in found if name.lower() == "host"]
    origins = [value for name, value in found if name.lower() == "origin"]
    if len(hosts) != 1 or len(origins) != 1:
        return False
    try:
        origin = origin_of(origins[0])
        return origin.scheme in _PAGES and origin == origin_of(f"{origin.scheme}://{hosts[0]}")
    except ValueError:
        return False


class Gate:
    """The check that each HTTP request has to pass.

    `origins` are the entries of `websocket.origins`; None for loopback names and addresses if the broker listens on
    those only (`local`), otherwise none. With `own`, the origin of the broker itself is among them. `hosts` are names
    and addresses of the broker besides loopback. They are also accepted behind a proxy.

    >>> gate = Gate(None, ["broker.example"], local=True)
    >>> gate.refusal("/", [("Host", "localhost:15674"), ("Origin", "http://127.0.0.1:3000")])
    >>> gate.refusal("/", [("Host", "broker.example")])
    >>> gate.refusal("/", [("Host", "localhost"), ("Origin", "null")])[:30]
    "Pages without an origin ('null"
    """

    def __init__(self, origins: Iterable[str] | None, hosts: Iterable[str], *, local: bool, own: bool = False) -> None:
        self._origins = None if origins is None else frozenset(origin_of(text, listed=True) for text in origins)
        self._hosts = frozenset(_plain_host(text) for text in hosts)
        self._local = local
        self._own = own

    def refusal(self, target: str, headers: Sequence[tuple[str, str]], address: str = "") -> str | None:
        """Return why a request is refused, in words for its sender, or None if it is accepted. `address` is our own one
        on this connection, which is accepted as Host, too.
        """
        passed_on = is_forwarded(headers)
        try:
            self._check_host(target, [value for name, value in headers if name.lower() == "host"], address, passed_on)
            if self._own and is_own_origin(headers):
                return None
            self._check_origin([value for name, value in headers if name.lower() == "origin"], passed_on)
        except ValueError as error:
            return f"{str(error).rstrip('.')}."
        return None

    def _check_host(self, target: str, hosts: list[str], address: str, passed_on: bool) -> None:
        if not target.startswith("/"):  # an absolute URL there would replace the Host header
            raise ValueError(f"The target of the request, {_shown(target)}, is not a path.")
        if len(hosts) != 1:
            raise ValueError(f"There must be one Host header, not {len(hosts)}.")
        host = host_of(hosts[0])
        if host in self._hosts:
            return
        if is_loopback(host):
            if passed_on:
                raise ValueError(
                    f"A proxy passed this request on, so the host {_shown(hosts[0])} does not name this broker: have "
                    "the proxy send the name that clients use as Host, and list it in websocket.hosts of the broker."
                )
        elif passed_on or not _same(host, address):
            raise ValueError(
                f"The host {_shown(hosts[0])} does not name this broker: list it in websocket.hosts of the broker."
            )

    def _check_origin(self, origins: list[str], passed_on: bool) -> None:
        if not origins:  # not a browser
            return
        if len(origins) != 1:
            raise ValueError(f"There must be one Origin header at most, not {len(origins)}.")
        origin = origin_of(origins[0])
        if self._origins is not None:
            allowed = origin in self._origins or origin._replace(port=None) in self._origins
        else:
            allowed = self._local and not passed_on and origin.scheme in _PAGES and is_loopback(origin.host)
        if not allowed:
            why = " since a proxy passed it on" if passed_on and self._origins is None else ""
            raise ValueError(
                f"Pages of {_shown(origins[0])} may not use this broker{why}: list that origin in websocket.origins of "
                "the broker."
            )


def _normal(host: str) -> str:
    """Normalize a host: lower case, no trailing dot, addresses as Python writes them, IPv4-mapped IPv6 as IPv4."""
    host = host.lower()
    if host.startswith("["):
        address = _address(host[1:-1])
        if address is None or ":" not in host:
            raise ValueError(f"{_shown(host)} is not an IPv6 address")
        return str(address)
    host = host.removesuffix(".")
    address = _address(host)
    return host if address is None else str(address)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _plain_host(text: str) -> str:
    """Return a host of the configuration: without a port, an IPv6 address with or without brackets."""
    bare = f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text
    if re.fullmatch(_HOST, bare, re.IGNORECASE | re.ASCII) is None:
        raise ValueError(
            f"{_shown(text)} is not a host such as broker.example or 10.1.2.3; a port does not belong to it"
        )
    return _normal(bare)


def _same(host: str, address: str) -> bool:
    """Return whether a host is that address. Unlike a name, an address cannot be made to point elsewhere."""
    own = _address(address)
    return own is not None and not own.is_unspecified and host == str(own)


def _shown(text: str) -> str:
    return ascii(text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…")
