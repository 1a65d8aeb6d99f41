"""The time of a refusal does not say which users there are, and an address does not use up the hashes of others."""

from __future__ import annotations

import pytest

from stompcodec.broker import auth
from stompcodec.broker.auth import Auth, User, hash_passcode


@pytest.fixture
def costs(monkeypatch):
    """The cost N of each hash that was computed."""
    ran = []
    slow = auth.check_hash

    def check(passcode, hashed):
        ran.append(auth.parse_hash(hashed)[0])
        return slow(passcode, hashed)

    monkeypatch.setattr(auth, "check_hash", check)
    return ran


def door_of(n=16, **passcodes):
    return Auth({name: User(name, hash_passcode(passcode, n=n)) for name, passcode in passcodes.items()})


WAYS = {
    "unknown": ("nobody", "wrong"),
    "known, never here": ("bob", "wrong"),
    "known, was here": ("ada", "wrong"),
    "no name": ("", "wrong"),
    "unknown, another's passcode": ("nobody", "x"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_costs_the_same_for_each_name(costs, way):
    """One hash, while there are tokens; from then on none; and none for the same attempt again."""
    door = door_of(ada="x", bob="y")
    assert door.login("ada", "x", "/", 0.0)
    del costs[:]
    name, passcode = WAYS[way]
    for number in range(25):
        assert door.login(name, f"{passcode}{number}", "/", 0.0) is None
    assert costs == [16] * 20
    assert door.login(name, f"{passcode}0", "/", 60.0) is None
    assert len(costs) == 20
    assert door.login(name, f"{passcode}24", "/", 60.0) is None  # there was no token for this one
    assert len(costs) == 21


@pytest.mark.parametrize("passcode", [None, "x" * 2000])
@pytest.mark.parametrize("name", ["ada", "nobody", None])
def test_what_cannot_be_right_is_refused_at_once(costs, name, passcode):
    assert door_of(ada="x").login(name, passcode, "/", 0.0) is None
    assert costs == []


def test_an_unknown_name_costs_what_some_known_one_costs(costs):
    """Each time the same, also where hashes of users differ in cost."""
    users = {name: User(name, hash_passcode("x", n=n)) for name, n in (("ada", 16), ("bob", 32))}
    door = Auth(users)
    for name in ("one", "two", "three", "four", "five", "six"):
        found = set()
        for number in range(3):
            del costs[:]
            door.login(name, f"wrong {number}", "/", 0.0)
            found.update(costs)
        assert len(found) == 1
        assert found <= {16, 32}


def test_without_any_user_nothing_is_computed(costs):
    assert Auth({}).login("ada", "x", "/", 0.0) is None
    assert costs == []


def test_a_name_and_a_passcode_are_not_mistaken_for_another_pair(costs):
    door = door_of(ada="x", adab="c")
    assert door.login("ada", "bc", "/", 0.0) is None
    assert door.login("adab", "c", "/", 0.0)


def test_a_flood_from_one_address_leaves_first_logins_to_others(costs):
    door = door_of(ada="x", bob="y")
    for number in range(1000):
        assert door.login(f"user {number}", "x", "/", number / 100, "192.0.2.6") is None
    assert len(costs) <= 10 + 10 + 1
    assert door.login("ada", "x", "/", 10.0, "192.0.2.7")
    assert door.login("bob", "y", "/", 10.0, None)


def test_a_flood_from_several_addresses_leaves_some_too(costs):
    door = door_of(ada="x", bob="y")
    for number in range(1000):
        assert door.login(f"user {number}", "x", "/", number / 100, f"192.0.2.{number % 10}") is None
    assert door.login("ada", "x", "/", 10.0, "192.0.2.77")
    assert door.login("bob", "y", "/", 10.0, None)


def test_what_is_remembered_is_bounded():
    door = door_of(n=2, ada="x")
    for number in range(1200):
        door.login(f"user {number}", "x", "/", number * 1.0, f"192.0.2.{number}")
    assert len(door._refused) <= auth._MOST_REFUSED
    assert len(door._buckets) <= auth._MOST_ADDRESSES
