"""The memory account by holder, and the largest holders."""

from __future__ import annotations

import heapq
from collections.abc import Generator
from operator import itemgetter
from typing import Any

from stompcodec.broker.core import Broker
from stompcodec.broker.loop_quota import Line
from stompcodec.broker.management.asker import Asker
from stompcodec.broker.management.pages import LOOKS_AT_ONCE, map_in_turns
from stompcodec.broker.memory import CONNECTION, DELAY, MESSAGE, destination_cost, selector_cost
from stompcodec.broker.queues.browser import Browser
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.durable import Durable
from stompcodec.broker.routing.virtual_host import VirtualHost

#: How many of the largest queues and sessions are named.
_NAMED = 10


def memory(broker: Broker, asker: Asker) -> Generator[Line, None, dict[str, Any]]:
    """Return the answer to the question `memory`."""
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
    cost, dispatcher, paging = queue.cost, queue.dispatcher, queue.paging
    if dispatcher is not None:
        cost += sum(watcher.page_cost for watcher in dispatcher.browsers)
    return cost if paging is None else cost + paging.chunk_cost


def _cost_of_durable(durable: Durable) -> int:
    text = None if durable.selector is None else durable.selector.text
    return destination_cost(durable.name) + selector_cost(text)


def _largest_queues(found: list[tuple[int, Queue]]) -> list[dict[str, Any]]:
    largest = heapq.nlargest(_NAMED, found, key=itemgetter(0))
    return [{"destination": queue.name, "bytes": cost} for cost, queue in largest if cost]


def _largest_sessions(broker: Broker, host: VirtualHost) -> list[dict[str, Any]]:
    mine = [session for session in broker.sessions.values() if session.version and session.virtual_host is host]
    found = heapq.nlargest(_NAMED, mine, key=lambda session: session.memory.spare)
    return [
        {"session": session.id, "bytes": session.memory.spare + session.memory.fixed - CONNECTION} for session in found
    ]
