"""The answers to questions, as generators: each yields where it waits for its next turn, and returns the answer."""

from __future__ import annotations

import heapq
import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from operator import itemgetter
from time import perf_counter
from typing import Any

from stompcodec import __version__
from stompcodec.broker.auth import matches
from stompcodec.broker.core import Broker
from stompcodec.broker.loop_quota import Line
from stompcodec.broker.management.asker import Asker
from stompcodec.broker.management.finding import queue_named, selector_of
from stompcodec.broker.management.holders import memory
from stompcodec.broker.management.pages import LOOKS_AT_ONCE, ROWS_AT_ONCE, in_turns, map_in_turns, place_of, token_of
from stompcodec.broker.management.rates import Ages, rates
from stompcodec.broker.management.reading import BadRequest
from stompcodec.broker.management.rows import (
    Clock,
    Row,
    destination_row,
    durable_row,
    message_row,
    session_row,
    subscription_row,
    transaction_row,
)
from stompcodec.broker.management.schema import MOST_BODIES
from stompcodec.broker.management.sorting import sort_key
from stompcodec.broker.management.walker import Walker
from stompcodec.broker.queues.backlog import Wait
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.durable import title
from stompcodec.broker.routing.topic import Topic
from stompcodec.broker.sessions.session import Session

#: Seconds for which the sorted names of destinations serve the pages that follow.
_SORTED_FOR = 2.0
#: Names that are sorted in one turn, before all are.
_SORTED_AT_ONCE = 5000
#: Messages that are shown in one turn, and the bytes of all looked at.
_SHOWN_AT_ONCE, _BYTES_AT_ONCE = 50, 262_144

Answering = Generator[Line, None, dict[str, Any]]


class _Count:
    """The messages of the whole broker, as `rates` wants them."""

    sample: object = None


class Questions:
    """The questions to one broker. `ages` tells when messages were sent."""

    def __init__(self, broker: Broker, ages: Ages) -> None:
        self._broker = broker
        self._ages = ages
        self._seq = broker.seq
        self._all = _Count()
        #: The names and kinds of the destinations of a virtual host, sorted; and when they were.
        self._sorted: dict[str, tuple[float, list[str], list[object]]] = {}

    def _clock(self) -> Clock:
        return Clock(self._broker.now, self._ages)

    # ---- the broker ----

    def broker(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `broker`."""
        broker, host, now = self._broker, asker.host, self._broker.now
        subscriptions = yield from in_turns(
            (None if session is None else len(session.consumers) for session in self._sessions(asker)),
            *(broker.quota, LOOKS_AT_ONCE),
        )
        messages = broker.seq - self._seq
        return {
            "version": __version__,
            "dialect": broker.config.dialect,
            "pid": os.getpid(),
            "uptime": round(now - self._ages.start, 3),
            "log_level": logging.getLevelName(broker.log.getEffectiveLevel()).lower(),
            "sessions": len(broker.sessions),
            "sessions_total": broker.stats.sessions_total,
            "sessions_refused": broker.stats.sessions_refused,
            "queues": len(host.queues),
            "topics": len(host.topics),
            "durables": len(host.destinations.durables),
            "subscriptions": sum(subscriptions),
            "messages": messages,
            "messages_rate": rates(self._all, now, messages, 0)[0],
            "duplicates": broker.stats.duplicates,
            "memory_used": broker.account.used,
            "memory_limit": broker.account.limit,
        }

    def store(self, asker: Asker, fields: dict[str, Any]) -> dict[str, Any]:
        """Answer `store`."""
        broker, journal = self._broker, self._broker.journal
        store = journal.store
        kind = "none" if store is None else "sqlite" if broker.config.data is not None else "memory"
        times = list(journal.times)
        if journal.busy is not None:
            times.append(perf_counter() - journal.began)
        return {
            "kind": kind if journal.keeps or store is None else "none",
            "bytes": None if store is None else store.size(),
            "free": None if store is None else store.room(),
            "refusing": journal.short,
            "commits": journal.commits,
            "failures": journal.failures,
            "commit_time": round(times[-1], 6) if times else None,
            "commit_time_most": round(max(times), 6) if times else None,
            "pending": 0 if store is None else store.pending,
            "behind": journal.behind,
            "producers_waiting": len(journal.blocked),
            "written": 0 if store is None else store.written,
            "large_bytes": broker.spool.octets,
        }

    def memory(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `memory`."""
        return (yield from memory(self._broker, asker))

    # ---- sessions and what they have ----

    def _sessions(self, asker: Asker, after: int = 0) -> Iterator[Session | None]:
        """Yield the sessions of the asker's virtual host that have connected, behind a number, in order; None for each
        other one.
        """
        for session in list(self._broker.sessions.values()):
            mine = _number(session) > after and session.version and session.virtual_host is asker.host
            yield session if mine else None

    def sessions(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `sessions`."""
        (after,) = (0,) if fields["page"] is None else place_of(fields["page"], int)
        limit, now = fields["limit"], self._broker.now
        pairs = (
            None if session is None else (_number(session), session_row(session, now))
            for session in self._sessions(asker, after)
        )
        rows = yield from in_turns(pairs, self._broker.quota, ROWS_AT_ONCE, limit + 1)
        return _page(rows, limit, lambda number: (number,))

    def subscriptions(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `subscriptions`."""
        session_after, after = (0, 0) if fields["page"] is None else place_of(fields["page"], int, int)
        limit, only, destination = fields["limit"], fields["session"], fields["destination"]
        if only is not None and only not in self._broker.sessions:
            raise BadRequest("session", "there is no session with this id")

        def found() -> Iterator[tuple[tuple[int, int], Row] | None]:
            for session in self._sessions(asker, session_after - 1):
                if session is None or only not in (None, session.id):
                    yield None
                    continue
                for consumer in list(session.consumers.values()):
                    place = _number(session), consumer.number
                    wanted = place > (session_after, after) and destination in (None, consumer.destination)
                    yield (place, subscription_row(session, consumer)) if wanted else None

        rows = yield from in_turns(found(), self._broker.quota, ROWS_AT_ONCE, limit + 1)
        return _page(rows, limit, lambda place: place)

    def transactions(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `transactions`."""
        session_after, after = (0, 0) if fields["page"] is None else place_of(fields["page"], int, int)
        limit = fields["limit"]

        def found() -> Iterator[tuple[tuple[int, int], Row] | None]:
            for session in self._sessions(asker, session_after - 1):
                yield None
                if session is None:
                    continue
                for number, (name, transaction) in enumerate(list(session.transactions.items()), 1):
                    place = _number(session), number
                    if place > (session_after, after):
                        yield place, transaction_row(session, name, transaction)

        rows = yield from in_turns(found(), self._broker.quota, ROWS_AT_ONCE, limit + 1)
        return _page(rows, limit, lambda place: place)

    # ---- destinations ----

    def destinations(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `destinations`."""
        names, host = (yield from self._names(asker)), asker.host
        match, kind, sort, limit = fields["match"], fields["kind"], fields["sort"], fields["limit"]
        clock = self._clock()

        def thing_of(entry: str) -> Queue | Topic | None:
            name, _, what = entry.rpartition("\0")
            if kind not in (None, what) or (match is not None and not matches(match, name)):
                return None
            return host.queues.get(name) if what == "queue" else host.topics.get(name)

        def row_of(entry: str) -> tuple[str, Row] | None:
            thing = thing_of(entry)
            if thing is None:
                return None
            owner = host.owners.get(thing.name)
            return entry, destination_row(thing, None if owner is None else owner.id, clock)

        def key_of(entry: str) -> tuple[float, str] | None:
            thing = thing_of(entry)
            return None if thing is None else (sort_key(thing, sort, clock), entry)

        if sort is None:
            at = 0 if fields["page"] is None else bisect_right(names, "\0".join(place_of(fields["page"], str, str)))
            found = map(row_of, islice(names, at, None))
            rows = yield from in_turns(found, self._broker.quota, ROWS_AT_ONCE, limit + 1)
            return _page(rows, limit, _name_and_kind)
        skipped = 0 if fields["page"] is None else max(0, place_of(fields["page"], int)[0])
        keys = yield from map_in_turns(key_of, names, self._broker.quota, LOOKS_AT_ONCE)
        upto = skipped + limit
        every = list(filter(None, keys))
        highest = heapq.nlargest(min(upto + 1, len(every)), every, key=itemgetter(0))
        page = map(row_of, (entry for _, entry in highest[skipped:upto]))
        rows = yield from in_turns(page, self._broker.quota, ROWS_AT_ONCE)
        return {"rows": [row for _, row in rows], "next": token_of([upto]) if len(highest) > upto else None}

    def _names(self, asker: Asker) -> Generator[Line, None, list[str]]:
        """Return all destinations of a virtual host as NAME + NUL + KIND, sorted not long ago: texts are sorted many
        times faster than pairs, in the same order.
        """
        now, host = self._broker.now, asker.host
        # Those that came since then are behind these, so that with equal numbers none came or went.
        newest = [next(reversed(things.values()), None) for things in (host.queues, host.topics)]
        newest += [len(host.queues), len(host.topics)]
        at, names, then = self._sorted.get(host.vhost, (0.0, None, []))
        if names is None or not 0.0 <= now - at < _SORTED_FOR or then != newest:
            queues, topics, names = list(host.queues), list(host.topics), []
            for some, kind in ((queues, "queue"), (topics, "topic")):
                for begin in range(0, len(some), _SORTED_AT_ONCE):
                    names += sorted(f"{name}\0{kind}" for name in some[begin : begin + _SORTED_AT_ONCE])
                    if begin:
                        yield self._broker.quota
            names.sort()  # quick, because most of it is in order
            self._sorted = {host.vhost: (now, names, newest)}
        return names

    def forget(self) -> None:
        """Drop the sorted names when nobody has asked for a while."""
        now = self._broker.now
        self._sorted = {vhost: entry for vhost, entry in self._sorted.items() if now - entry[0] < _SORTED_FOR}

    def durables(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `durables`."""
        match, limit, clock = fields["match"], fields["limit"], self._clock()
        (after,) = ("",) if fields["page"] is None else place_of(fields["page"], str)
        titled = ((title(durable.owner, durable.name), durable) for durable in list(asker.host.destinations.durables))
        pairs = (pair if pair[0] > after and (match is None or matches(match, pair[0])) else None for pair in titled)
        by_name = dict((yield from in_turns(pairs, self._broker.quota, LOOKS_AT_ONCE)))
        names = sorted(by_name)
        found = ((name, durable_row(by_name[name], clock)) for name in names[: limit + 1])
        rows = yield from in_turns(found, self._broker.quota, ROWS_AT_ONCE)
        return _page(rows, limit, lambda name: (name,))

    # ---- messages ----

    def messages(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `messages`."""
        queue, selector = queue_named(asker, fields["destination"]), selector_of(fields["selector"])
        (after,) = (-1,) if fields["page"] is None else place_of(fields["page"], int)
        walker = Walker(queue, after, self._broker.seq)
        try:
            return (yield from self._messages(walker, queue, selector, fields))
        finally:
            walker.close()

    def _messages(self, walker: Walker, queue: Queue, selector: Any, fields: dict[str, Any]) -> Answering:
        limit, most, clock = fields["limit"], fields["body"], self._clock()
        rows: list[Row] = []
        looked = octets = shown = 0
        last = walker.seq
        while True:
            message = walker.next()
            if isinstance(message, Wait):
                yield walker.pages
                continue
            if message is None:
                return {"rows": rows, "next": None}
            looked, octets = looked + 1, octets + message.size
            if not queue.is_expired(message) and (selector is None or selector.matches(message)):
                cost = message.size if message.body is None else message.size + most
                shown += min(cost, most + message.tail.find(b"\n\n"))
                if len(rows) >= limit or (rows and shown > MOST_BODIES):
                    return {"rows": rows, "next": token_of([last])}
                rows.append(message_row(message, most, clock))
            last = message.seq
            if looked % _SHOWN_AT_ONCE == 0 or octets > _BYTES_AT_ONCE:
                octets = 0
                yield self._broker.quota


def _number(session: Session) -> int:
    """Return the number in the id of a session, which rises."""
    return int(session.id.partition("-")[0])


def _name_and_kind(entry: str) -> tuple[str, str]:
    """Return the place of an entry of the sorted destinations."""
    name, _, kind = entry.rpartition("\0")
    return name, kind


def _page(rows: list[tuple[Any, Row]], limit: int, place: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a page of rows with their places, of which there may be one more than `limit`."""
    more = len(rows) > limit
    return {"rows": [row for _, row in rows[:limit]], "next": token_of(place(rows[limit - 1][0])) if more else None}
