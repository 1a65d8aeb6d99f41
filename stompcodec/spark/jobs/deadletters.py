"""Dead letters: their original destination, the reason, and samples."""

from __future__ import annotations

from pyspark.sql import Column as C
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stompcodec.errors import ConfigError
from stompcodec.spark.jobs.output import moment

#: Headers of our broker, ActiveMQ, Artemis and RabbitMQ; the first one present counts.
_ORIGINS = (
    "original-destination", "originalDestination", "amq6100_originalDestination", "_AMQ_ORIG_ADDRESS",
    "_AMQ_ORIG_QUEUE", "x-first-death-queue", "x-original-destination",
)  # fmt: skip
_REASONS = ("dead-letter-reason", "x-first-death-reason", "reason", "error", "x-error", "_AMQ_ACTUAL_EXPIRY")
_CAUSES = ("dlqDeliveryFailureCause", "x-exception-message", "x-exception", "exception", "x-exception-stacktrace")
#: Exception class in a cause, such as com.example.OddError.
_CLASS = r"([A-Za-z_][\w.$]*(?:Exception|Error|Throwable))"
_SHOWN = 500
_GROUPED = 200


def deadletters(frames: DataFrame, *, shown: int = _SHOWN) -> DataFrame:
    """Return dead letters by destination, original destination, reason and exception, the most frequent first.

    Args:
        frames: frames of dead letter queues, with `headers`. Write a stream in complete mode.
        shown: most characters of a body in a sample.

    Returns:
        destination; original, where the letter was sent to; reason; exception, its class or else the first line of the
            text; count; bytes; first, last, times; first_id, first_body, last_id, last_body, samples as text.

    Raises:
        ConfigError: `headers` is missing.

    >>> deadletters(frames).show()                                                    # doctest: +SKIP
    """
    if "headers" not in frames.columns:
        raise ConfigError("deadletters needs a column headers")
    cause = _first(_CAUSES)
    named = F.regexp_extract(cause, _CLASS, 1)
    line = F.left(F.trim(F.substring_index(cause, "\n", 1)), F.lit(_GROUPED))
    body = F.coalesce(F.col("body").cast("binary"), F.lit(b""))
    # Bytes are cut first, so that large bodies are not carried through the aggregation.
    text = F.left(F.make_valid_utf8(F.substring(body, 1, 4 * shown).cast("string")), F.lit(shown))
    expired = F.when(_first(("_AMQ_ACTUAL_EXPIRY",)).isNotNull(), F.lit("expired"))
    reason = F.coalesce(_first(_REASONS[:-1]), expired)
    rows = frames.select(
        "destination",
        F.left(_first(_ORIGINS), F.lit(_GROUPED)).alias("original"),
        F.left(reason, F.lit(_GROUPED)).alias("reason"),
        F.when(named != "", F.left(named, F.lit(_GROUPED))).otherwise(line).alias("exception"),
        moment(frames).alias("_at"),
        F.octet_length(body).cast("bigint").alias("_size"),
        F.struct(F.col("message_id").alias("id"), text.alias("body")).alias("_sample"),
    )
    grouped = rows.groupBy("destination", "original", "reason", "exception").agg(
        F.count(F.lit(1)).alias("count"),
        F.sum("_size").alias("bytes"),
        F.min("_at").alias("first"),
        F.max("_at").alias("last"),
        F.min_by("_sample", "_at").alias("_first"),
        F.max_by("_sample", "_at").alias("_last"),
    )
    kept = ("destination", "original", "reason", "exception", "count", "bytes", "first", "last")
    samples = [
        F.col(f"_{end}.{field}").alias(f"{end}_{field}") for end in ("first", "last") for field in ("id", "body")
    ]
    return grouped.select(*kept, *samples).orderBy(F.desc("count"), "destination", "original", "reason", "exception")


def _first(names: tuple[str, ...]) -> C:
    return F.coalesce(*(F.col("headers")[name] for name in names))
