"""Where Spark finds the source "stompfile" by itself."""

from stompcodec.spark.file import StompFile as DefaultSource

__all__ = ["DefaultSource"]
