"""Negotiation, required headers, and the order of frames."""

import itertools

import pytest
from hypothesis import given as st_given
from hypothesis import strategies as st
from protocol.vectors_of import answer, vectors_of

from stompcodec.spec import CLIENT_1_1, SERVER, VERSIONS
from stompcodec.states import (
    State,
    missing_headers,
    negotiate,
    negotiate_client,
    negotiate_wishlist,
    next_state,
)

COMMANDS = {"client": CLIENT_1_1, "server": SERVER}
EVERY_FRAME = [(sender, command) for sender in COMMANDS for command in COMMANDS[sender]]
OLDER = ("1.0", "1.1", "legacy")
any_version = st.sampled_from([None, "1.2", *OLDER])


def versions_or_error(got):
    return got if isinstance(got, dict) else {"version": got}


@vectors_of("negotiate")
def test_negotiate_vectors(given, expect):
    assert versions_or_error(answer(negotiate, given["accept_version"], given["server"])) == expect


@vectors_of("negotiate-client")
def test_negotiate_client_vectors(given, expect):
    assert versions_or_error(answer(negotiate_client, given["connected_version"], given["offered"])) == expect


@vectors_of("negotiate-wishlist")
def test_negotiate_wishlist_vectors(given, expect):
    got = answer(negotiate_wishlist, given["client_version"], given["server_version"])
    assert versions_or_error(got) == expect


@vectors_of("validate")
def test_validate_vectors(given, expect):
    got = missing_headers(given["version"], given["sender"], given["command"], given["headers"])
    assert {"missing": got} == expect


@pytest.mark.req("S12-NEG-04", "S12-HDR-01")
@pytest.mark.parametrize(
    "entry", ["1.2 ", " 1.2", "1.2\t", "01.2", "1.2.0", "1,2", "1", "V1.2", "\u0661.2", "", "1.2;", "1.02"]
)
def test_entries_are_compared_exactly(entry):
    assert answer(negotiate, entry, VERSIONS) == {"error": "no-common-version"}
    assert answer(negotiate, f"{entry},1.1", VERSIONS) == "1.1"
    assert answer(negotiate_client, entry, VERSIONS) == {"error": "no-common-version"}


@pytest.mark.req("WISH-NEG-03")
@pytest.mark.parametrize(
    "version", ["", "1", "1.1 ", "1.1\n", "1.1,1.2", "foo", "1." + "9" * 100_000, "01.1", "1.\u0661"]
)
def test_wishlist_refuses_what_is_no_version(version):
    assert answer(negotiate_wishlist, version, "1.1") == {"error": "no-common-version"}
    assert answer(negotiate_wishlist, "1.1", version) == {"error": "no-common-version"}


@pytest.mark.req("LEG-CON-02", "LEG-HDR-04", "LEG-CMD-01", "LEG-SUB-01")
def test_legacy_names_have_no_case():
    assert missing_headers("legacy", "client", "connect", []) == ["username", "passcode"]
    assert missing_headers("legacy", "client", "connect", [("PassCode", "x")]) == ["username"]
    assert missing_headers("legacy", "client", "Subscribe", []) == ["destination"]


# The order of frames.


def legal(state, version="1.2"):
    return {frame for frame in EVERY_FRAME if next_state(frame[0], state, frame[1], version) is not None}


@pytest.mark.req("S12-CON-01", "S12-CON-05", "S11-CON-01", "S11-CON-06", "S10-CON-01", "LEG-CON-01")
@pytest.mark.parametrize("version", [None, "1.2", *OLDER])
def test_a_conversation_begins_with_connect(version):
    assert legal(State.NEW, version) == {("client", "CONNECT"), ("client", "STOMP"), ("server", "ERROR")}
    assert next_state("client", State.NEW, "CONNECT", version) is State.CONNECTING
    assert next_state("client", State.NEW, "STOMP", version) is State.CONNECTING


@pytest.mark.req("S12-CON-02", "S12-CON-03", "S12-CON-04", "S10-CON-03", "LEG-CON-05")
@pytest.mark.parametrize("version", [None, "1.2", *OLDER])
def test_the_server_accepts_or_rejects(version):
    assert legal(State.CONNECTING, version) == {("server", "CONNECTED"), ("server", "ERROR")}
    assert next_state("server", State.CONNECTING, "CONNECTED", version) is State.CONNECTED
    for state in (State.NEW, State.CONNECTING):
        assert next_state("server", state, "ERROR", version) is State.FAILED


@pytest.mark.req("S12-FRM-06", "S12-FRM-07", "LEG-CMD-04")
@pytest.mark.parametrize("version", ["1.2", *OLDER])
def test_once_connected(version):
    frames = {("client", command) for command in CLIENT_1_1 if command not in ("CONNECT", "STOMP")}
    frames |= {("server", command) for command in SERVER if command != "CONNECTED"}
    assert legal(State.CONNECTED, version) == frames
    for sender, command in frames - {("client", "DISCONNECT"), ("server", "ERROR")}:
        assert next_state(sender, State.CONNECTED, command, version) is State.CONNECTED


@pytest.mark.req("S12-DIS-01", "S12-DIS-02", "S11-DIS-02", "S10-DIS-01", "LEG-DIS-01")
@pytest.mark.parametrize("version", ["1.2", *OLDER])
def test_after_disconnect_only_the_server_speaks(version):
    assert next_state("client", State.CONNECTED, "DISCONNECT", version) is State.DISCONNECTING
    assert legal(State.DISCONNECTING, version) == {("server", c) for c in ("MESSAGE", "RECEIPT", "ERROR")}
    for command in ("MESSAGE", "RECEIPT"):
        assert next_state("server", State.DISCONNECTING, command, version) is State.DISCONNECTING


@pytest.mark.req("S12-ERR-01", "S12-ERR-02", "S11-ERR-01", "S10-ERR-01")
@pytest.mark.parametrize("state", [State.CONNECTED, State.DISCONNECTING])
def test_error_ends_a_session_of_1_2_only(state):
    assert next_state("server", state, "ERROR") is State.FAILED
    assert next_state("server", state, "ERROR", None) is State.FAILED
    for version in OLDER:
        assert next_state("server", state, "ERROR", version) is state


@pytest.mark.req("S12-ERR-02")
@pytest.mark.parametrize("version", [None, "1.2", *OLDER])
def test_nothing_follows_the_end(version):
    assert not legal(State.FAILED, version)
    assert not legal(State.CLOSED, version)


@st_given(any_version, st.sampled_from(State), st.text())
def test_unknown_commands_are_illegal(version, state, command):
    if command not in {*CLIENT_1_1, *SERVER}:
        assert next_state("client", state, command, version) is None
        assert next_state("server", state, command, version) is None


@pytest.mark.req("S12-DIS-02", "S12-RCP-04")
@pytest.mark.parametrize("version", ["1.2", *OLDER])
def test_messages_and_receipts_may_cross_with_any_client_frame(version):
    """Both ends come to the same state, whichever of two crossing frames they see first."""
    for command, answered in itertools.product(CLIENT_1_1, ("MESSAGE", "RECEIPT")):
        after = next_state("client", State.CONNECTED, command, version)
        if after is not None:
            server_first = next_state("server", State.CONNECTED, answered, version)
            assert next_state("client", server_first, command, version) is after
            assert next_state("server", after, answered, version) is after
