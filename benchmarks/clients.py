"""The clients that are measured, each driven as its documentation shows it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from feeder import LIMIT
from load import PREFETCH

SYNC, ASYNC = "ours, sync", "ours, async"


@dataclass
class Task:
    """What a client has to receive, until a body of another size comes.

    Attributes:
        keep: gets each body, in the run that looks at them.
        start: processor seconds of this process when it was connected, and everything imported.
    """

    port: int
    size: int
    ack: str
    keep: Callable[[bytes], None] | None
    start: float = 0.0

    def begin(self) -> None:
        self.start = time.process_time()


def drive_sync(task: Task) -> int:
    """Ours: a for loop."""
    import stompcodec.client as stomp

    size, ack, keep, count = task.size, task.ack, task.keep, 0
    with stomp.connect(f"stomp://127.0.0.1:{task.port}") as client:
        task.begin()
        for message in client.subscribe("/queue/bench", ack=ack, prefetch=PREFETCH):
            text = message.body
            if ack != "auto":
                message.ack()
            if len(text) != size:
                break
            count += 1
            if keep is not None:
                keep(text)
    return count


def drive_async(task: Task) -> int:
    """Ours: an async for loop."""
    import asyncio

    import stompcodec.client as stomp

    async def run() -> int:
        size, ack, keep, count = task.size, task.ack, task.keep, 0
        async with stomp.connect_async(f"stomp://127.0.0.1:{task.port}") as client:
            task.begin()
            async for message in client.subscribe("/queue/bench", ack=ack, prefetch=PREFETCH):
                text = message.body
                if ack != "auto":
                    await message.ack()
                if len(text) != size:
                    break
                count += 1
                if keep is not None:
                    keep(text)
        return count

    return asyncio.run(run())


def drive_stomp_py(task: Task) -> int:
    """A listener; bodies stay bytes, which is its faster way."""
    import threading

    os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")
    import stomp

    connection = stomp.Connection12([("127.0.0.1", task.port)], auto_decode=False)
    done = threading.Event()
    size, ack, keep, count = task.size, task.ack, task.keep, 0

    class Listener(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            nonlocal count
            text = frame.body
            if ack != "auto":
                connection.ack(frame.headers["ack"])
            if len(text) != size:
                done.set()
                return
            count += 1
            if keep is not None:
                keep(text)

    connection.set_listener("", Listener())
    connection.connect("guest", "guest", wait=True)
    task.begin()
    connection.subscribe("/queue/bench", id="0", ack=ack)
    done.wait(LIMIT)
    connection.disconnect()
    return count


def drive_stompman(task: Task) -> int:
    """A handler."""
    import asyncio

    import stompman

    async def run() -> int:
        size, ack, keep, count = task.size, task.ack, task.keep, 0
        done = asyncio.Event()

        def take(text: bytes) -> None:
            nonlocal count
            if len(text) != size:
                done.set()
                return
            count += 1
            if keep is not None:
                keep(text)

        async def plain(frame: stompman.MessageFrame) -> None:
            take(frame.body)

        async def acknowledging(frame: stompman.AckableMessageFrame) -> None:
            await frame.ack()
            take(frame.body)

        server = stompman.ConnectionParameters("127.0.0.1", task.port, "guest", "guest")
        async with stompman.Client([server]) as client:
            task.begin()
            if ack == "auto":
                subscription = await client.subscribe(
                    "/queue/bench", plain, ack="auto", on_suppressed_exception=lambda error, frame: None
                )
            else:
                subscription = await client.subscribe_with_manual_ack("/queue/bench", acknowledging, ack=ack)
            await asyncio.wait_for(done.wait(), LIMIT)
            await subscription.unsubscribe()
        return count

    return asyncio.run(run())


DRIVERS = {SYNC: drive_sync, ASYNC: drive_async, "stomp.py": drive_stomp_py, "stompman": drive_stompman}
