"""Blanks behind the colons of CONNECT, as the examples of the older specifications write them."""

import pytest
from broker.harness import Bench

from stompcodec.broker.auth import User, hash_passcode

PASSCODES = {"ada": "lovelace", " eve": " apple"}
USERS = {name: User(name, passcode=hash_passcode(passcode, n=2)) for name, passcode in PASSCODES.items()}


def answer(lines: str, **config):
    """Send a CONNECT of these lines; the answer."""
    peer = Bench(users=USERS, **config).peer(connect=False)
    peer.raw(f"CONNECT\n{lines}\n\0".encode())
    return peer.take()[-1]


@pytest.mark.req("WISH-NEG-01", "WISH-NEG-02")
def test_the_example_of_the_wish_list_works_as_it_is_written():
    connected = answer("login: ada\npasscode: lovelace\nversion: 1.1\n", version_header=True)
    assert (connected.command, connected.get("version")) == ("CONNECTED", "1.1")
    connected = answer("login: ada\npasscode:lovelace\nversion: 1.1\n", version_header=True)
    assert (connected.command, connected.get("version")) == ("CONNECTED", "1.1")


@pytest.mark.parametrize(
    "lines",
    [
        "login:ada\npasscode:lovelace\n",
        "login: ada\npasscode: lovelace\n",
        "login: eve\npasscode: apple\n",  # these blanks belong to them
        "login:  eve\npasscode:  apple\n",
    ],
)
def test_a_client_of_1_0_may_write_one_blank(lines):
    assert answer(lines).command == "CONNECTED"


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


def test_a_client_of_the_older_dialect_may_write_blanks():
    connected = answer("username: ada\npasscode: lovelace\n", detect_legacy=True)
    assert connected.command == "CONNECTED"


@pytest.mark.parametrize("blank", ["", " ", "\t", "  "])
def test_values_of_the_protocol_are_read_without_blanks_around(blank):
    login = "login:ada\npasscode:lovelace\nhost:/\n"
    connected = answer(f"{login}accept-version:{blank}1.1{blank}\nheart-beat:{blank}1000,2000{blank}\n")
    assert (connected.command, connected.get("version")) == ("CONNECTED", "1.1")


def test_blanks_inside_a_list_stay():
    connected = answer("login:ada\npasscode:lovelace\nhost:/\naccept-version:1.0, 1.1, 1.2\n")
    assert connected.get("version") == "1.0"
