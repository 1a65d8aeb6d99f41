"""A peer that falls silent is noticed, whatever came before: over WebSocket a burst of tiny frames, for example."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time

import pytest
from client.broker import BrokerThread
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.io import hub
from stompcodec.testing.faults import FaultProxy

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
