"""Where Spark finds the source "stomp" by itself."""

from stompcodec.spark.live import Stomp as DefaultSource

__all__ = ["DefaultSource"]
