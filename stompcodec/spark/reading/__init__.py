"""The format "stompfile": captures and bare streams of frames, as a table or as a stream of what is appended to them.

Spark imports this module whenever it looks for sources, so heavy modules are imported only when something is read.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from stompcodec.spark import base
from stompcodec.spark.options import FileOptions, parse_file, paths_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from stompcodec.spark.reading.plan import Chain


Offset = dict[str, int]
#: Key of a table's options in the metadata of its first column.
_TABLE = "stompfile"


class StompFile(base.Shipped, DataSource):
    """Data source behind the format "stompfile" of `spark.read` and `spark.readStream`; see `options.FILE_OPTIONS`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = parse_file(options)
        if options.keys() & {"path", "paths"}:  # a table hands them over by its schema
            paths_of(options)

    @classmethod
    def name(cls) -> str:
        return "stompfile"

    def schema(self) -> StructType:
        from stompcodec.spark.reading.schema import frame_schema

        schema = frame_schema()
        if "provider" not in self.options:
            paths_of(self.options)
        else:  # CREATE TABLE: whoever reads the table gets its schema, but not its options
            first = schema.fields[0]
            schema.fields[0] = type(first)(first.name, first.dataType, metadata={_TABLE: dict(self.options)})
        return schema

    def reader(self, schema: StructType) -> FileReader:
        return FileReader(*self._read(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return base.made(lambda: FileStreamReader(*self._read(schema)))

    def _read(self, schema: StructType) -> tuple[list[str], StructType, FileOptions]:
        """Return what is read: paths, schema and options."""
        options = {**schema.fields[0].metadata.get(_TABLE, {}), **self.options} if schema.fields else self.options
        return paths_of(options), schema, parse_file(options)


class SplitReader(base.Shipped):
    """Reader of partitions that consist of splits of files."""

    def __init__(self, schema: StructType, file: FileOptions) -> None:
        from stompcodec.spark.reading.schema import Projection

        self._file = file
        self._projection = Projection(schema, file.decode)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition; one without splits, as Spark makes for nothing, has none."""
        from stompcodec.spark.reading.decode import gathered, read_split
        from stompcodec.spark.reading.splits import Split, parts_of

        base.settle()
        parts = [part for part in parts_of(partition) if isinstance(part, Split)]
        each = (read_split(part, self._projection, self._file, strict=self._strict()) for part in parts)
        batches = chain.from_iterable(each)
        yield from gathered(batches, self._file) if len(parts) > 1 else batches

    def _strict(self) -> bool:
        """Return whether a file that is shorter than it was planned fails the query, rather than making a row."""
        return self._file.mode != "PERMISSIVE"


class FileReader(SplitReader, DataSourceReader):
    """Reader of the frames that exist now.

    It accepts no filters from Spark: a pushed filter stays in force for every later action on the same DataFrame, which
    makes counts silently wrong (docs/spark-semantics.md#rows). The options in `CHOICE_OPTIONS` choose rows instead.
    """

    def __init__(self, paths: list[str], schema: StructType, file: FileOptions) -> None:
        super().__init__(schema, file)
        self._paths = paths

    def partitions(self) -> Sequence[InputPartition]:
        from stompcodec.spark.reading.plan import batch_splits
        from stompcodec.spark.reading.splits import pack

        return pack(batch_splits(self._paths, self._file), self._file.split_bytes)


class FileStreamReader(SplitReader, DataSourceStreamReader, base.SupportsTriggerAvailableNow):
    """Reader of appended frames. Spark makes two of them, so nothing is opened before the first request."""

    def __init__(self, paths: list[str], schema: StructType, file: FileOptions) -> None:
        super().__init__(schema, file)
        self._paths = paths
        self._target: Offset | None = None
        self._seen: Offset = {}
        self._batches = base.Batches()

    def _strict(self) -> bool:
        return self._file.fail_on_data_loss

    def _chains(self, start: Offset | None = None) -> dict[str, Chain]:
        from stompcodec.spark.reading.plan import chains_of

        return chains_of(self._paths, self._file, start)

    def initialOffset(self) -> Offset:
        from stompcodec.spark.reading.plan import starts_of

        return starts_of(self._chains(), self._file.starting_position)

    def getDefaultReadLimit(self) -> base.ReadLimit:
        return base.limit_of(self._file.max_bytes_per_trigger, self._file.max_frames_per_trigger)

    def latestOffset(self, start: Offset | None = None, limit: base.ReadLimit | None = None) -> Offset:
        """Return the end of the next batch. Both limits hold even if Spark was told only one of them."""
        from stompcodec.spark.reading.plan import ends_of, limit_chains

        if start is None:
            start = self._batches.start
            limit = base.ReadAllAvailable() if self._batches.first() else self.getDefaultReadLimit()
        chains = self._chains(start)
        self._seen = end = ends_of(chains, start, self._target)
        if isinstance(limit, base.ReadAllAvailable):
            return end
        octets, frames = self._file.max_bytes_per_trigger, self._file.max_frames_per_trigger
        if isinstance(limit, base.ReadMaxBytes):
            octets = limit.max_bytes
        elif isinstance(limit, base.ReadMaxRows):
            frames = limit.max_rows
        return limit_chains(chains, start, end, octets, frames)

    def reportLatestOffset(self) -> Offset | None:
        from stompcodec.spark.reading.plan import ends_of

        return ends_of(self._chains(self._seen), self._seen)

    def prepareForTriggerAvailableNow(self) -> None:
        from stompcodec.spark.reading.plan import ends_of

        self._target = ends_of(self._chains(), {})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        from stompcodec.spark.reading.plan import splits_between
        from stompcodec.spark.reading.splits import pack

        self._batches.planned(start, end)
        return pack(splits_between(self._chains(start), start, end, self._file), self._file.split_bytes)
