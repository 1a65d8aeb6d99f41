"""The table of values that a broker does not take, each asked of the real broker."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from client.test_sent_on import ACTIVEMQ, ARTEMIS
from patience import patience

import stompcodec.client as stomp
from stompcodec.errors import StompError

TABLES = {"artemis": ARTEMIS, "activemq6": ACTIVEMQ}


@pytest.mark.peer("artemis", "activemq6")
def test_the_broker_loses_what_the_client_refuses_and_takes_what_it_sends(peer: Any) -> None:
    with stomp.connect(peer.url) as taker:
        for name, (lost, taken) in TABLES[peer.row.name].items():
            for value in lost + taken:
                queue = f"/queue/values-{uuid.uuid4().hex[:12]}"
                destination, headers = (value, {}) if name == "destination" else (queue, {name: value})
                subscription = taker.subscribe(queue)
                # Not by its own dialect, so that the client does not judge.
                options: Any = {"dialect": "stompcodec", "reconnect": None, "receipt_timeout": patience(10)}
                with stomp.connect(peer.url, **options) as client:
                    try:
                        client.send(destination, b"asked", headers, receipt=True)
                        is_sent = True
                    except StompError:
                        is_sent = False
                taker.send(queue, b"end", receipt=True)
                message = subscription.get(patience(20))
                assert message is not None
                came = destination != queue or message.body == b"asked"
                if headers != {"destination-type": "MULTICAST"}:  # which is another destination
                    assert (is_sent and came) is (value in taken), (name, value, is_sent)
                subscription.unsubscribe()
