"""How a connection agrees on a version and on heart-beats, and what its settings may be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.talking import (
    connect_wire,
    connected_wire,
    connection_in,
    listen,
    refused,
    server_in_session,
    wire_of,
)

from stompcodec.codec import Frame, parse
from stompcodec.connection import Connection, Role
from stompcodec.errors import (
    LocalProtocolError,
)
from stompcodec.spec import VERSIONS, Limits
from stompcodec.states import Heartbeat, State

# ---- negotiation ----


@pytest.mark.req("S12-NEG-03", "S12-NEG-04", "S12-NEG-05", "S11-NEG-03", "S12-CTD-01")
@given(
    st.lists(st.sampled_from(VERSIONS), min_size=1, unique=True),
    st.lists(st.sampled_from(VERSIONS), min_size=1, unique=True),
)
def test_both_sides_agree_on_the_highest_common_version(ours, theirs):
    client, server = Connection(Role.CLIENT, versions=ours), Connection(Role.SERVER, versions=theirs)
    client.send(Frame("CONNECT", {"host": "a"}))
    common = [version for version in VERSIONS if version in ours and version in theirs]
    got = listen(server, [wire_of(client)])
    if not common:
        listed = ",".join(version for version in VERSIONS if version in theirs)
        assert got.error[0] == "no common version"
        assert ("version", listed) in got.error[2]
        assert server.state is State.FAILED
        assert [frame.command for frame in client.receive(got.sent, 0.0)] == ["ERROR"]
        assert client.state is State.FAILED
        return
    assert [frame.command for frame in client.receive(got.sent, 0.0)] == ["CONNECTED"]
    assert (server.version, client.version) == (common[-1], common[-1])
    assert (server.state, client.state) == (State.CONNECTED, State.CONNECTED)


@pytest.mark.req("S12-CTD-01", "S12-NEG-04")
@pytest.mark.parametrize("version", ["1.2", "1.3", "", "1 .1"])
def test_a_client_refuses_a_version_it_did_not_offer(version):
    client = Connection(Role.CLIENT, versions=["1.0", "1.1"])
    client.send(Frame("CONNECT", {"host": "a"}))
    error = refused(client, b"CONNECTED\nversion:%b\n\n\0" % version.encode())
    assert error.cause.kind == "no-common-version"
    assert error.reply is None


def test_connect_says_what_we_were_given_unless_it_says_so_itself():
    client = Connection(Role.CLIENT, versions=["1.2", "1.1"], heart_beat=(100, 200))
    client.send(Frame("CONNECT", {"host": "a"}))
    (frame,) = parse(wire_of(client), None)
    assert frame.headers == {"accept-version": "1.1,1.2", "heart-beat": "100,200", "host": "a"}
    client = Connection(Role.CLIENT, heart_beat=(100, 200))
    client.send(Frame("CONNECT", {"accept-version": "1.1", "heart-beat": "5,6", "host": "a"}))
    (frame,) = parse(wire_of(client), None)
    assert frame.headers == {"accept-version": "1.1", "heart-beat": "5,6", "host": "a"}
    assert "no-common-version" in str(refused(client, connected_wire("1.2")))
    client = Connection(Role.CLIENT, versions=["1.0"])
    client.send(Frame("CONNECT"))
    assert wire_of(client) == b"CONNECT\n\n\0"


@pytest.mark.req("S12-CTD-01", "S12-CTD-02", "S10-CON-04")
def test_connected_carries_version_heart_beat_and_what_the_owner_adds():
    server = Connection(Role.SERVER, heart_beat=(0, 50))
    for _ in server.receive(connect_wire("1.1"), 0.0):
        assert server.accept([("server", "x"), ("session", "s")]).command == "CONNECTED"
    assert wire_of(server) == b"CONNECTED\nversion:1.1\nheart-beat:0,50\nserver:x\nsession:s\n\n\0\n"


def test_connected_of_1_0_needs_a_session():
    server = connection_in(Role.SERVER, State.CONNECTING, "1.0")
    with pytest.raises(LocalProtocolError, match="CONNECTED lacks session"):
        server.accept()
    server.accept({"session": "1"})
    assert server.state is State.CONNECTED
    with pytest.raises(LocalProtocolError, match="no CONNECT to answer"):
        server.accept({"session": "1"})
    with pytest.raises(LocalProtocolError, match="no CONNECT to answer"):
        Connection(Role.SERVER).accept()


@pytest.mark.req("S12-HB-02", "S12-HB-05", "S12-HB-06", "S12-HB-07")
@given(*[st.tuples(st.integers(0, 10**6), st.integers(0, 10**6))] * 2)
def test_both_sides_agree_on_heart_beats(ours, theirs):
    client, server = Connection(Role.CLIENT, heart_beat=ours), Connection(Role.SERVER, heart_beat=theirs)
    client.send(Frame("CONNECT", {"host": "a"}))
    assert client.heartbeat == server.heartbeat == Heartbeat(0, 0)
    list(client.receive(listen(server, [wire_of(client)]).sent, 0.0))
    assert client.heartbeat == server.heartbeat[::-1]
    assert client.heartbeat.send_every == (max(ours[0], theirs[1]) if ours[0] and theirs[1] else 0)
    assert client.heartbeat.receive_every == (max(ours[1], theirs[0]) if ours[1] and theirs[0] else 0)


@pytest.mark.req("S12-HB-02", "S11-HB-02")
@pytest.mark.parametrize("value", ["abc", "1000", "-5,0", "1,2,3", "", "1, 2", "1," + "9" * 200])
def test_malformed_heart_beats_are_refused_but_in_1_0(value):
    header = b"heart-beat:%b\n" % value.encode()
    error = refused(Connection(Role.SERVER), connect_wire("1.2", header))
    assert error.cause.kind == "bad-heart-beat"
    assert error.reply.headers["message"] == "heart-beat is malformed"
    assert server_in_session("1.0", more=header).heartbeat == Heartbeat(0, 0)
    client = Connection(Role.CLIENT)
    client.send(Frame("CONNECT", {"host": "a"}))
    assert refused(client, connected_wire("1.2", header)).cause.kind == "bad-heart-beat"


def test_settings_are_checked():
    for versions in ([], ["1.3"], "1.2", "legacy"):
        with pytest.raises(ValueError, match="versions is"):
            Connection(Role.SERVER, versions=versions)
    for beats in ((1,), (-1, 0), (1.5, 0), (True, 0)):
        with pytest.raises(ValueError, match="heart_beat is"):
            Connection(Role.SERVER, heart_beat=beats)
    with pytest.raises(ValueError, match="max_body"):
        Connection(Role.SERVER, limits=Limits(max_body=-1))
    with pytest.raises(ValueError, match="max_headers"):
        Connection(Role.SERVER, first_limits=Limits(max_headers=-1))
    with pytest.raises(ValueError, match="'peer' is not a valid Role"):
        Connection("peer")
