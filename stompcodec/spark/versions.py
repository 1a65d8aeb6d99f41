"""Differences between versions of PySpark: stand-ins for what 4.0 and 4.1 lack.

Before 4.2 Spark has no admission control. It calls `latestOffset()` without the start of the batch and without a limit,
and it runs the trigger availableNow as one batch. `Batches` knows the start from other calls.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import pyspark
from pyspark.sql import datasource

__all__ = [
    "Batches",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "plain",
]

_Value = TypeVar("_Value", int, Any)
#: Counts the empty batches by which Spark says that the one before is done. No chain and no destination has this name.
_TICK = "#tick"
_log = logging.getLogger("stompcodec.spark")

if TYPE_CHECKING or find_spec("pyspark.sql.streaming.datasource"):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """A bound of a batch."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """No bound."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """A number of rows."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):
        """A number of bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:
        """A mark of readers that serve the trigger availableNow."""


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """A stream writer of 4.0. Spark gives record batches to whatever is a DataSourceArrowWriter, streams too."""


class Batches:
    """The batches of a query, for a Spark that calls `latestOffset()` without arguments.

    Spark plans a batch when the one before is in its commit log. It plans nothing while nothing new comes, so the last
    batch is only known to be done when the next offset differs: a tick makes it differ, and the next batch is empty.

    >>> batches = Batches()
    >>> batches.planned({"a": 1}, {"a": 5})
    >>> batches.start, batches.done, batches.settled
    ({'a': 5}, {'a': 1}, False)
    >>> batches.following({"a": 9}), batches.following({"a": 5}), batches.following({"a": 5}, tick=True)
    ({'a': 9}, {'a': 5}, {'a': 5, '#tick': 1})
    """

    def __init__(self) -> None:
        self.start: dict[str, Any] = {}
        """Where the next batch begins."""
        self.done: dict[str, Any] = {}
        """The end of what is in Spark's commit log for sure."""
        self._asked = False

    def planned(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> None:
        """Note a call of `partitions`. A restarted query begins with one from its last offset to the same."""
        if start != end:
            self.done = dict(start)
        self.start = dict(end)

    def first(self) -> bool:
        """Return whether this is the first call of `latestOffset()`, and then warn of what this Spark lacks.

        The first batch has no bounds: for the trigger availableNow it is the only one.
        """
        if self._asked:
            return False
        self._asked = True
        _log.warning(
            "PySpark %s has no admission control: maxFramesPerTrigger and maxBytesPerTrigger hold from the second "
            "batch on, and availableNow is one batch (PySpark 4.2 and newer have it)",
            pyspark.__version__,
        )
        return True

    @property
    def settled(self) -> bool:
        """Whether everything before `start` is known to be done."""
        return plain(self.done) == plain(self.start)

    def following(self, end: Mapping[str, Any], *, tick: bool = False) -> dict[str, Any]:
        """Return the next offset: `start` itself where the positions are the same, but a differing one with `tick`."""
        if end != plain(self.start):
            return dict(end)
        return {**end, _TICK: self.start.get(_TICK, 0) + 1} if tick else self.start


def plain(offset: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return an offset without the tick of `Batches.following`.

    >>> plain({"a": 5, "#tick": 1})
    {'a': 5}
    """
    return {key: value for key, value in offset.items() if key != _TICK}
