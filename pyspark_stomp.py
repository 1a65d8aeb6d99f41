"""Where Spark finds the source "stomp" by itself.

Spark imports this module whenever it looks for any source, so it must not raise: that would break all the others.
"""

from contextlib import suppress

try:
    from stompcodec.spark.live import Stomp as DefaultSource
except Exception as error:  # no PySpark, a broken one, or one that is too old
    with suppress(Exception):
        from stompcodec.spark.sessions import stand_in

        DefaultSource = stand_in("stomp", error)  # type: ignore[assignment,misc]
