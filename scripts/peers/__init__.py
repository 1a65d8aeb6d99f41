"""Other people's STOMP servers, started on the loopback interface for tests: `python scripts/peers --help`.

    with Server("activemq6") as server:
        client = stompcodec.client.connect(server.url)

`table` says what there is, `fetching` brings it from Maven, Debian or Go's proxy, `server` starts and kills it.
"""

from __future__ import annotations

from peers.fetching import PeerError, fetch, is_fetched, missing
from peers.server import Server
from peers.table import PEERS, Peer

__all__ = ["PEERS", "Peer", "PeerError", "Server", "fetch", "is_fetched", "missing"]
