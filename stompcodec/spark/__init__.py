"""Spark: captures and live brokers as tables and streams, and jobs on them. See docs/spark-tutorial.md.

>>> spark = SparkSession.builder.getOrCreate()                                    # doctest: +SKIP
>>> frames = spark.read.format("stompfile").load("feed.stompcap")                 # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stompcodec.errors import MissingExtraError
from stompcodec.spark.sessions import JavaError, java_home, register, session, spark_env

if TYPE_CHECKING:
    from stompcodec.spark import jobs
    from stompcodec.spark.functions import from_stomp, to_stomp
    from stompcodec.spark.live import source_metrics
    from stompcodec.spark.reading.schema import FRAME_SCHEMA

__all__ = [
    "FRAME_SCHEMA",
    "JavaError",
    "from_stomp",
    "java_home",
    "jobs",
    "register",
    "session",
    "source_metrics",
    "spark_env",
    "to_stomp",
]


def __getattr__(name: str) -> Any:
    """Import names that need PySpark on first use."""
    try:
        if name == "jobs":
            return import_module(f"{__name__}.jobs")
        if name in ("from_stomp", "to_stomp"):
            return getattr(import_module(f"{__name__}.functions"), name)
        if name == "source_metrics":
            return import_module(f"{__name__}.live").source_metrics
        if name == "FRAME_SCHEMA":
            return import_module(f"{__name__}.reading.schema").FRAME_SCHEMA
    except ModuleNotFoundError as error:
        top = (error.name or "").partition(".")[0]
        if top not in ("pyspark", "pyarrow", "numpy", "py4j"):
            raise
        raise MissingExtraError("spark", top) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
