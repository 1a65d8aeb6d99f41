"""The answers to questions, as generators: each yields where it waits for its next turn, and returns the answer."""

from __future__ import annotations

import base64
import codecs
import heapq
import logging
import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import cycle, islice, takewhile
from math import isnan, nan
from operator import itemgetter
from time import perf_counter
from typing import Any, Protocol

from stompcodec import __version__
from stompcodec.broker.auth import matches
from stompcodec.broker.core import Broker
from stompcodec.broker.loop_quota import Line
from stompcodec.broker.management.schema import (
    HISTORY,
    LOOKS_AT_ONCE,
    MOST_BODIES,
    OF_QUEUE,
    QUEUE_HISTORY,
    ROWS_AT_ONCE,
    Asker,
    BadRequest,
    in_turns,
    map_in_turns,
    place_of,
    token_of,
)
from stompcodec.broker.memory import CONNECTION, DELAY, MESSAGE, destination_cost, selector_cost
from stompcodec.broker.message import SPOOLED, Message
from stompcodec.broker.queues.backlog import Backlog, Wait
from stompcodec.broker.queues.browser import Browser, Copies
from stompcodec.broker.queues.consumer import Consumer
from stompcodec.broker.queues.dispatcher import Dispatcher
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.registry import VirtualHost
from stompcodec.broker.routing.topic import Durable, Topic, fates, title
from stompcodec.broker.selectors import Selector, SelectorError, compile_selector
from stompcodec.broker.sessions.session import Session
from stompcodec.errors import MissingExtraError

#: The least seconds over which a rate is taken.
_LEAST = 1.0
#: Samples of `Ages`: one for each second with messages; older ones are thinned out.
_MOST_SAMPLES = 4096


class Sampled(Protocol):
    """A queue or a topic, which keeps the counts of earlier questions."""

    sample: object


def thousandths(number: float) -> float:
    """Return a number rounded to three decimal places, five times as fast as round(number, 3).

    >>> thousandths(0.12345), thousandths(1234.5)
    (0.123, 1234.5)
    """
    return round(number * 1000) / 1000


def rates(thing: Sampled, now: float, received: int, delivered: int) -> tuple[float | None, float | None]:
    """Return the messages received and delivered per second since an earlier question, at least a second ago.

    Several clients may ask: none of them shortens the time over which the others measure.

    >>> class Thing: sample = None
    >>> rates(Thing, 0.0, 0, 0), rates(Thing, 2.0, 10, 8), rates(Thing, 2.5, 11, 9)
    ((None, None), (5.0, 4.0), (4.4, 3.6))
    """
    sample = thing.sample
    # The counts of two earlier questions, `_LEAST` seconds apart or more: the later one first. A plain tuple, because
    # each queue of an answer gets one: a named one takes ten times the instructions.
    if not isinstance(sample, tuple):
        thing.sample = (now, received, delivered, now, received, delivered)
        return None, None
    if now - sample[0] >= _LEAST:
        thing.sample = sample = (now, received, delivered, sample[0], sample[1], sample[2])
    seconds = now - sample[3]
    if seconds < _LEAST:
        return None, None
    more, gone = received - sample[4], delivered - sample[5]
    return thousandths(more / seconds) if more else 0.0, thousandths(gone / seconds) if gone else 0.0


class Ages:
    """When messages were sent, by their seqs: samples of the latest seq, about one per second.

    >>> ages = Ages(0.0, 5)
    >>> ages.note(1.0, 7); ages.note(2.0, 7); ages.note(3.0, 9)
    >>> ages.age(6, 10.0), ages.age(8, 10.0), ages.age(10, 10.0), ages.age(4, 10.0)
    (10.0, 8.0, 7.0, 10.0)
    """

    def __init__(self, now: float, seq: int) -> None:
        self.start = now
        #: Each seq, and the last time at which it was the latest.
        self._seqs, self._times = [seq], [now]

    def note(self, now: float, seq: int) -> None:
        if seq == self._seqs[-1]:
            self._times[-1] = now
            return
        self._seqs.append(seq)
        self._times.append(now)
        if len(self._seqs) > _MOST_SAMPLES:  # the first half becomes half as dense
            half = len(self._seqs) // 2
            self._seqs[:half] = self._seqs[:half:2]
            self._times[:half] = self._times[:half:2]

    def age(self, seq: int, now: float) -> float:
        """Return the seconds since a message was sent, a second too many, or since the start of this broker."""
        at = bisect_left(self._seqs, seq)
        passed = now - (self._times[at - 1] if at else self.start)
        return thousandths(passed) if passed > 0.0 else 0.0


Row = tuple[Any, ...]
#: The most credit that is shown.
MOST_CREDIT = 1_000_000


class Clock:
    """The time of the rows of one answer: monotonic seconds, and the ages of messages."""

    __slots__ = ("ages", "now")

    def __init__(self, now: float, ages: Ages) -> None:
        self.now = now
        self.ages = ages


def first_seq(queue: Queue) -> int | None:
    line, paging = queue.messages.line, queue.paging
    first = line.after_seq(-1) if isinstance(line, Backlog) else line[0] if line else None
    paged = None if paging is None else paging.first_after(-1)
    if paged is None:
        return None if first is None else first.seq
    return paged + 1 if first is None else min(first.seq, paged + 1)


def queue_counts(queue: Queue, clock: Clock) -> Row:
    ready, unacked, scheduled = queue.depth()
    tally, members = queue.tally, queue.members
    oldest = first_seq(queue) if ready else None
    return (
        ready,
        unacked,
        scheduled,
        0 if queue.paging is None else queue.paging.count,
        queue.octets,
        len(members),
        _credit(members) if members else 0,
        len(queue.blocked),
        queue.paused,
        queue.tally.put,
        queue.delivered(),
        tally.redelivered,
        tally.expired,
        tally.dropped,
        tally.dead,
        None if oldest is None else clock.ages.age(oldest, clock.now),
    )


#: The places of what the rates are taken of.
_RECEIVED, _DELIVERED = 9, 10


def queue_numbers(queue: Queue, clock: Clock) -> Row:
    counts = queue_counts(queue, clock)
    return counts + rates(queue, clock.now, counts[_RECEIVED], counts[_DELIVERED])


def _credit(consumers: Iterable[Consumer]) -> int:
    return sum(max(0, min(consumer.credit, MOST_CREDIT)) for consumer in consumers)


def topic_numbers(topic: Topic, clock: Clock) -> Row:
    """Return the sums of a topic's subscriptions. What became of messages counts for those to this topic alone."""
    consumers = topic.consumers
    queues = [each.queue for each in consumers if isinstance(each.queue, Queue)]
    depths = [queue.depth() for queue in queues]
    seqs = [seq for queue in queues if (seq := first_seq(queue)) is not None]
    return (
        sum(ready for ready, _, _ in depths),
        sum(unacked for _, unacked, _ in depths),
        0,
        0,
        sum(queue.octets for queue in queues),
        len(consumers),
        _credit(consumers),
        sum(len(queue.blocked) for queue in queues),
        False,
        topic.received,
        topic.delivered,
        *fates([each.queue for each in topic.own if isinstance(each.queue, Queue)], topic.fates),
        clock.ages.age(min(seqs), clock.now) if seqs else None,
        *rates(topic, clock.now, topic.received, topic.delivered),
    )


def destination_row(thing: Queue | Topic, owner: str | None, clock: Clock) -> Row:
    if isinstance(thing, Queue):
        return (thing.name, "queue", owner) + queue_numbers(thing, clock)  # a * takes four times as long
    return (thing.name, "topic", owner, *topic_numbers(thing, clock))


def durable_row(durable: Durable, clock: Clock) -> Row:
    return (
        title(durable.owner, durable.name),
        durable.owner,
        durable.address.name,
        None if durable.selector is None else durable.selector.text,
        durable.shared,
        *queue_numbers(durable.queue, clock),
    )


def session_row(session: Session, now: float) -> Row:
    memory = session.memory
    received, delivered = rates(session, now, session.received, session.outbox.delivered)
    return (
        session.id,
        session.peer,
        session.user.name,
        session.client_id,
        session.version,
        session.listener,
        session.secure,
        round(max(0.0, now - session.since), 3),
        len(session.consumers),
        received,
        delivered,
        sum(len(consumer.unacked) for consumer in session.consumers.values()),
        len(session.transactions),
        session.paused,
        memory.unwritten,
        memory.fixed + memory.spare,
    )


def subscription_row(session: Session, consumer: Consumer) -> Row:
    durable, selector, queue = consumer.durable, consumer.request.selector, consumer.queue
    own = consumer.address is not None and isinstance(queue, Queue) and not isinstance(queue, Browser)
    return (
        session.id,
        consumer.key,
        consumer.destination,
        consumer.mode,
        None if selector is None else selector.text,
        title(durable.owner, durable.name) if isinstance(durable, Durable) else None,
        consumer.request.browser,
        consumer.request.exclusive,
        consumer.request.priority,
        max(0, min(consumer.credit, MOST_CREDIT)),
        len(consumer.unacked),
        len(queue.messages) if own and isinstance(queue, Queue) else 0,
    )


def message_row(message: Message, most: int, clock: Clock) -> Row:
    frame = message.frame
    body, size = frame.body or b"", len(frame.body or b"")
    if message.body is not None:
        size = message.body.size
        body = _beginning(message, most)
    text, encoding = shown(body[:most], size > most)
    return (
        message.id,
        message.seq,
        message.destination,
        [list(pair) for pair in frame.headers.pairs()],
        size,
        text,
        encoding,
        size > most,
        bool(message.persistent) and message.persistent != SPOOLED,
        message.priority,
        message.attempts,
        message.expires,
        clock.ages.age(message.seq, clock.now),
        message.origin,
    )


def _beginning(message: Message, most: int) -> bytes:
    assert message.body is not None
    try:
        with open(message.body.path, "rb") as file:
            return file.read(most)
    except OSError:
        return b""


def shown(body: bytes, truncated: bool) -> tuple[str, str]:
    """Return bytes as a text and its encoding: UTF-8, of which a character may be cut off at the end, or base64.

    >>> shown(b"hello", False), shown(b"h\\xff", False), shown("ä".encode()[:1], True)
    (('hello', 'utf-8'), ('aP8=', 'base64'), ('', 'utf-8'))
    """
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(body, final=not truncated), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode("ascii"), "base64"


def _rates(queue: Queue, now: float) -> tuple[float, float]:
    received, delivered = rates(queue, now, queue.tally.put, queue.delivered())
    return received or 0.0, delivered or 0.0


#: By column. It equals the column of the row; an unknown rate counts as 0.
_OF_QUEUE: dict[str, Callable[[Queue, float], float]] = {
    "ready": lambda queue, now: queue.depth()[0],
    "unacknowledged": lambda queue, now: queue.depth()[1],
    "scheduled": lambda queue, now: queue.depth()[2],
    "paged": lambda queue, now: 0 if queue.paging is None else queue.paging.count,
    "bytes": lambda queue, now: queue.octets,
    "consumers": lambda queue, now: len(queue.members),
    "producers_waiting": lambda queue, now: len(queue.blocked),
    "received": lambda queue, now: queue.tally.put,
    "delivered": lambda queue, now: queue.delivered(),
    "received_rate": lambda queue, now: _rates(queue, now)[0],
    "delivered_rate": lambda queue, now: _rates(queue, now)[1],
    "redelivered": lambda queue, now: queue.tally.redelivered,
    "expired": lambda queue, now: queue.tally.expired,
    "dropped": lambda queue, now: queue.tally.dropped,
    "dead_letters": lambda queue, now: queue.tally.dead,
}

#: The places of the columns among the numbers of a topic.
_OF_TOPIC = {column.name: at for at, column in enumerate(OF_QUEUE)}


def sort_key(thing: Queue | Topic, column: str, clock: Clock) -> float:
    """Return what a queue or topic is sorted by: the column of its row, and 0 for null."""
    if isinstance(thing, Queue):
        return _OF_QUEUE[column](thing, clock.now)
    value = topic_numbers(thing, clock)[_OF_TOPIC[column]]
    return 0.0 if value is None else float(value)


#: How many of the largest queues and sessions are named.
_NAMED = 10


def memory(broker: Broker, asker: Asker) -> Generator[Line, None, dict[str, Any]]:
    account, journal, quota = broker.account, broker.journal, broker.quota
    queues = destinations = retained = topics = held = connections = 0
    mine: list[tuple[int, Queue]] = []
    for host in broker.hosts.values():
        holding = queues_of(host)
        costs = yield from map_in_turns(_cost, holding, quota, LOOKS_AT_ONCE)
        queues += sum(costs)
        if host is asker.host:
            mine = list(zip(costs, holding, strict=True))
        names, durables = [*host.queues, *host.topics], list(host.destinations.durables)
        destinations += sum((yield from map_in_turns(destination_cost, names, quota, LOOKS_AT_ONCE)))
        destinations += sum((yield from map_in_turns(_cost_of_durable, durables, quota, LOOKS_AT_ONCE)))
        retained += sum(map(_cost, list(host.destinations.retained.queues.values())))
    for number, session in enumerate(list(broker.sessions.values()), 1):
        topics += sum(
            each.queue.octets + each.queue.count * MESSAGE
            for each in session.consumers.values()
            if each.address is not None and not isinstance(each.queue, Browser)
        )
        held += session.memory.spare
        connections += session.memory.fixed
        if not number % LOOKS_AT_ONCE:
            yield quota
    batches = journal.kept + sum(batch.cost for batch in (journal.batch, journal.busy) if batch is not None)
    parts = {
        "queues": queues,
        "topics": topics,
        "retained": retained,
        "scheduled": broker.delayed.cost + DELAY * (len(broker.delayed) + len(broker.retries)),
        "commits": batches,
        "sessions": held,
        "connections": connections,
        "destinations": destinations,
        "keys": broker.sent.cost,
    }
    used, largest = account.used, heapq.nlargest(_NAMED, mine, key=itemgetter(0))
    return {
        "limit": account.limit,
        "used": used,
        "senders_wait_above": account.first,
        "sessions_end_above": account.second,
        **parts,
        "other": used - sum(parts.values()),
        "largest_queues": [{"destination": queue.name, "bytes": cost} for cost, queue in largest if cost],
        "largest_sessions": _largest_sessions(broker, asker.host),
    }


def queues_of(host: VirtualHost) -> list[Queue]:
    return [*host.queues.values(), *(durable.queue for durable in host.destinations.durables)]


def _cost(queue: Queue) -> int:
    cost, dispatcher, paging = queue.cost, queue.dispatcher, queue.paging
    if dispatcher is not None:
        cost += sum(watcher.page_cost for watcher in dispatcher.browsers)
    return cost if paging is None else cost + paging.chunk_cost


def _cost_of_durable(durable: Durable) -> int:
    text = None if durable.selector is None else durable.selector.text
    return destination_cost(durable.name) + selector_cost(text)


def _largest_sessions(broker: Broker, host: VirtualHost) -> list[dict[str, Any]]:
    mine = [session for session in broker.sessions.values() if session.version and session.virtual_host is host]
    found = heapq.nlargest(_NAMED, mine, key=lambda session: session.memory.spare)
    return [
        {"session": session.id, "bytes": session.memory.spare + session.memory.fixed - CONNECTION} for session in found
    ]


#: Seconds for which the sorted names of destinations serve the pages that follow.
_SORTED_FOR = 2.0
#: Names that are sorted in one turn, before all are.
_SORTED_AT_ONCE = 5000
#: Messages that are shown in one turn, and the bytes of all looked at.
_SHOWN_AT_ONCE, _BYTES_AT_ONCE = 50, 262_144
Answering = Generator[Line, None, dict[str, Any]]
_DIGITS = re.compile("[0-9]+")


def _entry(name: str, kind: str) -> str:
    """Return ORDER + NUL + NAME + NUL + KIND, which sorts faster than a tuple. In ORDER, 9 comes before 10."""
    order = _DIGITS.sub(lambda digits: f"{len(digits[0]):03}{digits[0]}", name)
    return f"{order}\0{name}\0{kind}"


class _Count:
    """Messages of the whole broker, as `rates` wants them."""

    sample: object = None


def process_size() -> tuple[int | None, int | None]:
    """Return the bytes of memory that this process has, and its open descriptors; None where /proc does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
        count = os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))  # Linux before 6.2 tells 0
    except OSError:
        return None, None
    return pages * os.sysconf("SC_PAGE_SIZE"), count


def _keep(history: array[float], row: tuple[float | None, ...], most: int) -> None:
    history.extend(nan if number is None else number for number in row)
    del history[: -most * len(row)]


#: Samples of the history, one a second.
_SECONDS = 600
#: A fifth of all queues is looked at each second, and the deepest of it are noted. What is kept of queues takes 1 MB.
_SHARES, _DEEPEST, _KEPT = 5, 20, 200


class Questions:
    """The questions to one broker. `ages` tells when messages were sent."""

    def __init__(self, broker: Broker, ages: Ages) -> None:
        self._broker = broker
        self._ages = ages
        self._seq = broker.seq
        self._all, self._acknowledged = _Count(), _Count()
        #: The columns of each second, one after the other, with the time for the age; and the totals of the last one.
        self._history = array("d")
        self._totals = self._traffic()
        self._noted = broker.now
        #: The same of queues; that of the one noted last stands last.
        self._queues: dict[Queue, array[float]] = {}
        self._share = cycle(range(_SHARES))
        #: The names and kinds of the destinations of a virtual host, sorted; and when they were.
        self._sorted: dict[str, tuple[float, list[str], list[object]]] = {}

    def _clock(self) -> Clock:
        return Clock(self._broker.now, self._ages)

    # ---- the broker ----
    def _traffic(self) -> tuple[int, int, int]:
        broker, sessions = self._broker, self._broker.sessions.values()
        delivered = broker.stats.delivered + sum([each.outbox.delivered for each in sessions])
        acknowledged = broker.stats.acknowledged + sum([each.acknowledged for each in sessions])
        return broker.seq - self._seq, delivered, acknowledged

    def note(self) -> None:
        broker, before, since = self._broker, self._totals, self._broker.now - self._noted
        self._totals, self._noted = self._traffic(), broker.now
        done = [thousandths((now - then) / since) if since > 0 else 0.0 for now, then in zip(self._totals, before)]
        rest = len(broker.sessions), broker.account.used, process_size()[0], *self._commit_times()
        _keep(self._history, (broker.now, *done, *rest), _SECONDS)
        self._note_queues()

    def _note_queues(self) -> None:
        now, kept = self._broker.now, self._queues
        queues = [queue for host in self._broker.hosts.values() for queue in queues_of(host)]
        share = islice(queues, next(self._share), None, _SHARES)
        for queue in heapq.nlargest(_DEEPEST, share, key=lambda queue: (queue.total, queue.tally.put)):
            (ready, unacked, _), speeds = queue.depth(), rates(queue, now, queue.tally.put, queue.delivered())
            kept[queue] = history = kept.pop(queue, None) or array("d")
            _keep(history, (now, ready, unacked, *speeds), _SECONDS // _SHARES)
        while kept and (len(kept) > _KEPT or next(iter(kept.values()))[-len(QUEUE_HISTORY)] <= now - _SECONDS):
            del kept[next(iter(kept))]

    def history(self, asker: Asker, fields: dict[str, Any]) -> dict[str, Any]:
        name, now = fields["destination"], self._broker.now
        numbers = self._history if name is None else self._queues.get(queue_named(asker, name), array("d"))
        names = HISTORY if name is None else QUEUE_HISTORY
        rows = zip(*[iter(numbers)] * len(names), strict=True)
        seconds = [
            [thousandths(now - time), *(None if isnan(number) else number for number in rest)] for time, *rest in rows
        ]
        return {"names": [*names], "seconds": seconds}

    def _commit_times(self) -> tuple[float | None, float | None]:
        """Return the seconds of the last commit, or of one that goes on, and of the longest of the last ones."""
        journal = self._broker.journal
        times = [*journal.times, *([] if journal.busy is None else [perf_counter() - journal.began])]
        return (round(times[-1], 6), round(max(times), 6)) if times else (None, None)

    def _dead_letters(self, asker: Asker) -> Generator[Line, None, int]:
        names, pattern = (yield from self._names(asker)), self._broker.config.dead_letter.replace("{name}", "*")
        head, queues = pattern.partition("*")[0].rstrip("0123456789"), asker.host.queues
        prefix = _entry(head, "").partition("\0")[0]
        entries = takewhile(lambda entry: entry.startswith(prefix), islice(names, bisect_left(names, prefix), None))
        found = (queues.get(entry.split("\0")[1]) for entry in entries if entry.endswith("\0queue"))
        letters = (queue for queue in found if queue is not None and matches(pattern, queue.name))
        depths = yield from in_turns((queue.depth()[0] for queue in letters), self._broker.quota, LOOKS_AT_ONCE)
        return sum(depths)

    def broker(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        broker, host, now = self._broker, asker.host, self._broker.now
        subscriptions = yield from in_turns(
            (None if session is None else len(session.consumers) for session in self._sessions(asker)),
            *(broker.quota, LOOKS_AT_ONCE),
        )
        dead = yield from self._dead_letters(asker)
        messages, delivered, acknowledged = self._traffic()
        messages_rate, delivered_rate = rates(self._all, now, messages, delivered)
        rss, descriptors = process_size()
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
            "messages_rate": messages_rate,
            "delivered": delivered,
            "delivered_rate": delivered_rate,
            "acknowledged": acknowledged,
            "acknowledged_rate": rates(self._acknowledged, now, acknowledged, 0)[0],
            "dead_letters": dead,
            "duplicates": broker.stats.duplicates,
            "memory_used": broker.account.used,
            "memory_limit": broker.account.limit,
            "rss": rss,
            "descriptors": descriptors,
        }

    def store(self, asker: Asker, fields: dict[str, Any]) -> dict[str, Any]:
        broker, journal = self._broker, self._broker.journal
        store = journal.store
        kind = "none" if store is None else "sqlite" if broker.config.data is not None else "memory"
        last, longest = self._commit_times()
        return {
            "kind": kind if journal.keeps or store is None else "none",
            "bytes": None if store is None else store.size(),
            "free": None if store is None else store.room(),
            "refusing": journal.short,
            "commits": journal.commits,
            "failures": journal.failures,
            "commit_time": last,
            "commit_time_most": longest,
            "pending": 0 if store is None else store.pending,
            "behind": journal.behind,
            "producers_waiting": len(journal.blocked),
            "written": 0 if store is None else store.written,
            "large_bytes": broker.spool.octets,
        }

    def memory(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        return (yield from memory(self._broker, asker))

    # ---- sessions and what they have ----
    def _sessions(self, asker: Asker, after: int = 0) -> Iterator[Session | None]:
        """Yield the connected sessions of the asker's virtual host, from a number on; None for each other one."""
        for session in list(self._broker.sessions.values()):
            mine = _number(session) > after and session.version and session.virtual_host is asker.host
            yield session if mine else None

    def sessions(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        (after,) = (0,) if fields["page"] is None else place_of(fields["page"], int)
        limit, now = fields["limit"], self._broker.now
        pairs = (
            None if session is None else (_number(session), session_row(session, now))
            for session in self._sessions(asker, after)
        )
        rows = yield from in_turns(pairs, self._broker.quota, ROWS_AT_ONCE, limit + 1)
        return _page(rows, limit, lambda number: (number,))

    def subscriptions(self, asker: Asker, fields: dict[str, Any]) -> Answering:
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
                        yield place, (session.id, name, transaction.weight, transaction.octets + transaction.base)

        rows = yield from in_turns(found(), self._broker.quota, ROWS_AT_ONCE, limit + 1)
        return _page(rows, limit, lambda place: place)

    # ---- destinations ----
    def destinations(self, asker: Asker, fields: dict[str, Any]) -> Answering:
        names, host = (yield from self._names(asker)), asker.host
        match, kind, sort, limit = fields["match"], fields["kind"], fields["sort"], fields["limit"]
        clock = self._clock()

        def thing_of(entry: str) -> Queue | Topic | None:
            _, name, what = entry.split("\0")
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
            at = 0 if fields["page"] is None else bisect_right(names, _entry(*place_of(fields["page"], str, str)))
            found = map(row_of, islice(names, at, None))
            rows = yield from in_turns(found, self._broker.quota, ROWS_AT_ONCE, limit + 1)
            return _page(rows, limit, lambda entry: entry.split("\0")[1:])
        skipped = 0 if fields["page"] is None else max(0, place_of(fields["page"], int)[0])
        keys = yield from map_in_turns(key_of, names, self._broker.quota, LOOKS_AT_ONCE)
        upto = skipped + limit
        every = list(filter(None, keys))
        highest = heapq.nlargest(min(upto + 1, len(every)), every, key=itemgetter(0))
        page = map(row_of, (entry for _, entry in highest[skipped:upto]))
        rows = yield from in_turns(page, self._broker.quota, ROWS_AT_ONCE)
        return {"rows": [row for _, row in rows], "next": token_of([upto]) if len(highest) > upto else None}

    def _names(self, asker: Asker) -> Generator[Line, None, list[str]]:
        """Return the destinations of a virtual host as entries, sorted."""
        now, host = self._broker.now, asker.host
        # Those that came since then are behind these, so that with equal numbers none came or went.
        newest = [next(reversed(things.values()), None) for things in (host.queues, host.topics)]
        newest += [len(host.queues), len(host.topics)]
        at, names, then = self._sorted.get(host.vhost, (0.0, None, []))
        if names is None or not 0.0 <= now - at < _SORTED_FOR or then != newest:
            queues, topics, names = list(host.queues), list(host.topics), []
            for some, kind in ((queues, "queue"), (topics, "topic")):
                for begin in range(0, len(some), _SORTED_AT_ONCE):
                    names += sorted(_entry(name, kind) for name in some[begin : begin + _SORTED_AT_ONCE])
                    if begin:
                        yield self._broker.quota
            names.sort()  # quick, because most of it is in order
            self._sorted = {host.vhost: (now, names, newest)}
        return names

    def forget(self) -> None:
        now = self._broker.now
        self._sorted = {vhost: entry for vhost, entry in self._sorted.items() if now - entry[0] < _SORTED_FOR}

    def durables(self, asker: Asker, fields: dict[str, Any]) -> Answering:
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
    return int(session.id.partition("-")[0])


def _page(rows: list[tuple[Any, Row]], limit: int, place: Callable[[Any], Any]) -> dict[str, Any]:
    more = len(rows) > limit
    return {"rows": [row for _, row in rows[:limit]], "next": token_of(place(rows[limit - 1][0])) if more else None}


# ---- what the fields of a request name ----
class Walker:
    """The READY messages of a queue with seqs above `seq`, up to `last`, some at a time. Call `close` at the end."""

    __slots__ = ("_copies", "_dispatcher", "last", "seq", "source")

    def __init__(self, source: Queue, seq: int, last: int) -> None:
        self.source = source
        #: The seq of the last message that was returned.
        self.seq = seq
        self.last = last
        self._dispatcher: Dispatcher | None = None
        #: Those that are in the store only.
        self._copies = Copies(source, lambda _waiters: None)

    def next(self) -> Message | Wait | None:
        queue = self.source
        if queue.closed:
            return None
        message = self._copies.next(self.seq, self.last, queue.messages.indexed().after_seq(self.seq))
        if isinstance(message, Wait):
            self.seq = self._copies.start
            self._watch()
            return message
        if message is None or message.seq > self.last:
            return None
        self.seq = message.seq
        return message

    def _watch(self) -> None:
        """Have the dispatcher tell from now on which messages are gone."""
        if self._dispatcher is None:
            self._dispatcher = self.source.make_selective()
            self._dispatcher.browsers[self] = None

    @property
    def pages(self) -> Line:
        return self._copies

    @property
    def page_cost(self) -> int:
        return self._copies.cost

    def note(self, message: Message) -> None:
        """Do nothing when a message becomes READY: it is found when its turn comes."""

    def forget(self, seqs: set[int]) -> None:
        self._copies.forget(seqs)

    def close(self) -> None:
        """End the walk. The queue delivers again what it can."""
        queue, dispatcher = self.source, self._dispatcher
        self._copies.close()
        if dispatcher is not None:
            dispatcher.browsers.pop(self, None)
        if not queue.closed:
            queue.make_plain()
            queue.dispatch()


def durable_named(asker: Asker, name: str) -> Durable | None:
    return asker.host.destinations.durables.by_name.get(name)


def queue_named(asker: Asker, name: str, field: str = "destination") -> Queue:
    """Return the queue of this name, or that of a durable subscription. Raise BadRequest if there is none."""
    queue = asker.host.queues.get(name)
    if queue is not None:
        return queue
    durable = durable_named(asker, name)
    if durable is not None:
        return durable.queue
    if name in asker.host.topics:
        raise BadRequest(field, "it is a topic, which keeps no messages; its durable subscriptions do")
    raise BadRequest(field, "there is no queue or durable subscription of this name")


def selector_of(text: str | None) -> Selector | None:
    """Return the condition of a field `selector`; None without one. Raise BadRequest if it is not valid."""
    if text is None:
        return None
    try:
        return compile_selector(text)
    except (SelectorError, MissingExtraError) as error:
        raise BadRequest("selector", str(error)) from None


def seq_of(message_id: str | None) -> int | None:
    """Return the seq in a message-id; None without one. Raise BadRequest if it has none.

    >>> seq_of("18c2-17")
    17
    """
    if message_id is None:
        return None
    digits = message_id.rpartition("-")[2]
    if not (digits.isascii() and digits.isdigit() and len(digits) < 16):
        raise BadRequest("message_id", "it is not a message-id of this broker")
    return int(digits)


def is_wanted(message: Message, selector: Selector | None, message_id: str | None) -> bool:
    if message_id is not None and message.id != message_id:
        return False
    return selector is None or selector.matches(message)
