"""Demonstration: a feed becomes tables and a report, while its driver is killed: `python -m stompcodec.spark.demo`."""

from stompcodec.spark.demo.run import main, run

__all__ = ["main", "run"]
