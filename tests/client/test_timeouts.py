"""Time-outs and intervals of any size, the silence of a peer, and what a probe is told."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from client.scripted import Scripted
from client.shells import QUICK
from patience import patience

import stompcodec.client as stomp
from stompcodec.client import hub
from stompcodec.client.link import health_of
from stompcodec.testing import StompBroker
from stompcodec.testing.faults import FaultProxy

#: Beyond what `poll` takes (24.8 days), what locks take (292 years), and what a float holds.
LONG = [3e8, 1e10, 1e300, math.inf]


@pytest.fixture(scope="module")
def broker():
    with StompBroker() as broker:
        yield broker


@pytest.mark.parametrize("timeout", LONG)
def test_a_very_long_timeout_works(shell, broker, timeout):
    async def passcode():
        return "x"

    names = ("startup_timeout", "connect_timeout", "receipt_timeout", "close_timeout")
    credentials = {"login": lambda: "ann", "passcode": passcode if shell.name == "async" else "x"}
    client = shell.connect(broker.url, heart_beat=(0, 0), **credentials, **dict.fromkeys(names, timeout))
    client.send("/queue/long", b"1", receipt=True, timeout=timeout)
    client.send_many([("/queue/long", b"2")], timeout=timeout)
    subscription = client.subscribe("/queue/long", ack="client-individual", timeout=timeout)
    for body in (b"1", b"2"):
        message = subscription.get(timeout)
        assert message.body == body
        message.ack(receipt=True, timeout=timeout)
    client.ping(timeout)
    subscription.unsubscribe(timeout=timeout)
    subscription.join(timeout)
    client.drain(timeout)
    client.close(timeout)


@pytest.mark.parametrize("timeout", [0, -1, -6, -math.inf, -1e300])
def test_a_timeout_that_has_passed_is_over_at_once(shell, timeout):
    with Peer(rules={"SEND": lambda side, frame: None}) as peer:
        client = shell.connect(peer.url)
        with pytest.raises(stomp.ReceiptTimeoutError):
            client.send("/queue/past", receipt=True, timeout=timeout)
        with client.subscribe("/queue/nothing") as subscription:
            assert subscription.get(timeout) is None
        client.ping()
        client.close()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *(
            (name, [math.nan, -1, 10**400])
            for name in ("startup_timeout", "connect_timeout", "receipt_timeout", "close_timeout")
        ),
        (
            "heart_beat",
            [(-1, 0), (0, -1), (math.nan, 0), (math.inf, 0), (1.5, 0), (2**63, 0), (0, 10**400), (1000,)],
        ),
    ],
)
def test_an_option_that_is_no_time_is_refused_by_name(name, values):
    for value in values:
        with pytest.raises(ValueError, match=name):
            stomp.Options(**{name: value})


# ---- silence ----

BURST = 5000
each_scheme = pytest.mark.parametrize("scheme", ["ws", "stomp"])


def started(folder):
    """A broker in a process of its own, and its ports."""
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "stompcodec", "broker", "--memory", "--port", "0", "--ws-port", "0"]
    process = subprocess.Popen([*command, "--ready-file", ready, "--log-level", "error"], cwd=folder)
    until = time.monotonic() + patience(10)
    while not ready.exists():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    return process, json.loads(ready.read_text())


@pytest.mark.slow
@each_scheme
def test_a_black_hole_after_a_burst_is_noticed(tmp_path, scheme):
    """Real processes; on a machine that has been up for long, the silence would be excused for as long."""
    process, ports = started(tmp_path)
    port, ended = ports["ws_port" if scheme == "ws" else "port"], threading.Event()
    try:
        with stomp.connect(f"stomp://127.0.0.1:{ports['port']}") as producer, FaultProxy(("127.0.0.1", port)) as proxy:
            producer.send_many([("/queue/a", b"x")] * BURST)
            client = stomp.connect(
                f"{scheme}://127.0.0.1:{proxy.port}",
                heart_beat=(200, 200),
                reconnect=None,
                on_state=lambda state, _: state == "closed" and ended.set(),
            )
            subscription = client.subscribe("/queue/a")
            for _ in range(BURST):
                assert subscription.get(patience(10)) is not None
            proxy.rules.down.swallow = True  # the broker goes on hearing the client
            assert ended.wait(patience(6))
            assert "silent" in str(client.error)
            client.close()
    finally:
        process.terminate()
        process.wait(patience(10))


@each_scheme
def test_no_deadline_of_the_hub_lies_before_the_client(monkeypatch, scheme):
    """Each time for which the client waits is one of the clock, also in the middle of a burst."""
    began, times = time.monotonic(), []
    go_on = hub.Task.go_on

    def watched(task):
        going_on = go_on(task)
        times.append(task.due)
        return going_on

    monkeypatch.setattr(hub.Task, "go_on", watched)
    with BrokerThread(ws_port=0) as broker, FaultProxy(("127.0.0.1", 0)) as proxy:
        proxy.upstream = ("127.0.0.1", broker.ws_port if scheme == "ws" else broker.port)
        with stomp.connect(broker.url) as producer:
            producer.send_many([("/queue/a", b"x")] * 3000)
        url = f"{scheme}://127.0.0.1:{proxy.port}"
        with stomp.connect(url, heart_beat=(20_000, 20_000), inbox_messages=500, startup_timeout=10) as client:
            subscription = client.subscribe("/queue/a")
            for _ in range(3000):
                assert subscription.get(patience(10)) is not None
            proxy.cut()
            client.send("/queue/b", b"x", receipt=True, resend=True)
            connection = client._link.core.link.connection
            assert connection._heard <= time.monotonic()
    assert all(due is None or began <= due < math.inf for due in times)


# ---- is_alive ----


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


def test_frames_that_wait_and_calls_without_an_answer_are_outstanding(client):
    core = client.core
    call = client.send(receipt=True)
    assert health(client).outstanding == 1
    core.link.writable(False)
    client.send()
    assert health(client).outstanding == 2
    core.link.finish(call)
    assert health(client).outstanding == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_copy_is_not_alive(peer):
    with stomp.connect(peer.url, connect_timeout=patience(10)) as client:
        child = os.fork()
        if child == 0:
            os._exit(0 if not client.is_alive() and client.is_alive().state == "closed" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert client.is_alive()
