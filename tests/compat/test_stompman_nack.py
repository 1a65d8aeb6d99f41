"""NACK from stompman: it is sent as before, and a broker that drops the message is named once."""

import asyncio
import logging
from contextlib import ExitStack

import pytest
from client.peer import Peer
from patience import patience

stompman = pytest.importorskip(
    "stompman", reason="stompman is not installed: pip install stompman", exc_type=ImportError
)

from stompcodec.compat import stompman as ours

ARTEMIS = "ActiveMQ-Artemis/2.40.0"


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize(("server", "warnings"), [(ARTEMIS, 1), ("vertx-stomp/5.0.7", 1), ("ActiveMQ/6.3.1", 0)])
def test_nack_is_sent_and_a_broker_that_drops_the_message_is_named_once(
    server, warnings, installed, caplog, monkeypatch
):
    monkeypatch.setattr("stompcodec.compat.nacks._warned", set())

    async def work(port):
        servers = [stompman.ConnectionParameters("127.0.0.1", port, "a", "b")]
        options = {} if installed else {"connection_class": ours.Connection}
        for _ in range(2):
            async with stompman.Client(servers, **options) as client:
                for number in ("1", "2"):
                    frame = stompman.NackFrame(headers={"id": number, "subscription": "s"})
                    await client._connection_manager.maybe_write_frame(frame)

    with ExitStack() as stack:
        peer = stack.enter_context(Peer(server=server, heart_beat=(0, 0)))
        peer.rules["NACK"] = lambda side, frame: None
        if installed:
            stack.enter_context(ours.install())
        stack.enter_context(caplog.at_level(logging.WARNING, "stompman"))
        asyncio.run(asyncio.wait_for(work(peer.port), patience(30)))
        peer.wait(lambda peer: len(peer.got("NACK")) == 4)
        assert sorted(frame.headers["id"] for frame in peer.got("NACK")) == ["1", "1", "2", "2"]
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("NACK: ")]
    assert len(said) == warnings
    assert all("drops the message" in each for each in said)
