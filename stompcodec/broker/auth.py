"""Authentication and authorization: a table of users, and a table of rules for sending and subscribing.

Passcodes are stored as scrypt hashes. scrypt is slow by design, so its use is bounded. After a user's first correct
passcode, a digest under a key of this process is remembered, and later passcodes are compared with it in microseconds.
Otherwise token buckets limit how often anyone can make the broker compute a hash: one for all, and one of half the size
for each address. After a wrong passcode, an address leaves half of the tokens to the first logins of others.

A refusal takes as long for an unknown name as for a known one, whether that has logged in before or not: each costs a
hash while there are tokens. A repeated attempt is refused from memory.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import ipaddress
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    it is `listed` in the configuration, the port may be `*`. `null`, of files and sandboxed frames, is one. Raise
    ValueError for anything else.

    >>> origin_of("HTTPS://App.Example:443") == origin_of("https://app.example.")
    True
    >>> origin_of("http://[::1]:*", listed=True)
    Origin(scheme='http', host='::1', port=None)
    """
    if text == "null":
        return Origin(text, "", 0)
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
    """Return whether a host, as from `host_of`, can only be this machine: `localhost` or a loopback address."""
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
    """Return the same; None for a peer of this machine, too, where all clients of a local proxy come from."""
    network = network_of(peer)
    return None if network is None or is_loopback(network) else network


def own_names(host: str) -> list[str]:
    """Return the host names implied by a listening address: none for loopback and wildcard addresses."""
    try:
        name = _plain_host(host.partition("%")[0])
    except ValueError:
        return []
    address = _address(name)
    if is_loopback(name) or (address is not None and address.is_unspecified):
        return []
    return [name]


def fault_of(origins: Iterable[str], hosts: Iterable[str]) -> str | None:
    """Return the error in the lists of a configuration, or None."""
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
    """Return whether a page has sent a request."""
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
    >>> gate.refusal("/", [("Host", "localhost"), ("Origin", "null")])[-52:]
    'list that origin in websocket.origins of the broker.'
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


_N, _R, _P = 2**14, 8, 1
_MOST_N = 2**17
_MOST_PASSCODE = 1024
#: Number of scrypt runs allowed in a burst of first logins, and per second after that. One run takes about 40 ms.
_BURST, _RATE = 20.0, 2.0
#: Seconds after a wrong passcode in which an address leaves half of them to others.
_SUSPECT = 60.0
#: Addresses with a bucket of their own; the one that was quiet for longest is forgotten.
_MOST_ADDRESSES = 1024
#: Refused attempts that are remembered.
_MOST_REFUSED = 256


@dataclass(frozen=True)
class User:
    """A user who may connect.

    Args:
        name: the login.
        passcode: its hash, from `hash_passcode`.
        groups: names that rules can refer to as "@NAME".
        vhosts: the virtual hosts open to this user; () for all.
        vhost: the virtual host of this user's session; "" in the table of users.

    >>> User("guest", passcode="scrypt$...")
    User(name='guest', groups=(), vhosts=(), vhost='')
    """

    name: str
    passcode: str = field(default="", repr=False)
    groups: tuple[str, ...] = ()
    vhosts: tuple[str, ...] = ()
    vhost: str = ""


@dataclass(frozen=True)
class Rule:
    """A rule that allows or forbids an action. The first rule that matches decides.

    Args:
        who: the name of a user, "@" and the name of a group, or "*" for everyone.
        action: "send", "subscribe", "*" for both, or "manage" for management, which "*" does not include.
        destination: a pattern; "*" matches any characters, or none.
        vhost: a virtual host, or "*" for all.
        allow: the decision.

    >>> Rule("@staff", "send", "/queue/orders.*")
    Rule(who='@staff', action='send', destination='/queue/orders.*', vhost='*', allow=True)
    """

    who: str = "*"
    action: str = "*"
    destination: str = "*"
    vhost: str = "*"
    allow: bool = True


class _Bucket:
    """Tokens that are taken, and come back at a rate."""

    __slots__ = ("_filled", "_most", "_rate", "failed", "tokens")

    def __init__(self, most: float, rate: float) -> None:
        self.tokens = self._most = most
        self._rate = rate
        self._filled: float | None = None
        #: When a hash was computed in vain.
        self.failed = -math.inf

    def fill(self, now: float) -> None:
        """Add the tokens that have come back."""
        if self._filled is not None:
            self.tokens = min(self._most, self.tokens + max(0.0, now - self._filled) * self._rate)
        self._filled = now

    def take(self) -> bool:
        """Take a token. Return whether there was one."""
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True

    def give(self) -> None:
        """Put a token back."""
        self.tokens = min(self._most, self.tokens + 1.0)


class Auth:
    """The users and rules of a broker.

    Args:
        users: by login; None to accept any login, or none.
        rules: in order of evaluation. Without rules about sending and subscribing everything is allowed; with them,
            anything no rule allows is forbidden.

    Raises ValueError if a user's passcode is not a hash.

    >>> auth = Auth({"ada": User("ada", hash_passcode("secret", n=16))}, [Rule("ada", "send", "/queue/a.*")])
    >>> ada = auth.login("ada", "secret", "/", now=0.0)
    >>> auth.may(ada, "send", "/queue/a.b"), auth.may(ada, "subscribe", "/queue/a.b")
    (True, False)
    >>> auth.login("ada", "wrong", "/", now=0.0) is None
    True
    """

    def __init__(self, users: Mapping[str, User] | None = None, rules: Iterable[Rule] = ()) -> None:
        #: An empty hash: this user cannot log in.
        self._users = None if users is None else {name: user for name, user in users.items() if user.passcode}
        self._rules = tuple(rules)
        self._key = os.urandom(32)
        self._known: dict[str, bytes] = {}
        self._refused: dict[bytes, None] = {}
        self._bucket = _Bucket(_BURST, _RATE)
        self._buckets: dict[str, _Bucket] = {}
        #: Hashes that unknown names are compared with, so that they take as long as known ones.
        self._hashes = [user.passcode for user in (self._users or {}).values()]
        for hashed in self._hashes:
            parse_hash(hashed)

    def login(
        self, login: str | None, passcode: str | None, vhost: str, now: float, address: str | None = None
    ) -> User | None:
        """Return the user, or None if the login is refused. `login` and `passcode` are None if CONNECT lacks them,
        `vhost` is the requested virtual host or the default. `now`, a monotonic time in seconds, and the client's
        `address` (None without one) limit slow hashing.
        """
        if self._users is None:
            return User(login or "", vhost=vhost)
        if not passcode or len(passcode) > _MOST_PASSCODE:
            return None
        user = self._users.get(login or "")
        if not self._right(login or "", user, passcode, now, address):
            return None
        if user is None or (user.vhosts and vhost not in user.vhosts):
            return None
        return replace(user, passcode="", vhost=vhost)

    def owner(self, user: User) -> str | None:
        """Return the owner of what a user creates: its name, or None if any login is accepted."""
        return None if self._users is None else user.name

    def _right(self, login: str, user: User | None, passcode: str, now: float, address: str | None) -> bool:
        digest = self._digest(passcode)
        known = None if user is None else self._known.get(user.name)
        if known is not None and hmac.compare_digest(known, digest):
            return True
        attempt = self._digest(f"{len(login)} {login}{passcode}")
        if attempt in self._refused or not self._take_token(now, address):
            return False
        if user is not None and known is None:
            if check_hash(passcode, user.passcode):
                self._known[user.name] = digest
                self._bucket.give()  # knowing the passcode, this is not an attacker
                if address is not None:
                    self._buckets[address].give()
                return True
        elif self._hashes:  # each name has always the same one, like a known name
            check_hash(passcode, self._hashes[int.from_bytes(self._digest(login)[:8], "big") % len(self._hashes)])
        if address is not None:
            self._buckets[address].failed = now
        if len(self._refused) >= _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        self._refused[attempt] = None
        return False

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")

    def _take_token(self, now: float, address: str | None) -> bool:
        self._bucket.fill(now)
        if address is None:
            return self._bucket.take()
        own = self._buckets.pop(address, None)
        if own is None:
            own = _Bucket(_BURST / 2, _RATE / 2)
            if len(self._buckets) >= _MOST_ADDRESSES:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[address] = own  # the latest last
        own.fill(now)
        least = 1.0 if now - own.failed > _SUSPECT else 1.0 + _BURST / 2
        return own.tokens >= 1.0 and self._bucket.tokens >= least and self._bucket.take() and own.take()

    def may(self, user: User, action: str, destination: str) -> bool:
        """Return whether a user may "send" or "subscribe" to a destination. Sessions cache the answer."""
        for rule in self._rules:
            if self._concerns(rule, user, action) and matches(rule.destination, destination):
                return rule.allow
        return not self._limits

    def may_all(self, user: User, action: str, head: str, *, some: bool = False) -> bool:
        """Return whether a user may certainly do something to every destination that begins with `head`; with `some`,
        whether perhaps to some of them.

        >>> auth = Auth(rules=[Rule("*", "*", "/topic/a.secret", allow=False), Rule("*", "*", "/topic/*")])
        >>> auth.may_all(User("x"), "subscribe", "/topic/a."), auth.may_all(User("x"), "subscribe", "/topic/b.")
        (False, True)
        """
        for rule in self._rules:
            if not self._concerns(rule, user, action):
                continue
            first, star, rest = rule.destination.partition("*")
            below = star != "" and head.startswith(first)
            covers, overlaps = below and not rest, below or first.startswith(head)
            if overlaps if rule.allow is some else covers:
                return rule.allow
        return not self._limits

    def manages(self, user: User, answers: str) -> bool:
        """Return whether a rule allows a user any request to management, so that it may subscribe to `answers` even if
        no rule allows that. A rule that forbids it binds managers, too, unless it is about all destinations.
        """
        forbids = (rule for rule in self._rules if not rule.allow and rule.destination != "*")
        if any(self._concerns(rule, user, "subscribe") and matches(rule.destination, answers) for rule in forbids):
            return False
        return any(rule.allow and self._concerns(rule, user, "manage") for rule in self._rules)

    @property
    def _limits(self) -> bool:
        """Some rule is about sending or subscribing, which are limited to what rules allow then."""
        return any(rule.action != "manage" for rule in self._rules)

    def may_manage(self, user: User, name: str, *, local: bool) -> bool:
        """Return whether a user may send a request of that name, such as "/management/purge".

        With users, a rule has to allow it. Without users, every client of this machine (`local`) may, unless a rule
        forbids it, and no other.

        >>> Auth().may_manage(User("ada"), "/management/purge", local=True)
        True
        >>> Auth({"ada": User("ada")}).may_manage(User("ada"), "/management/purge", local=True)
        False
        """
        for rule in self._rules:
            if self._concerns(rule, user, "manage") and matches(rule.destination, name):
                return rule.allow and (local or self._users is not None)
        return local and self._users is None

    @staticmethod
    def _concerns(rule: Rule, user: User, action: str) -> bool:
        return (
            (rule.action == action or (rule.action == "*" and action != "manage"))
            and rule.vhost in ("*", user.vhost)
            and (rule.who in ("*", user.name) or (rule.who[:1] == "@" and rule.who[1:] in user.groups))
        )


def matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern in which "*" stands for any characters, in linear time.

    >>> matches("/queue/*.orders.*", "/queue/eu.orders.new"), matches("/queue/a", "/queue/ab")
    (True, False)
    """
    first, *rest = pattern.split("*")
    if not rest:
        return text == first
    last = rest.pop()
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in rest:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def hash_passcode(passcode: str, *, salt: bytes | None = None, n: int = _N) -> str:
    """Return a passcode in the form of a configuration: "scrypt$N$R$P$SALT$HASH", with salt (random if None) and hash
    in base64. `n` is the cost, a power of two. Raise ValueError unless a passcode has 1 to 1024 characters.

    >>> hash_passcode("guest", salt=b"12345678", n=16)
    'scrypt$16$8$1$MTIzNDU2Nzg=$ZTZXY7xxTdKQifYD05gfW1G2BIsM+mUzmYWyLN76XDI='
    """
    if not 0 < len(passcode) <= _MOST_PASSCODE:
        raise ValueError(f"a passcode has 1 to {_MOST_PASSCODE} characters")
    salt = os.urandom(16) if salt is None else salt
    digest = _scrypt(passcode, salt, n, _R, _P)
    return "$".join(["scrypt", str(n), str(_R), str(_P), _text(salt), _text(digest)])


def check_hash(passcode: str, hashed: str) -> bool:
    """Return whether a hash was made from a passcode, in constant time. Raise ValueError if it is not in the form of
    `hash_passcode`.

    >>> check_hash("guest", hash_passcode("guest", n=16))
    True
    """
    n, r, p, salt, digest = parse_hash(hashed)
    return hmac.compare_digest(_scrypt(passcode, salt, n, r, p), digest)


def parse_hash(hashed: str) -> tuple[int, int, int, bytes, bytes]:
    """Return the n, r, p, salt and digest of a hash. Raise ValueError for another form, or one that costs too much."""
    with contextlib.suppress(ValueError):
        kind, *numbers, salt, digest = hashed.split("$")
        n, r, p = map(int, numbers)
        parts = n, r, p, base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
        is_power = 2 <= n <= _MOST_N and n & (n - 1) == 0
        if (kind, r, p, is_power, len(parts[4])) == ("scrypt", _R, _P, True, 32):
            return parts
    raise ValueError("it is not a hash of a passcode: make one with hash_passcode")


def _scrypt(passcode: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    secret = passcode.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(secret, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r * p + 2**20, dklen=32)


def _text(octets: bytes) -> str:
    return base64.b64encode(octets).decode("ascii")
