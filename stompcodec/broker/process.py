"""The broker as a process, which runs until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable

from stompcodec.broker.config import Config
from stompcodec.broker.loop_quota import Garbage, give_back_large
from stompcodec.broker.server import Server, serve

#: Seconds a busy thread may make another wait. The helper that writes to disk needs the interpreter several times for
#: each commit.
_SWITCH = 0.00005

#: Seconds between two checks of memory.
_LOOK = 10.0

log = logging.getLogger("stompcodec.broker.server")


def run(
    config: Config,
    *,
    ready: str | os.PathLike[str] | None = None,
    uvloop: bool = False,
    started: Callable[[Server], None] = lambda server: None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return. A second signal stops waiting for clients.

    Args:
        config: see `Server`.
        ready: see `Server`.
        uvloop: use uvloop's event loop, if it is installed (docs/decisions/0012-event-loop.md compares both).
        started: called once all listeners are open.

    Raises:
        OSError, StoreError: see `Server.start` and `Server.stop`.

    >>> import signal
    >>> run(Config(port=0), started=lambda server: signal.raise_signal(signal.SIGTERM))
    """
    if config.data is not None:
        from stompcodec.broker.storage.tables import warn_of_wal_fault

        warn_of_wal_fault(log)
    _raise_file_limit()
    sys.setswitchinterval(_SWITCH)
    give_back_large()
    loop = new_loop(uvloop)
    try:
        asyncio.set_event_loop(loop)
        with Garbage() as garbage:
            loop.run_until_complete(_serve_until_signal(config, ready, started, garbage))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _serve_until_signal(
    config: Config, ready: str | os.PathLike[str] | None, started: Callable[[Server], None], garbage: Garbage
) -> None:
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[str] = asyncio.Queue()

    def arrived(number: int, frame: object = None) -> None:
        loop.call_soon_threadsafe(signals.put_nowait, signal.Signals(number).name)

    old = {number: signal.signal(number, arrived) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server = serve(config, ready=ready)
        await server.start()
        started(server)

        def look() -> None:
            garbage.look(server.broker.account.used, server.broker.stats.sessions_total)
            loop.call_later(_LOOK, look)

        look()
        log.info("%s: stopping", await _end_of(server, signals))
        stopping = asyncio.ensure_future(server.stop())
        hurry = asyncio.ensure_future(signals.get())
        await asyncio.wait((stopping, hurry), return_when=asyncio.FIRST_COMPLETED)
        if not hurry.cancel():
            server.deserted.set()
        await stopping
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


async def _end_of(server: Server, signals: asyncio.Queue[str]) -> str:
    """Return why to stop: the name of a signal, or "the store is gone"."""
    signal_ = asyncio.ensure_future(signals.get())
    lost = asyncio.ensure_future(server.lost.wait())
    await asyncio.wait((signal_, lost), return_when=asyncio.FIRST_COMPLETED)
    lost.cancel()
    return signal_.result() if signal_.done() or not signal_.cancel() else "the store is gone"


def new_loop(uvloop: bool) -> asyncio.AbstractEventLoop:
    """Return an event loop: asyncio's, or uvloop's if asked for and installed."""
    if uvloop:
        try:
            import uvloop as module
        except ImportError:
            log.warning("uvloop is not installed: using asyncio's loop")
        else:
            loop: asyncio.AbstractEventLoop = module.new_event_loop()
            return loop
    return asyncio.new_event_loop()


def _raise_file_limit() -> None:
    """Raise the limit of open files as far as allowed, because every connection needs one."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
