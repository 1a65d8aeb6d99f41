"""Which frames of a capture are one message: by the lasting identity, as the client has it."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from stompcodec.client.dialects import BROKERS, lasting_identity
from stompcodec.spark import jobs
from stompcodec.spark.jobs.frames import identity
from stompcodec.spark.report.data import _duplicates, narrowed

KINDS = (
    "destination string, message_id string, sent_at timestamp, received_at timestamp, redelivered boolean, length int, \
error string, body binary"
)
AT = 1795935891986
#: message-id, timestamp, and the dialect whose identity it has. A message-id of another form is one of another broker.
DELIVERIES = [
    ("72,28", AT, "artemis"), ("82,28", AT, "artemis"),
    ("72,30", AT, "artemis"), ("72,28", AT + 1, "artemis"),
    ("72,28", None, "artemis"), ("72,28", 0, "artemis"),
    ("ID:a,28", AT, "activemq"), ("ID:a,28", AT, "activemq"), ("72,28\n", AT, "activemq"),
    ("1a-7", None, "stompcodec"), ("1a-7", AT, "stompcodec"), (None, AT, "stompcodec"),
]  # fmt: skip


def rows(spark: Any) -> Any:
    def moment(millis: int | None) -> datetime | None:
        return None if millis is None else datetime.fromtimestamp(millis / 1000, timezone.utc)

    values = [("/queue/a", id, moment(at), None, False, 1, None, bytearray(b"x")) for id, at, _ in DELIVERIES]
    return spark.createDataFrame(values, KINDS)


def test_the_column_is_what_the_client_says_and_each_message_is_kept_once(spark: Any) -> None:
    expected = [
        lasting_identity(
            BROKERS[dialect], {k: str(v) for k, v in (("message-id", id), ("timestamp", at)) if v is not None}
        )
        for id, at, dialect in DELIVERIES
    ]
    frames = rows(spark)
    found = [row[0] for row in frames.select(identity(frames)).collect()]
    assert found == expected
    kept = jobs.unique(frames).collect()
    assert len(kept) == len(set(found) - {None}) + found.count(None) == len(found) - 3
    assert sum(_duplicates(narrowed(frames), None).values()) == 3
    bare = frames.drop("sent_at")  # so that nothing is known of Artemis's: all are kept
    assert sum(row.message_id in ("72,28", "82,28", "72,30") for row in jobs.unique(bare).collect()) == 6
