"""What the WebSocket port says to plain HTTP requests, and to whom."""

import asyncio
import json

import pytest
from broker.sockets import served, until
from broker.web.asking import CONFIG, WITH_USERS, get, login

from stompcodec.broker.web import site as page_module

pytest.importorskip("websockets")
pytest.importorskip("prometheus_client")
PATHS = ("/healthz", "/readyz", "/metrics", "/", "/none")
#: Caller -> the headers, and what is answered to a request for metrics where there are users.
CALLERS = {
    **{"anonymous": ({}, 401), "user": (login("eve"), 403), "manager": (login("ada"), 200)},
    **{"manager by token": (login("ada", scheme="Bearer"), 200), "wrong passcode": (login("ada", "y"), 401)},
    **{"nonsense": ({"Authorization": "Basic §"}, 401), "other scheme": (login("ada", scheme="Digest"), 401)},
}
#: Headers with which a request is refused whoever sends it.
FOREIGN = {
    **{"foreign origin": {"Origin": "http://evil.example"}, "no origin": {"Origin": "null"}},
    "foreign host": {"Host": "evil.example"},
    "foreign host and its origin": {"Host": "evil.example", "Origin": "http://evil.example"},
    "proxy": {"X-Forwarded-For": "192.0.2.1"},
}


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_who_may_see_what(path, users):
    @served(WITH_USERS if users else CONFIG)
    async def main(server):
        own = {"Origin": f"http://localhost:{server.ws_port}"}
        for caller, (headers, metrics) in CALLERS.items():
            reply = await get(server, path, **headers)
            # without users, any login is accepted
            wanted = 404 if path == "/none" else metrics if users and path == "/metrics" else 200
            assert reply.status == wanted, (path, caller)
            assert reply.headers["cache-control"] == "no-store"
            assert reply.headers.get("www-authenticate", "")[:6] == ("Basic " if reply.status == 401 else "")
            assert (await get(server, path, **headers, **own)).status == wanted, (path, caller)
        for how, more in FOREIGN.items():
            for caller in ("anonymous", "manager"):
                assert (await get(server, path, **CALLERS[caller][0], **more)).status == 403, (path, caller, how)
        assert server.broker.stats.sessions_refused == (2 if users and path == "/metrics" else 0), "wrong passcodes"

    main()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE"])
@served(CONFIG)
async def test_only_get_is_served(server, method):
    for path in PATHS:
        reply = await get(server, path, method, **({"Content_Length": "3"} if path == "/healthz" else {}))
        assert (reply.status, reply.headers.get("allow")) == ((404, None) if path == "/none" else (405, "GET"))


@served(CONFIG)
async def test_the_page_lets_nothing_else_in(server):
    reply = await get(server, "/")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["content-security-policy"] == page_module.policy_of(reply.body.decode())
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert reply.headers["x-frame-options"] == "DENY"


@served(CONFIG)
async def test_connections_count_until_they_are_closed(server):
    account = server.broker.account
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ws_port)
    await until(lambda: account.used > 30_000)
    fixed = account.fixed
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"ok" in await reader.read()
    assert account.fixed == fixed
    writer.close()
    await until(lambda: account.used == account.fixed == 0)
    account.most_fixed = 1000
    assert (await get(server, "/healthz")).status == 503


@served(CONFIG)
async def test_health_is_told_when_memory_has_run_out(server):
    """A broker that is full is alive: it must not be restarted for that."""
    account = server.broker.account
    more = account.second - account.used + 1
    account.used += more
    replies = [await get(server, path) for path in ("/healthz", "/readyz", "/metrics")]
    account.used -= more
    assert [reply.status for reply in replies] == [200, 503, 503]


async def order(server, **headers):
    """The field that the answer of a purge over WebSocket names: "" if it was carried out."""
    from websockets.asyncio.client import connect

    server.broker.virtual_host("/").destinations.queue("/queue/a")
    server.broker._idle_at = float("inf")  # else the first sweep, after a second, removes it: it is idle
    origin, url = headers.pop("Origin", None), f"ws://localhost:{server.ws_port}/"
    async with connect(url, origin=origin, additional_headers=headers, subprotocols=["v12.stomp"]) as socket:
        await socket.send("CONNECT\naccept-version:1.2\nhost:/\nlogin:ada\npasscode:x\n\n\0")
        await socket.recv()
        await socket.send("SUBSCRIBE\nid:1\ndestination:/temp-queue/a\n\n\0")
        body = '{"destination":"/queue/a"}'
        await socket.send(f"SEND\ndestination:/management/purge\nreply-to:/temp-queue/a\n\n{body}\0")
        text = await socket.recv()
        octets = text.encode() if isinstance(text, str) else text
        return json.loads(octets.partition(b"\n\n")[2].rstrip(b"\0\n")).get("error", {}).get("field", "")


@pytest.mark.parametrize("users", [False, True])
def test_without_users_only_the_own_page_manages(users):
    listed = "http://app.example"

    @served(WITH_USERS if users else CONFIG, ws_origins=(listed,))
    async def main(server):
        assert await order(server) == ""
        for origin, allowed in ((f"http://localhost:{server.ws_port}", True), (listed, users)):
            assert await order(server, Origin=origin) == ("" if allowed else "destination")
            reply = await get(server, "/metrics", Origin=origin, **login("ada"))
            assert reply.status == (200 if allowed else 403)
            assert (await get(server, "/healthz", Origin=origin)).status == 200

    main()
