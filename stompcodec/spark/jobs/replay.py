"""Replay of archived or captured frames to a broker, at their original pace or as fast as possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column as C
from pyspark.sql import DataFrame, Observation, Row
from pyspark.sql import functions as F

from stompcodec.spark.jobs.output import moment

if TYPE_CHECKING:
    from stompcodec.client import Client

#: Headers that belong to the old delivery or its time.
_PASSING = (
    "destination", "message-id", "subscription", "ack", "content-length", "redelivered", "receipt", "transaction",
    "expires",
)  # fmt: skip
#: Most messages in flight without a receipt.
_WINDOW = 500
_NAP = 0.5


def outgoing(
    frames: DataFrame,
    *more: C,
    destination: C | str | None = None,
    ids: str | None = None,
    requests: str | None = "/management/",
) -> DataFrame:
    """Return messages to send (destination, body, headers), from MESSAGE and SEND frames that name a destination.

    Headers are kept, except those of the old delivery, and `expires`, which has passed. `more` are further columns to
    keep, `destination` a name or column to use instead. `ids` is a header for an id that is the same in every replay,
    for brokers that drop duplicates by it (Artemis: _AMQ_DUPL_ID), or for consumers. Messages to names that begin with
    `requests` are left out, because our broker would take them as orders; None sends them, too.
    """
    here = set(frames.columns)
    good = F.col("destination").isNotNull()
    if "error" in here:
        good &= F.col("error").isNull()
    if "command" in here:
        good &= F.col("command").isin("MESSAGE", "SEND")
    where = F.col("destination") if destination is None else destination
    where = F.lit(where) if isinstance(where, str) else where
    if requests is not None:
        good &= ~F.startswith(F.trim(where), F.lit(requests))
    headers = F.col("headers") if "headers" in here else F.create_map().cast("map<string,string>")
    headers = F.map_filter(headers, lambda name, _value: ~name.isin(*_PASSING, *([ids] if ids else [])))
    if ids is not None:
        parts = [F.col(name).cast("string") for name in ("spool", "pos", "message_id") if name in here]
        digest = F.left(F.sha2(F.concat_ws("|", *parts, F.md5(F.col("body").cast("binary"))), 256), F.lit(32))
        headers = F.map_concat(headers, F.create_map(F.lit(ids), digest))
    return frames.filter(good).select(where.alias("destination"), F.col("body"), headers.alias("headers"), *more)


def replay(frames: DataFrame, options: Mapping[str, Any], **how: Any) -> int:
    """Send frames as fast as possible, all tasks in parallel, with the sink "stomp". Order is kept within a task only.

    Args:
        frames: frames to send.
        options: options of the sink: url, login, passcodeEnv, transaction, receiptEvery … See docs/spark-semantics.md.
        how: `destination`, `ids` and `requests`, as for `outgoing`.

    Returns:
        The number of messages sent.

    >>> replay(read_archive(spark, "archive"), {"url": "stomp://localhost:61613"})    # doctest: +SKIP
    """
    seen = Observation()
    rows = outgoing(frames, **how).observe(seen, F.count(F.lit(1)).alias("messages"))
    rows.write.format("stomp").options(**options).mode("append").save()
    return int(seen.get["messages"])


def paced(
    frames: DataFrame,
    client: Client,
    speed: float | None,
    *,
    receipts: bool = True,
    on_sent: Callable[[int], object] = lambda _sent: None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
    **how: Any,
) -> int:
    """Send frames in order over one connection, and return the number of messages that the broker has confirmed.

    Args:
        frames: frames to send.
        client: a connected client.
        speed: 2 sends twice as fast as the frames came, None as fast as possible. Frames without a time are sent at
            once.
        receipts: ask for a receipt for each message, instead of one at the end.
        on_sent: called with the number of messages sent so far.
        clock, sleep: functions in seconds.
        how: `destination`, `ids` and `requests`, as for `outgoing`.

    Raises:
        StompError: a message was refused, or the connection was lost.

    >>> paced(read_archive(spark, "archive"), client, speed=10)                       # doctest: +SKIP
    """
    at = F.unix_micros(moment(frames)).alias("_at")
    order = [name for name in ("spool", "pos") if name in frames.columns]
    rows = outgoing(frames.select("*", at).orderBy("_at", *order), F.col("_at"), **how)
    sent = 0
    waiting: list[Any] = []
    for each in _in_time(rows.toLocalIterator(), speed, clock, sleep):
        body = bytes(each["body"] or b"")
        message = each["destination"], body, each["headers"]
        if receipts:
            waiting.append(client.send_for_receipt(*message))
        else:
            client.send(*message)
        sent += 1
        if len(waiting) >= _WINDOW:
            for receipt in waiting[: _WINDOW // 2]:
                receipt.wait()
            del waiting[: _WINDOW // 2]
        on_sent(sent)
    for receipt in waiting:
        receipt.wait()
    client.ping()
    return sent


def _in_time(
    rows: Iterator[Row], speed: float | None, clock: Callable[[], float], sleep: Callable[[float], object]
) -> Iterator[Row]:
    """Yield each row when it is due; rows without a time, and all rows without a speed, at once."""
    start: tuple[float, int] | None = None
    for row in rows:
        if speed is not None and row["_at"]:
            start = start or (clock(), row["_at"])
            while (seconds := start[0] + (row["_at"] - start[1]) / 1e6 / speed - clock()) > 0:
                sleep(min(seconds, _NAP))
        yield row
