"""The small tables of a store: idempotency keys (`sent`) and durable subscriptions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from stompcodec.broker.storage.checksums import key_crc, record_crc
from stompcodec.broker.storage.damage import Damage, shown
from stompcodec.broker.storage.rows import raw
from stompcodec.broker.storage.store import SentKey, Subscribed

_REMEMBER = "INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?, ?, ?)"
_FORGET = "DELETE FROM sent WHERE number = ?"
_GET = "SELECT number, scope, key, body, at, crc FROM sent ORDER BY number"
_FIELDS = ", ".join(Subscribed._fields)
_SUBSCRIBE = f"INSERT INTO subscription ({_FIELDS}, crc) VALUES ({'?, ' * len(Subscribed._fields)}?)"
#: Keys read in one step.
_GROUP = 500


def write_keys(db: sqlite3.Connection, keys: Mapping[int, SentKey], forgotten: Iterable[int]) -> None:
    """Store keys by number, and delete others, in the open transaction."""
    db.executemany(_FORGET, [(number,) for number in forgotten])
    db.executemany(_REMEMBER, [_row_of(key) for key in keys.values()])


def read_keys(db: sqlite3.Connection, damage: Damage) -> Iterator[SentKey]:
    """Yield all keys by number, and report damaged rows: a SEND with such a key would be stored again."""
    cursor = db.execute(_GET)
    while rows := cursor.fetchmany(_GROUP):
        for columns in rows:
            key = sent_key(columns)
            if key is None:
                damage.found("an idempotency key is lost: if its SEND comes again, it is stored again")
            else:
                yield key


def sent_key(columns: Sequence[Any]) -> SentKey | None:
    """Return a key from its row (number, scope, key, body, at, crc); None if the row is damaged.

    >>> sent_key((1, b"scope", b"key", 0, 0, 0)) is None
    True
    """
    try:
        number, scope, key, body, at, crc = columns
        sound = key_crc(number, scope, key, body, at) == crc
    except (TypeError, ValueError):
        return None
    return SentKey(number, scope, key, body, at / 1000) if sound else None


def _row_of(key: SentKey) -> tuple[object, ...]:
    row = (key.number, key.scope, key.key, key.body, int(key.at * 1000))
    return *row, key_crc(*row)


def write_subscription(db: sqlite3.Connection, queue: str, subscription: Subscribed | None) -> None:
    """Replace or delete (None) the durable subscription of a queue."""
    db.execute("DELETE FROM subscription WHERE queue = ?", (queue,))
    if subscription is not None:
        db.execute(_SUBSCRIBE, (*subscription, record_crc(*subscription)))


def subscribed_of(columns: Sequence[Any]) -> Subscribed:
    """Return a durable subscription from the columns of its row."""
    one = Subscribed._make(columns)
    return one._replace(literal=bool(one.literal), shared=bool(one.shared), auto_delete=bool(one.auto_delete))


def read_subscriptions(db: sqlite3.Connection, damage: Damage) -> tuple[list[Subscribed], int]:
    """Return all intact durable subscriptions, and the number of rows. Damaged ones are reported."""
    found: list[Subscribed] = []
    rows = list(raw(db, f"SELECT {_FIELDS}, crc FROM subscription ORDER BY queue"))
    for *columns, crc in rows:
        texts = [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in columns]
        if crc == record_crc(*texts):
            found.append(subscribed_of(texts))
        else:
            damage.found(f"a durable subscription, perhaps {shown(str(texts[:3]))}, is lost, and kept aside")
    return found, len(rows)
