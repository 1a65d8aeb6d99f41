"""Where Spark finds the source "stompfile" by itself. It must not raise: see pyspark_stomp.py."""

from contextlib import suppress

try:
    from stompcodec.spark.reading import StompFile as DefaultSource
except Exception as error:  # no PySpark, a broken one, or one that is too old
    with suppress(Exception):
        from stompcodec.spark.sessions import stand_in

        DefaultSource = stand_in("stompfile", error)  # type: ignore[assignment,misc]
