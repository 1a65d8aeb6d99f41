"""Bodies as tables: one row per record, and a quarantine for invalid ones. No record is lost."""

from __future__ import annotations

import os
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
from stompcodec.spark.jobs.fields import given, is_struct, reason, rest, twice, typed
from stompcodec.spark.jobs.items import FLAT, json_items, record_text
from stompcodec.spark.jobs.output import Running, append_batch, run_id, start, write_new
from stompcodec.spark.jobs.presets import Preset, load, of_schema
from stompcodec.spark.jobs.reading import KEPT, inflating
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
