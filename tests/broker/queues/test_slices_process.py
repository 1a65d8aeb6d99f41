"""A broker process with a deep durable backlog: others are served while it drains, comes back, or goes."""

import asyncio

import pytest
from broker.sockets import Client, send
from patience import patience

pytest.importorskip("click")

from crash.process import BrokerProcess

pytestmark = pytest.mark.long

COUNT = 10_000
NAMED = "durable-subscription-name:n"
MINE = "client-id:c"


async def fill(place, destination):
    sender = await Client.connect(place)
    for start in range(0, COUNT, 1000):
        sender.send("".join(send(destination, str(n), "persistent:true") for n in range(start, start + 999)))
        await sender.ask(send(destination, str(start + 999), "persistent:true", "receipt:r"))
    await sender.close()


async def pings(place, done, running):
    """Count the answers that another client gets until then."""
    other, count = await Client.connect(place), 0
    running.set()
    while not done.is_set():
        assert (await other.ask(send("/queue/other", "", "receipt:r"))).command == "RECEIPT"
        count += 1
    await other.close()
    return count


async def subscribed(place, destination, *headers):
    """Connect, as soon as an earlier session with that client-id is gone, and SUBSCRIBE."""
    for _ in range(1000):
        client = await Client.open(place)
        connect = "\n".join(["CONNECT", "accept-version:1.2", "host:/", MINE, "", "\0"])
        if (await client.ask(connect)).command == "CONNECTED":
            client.send("\n".join(["SUBSCRIBE", "id:0", f"destination:{destination}", *headers, "", "\0"]))
            return client
        await client.close()
    raise AssertionError("the client-id stays in use")


@pytest.mark.parametrize("way", ["queue", "durable subscription"])
def test_others_are_served_while_a_deep_backlog_moves(tmp_path, way):
    destination, extra = ("/queue/a", ["selector:a IS NULL"]) if way == "queue" else ("/topic/a", [NAMED])

    async def main(place):
        client = await subscribed(place, destination, "receipt:s", *extra)
        assert (await client.frame()).command == "RECEIPT"
        await client.close()
        await fill(place, destination)
        done, running = asyncio.Event(), asyncio.Event()
        counting = asyncio.ensure_future(pings(place, done, running))
        await running.wait()
        for ack in ("client", "auto"):  # the first one is lost with all that it holds
            client = await subscribed(place, destination, f"ack:{ack}", "prefetch-count:100000", *extra)
            found = [int((await client.frame()).body) for _ in range(COUNT)]
            assert found == list(range(COUNT)), "all of them, in order"
            await client.close()
        done.set()
        assert await counting >= 2 * COUNT // 2000

    with BrokerProcess(tmp_path) as place:
        asyncio.run(asyncio.wait_for(main(place), patience(120)))


def test_a_durable_subscription_ends_beside_others(tmp_path):
    async def main(place):
        client = await subscribed(place, "/topic/a", "ack:client", "prefetch-count:1", "receipt:s", NAMED)
        assert (await client.frame()).command == "RECEIPT"
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

    with BrokerProcess(tmp_path) as place:
        asyncio.run(asyncio.wait_for(main(place), patience(120)))
