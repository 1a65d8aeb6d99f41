"""Shares: how many destinations a session and a user may make, so that others can make some, too."""

import contextlib
import socket

import pytest
from broker.harness import Bench
from broker.moves import refusal
from broker.sockets import connect_frame
from crash.process import BrokerProcess
from patience import patience

from stompcodec.broker.auth import User, hash_passcode

USERS = {"users": {name: User(name, hash_passcode("x")) for name in ("ada", "bob")}}


def login(bench, user="", address="10.0.0.1:1", **headers):
    return bench.client(address=address, **({"login": user, "passcode": "x"} if user else {}), **headers)


def make(peer, kind, number):
    if kind == "durable":
        peer.subscribe("/topic/all", f"d{number}", durable="true")
    elif kind == "queue":
        peer.put(f"/queue/{number}", "x")
    else:
        peer.subscribe(f"/{kind}/{number}", f"{number}")
    if peer.closed:
        assert refusal(peer) == "too many destinations"
        return False
    return True


@pytest.mark.parametrize("kind", ["queue", "topic", "durable", "temp-queue", "temp-topic"])
@pytest.mark.parametrize("whose", ["session", "user"])
def test_the_share(kind, whose):
    """At the limit and one past it: of a session, and of a user over all sessions."""
    config = {"user_destinations": 7, **USERS} if whose == "user" else {"session_destinations": 7}
    bench = Bench(**{"max_destinations": 100, "user_destinations": 20, **config})
    most = 7 - (kind == "durable")  # the topic of the durable ones
    peer = login(bench, "ada" if whose == "user" else "")
    made = []
    for number in range(most + 1):
        made.append(make(peer, kind, f"a{number}"))
        if whose == "user":
            peer = login(bench, "ada", f"10.0.0.{number}:1")
    assert made == [True] * most + [False]
    assert make(login(bench, "bob" if whose == "user" else ""), kind, "b")


def test_a_durable_subscription_counts_to_its_user_over_a_restart():
    config = {"max_destinations": 100, "user_destinations": 4, **USERS}
    bench = Bench(**config)
    peer = login(bench, "ada", client_id="c")
    for number in range(3):
        peer.subscribe("/topic/all", f"d{number}", durable_subscriber_name=f"n{number}")
    bench.broker.stop(bench.now)
    bench.turn()
    bench = Bench(bench.store, **config)
    assert not make(login(bench, "ada"), "queue", "a") or not make(login(bench, "ada"), "queue", "b")
    assert make(login(bench, "bob"), "queue", "b2")
    bench.audit()


@pytest.mark.long
def test_twelve_thousand_queues_by_one_client_leave_room(tmp_path):
    pytest.importorskip("click")
    with BrokerProcess(tmp_path, memory=True) as broker, contextlib.ExitStack() as stack:
        address = "127.0.0.1", broker.port
        greedy, other = (stack.enter_context(socket.create_connection(address, patience(30))) for _ in range(2))
        for wire in (greedy, other):
            wire.sendall(connect_frame())
            assert wire.recv(65536).startswith(b"CONNECTED")
        with contextlib.suppress(OSError):  # it is closed in the middle
            greedy.sendall(b"".join(b"SEND\ndestination:/queue/%d\n\nx\0" % number for number in range(12_000)))
        assert b"message:too many destinations" in greedy.recv(65536)
        for number in range(100):
            other.sendall(b"SEND\ndestination:/queue/other-%d\nreceipt:r\n\nx\0" % number)
            assert other.recv(65536).startswith(b"RECEIPT")
