"""Metrics for Prometheus, by its conventions for names: base units, and `_total` for what only rises.

A number of destinations have labels of their own: the first ones, which keep them as long as they exist. Temporary
destinations never do. All others are summed up as `_other`, whose totals never fall. What a destination has counted is
added to them for good when it ends or gets labels, so nothing is missing that came between two scrapes.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from stompcodec import __version__
from stompcodec.broker.loop_quota import Line
from stompcodec.broker.management.management import Management
from stompcodec.broker.management.questions import Clock, queue_counts
from stompcodec.broker.management.schema import COUNTS, Asker
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.registry import VirtualHost
from stompcodec.broker.routing.topic import Fates, Topic, fates, title
from stompcodec.errors import MissingExtraError

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
except ImportError as error:
    raise MissingExtraError("metrics", "prometheus-client") from error

#: The label of the sums of all destinations without labels of their own.
OTHER = "_other"
#: The longest name of a destination with labels of its own.
_MOST_NAME = 256
#: Destinations and subscriptions that are looked at in one turn.
_AT_ONCE = 250
_LABELS = ("virtual_host", "destination", "kind")

#: What is said of destinations: the name, the column of management, whether it only rises, and the meaning.
_OF_DESTINATIONS = (
    ("ready_messages", "ready", False, "Messages that no consumer has."),
    ("unacknowledged_messages", "unacknowledged", False, "Messages that a consumer has and has not acknowledged."),
    ("scheduled_messages", "scheduled", False, "Messages that wait for their time."),
    ("paged_messages", "paged", False, "Messages that are in the store only."),
    ("memory_bytes", "bytes", False, "Bytes of the messages in memory."),
    ("oldest_message_age_seconds", "oldest", False, "Seconds since the oldest ready message was sent; 0 without any."),
    ("consumers", "consumers", False, "Consumers."),
    ("waiting_producers", "producers_waiting", False, "Sessions that wait for room."),
    ("received_messages", "received", True, "Messages that came."),
    ("delivered_messages", "delivered", True, "Messages that consumers got, redeliveries included."),
    ("redelivered_messages", "redelivered", True, "Messages that came back after a delivery."),
    ("expired_messages", "expired", True, "Messages that expired."),
    ("dropped_messages", "dropped", True, "Messages dropped because the destination was full."),
    ("dead_letter_messages", "dead_letters", True, "Messages that became dead letters."),
)
#: The place of each column among the numbers of a destination, and whether it only rises.
_AT = {column.name: at for at, column in enumerate(COUNTS)}
_RISING = {column for _, column, rises, _ in _OF_DESTINATIONS if rises}
_RISES = [column.name in _RISING for column in COUNTS]
#: The holders of memory in the answer to the question `memory`.
_HOLDERS = (
    *("queues", "topics", "retained", "scheduled", "commits", "sessions", "connections", "destinations", "keys"),
    "other",
)

_Numbers = Sequence[Any]
_Key = tuple[str, str, str]
#: A destination: its virtual host, its name, its kind, and itself.
_Thing = tuple[VirtualHost, str, str, Queue | Topic]


class _Labelled(NamedTuple):
    """The virtual host of a destination with labels, and the labels."""

    host: VirtualHost
    key: _Key


class Metrics:
    """The metrics of one broker."""

    def __init__(self, management: Management) -> None:
        self._management = management
        self._broker = management.broker
        self._most = self._broker.config.web_metrics_destinations
        #: The destinations with labels.
        self._labelled: dict[Queue | Topic, _Labelled] = {}
        #: The totals of destinations in `_other` that have ended since, or have labels now.
        self._past: _Numbers = [0] * len(COUNTS)
        #: Destinations in `_other` that get labels when there is room.
        self._others: set[Queue | Topic] = set()
        #: For each scrape that goes on: the destinations without labels that have ended meanwhile.
        self._scrapes: list[set[Queue | Topic]] = []
        #: The numbers of `_other` that were told last.
        self._told: _Numbers = [0] * len(COUNTS)
        #: The virtual hosts that tell when destinations end.
        self._hosts: set[VirtualHost] = set()
        for vhost in self._broker.config.virtual_hosts or ("/",):
            self._broker.virtual_host(vhost)
        self._listen()

    def text(self) -> Generator[Line, None, tuple[bytes, str]]:
        hosts = self._broker.config.virtual_hosts
        asker = Asker(self._broker.virtual_host("/" if hosts is None else hosts[0]), "metrics")
        answers = {}
        for name in ("broker", "store", "memory"):
            answer = yield from self._management.answering(name, {}, asker)
            answers[name] = answer["result"]
        numbers = yield from self._measured()
        families = [*_general(answers["broker"]), *_of_store(answers["store"]), *_of_memory(answers["memory"])]
        families += self._of_host_counts()
        parts = [_written(families)]
        for name, column, rises, meaning in _OF_DESTINATIONS:
            kind = CounterMetricFamily if rises else GaugeMetricFamily
            family = kind(f"stompcodec_broker_destination_{name}", meaning, labels=_LABELS)
            for key, values in (*numbers.items(), (("", OTHER, OTHER), self._told)):  # of the latest scrape
                family.add_metric(key, values[_AT[column]])
            parts.append(_written([family]))
            yield self._broker.quota
        return b"".join(parts), CONTENT_TYPE_LATEST

    def _of_host_counts(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "stompcodec_broker_destinations", "Destinations, by kind.", labels=("virtual_host", "kind")
        )
        for vhost, host in self._broker.hosts.items():
            counts = {"queue": len(host.queues), "topic": len(host.topics), "durable": len(host.destinations.durables)}
            for kind, count in counts.items():
                family.add_metric([_plain(vhost), kind], count)
        yield family

    # ---- destinations ----
    def _listen(self) -> None:
        for host in self._broker.hosts.values():
            if host not in self._hosts:
                self._hosts.add(host)
                host.destinations.at_end.append(self._end)

    def _end(self, what: Queue | Topic) -> None:
        """Add the totals of a destination that ends to those of `_other`, unless it has labels."""
        self._others.discard(what)
        if what in self._labelled:
            return
        for ended in self._scrapes:
            ended.add(what)
        clock = Clock(self._broker.now, self._management.ages)
        numbers = queue_counts(what, clock) if isinstance(what, Queue) else _of_topic_alone(what, what.fates)
        self._past = _summed([self._past, _totals(numbers)])

    def _measured(self) -> Generator[Line, None, dict[_Key, _Numbers]]:
        """Return the numbers of all destinations with labels, by those, and the sums of the others."""
        self._listen()
        for ended in [what for what, labelled in self._labelled.items() if not _lives(labelled.host, what)]:
            del self._labelled[ended]
        meanwhile: set[Queue | Topic] = set()
        self._scrapes.append(meanwhile)
        try:
            numbers, others = yield from self._looked_at(self._things(), meanwhile)
        finally:
            self._scrapes = [each for each in self._scrapes if each is not meanwhile]
        # Another scrape, which began later, may have ended meanwhile.
        both = zip(self._told, others, _RISES, strict=True)
        self._told = [max(told, now) if rises else now for told, now, rises in both]
        return numbers

    def _looked_at(
        self, things: Iterator[_Thing], meanwhile: set[Queue | Topic]
    ) -> Generator[Line, None, tuple[dict[_Key, _Numbers], _Numbers]]:
        """Return the numbers of these destinations, and sums of the others; those in `meanwhile` have ended."""
        numbers: dict[_Key, _Numbers] = {}
        others = self._past
        some: list[_Numbers] = []  # of the others, since the last turn
        looked, clock = 0, Clock(self._broker.now, self._management.ages)
        for host, name, kind, what in things:
            lives = _lives(host, what)
            if not lives and what not in meanwhile:
                continue  # it had labels
            if isinstance(what, Queue):
                found: _Numbers = queue_counts(what, clock)
                looked += 1
            else:
                found, rest = yield from self._of_topic(what, clock)
                looked += 1 + rest
            labelled = self._labelled.get(what)
            if labelled is None and lives and len(self._labelled) < self._most:
                labelled = self._label(host, name, kind, what)
            if labelled is None or not lives:
                some.append(found)
                if lives:
                    self._others.add(what)
            else:
                numbers[labelled.key] = found if found[-1] is not None else (*found[:-1], 0)
                if what in self._others:  # it has just got them
                    self._others.discard(what)
                    totals = _totals(found)
                    some.append(totals)
                    self._past = _summed([self._past, totals])
            if looked >= _AT_ONCE:
                others, some, looked = _summed([others, *some]), [], 0
                yield self._broker.quota
        return numbers, _summed([others, *some])

    def _things(self) -> Iterator[_Thing]:
        """Return the present destinations. They are yielded over some turns: some will have ended by then."""
        hosts = list(self._broker.hosts.values())
        found = [(host, list(host.queues.items()), list(host.topics.items())) for host in hosts]
        durables = [(host, list(host.destinations.durables)) for host in hosts]
        return itertools.chain(
            ((host, name, "queue", queue) for host, queues, _ in found for name, queue in queues),
            ((host, name, "topic", topic) for host, _, topics in found for name, topic in topics),
            (
                (host, title(durable.owner, durable.name), "durable", durable.queue)
                for host, some in durables
                for durable in some
            ),
        )

    def _label(self, host: VirtualHost, name: str, kind: str, what: Queue | Topic) -> _Labelled | None:
        if len(name) > _MOST_NAME or name == OTHER:
            return None
        if kind != "durable" and (host.naming.is_temporary(name) or (kind == "queue" and name in host.owners)):
            return None
        labelled = self._labelled[what] = _Labelled(host, (_plain(host.vhost), _plain(name), kind))
        return labelled

    def _of_topic(self, topic: Topic, clock: Clock) -> Generator[Line, None, tuple[_Numbers, int]]:
        """Return the numbers of a topic, and how many subscriptions were looked at since the last turn."""
        queues = [each.queue for each in topic.consumers if isinstance(each.queue, Queue)]
        own = sum(isinstance(each.queue, Queue) for each in topic.own)
        # A subscription that ends between two turns counts once: as one of `queues`.
        totals = topic.fates
        sums = [0] * len(COUNTS)
        rest = len(queues) % _AT_ONCE
        for begin in range(0, len(queues), _AT_ONCE):
            some = queues[begin : begin + _AT_ONCE]
            sums = _summed([sums, *(queue_counts(queue, clock) for queue in some)])
            totals = fates(some[: max(0, own - begin)], totals)
            if len(some) == _AT_ONCE:
                yield self._broker.quota
        sums[_AT["consumers"]] = len(queues)
        both = zip(sums, _of_topic_alone(topic, totals), _RISES, strict=True)
        return [alone if rises else of_all for of_all, alone, rises in both], rest


def _of_topic_alone(topic: Topic, became: Fates) -> _Numbers:
    numbers = [0] * len(COUNTS)
    numbers[_AT["received"]], numbers[_AT["delivered"]] = topic.received, topic.delivered
    for column, number in zip(("redelivered", "expired", "dropped", "dead_letters"), became, strict=True):
        numbers[_AT[column]] = number
    return numbers


def _totals(numbers: _Numbers) -> _Numbers:
    return [number if rises else 0 for number, rises in zip(numbers, _RISES, strict=True)]


def _lives(host: VirtualHost, what: Queue | Topic) -> bool:
    return not what.closed if isinstance(what, Queue) else host.topics.get(what.name) is what


class _Collected:
    """Metrics as a registry wants them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _written(families: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(families))
    return generate_latest(registry)


def _summed(rows: list[_Numbers]) -> list[Any]:
    """Return the sums of the numbers of destinations; the oldest of all is the oldest."""
    *columns, oldest = zip(*rows, strict=True)
    return [*map(sum, columns), max(filter(None, oldest), default=0)]


def _plain(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _gauge(name: str, meaning: str, value: float | None) -> Iterator[Metric]:
    if value is not None:
        yield GaugeMetricFamily(f"stompcodec_broker_{name}", meaning, value=value)


def _total(name: str, meaning: str, value: float) -> Iterator[Metric]:
    yield CounterMetricFamily(f"stompcodec_broker_{name}", meaning, value=value)


def _general(broker: dict[str, Any]) -> Iterator[Metric]:
    info = GaugeMetricFamily("stompcodec_broker_info", "The version of the broker.", labels=("version", "dialect"))
    info.add_metric([__version__, broker["dialect"]], 1)
    yield info
    yield from _gauge("uptime_seconds", "Seconds since the start.", broker["uptime"])
    yield from _gauge("sessions", "Connections now.", broker["sessions"])
    yield from _total("sessions_opened", "Connections since the start.", broker["sessions_total"])
    yield from _total("sessions_refused", "Connections and logins that were refused.", broker["sessions_refused"])
    yield from _total("messages_accepted", "Messages accepted since the start.", broker["messages"])
    yield from _total("duplicate_messages", "Messages not stored since their key was known.", broker["duplicates"])


def _of_store(store: dict[str, Any]) -> Iterator[Metric]:
    yield from _gauge("store_size_bytes", "Bytes of the files of the store.", store["bytes"])
    yield from _gauge("store_free_bytes", "Bytes that can be stored.", store["free"])
    yield from _gauge("store_refusing", "1 if the disk is nearly full: messages are refused.", store["refusing"])
    yield from _gauge("store_behind", "1 if the disk is slower than the senders.", store["behind"])
    yield from _gauge("store_pending_operations", "Operations that wait for the next commit.", store["pending"])
    yield from _gauge("store_waiting_producers", "Sessions that wait for the disk.", store["producers_waiting"])
    yield from _gauge("store_last_commit_seconds", "Seconds that the last commit took.", store["commit_time"])
    yield from _total("store_commits", "Commits.", store["commits"])
    yield from _total("store_failed_commits", "Commits that have failed.", store["failures"])
    yield from _total("store_written_bytes", "Bytes of messages written.", store["written"])
    yield from _gauge("large_message_bytes", "Bytes of large bodies in files.", store["large_bytes"])


def _of_memory(memory: dict[str, Any]) -> Iterator[Metric]:
    yield from _gauge("memory_limit_bytes", "The limit of the memory account.", memory["limit"])
    family = GaugeMetricFamily(
        "stompcodec_broker_memory_used_bytes", "Bytes of the memory account, by holder.", labels=("holder",)
    )
    for holder in _HOLDERS:
        family.add_metric([holder], memory[holder])
    yield family
