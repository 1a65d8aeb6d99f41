"""CONNECT and its answer: versions, virtual hosts, who may come in, and what they may do."""

import logging

import pytest
from broker.harness import Bench, Peer

from stompcodec.broker.auth import Rule, User, hash_passcode


@pytest.mark.req(
    "S12-CON-02", "S12-CTD-01", "S12-NEG-04", "S11-CTD-01", "S11-CTD-03", "S11-HB-01", "S10-CON-03", "S10-CON-04"
)
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_connected_has_version_session_server_and_heart_beat(version):
    bench = Bench()
    one, two = Peer(bench, version), Peer(bench, version)
    answers = [one.connect(), two.connect()]
    assert [answer.get("version") for answer in answers] == [version] * 2
    assert answers[0].headers["session"] != answers[1].headers["session"]
    assert answers[0].headers["server"].startswith("stompcodec/")
    assert answers[0].get("heart-beat") is not None


def test_everything_in_one_chunk_cut_anywhere():
    octets = (
        b"\nCONNECT\naccept-version:1.2\nhost:/\n\n\0\r\nSUBSCRIBE\nid:a\\cb\ndestination:/queue/a\n\n\0"
        b"SEND\ndestination:/queue/a\n\nhi\0DISCONNECT\nreceipt:bye\n\n\0"
    )
    for cut in range(len(octets)):
        peer = Bench().peer(connect=False)
        peer.raw(octets[:cut])
        peer.raw(octets[cut:])
        _, message, receipt = peer.take()
        assert (message.headers["subscription"], message.body) == ("a:b", b"hi")
        assert receipt.headers["receipt-id"] == "bye"
        assert peer.closed


@pytest.mark.req("S12-CON-10", "S11-CON-11", "WISH-VHO-01")
def test_virtual_hosts_are_apart():
    bench = Bench(virtual_hosts=("first", "second"))
    one, two, default = Peer(bench), Peer(bench), Peer(bench, "1.0")
    one.connect(host="first")
    two.connect(host="second")
    default.raw(b"CONNECT\n\n\0")
    default.next("CONNECTED")
    any_host = Bench()
    for host in ("a", "b"):  # without virtual hosts
        Peer(any_host).connect(host=host)
    assert set(any_host.broker._virtual_hosts) == {"/"}
    for peer in (one, two, default):
        peer.subscribe("/queue/a")
        peer.subscribe("/topic/a", "2")
    two.put("/queue/a", "q")
    two.put("/topic/a", "t")
    assert two.bodies() == [b"q", b"t"]
    assert one.take() == default.take() == []
    one.put("/topic/a", "t")
    assert one.bodies() == default.bodies() == [b"t"]
    nowhere = Peer(bench)
    nowhere.send("CONNECT", accept_version="1.2", host="third")
    assert nowhere.error().headers["message"] == "unknown virtual host"


USERS = {name: User(name, hash_passcode(name, n=16)) for name in ("guest", "ada")}
RULES = (
    Rule("ada", "*", "/queue/ada.*"),
    Rule("*", "*", "/queue/ada.*", allow=False),
    Rule("guest", "send", "/queue/in"),
    Rule("*", "subscribe"),
)


@pytest.mark.req("S12-CON-03", "S12-CON-04")
@pytest.mark.parametrize("passcode", ["wrong", "", "ada"])
def test_a_wrong_passcode(passcode, caplog):
    caplog.set_level(logging.DEBUG)
    peer = Peer(Bench(users=USERS))
    peer.send("CONNECT", accept_version="1.2", host="/", login="guest", passcode=passcode or "x7secret", receipt="no")
    error = peer.error()
    assert error.headers["message"] == "login refused"
    assert error.get("receipt-id") is None
    assert "x7secret" not in caplog.text + repr(error) + error.body.decode()


def test_rules():
    bench = Bench(users=USERS, rules=RULES)
    ada, guest = Peer(bench), Peer(bench)
    ada.connect(login="ada", passcode="ada")
    guest.connect()
    for _ in range(2):  # the second time, the answer is remembered
        ada.put("/queue/ada.1", "x")
        guest.put("/queue/in", "y")
    guest.subscribe("/queue/in")
    assert guest.bodies() == [b"y", b"y"]
    guest.put("/queue/ada.1", "x", receipt="r")
    error = guest.error()
    assert (error.headers["message"], error.headers["receipt-id"]) == ("not allowed to send there", "r")
    other = bench.peer()
    other.subscribe("/queue/ada.1")
    assert other.error().headers["message"] == "not allowed to subscribe there"
    assert bench.broker.queues["/", "/queue/ada.1"].count == 2
    guest = bench.peer()
    guest.send("BEGIN", transaction="t")
    guest.put("/queue/other", transaction="t")
    assert guest.error().headers["message"] == "not allowed to send there"


# ---- blanks behind the colons of CONNECT, as the examples of the older specifications write them ----

PASSCODES = {"ada": "lovelace", " eve": " apple"}
BLANKS = {name: User(name, passcode=hash_passcode(passcode, n=2)) for name, passcode in PASSCODES.items()}


def answer(lines: str, **config):
    """Send a CONNECT of these lines; the answer."""
    peer = Bench(users=BLANKS, **config).peer(connect=False)
    peer.raw(f"CONNECT\n{lines}\n\0".encode())
    return peer.take()[-1]


@pytest.mark.req("WISH-NEG-01", "WISH-NEG-02")
@pytest.mark.parametrize(
    ("lines", "config", "version"),
    [
        ("login: ada\npasscode: lovelace\nversion: 1.1\n", {"version_header": True}, "1.1"),
        ("login: ada\npasscode:lovelace\nversion: 1.1\n", {"version_header": True}, "1.1"),
        ("login:ada\npasscode:lovelace\n", {}, "1.0"),
        ("login: ada\npasscode: lovelace\n", {}, "1.0"),
        ("login: eve\npasscode: apple\n", {}, "1.0"),  # these blanks belong to them
        ("login:  eve\npasscode:  apple\n", {}, "1.0"),
        ("username: ada\npasscode: lovelace\n", {"detect_legacy": True}, None),
        ("login:ada\npasscode:lovelace\nhost:/\naccept-version:1.0, 1.1, 1.2\n", {}, "1.0"),
    ],
)
def test_a_client_of_1_0_may_write_one_blank(lines, config, version):
    connected = answer(lines, **config)
    assert (connected.command, connected.get("version")) == ("CONNECTED", version)


@pytest.mark.parametrize(
    "lines",
    [
        "login:  ada\npasscode:  lovelace\n",
        "login: ada\npasscode: wrong\n",
        "login:ada \npasscode:lovelace\n",
        "login: ada\npasscode: lovelace\naccept-version:1.2\nhost:/\n",
        "login:ada\npasscode: lovelace\naccept-version:1.1\nhost:/\n",
    ],
)
def test_nothing_else_is_taken_for_a_login(lines):
    refused = answer(lines)
    assert (refused.command, refused.get("message")) == ("ERROR", "login refused")


@pytest.mark.parametrize("blank", ["", " ", "\t", "  "])
def test_values_of_the_protocol_are_read_without_blanks_around(blank):
    login = "login:ada\npasscode:lovelace\nhost:/\n"
    connected = answer(f"{login}accept-version:{blank}1.1{blank}\nheart-beat:{blank}1000,2000{blank}\n")
    assert (connected.command, connected.get("version")) == ("CONNECTED", "1.1")
