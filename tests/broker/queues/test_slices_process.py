"""A broker process with a deep durable backlog: others are served while it drains, comes back, or goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker.sockets import Client, send, until
from patience import patience

pytestmark = pytest.mark.long

COUNT = 20_000
NAMED = "durable-subscription-name:n"


@contextlib.asynccontextmanager
async def broker(folder: Path) -> AsyncIterator[Any]:
    """Its port."""
    ready = folder / "ready"
    options = ["--port", "0", "--data", str(folder / "data"), "--ready-file", str(ready)]
    process = subprocess.Popen([sys.executable, "-m", "stompcodec.cli", "broker", *options], stderr=subprocess.DEVNULL)
    try:
        await until(ready.exists)
        yield SimpleNamespace(port=json.loads(ready.read_text())["port"])
    finally:
        process.terminate()
        assert process.wait(patience(20)) == 0


async def fill(place: Any, destination: str) -> None:
    sender = await Client.connect(place)
    for start in range(0, COUNT, 1000):
        sender.send("".join(send(destination, str(n), "persistent:true") for n in range(start, start + 999)))
        await sender.ask(send(destination, str(start + 999), "persistent:true", "receipt:r"))
    await sender.close()


async def pings(place: Any, done: asyncio.Event, running: asyncio.Event | None = None) -> int:
    """Count the answers that another client gets until then; `running` is set when it is connected."""
    other, count = await Client.connect(place), 0
    if running is not None:
        running.set()
    while not done.is_set():
        assert (await other.ask(send("/queue/other", "", "receipt:r"))).command == "RECEIPT"
        count += 1
    await other.close()
    return count


async def again(place: Any, *headers: str) -> Client:
    """Connect, as soon as an earlier session with that client-id is gone."""
    connect = "\n".join(["CONNECT", "accept-version:1.2", "host:/", *headers, "", "\0"])
    for _ in range(1000):
        client = await Client.open(place)
        if (await client.ask(connect)).command == "CONNECTED":
            return client
        await client.close()
    raise AssertionError("the client-id stays in use")


async def take(client: Client) -> list[int]:
    return [int((await client.frame()).body) for _ in range(COUNT)]


@pytest.mark.parametrize("way", ["queue", "selector", "durable subscription"])
def test_others_are_served_while_a_deep_backlog_moves(tmp_path: Path, way: str) -> None:
    destination = "/topic/a" if way == "durable subscription" else "/queue/a"
    extra = {"queue": [], "selector": ["selector:a IS NULL"], "durable subscription": [NAMED]}[way]
    mine = ["client-id:c"]

    async def main() -> None:
        async with broker(tmp_path) as place:
            if way == "durable subscription":
                client = await Client.connect(place, *mine)
                lines = ["SUBSCRIBE", "id:0", f"destination:{destination}", "receipt:s", *extra, "", "\0"]
                assert (await client.ask("\n".join(lines))).command == "RECEIPT"
                await client.close()
            await fill(place, destination)
            done = asyncio.Event()
            counting = asyncio.ensure_future(pings(place, done))
            for ack in ("client", "auto"):  # the first one is lost with all that it holds
                client = await again(place, *mine)
                lines = ["SUBSCRIBE", "id:0", f"destination:{destination}", f"ack:{ack}", "prefetch-count:100000"]
                client.send("\n".join([*lines, *extra, "", "\0"]))
                assert await take(client) == list(range(COUNT)), "all of them, in order"
                await client.close()
            done.set()
            assert await counting >= 2 * COUNT // 2000

    asyncio.run(asyncio.wait_for(main(), patience(120)))


def test_a_durable_subscription_ends_beside_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as place:
            client = await again(place, "client-id:c")
            lines = ["SUBSCRIBE", "id:0", "destination:/topic/a", "ack:client", "prefetch-count:1", "receipt:s", NAMED]
            assert (await client.ask("\n".join([*lines, "", "\0"]))).command == "RECEIPT"
            await fill(place, "/topic/a")
            done, running = asyncio.Event(), asyncio.Event()
            counting = asyncio.ensure_future(pings(place, done, running))
            await running.wait()
            client.send("\n".join(["UNSUBSCRIBE", "id:0", NAMED, "receipt:u", "", "\0"]))
            while (await client.frame()).command != "RECEIPT":
                pass
            done.set()
            assert await counting >= 1
            await client.close()

    asyncio.run(asyncio.wait_for(main(), patience(120)))
