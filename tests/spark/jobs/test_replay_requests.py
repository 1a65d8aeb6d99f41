"""A replay of archived frames gives the broker no orders."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from stompcodec.spark.jobs.frames import outgoing

NAMES = ["/queue/a", "/management/purge", " /management/purge", "/topic/management/"]


def test_requests_are_left_out(spark: Any) -> None:
    frames = spark.createDataFrame([(name, bytearray(b"x")) for name in NAMES], "destination string, body binary")

    def sent(**how: Any) -> list[str]:
        return [row["destination"] for row in outgoing(frames, **how).collect()]

    assert sent() == [NAMES[0], NAMES[3]]
    assert sent(requests=None) == NAMES
    assert sent(requests="/queue/") == NAMES[1:]
    assert sent(destination="/queue/b") == ["/queue/b"] * 4
    assert sent(destination=F.concat(F.lit("/management"), F.col("destination"))) == ["/management" + NAMES[2]]
