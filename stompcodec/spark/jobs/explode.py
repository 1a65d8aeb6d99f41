"""Bodies as tables: one row per record, and a quarantine for invalid ones. No record is lost.

Presets, small JSON files or a user's schema, say how; docs/pipeline.md describes them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from importlib.resources import files
from operator import or_
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column as C
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stompcodec.arguments import check_fields, checked
from stompcodec.errors import ConfigError
from stompcodec.shown import plural, share
from stompcodec.spark.jobs.output import Job, append_batch, run_id, start, write_new
from stompcodec.spark.options import QUARANTINED
from stompcodec.spark.reading.schema import FRAME_SCHEMA

_log = logging.getLogger("stompcodec.spark")

#: Columns of frames that every row keeps.
KEPT = ("destination", "message_id", "received_at", "spool", "pos")
MOST_RECORDS = 100_000
#: Largest body in bytes: in memory a record takes many times its size.
MAX_BODY = 4 * 2**20
_TYPES = {name: FRAME_SCHEMA[name].dataType for name in (*KEPT, "error", "command", "body")}
QUARANTINE_SCHEMA = T.StructType(
    [
        *(FRAME_SCHEMA[name] for name in KEPT),
        T.StructField("item", T.IntegerType()),
        T.StructField("_reason", T.StringType()),
        T.StructField("_raw", T.BinaryType()),
    ]
)


def preset_of(preset: Preset | str | os.PathLike[str] | None = None, schema: Any = None) -> Preset:
    """Return the preset for `explode`; raise ConfigError if it is invalid, or not exactly one argument is given."""
    if (preset is None) == (schema is None):
        raise ConfigError("explode needs either a preset or a schema")
    if preset is None:
        return of_schema(schema)
    return preset if isinstance(preset, Preset) else load(preset)


@checked
def explode(
    frames: DataFrame,
    preset: Preset | str | os.PathLike[str] | None = None,
    schema: T.StructType | str | os.PathLike[str] | None = None,
    *,
    max_body: int = MAX_BODY,
) -> DataFrame:
    """Return the records in the bodies of frames, with typed columns; also for streams.

    Args:
        frames: frames with `body` (binary or text); `destination`, `message_id`, `received_at`, `spool`, `pos`,
            `command` and `error` are used if present.
        preset: name of a preset, path of its file, or a `Preset`.
        schema: for JSON bodies, instead of a preset: a StructType, its JSON, DDL, or the path of a file with one of
            them.
        max_body: largest body in bytes; larger ones go to quarantine.

    Returns:
        A row for each record: `destination`, `message_id`, `received_at`, `spool`, `pos`; `item`, its number in the
            frame; the typed columns; `_reason`, null for a valid record; `_raw`, the bytes of an invalid one. A frame
            without readable records gives one row whose `item` is null, so each frame has at least one row.

    Raises:
        ConfigError: the preset or the schema is invalid.

    >>> explode(frames, schema="id long, at timestamp").show()                        # doctest: +SKIP
    """
    chosen = preset_of(preset, schema)
    if "body" not in frames.columns:
        raise ConfigError(f"explode needs a column body; the columns are {', '.join(frames.columns)}")
    here = set(frames.columns)
    frames = frames.select(
        *((F.col(name) if name in here else F.lit(None)).cast(kind).alias(name) for name, kind in _TYPES.items())
    )
    other = F.when(~F.col("command").isin("MESSAGE", "SEND"), F.concat(F.lit("not a message but "), F.col("command")))
    error = F.coalesce(F.concat(F.lit("frame: "), F.col("error")), other)
    frames = frames.select(*KEPT, "body", error.alias("error"))
    items = json_items(frames, bool(chosen.unwrap or chosen.sections), max_body)
    return _typed(_unwrapped(items, chosen) if chosen.unwrap else items, chosen)


def _unwrapped(items: DataFrame, preset: Preset) -> DataFrame:
    """Return records replaced by the value of their only field, as `rec`."""
    name, names = F.get(F.map_keys("rec"), F.lit(0)), ", ".join(preset.unwrap[:8])
    one = F.concat(F.lit(f"a record is to have one field ({names}), and has "), F.size("rec"))
    other = F.concat(F.lit("field "), F.left(name, F.lit(60)), F.lit(f": not one of {names}"))
    said = (
        F.when(F.col("reason").isNotNull(), F.col("reason"))
        .when(F.size("rec") != 1, one)
        .when(~name.isin(*preset.unwrap), other)
        .when(F.col("rec")[name].isNull(), F.concat(F.lit("field "), name, F.lit(": no JSON object")))
    )
    items = items.select(*KEPT, "item", "raw", "each", F.col("rec")[name].alias("inner"), said.alias("reason"))
    return items.withColumnRenamed("inner", "rec")  # Spark 4.0 would take a new `rec` for the old one in `said`


def _typed(items: DataFrame, preset: Preset) -> DataFrame:
    """Return records with typed columns, and the reason if one does not fit.

    It takes several steps because Spark computes a shared column only once if it comes from an earlier step.
    """
    always = (*KEPT, "item", "raw", "each", "reason")
    sections = {section: f"s{number}" for number, section in enumerate(preset.sections)}
    inner = {alias: F.col("rec")[section] for section, alias in sections.items()}
    if preset.unwrap:  # otherwise they are parsed with the record
        inner = {alias: F.from_json(text, FLAT) for alias, text in inner.items()}
    items = items.select(*always, "rec", *(field.alias(alias) for alias, field in inner.items()))
    again = reduce(or_, [F.coalesce(twice(F.col(name)), F.lit(False)) for name in ("rec", *inner)])
    items = items.withColumn("reason", F.coalesce("reason", F.when(again, F.lit("a field is there twice"))))

    columns = dict(enumerate(preset.columns))
    texts = []
    for number, column in columns.items():
        section, _, field = column.path.partition(".")
        text = F.col(sections[section])[field] if section in sections else F.col("rec")[column.path]
        texts.append(given(text, preset).alias(f"t{number}"))
    extra = [F.when(F.col("reason").isNull(), _rest(preset, sections)).alias("rest")] if preset.rest else []
    items = items.select(*always, *texts, *extra)

    left = ["rest"] if preset.rest else []
    values = [typed(F.col(f"t{number}"), column).alias(f"v{number}") for number, column in columns.items()]
    items = items.select(*always, *left, *(f"t{number}" for number in columns), *values)

    wrong = [reason(F.col(f"t{number}"), F.col(f"v{number}"), column) for number, column in columns.items()]
    said = F.when(F.col("reason").isNotNull(), F.col("reason")).otherwise(F.coalesce(*wrong))
    made = [
        F.col(f"v{number}.v" if is_struct(column) else f"v{number}").alias(column.name)
        for number, column in columns.items()
    ]
    more = [F.col("rest").alias(preset.rest)] if preset.rest else []
    items = items.select(*KEPT, "item", *made, *more, said.alias("_reason"), "raw", "each")
    raw = F.when(F.col("_reason").isNotNull(), F.coalesce(F.col("raw"), record_text()))
    return items.withColumn("_raw", raw).drop("raw", "each")


def _rest(preset: Preset, sections: dict[str, str]) -> C:
    """Return the column of fields that have no column of their own."""
    paths = [column.path for column in preset.columns]
    fields = F.col("rec")
    if sections and not preset.unwrap:
        fields = F.transform_values(fields, lambda _name, inner: F.to_json(inner))
    maps = [("", fields, {path for path in paths if path.partition(".")[0] not in sections} | set(sections))]
    for section, alias in sections.items():
        known = {path.partition(".")[2] for path in paths if path.partition(".")[0] == section}
        maps.append((f"{section}.", F.col(alias), known))
    return rest(maps)


@checked
def write_exploded(
    exploded: DataFrame,
    path: str,
    *,
    checkpoint: str | None = None,
    every: str | None = None,
    name: str | None = None,
    mode: str = "error",
    on_counts: Callable[[dict[str, int]], object] | None = None,
) -> Job:
    """Write valid records to `path`/rows and invalid ones to `path`/_quarantine, as Parquet (zstd).

    A batch that Spark repeats after a crash replaces what it wrote before. When more than 5 % of the records of a batch
    are invalid, and were not in the batch before, a warning is logged.

    Args:
        exploded: result of `explode`.
        path: output folder.
        checkpoint, every, name, mode: see `archive`.
        on_counts: stream: called with the counts of each batch, and with its number as `batch`, which is the same when
            the batch is repeated.

    Returns:
        The job, which counts of a batch: `frames`; of them `good`, and `quarantined` with at least one invalid record;
            `rows`; `quarantine`, the rows there.

    >>> write_exploded(explode(frames, "networkrail-td"), "td")                       # doctest: +SKIP
    """
    if not exploded.isStreaming:
        counts = _written(exploded, lambda rows, folder, _count: write_new(rows, f"{path}/{folder}", mode))
        tell_jump(counts, False, path)
        return Job(counts)

    kept, above = checkpoint or f"{path}/_checkpoint", False

    def write(batch: DataFrame, number: int) -> None:
        nonlocal above
        id = run_id(batch, number, kept)

        def append(rows: DataFrame, folder: str, count: int) -> None:
            if count:
                append_batch(rows, f"{path}/{folder}", id)

        counts = _written(batch, append)
        above = tell_jump(counts, above, path, f"batch {number}: ")
        if on_counts is not None:
            on_counts({**counts, "batch": number})

    return start(exploded.sparkSession, exploded.writeStream.foreachBatch(write), kept, every, name, "explode")


def tell_jump(counts: dict[str, int], before: bool, path: str, batch: str = "") -> bool:
    """Return whether a batch has too many invalid records, and log it if the batch `before` had not.

    Of few records a share says little: one invalid record alone is reported only if all records are invalid.
    """
    bad, records = counts["quarantine"], counts["rows"] + counts["quarantine"]
    above = bad == records or bad > QUARANTINED * max(records, 20) if records else before
    if above and not before:
        _log.warning(
            "%s%d of %s are in quarantine (%s), more than %s: jobs.read_quarantine(spark, %r) has the reasons in its "
            "column _reason",
            *(batch, bad, plural(records, "record"), share(bad, records), share(QUARANTINED, 1), path),
        )
    return above


def _written(exploded: DataFrame, write: Callable[[DataFrame, str, int], None]) -> dict[str, int]:
    """Write both parts of exploded frames, and return the counts."""
    first = F.coalesce("item", F.lit(0)) == 0
    bad = F.col("_reason").isNotNull()
    watched = exploded.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        row = watched.agg(
            F.count_if(first).alias("frames"),
            F.count_if(~bad).alias("rows"),
            F.count_if(bad).alias("quarantine"),
            F.count_distinct(F.when(bad, F.struct("spool", "pos", "message_id"))).alias("quarantined"),
        ).first()
        assert row is not None
        counts: dict[str, int] = row.asDict()
        write(watched.filter(~bad).drop("_reason", "_raw"), "rows", counts["rows"])
        write(watched.filter(bad).select(*KEPT, "item", "_reason", "_raw"), "_quarantine", counts["quarantine"])
    finally:
        watched.unpersist()
    return {**counts, "good": counts["frames"] - counts["quarantined"]}


@checked
def read_quarantine(spark: SparkSession, path: str) -> DataFrame:
    """Return the quarantine under `path`, the folder given to `write_exploded`.

    >>> read_quarantine(spark, "td").groupBy("_reason").count().show()                # doctest: +SKIP
    """
    return spark.read.schema(QUARANTINE_SCHEMA).parquet(f"{path}/_quarantine")


# ---- JSON bodies as records: a row per item of a list, or one for a single object ----
FLAT = "map<string,string>"
_TWO = "map<string,map<string,string>>"
_MALFORMED = "malformed JSON, or neither an object nor a list of them"
#: Appended to each body: otherwise Spark would not notice data behind the end of a value.
_END = secrets.token_hex(8)


def json_items(frames: DataFrame, deep: bool, max_body: int) -> DataFrame:
    """Return the records of JSON bodies of at most `max_body` bytes.

    Columns in: KEPT, body, error. Columns out: KEPT; item; rec, a map, of maps if `deep`; raw, the body if item is
    null; each, for `record_text`; reason.
    """
    single = _single().alias("single")
    step = frames.withColumn("raw", F.col("body"))
    step = step.select(*KEPT, "raw", single, _refusal(max_body).alias("reason"), _wrapped().alias("whole"))
    whole = F.when(F.col("reason").isNull(), F.col("whole"))
    quick = F.from_json(whole, f"array<array<{_TWO if deep else FLAT}>>")
    step = step.select(*KEPT, "raw", "single", "reason", whole.alias("whole"), quick.alias("quick"))
    # If the whole does not parse, items are parsed one by one, so that one odd record does not spoil the others.
    texts = F.from_json(F.when(F.col("quick").isNull(), F.col("whole")), "array<array<string>>")
    step = step.select(*KEPT, "raw", "single", "reason", "quick", texts.alias("texts"))
    step = step.select(*KEPT, "raw", _shape().alias("reason"), _listed(deep).alias("items"))
    items = F.when(F.col("reason").isNull(), F.col("items"))
    step = step.select(*KEPT, "raw", "reason", F.posexplode_outer(items).alias("item", "each"))
    odd = F.when(F.col("item").isNotNull() & F.col("each.rec").isNull(), F.lit("a record is not a JSON object"))
    raw = F.when(F.col("item").isNull(), F.col("raw"))
    said = F.coalesce("reason", odd)
    return step.select(*KEPT, "item", F.col("each.rec").alias("rec"), raw.alias("raw"), "each", said.alias("reason"))


def record_text() -> C:
    """Return what is kept of an invalid record: its text, or else the parsed record. Costly."""
    return F.coalesce(F.col("each.text"), F.to_json("each.rec"), F.lit("null")).cast("binary")


def _refusal(max_body: int) -> C:
    """Return the reason why a body is not parsed at all."""
    size = F.octet_length("body")
    return (
        F.when(F.col("error").isNotNull(), F.col("error"))
        .when(F.coalesce(size, F.lit(0)) == 0, F.lit("no body"))
        .when(size > max_body, F.lit(f"the body is larger than {max_body} bytes"))
        .when(F.startswith("body", F.lit(b"\x1f\x8b")), F.lit("the body is gzip: read the frames with decode=gzip"))
        .when(~F.is_valid_utf8(F.col("body").cast("string")), F.lit("not UTF-8"))
    )


def _single() -> C:
    """Return whether a body looks like an object."""
    return F.coalesce(F.col("body").cast("string").rlike(r"\A\s*\{"), F.lit(False))


def _wrapped() -> C:
    """Return a body, list or object, as [[record, …], [end]]."""
    text = F.col("body").cast("string")
    one = F.concat(F.lit("[["), text, F.lit("]"))
    listed = F.when(_single(), one).otherwise(F.concat(F.lit("["), text))
    return F.concat(listed, F.lit(f',[{{"{_END}":{{}}}}]]'))


def _shape() -> C:
    """Return why records are missing, for a result that is not a list followed by the end mark."""
    quick, texts = F.col("quick"), F.col("texts")
    last_quick = F.get(F.get(quick, F.lit(1)), F.lit(0))
    ended = F.when(quick.isNotNull(), (F.size(quick) == 2) & F.map_contains_key(last_quick, F.lit(_END))).otherwise(
        (F.size(texts) == 2) & F.get(F.get(texts, F.lit(1)), F.lit(0)).contains(_END)
    )
    count = F.when(quick.isNotNull(), F.size(F.get(quick, F.lit(0)))).otherwise(F.size(F.get(texts, F.lit(0))))
    return (
        F.when(F.col("reason").isNotNull(), F.col("reason"))
        .when(~F.coalesce(ended & (count >= 0) & (~F.col("single") | (count == 1)), F.lit(False)), F.lit(_MALFORMED))
        .when(count == 0, F.lit("an empty list"))
        .when(count > MOST_RECORDS, F.lit(f"more than {MOST_RECORDS} records"))
    )


def _listed(deep: bool) -> C:
    """Return the records as structs of text, if it was kept, and rec."""

    def parsed(text: C) -> C:
        flat = F.from_json(text, FLAT)
        return F.transform_values(flat, lambda _name, inner: F.from_json(inner, FLAT)) if deep else flat

    none = F.lit(None).cast("string")
    quick = F.transform(F.get("quick", F.lit(0)), lambda rec: F.struct(none.alias("text"), rec.alias("rec")))
    slow = F.transform(F.get("texts", F.lit(0)), lambda text: F.struct(text.alias("text"), parsed(text).alias("rec")))
    return F.coalesce(quick, slow)


# ---- texts as typed columns, with the reason where that fails ----
#: Timestamps that Python can hold, too: years 1 to 9999, in ms.
_MS = (-62_135_596_800_000, 253_402_300_799_999)
#: Most characters of a value in a reason.
_SHOWN = 60
_WORDS = {"ms": "a time in ms since 1970", "seconds": "a time in s since 1970", "date": "a date such as 2026-03-01"}
_WORDS |= {"timestamp": "a time such as 2026-03-01T12:00:00Z (a preset takes ms)", "double": "a number"}
_WORDS |= {"long": "a whole number", "int": "a 32-bit whole number", "boolean": "true or false", "binary": "base64"}
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
    """Return fields without a column as a map of texts, from (prefix of names, map of texts, names of columns)."""
    empty = F.create_map().cast(_MAP)
    whole = reduce(F.map_concat, [F.coalesce(_left(*each), empty) for each in maps])
    return F.when(F.size(whole) > 0, whole)


def _left(prefix: str, fields: C, known: set[str]) -> C:
    left = F.map_filter(fields, lambda name, _text: ~name.isin(*known))
    return F.transform_keys(left, lambda name, _text: F.concat(F.lit(prefix), name)) if prefix else left


# ---- presets ----
#: Column types, besides Spark's arrays, structs, maps and decimals.
SCALARS = ("string", "long", "int", "double", "boolean", "date", "timestamp", "ms", "seconds", "binary")
#: Spark's names for them.
_SAME = {"integer": "int", "bigint": "long", "short": "int", "smallint": "int", "byte": "int", "tinyint": "int"}
_SAME |= {"float": "double", "bool": "boolean", "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp"}
_NESTED = re.compile(r"(array|struct|map)\s*<.*>|decimal\s*(\(\s*\d+\s*,\s*\d+\s*\))?", re.DOTALL)
_COLUMN = re.compile(r"(?P<type>.+?)(?P<required>!)?(\s+as\s+(?P<name>\w+))?", re.DOTALL)
#: Columns that every row has; a column of the body with such a name is called body_…
TAKEN = frozenset({"destination", "message_id", "received_at", "spool", "pos", "item", "batch", "_reason", "_raw"})
_MOST_OCTETS = 2**20


@dataclass(frozen=True)
class Column:
    """A column of the table, and the field that it is made from."""

    path: str
    """Name of the field; `section.field` for a field in an object of the record."""
    name: str
    type: str
    """One of `SCALARS`, or Spark's name of a nested type."""
    required: bool = False

    @property
    def nested(self) -> bool:
        return self.type not in SCALARS


@dataclass(frozen=True)
class Preset:
    """Rules that turn JSON bodies of a feed into rows.

    >>> load("networkrail-td").unwrap[0]
    'CA_MSG'
    """

    name: str
    columns: tuple[Column, ...]
    about: str = ""
    unwrap: tuple[str, ...] = ()
    """Names of which each record has exactly one as its only field; the value of that field is the record."""
    none: tuple[str, ...] = ()
    """Texts that mean a missing value, besides empty and blank ones."""
    rest: str | None = None
    """Column for the other fields: a map of texts."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def sections(self) -> tuple[str, ...]:
        """Objects in a record whose fields are columns."""
        return tuple(dict.fromkeys(column.path.partition(".")[0] for column in self.columns if "." in column.path))


def preset_names() -> list[str]:
    """Return the names of the built-in presets.

    >>> preset_names()
    ['networkrail-td', 'networkrail-trust', 'networkrail-vstp']
    """
    return sorted(entry.name[:-5] for entry in _folder().iterdir() if entry.name.endswith(".json"))


def _folder() -> Any:
    return files("stompcodec.spark.jobs") / "presets"


def load(preset: str | os.PathLike[str]) -> Preset:
    """Return a preset, given its name or the path of its file; raise ConfigError if it is unknown or invalid.

    >>> load("networkrail-td").columns[1]
    Column(path='time', name='time', type='ms', required=True)
    """
    name = os.fspath(preset)
    if name in preset_names():
        return _preset(name, json.loads((_folder() / f"{name}.json").read_text(encoding="utf-8")))
    if not name.endswith(".json") and os.sep not in name:
        raise ConfigError(
            f"unknown preset {name!r}: use one of {', '.join(preset_names())}, or a file that ends in .json"
        )
    return _preset(name, _parsed(name, _text(name)))


def of_schema(schema: Any) -> Preset:
    """Return a preset for JSON bodies from a schema; raise ConfigError if it is invalid.

    It is Spark's StructType, its JSON, or DDL such as "id long, at timestamp"; text, or the path of a file with it or
    with a preset. Fields that are not nullable are required.
    """
    if hasattr(schema, "jsonValue"):
        return _of_struct("schema", schema.jsonValue())
    text, name = os.fspath(schema), "schema"
    if os.path.isfile(text):
        text, name = _text(text), text
    if not text.lstrip().startswith("{"):
        return _of_struct(name, _of_ddl(name, text))
    value = _parsed(name, text)
    return _preset(name, value) if "columns" in value else _of_struct(name, value)


def _text(file: str) -> str:
    try:
        path = Path(file)
        if path.stat().st_size > _MOST_OCTETS:
            raise ConfigError(f"{file}: too large for a preset or a schema")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8") from None


def _parsed(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: not a JSON object")
    return value


def _of_ddl(name: str, text: str) -> dict[str, Any]:
    from pyspark.sql.types import StructType

    try:
        value = StructType.fromDDL(text).jsonValue()
    except Exception as error:  # of several kinds, also without a session
        line = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{name}: neither Spark's JSON of a StructType nor DDL: {line}") from None
    assert isinstance(value, dict)
    return value


def _of_struct(name: str, value: dict[str, Any]) -> Preset:
    fields = value.get("fields")
    if value.get("type") != "struct" or not isinstance(fields, list) or not fields:
        raise ConfigError(f'{name}: not a StructType: write {{"type": "struct", "fields": [...]}}, DDL, or a preset')
    columns = []
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
            raise ConfigError(f"{name}: a field without name or type: {str(field)[:60]}")
        kind = _type_of(name, field["name"], _ddl_of(field["type"]))
        columns.append(Column(field["name"], field["name"], kind, field.get("nullable") is False))
    return Preset(name, _named(name, columns))


def _ddl_of(value: Any) -> str:
    """Return the DDL of a type given as Spark's JSON.

    >>> _ddl_of({"type": "array", "elementType": {"type": "struct", "fields": [{"name": "a b", "type": "long"}]}})
    'array<struct<`a b`:long>>'
    """
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        kind = value.get("type")
        if kind == "array":
            return f"array<{_ddl_of(value.get('elementType'))}>"
        if kind == "map":
            return f"map<{_ddl_of(value.get('keyType'))},{_ddl_of(value.get('valueType'))}>"
        if kind == "struct":
            fields = [(str(field["name"]).replace("`", "``"), _ddl_of(field["type"])) for field in value["fields"]]
            return f"struct<{','.join(f'`{name}`:{inner}' for name, inner in fields)}>"
    raise ConfigError(f"unknown type {str(value)[:60]!r}")


def _preset(name: str, value: dict[str, Any]) -> Preset:
    unknown = value.keys() - {"name", "about", "unwrap", "none", "columns", "rest"}
    if unknown:
        raise ConfigError(f"{name}: unknown key {sorted(unknown)[0]!r}")
    rest = value.get("rest")
    listed = {key: value.get(key, []) for key in ("unwrap", "none")}
    for key, texts in listed.items():
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ConfigError(f"{name}: {key} must be a list of strings")
    columns = value.get("columns")
    if not isinstance(columns, dict) or not columns:
        raise ConfigError(f'{name}: columns must be an object such as {{"time": "ms"}}')
    if rest is not None and not isinstance(rest, str):
        raise ConfigError(f"{name}: rest must be the name of a column")
    made = _named(name, [_column(name, path, text) for path, text in columns.items()], *filter(None, [rest]))
    return Preset(
        str(value.get("name", name)),
        made,
        str(value.get("about", "")),
        tuple(listed["unwrap"]),
        tuple(listed["none"]),
        rest,
    )


def _column(name: str, path: str, text: Any) -> Column:
    match = _COLUMN.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or not path:
        raise ConfigError(f"{name}: column {path!r}: {text!r}: write TYPE, with ! if it is required, then as NAME")
    kind = _type_of(name, path, match["type"].strip())
    return Column(path, match["name"] or path.rpartition(".")[2], kind, match["required"] is not None)


def _type_of(name: str, field: str, text: str) -> str:
    kind = _SAME.get(text.lower(), text)
    if kind.lower() in SCALARS:
        return kind.lower()
    if _NESTED.fullmatch(kind.strip()):
        return kind
    raise ConfigError(
        f"{name}: {field}: unknown type {text!r}: use {', '.join(SCALARS)}, array<…>, struct<…> or map<…>"
    )


def _named(name: str, columns: list[Column], *more: str) -> tuple[Column, ...]:
    """Return the columns with names that are unique for Spark, which ignores case."""
    made: list[Column] = []
    seen = {each.lower() for each in more}
    for column in columns:
        chosen = f"body_{column.name}" if column.name.lower() in TAKEN else column.name
        if chosen.lower() in seen:
            raise ConfigError(f"{name}: two columns are called {chosen!r}")
        seen.add(chosen.lower())
        made.append(Column(column.path, chosen, column.type, column.required))
    return tuple(made)
