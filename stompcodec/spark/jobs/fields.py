"""Spark expressions that cast texts to typed columns and give the reason where that fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column as C
from pyspark.sql import functions as F

from stompcodec.spark.jobs.presets import Column, Preset

#: Timestamps that Python can hold, too: years 1 to 9999, in ms.
_MS = (-62_135_596_800_000, 253_402_300_799_999)
#: Most characters of a value in a reason.
_SHOWN = 60
_WORDS = {"ms": "a time in ms since 1970", "seconds": "a time in s since 1970", "date": "a date such as 2026-03-01"}
_WORDS |= {"timestamp": "a time such as 2026-03-01T12:00:00Z", "long": "a whole number", "int": "a 32-bit whole number"}
_WORDS |= {"double": "a number", "boolean": "true or false", "binary": "base64"}
_MAP = "map<string,string>"


def _cast(text: C, kind: str) -> C:
    return text.try_cast(kind)


def _moment(factor: int) -> Callable[[C], C]:
    """Return a function that casts numbers of 1/factor ms to timestamps of the years 1 to 9999."""

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
    """Return the text, or null if it means that no value is given."""
    none = F.trim(text) == ""
    return F.when(~(none | text.isin(*preset.none) if preset.none else none), text)


def typed(text: C, column: Column) -> C:
    """Return the typed value of a text; for nested types a struct of the value `v` and the text if it is `bad`."""
    if column.type in _SCALARS:
        return _SCALARS[column.type](text)
    if column.type.lower().startswith("decimal"):
        return _cast(text, column.type)
    shape = f"v {column.type}, bad string"
    return F.from_json(F.concat(F.lit('{"v":'), text, F.lit("}")), shape, {"columnNameOfCorruptRecord": "bad"})


def is_struct(column: Column) -> bool:
    """Return whether `typed` makes a struct."""
    return column.nested and not column.type.lower().startswith("decimal")


def reason(text: C, value: C, column: Column) -> C:
    """Return what is wrong with a field, null if nothing; a null `text` is missing, `value` is its `typed` value."""
    lost = value.getField("bad").isNotNull() if is_struct(column) else value.isNull()
    word = _WORDS.get(column.type, column.type if len(column.type) < _SHOWN else column.type[: _SHOWN - 1] + "…")
    said = F.concat(F.lit(f"field {column.path}: '"), F.left(text, F.lit(_SHOWN)), F.lit(f"' is not {word}"))
    wrong = F.when(text.isNotNull() & lost, said)
    missing = F.when(text.isNull(), F.lit(f"field {column.path} is missing"))
    return F.coalesce(missing, wrong) if column.required else wrong


def twice(fields: C) -> C:
    """Return whether a map has a duplicate name, which makes Spark's map functions fail."""
    return F.size(F.array_distinct(F.map_keys(fields))) < F.size(fields)


def rest(maps: list[tuple[str, C, set[str]]]) -> C:
    """Return fields without a column of their own as a map of texts; null if there are none. Names must be unique.

    Each of `maps` is the prefix of its names, a map of texts, and the names that have columns.
    """
    empty = F.create_map().cast(_MAP)
    whole = reduce(F.map_concat, [F.coalesce(_left(*each), empty) for each in maps])
    return F.when(F.size(whole) > 0, whole)


def _left(prefix: str, fields: C, known: set[str]) -> C:
    left = F.map_filter(fields, lambda name, _text: ~name.isin(*known))
    return F.transform_keys(left, lambda name, _text: F.concat(F.lit(prefix), name)) if prefix else left
