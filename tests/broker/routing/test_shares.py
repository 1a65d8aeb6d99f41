"""Shares: how many destinations a session and a user may make, so that others can make some, too."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

import pytest
from broker.harness import Bench, Peer
from crash.process import BrokerProcess

from stompcodec.broker.auth import User, hash_passcode

PASSCODE = hash_passcode("x")
USERS = {"users": {name: User(name, PASSCODE) for name in ("ada", "bob")}}
KINDS = ["queue", "topic", "durable", "temp-queue", "temp-topic"]


def login(bench: Bench, user: str = "", address: str = "10.0.0.1:1", **headers: str) -> Peer:
    peer = bench.peer(connect=False, peer=address)
    who = {"login": user, "passcode": "x"} if user else {}
    peer.connect(**who, **headers)
    return peer


def make(peer: Peer, kind: str, number: Any) -> bool:
    """Make a destination that stays as long as the session. False: it is refused."""
    if kind == "durable":
        peer.subscribe("/topic/all", f"d{number}", durable="true")
    elif kind == "queue":
        peer.put(f"/queue/{number}", "x")
    else:
        peer.subscribe(f"/{kind}/{number}", f"{number}")
    if not peer.closed:
        return True
    assert peer.error().headers["message"] == "too many destinations"
    return False


def count(bench: Bench) -> int:
    shares = bench.broker.virtual_host("/").destinations.shares
    found = bench.broker.virtual_host("/")
    assert shares.count == len(found.queues) + len(found.topics) + len(found.destinations.durables)
    return shares.count


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("whose", ["session", "user"])
def test_the_share(kind: str, whose: str) -> None:
    """At the limit and one past it: of a session, and of a user over all sessions."""
    config = {"user_destinations": 7, **USERS} if whose == "user" else {"session_destinations": 7}
    bench = Bench(**{"max_destinations": 100, "user_destinations": 20, **config})
    first = kind == "durable"  # the topic of the durable ones
    peer = login(bench, "ada" if whose == "user" else "")
    made = []
    for number in range(8 - first):
        made.append(make(peer, kind, f"a{number}"))
        if whose == "user":
            peer = login(bench, "ada", f"10.0.0.{number}:1")
    assert made == [True] * (7 - first) + [False]
    assert make(login(bench, "bob" if whose == "user" else ""), kind, "b")


def test_all_together_keep_to_their_bound() -> None:
    bench = Bench(max_destinations=10, session_destinations=10, user_destinations=20)
    peer, other = login(bench), login(bench)
    assert [make(peer, "queue", number) for number in range(10)] == [True] * 10
    assert not make(other, "queue", "b")


def test_by_default_half_is_for_others() -> None:
    for more in ({}, USERS):
        bench = Bench(max_destinations=20, **more)
        user = "ada" if more else ""
        peer = login(bench, user)
        assert [make(peer, "queue", number) for number in range(11)] == [True] * 10 + [False]
        other = login(bench, "bob" if more else "", "10.0.0.2:1")
        assert [make(other, "queue", f"b{number}") for number in range(10)] == [True] * 10


@pytest.mark.parametrize("end", ["lose", "disconnect"])
def test_who_comes_again_has_no_new_share(end: str) -> None:
    """Without users: all that the sessions of an address made counts to that."""
    bench = Bench(max_destinations=100, session_destinations=4, user_destinations=6)
    made = 0
    for turn in range(5):
        peer = login(bench, address=f"10.0.0.1:{turn}")
        for number in range(4):
            if not peer.closed:
                made += make(peer, "queue", f"{turn}-{number}")
        if not peer.closed and end == "disconnect":
            peer.send("DISCONNECT")
        peer.lose()
    assert made == count(bench) == 6
    assert make(login(bench, address="10.0.0.2:1"), "queue", "other")
    consumer = login(bench, address="10.0.0.3:1")
    for number in range(4):  # as they go, the share is free again
        consumer.subscribe(f"/queue/0-{number}", str(number))
        consumer.send("UNSUBSCRIBE", id=str(number))
    bench.wait(40)
    again = login(bench, address="10.0.0.1:9")
    assert [make(again, "queue", f"again-{number}") for number in range(5)] == [True] * 4 + [False]
    assert count(bench) == 2 + 4 + 1


def test_without_users_one_address_leaves_a_quarter() -> None:
    bench = Bench(max_destinations=20)
    peers = [login(bench, address=f"10.0.0.1:{number}") for number in range(4)]
    tries = [(peer, f"{at}-{number}") for at, peer in enumerate(peers) for number in range(5)]
    assert sum(make(peer, "queue", name) for peer, name in tries if not peer.closed) == 15
    assert not make(login(bench, address="10.0.0.1:9"), "queue", "b")
    other = login(bench, address="10.0.0.2:1")
    assert [make(other, "queue", f"c{number}") for number in range(6)] == [True] * 5 + [False]


def test_what_a_user_left_behind_counts_until_it_goes() -> None:
    bench = Bench(max_destinations=100, user_destinations=3, **USERS)
    peer = login(bench, "ada")
    assert [make(peer, "queue", number) for number in range(3)] == [True] * 3
    peer.lose()
    assert not make(login(bench, "ada"), "queue", "4")
    login(bench, "bob").subscribe("/queue/0")
    bench.wait(40)
    assert make(login(bench, "ada"), "queue", "5") is False  # bob has the queue now, but did not make it
    for consumer in [peer for peer in bench.peers.values() if not peer.closed]:
        consumer.lose()
    bench.wait(40)
    assert make(login(bench, "ada"), "queue", "6")


def test_idle_destinations_make_room_in_a_share() -> None:
    bench = Bench(max_destinations=100, session_destinations=3)
    peer = login(bench)
    for number in range(50):
        peer.subscribe(f"/queue/{number}", "1")
        peer.send("UNSUBSCRIBE", id="1")
    assert not peer.closed


def test_a_dead_letter_queue_counts_to_who_made_the_queue() -> None:
    bench = Bench(max_destinations=100, session_destinations=2, user_destinations=9, max_attempts=1)
    peer, worker = login(bench), login(bench)
    peer.put("/queue/a", "x")
    worker.subscribe("/queue/a", ack="client-individual")
    worker.nack(worker.next("MESSAGE"))
    assert not make(peer, "queue", "b")
    assert make(worker, "queue", "b")


def test_topics_that_only_a_pattern_asks_for_count_to_their_sender() -> None:
    bench = Bench(max_destinations=100, session_destinations=5, wildcards="activemq")
    listener, sender = login(bench), login(bench)
    listener.subscribe("/topic/a.>")
    for number in range(5):
        sender.put(f"/topic/a.{number}")
    assert not sender.closed
    assert count(bench) == 5
    bench.wait(40)
    assert count(bench) == 0


def test_a_durable_subscription_counts_to_its_user_over_a_restart() -> None:
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


def test_nothing_is_remembered_of_those_who_have_gone() -> None:
    bench = Bench()
    for number in range(50):
        peer = login(bench, address=f"10.0.0.{number}:1")
        peer.subscribe("/topic/a")
        peer.put("/topic/a")
        peer.put("/queue/x")
        peer.lose()
    consumer = login(bench, address="10.0.1.1:1")
    consumer.subscribe("/queue/x")
    consumer.lose()
    bench.wait(70)
    shares = bench.broker.virtual_host("/").destinations.shares
    assert (count(bench), shares._owners) == (0, {})


@pytest.mark.long
def test_twelve_thousand_queues_by_one_client_leave_room(tmp_path: Path) -> None:
    pytest.importorskip("click")
    with BrokerProcess(tmp_path, memory=True) as broker, contextlib.ExitStack() as stack:

        def connect() -> socket.socket:
            wire = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 30))
            wire.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0")
            assert wire.recv(65536).startswith(b"CONNECTED")
            return wire

        greedy = connect()
        with contextlib.suppress(OSError):  # it is closed in the middle
            greedy.sendall(b"".join(b"SEND\ndestination:/queue/%d\n\nx\0" % number for number in range(12_000)))
        assert b"message:too many destinations" in greedy.recv(65536)
        other = connect()
        for number in range(100):
            other.sendall(b"SEND\ndestination:/queue/other-%d\nreceipt:r\n\nx\0" % number)
            assert other.recv(65536).startswith(b"RECEIPT")
