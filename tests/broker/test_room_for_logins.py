"""Connections that have not logged in hold no room that a new connection needs."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from broker.test_connection_shares import NEAR, USERS
from patience import patience

from stompcodec.broker import Config, serve

LOGIN = b"CONNECT\naccept-version:1.2\nhost:/\nlogin:ada\npasscode:x\n\n\0"


async def opened(broker, count, what=b"", *, port="port"):
    """Connections that have sent something, once the broker has them all."""
    held = []
    before = broker.broker.stats.sessions_total + broker.broker.stats.sessions_refused
    for _ in range(count):
        reader, writer = await asyncio.open_connection(NEAR, getattr(broker, port))
        writer.write(what)
        held.append((reader, writer))
    while port == "port" and broker.broker.stats.sessions_total + broker.broker.stats.sessions_refused < before + count:
        await asyncio.sleep(0)
    return held


async def first_line(reader):
    return await asyncio.wait_for(reader.readline(), patience(10))


def served(config, work):
    """Run a coroutine function on a broker, and close the connections that it leaves."""

    async def main():
        async with serve(Config(port=0, ws_port=0, users=USERS, **config)) as broker:
            for _, writer in await asyncio.wait_for(work(broker), patience(10)):
                writer.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "config",
    [{"max_connections": 8, "max_before_login": 8}, {"max_connections": 40, "address_connections": 8}],
)
def test_silent_connections_make_room_for_a_login(config):
    async def work(broker):
        held = await opened(broker, 8)
        mine = await opened(broker, 1, LOGIN)
        assert await first_line(mine[0][0]) == b"CONNECTED\n"
        with contextlib.suppress(ConnectionError):
            assert b"sessions.max_connections" in await asyncio.wait_for(held[0][0].read(), patience(10))
        assert len(broker.broker.sessions) == 8
        return held + mine

    served(config, work)


@pytest.mark.parametrize("config", [{"max_connections": 3}, {"max_connections": 40, "address_connections": 3}])
def test_those_who_have_logged_in_stay_whoever_comes(config):
    """Also where handshakes wait in the lobby: they are no sessions yet, so their end would make no room."""

    async def work(broker):
        config = broker.config
        assert config.max_before_login == 4
        mine = await opened(broker, 3, LOGIN)
        for reader, _ in mine:
            assert await first_line(reader) == b"CONNECTED\n"
        shaking = await opened(broker, 2, b"GET / HTTP/1.1\r\n", port="ws_port")
        late = await opened(broker, 2, LOGIN)
        for reader, _ in late:
            assert await first_line(reader) == b"ERROR\n"
        assert len(broker.broker.sessions) == 3
        assert not any(writer.is_closing() for _, writer in mine)
        return mine + shaking + late

    served({**config, "max_before_login": 4, "user_connections": 40}, work)
