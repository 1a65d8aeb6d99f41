"""Who may ask and order what, by each listener of a broker on sockets."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from broker.management.managing import FIELDS, check
from broker.sockets import run
from patience import patience

import stompcodec.client as stomp
from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.broker.config import Config
from stompcodec.broker.management.schema import REQUESTS
from stompcodec.broker.server import Server

pytest.importorskip("websockets")

LISTENERS = ("stomp", "tls", "ws")
HASH = hash_passcode("x", n=16)
USERS = {name: User(name, HASH) for name in ("ada", "eve")}
RULES = (Rule("ada", "manage"), Rule("*", "*"))


def connected(
    server: Server, listener: str, certificate: SimpleNamespace, login: str | None = None
) -> stomp.AsyncClient:
    """A client by a listener."""
    port = {"stomp": server.port, "tls": server.tls_port, "ws": server.ws_port}[listener]
    scheme, tls = ("stomp+ssl", certificate.trusting) if listener == "tls" else (listener, None)
    given: dict[str, Any] = {} if login is None else {"login": login, "passcode": "x"}
    return stomp.connect_async(f"{scheme}://{server.config.host}:{port}", ssl=tls, reconnect=None, **given)


async def ask(client: stomp.AsyncClient, name: str, fields: dict[str, str]) -> dict[str, Any]:
    answer = await client.request(f"/management/{name}", json.dumps(fields), timeout=patience(20))
    found: dict[str, Any] = json.loads(answer.body)
    check(found)
    return found


async def refused(server: Server, client: stomp.AsyncClient) -> dict[str, str]:
    """The field that the error of each request names; "" for one that has an answer."""
    found = {}
    host = server.broker.virtual_host("/")
    for name in REQUESTS:
        fields = FIELDS.get(name, {})
        if name == "close":
            (other,) = [session for session in server.peers if session.user.name == "victim"]
            fields = {"session": other.id}
        elif "destination" in fields:
            host.destinations.queue("/queue/a")
        answer = await ask(client, name, fields)
        found[name] = str(answer.get("error", {}).get("field", ""))
    return found


def config_of(certificate: SimpleNamespace, **changes: Any) -> Config:
    return Config(port=0, ws_port=0, tls_port=0, tls_cert=certificate.both).replace(**changes)


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("who", ["ada", "eve", None])
def test_each_request_by_each_listener(certificate: SimpleNamespace, listener: str, who: str | None) -> None:
    """With users, one that may manage and one that may not; without, one of this machine."""

    async def main(server: Server) -> None:
        async with (
            connected(server, "stomp", certificate, "victim"),
            connected(server, listener, certificate, who) as client,
        ):
            found = await refused(server, client)
            assert found == dict.fromkeys(REQUESTS, "destination" if who == "eve" else "")
            async with asyncio.timeout(patience(10)):  # one of them was closed, and goes in its own time
                while len(server.peers) != (2 if who == "eve" else 1):
                    await asyncio.sleep(0)
            (own,) = [peer for peer in server.peers.values() if peer.session.user.name != "victim"]
            assert own.listener == listener

    users: dict[str, Any] = {} if who is None else {"users": {**USERS, "victim": User("victim", HASH)}, "rules": RULES}
    run(main, config_of(certificate, **users))


@pytest.mark.parametrize("listener", LISTENERS)
def test_without_users_other_machines_may_not(
    certificate: SimpleNamespace, own_addresses: list[str], listener: str
) -> None:
    """A client from an address that is not loopback."""
    if not own_addresses:
        pytest.skip("this machine has no other address than loopback")

    async def main(server: Server) -> None:
        async with (
            connected(server, "stomp", certificate, "victim"),
            connected(server, listener, certificate, "anyone") as client,
        ):
            assert await refused(server, client) == dict.fromkeys(REQUESTS, "destination")
            assert len(server.peers) == 2

    run(main, config_of(certificate, host=own_addresses[0]))
