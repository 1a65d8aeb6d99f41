"""Questions to the management of a broker: one snapshot for each screen, and why there is none."""

from __future__ import annotations

import heapq
import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from stompcodec.cli.screen import printable
from stompcodec.cli.watching.numbers import number_of
from stompcodec.cli.watching.views import BY_NAME, Row, View
from stompcodec.errors import ConnectionLostError, ReceiptTimeoutError, RejectedError

if TYPE_CHECKING:
    from stompcodec.client import Client

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
        """Return a line of JSON."""
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
    """Return the pattern for what was typed: without a star it is to be anywhere in a name.

    >>> pattern_of("orders"), pattern_of("/queue/*"), pattern_of("")
    ('*orders*', '/queue/*', None)
    """
    if not match:
        return None
    return match if "*" in match else f"*{match}*"


def address_of(client: Client) -> str:
    """Return the address of a client's broker for people, without login and passcode."""
    hosts = [f"[{each.host}]" if ":" in each.host else each.host for each in client.addresses]
    return printable(", ".join(f"{host}:{each.port}" for host, each in zip(hosts, client.addresses)))


class Asker:
    """Asks the management of the broker that a client is connected to.

    Args:
        client: the client.
        prefix: the prefix of the destinations.
        timeout: seconds to wait for each answer.
    """

    def __init__(self, client: Client, prefix: str, timeout: float) -> None:
        self._client = client
        self._prefix = prefix
        self._timeout = timeout
        self._answered = False
        #: The tokens of the pages of a list that was asked for.
        self._list: tuple[Any, ...] = ()
        self._tokens: list[str | None] = [None]

    def ask(self, wish: Wish) -> Snapshot:
        """Return a snapshot.

        Raises:
            CannotAskError: the broker cannot be asked, or does not allow it.
            StompError: the connection was lost, or there was no answer in time.
        """
        self._check_kind()  # each time, for a reconnect may lead to another broker
        refused: list[tuple[str, str]] = []
        whole: dict[str, Any] = {name: self._ask(name, {}, refused).get("result") for name in _WHOLE}
        answer = self._ask(wish.view.name, self._fields(wish), refused)
        if refused:
            raise CannotAskError(self._refusal(refused))
        rows = answer.get("rows")
        if not isinstance(rows, list) or not all(isinstance(each, dict) for each in (*whole.values(), *rows)):
            raise CannotAskError(_STRANGE.format(printable(self._prefix + wish.view.name)))
        self._answered = True
        rest = answer.get("next")
        if wish.view.by_broker:
            del self._tokens[self._page(wish) + 1 :]
            self._tokens += [rest] if isinstance(rest, str) else []
            rows, more, partial = rows[: wish.limit], isinstance(rest, str), False
        else:
            rows, more, partial = *_selected(wish, rows), isinstance(rest, str)
        time = number_of(answer.get("time"))
        return Snapshot(wish, time, whole["broker"], whole["store"], rows, more, partial)

    def _check_kind(self) -> None:
        """Raise CannotAskError for a broker known to have no management over STOMP. Some would keep the request."""
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
        destination = self._prefix + name
        try:
            body = self._client.request(destination, json.dumps(fields), self._timeout).body
        except (ReceiptTimeoutError, RejectedError, ConnectionLostError) as error:
            if self._answered:
                raise
            raise CannotAskError(self._silence(destination, error)) from None
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

    def _silence(self, destination: str, error: Exception) -> str:
        """Return why the first question has no answer."""
        server = self._client.connected.get("server") if self._client.connected is not None else None
        who = printable(server[:100]) if server else "the broker"
        if isinstance(error, ReceiptTimeoutError):
            why = f"no answer from {destination} in {self._timeout:g} s"
        else:
            why = f"{destination}: {str(error)[:300]}"
        return (
            f"{who} seems to have no management over STOMP: {why} "
            "(name it with --prefix if the broker has another one than /management/)"
        )

    def _refusal(self, refused: list[tuple[str, str]]) -> str:
        names = ", ".join(self._prefix + name for name, _ in refused)
        said = refused[0][1]
        if "machine" in said:  # the broker has no users
            return f"{names}: {said} (run it on the machine of the broker, or give the broker users)"
        return (
            f'{names}: {said} (the broker needs a rule for this user with action = "manage" and '
            f'destination = "{self._prefix}*", or one for each of these)'
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
        rows = heapq.nlargest(end + 1, rows, key=lambda row: number_of(row.get(wish.sort)) or 0.0)
    return rows[end - wish.limit : end], len(rows) > end
