"""The format "stomp": a broker as a source, through a spool on the disk, and as a sink.

The recorder runs beside the stream reader, in the process that Spark keeps on the driver for it. Everything that is
read is read from the spool, so a batch that Spark asks for again has the same rows.

Spark tells a source by `latestOffset(start)`, not by `commit`, how far everything is done: `start` is in its log by
then, also in a stream where nothing comes. What waited for that is acknowledged there.

Spark imports this module whenever it looks for sources, so the heavy ones are imported when something is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from stompcodec.errors import StoreError
from stompcodec.spark.file import read_partition
from stompcodec.spark.ship import Shipped

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from stompcodec.spark.receiver import Receiver

__all__ = ["LiveReader", "LiveStreamReader", "Stomp"]

#: Seconds in which a query is told of a login that is refused, and such, with its first batch.
_FIRST = 5.0
Offset = dict[str, int]


class Stomp(Shipped, DataSource):
    """`spark.readStream.format("stomp")`, and read, write and writeStream.

    Its options are in `options_live` for reading, in `options_replay` for reading with replay=broker, and in
    `options_sink` for writing.
    """

    @classmethod
    def name(cls) -> str:
        return "stomp"

    def schema(self) -> StructType:
        from stompcodec.spark.options_live import parse_live
        from stompcodec.spark.options_replay import is_replay, parse_replay
        from stompcodec.spark.schema import frame_schema

        parse = parse_replay if is_replay(self.options) else parse_live
        return frame_schema(parse(self.options).file.headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from stompcodec.spark.options_replay import is_replay
        from stompcodec.spark.replay import ReplayReader

        return (ReplayReader if is_replay(self.options) else LiveReader)(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from stompcodec.spark.options_replay import is_replay
        from stompcodec.spark.replay import ReplayStreamReader

        return (ReplayStreamReader if is_replay(self.options) else LiveStreamReader)(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from stompcodec.spark.sink import writer

        return writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from stompcodec.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


class LiveReader(Shipped, DataSourceReader):
    """A batch: what comes until nothing comes any more. Each action on it goes to the broker anew, so cache it.

    A message is acknowledged once it is in the spool, and can be read there afterwards, too.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        from stompcodec.spark.options_live import parse_live
        from stompcodec.spark.schema import Projection

        self._options = parse_live(options)
        self._projection = Projection(schema, self._options.file.decode)

    def partitions(self) -> Sequence[InputPartition]:
        from stompcodec.spark.plan import spool_splits
        from stompcodec.spark.receiver import Receiver

        options = self._options
        receiver = Receiver(options, most=options.max_frames, by_release=False)
        try:
            start = receiver.ends()
            receiver.release(start)
            receiver.drain()
            end = receiver.ends()
        finally:
            receiver.close()
        return spool_splits(options.spool_dir, start, end, options.file)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._projection, self._options.file)


class LiveStreamReader(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Spark makes two of them, and asks one for `latestOffset`: nothing happens before that."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        from stompcodec.spark.options_live import parse_live
        from stompcodec.spark.schema import Projection

        self._options = parse_live(options)
        self._projection = Projection(schema, self._options.file.decode)
        self._receiver: Receiver | None = None
        self._target: Offset | None = None
        self._more = False

    def initialOffset(self) -> Offset:
        return {}  # whatever is in the spool

    def getDefaultReadLimit(self) -> ReadLimit:
        file = self._options.file
        if file.max_bytes_per_trigger is not None:
            return ReadMaxBytes(file.max_bytes_per_trigger)
        if file.max_frames_per_trigger is not None:
            return ReadMaxRows(file.max_frames_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        receiver = self._open()
        receiver.check()
        ends = receiver.ends()
        self._look_for_loss(start, ends)
        receiver.release({chain: offset for chain, offset in start.items() if offset <= ends.get(chain, 0)})
        if self._target is not None and start == {**start, **self._target}:
            while self._more and start == {**start, **self._target}:
                self.prepareForTriggerAvailableNow()  # maybe only the prefetch has come
            receiver.flush()  # if that was all, Spark ends now, and does not wait
        end = dict(sorted({**start, **(ends if self._target is None else self._target)}.items()))
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return end
        from stompcodec.spark.plan import limited

        file = options.file
        return limited(options.spool_dir, start, end, file.max_bytes_per_trigger, file.max_frames_per_trigger)

    def reportLatestOffset(self) -> Offset | None:
        return None if self._receiver is None else self._receiver.ends()

    def prepareForTriggerAvailableNow(self) -> None:
        receiver = self._open()
        self._more = receiver.drain()
        self._target = receiver.ends()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        from stompcodec.spark.plan import spool_splits

        options = self._options
        return [] if start == end else spool_splits(options.spool_dir, start, end, options.file)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._projection, self._options.file)

    def stop(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()

    def _look_for_loss(self, start: Offset, ends: Offset) -> None:
        """The end of what was read has to be in the spool; `partitions` looks for what was not read."""
        for chain, offset in start.items():
            if offset > ends.get(chain, 0) and self._options.file.fail_on_data_loss:
                raise StoreError(
                    f"{self._options.spool_dir}: {chain} was read to octet {offset}, and ends at {ends.get(chain, 0)}: "
                    "it is another spool, or was deleted (failOnDataLoss=false goes on with what there is)"
                )

    def _open(self) -> Receiver:
        from stompcodec.spark.receiver import Receiver

        if self._receiver is None:
            self._receiver = Receiver(self._options)
            self._receiver.wait(_FIRST)
        return self._receiver
