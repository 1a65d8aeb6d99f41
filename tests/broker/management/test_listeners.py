"""Each listener of a broker on sockets knows who asks and orders."""

import json

import pytest
from broker.management.managing import FIELDS, check
from broker.sockets import served
from patience import patience

import stompcodec.client as stomp
from stompcodec.broker.auth import Rule, User, hash_passcode

pytest.importorskip("websockets")

HASH = hash_passcode("x", n=16)
USERS = {"users": {name: User(name, HASH) for name in ("ada", "eve")}, "rules": (Rule("ada", "manage"), Rule("*", "*"))}


@pytest.mark.parametrize("listener", ["stomp", "tls", "ws"])
@pytest.mark.parametrize(
    ("who", "config", "may"), [("ada", USERS, True), ("eve", USERS, False), ("near", {}, True), ("far", {}, False)]
)
def test_each_listener_knows_who_asks(certificate, own_addresses, listener, who, config, may):
    """With users, one that may manage and one that may not; without, one of this machine, and one from elsewhere."""
    if who == "far" and not own_addresses:
        pytest.skip("this machine has no other address than loopback")
    host = own_addresses[0] if who == "far" else "127.0.0.1"

    @served(host=host, ws_port=0, tls_port=0, tls_cert=certificate.both, **config)
    async def main(server):
        server.broker.virtual_host("/").destinations.queue("/queue/a")
        port = {"stomp": server.port, "tls": server.tls_port, "ws": server.ws_port}[listener]
        scheme, tls = ("stomp+ssl", certificate.trusting) if listener == "tls" else (listener, None)
        login = {"login": who, "passcode": "x"}
        async with stomp.connect_async(f"{scheme}://{host}:{port}", ssl=tls, reconnect=None, **login) as client:
            for name in ("sessions", "messages", "purge", "delete"):
                fields = json.dumps(FIELDS.get(name, {}))
                reply = await client.request(f"/management/{name}", fields, timeout=patience(20))
                answer = json.loads(reply.body)
                check(answer)
                assert answer.get("error", {}).get("field") == (None if may else "destination")
            assert [peer.listener for peer in server.peers.values()] == [listener]

    main()
