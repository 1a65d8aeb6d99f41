"""Who may ask and order what, by each listener of a broker on sockets; and over WebSocket behind a proxy with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from broker.management.managing import FIELDS, check
from broker.sockets import run
from patience import patience

import stompcodec.client as stomp
from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.broker.config.config import Config
from stompcodec.broker.management.schema import REQUESTS
from stompcodec.broker.server import Server

pytest.importorskip("websockets")

LISTENERS = ("stomp", "tls", "ws", "wss")
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


@contextlib.asynccontextmanager
async def with_tls(host: str, port: int, path: str) -> AsyncIterator[int]:
    """A proxy with TLS in front of a port, which passes on bytes; its own port."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # also of TLS: some arrives while it closes
            while octets := await reader.read(65536):
                writer.write(octets)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.add(asyncio.current_task())
        there = await asyncio.open_connection(host, port, local_addr=(host, 0))
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    running: set[Any] = set()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    async with await asyncio.start_server(serve, host, 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*running)


@contextlib.asynccontextmanager
async def connected(
    server: Server, listener: str, secured: Secured, login: str | None = None
) -> AsyncIterator[stomp.AsyncClient]:
    """A client by a listener."""
    host = server.config.host
    async with contextlib.AsyncExitStack() as stack:
        port = {"stomp": server.port, "tls": server.tls_port}.get(listener, server.ws_port)
        assert port is not None
        if listener == "wss":
            port = await stack.enter_async_context(with_tls(host, port, secured.path))
        scheme = {"tls": "stomp+ssl"}.get(listener, listener)
        tls = secured.client if listener in ("tls", "wss") else None
        given: dict[str, Any] = {} if login is None else {"login": login, "passcode": "x"}
        yield await stack.enter_async_context(
            stomp.connect_async(f"{scheme}://{host}:{port}", ssl=tls, reconnect=None, **given)
        )


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
            assert own.listener == {"wss": "ws"}.get(listener, listener)

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


@pytest.mark.parametrize("how", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}])
@pytest.mark.parametrize("users", [False, True])
def test_pages_and_hosts_of_others_get_no_websocket(secured: Secured, how: dict[str, str], users: bool) -> None:
    """So they can ask nothing, whatever login they know."""

    async def main(server: Server) -> None:
        assert server.ws_port is not None
        async with with_tls("127.0.0.1", server.ws_port, secured.path) as port:
            for place, tls in ((server.ws_port, None), (port, secured.client)):
                head = {"Host": f"127.0.0.1:{place}", **UPGRADE, **how}
                lines = ["GET / HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
                reader, writer = await asyncio.open_connection("127.0.0.1", place, ssl=tls)
                writer.write("\r\n".join(lines).encode())
                assert (await asyncio.wait_for(reader.readline(), patience(20))).split()[1] == b"403"
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    given: dict[str, Any] = {"users": USERS, "rules": RULES} if users else {}
    run(main, config_of(secured, web_page=True, **given))


UPGRADE = {
    **{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"},
    **{"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": "v12.stomp"},
}
