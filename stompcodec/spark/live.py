"""The format "stomp": a broker as a source, through a spool on disk, and as a sink.

A recorder runs beside the stream reader, in the process that Spark keeps on the driver for it. Everything is read from
the spool, so a batch that Spark asks for again has the same rows.

Spark tells a source how far everything is done by `latestOffset(start)`, not by `commit`: `start` is in its log by
then, even in a stream without new messages. Deferred acknowledgements are sent there.

Spark imports this module whenever it looks for sources, so heavy modules are imported only when something is read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from stompcodec.arguments import check_values
from stompcodec.capture.index import names_of
from stompcodec.disk import access_of
from stompcodec.errors import StoreError
from stompcodec.spark import base
from stompcodec.spark.reading import SplitReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from stompcodec.spark.link import LiveOptions
    from stompcodec.spark.reading.plan import Chain
    from stompcodec.spark.receiver import Receiver


#: Seconds that the first batch waits for the subscriptions, so that a refused login fails the query at once.
_FIRST = 5.0
Offset = dict[str, Any]
#: Key in a reported offset: the reason why nothing is received and acknowledged.
_STALLED = "#stalled"
_log = logging.getLogger("stompcodec.spark")


class Stomp(base.Shipped, DataSource):
    """Data source behind the format "stomp"; its options are `LIVE_OPTIONS` and `SINK_OPTIONS` of `link`."""

    @classmethod
    def name(cls) -> str:
        return "stomp"

    def schema(self) -> StructType:
        from stompcodec.spark.link import parse_live
        from stompcodec.spark.reading.schema import frame_schema

        parse_live(self.options).link.arguments()  # so that `load` tells of wrong options, if it is given no schema
        return frame_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return LiveReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return base.made(lambda: LiveStreamReader(self.options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from stompcodec.spark.base import SinkError
        from stompcodec.spark.sink import StompWriter

        if overwrite:
            raise SinkError('a broker has nothing to overwrite: use mode("append")')
        return StompWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from stompcodec.spark.sink import StompStreamWriter

        return StompStreamWriter(self.options, schema)  # any output mode will do


def _chains(options: LiveOptions, start: Mapping[str, int] | None = None) -> dict[str, Chain]:
    from stompcodec.spark.reading.plan import chains_of

    return chains_of([options.spool_dir], options.file, start)


def _join(options: LiveOptions) -> None:
    """Name the archive in the spool, which is new on a node that takes over from another one."""
    from stompcodec.capture.archive import Archive

    if options.spool_archive is not None:
        Archive(Path(options.spool_dir), options.spool_archive).join(access_of(group=options.spool_group))


class LiveReader(SplitReader, DataSourceReader):
    """Batch reader: reads until no more messages come. Each action on the DataFrame goes to the broker again."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        from stompcodec.spark.link import parse_live

        self._options = parse_live(options)
        super().__init__(schema, self._options.file)

    def partitions(self) -> Sequence[InputPartition]:
        from stompcodec.spark.reading.plan import splits_between
        from stompcodec.spark.reading.splits import pack
        from stompcodec.spark.receiver import Receiver

        options = self._options
        receiver = Receiver(options, most=options.max_frames, by_release=False)
        try:
            receiver.release(receiver.begin)
            receiver.drain()
        finally:
            end = receiver.close()
        begin = receiver.begin
        return pack(splits_between(_chains(options, begin), begin, end, self._file), self._file.split_bytes)

    def _strict(self) -> bool:
        return True  # the broker has given it away


class LiveStreamReader(SplitReader, DataSourceStreamReader, base.SupportsTriggerAvailableNow):
    """Stream reader. Spark makes two of them and asks one for `latestOffset`; nothing happens before that."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        from stompcodec.spark.link import parse_live

        self._options = parse_live(options)
        super().__init__(schema, self._options.file)
        self._receiver: Receiver | None = None
        #: True with the trigger availableNow: read what is there, and end.
        self._now = False
        self._target: dict[str, int] | None = None
        self._more = False
        self._batches = base.Batches()
        #: The end of the last batch that was planned.
        self._planned: dict[str, int] = {}

    def _strict(self) -> bool:
        return self._file.fail_on_data_loss

    def initialOffset(self) -> Offset:
        from stompcodec.spark.options import EARLIEST
        from stompcodec.spark.reading.plan import starts_of
        from stompcodec.spark.receiver import identity_of, stamped

        position, folder = self._file.starting_position, self._options.spool_dir
        if position == EARLIEST:
            return {}
        found, identity = starts_of(_chains(self._options), position), identity_of(folder)
        return stamped(found, identity) if identity else {**found}

    def getDefaultReadLimit(self) -> base.ReadLimit:
        return base.limit_of(self._file.max_bytes_per_trigger, self._file.max_frames_per_trigger)

    def latestOffset(self, start: Offset | None = None, limit: base.ReadLimit | None = None) -> Offset:
        """Return the end of the next batch, and acknowledge everything before `start`, which is done."""
        if start is None or limit is None:
            return self._unasked()
        start = base.plain(start)
        receiver, begin = self._open(start)
        self._release(receiver, begin)
        if self._now:
            if self._target is None:
                self._drain(receiver)
            elif self._reached(begin):
                while self._more and self._reached(begin):
                    self._drain(receiver)  # perhaps only the prefetch was delivered
                receiver.flush()  # if that was everything, Spark ends now without waiting
        return self._end(receiver, begin, limit)

    def _unasked(self) -> Offset:
        """Return the next offset for Spark before 4.2, where `Batches` knows the start and the end of what is done."""
        batches = self._batches
        first = batches.first()
        receiver, begin = self._open(base.plain(batches.start))
        self._release(receiver, self._here(base.plain(batches.done), receiver))
        if first and self._options.drains:
            self._drain(receiver)  # the trigger availableNow has no second batch
        end = self._end(receiver, begin, base.ReadAllAvailable() if first else self.getDefaultReadLimit())
        self._target = None
        receiver.resume()
        return batches.following(end, tick=receiver.waits and not batches.settled)

    def _release(self, receiver: Receiver, done: Mapping[str, int]) -> None:
        receiver.check()
        ends = receiver.ends()
        receiver.release({chain: offset for chain, offset in done.items() if offset <= ends.get(chain, 0)})

    def _end(self, receiver: Receiver, begin: Mapping[str, int], limit: base.ReadLimit) -> Offset:
        from stompcodec.spark.reading.plan import limit_chains
        from stompcodec.spark.receiver import stamped

        end = {**begin, **(receiver.ends() if self._target is None else self._target)}
        if not isinstance(limit, base.ReadAllAvailable):
            most = self._file.max_bytes_per_trigger, self._file.max_frames_per_trigger
            end = limit_chains(_chains(self._options, begin), begin, end, *most)
        self._planned = end
        return stamped(end, receiver.identity)

    def reportLatestOffset(self) -> Offset | None:
        from stompcodec.spark.receiver import stamped

        receiver = self._receiver
        if receiver is None:
            return None
        report: Offset = {**stamped(receiver.ends(), receiver.identity), METRICS: receiver.metrics(self._planned)}
        stalled = receiver.stalled
        return report if stalled is None else {**report, _STALLED: stalled}

    def prepareForTriggerAvailableNow(self) -> None:
        self._now = True  # nothing is received before `latestOffset` has checked for losses

    def _drain(self, receiver: Receiver) -> None:
        self._more = receiver.drain()
        self._target = receiver.ends()

    def _reached(self, begin: Mapping[str, int]) -> bool:
        """Return whether everything up to the target was read."""
        return self._target is not None and begin == {**begin, **self._target}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        from stompcodec.spark.reading.plan import splits_between
        from stompcodec.spark.reading.splits import pack
        from stompcodec.spark.receiver import identity_of, positions_of

        options = self._options
        self._batches.planned(start, end)
        start, end = base.plain(start), base.plain(end)
        if start == end:
            return []
        _join(options)
        (before, begin), (identity, stop) = positions_of(start), positions_of(end)
        if identity is not None and identity != identity_of(options.spool_dir):
            ranges = [(chain, begin.get(chain, 0), offset) for chain, offset in stop.items()]
            self._lost(", ".join(f"bytes {low} to {high} of {chain}" for chain, low, high in ranges if low < high))
            return []
        if before is not None and before != identity:  # failOnDataLoss=false: a new spool is read from its start
            begin = {}
        return pack(splits_between(_chains(options, begin), begin, stop, self._file), self._file.split_bytes)

    def stop(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()

    def _open(self, start: Offset) -> tuple[Receiver, dict[str, int]]:
        """Return the receiver, and the positions to continue from. Losses are detected before anything is received."""
        from stompcodec.spark.receiver import Receiver, positions_of

        if self._receiver is None:
            tell_once()
            options = self._options
            _join(options)
            short = self._look_for_loss(start)  # it may soon grow beyond the offset
            goes_on = short and self._is_taken_over()
            begin = positions_of(start)[1] if goes_on else None
            self._receiver = Receiver(options, anew=short and not goes_on, begin=begin)
            self._receiver.wait(_FIRST)
        return self._receiver, self._here(start, self._receiver)

    def _here(self, offset: Offset, receiver: Receiver) -> dict[str, int]:
        """Return the positions of an offset; none if they belong to another spool."""
        from stompcodec.spark.receiver import positions_of

        identity, positions = positions_of(offset)
        return positions if identity in (None, receiver.identity) else {}

    def _look_for_loss(self, start: Offset) -> bool:
        """Check that the spool belongs to the offset; return True if it does, but ends before what was read."""
        from stompcodec.spark.reading.plan import ends_of
        from stompcodec.spark.receiver import identity_of, positions_of

        folder = self._options.spool_dir
        identity, begin = positions_of(start)
        ends = ends_of(_chains(self._options, begin), {})
        if not begin and any(ends.values()):
            _log.warning(
                "%s holds frames from before, and this query has no offset: it reads them from the start. If its "
                "checkpoint was deleted, it needs a new sink folder, too: a file sink of Spark skips batches whose "
                "numbers it has written (docs/spark-semantics.md)",
                folder,
            )
        if identity is not None and identity != identity_of(folder):
            self._lost(", ".join(f"everything behind offset {offset} of {chain}" for chain, offset in begin.items()))
            return False
        short = {chain: offset for chain, offset in begin.items() if offset > ends.get(chain, 0)}
        if short:
            gone = (f"bytes {ends.get(chain, 0)} to {offset} of {chain}" for chain, offset in short.items())
            known = ("go on behind them",) if self._is_taken_over() else ()
            self._lost(f"{', '.join(gone)}, which were read already", *known)
        return bool(short)

    def _is_taken_over(self) -> bool:
        """Return whether all of the spool is in its archive, as on a node that takes over from another one."""
        return self._options.spool_archive is not None and not names_of(Path(self._options.spool_dir))

    def _lost(self, what: str, follows: str = "read the new one from its start") -> None:
        """Raise an error for frames that are gone with another spool, or warn with failOnDataLoss=false."""
        folder = self._options.spool_dir
        text = f"{folder} is not the spool of the checkpoint, or was deleted and created again: lost: {what}"
        if self._options.file.fail_on_data_loss:
            raise StoreError(f"{text} (restore the old folder, or set failOnDataLoss=false to {follows})")
        _log.warning("%s", text)


# ---- metrics in Spark's progress: backlog, spool, unacknowledged messages, age of the last frame ----
#: Key of the metrics in a reported offset. No chain has this name.
METRICS = "#metrics"
_told: list[str] = []


def source_metrics(progress: Any) -> list[dict[str, Any]]:
    """Return the metrics of each live source "stomp" in a progress of Spark, in the order of the sources.

    Each is a dictionary: `description`; `backlogBytes`, received but not in a batch yet; `lagSeconds`, since the first
    of these was received, 0 without any, None if unknown; `spoolBytes`; `unacknowledged`, messages delivered but not
    acknowledged; `silenceSeconds`, None without a frame; `connected`; and `stalled`, the reason why nothing is written,
    None while all is well.

    Args:
        progress: a `StreamingQueryProgress`, from `query.lastProgress` or a listener, or a dictionary or JSON of one;
            None, as before the first batch, gives an empty list.

    Raises:
        ValueError: a text that is not JSON.

    >>> latest = json.dumps({"frames": 7, "#metrics": {"backlogBytes": 3}})
    >>> source_metrics({"sources": [{"latestOffset": latest}, {"latestOffset": None}]})
    [{'backlogBytes': 3}]
    """
    if progress is None:
        return []
    found = progress if isinstance(progress, Mapping) else getattr(progress, "json", progress)
    check_values(str | Mapping, progress=found)
    found = json.loads(found) if isinstance(found, str) else found
    metrics = []
    for source in found.get("sources") or []:
        latest = source.get("latestOffset")
        if isinstance(latest, str):
            try:
                latest = json.loads(latest)
            except ValueError:  # another source
                continue
        if isinstance(latest, Mapping) and isinstance(latest.get(METRICS), Mapping):
            metrics.append(dict(latest[METRICS]))
    return metrics


def tell_once() -> None:
    """Log once where this PySpark shows the metrics of a source, or that it shows none."""
    if _told:
        return
    if hasattr(DataSourceStreamReader, "reportLatestOffset"):
        text = "PySpark %s takes no metrics from Python sources: they are in sources[].latestOffset of the progress"
        level = logging.INFO
    else:
        text = "PySpark %s shows nothing of a Python source in the progress: PySpark 4.2 shows backlog, spool and age"
        level = logging.WARNING
    _told.append(text)
    _log.log(level, text + " (docs/spark-semantics.md)", pyspark.__version__)
