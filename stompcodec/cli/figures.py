"""The figures of `top`: questions to the broker, numbers, views, and what the user chooses."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from stompcodec.cli.screen import printable
from stompcodec.errors import ConnectionLostError, ReceiptTimeoutError, RejectedError
from stompcodec.shown import compact, finite, octets
from stompcodec.transport.owner import name_of

if TYPE_CHECKING:
    from stompcodec.client import Client

#: What stands for a number that the broker does not know.
UNKNOWN = "–"
_BLOCKS = "▁▂▃▄▅▆▇█"
#: A text in a place for a number is cut to so many characters before it is escaped.
_LONGEST = 200


def text(value: Any) -> str:
    """Return a name or another text of the broker, made harmless for terminals.

    >>> text("/queue/\\x1b[2J"), text(None), text(True)
    ('/queue/\\\\x1b[2J', '–', 'yes')
    """
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value)[:_LONGEST])


def seconds(value: Any) -> str:
    """Return an age.

    >>> seconds(0.4), seconds(119), seconds(125), seconds(7200), seconds(3 * 86400)
    ('0 s', '119 s', '2 min', '120 min', '3.0 d')
    """
    number = finite(value)
    if number is None:
        return UNKNOWN
    for unit, factor, least in (("d", 86400, 172800), ("h", 3600, 10800), ("min", 60, 120)):
        if number >= least:
            return f"{number / factor:,.{0 if unit == 'min' else 1}f} {unit}"
    return f"{number:.0f} s"


def sparkline(values: Iterable[float], width: int) -> str:
    """Return the last numbers as a row of blocks, the highest of them as a full one.

    >>> sparkline([0, 4, 8], 4), sparkline([0, 0], 2), sparkline([], 2)
    (' ▁▅█', '▁▁', '  ')
    """
    last = list(values)[-width:]
    most = max(last, default=0.0)
    blocks = "".join(_BLOCKS[round(max(value, 0.0) / most * 7) if most > 0 else 0] for value in last)
    return blocks.rjust(width)


def bar(used: Any, limit: Any, width: int) -> str:
    number, most = finite(used) or 0.0, finite(limit) or 0.0
    full = round(min(1.0, max(0.0, number / most)) * width) if most > 0 else 0
    return "█" * full + "░" * (width - full)


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
        return " ".join(text(row.get(field)) for field in self.names)

    def sort_keys(self) -> dict[str, str]:
        return {"N": BY_NAME} | {column.key: column.field for column in self.columns if column.key}


def _state(row: Row) -> str:
    waiting = finite(row.get("producers_waiting")) or 0
    marks = ["paused"] if row.get("paused") is True else []
    marks += [f"{waiting:.0f} wait"] if waiting else []
    return " ".join(marks)


_UNACKNOWLEDGED = Column("unacknowledged", "unacked", 9, compact, key="U")

DESTINATIONS = View(
    "destinations",
    "d",
    ("destination",),
    (
        Column("ready", "ready", 10, compact, key="R"),
        _UNACKNOWLEDGED,
        Column("received_rate", "in/s", 8, compact, key="I"),
        Column("delivered_rate", "out/s", 8, compact, key="O"),
        Column("rates", "trend", 10, str, need=100),
        Column("consumers", "consumers", 9, compact, key="C"),
        Column("oldest", "oldest", 7, seconds, need=80),
        Column("bytes", "memory", 9, octets, need=120, key="M"),
        Column("dead_letters", "dead", 7, compact, need=110, key="D"),
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
        Column("session", "session", 14, text, need=110),
        Column("client_id", "client-id", 14, text, need=130),
        Column("listener", "by", 6, text, need=90),
        Column("version", "version", 7, text, need=120),
        Column("age", "age", 8, seconds, key="A"),
        Column("subscriptions", "subs", 7, compact, key="B"),
        _UNACKNOWLEDGED,
        Column("transactions", "trans", 6, compact, need=100, key="T"),
        Column("unwritten", "unread", 9, octets, need=80, key="W"),
        Column("memory", "memory", 9, octets, key="M"),
        Column("waiting", "waits", 5, text, need=80),
    ),
    "unacknowledged",
    ("age", "subscriptions", "unacknowledged", "transactions", "unwritten", "memory"),
)
SUBSCRIPTIONS = View(
    "subscriptions",
    "u",
    ("destination",),
    (
        Column("session", "session", 14, text, need=80),
        Column("subscription", "id", 10, text, need=100),
        Column("ack", "ack", 17, text, need=90),
        _UNACKNOWLEDGED,
        Column("credit", "credit", 9, compact, key="C"),
        Column("waiting", "waiting", 9, compact, key="W"),
        Column("priority", "priority", 8, compact, need=120, key="P"),
        Column("durable", "durable", 14, text, need=130),
        Column("selector", "selector", 20, text, need=150),
    ),
    "unacknowledged",
    ("unacknowledged", "credit", "waiting", "priority"),
)

VIEWS = {view.name: view for view in (DESTINATIONS, SESSIONS, SUBSCRIPTIONS)}
#: Rows of one answer, at most.
MOST_ROWS = 1000
#: Questions about the whole broker, for the head of the screen.
_WHOLE = ("broker", "store")
#: By dialect: where other brokers have their numbers.
_ELSEWHERE = {
    "rabbitmq": "its numbers are on its management page, by default port 15672, and in `rabbitmqctl list_queues`",
    "activemq": "its numbers are on its web console, by default port 8161 at /admin, and in JMX",
    "artemis": "its numbers are on its console, by default port 8161 at /console, and in `artemis queue stat`",
}
_STRANGE = "{} answers something else than the management of a broker"


class CannotAskError(Exception):
    """The broker has no management, or does not allow it. The text is a line for people."""


class Wish(NamedTuple):
    """What to ask for."""

    view: View
    sort: str
    match: str | None
    page: int
    """From 0."""
    limit: int
    """Rows of a page."""


class Snapshot(NamedTuple):
    """The answers for one screen."""

    wish: Wish
    time: float | None
    broker: Row
    store: Row
    rows: list[Row]
    more: bool
    """Further rows follow."""
    partial: bool
    """The view is sorted and filtered here, and the broker has more rows than were asked for."""

    def json(self) -> bytes:
        wish = self.wish
        line = {
            "time": self.time,
            "view": wish.view.name,
            "sort": wish.sort,
            "match": wish.match,
            "broker": self.broker,
            "store": self.store,
            "rows": self.rows,
            "more": self.more or self.partial,
        }
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def pattern_of(match: str | None) -> str | None:
    """Return the pattern for what was typed: anywhere in a name, unless a slash begins it or a star ends it."""
    if not match:
        return None
    return f"*{match}*" if "*" not in match else match if match.startswith("/") else f"*{match}"


def address_of(client: Client) -> str:
    """Return the address of a client's broker for people, without login and passcode."""
    return printable(", ".join(name_of((each.host, each.port)) for each in client.addresses))


#: How the destinations of requests to management begin.
_PREFIX = "/management/"


class Asker:
    """Asks the management of the broker that a client is connected to; `timeout` is in seconds, for each answer."""

    def __init__(self, client: Client, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._answered = False
        #: The tokens of the pages of a list that was asked for.
        self._list: tuple[Any, ...] = ()
        self._tokens: list[str | None] = [None]

    def ask(self, wish: Wish) -> Snapshot:
        """Return a snapshot. CannotAskError: the broker cannot be asked, or forbids it; StompError: no answer."""
        self._check_kind()  # each time, for a reconnect may lead to another broker
        refused: list[tuple[str, str]] = []
        whole: dict[str, Any] = {name: self._ask(name, {}, refused).get("result") for name in _WHOLE}
        answer = self._ask(wish.view.name, self._fields(wish), refused)
        if refused:
            raise CannotAskError(self._refusal(refused))
        rows = answer.get("rows")
        if not isinstance(rows, list) or not all(isinstance(each, dict) for each in (*whole.values(), *rows)):
            raise CannotAskError(_STRANGE.format(_PREFIX + wish.view.name))
        self._answered = True
        rest = answer.get("next")
        if wish.view.by_broker:
            del self._tokens[self._page(wish) + 1 :]
            self._tokens += [rest] if isinstance(rest, str) else []
            rows, more, partial = rows[: wish.limit], isinstance(rest, str), False
        else:
            rows, more, partial = *_selected(wish, rows), isinstance(rest, str)
        time = finite(answer.get("time"))
        return Snapshot(wish, time, whole["broker"], whole["store"], rows, more, partial)

    def order(self, name: str, fields: dict[str, Any]) -> Row:
        """Return the result of an order. CannotAskError: it cannot be given, is forbidden, or has failed."""
        self._check_kind()
        refused: list[tuple[str, str]] = []
        result = self._ask(name, fields, refused).get("result")
        if refused or not isinstance(result, dict):
            raise CannotAskError(self._refusal(refused) if refused else _STRANGE.format(_PREFIX + name))
        return result

    def _check_kind(self) -> None:
        connected, dialect = self._client.connected, self._client.dialect
        server = (connected.get("server") if connected is not None else None) or ""
        if not server.lower().startswith("stompcodec/") and dialect in _ELSEWHERE:
            raise CannotAskError(f"{printable(server[:100])} has no management over STOMP: {_ELSEWHERE[dialect]}")

    def _page(self, wish: Wish) -> int:
        """Return the page that is asked for: the nearest whose token is known."""
        which = wish.view.name, wish.sort, wish.match, wish.limit
        if which != self._list:
            self._list, self._tokens = which, [None]
        return min(wish.page, len(self._tokens) - 1)

    def _fields(self, wish: Wish) -> dict[str, Any]:
        if not wish.view.by_broker:
            return {"limit": MOST_ROWS}
        page = self._tokens[self._page(wish)]
        sort = None if wish.sort == BY_NAME else wish.sort
        given = {"limit": wish.limit, "sort": sort, "match": pattern_of(wish.match), "page": page}
        return {name: value for name, value in given.items() if value is not None}

    def _ask(self, name: str, fields: dict[str, Any], refused: list[tuple[str, str]]) -> Row:
        """Return an answer. Note a missing right in `refused`."""
        destination = _PREFIX + name
        try:
            body = self._client.request(destination, json.dumps(fields), self._timeout).body
        except (ReceiptTimeoutError, RejectedError, ConnectionLostError) as error:
            if self._answered:
                raise
            said = printable(str(error)[:300])
            if isinstance(error, RejectedError) and "not allowed" in said:  # to subscribe to the answers
                raise CannotAskError(self._refusal([(name, said)])) from None
            raise CannotAskError(f"the broker seems to have no management over STOMP: {destination}: {said}") from None
        try:
            answer = json.loads(body, parse_constant=_refuse)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise CannotAskError(_STRANGE.format(printable(destination)))
        bad = answer.get("error")
        if isinstance(bad, dict):
            field, said = str(bad.get("field")), str(bad.get("message"))[:300]
            if field != "destination":
                raise CannotAskError(f"{destination} answers: {field}: {said}")
            refused.append((name, said))
        return answer

    def _refusal(self, refused: list[tuple[str, str]]) -> str:
        names = ", ".join(_PREFIX + name for name, _ in refused)
        said = refused[0][1]
        if "machine" in said:  # the broker has no users
            return f"{names}: {said} (run it on the machine of the broker, or give the broker users)"
        return (
            f'{names}: {said} (the broker needs a rule for this user with action = "manage" and '
            f'destination = "{_PREFIX}*", or one for each of these)'
        )


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _selected(wish: Wish, rows: list[Row]) -> tuple[list[Row], bool]:
    """Return the page of rows that match, highest first, and whether further ones follow."""
    pattern = pattern_of(wish.match)
    if pattern is not None:
        pattern = pattern.replace("[", "[[]").replace("?", "[?]")
        rows = [row for row in rows if fnmatchcase(wish.view.name_of(row), pattern)]
    end = (wish.page + 1) * wish.limit
    if wish.sort != BY_NAME:
        rows = heapq.nlargest(end + 1, rows, key=lambda row: finite(row.get(wish.sort)) or 0.0)
    return rows[end - wish.limit : end], len(rows) > end


#: The longest filter that can be typed.
_MOST_TYPED = 200

#: The keys of all views, for the help.
HELP = (
    ("d  s  u", "show destinations, sessions, subscriptions; Tab shows the next of them"),
    ("← →  < >", "sort by the column to the left or right"),
    ("N", "sort by name, in the order of the broker"),
    ("/", "filter by name: * stands for any characters; an empty filter shows all"),
    ("↑ ↓", "select a row, whose name is shown in full; also k and j"),
    ("PgUp PgDn", "show the page before or the next one; also b and f"),
    ("Home", "show the first page"),
    ("Space", "ask at once"),
    ("?", "show or hide this help"),
    ("q", "quit; also Ctrl-C"),
)


class Choice:
    """View, order, filter, page, and selected row.

    >>> choice = Choice(VIEWS["destinations"], "ready", None, 20)
    >>> [choice.press(key, None) for key in ("I", "/", "a", "enter", "q")], choice.wish().sort, choice.match
    ([True, True, True, True, False], 'received_rate', 'a')
    """

    def __init__(self, view: View, sort: str, match: str | None, limit: int) -> None:
        self.view = view
        self.match = match
        self.page = 0
        self.row = 0
        """The selected row of the page."""
        self.limit = limit
        self.helping = False
        self.typed: str | None = None
        """The filter as far as it is typed; None if none is being typed."""
        self._sorts = {each.name: each.sort for each in VIEWS.values()} | {view.name: sort}

    @property
    def sort(self) -> str:
        return self._sorts[self.view.name]

    def wish(self) -> Wish:
        return Wish(self.view, self.sort, self.match, self.page, self.limit)

    def fit(self, limit: int) -> None:
        limit = max(1, min(limit, MOST_ROWS))
        if limit != self.limit:
            self.limit, self.page, self.row = limit, 0, 0

    def press(self, key: str, shown: Snapshot | None) -> bool:
        """Do what a key says; return False if it is to end. `shown` is what is on the screen."""
        if self.typed is not None:
            self._type(key)
        elif self.helping:
            self.helping = False
            return key != "q"
        elif key == "q":
            return False
        elif key in ("?", "h"):
            self.helping = True
        elif key == "/":
            self.typed = self.match or ""
        elif not self._change_view(key):
            self._change_sort(key)
            self._move(key, shown)
        return True

    def _type(self, key: str) -> None:
        assert self.typed is not None
        if key == "enter":
            self.match, self.typed, self.page, self.row = self.typed or None, None, 0, 0
        elif key == "escape":
            self.typed = None
        elif key == "rubout":
            self.typed = self.typed[:-1]
        elif key == "\x15":
            self.typed = ""
        elif len(key) == 1 and key.isprintable() and len(self.typed) < _MOST_TYPED:
            self.typed += key

    def _change_view(self, key: str) -> bool:
        views = list(VIEWS.values())
        view = next((each for each in views if each.key == key), None)
        if key in ("tab", "back-tab"):
            view = views[(views.index(self.view) + (1 if key == "tab" else -1)) % len(views)]
        if view is not None:
            self.view, self.page, self.row = view, 0, 0
        return view is not None

    def _change_sort(self, key: str) -> None:
        fields = [BY_NAME, *(column.field for column in self.view.columns if column.field in self.view.sorts)]
        sort = self.view.sort_keys().get(key)
        step = {"left": -1, "<": -1, "right": 1, ">": 1}.get(key)
        if step is not None:
            at = fields.index(self.sort) if self.sort in fields else 0
            sort = fields[min(max(at + step, 0), len(fields) - 1)]
        if sort is not None:
            self._sorts[self.view.name], self.page, self.row = sort, 0, 0

    def _move(self, key: str, shown: Snapshot | None) -> None:
        last = 0 if shown is None else max(0, len(shown.rows) - 1)
        more = shown is not None and shown.more and shown.wish == self.wish()
        if key in ("down", "j"):
            if self.row < last:
                self.row += 1
            elif more:
                self.page, self.row = self.page + 1, 0
        elif key in ("up", "k"):
            if self.row:
                self.row -= 1
            elif self.page:
                self.page, self.row = self.page - 1, self.limit - 1
        elif key in ("page-down", "f") and more:
            self.page, self.row = self.page + 1, 0
        elif key in ("page-up", "b") and self.page:
            self.page, self.row = self.page - 1, 0
        elif key == "home":
            self.page, self.row = 0, 0
        elif key == "end":
            self.row = last
