"""Restarts of streams whose Spark process was killed."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from pyspark.errors import PySparkException

from stompcodec.errors import StompError

_log = logging.getLogger("stompcodec.spark")
#: Spark's messages when the process behind a socket is gone. Errors raised by Python have a traceback.
_GONE = re.compile(
    r"Connection reset|Broken pipe|EOFException|SocketException|Socket closed|Stream closed|ClosedChannelException"
    r"|Python worker exited unexpectedly|Python worker failed to connect|AsynchronousCloseException"
    r"|terminated with exception:\s*(?:SQLSTATE|null|\(no cause|$)"
)
#: Begins the plan, with its options, behind the message.
_PLAN = "=== Streaming Query ==="
_RAISED = "Traceback (most recent call last)"
_WHAT = (
    "a Python process of Spark ended, most likely the one that runs the source: it was killed, or ran out of memory. "
    "Nothing is lost, for what was acknowledged is in the spool"
)


class _Running(Protocol):
    """A `StreamingQuery`, or an object that waits for one."""

    def awaitTermination(self) -> object: ...


class SourceDiedError(StompError):
    """Error for a query whose Python process was killed more often than it may be restarted.

    >>> issubclass(SourceDiedError, StompError)
    True
    """


def has_died(error: BaseException) -> bool:
    """Return whether a query ended because its Python process was gone, not by an error that Python, Spark or the
    broker raised.

    >>> has_died(RuntimeError("[STREAM_FAILED] Query terminated with exception: Connection reset"))
    True
    >>> has_died(RuntimeError("Traceback (most recent call last): Connection reset by the broker"))
    False
    """
    text = str(error).partition(_PLAN)[0]
    return _RAISED not in text and bool(_GONE.search(text))


def supervise(
    start: Callable[[], _Running],
    *,
    restarts: int = 10,
    within: float = 3600.0,
    pause: float = 1.0,
) -> None:
    """Run a query until it is stopped or fails, and restart it whenever its Spark process was killed.

    Spark ends a query when the Python process of its source is gone, for example after `kill -9` or when out of memory,
    with `Connection reset` or without a cause. Restarting it from its checkpoint neither loses nor duplicates frames.
    Other failures are raised unchanged.

    Args:
        start: makes and starts the query; called for each start, so it must name a checkpoint.
        restarts: most restarts within `within` seconds; one more is an error.
        within: seconds.
        pause: seconds before each restart.

    Raises:
        SourceDiedError: the process was killed too often.
        PySparkException: the query failed for another reason.

    >>> supervise(lambda: jobs.archive(frames, "archive", checkpoint="checkpoint"))        # doctest: +SKIP
    """
    died: deque[float] = deque()
    while True:
        try:
            query = start()
            query.awaitTermination()
            return
        except PySparkException as error:
            if not has_died(error):
                raise
            now = time.monotonic()
            died.append(now)
            while died and now - died[0] > within:
                died.popleft()
            if len(died) > restarts:
                raise SourceDiedError(
                    f"{_WHAT}. It ended {len(died)} times within {within:g} s: look at the driver's memory, and at "
                    f"the log of the system for a process that was killed: {_first_line(error)}"
                ) from error
            _log.warning("%s. The query starts again from its checkpoint: %s", _WHAT, _first_line(error))
            time.sleep(pause)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
