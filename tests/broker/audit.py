"""An audit of the memory account, computed from all live objects."""

from typing import NamedTuple

from stompcodec.broker.core import Broker
from stompcodec.broker.memory import (
    CONNECTION,
    DELAY,
    MESSAGE,
    below_cost,
    destination_cost,
    frame_cost,
    selector_cost,
    target_cost,
)
from stompcodec.broker.message import Message
from stompcodec.broker.queues.browser import Browser
from stompcodec.broker.queues.consumer import Consumer, Source
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.registry import VirtualHost
from stompcodec.broker.sessions.session import Session
from stompcodec.broker.sessions.transaction import Settling


class Held(NamedTuple):
    queues: int  # messages in queues: READY, unacknowledged or scheduled
    backlogs: int  # messages in the queues of topic subscriptions
    retained: int
    delayed: int
    batches: int  # messages that wait for the disk and are in no queue, and long transactions during their COMMIT
    sessions: int  # unfinished frames, open transactions and unwritten output
    leaving: int  # unwritten output of sessions that have ended
    subscriptions: int  # subscriptions, connections, and the destinations that sessions remember
    destinations: int
    keys: int  # idempotency keys


def audit(broker: Broker) -> Held:
    hosts, sessions = list(broker._virtual_hosts.values()), list(broker.sessions.values())
    journal = broker.journal
    return Held(
        queues=sum(_messages(queue) + _chunk(queue) for host in hosts for queue in _queues(host)),
        backlogs=sum(_messages(consumer.queue) for session in sessions for consumer in _backlogs(session)),
        retained=sum(_messages(queue) for host in hosts for queue in host.destinations.retained.queues.values()),
        delayed=broker.delayed.cost + DELAY * (len(broker.delayed) + len(broker.retries)),
        batches=journal.kept + sum(batch.cost for batch in (journal.batch, journal.busy) if batch is not None),
        sessions=sum(_held(session) for session in sessions if not session.ended),
        leaving=sum(session.memory.unwritten for session in sessions if session.ended),
        subscriptions=sum(CONNECTION + _subscriptions(session) for session in sessions),
        destinations=sum(_destinations(host) for host in hosts),
        keys=broker.sent.cost,
    )


def difference(broker: Broker) -> dict[str, tuple[int, int]]:
    """Compare a broker's account with an audit; return {} if they agree, otherwise pairs (account, audit) by name."""
    found, account = audit(broker), broker.account
    pairs = {
        **{"used": (account.used, sum(found)), "held": (account.held, found.sessions)},
        "keys": (broker.sent.part.used, found.keys),
        "fixed": (account.fixed, found.subscriptions + found.destinations),
    }
    journal = broker.journal
    batches = (journal.batch, *(() if journal.busy is None else (journal.busy,)))
    if not journal.kept and not any(batch.actions or batch.is_long for batch in batches):  # actions hold deliveries
        for queue, messages in _found(broker).items():
            if not queue.closed:
                pairs[repr(queue)] = (_messages(queue), sum(message.size + MESSAGE for message in messages))
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _queues(host: VirtualHost) -> list[Queue]:
    return [*host.queues.values(), *(durable.queue for durable in host.destinations.durables)]


def _backlogs(session: Session) -> list[Consumer]:
    consumers = session.consumers.values()
    return [each for each in consumers if each.address is not None and not isinstance(each.queue, Browser)]


def _messages(queue: Source) -> int:
    return queue.octets + MESSAGE * queue.count


def _chunk(queue: Queue) -> int:
    browsed = sum(browser.page_cost for browser in queue.dispatcher.browsers) if queue.dispatcher else 0
    return browsed + (0 if queue.paging is None else queue.paging.chunk_cost)


def _found(broker: Broker) -> dict[Source, list[Message]]:
    """Return every message of every queue, wherever it is."""
    found = {}
    for host in broker._virtual_hosts.values():
        for queue in [*_queues(host), *host.destinations.retained.queues.values()]:
            found[queue] = [*queue.messages, *queue.deferred.values(), *queue.returned.held.values()]
    for session in broker.sessions.values():
        for consumer in session.consumers.values():
            source = consumer.queue
            if isinstance(source, Queue) and not isinstance(source, Browser):
                if consumer.address is not None:
                    found[source] = [*source.messages, *source.returned.held.values()]
                found.setdefault(source, []).extend(consumer.unacked.values())
        for source, message in session.kept or ():
            found.setdefault(source, []).append(message)
        for transaction in session.transactions.values():
            for operation in transaction.operations:
                if isinstance(operation, Settling):
                    messages = [message for _tag, message in operation.deliveries]
                    found.setdefault(operation.consumer.queue, []).extend(messages)
    return found


def _held(session: Session) -> int:
    upload = 0 if session.upload is None else session.upload.cost
    transactions = sum(transaction.base + transaction.octets for transaction in session.transactions.values())
    buffered = session.connection.buffered
    pending = buffered + len(session._early) if session.waits_for_turn else frame_cost(buffered)
    return pending + below_cost(session.memory.below) + upload + transactions + session.memory.unwritten


def _subscriptions(session: Session) -> int:
    remembered = [*session.cached_targets, *(session.declared or ())]
    return sum(consumer.cost for consumer in session.consumers.values()) + sum(map(target_cost, remembered))


def _destinations(host: VirtualHost) -> int:
    durables = list(host.destinations.durables)
    names = [*host.queues, *host.topics, *(durable.name for durable in durables)]
    selectors = [durable.selector.text for durable in durables if durable.selector is not None]
    return sum(map(destination_cost, names)) + sum(map(selector_cost, selectors))
