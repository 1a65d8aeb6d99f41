"""Frames of an archive or a capture to a broker again: at their pace, or as fast as can be."""

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

__all__ = ["outgoing", "paced", "replay"]

#: Headers that belong to the conversation in which a message came, or to its time.
_PASSING = (
    "destination", "message-id", "subscription", "ack", "content-length", "redelivered", "receipt", "transaction",
    "expires",
)  # fmt: skip
#: Messages on their way without a receipt for them.
_WINDOW = 500
_NAP = 0.5


def outgoing(frames: DataFrame, *more: C, destination: C | str | None = None, ids: str | None = None) -> DataFrame:
    """Messages to send: destination, body, headers. Of frames only MESSAGE and SEND that name a destination.

    Headers go along but for those of the old delivery, and `expires`, which has passed.

    Args:
        frames: with destination and body; `headers` where they are there.
        more: further columns that are kept.
        destination: where they go instead: a name, or a column.
        ids: a header for an id of the message, the same whenever it is replayed: for brokers that know by it what they
            have (Artemis: _AMQ_DUPL_ID), or for consumers.
    """
    here = set(frames.columns)
    good = F.col("destination").isNotNull()
    if "error" in here:
        good &= F.col("error").isNull()
    if "command" in here:
        good &= F.col("command").isin("MESSAGE", "SEND")
    where = F.col("destination") if destination is None else destination
    where = F.lit(where) if isinstance(where, str) else where
    headers = F.col("headers") if "headers" in here else F.create_map().cast("map<string,string>")
    headers = F.map_filter(headers, lambda name, _value: ~name.isin(*_PASSING, *([ids] if ids else [])))
    if ids is not None:
        parts = [F.col(name).cast("string") for name in ("spool", "pos", "message_id") if name in here]
        digest = F.left(F.sha2(F.concat_ws("|", *parts, F.md5(F.col("body").cast("binary"))), 256), F.lit(32))
        headers = F.map_concat(headers, F.create_map(F.lit(ids), digest))
    return frames.filter(good).select(where.alias("destination"), F.col("body"), headers.alias("headers"), *more)


def replay(frames: DataFrame, options: Mapping[str, Any], **how: Any) -> int:
    """Send frames as fast as can be, all tasks at once, by the sink "stomp". The order holds within a task only.

    Args:
        frames: what to send.
        options: of the sink: url, login, passcodeEnv, transaction, receiptEvery … See docs/spark-semantics.md.
        how: as for `outgoing`.

    Returns:
        How many messages were sent.
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
    """Send frames in order over one connection.

    Args:
        frames: what to send.
        client: connected.
        speed: 2 for twice as fast as they came; None for as fast as this goes. What has no time goes at once.
        receipts: ask for a receipt for each; else only one at the end.
        on_sent: called with the number of messages sent so far.
        clock, sleep: in seconds.
        how: as for `outgoing`.

    Returns:
        How many messages the broker has confirmed.

    Raises:
        StompError: a message was refused, or the connection was lost.
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
