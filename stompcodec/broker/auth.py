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
import binascii
import hashlib
import hmac
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

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

    >>> auth = Auth({"ada": User("ada", hash_passcode("secret", n=16))}, [Rule("ada", "send", "/queue/a.*")])
    >>> ada = auth.login("ada", "secret", "/", now=0.0)
    >>> auth.may(ada, "send", "/queue/a.b"), auth.may(ada, "subscribe", "/queue/a.b")
    (True, False)
    >>> auth.login("ada", "wrong", "/", now=0.0) is None
    True
    """

    def __init__(self, users: Mapping[str, User] | None = None, rules: Iterable[Rule] = ()) -> None:
        self._users = users
        self._rules = tuple(rules)
        self._key = os.urandom(32)
        self._known: dict[str, bytes] = {}
        self._refused: dict[bytes, None] = {}
        self._bucket = _Bucket(_BURST, _RATE)
        self._buckets: dict[str, _Bucket] = {}
        #: Hashes that unknown names are compared with, so that they take as long as known ones.
        self._hashes = [user.passcode for user in (users or {}).values() if user.passcode]

    def login(
        self, login: str | None, passcode: str | None, vhost: str, now: float, address: str | None = None
    ) -> User | None:
        """Return the user, or None if the login is refused. A header that is missing in CONNECT is None.

        Args:
            login, passcode: those of CONNECT.
            vhost: the requested virtual host, or the default.
            now: a monotonic time in seconds, for the limit on slow hashing.
            address: where the client is, for its share of that; None if it has none.
        """
        if self._users is None:
            return User(login or "", vhost=vhost)
        if passcode is None or len(passcode) > _MOST_PASSCODE:
            return None
        user = self._users.get(login or "")
        if not self._right(login or "", user, passcode, now, address):
            return None
        if user is None or (user.vhosts and vhost not in user.vhosts):
            return None
        return replace(user, passcode="", vhost=vhost)

    def owner(self, user: User) -> str | None:
        """Return the owner of what a user creates: its name, or None if any login is accepted.

        >>> Auth().owner(User("ada")) is None, Auth({"ada": User("ada")}).owner(User("ada"))
        (True, 'ada')
        """
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
                self._give_token(address)  # knowing the passcode, this is not an attacker
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

    def _give_token(self, address: str | None) -> None:
        self._bucket.give()
        if address is not None:
            self._buckets[address].give()

    def may(self, user: User, action: str, destination: str) -> bool:
        """Return whether a user may "send" or "subscribe" to a destination. Sessions cache the answer."""
        for rule in self._rules:
            if self._concerns(rule, user, action) and matches(rule.destination, destination):
                return rule.allow
        return not self._limits

    def may_all(self, user: User, action: str, head: str) -> bool:
        """Return whether a user may certainly do something to every destination that begins with `head`.

        >>> auth = Auth(rules=[Rule("*", "*", "/topic/a.secret", allow=False), Rule("*", "*", "/topic/*")])
        >>> auth.may_all(User("x"), "subscribe", "/topic/a."), auth.may_all(User("x"), "subscribe", "/topic/b.")
        (False, True)
        """
        for rule in self._rules:
            if not self._concerns(rule, user, action):
                continue
            first, star, rest = rule.destination.partition("*")
            if rule.allow:
                if star and not rest and head.startswith(first):
                    return True
            elif first.startswith(head) or (star and head.startswith(first)):
                return False
        return not self._limits

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
            if rule.action == "manage" and self._concerns(rule, user, "manage") and matches(rule.destination, name):
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
    """Return a passcode in the form of a configuration: "scrypt$N$R$P$SALT$HASH", with salt and hash in base64.

    Args:
        passcode: in clear text, at most 1024 characters.
        salt: random if None.
        n: the cost, a power of two.

    Raises:
        ValueError: the passcode is too long.

    >>> hash_passcode("guest", salt=b"12345678", n=16)
    'scrypt$16$8$1$MTIzNDU2Nzg=$ZTZXY7xxTdKQifYD05gfW1G2BIsM+mUzmYWyLN76XDI='
    """
    if len(passcode) > _MOST_PASSCODE:
        raise ValueError(f"a passcode has at most {_MOST_PASSCODE} characters")
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
    """Return the parts of a hash: n, r, p, salt, digest. Raise ValueError if it is not in the form of `hash_passcode`,
    or would cost too much to check.

    >>> parse_hash(hash_passcode("guest", n=16))[:3]
    (16, 8, 1)
    """
    try:
        kind, n, r, p, salt, digest = hashed.split("$")
        parts = int(n), int(r), int(p), base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
    except (ValueError, binascii.Error):
        raise ValueError("it is not a hash of a passcode") from None
    if kind != "scrypt" or not (2 <= parts[0] <= _MOST_N and parts[0] & (parts[0] - 1) == 0):
        raise ValueError("it is not a hash of a passcode")
    if parts[1:3] != (_R, _P) or len(parts[4]) != 32:
        raise ValueError("it is not a hash of a passcode")
    return parts


def _scrypt(passcode: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    secret = passcode.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(secret, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r * p + 2**20, dklen=32)


def _text(octets: bytes) -> str:
    return base64.b64encode(octets).decode("ascii")
