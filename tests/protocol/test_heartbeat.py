"""Heart-beats: the header, the agreement, the deadlines, and what Artemis makes of them."""

import time

import pytest
from hypothesis import given as st_given
from hypothesis import strategies as st
from patience import patience
from protocol.vectors_of import answer, vectors_of

from stompcodec.errors import FrameError
from stompcodec.states import (
    Heartbeat,
    artemis_server_ping,
    artemis_ttl,
    negotiate_heart_beat,
    parse_heart_beat,
)

intervals = st.integers(0, 10**12)


@vectors_of("heartbeat-parse")
def test_parse_vectors(given, expect):
    got = answer(parse_heart_beat, given["value"])
    assert (got if isinstance(got, dict) else {"pair": list(got)}) == expect


@vectors_of("heartbeat")
def test_negotiate_vectors(given, expect):
    client_to_server, server_to_client = negotiate_heart_beat(given["connect"], given["connected"])
    assert {"client_to_server": client_to_server, "server_to_client": server_to_client} == expect


@vectors_of("artemis-ttl")
def test_artemis_ttl_vectors(given, expect):
    got = artemis_ttl(given["version"], given["connect"], given["acceptor"])
    assert got == expect
    assert all(type(value) is int for value in got.values())


@vectors_of("artemis-server-ping")
def test_artemis_server_ping_vectors(given, expect):
    assert {"server_to_client": artemis_server_ping(given["connect"])} == expect


@pytest.mark.req("S12-HB-02", "S11-HB-02")
@pytest.mark.parametrize(
    "value",
    [
        *["1000,", ",1000", ",", "+1,0", "0x1,0", "1,2,", "1,2\n", "\n1,2", "1\0,2", "1e3,0"],
        *["\u0661,0", "0,\u00b2", "\uff11,0", "1000 ,0", "0,0 ", "\ud800,0", "0,-0", "1\u0661,0"],
    ],
)
def test_what_is_no_heart_beat(value):
    with pytest.raises(FrameError) as caught:
        parse_heart_beat(value)
    assert caught.value.kind == "bad-heart-beat"


@pytest.mark.req("S12-HB-02", "S12-LIM-05")
def test_numbers_are_bounded():
    largest = "9" * 100
    assert parse_heart_beat(f"{largest},{largest}") == (10**100 - 1, 10**100 - 1)
    for value in (f"{largest}0,0", f"0,{largest}0", "9" * 1_000_000 + ",0"):
        with pytest.raises(FrameError):
            parse_heart_beat(value)
    assert Heartbeat(*parse_heart_beat(f"{largest},{largest}")).dead_at(0.0) > 0


@pytest.mark.req("S12-HB-02", "S12-LIM-05")
def test_zeros_cost_linear_time():
    zeros = "0" * 1_000_000
    begin = time.perf_counter()
    assert parse_heart_beat(f"{zeros}5,{zeros}") == (5, 0)
    with pytest.raises(FrameError):
        parse_heart_beat(zeros)
    with pytest.raises(FrameError):
        parse_heart_beat(zeros + "5," + zeros + "x")
    assert time.perf_counter() - begin < patience(5)


@pytest.mark.req("S12-HB-02")
@pytest.mark.parametrize(("connect", "connected"), [("x", None), (None, "x"), ("x", "0,0"), ("0,0", "")])
def test_a_bad_offer_is_refused_even_if_nothing_would_come_of_it(connect, connected):
    with pytest.raises(FrameError):
        negotiate_heart_beat(connect, connected)


@pytest.mark.req("S12-HB-08", "S12-HB-09", "S12-HB-11", "S12-HB-12")
@st_given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(0, 10**9))
def test_deadlines(send_every, receive_every, now):
    beat = Heartbeat(send_every, receive_every)
    assert beat.next_send_at(now) == pytest.approx(now + send_every / 1000 / 2, rel=1e-12)
    assert beat.dead_at(now) == pytest.approx(now + receive_every / 1000 * 2, rel=1e-12)


@pytest.mark.req("ART-TTL-02", "ART-TTL-03")
@pytest.mark.parametrize(
    ("acceptor", "ttl"),
    [
        ({"connection-ttl-override": 50000}, 50000),
        ({"connection-ttl-override": -1}, 60000),
        ({"connection-ttl-override": "50000", "connectionTtl": "20000"}, 20000),
        ({"connectionTtlMax": 30000, "connectionTtlMin": 20000}, 60000),
    ],
)
def test_artemis_ttl_without_heart_beats(acceptor, ttl):
    assert artemis_ttl("1.1", "0,5", acceptor) == {"connection_ttl": ttl}


@pytest.mark.req("ART-TTL-05", "ART-TTL-06", "ART-TTL-07", "ART-TTL-08")
@pytest.mark.parametrize(
    ("connect", "acceptor", "ttl", "asked"),
    [
        ("499,0", {}, 1000, 500),
        ("501,0", {}, 1002, 501),
        ("15000,0", {"connectionTtlMax": "30000"}, 30000, 15000),
        ("15001,0", {"connectionTtlMax": "30000"}, 30000, 15000),
        ("3,0", {"heartBeatToConnectionTtlModifier": "1.5", "connectionTtlMin": 1}, 4, 3),
        ("5,0", {"heartBeatToConnectionTtlModifier": 1.5, "connectionTtlMin": 1}, 7, 5),
        ("100,0", {"heartBeatToConnectionTtlModifier": 3, "connectionTtlMin": 1000}, 1000, 333),
        (f"{10**60},0", {}, 2**63 - 1, 2**62),
    ],
)
def test_artemis_ttl_bounds(connect, acceptor, ttl, asked):
    assert artemis_ttl("1.2", connect, acceptor) == {"connection_ttl": ttl, "connected_client_to_server": asked}


@pytest.mark.req("ART-TTL-05")
@pytest.mark.parametrize("modifier", [0, -1.0, "nan", "inf", "two"])
def test_artemis_modifier_must_be_sensible(modifier):
    with pytest.raises(ValueError, match=r"modifier|Modifier|could not convert"):
        artemis_ttl("1.2", "1000,0", {"heartBeatToConnectionTtlModifier": modifier})
