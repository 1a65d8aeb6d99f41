"""No user, no address and no crowd before the login holds all connections of a broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest
from broker.harness import Bench
from patience import patience

import stompcodec.broker.connections as lobby_module
from stompcodec.broker import Config, serve
from stompcodec.broker.auth import User, hash_passcode, network_of
from stompcodec.broker.connections import Lobby
from stompcodec.transport import accept

USERS = {name: User(name, hash_passcode("x", n=16)) for name in ("ada", "eve")}
FAR, NEAR = "192.0.2.7", "127.0.0.1"


def arrive(bench, count, login=None, address=FAR):
    """Peers that have connected, until one is refused; and the ERROR of that one, or None."""
    peers = []
    for number in range(count):
        peer = bench.peer(connect=False, peer=f"{address}:{1000 + number}")
        bench.turn()
        if not peer.inbox:
            peer.send("CONNECT", accept_version="1.2", host="/", login=login or "x", passcode="x")
        if peer.closed:
            error = peer.error()
            peer.lose()
            return peers, error
        assert peer.next("CONNECTED")
        peers.append(peer)
    return peers, None


# ---- users ----


def test_a_user_leaves_half_of_the_connections_to_others():
    bench = Bench(max_connections=20, users=USERS)
    held, error = arrive(bench, 20, "eve", NEAR)
    assert (len(held), error.headers["message"]) == (10, "too many connections")
    assert b"sessions.max_connections" in error.body
    assert len(arrive(bench, 5, "ada", NEAR)[0]) == 5
    assert bench.broker.stats.sessions_refused == 1
    held[0].lose()
    assert len(arrive(bench, 1, "eve", NEAR)[0]) == 1  # there is room again


@pytest.mark.parametrize(
    ("config", "held"),
    [
        ({"users": USERS, "user_connections": 3}, 3),
        ({"users": {"eve": USERS["eve"]}}, 20),  # there is nobody to leave something to
        ({}, 20),
        ({"users": USERS, "max_connections": 4}, 4),
    ],
)
def test_the_share_of_a_user(config, held):
    bench = Bench(**{"max_connections": 20, **config})
    assert len(arrive(bench, 21, "eve", NEAR)[0]) == held


def test_a_refused_login_counts_for_nobody():
    bench = Bench(max_connections=20, users=USERS)
    for _ in range(30):
        peer = bench.peer(connect=False, peer=f"{NEAR}:1")
        peer.send("CONNECT", accept_version="1.2", host="/", login="ada", passcode="wrong")
        assert peer.error().headers["message"] == "login refused"
        peer.lose()
    assert len(arrive(bench, 10, "ada", NEAR)[0]) == 10


# ---- addresses ----


def test_an_address_leaves_a_quarter_of_the_connections_to_others():
    bench = Bench(max_connections=20)
    held, error = arrive(bench, 20)
    assert (len(held), error.headers["message"]) == (15, "too many connections")
    assert b"sessions.max_connections" in error.body
    assert len(arrive(bench, 5, address="192.0.2.8")[0]) == 5


@pytest.mark.parametrize(
    ("addresses", "config", "held"),
    [
        ([NEAR], {}, 20),  # a fixture, or a proxy on this machine
        (["[::1]"], {}, 20),
        ([NEAR], {"address_connections": 4}, 4),
        (["[2001:db8::1]", "[2001:db8::2]", "[2001:db8::ffff:1]"], {}, 15),
        (["[2001:db8:0:1::1]", "[2001:db8:0:2::1]"], {}, 20),
        (["[::ffff:192.0.2.7]", FAR], {}, 15),
    ],
)
def test_the_share_of_an_address(addresses, config, held):
    bench = Bench(max_connections=20, **config)
    count = 0
    for number in range(20):
        count += len(arrive(bench, 1, address=addresses[number % len(addresses)])[0])
    assert count == held


@pytest.mark.parametrize("peer", ["", "test", "/run/stomp"])
def test_connections_without_an_address_are_not_counted(peer):
    bench = Bench(max_connections=20, address_connections=2)
    peers = [bench.peer(peer=peer) for _ in range(20)]
    assert not any(each.closed for each in peers)


def test_nothing_is_kept_of_connections_that_have_ended():
    bench = Bench(max_connections=20, users=USERS)
    for login in ("ada", "eve"):
        for peer in arrive(bench, 20, login)[0]:
            peer.lose()
            peer.lose()
    connections = bench.broker.connections
    assert (connections._counted, connections._users, connections._addresses) == ({}, {}, {})


def test_the_log_has_one_line_per_minute_about_a_share(caplog):
    bench = Bench(max_connections=20, users=USERS)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            arrive(bench, 11, "eve", NEAR)
        assert [record.getMessage() for record in caplog.records] == [
            "user 'eve' has 10 connections, the share of a user (sessions.max_connections): others are refused"
        ]
        bench.wait(61)
        arrive(bench, 11, "eve", NEAR)
    assert len(caplog.records) <= 2


def test_destinations_of_an_address_count_by_the_same_rule():
    bench = Bench(max_destinations=100, user_destinations=3)
    peers = [bench.peer(peer=f"[2001:db8::{number}]:9") for number in range(1, 5)]
    for number, peer in enumerate(peers):
        peer.put(f"/queue/{number}", "x")
    assert [peer.closed for peer in peers] == [False, False, False, True]


def test_networks():
    assert network_of("[fe80::1%eth0]:9") == "fe80::"
    assert network_of("?") is None


# ---- before the login ----


class Guest:
    def __init__(self, peer):
        self.peer, self.aborted = peer, False

    def abort(self):
        self.aborted = True


def in_a_loop(work):
    """Run a function inside an event loop, whose clock it may set."""

    async def main():
        loop = asyncio.get_running_loop()
        clock = [loop.time()]
        loop.time = lambda: clock[0]
        try:
            return work(clock)
        finally:
            del loop.time

    return asyncio.run(main())


def test_the_oldest_of_the_address_with_most_is_closed_and_nobody_else(monkeypatch):
    monkeypatch.setattr(lobby_module, "_BURST", 0)

    def work(_clock):
        told = []
        lobby = Lobby(4, told.append)
        ada, eves = Guest("192.0.2.1:1"), [Guest(f"192.0.2.2:{number}") for number in range(10)]
        lobby.enter(ada)
        for eve in eves:
            lobby.enter(eve)
        assert [eve.aborted for eve in eves] == [True] * 7 + [False] * 3
        assert (told, ada.aborted, len(lobby)) == (eves[:7], False, 4)
        for guest in (ada, *eves):
            lobby.leave(guest)
        assert not lobby._guests

    in_a_loop(work)


def test_after_a_restart_all_have_a_moment_to_log_in():
    def work(clock):
        lobby = Lobby(4, lambda guest: None)
        guests = [Guest(f"192.0.2.1:{number}") for number in range(200)]
        for guest in guests:
            lobby.enter(guest)
        lobby._thin()
        assert not any(guest.aborted for guest in guests)
        for guest in guests[:50]:
            lobby.leave(guest)
        clock[0] += 1.0
        lobby._thin()
        assert [guest.aborted for guest in guests] == [False] * 50 + [True] * 146 + [False] * 4
        lobby.close()

    in_a_loop(work)


def test_the_log_has_one_line_per_minute_about_the_lobby(monkeypatch, caplog):
    monkeypatch.setattr(lobby_module, "_BURST", 0)

    def work(clock):
        lobby = Lobby(1, lambda guest: None)
        for number in range(50):
            lobby.enter(Guest(f"192.0.2.1:{number}"))
        clock[0] += 60.0
        for number in range(50, 90):
            lobby.enter(Guest(f"192.0.2.1:{number}"))

    with caplog.at_level(logging.WARNING):
        in_a_loop(work)
    assert [" 1 were closed" in each.getMessage() for each in caplog.records] == [True, False]


@pytest.mark.parametrize("silent", ["port", "ws_port"])
def test_silent_connections_leave_room_to_log_in(monkeypatch, silent):
    """Also over WebSocket, whose handshake comes before the session."""
    monkeypatch.setattr(lobby_module, "_BURST", 0)

    async def main():
        async with serve(Config(port=0, ws_port=0, max_connections=12, max_before_login=3)) as broker:
            held = [await asyncio.open_connection(NEAR, getattr(broker, silent)) for _ in range(20)]
            reader, writer = await asyncio.open_connection(NEAR, broker.port)
            writer.write(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
            assert (await reader.readline()) == b"CONNECTED\n"
            first = held[0][0]
            with contextlib.suppress(ConnectionError):
                answer = await asyncio.wait_for(first.read(), patience(10))
                assert (b"a quarter of sessions.max_connections" in answer) is (silent == "port")
            assert len(broker.lobby) <= 3
            assert len(broker.broker.sessions) <= 4
            for _, each in [*held, (reader, writer)]:
                each.close()

    asyncio.run(main())


def test_those_who_have_logged_in_are_not_in_the_lobby():
    async def main():
        async with serve(Config(port=0, max_before_login=2)) as broker:
            peers = []
            for _ in range(6):
                reader, writer = await asyncio.open_connection(NEAR, broker.port)
                writer.write(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
                assert (await reader.readline()) == b"CONNECTED\n"
                peers.append(writer)
            assert len(broker.lobby) == 0
            for writer in peers:
                writer.close()

    asyncio.run(main())


def test_the_shares_are_those_of_the_file_descriptors(monkeypatch):
    monkeypatch.setattr("stompcodec.broker.server.descriptor_limit", lambda: 120)

    async def main():
        async with serve(Config(port=0, users=USERS)) as broker:
            most = 120 - accept.reserve_of(120)
            assert broker.broker.connections._most_of_user == most // 2
            assert broker.broker.connections._most_of_address == most - most // 4
            assert broker.lobby.most == most // 4

    asyncio.run(main())
