"""The schema: a table of all requests with their fields, and of what the answers contain.

Requests are checked with it, docs/management.md is made of it, and the tests compare each answer with it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

from stompcodec.broker.loop_quota import Line, LoopQuota
from stompcodec.broker.routing.registry import VirtualHost
from stompcodec.broker.settings import one_of, whole


class Asker(NamedTuple):
    """The sender of a request. It sees and changes one virtual host; some questions are about the whole broker."""

    host: VirtualHost
    who: str
    """For the log of orders: the user, the address, and how the request came."""
    session: str | None = None
    """The id of its session, which it cannot close."""


#: The longest JSON text of a request in bytes.
MOST_REQUEST = 65_536
#: The longest text in a field, in characters: that of a destination or a selector.
_MOST_TEXT = 8192
#: The most `*` in a pattern.
_MOST_STARS = 16


class BadRequest(Exception):
    """A request that is answered by an error, which names a field of it.

    >>> BadRequest("limit", "it must be a whole number").field
    'limit'
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        #: The field, the header, or "body".
        self.field = field
        self.message = message


def read_json(octets: bytes) -> dict[str, Any]:
    """Read the body of a request, a JSON object; an empty body is {}. Raise BadRequest if it is anything else.

    >>> read_json(b""), read_json(b'{"limit": 5}')
    ({}, {'limit': 5})
    """
    if len(octets) > MOST_REQUEST:
        raise BadRequest("body", f"it has more than {MOST_REQUEST} bytes")
    if not octets.strip():
        return {}
    try:
        found = json.loads(octets, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BadRequest("body", "it is not valid JSON") from None
    if not isinstance(found, dict):
        raise BadRequest("body", "it must be a JSON object")
    return found


def _refuse_constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def text(value: Any) -> str:
    """Read a text, or raise ValueError."""
    if not isinstance(value, str) or not value or len(value) > _MOST_TEXT or "\0" in value:
        raise ValueError(f"it must be a text of 1 to {_MOST_TEXT} characters")
    return value


def pattern(value: Any) -> str:
    """Read a pattern for names, or raise ValueError. Its `*` are few, because it is compared with many names."""
    found = text(value)
    if found.count("*") > _MOST_STARS:
        raise ValueError(f"it has more than {_MOST_STARS} *")
    return found


def read_fields(given: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a request, with defaults. Raise BadRequest for an unknown, missing or wrong field."""
    for name in given:
        if name not in fields:
            known = ", ".join(fields) or "none"
            raise BadRequest(name[:100], f"unknown field; the fields of this request: {known}")
    found = {}
    for name, field in fields.items():
        value = given.get(name)
        if value is None:
            if field.required:
                raise BadRequest(name, "it is missing")
            found[name] = field.default
            continue
        try:
            found[name] = field.read(value)
        except ValueError as error:
            raise BadRequest(name, str(error)) from None
    return found


#: Rows that are made, or written, in one turn: one or two milliseconds.
ROWS_AT_ONCE = 500
#: Names that are looked at in one turn.
LOOKS_AT_ONCE = 1000
_T = TypeVar("_T")
_R = TypeVar("_R")


def token_of(place: Sequence[str | int]) -> str:
    """Return the token of a place in a list.

    >>> place_of(token_of(["/queue/a", 1]), str, int)
    ['/queue/a', 1]
    """
    text = json.dumps(list(place), separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of(token: str, *kinds: type) -> list[Any]:
    """Return the place of a token, whose parts have these types. Raise BadRequest for any other text."""
    try:
        place = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError, binascii.Error):
        place = None
    if not isinstance(place, list) or [type(part) for part in place] != list(kinds) or token_of(place) != token:
        raise BadRequest("page", "it is not the `next` of an answer to this question")
    return place


def in_turns(
    things: Iterable[_T | None], quota: LoopQuota, at_once: int, most: int | None = None
) -> Generator[Line, None, list[_T]]:
    """Return the first `most` items but None, of which `at_once` are made in each turn; None takes less of it."""
    found: list[_T] = []
    looks, weight = 0, max(1, LOOKS_AT_ONCE // at_once)
    for thing in things:
        if thing is None:
            looks += 1
        else:
            found.append(thing)
            looks += weight
            if len(found) == most:
                break
        if looks >= LOOKS_AT_ONCE:
            looks = 0
            yield quota
    return found


def map_in_turns(
    function: Callable[[_T], _R], things: Sequence[_T], quota: LoopQuota, at_once: int
) -> Generator[Line, None, list[_R]]:
    """Return what a function makes of each thing, of which `at_once` are passed to it in each turn."""
    found: list[_R] = []
    for begin in range(0, len(things), at_once):
        if begin:
            yield quota
        found += map(function, things[begin : begin + at_once])
    return found


#: Rows of an answer without `limit`, and the most of one.
USUAL_ROWS, MOST_ROWS = 100, 1000
#: Bytes of a body that `messages` shows, by default and at most; and the most bytes of all bodies in one answer.
USUAL_BODY, MOST_BODY, MOST_BODIES = 1024, 65_536, 1_048_576
#: The levels of the log.
LEVELS = ("debug", "info", "warning", "error")
#: The most messages that one order moves or purges.
_MOST_MESSAGES = 2**40


class Field(NamedTuple):
    """A field of a request."""

    name: str
    read: Callable[[Any], Any]
    """Converts the value; raises ValueError for a wrong one."""
    doc: str
    required: bool = False
    default: Any = None


class Column(NamedTuple):
    """A field of an answer. `kind` is text, whole, number, flag, list or object; with "?" the value may be null."""

    name: str
    kind: str
    doc: str


class Request(NamedTuple):
    """A question or an order."""

    name: str
    doc: str
    fields: tuple[Field, ...]
    columns: tuple[Column, ...]
    is_order: bool = False
    is_list: bool = False
    """The answer has `rows` and `next`, not a `result`."""

    @property
    def by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}


_PAGE = (
    Field("limit", whole(1, MOST_ROWS), f"Most rows of the answer, 1 to {MOST_ROWS}.", default=USUAL_ROWS),
    Field("page", text, "The `next` of the answer before, for the rows that follow."),
)
_MATCH = Field("match", pattern, "Only names that match; up to 16 `*` stand for any characters.")
_QUEUE = Field("destination", text, "A queue, or a durable subscription by its `name` in `durables`.", required=True)
_SELECTOR = Field("selector", text, "Only messages that match this condition.")
_ID = Field("message_id", text, "Only the message with this message-id.")
_MOST = Field("limit", whole(1, _MOST_MESSAGES), "Most messages; by default all that are ready at the start.")

#: What a queue says of itself, in `destinations` and `durables`. The last ones change although nothing is done.
OF_QUEUE = (
    Column("ready", "whole", "Messages that no consumer has, those in the store included."),
    Column("unacknowledged", "whole", "Messages that consumers have not acknowledged."),
    Column("scheduled", "whole", "Messages that wait for their time."),
    Column("paged", "whole", "Messages that are in the store only."),
    Column("bytes", "whole", "Bytes of the messages in memory."),
    Column("consumers", "whole", "Consumers, browsers included."),
    Column("credit", "whole", "Further messages that consumers may have, each at most 1,000,000."),
    Column("producers_waiting", "whole", "Sessions that wait for room."),
    Column("paused", "flag", "An order has paused its deliveries."),
    Column("received", "whole", "Messages put into it."),
    Column("delivered", "whole", "Messages delivered, redeliveries included."),
    Column("redelivered", "whole", "Messages that came back."),
    Column("expired", "whole", "Messages expired."),
    Column("dropped", "whole", "Messages dropped because it was full."),
    Column("dead_letters", "whole", "Dead letters made."),
    Column("oldest", "number?", "Age of the oldest ready message."),
    Column("received_rate", "number?", "Messages received per second."),
    Column("delivered_rate", "number?", "Messages delivered per second."),
)

MOVING = 3
#: All but the rates.
COUNTS = OF_QUEUE[:-2]

#: The numbers by which `destinations` can be sorted.
SORTS = (
    *("ready", "unacknowledged", "scheduled", "paged", "bytes", "consumers", "producers_waiting", "received"),
    *("delivered", "received_rate", "delivered_rate", "redelivered", "expired", "dropped", "dead_letters"),
)

#: The numbers of a second in `history`.
HISTORY = (
    *("age", "messages_rate", "delivered_rate", "acknowledged_rate", "sessions", "memory_used", "rss"),
    *("commit_time", "commit_time_most"),
)
#: Those of a sample of one queue.
QUEUE_HISTORY = ("age", "ready", "unacknowledged", "received_rate", "delivered_rate")

QUESTIONS = (
    Request(
        "broker",
        "The broker as a whole; queues to subscriptions are those of this virtual host.",
        (),
        (
            Column("version", "text", "The version of stompcodec."),
            Column("dialect", "text", "`broker.dialect` of the configuration."),
            Column("pid", "whole", "The number of its process."),
            Column("uptime", "number", "Seconds since the start."),
            Column("log_level", "text", "The level of its log."),
            Column("sessions", "whole", "Connections now."),
            Column("sessions_total", "whole", "Connections since the start."),
            Column("sessions_refused", "whole", "Connections and logins refused."),
            Column("queues", "whole", "Queues."),
            Column("topics", "whole", "Topics."),
            Column("durables", "whole", "Durable subscriptions."),
            Column("subscriptions", "whole", "Subscriptions of sessions."),
            Column("messages", "whole", "Messages accepted, dead letters included."),
            Column("messages_rate", "number?", "Messages accepted per second."),
            Column("delivered", "whole", "Messages delivered, redeliveries included."),
            Column("delivered_rate", "number?", "The same per second."),
            Column("acknowledged", "whole", "Messages acknowledged."),
            Column("acknowledged_rate", "number?", "The same per second."),
            Column("dead_letters", "whole", "Ready messages in dead letter queues."),
            Column("duplicates", "whole", "SENDs not stored because their idempotency key was known."),
            Column("memory_used", "whole", "Bytes of the memory account."),
            Column("memory_limit", "whole", "`limits.memory`."),
            Column("rss", "whole?", "Bytes of memory that the process has, on Linux."),
            Column("descriptors", "whole?", "Its open descriptors, on Linux."),
        ),
    ),
    Request(
        "history",
        "What the broker did in the last ten minutes, for all virtual hosts; or one of its hundred deepest queues.",
        (_QUEUE._replace(required=False),),
        (
            Column("names", "list", "`age`, and fields of `broker` and `store`, or `destinations`."),
            Column("seconds", "list", "Their numbers, the oldest first: each second, for a queue each fifth."),
        ),
    ),
    Request(
        "sessions",
        "The sessions that have connected.",
        _PAGE,
        (
            Column("session", "text", "Its id, for `close`."),
            Column("peer", "text", "The address of the client."),
            Column("user", "text", "The login; empty without one."),
            Column("client_id", "text?", "The client-id of CONNECT."),
            Column("version", "text", "The version of STOMP."),
            Column("listener", "text", "The listener: stomp, tls, ws or legacy."),
            Column("secure", "flag", "The connection uses TLS."),
            Column("age", "number", "Seconds since the connection was opened."),
            Column("subscriptions", "whole", "Its subscriptions."),
            Column("received_rate", "number?", "Messages that it sends per second."),
            Column("delivered_rate", "number?", "Messages that it gets per second."),
            Column("unacknowledged", "whole", "Messages that it has not acknowledged."),
            Column("transactions", "whole", "Its open transactions."),
            Column("waiting", "flag", "It is not read: it waits for room or the disk, or has to read."),
            Column("unwritten", "whole", "Bytes of output that it has not read."),
            Column("memory", "whole", "Bytes of the memory account that it holds."),
        ),
        is_list=True,
    ),
    Request(
        "destinations",
        "The queues and topics, by name.",
        (
            *_PAGE,
            _MATCH,
            Field("kind", one_of("queue", "topic"), "Only queues, or only topics."),
            Field("sort", one_of(*SORTS), "The highest first, by this column."),
        ),
        (
            Column("destination", "text", "Its name."),
            Column(
                "kind", "text", "`queue` or `topic`. The numbers of a topic are those of its subscriptions together."
            ),
            Column("owner", "text?", "The session to which it belongs, with which it ends."),
            *OF_QUEUE,
        ),
        is_list=True,
    ),
    Request(
        "subscriptions",
        "The subscriptions of the sessions.",
        (
            *_PAGE,
            Field("session", text, "Only those of this session."),
            Field("destination", text, "Only those to this destination."),
        ),
        (
            Column("session", "text", "The session that has it."),
            Column("subscription", "text?", "Its id; null for one of STOMP 1.0 without an id."),
            Column("destination", "text", "The destination of its SUBSCRIBE."),
            Column("ack", "text", "auto, client or client-individual."),
            Column("selector", "text?", "Its selector."),
            Column("durable", "text?", "The name of its durable subscription."),
            Column("browser", "flag", "It browses the queue."),
            Column("exclusive", "flag", "It is exclusive."),
            Column("priority", "whole", "Its priority among consumers."),
            Column("credit", "whole", "Further messages that it may have, at most 1,000,000."),
            Column("unacknowledged", "whole", "Messages that it has not acknowledged."),
            Column("waiting", "whole", "Messages of a topic that wait for it."),
        ),
        is_list=True,
    ),
    Request(
        "transactions",
        "The open transactions.",
        _PAGE,
        (
            Column("session", "text", "The session that has it."),
            Column("transaction", "text", "Its name."),
            Column("messages", "whole", "Messages that it sends or settles."),
            Column("bytes", "whole", "Bytes that it holds."),
        ),
        is_list=True,
    ),
    Request(
        "durables",
        "The durable subscriptions.",
        (*_PAGE, _MATCH),
        (
            Column("name", "text", "The name of its queue, for `messages` and orders."),
            Column("user", "text?", "The user to whom it belongs."),
            Column("destination", "text", "The topic, or the pattern of topics."),
            Column("selector", "text?", "Its selector."),
            Column("shared", "flag", "It may have several consumers."),
            *OF_QUEUE,
        ),
        is_list=True,
    ),
    Request(
        "messages",
        "The ready messages of a queue, in the order in which they were accepted. Looking changes nothing.",
        (
            *_PAGE,
            _QUEUE,
            _SELECTOR,
            Field("body", whole(0, MOST_BODY), f"Most bytes of a body to show, 0 to {MOST_BODY}.", default=USUAL_BODY),
        ),
        (
            Column("message_id", "text", "The message-id."),
            Column("seq", "whole", "Its place in the order of all messages."),
            Column("destination", "text", "Where it was sent to."),
            Column("headers", "list", "The headers, in order: pairs of a name and a value."),
            Column("size", "whole", "Bytes of the body."),
            Column("body", "text", "The body, or its beginning."),
            Column("encoding", "text", "`utf-8`, or `base64` if what is shown is not UTF-8."),
            Column("truncated", "flag", "The body is longer than what is shown."),
            Column("persistent", "flag", "It is stored."),
            Column("priority", "whole", "Its priority, 0 to 9."),
            Column("attempts", "whole", "Failed deliveries."),
            Column("expires", "number?", "When it expires, in seconds since 1970."),
            Column("age", "number", "Its age."),
            Column("origin", "text?", "The queue of a dead letter that the broker made."),
        ),
        is_list=True,
    ),
    Request(
        "store",
        "The store of persistent messages, of all virtual hosts.",
        (),
        (
            Column("kind", "text", "`sqlite`, `memory`, or `none`."),
            Column("bytes", "whole?", "Bytes of its files without large messages; null without files."),
            Column("free", "whole?", "Bytes that it can store before the disk is full; null if unknown."),
            Column("refusing", "flag", "The disk is nearly full: messages to be stored are refused."),
            Column("commits", "whole", "Commits."),
            Column("failures", "whole", "Commits that have failed."),
            Column("commit_time", "number?", "Seconds of the last commit."),
            Column("commit_time_most", "number?", "Seconds of the longest of the last 100 commits."),
            Column("pending", "whole", "Operations that wait for the next commit."),
            Column("behind", "flag", "The disk is slower than the senders, which wait."),
            Column("producers_waiting", "whole", "Sessions that wait for the disk."),
            Column("written", "whole", "Bytes of messages written."),
            Column("large_bytes", "whole", "Bytes of the bodies of large messages in files."),
        ),
    ),
    Request(
        "memory",
        "The memory account of the broker, of all virtual hosts, by holder.",
        (),
        (
            Column("limit", "whole", "`limits.memory`."),
            Column("used", "whole", "The sum of the holders below."),
            Column("senders_wait_above", "whole", "Above this, senders to the largest queues wait."),
            Column("sessions_end_above", "whole", "Above this, the session that holds most is ended."),
            Column("queues", "whole", "Messages in queues and durable subscriptions."),
            Column("topics", "whole", "Messages that wait for subscribers of topics."),
            Column("retained", "whole", "Retained messages."),
            Column("scheduled", "whole", "Scheduled messages, beside what their queues hold."),
            Column("commits", "whole", "Messages that wait for the disk and are in no queue."),
            Column("sessions", "whole", "Unfinished frames, open transactions and unread output."),
            Column("connections", "whole", "Connections, subscriptions and what sessions remember of destinations."),
            Column("destinations", "whole", "Queues, topics and durable subscriptions themselves."),
            Column("keys", "whole", "Idempotency keys."),
            Column("other", "whole", "The rest, which changes while this is counted."),
            Column("largest_queues", "list", "Up to 10 queues of this virtual host: `destination` and `bytes`."),
            Column("largest_sessions", "list", "Up to 10 sessions of this virtual host: `session` and `bytes`."),
        ),
    ),
)

ORDERS = (
    Request(
        "purge",
        "Remove the ready messages of a queue. Those that a consumer has, or that are scheduled, stay.",
        (_QUEUE, _SELECTOR, _ID, _MOST),
        (Column("destination", "text", "The queue."), Column("messages", "whole", "Messages removed.")),
        is_order=True,
    ),
    Request(
        "move",
        "Move ready messages to another queue, oldest first. Each gets a new message-id there.",
        (
            _QUEUE,
            Field(
                "to", text, "A queue or topic. Without it, dead letters are sent again, each to the queue it came from."
            ),
            _SELECTOR,
            _ID,
            _MOST,
        ),
        (
            Column("destination", "text", "The queue they were in."),
            Column("messages", "whole", "Messages moved."),
            Column("skipped", "whole", "Messages left, because their origin is unknown, not a queue, or full."),
            Column("stopped", "text?", "Why the order ended early."),
        ),
        is_order=True,
    ),
    Request(
        "delete",
        "Delete a queue, a durable subscription or a topic without consumers, with all its messages.",
        (Field("destination", text, "Its name.", required=True),),
        (Column("destination", "text", "Its name."), Column("messages", "whole", "Messages that it had.")),
        is_order=True,
    ),
    Request(
        "close",
        "Close a session, which gets an ERROR. What it has not acknowledged returns to the queues.",
        (Field("session", text, "The id of the session, not that of the sender.", required=True),),
        (Column("session", "text", "The session."),),
        is_order=True,
    ),
    Request(
        "pause",
        "Pause the deliveries of a queue or durable subscription. Senders go on. A restart of the broker ends it.",
        (_QUEUE,),
        (Column("destination", "text", "The queue."), Column("changed", "flag", "It was not paused before.")),
        is_order=True,
    ),
    Request(
        "resume",
        "Go on with the deliveries of a paused queue.",
        (_QUEUE,),
        (Column("destination", "text", "The queue."), Column("changed", "flag", "It was paused before.")),
        is_order=True,
    ),
    Request(
        "backup",
        "Copy the store, large bodies included, to a new data folder on the broker's machine, while it goes on.",
        (Field("to", text, "The folder, which must not exist.", required=True),),
        (Column("to", "text", "The folder."), Column("bytes", "whole", "Bytes of its database.")),
        is_order=True,
    ),
    Request(
        "log-level",
        "Set the level of the broker's log, until it restarts.",
        (Field("level", one_of(*LEVELS), f"One of {', '.join(LEVELS)}.", required=True),),
        (Column("level", "text", "The level now."), Column("before", "text", "The level before.")),
        is_order=True,
    ),
)

#: All requests by name.
REQUESTS = {request.name: request for request in (*QUESTIONS, *ORDERS)}


def markdown() -> str:
    """Return the tables of docs/management.md.

    >>> markdown().splitlines()[0]
    '## Questions'
    """
    lines: list[str] = []
    told = False
    for title, requests in (("Questions", QUESTIONS), ("Orders", ORDERS)):
        lines += [f"## {title}", ""]
        for request in requests:
            fields = [each for each in request.fields if each not in _PAGE]
            columns, of_queue = request.columns, request.columns[-len(OF_QUEUE) :] == OF_QUEUE
            answer, few = "Rows:" if request.is_list else "Result:", len(columns) <= _FEW
            lines += [f"### `{request.name}`", "", request.doc if fields or few else f"{request.doc} {answer}", ""]
            if fields:
                lines += [*(f"- `{each.name}`{_default(each)}: {each.doc}" for each in fields), ""]
            shown = [f"`{each.name}`{_kind(each)}: {each.doc}" for each in columns]
            if of_queue and told:
                shown[-len(OF_QUEUE) :] = ["the columns of [`destinations`](#destinations) from `ready` on"]
            if few:
                lines += [" ".join([answer, *shown]), ""]
            else:
                lines += [answer, ""] * bool(fields) + [*(f"- {each}" for each in shown), ""]
            told |= of_queue
    return "\n".join(lines[:-1]) + "\n"


def page_of(page: str) -> str:
    """Return docs/management.md with the tables of now.

    >>> page_of("# Managing\\n\\n## Questions\\n").startswith("# Managing\\n\\n## Questions\\n\\n### `broker`")
    True
    """
    return page[: page.index("## Questions\n")] + markdown()


def _default(field: Field) -> str:
    if field.required:
        return " (required)"
    return "" if field.default is None else f" (`{field.default}`)"


#: Columns that the page shows in one paragraph, at most.
_FEW = 4


def _kind(column: Column) -> str:
    """Return what the page says of a kind; a whole number is the usual one."""
    kind = column.kind.removeprefix("whole").replace("flag", "bool")
    return f" ({kind})" if kind else ""
