"""Bridges from brokers that give a message another message-id each time: what comes again is stored once."""

from __future__ import annotations

import pytest
from bridge.running import Running, carry, fill, request, take_all
from client.test_identity import as_artemis


@pytest.mark.parametrize("later", [0, 60_000], ids=["the same journal", "a new journal"])
def test_a_message_of_artemis_is_stored_once(one, other, later):
    """The ACKs of the first bridge are lost, and a second one gets the messages. Of a new journal they are others."""
    as_artemis(one)
    fill(one.url, "/queue/a", 5)
    one.faults.lose("ACK", times=None)
    with Running(one.url, other.url, request("/queue/a")) as running:
        other.wait_queued("/queue/a", 5)
    assert running.tally.carried == 5
    one.wait_disconnected()
    as_artemis(one, 1795935891986 + later)
    assert carry(one.url, other.url, "/queue/a", way={"idle": 0.1}).again == 0
    assert one.queued("/queue/a") == 0
    bodies = [message.body for message in take_all(other.url, "/queue/a")]
    assert bodies == [b"%d" % number for number in range(5)] * (2 if later else 1)
