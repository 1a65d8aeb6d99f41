"""The format "stomp" with replay=broker: batches are read from our broker by message number, without a spool.

A queue of our broker numbers its messages. A batch is everything between two numbers: tasks browse the queue
(`browser`, `from-seq`) without consuming, so a batch that Spark asks for again has the same rows. The `start` of
`latestOffset(start)` is in Spark's log; everything up to it is released in the broker (`through-seq`).

No other consumer may take messages from these queues meanwhile. A message that expires is missing here, too.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from stompcodec.codec import serialize
from stompcodec.errors import ConnectionLostError, ReceiptTimeoutError, StaleAckError, StompError
from stompcodec.spark.reading.source import SplitReader
from stompcodec.spark.versions import (
    Batches,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    limit_of,
    plain,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from stompcodec.client import Client, Message, Subscription
    from stompcodec.spark.options.replay import ReplayOptions

#: Header with the number of a message.
SEQ = "stomp-seq"
#: Errors after which the broker may come back.
_AWAY = (ConnectionLostError, ReceiptTimeoutError, StaleAckError)
#: Seconds between two attempts to reach it.
_PAUSE = 0.2
#: Most messages that the broker skips in one request.
_MOST_SKIPPED = 100_000
#: Assumed bytes of a message, to choose how many a task reads: sizes are not known beforehand.
_USUAL = 1024
#: Queue -> number of the last message read.
Offset = dict[str, int]


class ReplayError(StompError):
    """Error for a queue that cannot be read by message number.

    >>> issubclass(ReplayError, StompError)
    True
    """


@dataclass(frozen=True)
class Numbered(InputPartition):
    """Messages that one task reads: those of a queue with numbers above `after`, up to `until`."""

    destination: str
    after: int
    until: int


class _DriverConnection:
    """The driver's connection: it finds the ends of queues and releases messages."""

    def __init__(self, options: ReplayOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._released: Offset = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _DriverConnection, (self._options,)  # the connection stays on the driver

    def ends(self) -> Offset:
        """Return the last message number of each queue."""
        return {name: self._end(name) for name in self._options.destination}

    def limited(self, start: Offset, end: Offset, most: int) -> Offset:
        """Return `end`, lowered so that each queue has at most `most` messages."""
        found = {}
        for name, until in end.items():
            after = start.get(name, 0)
            if until - after > most:  # numbers have gaps, so only the broker knows
                until = min(until, self._end(name, after=after, skip=min(most, _MOST_SKIPPED)))
            found[name] = until
        return found

    def release(self, offsets: Offset) -> None:
        """Release the messages up to these numbers: Spark is done with them and will not ask for them again."""
        for name, offset in offsets.items():
            if self._options.release and offset > self._released.get(name, 0):
                self._end(name, offset)
                self._released[name] = offset

    def _end(self, destination: str, release: int | None = None, *, after: int = -2, skip: int = 0) -> int:
        """Return the last number of a queue; with `skip`, the number of the skip-th message behind `after`.

        The broker releases the messages up to the number `release`.
        """
        deadline, timeout = _Deadline(self._options.timeout), self._options.timeout
        while True:
            try:
                if self._client is None or self._client.state == "closed":
                    self._client = _connected(self._options)
                with _browse(self._client, destination, str(after + 1), ack="client", skip=skip) as subscription:
                    marker = _next(subscription, timeout)
                    seq = _seq_of(marker, destination)
                    if release is not None:
                        marker.ack({"through-seq": str(release)}, receipt=True, timeout=timeout)
                return seq
            except StompError as error:
                lost = self._client is not None and self._client.state == "closed"
                if not (lost or isinstance(error, _AWAY)):
                    raise
                self.close()
                deadline.wait(error)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _connected(options: ReplayOptions) -> Client:
    from stompcodec.client import connect
    from stompcodec.spec import Limits

    return connect(
        list(options.link.addresses),
        client_id=options.client_id,
        limits=Limits(max_body=options.file.max_body),
        lenient=True,
        reconnect=None,
        close_timeout=2.0,
        **options.link.arguments(),
    )


def _browse(client: Client, destination: str, start: str, *, ack: str = "auto", skip: int = 0) -> Subscription:
    headers = {"browser": "true", "browser-end": "true", "include-seq": SEQ, "from-seq": start}
    if skip:
        headers["browser-skip"] = str(skip)
    return client.subscribe(destination, ack=ack, headers=headers)


def _next(subscription: Subscription, timeout: float) -> Message:
    message = subscription.get(timeout=timeout)
    if message is None:
        raise ReplayError(
            f"the broker did not answer about {subscription.destination} for {timeout:g} s (option timeout)"
        )
    return message


def _seq_of(message: Message, destination: str) -> int:
    text = message.get(SEQ, "") or ""
    if not (text.isdecimal() and len(text) < 20):
        raise ReplayError(f"{destination}: its messages have no numbers: replay=broker needs stompcodec's own broker")
    return int(text)


def messages_of(options: ReplayOptions, partition: Numbered) -> Generator[bytes, None, None]:
    """Yield the messages of a partition as the bytes of their frames, reconnecting where necessary.

    Raises a StompError if the broker refuses, or was unreachable for longer than the option timeout.
    """
    deadline = _Deadline(options.timeout)
    last = partition.after
    while last < partition.until:
        try:
            with _connected(options) as client:
                subscription = _browse(client, partition.destination, str(last + 1))
                for seq, octets in numbered(subscription, partition, last, options.timeout):
                    deadline.renew()
                    yield octets
                    last = seq
            return
        except _AWAY as error:
            deadline.wait(error)


def numbered(subscription: Subscription, partition: Numbered, last: int, timeout: float) -> Iterator[tuple[int, bytes]]:
    """Yield number and frame of each message that a subscription shows of a partition behind number `last`.

    Raises a ReplayError if messages have no numbers or are out of order, or if none came for `timeout` seconds.
    """
    while last < partition.until:
        message = _next(subscription, timeout)
        seq = _seq_of(message, partition.destination)
        if message.get("browser") == "end" or seq > partition.until:
            return
        if seq <= last:
            raise ReplayError(f"{partition.destination}: message {seq} came after {last}")
        last = seq
        yield seq, serialize(message.frame, "1.2")


class _Deadline:
    """Deadline for reaching an unavailable broker."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Restart the deadline."""
        self._until = time.monotonic() + self._seconds

    def wait(self, error: Exception) -> None:
        """Wait before the next attempt; raise the error after the deadline."""
        if time.monotonic() >= self._until:
            raise error
        time.sleep(_PAUSE)


class _ByteReader:
    """Reader of message bytes, for a window."""

    def __init__(self, messages: Iterator[bytes]) -> None:
        self._messages = messages
        self._left = memoryview(b"")

    def __call__(self, buffer: memoryview) -> int:
        filled = 0
        while filled < len(buffer):
            if not self._left:
                octets = next(self._messages, None)
                if octets is None:
                    break
                self._left = memoryview(octets)
            part = self._left[: len(buffer) - filled]
            buffer[filled : filled + len(part)] = part
            self._left = self._left[len(part) :]
            filled += len(part)
        return filled


class _Reading(SplitReader):
    """Base of batch and stream readers: planning and reading of partitions."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        from stompcodec.spark.options.replay import parse_replay

        self._options = parse_replay(options)
        super().__init__(schema, self._options.file)
        self._driver = _DriverConnection(self._options)

    def _split(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        from stompcodec.spark.reading.pack import pack

        found = []
        for name, until in end.items():
            after, splits = start.get(name, 0), self._options.splits
            edges = [after + (until - after) * part // splits for part in range(splits + 1)]
            found += [Numbered(name, *edge) for edge in pairwise(edges) if edge[0] < edge[1]]
        if self._options.splits > 1:
            return found
        most = max(1, self._file.split_bytes // _USUAL)
        return pack(found, lambda part: part.until - part.after, most)

    def _batches_of(self, part: Any) -> Iterator[Any]:
        from stompcodec.spark.reading.decode import read_numbered

        if isinstance(part, Numbered):
            with closing(messages_of(self._options, part)) as messages:
                octets = _ByteReader(messages)
                yield from read_numbered(octets, SEQ, part.destination, self._projection, self._file)


class ReplayReader(_Reading, DataSourceReader):
    """Batch reader of everything in the queues, which keep it."""

    def partitions(self) -> Sequence[InputPartition]:
        try:
            return self._split({}, self._driver.ends())
        finally:
            self._driver.close()


class ReplayStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader of what the queues hold and receive."""

    _target: Offset | None = None

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._batches = Batches()

    def initialOffset(self) -> Offset:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        return limit_of(None, self._file.max_frames_per_trigger)

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the end of the next batch, and release everything before `start` in the broker."""
        if start is None or limit is None:
            return self._unasked()
        return self._end(plain(start), plain(start), limit)

    def _end(self, start: Offset, done: Offset, limit: ReadLimit) -> Offset:
        self._driver.release(done)
        end = self._target or self._driver.ends()
        if isinstance(limit, ReadMaxRows):
            end = self._driver.limited(start, end, limit.max_rows)
        return dict(sorted({name: max(seq, start.get(name, 0)) for name, seq in end.items()}.items()))

    def _unasked(self) -> Offset:
        """Return the next offset for Spark before 4.2, where `Batches` knows the start and what may be released."""
        batches = self._batches
        limit = ReadAllAvailable() if batches.first() else self.getDefaultReadLimit()
        end = self._end(plain(batches.start), plain(batches.done), limit)
        return batches.following(end, tick=self._options.release and not batches.settled)

    def reportLatestOffset(self) -> Offset | None:
        return self._driver.ends()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._driver.ends()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._batches.planned(start, end)
        return self._split(plain(start), plain(end))

    def stop(self) -> None:
        self._driver.close()
