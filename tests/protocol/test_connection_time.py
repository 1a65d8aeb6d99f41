"""Heart-beats of a connection: when one is due, when the peer is dead, and that a healthy one lives for ever."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from protocol.talking import (
    ALL_HEADERS,
    client_in_session,
    connect_wire,
    connected_wire,
    connecting_client,
    in_session,
    server_in_session,
)

from stompcodec.codec import Frame
from stompcodec.connection import Connection, Role
from stompcodec.states import Heartbeat

each_role = pytest.mark.parametrize("role", list(Role))
GRACE = {Role.CLIENT: 1.0, Role.SERVER: 0.0}
EOL = b"\n"


def beating(role, send_every, receive_every, now=0.0):
    """A connection in session whose intervals are these, in ms; its peer offers what is wanted."""
    header = b"heart-beat:%d,%d\n" % (receive_every, send_every)
    connection = in_session(role, heart_beat=(send_every, receive_every), more=header, now=now)
    assert connection.heartbeat == Heartbeat(send_every, receive_every)
    return connection


@pytest.mark.req("S12-HB-08", "S12-HB-11", "S12-HB-12", "S11-HB-08", "S11-HB-12")
@each_role
@pytest.mark.parametrize("octets", [b"\n", b"SE", b"MESSAGE\nd", b"\r"])
def test_silence_of_twice_the_interval_is_death(role, octets):
    connection = beating(role, 0, 1000, now=10.0)
    dead = 12.0 + GRACE[role]
    assert connection.next_deadline() == dead
    assert connection.tick(math.nextafter(dead, 0))
    assert not connection.tick(dead)
    list(connection.receive(octets, dead + 5))
    assert connection.tick(dead + 5)
    assert connection.next_deadline() == dead + 7.0 + GRACE[role]
    assert not connection.tick(dead + 7.0 + GRACE[role])


@pytest.mark.req("S12-HB-08")
@each_role
def test_no_excuse_reaches_into_the_time_to_come(role):
    connection = beating(role, 0, 1000)
    list(connection.receive(EOL, 5.0))
    connection.excuse(1e6)
    assert connection.next_deadline() == 5.0 + 2.0 + GRACE[role]
    connection.excuse(1e6, 6.0)
    assert connection.next_deadline() == 6.0 + 2.0 + GRACE[role]
    assert not connection.tick(6.0 + 2.0 + GRACE[role])


def test_beats_begin_with_connected():
    """However long the server took to answer."""
    beats = b"heart-beat:1000,1000\n"
    server = Connection(Role.SERVER, heart_beat=(1000, 1000))
    list(server.receive(connect_wire("1.2", beats), 5.0))
    assert server.next_deadline() is None
    server.accept(now=60.0)
    assert server.tick(60.0)
    server.take_output()
    assert (server.next_deadline(), server.tick(61.9), server.tick(62.0)) == (60.5, True, False)
    client = connecting_client(heart_beat=(1000, 1000))
    list(client.receive(connected_wire("1.2", beats), 60.0))
    assert client.next_deadline() == 60.5


@pytest.mark.req("S12-HB-09", "S12-DIS-02")
def test_beats_go_on_until_the_receipt_of_disconnect():
    client = beating(Role.CLIENT, 1000, 1000)
    client.send(Frame("DISCONNECT", {"receipt": "1"}))
    client.take_output(now=0.0)
    assert client.tick(0.5)
    assert client.take_output() == [EOL]
    assert not client.tick(3.0)
    server = beating(Role.SERVER, 1000, 1000)
    list(server.receive(b"DISCONNECT\nreceipt:1\n\n\0", 0.0))
    assert server.tick(100.0), "a client that has said its last may be silent"
    assert server.take_output() == [EOL]


@pytest.mark.req("S12-HB-02", "S12-LIM-05")
def test_huge_intervals_are_harmless():
    huge = b"heart-beat:%b,%b\n" % (b"9" * 100, b"9" * 100)
    server = server_in_session(heart_beat=(1, 1), more=huge)
    assert server.next_deadline() > 1e90
    assert server.tick(1e9)


actions = st.lists(
    st.tuples(st.sampled_from(["receive", "nothing", "send", "take", "tick", "excuse"]), st.integers(0, 3000)),
    max_size=30,
)


@pytest.mark.req("S12-HB-06", "S12-HB-08", "S12-HB-09", "S12-HB-10", "S12-HB-11", "S12-HB-12", "S11-HB-09", "S11-HB-10")
@given(st.sampled_from(list(Role)), st.integers(0, 4).map((500).__mul__), st.integers(0, 4).map((500).__mul__), actions)
@example(Role.SERVER, 500, 500, [("tick", 250), ("take", 0), ("tick", 750)])
def test_deadlines_are_plain_arithmetic(role, send_every, receive_every, actions):
    """Against a model that knows but two points in time. The clock is in ms, so that no float is in the way."""
    connection = beating(role, send_every, receive_every)
    now = heard = sent = seen = 0
    waiting = 0
    for action, wait in actions:
        now += wait
        seen = seen if action in ("send", "excuse") else now
        if action in ("receive", "nothing"):
            list(connection.receive(EOL if action == "receive" else b"", now / 1000))
            heard = max(heard, now) if action == "receive" else heard
        elif action == "send":
            connection.send(Frame("MESSAGE" if role is Role.SERVER else "SEND", ALL_HEADERS))
            waiting += 1
        elif action == "take":
            assert len(connection.take_output(now / 1000)) == waiting
            sent, waiting = (now if waiting else sent), 0
        elif action == "excuse":
            connection.excuse(wait * 2 / 1000, now / 1000)
            heard = min(heard + wait * 2, now)
        else:
            dead = bool(receive_every) and now >= heard + 2 * receive_every + 1000 * (role is Role.CLIENT)
            assert connection.tick(now / 1000) is not dead
            if not dead and send_every and not waiting and now >= sent + send_every // 2:
                waiting += 1
                assert connection.output == [EOL]
        deadlines = [heard + 2 * receive_every + 1000 * (role is Role.CLIENT)] if receive_every else []
        deadlines += [(seen if waiting else sent) + send_every // 2] if send_every else []
        assert connection.next_deadline() == (pytest.approx(min(deadlines) / 1000) if deadlines else None)


def live(client, server, latency, until, cut=math.inf):
    """Run both by their deadlines alone, over a line with a latency, which swallows what is sent after `cut`. Returns
    when the first one calls the other dead, and the longest silence in octets that each side heard."""
    on_the_way = []  # (arrival, receiver, octets)
    other = {client: server, server: client}
    heard = {client: 0.0, server: 0.0}
    longest = {client: 0.0, server: 0.0}
    now = 0.0
    while now < until:
        now = min([at for at, _, _ in on_the_way] + [side.next_deadline() for side in other])
        for arrival, receiver, octets in [item for item in on_the_way if item[0] <= now]:
            on_the_way.remove((arrival, receiver, octets))
            assert list(receiver.receive(octets, now)) == []
            longest[receiver] = max(longest[receiver], now - heard[receiver])
            heard[receiver] = now
        for side in other:
            if not side.tick(now):
                return now, longest
            octets = b"".join(side.take_output())
            if octets and now < cut:
                on_the_way.append((now + latency, other[side], octets))
    return None, longest


def two(ours, theirs):
    client = client_in_session(heart_beat=ours, more=b"heart-beat:%d,%d\n" % theirs)
    server = server_in_session(heart_beat=theirs, more=b"heart-beat:%d,%d\n" % ours)
    return client, server


@pytest.mark.req("S12-HB-09", "S12-HB-11", "S12-HB-12")
@given(st.integers(50, 20_000), st.integers(50, 20_000), st.floats(0, 0.4))
def test_idle_connections_live_for_an_hour(client_ms, server_ms, latency):
    """With a latency of up to nearly the shorter half-interval nobody is called dead, and each promise is kept."""
    client, server = two((client_ms, server_ms), (server_ms, client_ms))
    latency *= min(client_ms, server_ms) / 1000
    hour = 3600 * min(client_ms, server_ms, 1000) / 10_000  # in steps that do not take for ever
    died, longest = live(client, server, latency, until=hour)
    assert died is None
    assert longest[server] <= client_ms / 1000
    assert longest[client] <= server_ms / 1000
