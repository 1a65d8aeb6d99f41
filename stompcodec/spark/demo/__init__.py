"""From a feed to tables and a report, with a driver that is killed on the way: `python -m stompcodec.spark.demo`."""

from stompcodec.spark.demo.run import main, run

__all__ = ["main", "run"]
