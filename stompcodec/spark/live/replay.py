"""The format "stomp" with replay=broker: batches are read from our broker by the numbers of messages, without a spool.

A queue of our broker numbers its messages. A batch is all that lies between two numbers: tasks look through the queue
(`browser`, `from-seq`) and take nothing out of it, so a batch that Spark asks for again has the same rows. What
`latestOffset(start)` names as `start` is in Spark's log; that is when the broker may let go of it (`through-seq`).

Nobody else may take messages out of these queues meanwhile. A message that expires is gone here, too.
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
from stompcodec.spark import pickling
from stompcodec.spark.pickling import Shipped
from stompcodec.spark.versions import (
    Batches,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    plain,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from stompcodec.client import Client, Message, Subscription
    from stompcodec.spark.options.replay import ReplayOptions

__all__ = ["SEQ", "Numbered", "ReplayError", "ReplayReader", "ReplayStreamReader", "messages_of", "numbered"]

#: The header with the number of a message.
SEQ = "stomp-seq"
#: The broker is away, and may come back.
_AWAY = (ConnectionLostError, ReceiptTimeoutError, StaleAckError)
#: Seconds between two attempts to reach it.
_PAUSE = 0.2
#: What the broker counts at once.
_MOST_SKIPPED = 100_000
#: Octets of a message, to tell how many a task reads: their sizes are not known before they come.
_USUAL = 1024
#: The last number that was read, by queue.
Offset = dict[str, int]


class ReplayError(StompError):
    """A queue cannot be read by numbers.

    >>> issubclass(ReplayError, StompError)
    True
    """


@dataclass(frozen=True)
class Numbered(InputPartition):
    """Messages that one task reads: those of a queue whose number is above `after`, up to `until`."""

    destination: str
    after: int
    until: int


class _Look:
    """The driver's connection: how far queues go, and what they may let go of."""

    def __init__(self, options: ReplayOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._released: Offset = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _Look, (self._options,)  # tasks get no connection of the driver's

    def ends(self) -> Offset:
        """The last number of each queue."""
        return {name: self._end(name) for name in self._options.destination}

    def limited(self, start: Offset, end: Offset, most: int) -> Offset:
        """As `end`, but so many messages of each queue at most."""
        found = {}
        for name, until in end.items():
            after = start.get(name, 0)
            if until - after > most:  # numbers are left out, so only the broker knows
                until = min(until, self._end(name, after=after, skip=min(most, _MOST_SKIPPED)))
            found[name] = until
        return found

    def release(self, offsets: Offset) -> None:
        """Spark is done with the messages up to these numbers, and will not ask for them again."""
        for name, offset in offsets.items():
            if self._options.release and offset > self._released.get(name, 0):
                self._end(name, offset)
                self._released[name] = offset

    def _end(self, destination: str, release: int | None = None, *, after: int = -2, skip: int = 0) -> int:
        """One look at the end of a queue; or, behind a number, at the last of so many messages."""
        patience, timeout = _Patience(self._options.timeout), self._options.timeout
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
                patience.wait(error)

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
        raise ReplayError(f"the broker said nothing of {subscription.destination} for {timeout:g} s (option timeout)")
    return message


def _seq_of(message: Message, destination: str) -> int:
    text = message.get(SEQ, "") or ""
    if not (text.isdecimal() and len(text) < 20):
        raise ReplayError(f"{destination}: its messages have no numbers: replay=broker needs stompcodec's own broker")
    return int(text)


def messages_of(options: ReplayOptions, partition: Numbered) -> Generator[bytes, None, None]:
    """The messages of a partition, as octets of frames. Where the connection breaks, the next one goes on behind.

    Raises:
        StompError: the broker refuses, or was away for longer than the option timeout.
    """
    patience = _Patience(options.timeout)
    last = partition.after
    while last < partition.until:
        try:
            with _connected(options) as client:
                subscription = _browse(client, partition.destination, str(last + 1))
                for seq, octets in numbered(subscription, partition, last, options.timeout):
                    patience.renew()
                    yield octets
                    last = seq
            return
        except _AWAY as error:
            patience.wait(error)


def numbered(subscription: Subscription, partition: Numbered, last: int, timeout: float) -> Iterator[tuple[int, bytes]]:
    """What a subscription shows of a partition behind the number `last`: numbers, and octets of frames.

    Raises:
        ReplayError: the messages have no numbers, or not in order; or nothing came for `timeout` seconds.
    """
    while last < partition.until:
        message = _next(subscription, timeout)
        seq = _seq_of(message, partition.destination)
        if message.get("browser") == "end" or seq > partition.until:
            return
        if seq <= last:
            raise ReplayError(f"{partition.destination}: message {seq} came behind {last}")
        last = seq
        yield seq, serialize(message.frame, "1.2")


class _Patience:
    """For how long one tries to reach a broker that is away."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """It was there."""
        self._until = time.monotonic() + self._seconds

    def wait(self, error: Exception) -> None:
        """Before the next attempt. Raises the error if there is none."""
        if time.monotonic() >= self._until:
            raise error
        time.sleep(_PAUSE)


class _Octets:
    """Octets of frames, for a window."""

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


class _Reading(Shipped):
    """What batch and stream have in common: which partitions there are, and what is in one."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        from stompcodec.spark.options.replay import parse_replay
        from stompcodec.spark.reading.schema import Projection

        self._options = parse_replay(options)
        self._projection = Projection(schema, self._options.file.decode)
        self._look = _Look(self._options)

    def _split(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        from stompcodec.spark.reading.pack import pack

        found = []
        for name, until in end.items():
            after, splits = start.get(name, 0), self._options.splits
            edges = [after + (until - after) * part // splits for part in range(splits + 1)]
            found += [Numbered(name, *edge) for edge in pairwise(edges) if edge[0] < edge[1]]
        if self._options.splits > 1:
            return found
        most = max(1, self._options.file.split_bytes // _USUAL)
        return pack(found, lambda part: part.until - part.after, most)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from stompcodec.spark.reading.pack import gathered, parts_of

        pickling.settle()
        numbered = [part for part in parts_of(partition) if isinstance(part, Numbered)]
        batches = (batch for part in numbered for batch in self._read(part))
        yield from gathered(batches, self._options.file) if len(numbered) > 1 else batches

    def _read(self, partition: Numbered) -> Iterator[Any]:
        from stompcodec.spark.reading.decode import read_numbered

        with closing(messages_of(self._options, partition)) as messages:
            octets = _Octets(messages)
            yield from read_numbered(octets, SEQ, partition.destination, self._projection, self._options.file)


class ReplayReader(_Reading, DataSourceReader):
    """A batch: all that is in the queues, which keep it."""

    def partitions(self) -> Sequence[InputPartition]:
        try:
            return self._split({}, self._look.ends())
        finally:
            self._look.close()


class ReplayStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of what comes into the queues, and of what is there."""

    _target: Offset | None = None

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._batches = Batches()

    def initialOffset(self) -> Offset:
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.file.max_frames_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        """Return the end of the next batch. What lies before `start` leaves the broker."""
        if start is None or limit is None:
            return self._unasked()
        return self._end(plain(start), plain(start), limit)

    def _end(self, start: Offset, done: Offset, limit: ReadLimit) -> Offset:
        self._look.release(done)
        end = self._target or self._look.ends()
        if isinstance(limit, ReadMaxRows):
            end = self._look.limited(start, end, limit.max_rows)
        return dict(sorted({name: max(seq, start.get(name, 0)) for name, seq in end.items()}.items()))

    def _unasked(self) -> Offset:
        """`latestOffset` for Spark before 4.2: the batches tell where the next one begins, and what may leave."""
        batches = self._batches
        limit = ReadAllAvailable() if batches.first() else self.getDefaultReadLimit()
        end = self._end(plain(batches.start), plain(batches.done), limit)
        return batches.following(end, tick=self._options.release and not batches.settled)

    def reportLatestOffset(self) -> Offset | None:
        return self._look.ends()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._look.ends()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._batches.planned(start, end)
        return self._split(plain(start), plain(end))

    def stop(self) -> None:
        self._look.close()
