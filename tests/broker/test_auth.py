"""Users and rules: who gets in, who may do what, and what a login costs."""

import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stompcodec.broker import auth
from stompcodec.broker.auth import Auth, Rule, User, hash_passcode, matches, parse_hash


def users(n=16, **passcodes):
    return {name: User(name, hash_passcode(passcode, n=n)) for name, passcode in passcodes.items()}


@pytest.fixture
def costs(monkeypatch):
    ran, slow = [], auth.check_hash

    def check(passcode, hashed):
        ran.append(parse_hash(hashed)[0])
        return slow(passcode, hashed)

    monkeypatch.setattr(auth, "check_hash", check)
    return ran


def test_without_users_anyone_comes_in():
    assert Auth().login("x", "y", "/", 0.0) == User("x", vhost="/")
    assert Auth().login(None, None, "/", 0.0) == User("", vhost="/")


@pytest.mark.req("S12-CON-04", "S12-CON-10")
def test_only_users_with_their_passcodes_come_in_to_their_virtual_hosts():
    door = Auth(users(ada="lovelace", bob="b", zoë="päß\nwörd", adab="c"))
    for login, passcode in (("ada", "lovelace"), ("zoë", "päß\nwörd"), ("adab", "c")) * 2:
        user = door.login(login, passcode, "/", 0.0)
        assert (user.name, user.vhost, user.passcode) == (login, "/", "")
        assert "lovelace" not in repr(user) + repr(door)
        assert "scrypt" not in repr(user) + repr(door) + repr(User("ada", "scrypt$secret"))
    for login, passcode in (
        *(("ada", "lovelac"), ("ada", "lovelace "), ("ada", ""), ("bob", ""), ("bob", "lovelace"), ("ada", "bc")),
        *(("", "lovelace"), (None, None), ("eve", "lovelace"), ("ada", "\udcff")),
    ):
        assert door.login(login, passcode, "/", 0.0) is None
    assert Auth({"ann": User("ann")}).login("ann", "x", "/", 0.0) is None  # without a passcode
    with pytest.raises(ValueError, match="make one with hash_passcode"):
        Auth({"ann": User("ann", "x")})
    door = Auth({"ada": User("ada", hash_passcode("x", n=16), vhosts=("/", "orders"))})
    assert door.login("ada", "x", "orders", 0.0).vhost == "orders"
    assert door.login("ada", "x", "elsewhere", 0.0) is None


def test_a_flood_of_wrong_passcodes_costs_a_bounded_time(costs):
    """Whoever got in once still gets in, for no hash at all; others do as soon as there is a token."""
    door = Auth(users(ada="x", bob="y"))
    assert door.login("ada", "x", "/", 0.0)
    for number in range(1000):
        assert door.login("bob", f"guess {number}", "/", number / 100) is None
    assert len(costs) <= 1 + 20 + 10 * 2 + 1
    assert door.login("ada", "x", "/", 10.0)
    assert door.login("bob", "y", "/", 10.0) is None
    assert door.login("bob", "y", "/", 11.0)
    del costs[:]
    assert all(door.login("ada", "x", "/", 11.0) for _ in range(200))
    assert costs == []


@pytest.mark.parametrize(
    ("name", "passcode"),
    [("nobody", "wrong"), ("bob", "wrong"), ("ada", "wrong"), ("", "wrong"), ("nobody", "x")],
    ids=["unknown", "known, never here", "known, was here", "no name", "unknown, another's passcode"],
)
def test_a_refusal_costs_the_same_for_each_name(costs, name, passcode):
    door = Auth(users(ada="x", bob="y"))
    assert door.login("ada", "x", "/", 0.0)
    del costs[:]
    for number in range(25):
        assert door.login(name, f"{passcode}{number}", "/", 0.0) is None
    assert (costs, list(door._known)) == ([16] * 20, ["ada"])
    assert door.login(name, f"{passcode}0", "/", 60.0) is None
    assert len(costs) == 20
    assert door.login(name, f"{passcode}24", "/", 60.0) is None  # there was no token for this one
    assert len(costs) == 21


def test_first_logins_of_many_users_are_not_attacks():
    many = {f"user-{number}": f"passcode {number}" for number in range(100)}
    door = Auth(users(**many))
    assert all(door.login(name, passcode, "/", 0.0) for name, passcode in many.items())


def test_a_clock_that_goes_back_gives_nothing_away(costs):
    door = Auth(users(ada="x"))
    for number in range(500):
        door.login("ada", "wrong", "/", -float(number))
    assert len(costs) <= 20


@pytest.mark.parametrize("passcode", [None, "x" * 2000])
@pytest.mark.parametrize("name", ["ada", "nobody", None])
def test_what_cannot_be_right_is_refused_at_once(costs, name, passcode):
    assert Auth(users(ada="x")).login(name, passcode, "/", 0.0) is None
    assert Auth({}).login("ada", "x", "/", 0.0) is None
    assert costs == []


def test_an_unknown_name_costs_what_some_known_one_costs(costs):
    door = Auth(users(16, ada="x") | users(32, bob="x"))
    for name in ("one", "two", "three", "four", "five", "six"):
        del costs[:]
        for number in range(3):
            door.login(name, f"wrong {number}", "/", 0.0)
        assert costs in ([16] * 3, [32] * 3)


@pytest.mark.parametrize(("addresses", "most"), [(1, 10 + 10 + 1), (10, 20 + 20 + 1)])
def test_a_flood_from_other_addresses_leaves_first_logins(costs, addresses, most):
    door = Auth(users(ada="x", bob="y"))
    for number in range(1000):
        assert door.login(f"user {number}", "x", "/", number / 100, f"192.0.2.{number % addresses}") is None
    assert len(costs) <= most
    assert door.login("ada", "x", "/", 10.0, "192.0.2.77")
    assert door.login("bob", "y", "/", 10.0, None)


def test_what_is_remembered_is_bounded():
    door = Auth(users(2, ada="x"))
    for number in range(1200):
        door.login(f"user {number}", "x", "/", number * 1.0, f"192.0.2.{number}")
    assert len(door._refused) <= auth._MOST_REFUSED
    assert len(door._buckets) <= auth._MOST_ADDRESSES


@pytest.mark.parametrize(
    ("who", "vhost", "action", "destination", "may"),
    [
        *(("guest", "one", "send", "/queue/a", True), ("guest", "one", "subscribe", "/queue/a", False)),
        *(("guest", "one", "send", "/queue/b", False), ("ada", "one", "send", "/queue/a", False)),
        ("@staff", "/", "subscribe", "/queue/private.a", True),
        ("guest", "/", "subscribe", "/queue/private.a", False),
        ("guest", "/", "subscribe", "/queue/public", True),
        ("guest", "other", "subscribe", "/queue/public", False),
        ("staff", "/", "send", "/queue/private.a", False),  # a user who is called like a group
    ],
)
def test_the_first_rule_that_fits_decides_and_what_none_allows_is_refused(who, vhost, action, destination, may):
    rules = [
        *(Rule("guest", "send", "/queue/a", vhost="one"), Rule("@staff", "*", "/queue/private.*")),
        *(Rule("*", "*", "/queue/private.*", allow=False), Rule("*", "*", "*", vhost="/")),
    ]
    user = User("ada", groups=("staff",), vhost=vhost) if who == "@staff" else User(who, vhost=vhost)
    assert Auth(None, rules).may(user, action, destination) is may
    assert Auth().may(user, "send", "/queue/any")


@given(st.text(alphabet="ab*.", max_size=8), st.text(alphabet="ab.\n[", max_size=12))
@example("a*b", "ab")
@example("a*a", "a")
def test_patterns_mean_what_they_say(pattern, text):
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL)
    assert matches(pattern, text) == (expected is not None)


def test_patterns_are_not_slow():
    start = time.process_time()
    assert not matches("*a" * 30 + "b", "a" * 60_000)
    assert time.process_time() - start < 5


def test_hashes_are_slow_by_default():
    assert parse_hash(hash_passcode("x" * 1024))[:3] == (16384, 8, 1)
    with pytest.raises(ValueError, match="1 to 1024"):
        hash_passcode("x" * 1025)


KEY = "A" * 43 + "="


@pytest.mark.parametrize(
    "text",
    [
        *("", "guest", "scrypt$16384$8$1$c2FsdA==", "scrypt$16384$8$1$c2FsdA==$c2hvcnQ="),
        *(f"scrypt$16383$8$1$c2FsdA==${KEY}", f"scrypt$1$8$1$c2FsdA==${KEY}", f"scrypt$16$8$1000$c2FsdA==${KEY}"),
        *(f"scrypt$1073741824$8$1$c2FsdA==${KEY}", f"scrypt$16$8$1$?${KEY}", f"md5$16$8$1$c2FsdA==${KEY}"),
    ],
)
def test_what_is_no_hash_is_refused(text):
    with pytest.raises(ValueError, match="it is not a hash of a passcode"):
        parse_hash(text)
