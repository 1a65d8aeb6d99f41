"""Negotiation, required headers, the order of frames, heart-beats, and the page that draws the states."""

import pytest
from installed import load
from protocol.talking import answer, linear

from stompcodec.spec import CLIENT_1_1, SERVER, VERSIONS
from stompcodec.states import (
    Heartbeat,
    State,
    artemis_ttl,
    missing_headers,
    negotiate,
    negotiate_client,
    negotiate_heart_beat,
    negotiate_wishlist,
    next_state,
    parse_heart_beat,
)

NEVER = {"error": "no-common-version"}


@pytest.mark.req("S12-NEG-04", "S12-HDR-01")
@pytest.mark.parametrize(
    "entry", ["1.2 ", " 1.2", "1.2\t", "01.2", "1.2.0", "1,2", "1", "V1.2", "\u0661.2", "", "1.2;", "1.02"]
)
def test_entries_are_compared_exactly(entry):
    assert answer(negotiate, entry, VERSIONS) == answer(negotiate_client, entry, VERSIONS) == NEVER
    assert answer(negotiate, f"{entry},1.1", VERSIONS) == "1.1"


@pytest.mark.req("WISH-NEG-03")
@pytest.mark.parametrize(
    "version", ["", "1", "1.1 ", "1.1\n", "1.1,1.2", "foo", "1." + "9" * 100_000, "01.1", "1.\u0661"]
)
def test_wishlist_refuses_what_is_no_version(version):
    assert answer(negotiate_wishlist, version, "1.1") == answer(negotiate_wishlist, "1.1", version) == NEVER


@pytest.mark.req("LEG-CON-02", "LEG-HDR-04", "LEG-CMD-01", "LEG-SUB-01")
def test_legacy_names_have_no_case():
    assert missing_headers("legacy", "client", "connect", []) == ["username", "passcode"]
    assert missing_headers("legacy", "client", "connect", [("PassCode", "x")]) == ["username"]
    assert missing_headers("legacy", "client", "Subscribe", []) == ["destination"]


EVERY_FRAME = [*(("client", command) for command in CLIENT_1_1), *(("server", command) for command in SERVER)]
IN_SESSION = {
    **{frame: State.CONNECTED for frame in EVERY_FRAME if frame[1] not in ("CONNECT", "STOMP", "CONNECTED")},
    ("client", "DISCONNECT"): State.DISCONNECTING,
}
#: Every legal frame, and the state behind it. In 1.2, and before there is a version, ERROR ends a session.
LEGAL = {
    State.NEW: {
        **{("client", "CONNECT"): State.CONNECTING, ("client", "STOMP"): State.CONNECTING},
        ("server", "ERROR"): State.FAILED,
    },
    State.CONNECTING: {("server", "CONNECTED"): State.CONNECTED, ("server", "ERROR"): State.FAILED},
    State.CONNECTED: IN_SESSION,
    State.DISCONNECTING: {("server", name): State.DISCONNECTING for name in ("MESSAGE", "RECEIPT", "ERROR")},
    **{State.FAILED: {}, State.CLOSED: {}},
}


@pytest.mark.req("S12-CON-01", "S12-CON-02", "S12-CON-03", "S12-CON-04", "S12-CON-05", "S11-CON-01", "S11-CON-06")
@pytest.mark.req("S10-CON-01", "S10-CON-03", "LEG-CON-01", "LEG-CON-05", "S12-FRM-06", "S12-FRM-07", "LEG-CMD-04")
@pytest.mark.req("S12-DIS-01", "S12-DIS-02", "S11-DIS-02", "S10-DIS-01", "LEG-DIS-01", "S12-RCP-04")
@pytest.mark.req("S12-ERR-01", "S12-ERR-02", "S11-ERR-01", "S10-ERR-01")
@pytest.mark.parametrize("version", [None, "1.2", "1.1", "1.0", "legacy"])
@pytest.mark.parametrize("state", State)
def test_the_order_of_frames(state, version):
    wanted = dict(LEGAL[state])
    if version in (None, "1.2") and ("server", "ERROR") in wanted:
        wanted["server", "ERROR"] = State.FAILED
    after = {(sender, command): next_state(sender, state, command, version) for sender, command in EVERY_FRAME}
    assert {frame: found for frame, found in after.items() if found is not None} == wanted


@pytest.fixture(scope="module")
def diagram():
    return load("scripts/state_diagram.py")


def test_the_page_is_not_stale(diagram):
    assert diagram.PAGE.read_text("utf-8") == diagram.page(), "run scripts/state_diagram.py"


@pytest.mark.req("S12-HB-02", "S11-HB-02")
@pytest.mark.parametrize(
    "value",
    [
        *["1000,", ",1000", ",", "+1,0", "0x1,0", "1,2,", "1,2\n", "\n1,2", "1\0,2", "1e3,0"],
        *["\u0661,0", "0,\u00b2", "\uff11,0", "1000 ,0", "0,0 ", "\ud800,0", "0,-0", "1\u0661,0"],
    ],
)
def test_what_is_no_heart_beat(value):
    assert answer(parse_heart_beat, value) == {"error": "bad-heart-beat"}
    for pair in ((value, None), (None, value), (value, "0,0"), ("0,0", value)):  # even if nothing would come of it
        assert answer(negotiate_heart_beat, *pair) == {"error": "bad-heart-beat"}


@pytest.mark.req("S12-HB-02", "S12-LIM-05")
def test_numbers_are_bounded_and_zeros_cost_linear_time():
    largest = "9" * 100
    assert parse_heart_beat(f"{largest},{largest}") == (10**100 - 1, 10**100 - 1)
    assert Heartbeat(*parse_heart_beat(f"{largest},{largest}")).dead_at(0.0) > 0
    for value in (f"{largest}0,0", f"0,{largest}0", "9" * 1_000_000 + ",0"):
        assert answer(parse_heart_beat, value) == {"error": "bad-heart-beat"}
    zeros = "0" * 1_000_000
    with linear(5):
        assert parse_heart_beat(f"{zeros}5,{zeros}") == (5, 0)
        for value in (zeros, f"{zeros}5,{zeros}x"):
            assert answer(parse_heart_beat, value) == {"error": "bad-heart-beat"}


@pytest.mark.req("ART-TTL-02", "ART-TTL-03", "ART-TTL-05", "ART-TTL-06", "ART-TTL-07", "ART-TTL-08")
@pytest.mark.parametrize(
    ("connect", "acceptor", "ttl", "asked"),
    [
        ("0,5", {"connection-ttl-override": 50000}, 50000, None),
        ("0,5", {"connection-ttl-override": -1}, 60000, None),
        ("0,5", {"connection-ttl-override": "50000", "connectionTtl": "20000"}, 20000, None),
        *(("0,5", {"connectionTtlMax": 30000, "connectionTtlMin": 20000}, 60000, None), ("499,0", {}, 1000, 500)),
        *(("501,0", {}, 1002, 501), ("15000,0", {"connectionTtlMax": "30000"}, 30000, 15000)),
        ("15001,0", {"connectionTtlMax": "30000"}, 30000, 15000),
        ("3,0", {"heartBeatToConnectionTtlModifier": "1.5", "connectionTtlMin": 1}, 4, 3),
        ("5,0", {"heartBeatToConnectionTtlModifier": 1.5, "connectionTtlMin": 1}, 7, 5),
        ("100,0", {"heartBeatToConnectionTtlModifier": 3, "connectionTtlMin": 1000}, 1000, 333),
        (f"{10**60},0", {}, 2**63 - 1, 2**62),
    ],
)
def test_artemis_ttl(connect, acceptor, ttl, asked):
    wanted = {"connection_ttl": ttl, **({} if asked is None else {"connected_client_to_server": asked})}
    assert artemis_ttl("1.2", connect, acceptor) == wanted
    assert all(type(value) is int for value in artemis_ttl("1.1", connect, acceptor).values())


@pytest.mark.req("ART-TTL-05")
@pytest.mark.parametrize("modifier", [0, -1.0, "nan", "inf", "two"])
def test_artemis_modifier_must_be_sensible(modifier):
    with pytest.raises(ValueError, match=r"modifier|Modifier|could not convert"):
        artemis_ttl("1.2", "1000,0", {"heartBeatToConnectionTtlModifier": modifier})
