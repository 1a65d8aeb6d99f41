"""JSON bodies as records, parsed by Spark's own functions: a row per item of a list, or one for a single object."""

from __future__ import annotations

import secrets

from pyspark.sql import Column as C
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stompcodec.spark.jobs.reading import KEPT, MOST_RECORDS

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
