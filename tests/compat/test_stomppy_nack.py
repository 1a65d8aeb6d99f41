"""NACK from stomp.py: it is sent as before, and a broker that drops the message is named once."""

import logging

import pytest
from client.peer import Peer
from compat.stomppy_peer import compat, needs_stomppy

pytestmark = needs_stomppy


@pytest.mark.parametrize(
    ("server", "warnings"), [("ActiveMQ-Artemis/2.40.0", 1), ("vertx-stomp/5.0.7", 1), ("ActiveMQ/6.3.1", 0)]
)
def test_nack_is_sent_and_a_broker_that_drops_the_message_is_named_once(server, warnings, caplog, monkeypatch):
    monkeypatch.setattr("stompcodec.compat.nacks._warned", set())
    with Peer(server=server, heart_beat=(0, 0)) as peer, caplog.at_level(logging.WARNING, "stomp.py"):
        peer.rules |= {"STOMP": peer.on_connect, "NACK": lambda side, frame: None}
        for _ in range(2):
            connection = compat.Connection12([("127.0.0.1", peer.port)])
            connection.connect(wait=True)
            for number in ("1", "2"):
                connection.nack(number)
            connection.disconnect()
        peer.wait(lambda peer: len(peer.got("NACK")) == 4)
        assert sorted(frame.headers["id"] for frame in peer.got("NACK")) == ["1", "1", "2", "2"]
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("NACK: ")]
    assert len(said) == warnings
    assert all("drops the message" in each for each in said)
