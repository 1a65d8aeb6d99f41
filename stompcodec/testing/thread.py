"""A thread with an event loop, for the broker and the proxy of tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

#: Seconds for the thread to answer.
_PATIENCE = 30.0


class LoopThread:
    """A running event loop in its own thread, until `end`.

    >>> thread = LoopThread("a-loop")
    >>> thread.run(asyncio.sleep(0, "done"))
    'done'
    >>> thread.end()
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """True if the caller is in this thread."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the loop, for at most 30 s, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    def end(self) -> None:
        """Stop the loop, and end the thread. The caller may be inside another loop, as in a notebook."""
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
