"""The servers of scripts/peers: each starts, our client and it understand each other, and it ends with the tests."""

import importlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import uuid4

import peering
import pytest
from crash.process import BrokerProcess
from interop.taking import taken
from patience import patience

import stompcodec.client as stomp

NAMES = (
    *("activemq", "rabbitmq", "activemq5", "activemq6", "artemis", "artemis-plain", "rabbitmq3", "rabbitmq4"),
    *("spring", "vertx", "gostomp"),
)
#: Starts a server, says its ports, and waits.
_STARTS = """
import sys
from peers import Server
server = Server(sys.argv[1])
server.start()
print(*server.ports.values(), flush=True)
input()
"""


def _passes(url: str, row: Any, destination: str) -> None:
    """Send a message and get it, with every receipt that the server gives."""
    body = f"straße 🚀 {destination}"
    with stomp.connect(url) as client:
        assert client.dialect == row.dialect
        subscription = client.subscribe(destination, confirm="SUBSCRIBE" in row.receipts)
        message = None
        give_up = time.monotonic() + patience(30)
        while message is None and time.monotonic() < give_up:
            client.send(destination, body, receipt="SEND" in row.receipts)
            # A SUBSCRIBE without receipt may be slower than a SEND: then this one is sent again.
            message = subscription.get(patience(30) if "SUBSCRIBE" in row.receipts else 0.5)
        assert message is not None
        assert message.text() == body
        if "SEND" in row.receipts:
            assert [client.ping(), client.ping()] > [0, 0]
            client.send(destination, receipt=True)


@pytest.mark.peer(*NAMES)
def test_a_message_passes(peer: Any) -> None:
    for url in filter(None, dict.fromkeys((peer.url, peer.ws_url))):
        _passes(url, peer.row, peer.row.queue.format(uuid4().hex))


@pytest.mark.peer("spring", "activemq6")
def test_two_at_a_time(start_peer: Any) -> None:
    """Spring as a relay, which passes on the receipts of the broker behind it."""
    broker = start_peer("activemq6")
    relay = start_peer("spring", relay=str(broker.ports["stomp"]))
    assert relay is not start_peer("spring")
    with stomp.connect(relay.url) as near, stomp.connect(broker.url) as far:
        destination = f"/queue/{uuid4().hex}"
        near.send(destination, "through", receipt=True)
        assert taken(far.subscribe(destination), 30).text() == "through"


def _kept(server: Any, url: Callable[[], str]) -> list[str | None]:
    """Send to a durable subscription, kill the server and start it again. Return what is delivered then."""
    tag = uuid4().hex
    topic, durable = f"/topic/{tag}", {"durable": tag, "ack": "client-individual"}
    with stomp.connect(url(), client_id=tag) as client:
        client.subscribe(topic, **durable).unsubscribe()
        for body, headers in (("1", {"persistent": "true"}), ("2", {}), ("3", {"persistent": "true"})):
            client.send(topic, body, headers, receipt=True)
    server.kill()
    server.start()
    with stomp.connect(url(), client_id=tag) as client:
        subscription = client.subscribe(topic, **durable)
        client.send(topic, "last", {"persistent": "true"}, receipt=True)
        found = [taken(subscription, 30).text()]
        while found[-1] != "last":
            found.append(taken(subscription, 30).text())
    return found


@pytest.mark.peer("activemq5", "activemq6", "artemis", "rabbitmq3", "rabbitmq4")
def test_a_restart_keeps_of_a_durable_subscription_what_our_dialect_keeps(peer: Any, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, fields={"dialect": peer.row.dialect}) as ours:
        assert _kept(ours, lambda: f"stomp://127.0.0.1:{ours.port}") == ["1", "3", "last"]
    assert _kept(peer, lambda: peer.url) == ["1", "3", "last"]


def _open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.mark.peer("activemq6", "artemis", "rabbitmq4", "gostomp")
def test_it_ends_with_who_started_it(peer: Any, tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, [str(peering.FOLDER.parent), os.environ.get("PYTHONPATH")]))
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTS, peer.row.name],
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with starter:
        assert starter.stdout is not None
        ports = [int(word) for word in starter.stdout.readline().split()]
        assert [_open(port) for port in ports] == [True] * len(peer.row.ports)
        starter.kill()
    give_up = time.monotonic() + patience(30)
    while any(map(_open, ports)):
        assert time.monotonic() < give_up, "the server runs on"


# ---- without any server ----


@pytest.fixture
def peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return peering.load()


def test_ports_are_given_once(peers: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    number, lock = peers.server._reserve()
    monkeypatch.setattr(peers.server, "_PORTS", range(number, number + 1))
    with pytest.raises(peers.PeerError, match=f"none of the ports from {number} to {number} is free"):
        peers.server._reserve()
    lock.close()
    with socket.create_server(("127.0.0.1", number)), pytest.raises(peers.PeerError):
        peers.server._reserve()
    again, lock = peers.server._reserve()
    lock.close()
    assert again == number


@pytest.mark.skipif(sys.platform != "linux", reason="the servers run on Linux only")
@pytest.mark.parametrize(("script", "why"), [("echo the reason; exit 3", "ended"), ("exec sleep 60", "did not answer")])
def test_what_does_not_start_shows_its_log(peers, monkeypatch, tmp_path, script, why):
    monkeypatch.setattr(peers.server, "fetch", lambda row, say: None)
    monkeypatch.setitem(peers.server._COMMANDS, "go", lambda server: (["sh", "-c", script], {}))
    # A limit that is over: a server that runs is looked at once.
    server = peers.Server("gostomp", folder=tmp_path / "data", limit=patience(60) if why == "ended" else 0.0)
    with pytest.raises(peers.PeerError, match=f"^gostomp {why}; the end of its log:") as error:
        server.start()
    assert ("the reason" in str(error.value)) == (why == "ended")
    assert not server.running
    server.close()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"first": [0, 1]}, "queue: 1 lost, as [2]"),
        ({"first": [0, 2, 1]}, "queue: 1 out of order, as [(2, 1)]"),
        ({"first": [0, 1, 2, 3]}, None),  # of unknown outcome, and it came
        ({"after_ack": 1}, "queue: 1 came again after the RECEIPT of their ACK"),
        ({"answered": 4}, "requests: 0 wrong answers, 1 unanswered"),
        ({"wrong": 1}, "requests: 1 wrong answers, 0 unanswered"),
    ],
)
def test_kill_peers_finds_what_was_lost_came_again_or_out_of_order(peers, monkeypatch, change, problem):
    monkeypatch.syspath_prepend(peering.FOLDER.parent)
    work = importlib.import_module("kill_peers").Work("stomp://127.0.0.1:1")
    for kind in ("queue", "durable"):
        work.receipted[kind], work.first[kind] = {0, 1, 2}, [0, 1, 2]
    work.asked = work.answered = 5
    for name, value in change.items():
        if isinstance(value, list) or name == "after_ack":
            getattr(work, name)["queue"] = value
        else:
            setattr(work, name, value)
    work.judge()
    assert work.problems == ([] if problem is None else [problem])
