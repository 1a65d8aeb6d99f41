"""What a consumer gives back without a try is no attempt: UNSUBSCRIBE and DISCONNECT, unlike a lost connection."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker.harness import Bench, Peer

ENDS: dict[str, tuple[Callable[[Peer], object], int]] = {
    "UNSUBSCRIBE": (lambda peer: peer.send("UNSUBSCRIBE", id="1"), 1),
    "DISCONNECT": (lambda peer: peer.send("DISCONNECT", receipt="r"), 1),
    "a lost connection": (Peer.lose, 10),
}


@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("end", ENDS)
def test_a_worker_that_starts_again_and_again(end: str, persistent: str) -> None:
    bench = Bench()
    leave, wanted = ENDS[end]
    bench.peer().put("/queue/a", "x", persistent=persistent)
    for _ in range(10):
        peer = bench.peer()
        peer.subscribe("/queue/a", ack="client-individual")
        leave(peer)
    peer = bench.peer()
    peer.subscribe("/queue/a", ack="client-individual")
    message = peer.next("MESSAGE")
    assert message.get("redelivered") == "true"
    assert message.get("redelivery-count") == str(wanted)


def test_what_failed_before_keeps_its_count() -> None:
    bench = Bench()
    peer = bench.peer()
    peer.put("/queue/a", "x")
    peer.subscribe("/queue/a", ack="client-individual")
    for _ in range(3):
        peer.nack(peer.next("MESSAGE"))
    peer.take()
    peer.send("DISCONNECT")
    other = bench.peer()
    other.subscribe("/queue/a", ack="client-individual")
    assert other.next("MESSAGE").get("redelivery-count") == "3"
