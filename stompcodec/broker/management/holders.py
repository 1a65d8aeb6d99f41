"""The memory account by holder, and the largest holders."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator
from operator import itemgetter
from typing import Any

from stompcodec.broker.core import Broker
from stompcodec.broker.loop_quota import Line
from stompcodec.broker.management.asker import Asker
from stompcodec.broker.management.pages import LOOKS_AT_ONCE, in_turns
from stompcodec.broker.memory import CONNECTION, DELAY, MESSAGE, destination_cost, selector_cost
from stompcodec.broker.queues.browser import Browser
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.virtual_host import VirtualHost

#: How many of the largest queues and sessions are named.
_NAMED = 10


def memory(broker: Broker, asker: Asker) -> Generator[Line, None, dict[str, Any]]:
    """Return the answer to the question `memory`."""
    account, journal, quota = broker.account, broker.journal, broker.quota
    queues = destinations = retained = topics = held = connections = 0
    mine: list[tuple[int, str]] = []
    for host in broker.hosts.values():
        found = ((_cost(queue), queue.name) for queue in queues_of(host))
        pairs = yield from in_turns(found, quota, LOOKS_AT_ONCE)
        queues += sum(cost for cost, _ in pairs)
        if host is asker.host:
            mine = pairs
        costs = yield from in_turns(_destinations(host), quota, LOOKS_AT_ONCE)
        destinations += sum(costs)
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
        "scheduled": broker.delayed.cost + DELAY * len(broker.delayed),
        "commits": batches,
        "sessions": held,
        "connections": connections,
        "destinations": destinations,
        "keys": broker.sent.cost,
    }
    used = account.used
    return {
        "limit": account.limit,
        "used": used,
        "senders_wait_above": account.first,
        "sessions_end_above": account.second,
        **parts,
        "other": used - sum(parts.values()),
        "largest_queues": _largest_queues(mine),
        "largest_sessions": _largest_sessions(broker, asker.host),
    }


def queues_of(host: VirtualHost) -> list[Queue]:
    """Return the queues of a virtual host, and those of its durable subscriptions."""
    return [*host.queues.values(), *(durable.queue for durable in host.destinations.durables)]


def _cost(queue: Queue) -> int:
    """Return the bytes of the messages of a queue, and of the pages that are read for those who look at it."""
    watchers = () if queue.dispatcher is None else queue.dispatcher.browsers
    pages = sum(watcher.page_cost for watcher in watchers)
    return queue.cost + pages + (0 if queue.paging is None else queue.paging.chunk_cost)


def _destinations(host: VirtualHost) -> Iterator[int]:
    for name in [*host.queues, *host.topics]:
        yield destination_cost(name)
    for durable in list(host.destinations.durables):
        text = None if durable.selector is None else durable.selector.text
        yield destination_cost(durable.name) + selector_cost(text)


def _largest_queues(found: list[tuple[int, str]]) -> list[dict[str, Any]]:
    largest = heapq.nlargest(_NAMED, found, key=itemgetter(0))
    return [{"destination": name, "bytes": cost} for cost, name in largest if cost]


def _largest_sessions(broker: Broker, host: VirtualHost) -> list[dict[str, Any]]:
    mine = [session for session in broker.sessions.values() if session.version and session.virtual_host is host]
    found = heapq.nlargest(_NAMED, mine, key=lambda session: session.memory.spare)
    return [
        {"session": session.id, "bytes": session.memory.spare + session.memory.fixed - CONNECTION} for session in found
    ]
