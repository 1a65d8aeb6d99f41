"""`is_alive`: what a probe is told, with both shells, and in the core."""

from __future__ import annotations

import os
import threading
import time

import pytest
from client.scripted import Scripted
from client.shells import QUICK
from patience import patience

from stompcodec.client.link import health_of


def test_only_a_client_with_a_session_is_alive(shell, peer):
    lost = threading.Event()
    client = shell.connect(
        peer.url, reconnect=QUICK, on_state=lambda state, error: lost.set() if state == "reconnecting" else None
    )
    health = client.is_alive()
    assert health
    assert (health.alive, health.state, health.outstanding, health.reconnecting_since) == (True, "connected", 0, None)
    assert 0 <= health.last_received < patience(10)
    started = time.monotonic()
    peer.stop()
    assert lost.wait(patience(10))
    health = client.is_alive()
    assert (bool(health), health.state) == (False, "reconnecting")
    assert 0 <= health.reconnecting_since <= time.monotonic() - started
    client.close()
    health = client.is_alive()
    assert (bool(health), health.state, health.reconnecting_since) == (False, "closed", None)


@pytest.fixture
def client():
    return Scripted(heart_beat=(0, 1000), server_beat=(1000, 0)).connect()


def health(client, running=True):
    return health_of(client.core.link, client.now, running)


def test_bytes_of_any_kind_are_received(client):
    client.wait(2.0)
    before = health(client).last_received
    client.core.inbound.receive(b"\n", client.now)
    assert (before >= 2.0, health(client).last_received) == (True, 0.0)


def test_a_loss_is_dated_until_the_session_is_back(client):
    client.core.link.lost(None, client.now)
    at = client.now
    client.now += 7.5
    assert health(client).reconnecting_since == client.now - at == 7.5
    client.connect()
    assert health(client).reconnecting_since is None
    assert health(client)


def test_frames_that_wait_and_calls_without_an_answer_are_outstanding(client):
    core = client.core
    call = client.send(receipt=True)
    assert health(client).outstanding == 1
    core.link.writable(False)
    client.send()
    assert health(client).outstanding == 2
    core.link.finish(call)
    assert health(client).outstanding == 1


def test_a_client_whose_thread_is_gone_or_late_is_not_alive(client):
    assert not health(client, running=False)
    due = client.core.link.next_deadline()
    client.now = due + 5.0
    assert health(client)
    client.now = due + 5.001
    assert not health(client)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_copy_is_not_alive(peer):
    import stompcodec.client as stomp

    with stomp.connect(peer.url, connect_timeout=patience(10)) as client:
        child = os.fork()
        if child == 0:
            os._exit(0 if not client.is_alive() and client.is_alive().state == "closed" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert client.is_alive()
