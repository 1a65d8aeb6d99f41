"""Who may ask and order what, by each listener of a broker on sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from pathlib import Path
from typing import Any, NamedTuple

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


class Secured(NamedTuple):
    """A certificate of a broker, and the settings of a client that trusts it."""

    path: str
    client: ssl.SSLContext


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    trustme = pytest.importorskip("trustme", reason="certificates for TLS are made by trustme")
    path: Path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1", *own_address()).private_key_and_cert_chain_pem.write_to_path(path)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return Secured(str(path), client)


def own_address() -> list[str]:
    """An address of this machine that is not loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        sock.connect(("192.0.2.1", 9))  # sends nothing
        address = str(sock.getsockname()[0])
        return [] if address.startswith("127.") else [address]
    return []


def connected(server: Server, listener: str, secured: Secured, login: str | None = None) -> stomp.AsyncClient:
    """A client by a listener."""
    port = {"stomp": server.port, "tls": server.tls_port, "ws": server.ws_port}[listener]
    scheme, tls = ("stomp+ssl", secured.client) if listener == "tls" else (listener, None)
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


def config_of(secured: Secured, **changes: Any) -> Config:
    return Config(port=0, ws_port=0, tls_port=0, tls_cert=secured.path).replace(**changes)


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("who", ["ada", "eve", None])
def test_each_request_by_each_listener(secured: Secured, listener: str, who: str | None) -> None:
    """With users, one that may manage and one that may not; without, one of this machine."""

    async def main(server: Server) -> None:
        async with (
            connected(server, "stomp", secured, "victim"),
            connected(server, listener, secured, who) as client,
        ):
            found = await refused(server, client)
            assert found == dict.fromkeys(REQUESTS, "destination" if who == "eve" else "")
            async with asyncio.timeout(patience(10)):  # one of them was closed, and goes in its own time
                while len(server.peers) != (2 if who == "eve" else 1):
                    await asyncio.sleep(0)
            (own,) = [peer for peer in server.peers.values() if peer.session.user.name != "victim"]
            assert own.listener == listener

    users: dict[str, Any] = {} if who is None else {"users": {**USERS, "victim": User("victim", HASH)}, "rules": RULES}
    run(main, config_of(secured, **users))


@pytest.mark.parametrize("listener", LISTENERS)
def test_without_users_other_machines_may_not(secured: Secured, listener: str) -> None:
    """A client from an address that is not loopback."""
    addresses = own_address()
    if not addresses:
        pytest.skip("this machine has no other address than loopback")

    async def main(server: Server) -> None:
        async with (
            connected(server, "stomp", secured, "victim"),
            connected(server, listener, secured, "anyone") as client,
        ):
            assert await refused(server, client) == dict.fromkeys(REQUESTS, "destination")
            assert len(server.peers) == 2

    run(main, config_of(secured, host=addresses[0]))
