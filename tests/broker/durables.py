"""What tests of durable subscriptions share."""

from __future__ import annotations

from typing import Any

from broker.harness import Bench, Peer

__all__ = ["NAME", "TOPIC", "client", "leave", "names", "subscribe"]

TOPIC = "/topic/a"
NAME = "durable-subscription-name"


def client(bench: Bench, client_id: str = "c", version: str = "1.2") -> Peer:
    """A connected peer with a client-id."""
    peer = bench.peer(version, connect=False)
    peer.connect(client_id=client_id)
    return peer


def subscribe(peer: Peer, name: str = "n", destination: str = TOPIC, id: str = "1", **headers: Any) -> None:
    peer.send("SUBSCRIBE", destination=destination, id=id, **{NAME: name}, **headers)


def names(bench: Bench) -> list[str]:
    """Of the durable subscriptions that there are."""
    return sorted(bench.broker.virtual_host("/").destinations.durables.by_name)


def leave(peer: Peer) -> None:
    """Go, politely."""
    peer.send("DISCONNECT", receipt="bye")
    peer.lose()
