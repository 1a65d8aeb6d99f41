"""Filters of Spark that are looked at while frames are parsed, so that rows nobody wants are never made."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import StringType, TimestampType

from stompcodec.spark.schema import Column, Projection

__all__ = ["push_filters"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def push_filters(projection: Projection, filters: Iterable[Filter]) -> list[Filter]:
    """Let a projection do as many filters as it can.

    Those are `=`, `IN` and `LIKE 'x%'` on the command and on headers that are asked for as text, and comparisons of
    `received_at`. A row they hold for has a value there, so `IS NOT NULL` of the same column is done too.

    Returns:
        The others.
    """
    filters = list(filters)
    done: set[str] = set()
    left = []
    for each in filters:
        column = _column(projection, each)
        if column is not None and _push(projection, column, each):
            done.add(column.name)
        else:
            left.append(each)
    return [each for each in left if not (isinstance(each, IsNotNull) and each.attribute[0] in done)]


def _column(projection: Projection, each: Filter) -> Column | None:
    path = getattr(each, "attribute", ())
    named = [column for column in projection.fields if path == (column.name,)]
    return named[0] if len(named) == 1 else None


def _push(projection: Projection, column: Column, each: Any) -> bool:
    kind = projection.schema[column.name].dataType
    if column.source == "received_at" and kind == TimestampType():
        return _push_time(projection, each)
    if kind != StringType():
        return False
    if column.source == "command":
        name = "command"
    elif column.is_text and len(column.headers) == 1:
        name = column.headers[0]
    else:
        return False
    condition = _condition(name, each)
    if condition is None:
        return False
    projection.where += (condition,)
    return True


def _condition(name: str, each: Any) -> tuple[str, str, tuple[str, ...]] | None:
    """A filter as `parse_columns` has it."""
    if isinstance(each, In):
        values = tuple(value for value in each.value if value is not None)
    elif isinstance(each, (EqualTo, EqualNullSafe, StringStartsWith)):
        values = (each.value,)
    else:
        return None
    if not all(isinstance(value, str) for value in values):
        return None
    return name, "prefix" if isinstance(each, StringStartsWith) else "in", values


def _push_time(projection: Projection, each: Any) -> bool:
    value = getattr(each, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return False
    moment = (value - _EPOCH) // timedelta(microseconds=1)
    since = until = None
    if isinstance(each, (EqualTo, EqualNullSafe)):
        since = until = moment
    elif isinstance(each, GreaterThan):
        since = moment + 1
    elif isinstance(each, GreaterThanOrEqual):
        since = moment
    elif isinstance(each, LessThan):
        until = moment - 1
    elif isinstance(each, LessThanOrEqual):
        until = moment
    else:
        return False
    if since is not None:
        projection.since = since if projection.since is None else max(since, projection.since)
    if until is not None:
        projection.until = until if projection.until is None else min(until, projection.until)
    return True
