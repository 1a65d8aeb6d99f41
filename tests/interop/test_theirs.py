"""What other people's brokers do their own way, and what our client makes of it: on the real ones."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

import pytest
from patience import patience

import stompcodec.client as stomp
from stompcodec.errors import RejectedError


@pytest.mark.peer("rabbitmq3", "rabbitmq4")
def test_a_message_that_is_not_persistent_leaves_the_queue_to_all(peer: Any) -> None:
    fresh, existing = f"/queue/{uuid4().hex}", f"/queue/{uuid4().hex}"
    with stomp.connect(peer.url, reconnect=None) as one, stomp.connect(peer.url, reconnect=None) as other:
        one.send(fresh, b"x", persistent=False, receipt=True)
        other.send(existing, b"1", receipt=True)
        one.send_many([(existing, b"2")], persistent=False)
        for name, count in ((fresh, 1), (existing, 2)):
            subscription = other.subscribe(name)
            assert all(subscription.get(patience(10)) is not None for _ in range(count))


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.peer("activemq6")
def test_an_error_does_not_end_the_session_of_activemq(peer: Any, version: str, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "stompcodec.client")
    name = f"/queue/{uuid4().hex}"
    with stomp.connect(peer.url, versions=[version]) as client:
        with pytest.raises(RejectedError):
            client.subscribe(name, selector="a !")
        client.send(name, b"x", receipt=True)  # on a new connection in 1.2, whose rules end it
        assert "the server ended" not in caplog.text
        assert ("the session ended with an ERROR of the server" in caplog.text) == (version == "1.2")


@pytest.mark.peer("activemq6")
def test_activemq_takes_the_group_out_of_messages(peer: Any) -> None:
    """So a `key` for handlers has to read another header."""
    name = f"/queue/{uuid4().hex}"
    with stomp.connect(peer.url) as client:
        client.send(name, b"x", {"JMSXGroupID": "g", "JMSXGroupSeq": "1", "group": "g"}, receipt=True)
        message = client.subscribe(name).get(patience(10))
        assert message is not None
        assert [message.get(key) for key in ("JMSXGroupID", "JMSXGroupSeq", "group")] == [None, None, "g"]
