"""Bodies as tables: one row per record, and a quarantine for invalid ones. No record is lost."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import Column as C
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from stompcodec.errors import ConfigError
from stompcodec.spark.jobs.output import Running, append_batch, run_id, start, write_new
from stompcodec.spark.jobs.presets import Column, Preset, load, of_schema
from stompcodec.spark.jobs.reading import KEPT, MOST_RECORDS, inflating
from stompcodec.spark.reading.schema import FRAME_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Largest body in bytes, also when inflated: in memory a record takes many times its size.
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
_KEPT_DDL = ", ".join(f"{name} {_TYPES[name].simpleString()}" for name in KEPT)


def preset_of(preset: Preset | str | os.PathLike[str] | None = None, schema: Any = None) -> Preset:
    """Return the preset for `explode`; raise ConfigError if it is invalid, or not exactly one argument is given."""
    if (preset is None) == (schema is None):
        raise ConfigError("explode needs either a preset or a schema")
    if preset is None:
        return of_schema(schema)
    return preset if isinstance(preset, Preset) else load(preset)


def explode(
    frames: DataFrame,
    preset: Preset | str | os.PathLike[str] | None = None,
    schema: Any = None,
    *,
    gzip: bool = False,
    max_body: int = MAX_BODY,
) -> DataFrame:
    """Return the records in the bodies of frames, with typed columns; also for streams.

    Args:
        frames: frames with `body` (binary or text); `destination`, `message_id`, `received_at`, `spool`, `pos`,
            `command` and `error` are used if present.
        preset: name of a preset, path of its file, or a `Preset`.
        schema: for JSON bodies, instead of a preset: a StructType, its JSON, DDL, or the path of a file with one of
            them.
        gzip: inflate gzipped bodies.
        max_body: largest body in bytes, also when inflated; larger ones go to quarantine.

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
    if gzip:
        frames = frames.mapInArrow(inflating(max_body), f"{_KEPT_DDL}, body binary, error string, raw binary")
    else:
        frames = frames.withColumn("raw", F.col("body"))
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


def write_exploded(
    exploded: DataFrame,
    path: str,
    *,
    checkpoint: str | None = None,
    available_now: bool = False,
    every: str | None = None,
    mode: str = "errorifexists",
    on_counts: Callable[[dict[str, int]], object] | None = None,
) -> StreamingQuery | dict[str, int]:
    """Write valid records to `path`/rows and invalid ones to `path`/_quarantine, as Parquet (zstd).

    A batch that Spark repeats after a crash replaces what it wrote before.

    Args:
        exploded: result of `explode`.
        path: output folder.
        checkpoint, available_now, every, mode: see `archive`.
        on_counts: stream: called with the counts of each batch, and with its number as `batch`, which is the same when
            the batch is repeated.

    Returns:
        The query of a stream, or counts: `frames`; of them `good`, and `quarantined` with at least one invalid record;
            `rows`; `quarantine`, the rows there.

    >>> write_exploded(explode(frames, "networkrail-td"), "td")                       # doctest: +SKIP
    """
    if not exploded.isStreaming:
        return _written(
            exploded,
            lambda rows, _count: write_new(rows, f"{path}/rows", mode),
            lambda rows, _count: write_new(rows, f"{path}/_quarantine", mode),
        )

    how = Running(checkpoint or f"{path}/_checkpoint", available_now, every, "explode")

    def write(batch: DataFrame, number: int) -> None:
        name = run_id(batch, number, how.checkpoint)

        def append(folder: str) -> Callable[[DataFrame, int], None]:
            return lambda rows, count: append_batch(rows, f"{path}/{folder}", name) if count else None

        counts = _written(batch, append("rows"), append("_quarantine"))
        if on_counts is not None:
            on_counts({**counts, "batch": number})

    return start(exploded.sparkSession, exploded.writeStream.foreachBatch(write), how)


Write = Callable[[DataFrame, int], None]


def _written(exploded: DataFrame, rows: Write, quarantine: Write) -> dict[str, int]:
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
        rows(watched.filter(~bad).drop("_reason", "_raw"), counts["rows"])
        quarantine(watched.filter(bad).select(*KEPT, "item", "_reason", "_raw"), counts["quarantine"])
    finally:
        watched.unpersist()
    return {**counts, "good": counts["frames"] - counts["quarantined"]}


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

    Columns in: KEPT, body, error, raw. Columns out: KEPT; item; rec, a map, of maps if `deep`; raw, the body if item is
    null; each, for `record_text`; reason.
    """
    single = _single().alias("single")
    step = frames.select(*KEPT, "raw", single, _refusal(max_body).alias("reason"), _wrapped().alias("whole"))
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
        .when(F.startswith("body", F.lit(b"\x1f\x8b")), F.lit("the body is gzip: inflate it first (gzip=True, --gzip)"))
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
        .when(
            ~F.coalesce(ended & (count >= 0) & (~F.col("single") | (count == 1)), F.lit(False)),
            F.lit(_MALFORMED),
        )
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
