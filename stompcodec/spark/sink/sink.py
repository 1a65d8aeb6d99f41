"""The sink "stomp": `df.write.format("stomp")` and `df.writeStream.format("stomp")`.

Each task has its own connection. With `transaction` (the default) its rows take effect together once the broker has
confirmed the COMMIT. A STOMP transaction belongs to one connection, so it covers one task, not a batch of several
tasks. When Spark repeats a task, or a micro-batch after a restart, the rows are sent again with the same ids in
`dedupeHeader`, so a broker that checks them, or a consumer, can recognize them.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from stompcodec.client import Client, SendManyError, connect
from stompcodec.client.dialects import BROKERS
from stompcodec.client.outbox import Block
from stompcodec.errors import StompError
from stompcodec.spark.options.sink import SinkOptions, parse_sink
from stompcodec.spark.pickling import Shipped
from stompcodec.spark.sink.connection import SinkError, Target
from stompcodec.spark.sink.rows import Rows
from stompcodec.spark.versions import DataSourceStreamArrowWriter

#: Frames of a block when no receipts are asked for.
_MOST = 1000


@dataclass
class Sent(WriterCommitMessage):
    """Result of a task."""

    partition: int
    messages: int


class _Sink(Shipped):
    """Writer for both modes, made on the driver without a connection and shipped to the tasks."""

    def __init__(self, options: Mapping[str, Any], schema: StructType) -> None:
        self.options: SinkOptions = parse_sink(options)
        header = self.options.dedupe_header
        self._rows = Rows(schema, self.options.destination, None if header in ("none", "auto") else header)
        # Not the application's id, for two writes of one application are two batches.
        self._job = self.options.id_prefix or uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> Sent:
        """Send the rows of a task, where it runs; a row that cannot be sent, or was not accepted, is a SinkError of one
        line.
        """
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        try:
            return Sent(partition, self._write(iterator, f"{self._ids(context)}-{partition}-"))
        except StompError as error:
            # Without its cause, which Spark would show with a long traceback.
            raise SinkError(f"partition {partition}: {_one_line(error, self.options.transaction)}") from None

    def _write(self, batches: Iterator[Any], ids: str) -> int:
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return 0
        options = self.options
        with self._connect() as client:
            rows = self._for(client)
            target = Target(client.version or "1.2", text=BROKERS[client.dialect].jms)
            every = options.receipt_every
            if not options.transaction:
                return client.send_many(_blocks(rows, target, first, batches, ids, every), receipt_every=every)
            with client.transaction() as transaction:
                target = target._replace(lines=f"transaction:{transaction.id}\n")
                blocks = _blocks(rows, target, first, batches, ids, every)
                return client.send_many(blocks, receipt_every=every, transaction=transaction)

    def _connect(self) -> Client:
        options = self.options
        return connect(
            list(options.link.addresses),
            startup_timeout=options.reconnect_timeout,
            receipt_timeout=options.receipt_timeout,
            versions=("1.1", "1.2"),  # 1.0 has no escapes, which many values need
            reconnect=None,  # frames in flight are in doubt then: the task must run again
            **options.link.arguments(),
        )

    def _for(self, client: Client) -> Rows:
        """Return the rows with the id header that this broker checks."""
        if self.options.dedupe_header != "auto":
            return self._rows
        return self._rows.with_ids(BROKERS[client.dialect].duplicate)

    def _ids(self, context: Any) -> str:
        """Return the prefix of the ids of this query and micro-batch."""
        if context is None:
            return self._job
        query = self.options.id_prefix or context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return self._job if batch is None else f"{query or self._job}-{batch}"


class StompWriter(_Sink, DataSourceArrowWriter):
    """Writer of `df.write`."""


class StompStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Writer of `df.writeStream`."""


def _blocks(rows: Rows, target: Target, first: Any, batches: Iterator[Any], ids: str, every: int) -> Iterator[Block]:
    number = 0
    for batch in itertools.chain([first], batches):
        if batch.num_rows:
            yield from rows.blocks(batch, target, number, ids, every or _MOST)
            number += batch.num_rows


def _one_line(error: StompError, transaction: bool) -> str:
    """Return an error as one line, with the rows that took effect. `send_many` counts messages as rows are counted."""
    text = " ".join(str(error).split())
    if transaction and getattr(error, "sent", False):  # the COMMIT was sent
        return text
    if transaction:
        return f"{text}; no row of the task took effect"
    if isinstance(error, SendManyError):
        return f"{text}; {error.accepted} rows were accepted before"
    return text
