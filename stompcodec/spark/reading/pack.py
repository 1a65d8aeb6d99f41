"""Packing small splits into tasks: starting a Python task takes Spark about 55 ms, reading a small file about 1 ms."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from stompcodec.spark.options import FileOptions
from stompcodec.spark.reading.identity import Split

#: Most parts of a task: opening 4,096 tiny files takes some seconds.
_MOST = 4096
#: Assumed size of inflated frames, as a multiple of the compressed file.
_INFLATED = 8
#: Batches with fewer rows than this are combined before they go to Spark.
_FEW = 256


@dataclass(frozen=True)
class Pack(InputPartition):
    """Partitions that one task reads, in this order."""

    parts: tuple[InputPartition, ...]


def pack(parts: Iterable[Split], most: int) -> list[Split | Pack]:
    """Return the partitions in their order, with neighbours packed while they have at most `most` bytes together.

    >>> [len(parts_of(each)) for each in pack([Split("a", 0, n) for n in (5, 3, 2, 9, 20, 1)], 10)]
    [3, 1, 1, 1]
    """
    found: list[Split | Pack] = []
    group: list[Split] = []
    total = 0

    def close() -> None:
        if group:
            found.append(group[0] if len(group) == 1 else Pack(tuple(group)))
            group.clear()

    for part in parts:
        own = octets_of(part)
        if total + own > most or len(group) >= _MOST:
            close()
            total = 0
        group.append(part)
        total += own
    close()
    return found


def octets_of(split: Split) -> int:
    """Return about how many bytes of frames a split has."""
    if split.stop is not None:
        return split.stop - split.start
    try:
        return _INFLATED * os.path.getsize(split.path)
    except OSError:  # the task reports it
        return 0


def packed_splits(splits: Iterable[Split], options: FileOptions) -> list[Split | Pack]:
    """Return partitions of these splits: small ones share a task, up to splitBytes."""
    return pack(splits, options.split_bytes)


def parts_of(partition: InputPartition) -> Sequence[InputPartition]:
    """Return the partitions that a task reads one after the other."""
    return partition.parts if isinstance(partition, Pack) else (partition,)


def gathered(batches: Iterable[Any], options: FileOptions) -> Iterator[Any]:
    """Yield the record batches in their order, with small neighbours combined."""
    few: list[Any] = []
    rows = octets = 0
    for batch in batches:
        if few and (rows + batch.num_rows > options.batch_rows or octets + batch.nbytes > options.batch_bytes):
            yield _one(few)
            few, rows, octets = [], 0, 0
        if not few and (batch.num_rows >= _FEW or not batch.num_columns):
            yield batch
            continue
        few.append(batch)
        rows, octets = rows + batch.num_rows, octets + batch.nbytes
    if few:
        yield _one(few)


def _one(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
