"""Texts into columns with types, and what is wrong where that does not work: expressions of Spark."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column as C
from pyspark.sql import functions as F

from stompcodec.spark.jobs.presets import Column, Preset

__all__ = ["given", "is_struct", "reason", "rest", "twice", "typed"]

#: Timestamps of Spark that Python can hold, too: the years 1 to 9999, in ms.
_MS = (-62_135_596_800_000, 253_402_300_799_999)
#: How much of a value stands in a reason.
_SHOWN = 60
_WORDS = {"ms": "time in ms since 1970", "seconds": "time in s since 1970", "date": "date such as 2026-03-01"}
_WORDS |= {"timestamp": "time such as 2026-03-01T12:00:00Z", "long": "whole number", "int": "whole number of 32 bits"}
_WORDS |= {"double": "number", "boolean": "true or false", "binary": "base64"}
_MAP = "map<string,string>"


def _cast(text: C, kind: str) -> C:
    return text.try_cast(kind)


def _moment(factor: int) -> Callable[[C], C]:
    """From a number of 1/factor ms, within the years that there are."""

    def moment(text: C) -> C:
        number = text.try_cast("bigint")
        low, high = (bound // factor for bound in _MS)
        return F.when(number.between(low, high), F.timestamp_millis(number * factor))

    return moment


_SCALARS: dict[str, Callable[[C], C]] = {
    "string": lambda text: text,
    "long": lambda text: _cast(text, "bigint"),
    "int": lambda text: _cast(text, "int"),
    "double": lambda text: _cast(text, "double"),
    "boolean": lambda text: _cast(text, "boolean"),
    "date": lambda text: F.try_to_timestamp(text, F.lit("yyyy-MM-dd")).cast("date"),
    "timestamp": lambda text: F.when(text.contains("-"), _cast(text, "timestamp")),
    "ms": _moment(1),
    "seconds": _moment(1000),
    "binary": lambda text: F.try_to_binary(text, F.lit("base64")),
}


def given(text: C, preset: Preset) -> C:
    """The text, null where it says that there is no value."""
    none = F.trim(text) == ""
    return F.when(~(none | text.isin(*preset.none) if preset.none else none), text)


def typed(text: C, column: Column) -> C:
    """What a text becomes. Of nested types a struct: the value `v`, and `bad`, the text, where it did not fit."""
    if column.type in _SCALARS:
        return _SCALARS[column.type](text)
    if column.type.lower().startswith("decimal"):
        return _cast(text, column.type)
    shape = f"v {column.type}, bad string"
    return F.from_json(F.concat(F.lit('{"v":'), text, F.lit("}")), shape, {"columnNameOfCorruptRecord": "bad"})


def is_struct(column: Column) -> bool:
    """Whether `typed` makes a struct."""
    return column.nested and not column.type.lower().startswith("decimal")


def reason(text: C, value: C, column: Column) -> C:
    """What is wrong with a field, null if nothing is.

    Args:
        text: what was there, null for nothing.
        value: what `typed` made of it.
        column: which one.
    """
    lost = value.getField("bad").isNotNull() if is_struct(column) else value.isNull()
    word = _WORDS.get(column.type, column.type if len(column.type) < _SHOWN else column.type[: _SHOWN - 1] + "…")
    said = F.concat(F.lit(f"field {column.path}: '"), F.left(text, F.lit(_SHOWN)), F.lit(f"' is no {word}"))
    wrong = F.when(text.isNotNull() & lost, said)
    missing = F.when(text.isNull(), F.lit(f"field {column.path} is missing"))
    return F.coalesce(missing, wrong) if column.required else wrong


def twice(fields: C) -> C:
    """Whether a map has a name twice, which is an error of Spark's where maps are worked on."""
    return F.size(F.array_distinct(F.map_keys(fields))) < F.size(fields)


def rest(maps: list[tuple[str, C, set[str]]]) -> C:
    """Fields that no column is made of: a map of texts, null where there are none. No name may be there twice.

    Args:
        maps: what goes before their names, a map of texts, the names that have columns.
    """
    empty = F.create_map().cast(_MAP)
    whole = reduce(F.map_concat, [F.coalesce(_left(*each), empty) for each in maps])
    return F.when(F.size(whole) > 0, whole)


def _left(prefix: str, fields: C, known: set[str]) -> C:
    left = F.map_filter(fields, lambda name, _text: ~name.isin(*known))
    return F.transform_keys(left, lambda name, _text: F.concat(F.lit(prefix), name)) if prefix else left
