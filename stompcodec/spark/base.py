"""What the sources, the sink and the functions share: classes that older versions of PySpark lack, and pickling.

Before 4.2 Spark has no admission control. It calls `latestOffset()` without the start of the batch and without a limit,
and runs the trigger availableNow as one batch. `Batches` knows the start from other calls.
"""

from __future__ import annotations

import gc
import logging
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import pyspark
from pyspark.sql import datasource

from stompcodec.errors import StompError

__all__ = [
    "Batches",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "limit_of",
    "plain",
]

_Value = TypeVar("_Value", int, Any)
#: Counter of empty batches, each of which tells that the previous one is done. No chain or destination has this name.
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
        """Limit of a batch."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """No limit."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """Limit in rows."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):
        """Limit in bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:
        """Mixin of readers that support the trigger availableNow."""


if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """Stream writer for 4.0, where Spark gives record batches to every DataSourceArrowWriter, in streams, too."""


class SinkError(StompError):
    """Error for rows that cannot be sent or were not all accepted: one line that names the row."""


class _Failed(datasource.DataSourceStreamReader):
    """Stream reader that cannot be made: each call raises why."""

    def __init__(self, error: StompError) -> None:
        self._error = error

    def _fail(self, *_arguments: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = partitions = read = _fail  # type: ignore[assignment]


def made(make: Callable[[], datasource.DataSourceStreamReader]) -> datasource.DataSourceStreamReader:
    """Return a stream reader. A StompError is raised by its first call, for here PySpark adds an error of its own."""
    try:
        return make()
    except StompError as error:
        return _Failed(error)


class Batches:
    """Batches of a query, for a Spark that calls `latestOffset()` without arguments.

    Spark plans a batch once the previous one is in its commit log. It plans nothing while the offset stays the same, so
    the last batch is only known to be done after the offset changes: a tick changes it, which makes an empty batch.
    """

    def __init__(self) -> None:
        self.start: dict[str, Any] = {}
        """Start of the next batch."""
        self.done: dict[str, Any] = {}
        """End of the batches that are certainly in Spark's commit log."""
        self._asked = False

    def planned(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> None:
        """Note a call of `partitions`. A restarted query first calls it with its last offset as start and end."""
        if start != end:
            self.done = dict(start)
        self.start = dict(end)

    def first(self) -> bool:
        """Return True for the first call of `latestOffset()`, and log what this Spark lacks."""
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
        """True if everything before `start` is known to be done."""
        return plain(self.done) == plain(self.start)

    def following(self, end: Mapping[str, Any], *, tick: bool = False) -> dict[str, Any]:
        """Return the next offset: `start` itself if positions are unchanged, or a different one with `tick`."""
        if end != plain(self.start):
            return dict(end)
        return {**end, _TICK: self.start.get(_TICK, 0) + 1} if tick else self.start


def limit_of(max_bytes: int | None, max_frames: int | None) -> ReadLimit:
    """Return the limit of a batch for two options; Spark takes one, so that in bytes wins."""
    if max_bytes is not None:
        return ReadMaxBytes(max_bytes)
    return ReadAllAvailable() if max_frames is None else ReadMaxRows(max_frames)


def plain(offset: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return an offset without the tick of `Batches.following`."""
    return {key: value for key, value in offset.items() if key != _TICK}


# ---- pickling for executors, where this package may be missing ----
_settled = False


def _arrive(module: str, name: str, state: bytes) -> Any:
    import importlib
    import pickle
    import sys

    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != "stompcodec":
            raise
        raise ModuleNotFoundError(
            f"stompcodec is not installed for {sys.executable}, which runs this executor: install stompcodec[spark] "
            "there, or ship an environment that has it (spark.archives, PYSPARK_PYTHON): see docs/spark-cluster.md"
        ) from None
    result = found.__new__(found)
    result.__dict__.update(pickle.loads(state))
    return result


# PySpark pickles functions of unimportable modules by value, so this one runs even where this package is missing.
_arrive.__module__ = "stompcodec_to_executors"


def settle() -> None:
    """Freeze imported modules: a worker collects garbage after each task, which takes as long as reading 32 MiB."""
    global _settled
    if not _settled:
        _settled = True
        gc.freeze()


class Shipped:
    """Mixin for objects that PySpark pickles; unpickled without this package they raise an error that helps."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The state holds our objects, so it stays pickled until this package is known to be importable.
        return _arrive, (type(self).__module__, type(self).__qualname__, pickle.dumps(self.__dict__))
