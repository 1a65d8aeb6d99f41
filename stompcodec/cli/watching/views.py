"""The views as a table: which question each asks, its columns, and by which of them it can be sorted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from stompcodec.cli.watching import numbers

Row = dict[str, Any]
#: Stands for the order in which the broker lists the rows.
BY_NAME = "name"


class Column(NamedTuple):
    """A column of a table."""

    field: str
    """The field of a row; "" for one that is made of several."""
    title: str
    width: int
    show: Callable[[Any], str]
    need: int = 0
    """The columns of the screen below which it is left out."""
    key: str = ""
    """The key that sorts by it."""


class View(NamedTuple):
    """A table of the screen."""

    name: str
    """The request to the broker's management, and the value of --view."""
    key: str
    names: tuple[str, ...]
    """The fields that make the first column, and for which the filter looks."""
    columns: tuple[Column, ...]
    sort: str
    sorts: tuple[str, ...]
    """The fields by which it can be sorted, highest first."""
    by_broker: bool = False
    """The broker sorts and filters. Otherwise this is done here, with one page of the largest size."""

    def name_of(self, row: Row) -> str:
        """Return the first column of a row, harmless for terminals."""
        return " ".join(numbers.text(row.get(field)) for field in self.names)

    def sort_keys(self) -> dict[str, str]:
        """Return what to sort by for each key."""
        return {"N": BY_NAME} | {column.key: column.field for column in self.columns if column.key}


def _state(row: Row) -> str:
    """Return what is unusual about a destination."""
    waiting = numbers.number_of(row.get("producers_waiting")) or 0
    marks = ["paused"] if row.get("paused") is True else []
    marks += [f"{waiting:.0f} wait"] if waiting else []
    return " ".join(marks)


_UNACKNOWLEDGED = Column("unacknowledged", "unacked", 9, numbers.count, key="U")

DESTINATIONS = View(
    "destinations",
    "d",
    ("destination",),
    (
        Column("ready", "ready", 10, numbers.count, key="R"),
        _UNACKNOWLEDGED,
        Column("received_rate", "in/s", 8, numbers.rate, key="I"),
        Column("delivered_rate", "out/s", 8, numbers.rate, key="O"),
        Column("rates", "trend", 10, str, need=100),
        Column("consumers", "consumers", 9, numbers.count, key="C"),
        Column("oldest", "oldest", 7, numbers.seconds, need=80),
        Column("bytes", "memory", 9, numbers.size, need=120, key="M"),
        Column("dead_letters", "dead", 7, numbers.count, need=110, key="D"),
        Column("", "state", 14, _state, need=140),
    ),
    "ready",
    (
        *("ready", "unacknowledged", "scheduled", "paged", "bytes", "consumers", "producers_waiting", "received"),
        *("delivered", "received_rate", "delivered_rate", "redelivered", "expired", "dropped", "dead_letters"),
    ),
    by_broker=True,
)
SESSIONS = View(
    "sessions",
    "s",
    ("peer", "user"),
    (
        Column("session", "session", 14, numbers.text, need=110),
        Column("client_id", "client-id", 14, numbers.text, need=130),
        Column("listener", "by", 6, numbers.text, need=90),
        Column("version", "version", 7, numbers.text, need=120),
        Column("age", "age", 8, numbers.seconds, key="A"),
        Column("subscriptions", "subs", 7, numbers.count, key="B"),
        _UNACKNOWLEDGED,
        Column("transactions", "trans", 6, numbers.count, need=100, key="T"),
        Column("unwritten", "unread", 9, numbers.size, need=80, key="W"),
        Column("memory", "memory", 9, numbers.size, key="M"),
        Column("waiting", "waits", 5, numbers.text, need=80),
    ),
    "unacknowledged",
    ("age", "subscriptions", "unacknowledged", "transactions", "unwritten", "memory"),
)
SUBSCRIPTIONS = View(
    "subscriptions",
    "u",
    ("destination",),
    (
        Column("session", "session", 14, numbers.text, need=80),
        Column("subscription", "id", 10, numbers.text, need=100),
        Column("ack", "ack", 17, numbers.text, need=90),
        _UNACKNOWLEDGED,
        Column("credit", "credit", 9, numbers.count, key="C"),
        Column("waiting", "waiting", 9, numbers.count, key="W"),
        Column("priority", "priority", 8, numbers.count, need=120, key="P"),
        Column("durable", "durable", 14, numbers.text, need=130),
        Column("selector", "selector", 20, numbers.text, need=150),
    ),
    "unacknowledged",
    ("unacknowledged", "credit", "waiting", "priority"),
)

VIEWS = {view.name: view for view in (DESTINATIONS, SESSIONS, SUBSCRIPTIONS)}
