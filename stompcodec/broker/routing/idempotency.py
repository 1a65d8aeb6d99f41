"""Idempotency keys: a SEND with the key of an earlier one is confirmed, and not stored a second time.

    SEND, idempotency-key:K (or _AMQ_DUPL_ID:K)
        |  commands.py: `key_of`, then `mark`: user, virtual host, client-id, destination, K, and the body's CRC
        v
    known? ---- yes --> RECEIPT, behind the commit that the first one waits for; nothing is stored
        |  no
        v
    the message takes its place, at once or by COMMIT, and `enter` notes its key: that of a persistent one in the same
    batch of the store, after which the message takes effect. If that batch fails, both are undone.

A key is known for `idempotency.window` seconds; of each scope the last `Config.max_keys` are known. All keys
share a part of the memory account; when it is full, the user with the most keys loses the oldest ones of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from math import inf
from typing import Any, NamedTuple, Protocol
from zlib import crc32

from stompcodec.broker.config import Config
from stompcodec.broker.connections import Context, Peer
from stompcodec.broker.loop_quota import AT_ONCE, Line
from stompcodec.broker.memory import KEY, SCOPE, Account, Part
from stompcodec.broker.message import LargeBody
from stompcodec.broker.routing.registry import VirtualHost
from stompcodec.broker.storage.journal import Batch, Journal
from stompcodec.broker.storage.store import SentKey
from stompcodec.broker.values import Refused, is_read
from stompcodec.codec import Frame

#: The header of SEND that holds the key, and the name that Artemis has for it. The first one counts if both are there.
KEY_HEADERS = HEADER, ARTEMIS = "idempotency-key", "_AMQ_DUPL_ID"
#: Bytes of the longest key.
MOST_OCTETS = 255
#: Bytes of a digest, and of the part of a scope's name that stands for the user.
_DIGEST, _USER = 16, 8
#: Seconds between two lines in the log about keys that came with another body.
_LOG_EACH = 1.0


class Counts(Protocol):
    """The statistics that count duplicates."""

    duplicates: int
    duplicates_changed: int


class SenderContext(Context, Protocol):
    """The broker, as idempotency keys use it."""

    now: float

    @property
    def stats(self) -> Counts: ...


class Sender(Peer, Protocol):
    """A session that sends."""

    @property
    def broker(self) -> SenderContext: ...

    virtual_host: VirtualHost


class Mark(NamedTuple):
    """The identity of a SEND with a key."""

    scope: bytes
    """Digests: of the user, and of user, virtual host, client-id and destination."""
    key: bytes
    """Digest of the key."""
    body: int
    """CRC-32 of the body."""


@dataclass(eq=False, slots=True)
class _Entry:
    """A known key."""

    number: int
    mark: Mark
    #: When it was entered, in seconds of the broker's clock.
    at: float
    #: It has a row in the store, or will have one.
    stored: bool
    #: The batch that has to be written before the message counts; None afterwards.
    batch: Batch | None = None


@dataclass(eq=False, slots=True)
class _Holder:
    """The keys of one user, by their numbers, oldest first."""

    entries: OrderedDict[int, _Entry] = field(default_factory=OrderedDict)
    #: Bits of their number.
    rank: int = 0


@dataclass(eq=False, slots=True)
class _Changes:
    """The keys that one batch enters and forgets."""

    entered: list[_Entry] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)


class SentKeys:
    """The keys of messages that have taken effect. `share_commit` holds the receipt of a frame of a session back until
    a batch is written.
    """

    def __init__(
        self,
        config: Config,
        journal: Journal,
        account: Account,
        wall: Callable[[], float],
        share_commit: Callable[[Any, Batch, Frame], None],
    ) -> None:
        self.window = config.key_window
        self._most = config.max_keys
        self._journal = journal
        self._wall = wall
        self._share_commit = share_commit
        #: The account's part for keys.
        self.part = Part(account, account.most_keys)
        #: Entries by scope, then by key, oldest first. Invariant: no scope is empty.
        self.scopes: dict[bytes, OrderedDict[bytes, _Entry]] = {}
        #: By user.
        self._holders: dict[bytes, _Holder] = {}
        #: Users by the bits of their number of keys: one of the last rank has at least half as many as any other user.
        self._ranks: list[dict[_Holder, None]] = [{} for _ in range(64)]
        self._number = 0
        #: No key is older than this.
        self._oldest = inf
        self._expiring = False
        #: Duplicates with another body since the last line in the log, and when that was.
        self._unlogged, self._logged_at = 0, -inf

    def __len__(self) -> int:
        return sum(len(holder.entries) for holder in self._holders.values())

    @property
    def cost(self) -> int:
        """Bytes of memory that the keys take, computed at each call."""
        return KEY * sum(map(len, self.scopes.values())) + SCOPE * len(self.scopes)

    def mark(self, session: Sender, destination: str, routing: str | None, key: str, body: int) -> Mark:
        """Return the mark of a SEND to one destination, with the CRC-32 of its body. `routing` is its header
        destination-type. Raise Refused if the destination is invalid.
        """
        destinations = session.virtual_host.destinations
        address = destinations.canonical(destinations.addresses.find(destination, routing, False), session)
        name = destinations.address(address.name, session)
        parts = (session.owner, session.virtual_host.vhost, session.client_id, address.kind.value, name)
        text = "".join("-" if part is None else f"{len(part)}:{part}" for part in parts)
        user = blake2b((session.owner or "").encode("utf-8", "surrogatepass"), digest_size=_USER).digest()
        scope = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
        return Mark(user + scope, blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest(), body)

    def find(self, mark: Mark) -> _Entry | None:
        """Return the entry of a key; None for a new key."""
        scope = self.scopes.get(mark.scope)
        return None if scope is None else scope.get(mark.key)

    def is_known(self, session: Sender, mark: Mark, frame: Frame) -> bool:
        """Return whether a SEND came before. If so, the receipts of this session wait for the same commit as its first.
        `frame` is the SEND, or the COMMIT by which it would take effect.
        """
        entry = self.find(mark)
        if entry is None:
            return False
        if entry.batch is not None:
            self._share_commit(session, entry.batch, frame)
        self.count(session, entry.mark.body != mark.body)
        return True

    def count(self, session: Sender, changed: bool) -> None:
        """Count a duplicate. One with another body is logged, once per second at most."""
        stats = session.broker.stats
        stats.duplicates += 1
        if changed:
            stats.duplicates_changed += 1
            self._unlogged += 1
            now = session.broker.now
            if now - self._logged_at >= _LOG_EACH:
                session.broker.log.warning(
                    "%s: a SEND has the %s of an earlier one and another body: it is confirmed, and not stored "
                    "(%d such since the last line)",
                    session,
                    HEADER,
                    self._unlogged,
                )
                self._unlogged, self._logged_at = 0, now

    def enter(self, mark: Mark, now: float, *, stored: bool, batch: Batch | None = None) -> None:
        """Note the key of a message that takes effect.

        If the message is `stored`, its key goes to the store in the open batch. If not, it is undone if `batch` fails.
        """
        self._number += 1
        entry = _Entry(self._number, mark, now, stored)
        self._add(entry)
        if stored:
            store = self._journal.store
            if store is not None:
                store.remember(SentKey(entry.number, *entry.mark, self._wall()))
        entry.batch = self._journal.batch if stored else batch
        if entry.batch is not None:
            self._changes(entry.batch).entered.append(entry)

    def load(self, key: SentKey, now: float, wall: float) -> None:
        """Take a key that the store had kept. Those of one store come in the order of their numbers."""
        self._number = max(self._number, key.number)
        entry = _Entry(key.number, Mark(key.scope, key.key, key.body), now - max(0.0, wall - key.at), True)
        if self.find(entry.mark) is None:
            self._add(entry)
        else:
            self._forget(key.number)

    def sweep(self, now: float) -> Iterator[Line] | None:
        """Return an iterator that removes the expired keys, some in each turn; None if there are none."""
        if self._expiring or now - self._oldest <= self.window:
            return None
        self._expiring = True
        return self._expire(now)

    def _expire(self, now: float) -> Iterator[Line]:
        oldest, left = inf, AT_ONCE
        self._oldest = inf  # for keys that come meanwhile
        for name in list(self._holders):
            holder = self._holders.get(name)
            while holder is not None and holder.entries:
                entry = next(iter(holder.entries.values()))
                if now - entry.at <= self.window:
                    oldest = min(oldest, entry.at)
                    break
                self._drop(entry)
                left -= 1
                if left <= 0:
                    yield self._journal.line
                    left = AT_ONCE
        self._oldest = min(oldest, self._oldest)
        self._expiring = False

    def _add(self, entry: _Entry) -> None:
        scope = self.scopes.get(entry.mark.scope)
        if scope is None:
            scope = self.scopes[entry.mark.scope] = OrderedDict()
            self.part.use(SCOPE)
        scope[entry.mark.key] = entry
        name = entry.mark.scope[:_USER]
        holder = self._holders.get(name)
        if holder is None:
            holder = self._holders[name] = _Holder()
        holder.entries[entry.number] = entry
        self._rank(holder)
        self.part.use(KEY)
        self._oldest = min(self._oldest, entry.at)
        if len(scope) > self._most:
            self._drop(next(iter(scope.values())))
        while self.part.used > self.part.limit:
            largest = next(holders for holders in reversed(self._ranks) if holders)
            self._drop(next(iter(next(iter(largest)).entries.values())))

    def _drop(self, entry: _Entry) -> None:
        scope = self.scopes.get(entry.mark.scope)
        if scope is None or scope.get(entry.mark.key) is not entry:
            return
        del scope[entry.mark.key]
        self.part.use(-KEY)
        if not scope:
            del self.scopes[entry.mark.scope]
            self.part.use(-SCOPE)
        name = entry.mark.scope[:_USER]
        holder = self._holders[name]
        del holder.entries[entry.number]
        self._rank(holder)
        if not holder.entries:
            del self._holders[name]
        if entry.stored:
            self._forget(entry.number)

    def _rank(self, holder: _Holder) -> None:
        rank = len(holder.entries).bit_length()
        if rank != holder.rank:
            self._ranks[holder.rank].pop(holder, None)
            holder.rank = rank
            if rank:
                self._ranks[rank][holder] = None

    # ---- the store ----

    def _forget(self, number: int) -> None:
        store = self._journal.store
        if store is not None:
            store.forget(number)
            self._changes(self._journal.batch).forgotten.append(number)

    def _changes(self, batch: Batch) -> _Changes:
        changes: _Changes | None = batch.keys
        if changes is None:
            batch.keys = changes = _Changes()
            batch.actions.append(partial(self._written, batch, changes))
        return changes

    def _written(self, batch: Batch, changes: _Changes, committed: bool) -> None:
        """Note that a batch was written, or has failed."""
        for entry in changes.entered:
            entry.batch = None
            if not committed:
                entry.stored = False
                self._drop(entry)
        if not committed:
            for number in changes.forgotten:
                self._forget(number)
        batch.keys = None


def key_of(session: Sender, frame: Frame) -> str | None:
    """Return the key of a SEND; None if it has none, or an empty one. Raise Refused if it is too long."""
    key, other = session.header(frame, HEADER), session.header(frame, ARTEMIS)
    key = key or (other if is_read(ARTEMIS, session.broker.config.dialect) else None)
    if not key:
        return None
    if len(key) > MOST_OCTETS or len(key.encode("utf-8", "surrogatepass")) > MOST_OCTETS:
        raise Refused("the idempotency key is too long", f"{HEADER} and {ARTEMIS} have at most {MOST_OCTETS} bytes.")
    return key


def body_crc(frame: Frame, body: LargeBody | None) -> int:
    """Return the CRC-32 of the body of a SEND; `body` is that of a large one."""
    return crc32(frame.body or b"") if body is None else body.crc
