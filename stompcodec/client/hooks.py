"""The callbacks `on_frame` and `on_state`. They never run in the I/O thread."""

from __future__ import annotations

import logging
import queue
import threading
from typing import Protocol

from stompcodec.client.options import Options
from stompcodec.codec import Frame

log = logging.getLogger("stompcodec.client")

#: The most turns of the I/O thread whose frames wait for `on_frame`; the frames of others are left out.
_MOST_SEEN = 1000


class Seen(Protocol):
    """Events and frames for the callbacks."""

    events: list[tuple[str, Exception | None]]
    frames: list[tuple[str, Frame]]


def show(options: Options, seen: Seen) -> None:
    """Call the callbacks, and log what they raise."""
    for direction, frame in seen.frames:
        if options.on_frame is not None:
            try:
                options.on_frame(direction, frame)
            except Exception:
                log.exception("on_frame failed")
    for state, error in seen.events:
        if options.on_state is not None:
            try:
                options.on_state(state, error)
            except Exception:
                log.exception("on_state failed")


class Watcher:
    """A thread that runs the callbacks. If they are too slow, frames are left out, but no states."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._queue: queue.SimpleQueue[Seen | None] = queue.SimpleQueue()
        self._missed = 0
        self._thread = threading.Thread(target=self._run, name="stompcodec-hooks", daemon=True)
        self._thread.start()

    def put(self, seen: Seen) -> None:
        """Queue events and frames for the callbacks."""
        if seen.frames and self._queue.qsize() >= _MOST_SEEN:
            self._missed += len(seen.frames)
            seen.frames = []
        if seen.events or seen.frames:
            self._queue.put(seen)

    def stop(self, timeout: float) -> None:
        """End the thread after all callbacks; wait at most `timeout` seconds for that."""
        self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(min(timeout, threading.TIMEOUT_MAX))

    def _run(self) -> None:
        while (seen := self._queue.get()) is not None:
            show(self._options, seen)
            if self._missed:
                log.warning("on_frame is too slow: %d frames were left out", self._missed)
                self._missed = 0
