"""No user, no address and no crowd before the login holds all connections of a broker."""

import asyncio
import contextlib
import logging

import pytest
from broker.harness import Bench
from broker.sockets import CONFIG, run
from patience import patience

from stompcodec.broker import connections
from stompcodec.broker.auth import User, hash_passcode, network_of
from stompcodec.broker.connections import Lobby
from stompcodec.transport import aio

USERS = {name: User(name, hash_passcode("x", n=16)) for name in ("ada", "eve")}
FAR, NEAR = "192.0.2.7", "127.0.0.1"
SHARE = "user 'eve' has 10 connections, the share of a user (sessions.max_connections): others are refused"


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


def test_a_user_leaves_half_of_the_connections_to_others(caplog):
    bench = Bench(max_connections=20, users=USERS)
    for _ in range(30):  # a refused login counts for nobody, and does not fill the log
        peer = bench.peer(connect=False, peer=f"{NEAR}:1")
        peer.send("CONNECT", accept_version="1.2", host="/", login="eve", passcode="wrong")
        assert peer.error().headers["message"] == "login refused"
        peer.lose()
    held, error = arrive(bench, 20, "eve", NEAR)
    assert (len(held), error.headers["message"]) == (10, "too many connections")
    assert b"sessions.max_connections" in error.body
    mine = arrive(bench, 5, "ada", NEAR)[0]
    assert (len(mine), bench.broker.stats.sessions_refused) == (5, 31)
    for _ in range(50):
        held.pop().lose()
        held += arrive(bench, 2, "eve", NEAR)[0]  # there is room for one again
        assert len(held) == 10
    for seconds, lines in ((0, [1]), (61, [1, 2])):  # one a minute
        bench.wait(seconds)
        arrive(bench, 1, "eve", NEAR)
        assert [record.getMessage() for record in caplog.records].count(SHARE) in lines
    lines = [record.getMessage() for record in caplog.records if "login refused" in record.getMessage()]
    assert [line.partition(" (")[0] for line in lines] == [f"{NEAR}:1: login refused, of 'eve'"]
    for number in range(3000):
        bench.broker.connections.refuse_login("x", f"10.0.{number // 256}.{number % 256}:1", bench.broker.now)
    assert len(bench.broker.connections._told) <= 1024
    for peer in (held + mine) * 2:
        peer.lose()
    found = bench.broker.connections
    assert (found._counted, found._users, found._addresses) == ({}, {}, {})


@pytest.mark.parametrize(
    ("config", "held"),
    [
        ({"users": USERS, "user_connections": 3}, 3),
        ({"users": {"eve": USERS["eve"]}}, 20),  # there is nobody to leave something to
        *(({}, 20), ({"users": USERS, "max_connections": 4}, 4)),
    ],
)
def test_the_share_of_a_user(config, held):
    bench = Bench(**{"max_connections": 20, **config})
    assert len(arrive(bench, 21, "eve", NEAR)[0]) == held


@pytest.mark.parametrize(
    ("addresses", "config", "held"),
    [
        ([FAR], {}, 15),
        ([NEAR], {}, 20),  # a fixture, or a proxy on this machine
        *((["[::1]"], {}, 20), ([NEAR], {"address_connections": 4}, 4)),
        (["[2001:db8::1]", "[2001:db8::2]", "[2001:db8::ffff:1]"], {}, 15),
        *((["[2001:db8:0:1::1]", "[2001:db8:0:2::1]"], {}, 20), (["[::ffff:192.0.2.7]", FAR], {}, 15)),
    ],
)
def test_the_share_of_an_address(addresses, config, held):
    bench = Bench(max_connections=20, **config)
    found = [arrive(bench, 1, address=addresses[number % len(addresses)]) for number in range(20)]
    assert sum(len(peers) for peers, _ in found) == held
    assert {error.headers["message"] for _, error in found[held:]} <= {"too many connections"}
    assert len(arrive(bench, 5, address="192.0.2.8")[0]) == min(5, 20 - held, bench.config.address_connections or 5)


@pytest.mark.parametrize("peer", ["", "test", "/run/stomp"])
def test_connections_without_an_address_are_not_counted(peer):
    bench = Bench(max_connections=20, address_connections=2)
    assert not any(each.closed for each in [bench.peer(peer=peer) for _ in range(20)])


def test_networks_and_destinations_of_an_address():
    assert network_of("[fe80::1%eth0]:9") == "fe80::"
    assert network_of("?") is None
    bench = Bench(max_destinations=100, user_destinations=3)
    peers = [bench.peer(peer=f"[2001:db8::{number}]:9") for number in range(1, 5)]
    for number, peer in enumerate(peers):
        peer.put(f"/queue/{number}", "x")
    assert [peer.closed for peer in peers] == [False, False, False, True]


# ---- before the login ----
class Guest:
    def __init__(self, peer):
        self.peer, self.aborted = peer, False

    def abort(self):
        self.aborted = True


def in_a_loop(work):
    async def main():
        loop = asyncio.get_running_loop()
        clock = [loop.time()]
        loop.time = lambda: clock[0]
        try:
            return work(clock)
        finally:
            del loop.time

    return asyncio.run(main())


def test_the_oldest_of_the_address_with_most_is_closed_and_nobody_else(monkeypatch, caplog):
    monkeypatch.setattr(connections, "_BURST", 0)

    def work(clock):
        told = []
        lobby = Lobby(4, told.append)
        ada, eves, later = Guest("192.0.2.1:1"), *([Guest(f"192.0.2.2:{n}") for n in range(10)] for _ in range(2))
        for guest in (ada, *eves):
            lobby.enter(guest)
        assert [eve.aborted for eve in eves] == [True] * 7 + [False] * 3
        assert (told, ada.aborted, len(lobby)) == (eves[:7], False, 4)
        clock[0] += 60.0
        for guest in later:
            lobby.enter(guest)
        for guest in (ada, *eves, *later):
            lobby.leave(guest)
        assert not lobby._guests

    with caplog.at_level(logging.WARNING):
        in_a_loop(work)
    assert [" 1 were closed" in each.getMessage() for each in caplog.records] == [True, False]


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


LOGIN = b"CONNECT\naccept-version:1.2\nhost:/\nlogin:ada\npasscode:x\n\n\0"


async def opened(broker, count, what=b"", *, port="port"):
    held, stats = [], broker.broker.stats
    before = stats.sessions_total + stats.sessions_refused
    for _ in range(count):
        reader, writer = await asyncio.open_connection(NEAR, getattr(broker, port))
        writer.write(what)
        held.append((reader, writer))
    while port == "port" and stats.sessions_total + stats.sessions_refused < before + count:
        await asyncio.sleep(0)
    return held


async def first_lines(peers):
    return [await asyncio.wait_for(reader.readline(), patience(10)) for reader, _ in peers]


def served(config, work):
    async def main(broker):
        for _, writer in await asyncio.wait_for(work(broker), patience(10)):
            writer.close()

    run(main, CONFIG.replace(users=USERS, **config))


@pytest.mark.parametrize("silent", ["port", "ws_port"])
def test_silent_connections_leave_room_to_log_in(monkeypatch, silent):
    monkeypatch.setattr(connections, "_BURST", 0)

    async def work(broker):
        held = await opened(broker, 20, port=silent)
        mine = await opened(broker, 6, LOGIN)
        assert await first_lines(mine) == [b"CONNECTED\n"] * 6
        with contextlib.suppress(ConnectionError):
            answer = await asyncio.wait_for(held[0][0].read(), patience(10))
            assert (b"a quarter of sessions.max_connections" in answer) is (silent == "port")
        assert len(broker.lobby) <= 3  # those who have logged in have left it
        assert len(broker.broker.sessions) <= 9
        return held + mine

    served({"ws_port": 0, "max_connections": 12, "max_before_login": 3}, work)


@pytest.mark.parametrize(
    "config", [{"max_connections": 8, "max_before_login": 8}, {"max_connections": 40, "address_connections": 8}]
)
def test_silent_connections_make_room_for_a_login(config):
    async def work(broker):
        held = await opened(broker, 8)
        mine = await opened(broker, 1, LOGIN)
        assert await first_lines(mine) == [b"CONNECTED\n"]
        with contextlib.suppress(ConnectionError):
            assert b"sessions.max_connections" in await asyncio.wait_for(held[0][0].read(), patience(10))
        assert len(broker.broker.sessions) == 8
        return held + mine

    served(config, work)


@pytest.mark.parametrize("config", [{"max_connections": 3}, {"max_connections": 40, "address_connections": 3}])
def test_those_who_have_logged_in_stay_whoever_comes(config):
    """Also where handshakes wait in the lobby: they are no sessions yet, so their end would make no room."""

    async def work(broker):
        mine = await opened(broker, 3, LOGIN)
        assert await first_lines(mine) == [b"CONNECTED\n"] * 3
        shaking = await opened(broker, 2, b"GET / HTTP/1.1\r\n", port="ws_port")
        late = await opened(broker, 2, LOGIN)
        assert (await first_lines(late), len(broker.broker.sessions)) == ([b"ERROR\n"] * 2, 3)
        assert not any(writer.is_closing() for _, writer in mine)
        return mine + shaking + late

    served({"ws_port": 0, **config, "max_before_login": 4, "user_connections": 40}, work)


def test_the_shares_are_those_of_the_file_descriptors(monkeypatch):
    monkeypatch.setattr("stompcodec.broker.server.descriptor_limit", lambda: 120)

    async def work(broker):
        most = 120 - aio.reserve_of(120)
        assert broker.broker.connections._most_of_user == most // 2
        assert broker.broker.connections._most_of_address == most - most // 4
        assert broker.lobby.most == most // 4
        return []

    served({}, work)
