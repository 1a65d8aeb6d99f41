"""Header text cast to other types, column by column. A failed cast gives null and is reported for its row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stompcodec.errors import StompError

#: Years 1 to 9999, in µs: Python and SQL cannot express others.
EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
_DIGITS = r"^[+-]?[0-9]{1,18}$"


def cast(values: Any, kind: Any) -> tuple[Any, list[int]]:
    """Return an Arrow column of text cast to a type without nested ones, and the rows whose text does not fit.

    >>> cast(pa.array(["1", " 2 ", "x", None]), pa.int32())[0].to_pylist()
    [1, 2, None, None]
    >>> cast(pa.array(["1", " 2 ", "x", None]), pa.int32())[1]
    [2]
    """
    if pa.types.is_string(kind):
        return values, []
    if pa.types.is_binary(kind):
        return values.cast(kind), []
    values = pc.utf8_trim_whitespace(values)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _moments(values, kind)
    try:
        return values.cast(kind), []
    except pa.ArrowException:
        return one_by_one(values, lambda value: value.cast(kind).as_py() if value.is_valid else None, kind)


def one_by_one(values: Iterable[Any], convert: Callable[[Any], Any], kind: Any) -> tuple[Any, list[int]]:
    """Convert each value alone, so that one bad value does not spoil the others; None stays None."""
    result, bad = [], []
    for row, value in enumerate(values):
        try:
            result.append(None if value is None else convert(value))
        except (pa.ArrowException, StompError, ValueError, OverflowError):
            result.append(None)
            bad.append(row)
    return pa.array(result, kind), bad


def _moments(values: Any, kind: Any) -> tuple[Any, list[int]]:
    """Cast times, written as milliseconds or as ISO 8601; without a zone they are UTC."""
    numbers = milliseconds(values)
    if numbers.null_count > values.null_count:
        others = pc.if_else(pc.is_valid(numbers), pa.scalar(None, pa.string()), values)
        numbers = pc.coalesce(numbers, _written(others))
    bad = pc.and_(pc.is_valid(values), pc.is_null(numbers))
    return numbers.cast(kind, safe=False), [row for row, wrong in enumerate(bad.to_pylist()) if wrong]


def _written(values: Any) -> Any:
    moments = []
    for text in values.to_pylist():
        moment = None
        for zone in (None, "UTC"):
            if text is not None and moment is None:
                try:
                    moment = pa.scalar(text).cast(pa.timestamp("us", zone)).value
                except pa.ArrowException:
                    continue
        moments.append(moment if moment is not None and EARLIEST <= moment <= LATEST else None)
    return pa.array(moments, pa.int64()).cast(pa.timestamp("us", "UTC"))


def milliseconds(values: Any) -> Any:
    """Return times written as digits, in ms since 1970; null for everything else.

    >>> milliseconds(pa.array(["1700000000000", "soon", "99999999999999999"])).cast(pa.int64()).to_pylist()
    [1700000000000000, None, None]
    """
    try:
        numbers = values.cast(pa.int64())
    except pa.ArrowException:
        fits = pc.match_substring_regex(values, _DIGITS)
        numbers = pc.if_else(fits, values, pa.scalar(None, pa.string())).cast(pa.int64())
    sane = pc.and_(pc.greater_equal(numbers, EARLIEST // 1000), pc.less_equal(numbers, LATEST // 1000))
    numbers = pc.if_else(sane, numbers, pa.scalar(None, pa.int64()))
    return pc.multiply(numbers, 1000).cast(pa.timestamp("us", "UTC"))


def utf8(bodies: Any) -> tuple[Any, list[int]]:
    """Return bytes as text, and the rows that are not UTF-8.

    >>> texts, bad = utf8(pa.array([b"a", b"\\xff"]))
    >>> texts.to_pylist(), bad
    (['a', None], [1])
    """
    try:
        return bodies.cast(pa.string()), []
    except pa.ArrowException:
        return one_by_one(bodies.to_pylist(), bytes.decode, pa.string())
