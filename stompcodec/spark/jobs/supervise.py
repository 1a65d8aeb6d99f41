"""Streams that start again when a process of Spark was killed under them."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from pyspark.errors import PySparkException

from stompcodec.errors import StompError

__all__ = ["SourceDiedError", "has_died", "supervise"]

_log = logging.getLogger("stompcodec.spark")
#: What Spark says when the process at the other end of a socket is gone. An error that Python raised has a traceback.
_GONE = re.compile(
    r"Connection reset|Broken pipe|EOFException|SocketException|Socket closed|Stream closed|ClosedChannelException"
    r"|Python worker exited unexpectedly|Python worker failed to connect|AsynchronousCloseException"
    r"|terminated with exception:\s*(?:SQLSTATE|null|\(no cause|$)"
)
#: What stands behind the message: the plan, and its options.
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
    """A query ended because a Python process of Spark was killed, more often than it was to be started again.

    >>> issubclass(SourceDiedError, StompError)
    True
    """


def has_died(error: BaseException) -> bool:
    """Return whether a query ended because a Python process of Spark was gone, and not because of an error that Python,
    Spark or the broker told of.

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
    """Run a query until it is stopped or fails, and start it again when a process of Spark was killed under it.

    Spark ends a query when the Python process of its source is gone, for example after `kill -9` or for lack of memory,
    with `Connection reset` or without a cause. Starting it again from the same checkpoint loses nothing and doubles
    nothing. Any other failure is raised as it is.

    Args:
        start: makes and starts the query; called again for each start, so it has to name a checkpoint.
        restarts: how often it is started again within so many seconds, before that is an error.
        within: seconds.
        pause: seconds before each start but the first.

    Raises:
        SourceDiedError: the process was gone too often.
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
