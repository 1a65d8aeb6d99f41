"""Users and rules: who gets in, who may do what, and what that costs."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.broker import auth
from stompcodec.broker.auth import Auth, Rule, User, check_hash, hash_passcode, matches, parse_hash

CHEAP = 16


def users(**passcodes):
    return {name: User(name, hash_passcode(passcode, n=CHEAP)) for name, passcode in passcodes.items()}


@pytest.fixture
def hashings(monkeypatch):
    """How often scrypt ran."""
    ran = []
    slow = auth.check_hash
    monkeypatch.setattr(auth, "check_hash", lambda passcode, hashed: ran.append(passcode) or slow(passcode, hashed))
    return ran


def test_without_users_anyone_comes_in():
    open_house = Auth()
    assert open_house.login("x", "y", "/", 0.0) == User("x", vhost="/")
    assert open_house.login(None, None, "/", 0.0) == User("", vhost="/")


@pytest.mark.req("S12-CON-04")
def test_only_users_with_their_passcodes_come_in():
    door = Auth(users(ada="lovelace", bob="", zoë="päß\nwörd"))
    for login, passcode in (("ada", "lovelace"), ("bob", ""), ("zoë", "päß\nwörd")) * 2:
        user = door.login(login, passcode, "/", 0.0)
        assert (user.name, user.vhost, user.passcode) == (login, "/", "")
    for login, passcode in (
        ("ada", "lovelac"),
        ("ada", "lovelace "),
        ("ada", ""),
        ("ada", None),
        ("bob", "lovelace"),
        ("bob", None),
        ("", "lovelace"),
        (None, None),
        ("eve", "lovelace"),
        ("ada", "\udcff"),
        ("ada", "x" * 10**6),
    ):
        assert door.login(login, passcode, "/", 0.0) is None


@pytest.mark.req("S12-CON-10")
def test_users_may_be_bound_to_virtual_hosts():
    entry = User("ada", hash_passcode("x", n=CHEAP), vhosts=("/", "orders"))
    door = Auth({"ada": entry})
    assert door.login("ada", "x", "orders", 0.0).vhost == "orders"
    assert door.login("ada", "x", "elsewhere", 0.0) is None


def test_after_the_first_success_the_passcode_is_not_slow(hashings):
    door = Auth(users(ada="x"))
    assert door.login("ada", "x", "/", 0.0)
    assert len(hashings) == 1
    for number in range(200):
        assert door.login("ada", "x", "/", 0.0)
        assert door.login("ada", f"wrong {number}", "/", 0.0) is None
    assert len(hashings) == 1 + 20


def test_a_flood_of_wrong_passcodes_costs_a_bounded_time(hashings):
    """And whoever got in once still gets in."""
    door = Auth(users(ada="x", bob="y"))
    assert door.login("ada", "x", "/", 0.0)
    for number in range(1000):
        assert door.login("bob", f"guess {number}", "/", number / 100) is None
    assert len(hashings) <= 1 + 20 + 10 * 2 + 1
    assert door.login("ada", "x", "/", 10.0)
    assert door.login("bob", "y", "/", 10.0) is None
    assert door.login("bob", "y", "/", 11.0)


def test_first_logins_of_many_users_are_not_attacks(hashings):
    many = {f"user-{number}": f"passcode {number}" for number in range(100)}
    door = Auth(users(**many))
    assert all(door.login(name, passcode, "/", 0.0) for name, passcode in many.items())


def test_a_flood_of_unknown_logins_costs_a_bounded_time(hashings):
    door = Auth(users(ada="x"))
    assert not any(door.login(f"user-{number}", "x", "/", 0.0) for number in range(1000))
    assert len(hashings) == 20
    assert door._known == {}


def test_a_clock_that_goes_back_gives_nothing_away(hashings):
    door = Auth(users(ada="x"))
    for number in range(500):
        door.login("ada", "wrong", "/", -float(number))
    assert len(hashings) <= 20


def test_passcodes_and_hashes_are_never_shown():
    door = Auth(users(ada="lovelace"))
    user = door.login("ada", "lovelace", "/", 0.0)
    shown = repr(user) + repr(door) + repr(User("ada", "scrypt$secret"))
    assert "lovelace" not in shown
    assert "scrypt" not in shown


STAFF = User("ada", groups=("staff",), vhost="/")
GUEST = User("guest", vhost="/")


def test_without_rules_everything_is_allowed():
    assert Auth().may(GUEST, "send", "/queue/any")


def test_with_rules_what_none_allows_is_refused():
    door = Auth(None, [Rule("guest", "send", "/queue/a")])
    assert door.may(GUEST, "send", "/queue/a")
    assert not door.may(GUEST, "subscribe", "/queue/a")
    assert not door.may(GUEST, "send", "/queue/b")
    assert not door.may(STAFF, "send", "/queue/a")


def test_the_first_rule_that_fits_decides():
    door = Auth(
        None,
        [
            Rule("@staff", "*", "/queue/private.*"),
            Rule("*", "*", "/queue/private.*", allow=False),
            Rule("*", "*", "*", vhost="/"),
        ],
    )
    assert door.may(STAFF, "subscribe", "/queue/private.a")
    assert not door.may(GUEST, "subscribe", "/queue/private.a")
    assert door.may(GUEST, "subscribe", "/queue/public")
    assert not door.may(User("guest", vhost="other"), "subscribe", "/queue/public")
    assert not door.may(User("staff", vhost="/"), "send", "/queue/private.a")  # a user who is called like a group


PATTERNS = st.text(alphabet="ab*.", max_size=8)


@given(PATTERNS, st.text(alphabet="ab.\n[", max_size=12))
def test_patterns_mean_what_they_say(pattern, text):
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL)
    assert matches(pattern, text) == (expected is not None)


def test_patterns_are_not_slow():
    start = time.process_time()
    assert not matches("*a" * 30 + "b", "a" * 60_000)
    assert time.process_time() - start < 5


@given(st.text(max_size=30), st.text(max_size=30))
def test_hashes_tell_passcodes_apart(one, other):
    hashed = hash_passcode(one, n=CHEAP)
    assert check_hash(one, hashed)
    assert check_hash(other, hashed) == (one == other)
    assert hash_passcode(one, n=CHEAP) != hashed  # the salt


def test_hashes_are_slow_by_default():
    assert parse_hash(hash_passcode("x"))[:3] == (16384, 8, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "guest",
        "scrypt$16384$8$1$c2FsdA==",
        "scrypt$16384$8$1$c2FsdA==$c2hvcnQ=",
        "scrypt$16383$8$1$c2FsdA==$" + "A" * 43 + "=",
        "scrypt$1$8$1$c2FsdA==$" + "A" * 43 + "=",
        "scrypt$1073741824$8$1$c2FsdA==$" + "A" * 43 + "=",
        "scrypt$16$8$1000$c2FsdA==$" + "A" * 43 + "=",
        "scrypt$16$8$1$?$" + "A" * 43 + "=",
        "md5$16$8$1$c2FsdA==$" + "A" * 43 + "=",
    ],
)
def test_what_is_no_hash_is_refused(text):
    with pytest.raises(ValueError, match="it is not a hash of a passcode"):
        parse_hash(text)


def test_a_passcode_without_end_is_refused():
    with pytest.raises(ValueError, match="at most 1024"):
        hash_passcode("x" * 1025)
