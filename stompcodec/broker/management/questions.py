"""The answers to questions, as generators: each yields where it waits for its next turn, and returns the answer."""

from __future__ import annotations

import heapq
import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
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
from stompcodec.broker.management.pages import LOOKS_AT_ONCE, ROWS_AT_ONCE, in_turns, place_of, token_of
from stompcodec.broker.management.rates import Ages, rates
from stompcodec.broker.management.reading import BadRequest
from stompcodec.broker.management.rows import (
    Clock,
    Row,
    durable_row,
    message_row,
    queue_row,
    session_row,
    subscription_row,
    topic_row,
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
        self._sorted: dict[str, tuple[float, list[tuple[str, str]]]] = {}

    def _clock(self) -> Clock:
        return Clock(self._broker.now, self._ages)

    # ---- the broker ----

    def broker(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `broker`."""
        broker, host, now = self._broker, asker.host, self._broker.now
        subscriptions = yield from in_turns(
            (len(session.consumers) for session in self._sessions(asker)), broker.quota, LOOKS_AT_ONCE
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

    def _sessions(self, asker: Asker, after: int = 0) -> Iterator[Session]:
        """Yield the sessions of the asker's virtual host that have connected, behind a number, in order."""
        for session in list(self._broker.sessions.values()):
            if _number(session) > after and session.version and session.virtual_host is asker.host:
                yield session

    def sessions(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `sessions`."""
        (after,) = (0,) if fields["page"] is None else place_of(fields["page"], int)
        limit, now = fields["limit"], self._broker.now
        found = islice(self._sessions(asker, after), limit + 1)
        pairs = ((_number(session), session_row(session, now)) for session in found)
        rows = yield from in_turns(pairs, self._broker.quota, ROWS_AT_ONCE)
        return _page(rows, limit, lambda number: (number,))

    def subscriptions(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `subscriptions`."""
        session_after, after = (0, 0) if fields["page"] is None else place_of(fields["page"], int, int)
        limit, only, destination = fields["limit"], fields["session"], fields["destination"]
        if only is not None and only not in self._broker.sessions:
            raise BadRequest("session", "there is no session with this id")

        def found() -> Iterator[tuple[tuple[int, int], Row]]:
            for session in self._sessions(asker, session_after - 1):
                if only is not None and session.id != only:
                    continue
                for consumer in list(session.consumers.values()):
                    place = _number(session), consumer.number
                    if place > (session_after, after) and destination in (None, consumer.destination):
                        yield place, subscription_row(session, consumer)

        rows = yield from in_turns(islice(found(), limit + 1), self._broker.quota, ROWS_AT_ONCE)
        return _page(rows, limit, lambda place: place)

    def transactions(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `transactions`."""
        session_after, after = (0, 0) if fields["page"] is None else place_of(fields["page"], int, int)
        limit = fields["limit"]

        def found() -> Iterator[tuple[tuple[int, int], Row]]:
            for session in self._sessions(asker, session_after - 1):
                for number, (name, transaction) in enumerate(list(session.transactions.items()), 1):
                    place = _number(session), number
                    if place > (session_after, after):
                        yield place, transaction_row(session, name, transaction)

        rows = yield from in_turns(islice(found(), limit + 1), self._broker.quota, ROWS_AT_ONCE)
        return _page(rows, limit, lambda place: place)

    # ---- destinations ----

    def destinations(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `destinations`."""
        names, host = self._names(asker), asker.host
        match, kind, sort, limit = fields["match"], fields["kind"], fields["sort"], fields["limit"]
        clock = self._clock()

        def found_of(entries: Iterable[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], Queue | Topic]]:
            for name, what in entries:
                if kind not in (None, what) or (match is not None and not matches(match, name)):
                    continue
                thing = host.queues.get(name) if what == "queue" else host.topics.get(name)
                if thing is not None:
                    yield (name, what), thing

        def rows_of(entries: Iterable[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], Row]]:
            for place, thing in found_of(entries):
                owner = host.owners.get(place[0])
                mine = None if owner is None else owner.id
                made = queue_row(thing, mine, clock) if isinstance(thing, Queue) else topic_row(thing, mine, clock)
                yield place, made

        if sort is None:
            at = 0 if fields["page"] is None else bisect_right(names, tuple(place_of(fields["page"], str, str)))
            found = islice(rows_of(islice(names, at, None)), limit + 1)
            rows = yield from in_turns(found, self._broker.quota, ROWS_AT_ONCE)
            return _page(rows, limit, lambda place: place)
        skipped = 0 if fields["page"] is None else max(0, place_of(fields["page"], int)[0])
        pairs = ((sort_key(thing, sort, clock), place) for place, thing in found_of(names))
        every = yield from in_turns(pairs, self._broker.quota, LOOKS_AT_ONCE)
        upto = skipped + limit
        highest = heapq.nlargest(min(upto + 1, len(every)), every, key=itemgetter(0))
        page = rows_of(place for _, place in highest[skipped:upto])
        rows = yield from in_turns(page, self._broker.quota, ROWS_AT_ONCE)
        return {"rows": [row for _, row in rows], "next": token_of([upto]) if len(highest) > upto else None}

    def _names(self, asker: Asker) -> list[tuple[str, str]]:
        """Return the names and kinds of all destinations of a virtual host, sorted not long ago."""
        now, host = self._broker.now, asker.host
        at, names = self._sorted.get(host.vhost, (0.0, None))
        if names is None or not 0.0 <= now - at < _SORTED_FOR or len(names) != len(host.queues) + len(host.topics):
            names = sorted([*((name, "queue") for name in host.queues), *((name, "topic") for name in host.topics)])
            self._sorted = {host.vhost: (now, names)}
        return names

    def forget(self) -> None:
        """Drop the sorted names when nobody has asked for a while."""
        now = self._broker.now
        self._sorted = {vhost: entry for vhost, entry in self._sorted.items() if now - entry[0] < _SORTED_FOR}

    def durables(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        """Answer `durables`."""
        match, limit, clock = fields["match"], fields["limit"], self._clock()
        (after,) = ("",) if fields["page"] is None else place_of(fields["page"], str)
        by_name = {title(durable.owner, durable.name): durable for durable in asker.host.destinations.durables}
        names = sorted(name for name in by_name if name > after and (match is None or matches(match, name)))
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


def _page(rows: list[tuple[Any, Row]], limit: int, place: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a page of rows with their places, of which there may be one more than `limit`."""
    more = len(rows) > limit
    return {"rows": [row for _, row in rows[:limit]], "next": token_of(place(rows[limit - 1][0])) if more else None}
