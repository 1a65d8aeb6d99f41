"""Metrics for Prometheus, by its conventions for names: base units, and `_total` for what only rises.

A number of destinations have labels of their own: the first ones, which keep them as long as they exist. Temporary
destinations never do. All others are summed up as `_other`, whose totals never fall, even when a destination ends.

The library writes everything but the lines of destinations, of which there are thousands: it takes seven microseconds
for each. Of those it writes the heads and the labels once, and the numbers are put behind them here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from stompcodec import __version__
from stompcodec.broker.loop_quota import Line
from stompcodec.broker.management.asker import Asker
from stompcodec.broker.management.management import Management
from stompcodec.broker.management.rows import delivered_of, depth_of, first_seq, received_of
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.durable import title
from stompcodec.broker.routing.topic import Topic
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
#: Destinations and subscriptions that are looked at in one turn, and lines that are written.
_AT_ONCE, _LINES_AT_ONCE = 250, 2500
_LABELS = ("virtual_host", "destination", "kind")

#: What is said of destinations: the name, whether it only rises, and the meaning.
_OF_DESTINATIONS = (
    ("ready_messages", False, "Messages that no consumer has."),
    ("unacknowledged_messages", False, "Messages that a consumer has and has not acknowledged."),
    ("scheduled_messages", False, "Messages that wait for their time."),
    ("paged_messages", False, "Messages that are in the store only."),
    ("memory_bytes", False, "Bytes of the messages in memory."),
    ("oldest_message_age_seconds", False, "Seconds since the oldest ready message was sent; 0 without any."),
    ("consumers", False, "Consumers."),
    ("waiting_producers", False, "Sessions that wait for room."),
    ("received_messages", True, "Messages that came."),
    ("delivered_messages", True, "Messages that consumers got, redeliveries included."),
    ("redelivered_messages", True, "Messages that came back after a delivery."),
    ("expired_messages", True, "Messages that expired."),
    ("dropped_messages", True, "Messages dropped because the destination was full."),
    ("dead_letter_messages", True, "Messages that became dead letters."),
)
_COUNT = len(_OF_DESTINATIONS)
_RISES = [rises for _, rises, _ in _OF_DESTINATIONS]
#: The number that is not summed up: the oldest of all is the oldest.
_OLDEST = [name for name, _, _ in _OF_DESTINATIONS].index("oldest_message_age_seconds")
#: The holders of memory in the answer to the question `memory`.
_HOLDERS = (
    *("queues", "topics", "retained", "scheduled", "commits", "sessions", "connections", "destinations", "keys"),
    "other",
)

_Numbers = Sequence[float]
_Key = tuple[str, str, str]


class _Thing(NamedTuple):
    """A destination, and its labels; None if it has none of its own."""

    key: _Key | None
    what: Queue | Topic


class _Labelled(NamedTuple):
    """A destination with labels, and those as they are written."""

    what: Queue | Topic
    text: str


class Metrics:
    """The metrics of one broker."""

    def __init__(self, management: Management) -> None:
        self._management = management
        self._broker = management.broker
        self._most = self._broker.config.web_metrics_destinations
        #: The destinations with labels.
        self._labelled: dict[_Key, _Labelled] = {}
        #: The totals that destinations had when they ended, without those that had labels then.
        self._ended: _Numbers = [0] * _COUNT
        #: The totals of `_other` that were told last.
        self._told: _Numbers = [0] * _COUNT
        self._other_text = _label_text(("", OTHER, OTHER))
        #: The first lines of each metric of destinations, and the name that its other lines begin with.
        self._heads = [(_written([family]), _sample_name(family)) for family in _families_of_destinations()]

    def text(self) -> Generator[Line, None, tuple[bytes, str]]:
        """Return the metrics as text and its content type, made in some turns of the loop."""
        hosts = self._broker.config.virtual_hosts
        asker = Asker(self._broker.virtual_host("/" if hosts is None else hosts[0]), "metrics")
        answers = {}
        for name in ("broker", "store", "memory"):
            answer = yield from self._management.answering(name, {}, asker)
            answers[name] = answer["result"]
        numbers = yield from self._measured()
        families = [*_general(answers["broker"]), *_of_store(answers["store"]), *_of_memory(answers["memory"])]
        families += self._of_host_counts()
        parts = yield from self._lines(list(numbers.items()))
        return b"".join([_written(families), *parts]), CONTENT_TYPE_LATEST

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

    def _measured(self) -> Generator[Line, None, dict[str, _Numbers]]:
        """Return the numbers of all destinations with labels, by those, and the sums of the others."""
        for ended in [key for key, labelled in self._labelled.items() if not self._lives(key, labelled.what)]:
            del self._labelled[ended]
        numbers: dict[str, _Numbers] = {}
        others: _Numbers = [0] * _COUNT
        some: list[_Numbers] = []  # of the others, since the last turn
        looked, told = 0, self._told
        for key, what in self._things():
            if isinstance(what, Queue):
                found = self._of_queue(what)
                looked += 1
            else:
                found, rest = yield from self._of_topic(what)
                looked += 1 + rest
            text = None if key is None else self._text_of(key, what)
            if text is None:
                some.append(found)
            else:
                numbers[text] = found
            if looked >= _AT_ONCE:
                others, some, looked = _summed([others, *some]), [], 0
                yield self._broker.quota
        if self._told is told:
            self._tell(_summed([others, *some]))
        # Else another scrape ended meanwhile. It may have missed a destination that this one saw: its sums stand.
        numbers[self._other_text] = [sum(pair) for pair in zip(self._told, self._ended, strict=True)]
        return numbers

    def _tell(self, others: _Numbers) -> None:
        """Note the sums of the destinations without labels."""
        # Where a destination without labels has ended, its totals are missing from the sum.
        lost = [max(0, told - now) if rises else 0 for told, now, rises in zip(self._told, others, _RISES, strict=True)]
        self._ended = [sum(pair) for pair in zip(self._ended, lost, strict=True)]
        self._told = others

    def _lines(self, numbers: list[tuple[str, _Numbers]]) -> Generator[Line, None, list[bytes]]:
        """Return the text about destinations."""
        parts: list[bytes] = []
        written = 0
        for at, (head, name) in enumerate(self._heads):
            parts.append(head)
            for begin in range(0, len(numbers), _LINES_AT_ONCE):
                some = numbers[begin : begin + _LINES_AT_ONCE]
                parts.append("".join([f"{name}{text} {values[at]}\n" for text, values in some]).encode())
                written += len(some)
                if written >= _LINES_AT_ONCE:
                    written = 0
                    yield self._broker.quota
        return parts

    def _things(self) -> Iterator[_Thing]:
        """Yield all destinations; changes between two turns may be seen or not."""
        for vhost, host in list(self._broker.hosts.items()):
            for name, queue in list(host.queues.items()):
                temporary = host.naming.is_temporary(name) or name in host.owners
                yield _Thing(None if temporary else _key(vhost, name, "queue"), queue)
            for name, topic in list(host.topics.items()):
                yield _Thing(None if host.naming.is_temporary(name) else _key(vhost, name, "topic"), topic)
            for durable in list(host.destinations.durables):
                yield _Thing(_key(vhost, title(durable.owner, durable.name), "durable"), durable.queue)

    def _lives(self, key: _Key, what: Queue | Topic) -> bool:
        if isinstance(what, Queue):
            return not what.closed
        host = self._broker.hosts.get(key[0])
        return host is not None and host.topics.get(what.name) is what

    def _text_of(self, key: _Key, what: Queue | Topic) -> str | None:
        """Return the labels of a destination as they are written; None if it has none of its own."""
        labelled = self._labelled.get(key)
        if labelled is None and len(self._labelled) < self._most:
            labelled = self._labelled[key] = _Labelled(what, _label_text(key))
        return None if labelled is None or labelled.what is not what else labelled.text

    def _of_queue(self, queue: Queue) -> _Numbers:
        ready, unacked, scheduled = depth_of(queue)
        tally, seq = queue.tally, first_seq(queue) if ready else None
        return (
            ready,
            unacked,
            scheduled,
            0 if queue.paging is None else queue.paging.count,
            queue.octets,
            0 if seq is None else self._management.ages.age(seq, self._broker.now),
            len(queue.members),
            len(queue.blocked),
            received_of(queue),
            delivered_of(queue),
            tally.redelivered,
            tally.expired,
            tally.dropped,
            tally.dead,
        )

    def _of_topic(self, topic: Topic) -> Generator[Line, None, tuple[_Numbers, int]]:
        """Return the numbers of a topic, and how many subscriptions were looked at since the last turn."""
        queues = [each.queue for each in topic.consumers if isinstance(each.queue, Queue)]
        sums: _Numbers = [0] * _COUNT
        rest = len(queues) % _AT_ONCE
        for begin in range(0, len(queues), _AT_ONCE):
            some = queues[begin : begin + _AT_ONCE]
            sums = _summed([sums, *map(self._of_queue, some)])
            if len(some) == _AT_ONCE:
                yield self._broker.quota
        # The other totals of subscriptions end with them.
        return (*sums[:6], len(queues), sums[7], topic.received, topic.delivered, 0, 0, 0, 0), rest


class _Collected:
    """Metrics as a registry wants them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        return self._families


def _written(families: Iterable[Metric]) -> bytes:
    """Return metrics as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(families))
    return generate_latest(registry)


def _label_text(key: _Key) -> str:
    """Return the labels of a destination as they are written.

    >>> _label_text(("/", '/queue/"a"', "queue"))
    '{destination="/queue/\\\\"a\\\\"",kind="queue",virtual_host="/"}'
    """
    family = GaugeMetricFamily("x", "x", labels=_LABELS)
    family.add_metric([_plain(label) for label in key], 0)
    text = _written([family]).decode()
    return text[text.index("\nx{") + 2 : text.rindex("}") + 1]  # no label has a newline: it is escaped


def _summed(rows: list[_Numbers]) -> _Numbers:
    """Return the sums of the numbers of destinations."""
    columns = list(zip(*rows, strict=True))
    sums = list(map(sum, columns))
    sums[_OLDEST] = max(columns[_OLDEST])
    return sums


def _key(vhost: str, name: str, kind: str) -> _Key | None:
    """Return the labels of a destination; None for a name that has none of its own."""
    return None if len(name) > _MOST_NAME or name == OTHER else (vhost, name, kind)


def _plain(text: str) -> str:
    """Return a text that can be encoded."""
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
    yield from _total("sessions_refused", "Connections that were refused.", broker["sessions_refused"])
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


def _families_of_destinations() -> Iterator[Metric]:
    """Yield the metrics of destinations, without samples."""
    for name, rises, meaning in _OF_DESTINATIONS:
        kind = CounterMetricFamily if rises else GaugeMetricFamily
        yield kind(f"stompcodec_broker_destination_{name}", meaning, labels=_LABELS)


def _sample_name(family: Metric) -> str:
    return f"{family.name}_total" if family.type == "counter" else family.name
