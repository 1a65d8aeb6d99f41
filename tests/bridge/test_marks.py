"""Names of brokers, paths, and keys."""

import platform

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.bridge.headers import (
    MOST_HOPS,
    PATH,
    broker_name,
    check_name,
    circle,
    extended,
    idempotency_key,
    may_be_one,
    same_broker,
)
from stompcodec.broker.management import stomp as management
from stompcodec.uri import parse_uri

HERE = platform.node().lower()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("stomp://ann:secret@Host.example", "host.example:61613"),
        ("stomp://host/v", "host:61613/v"),
        ("stomp://host?vhost=v", "host:61613/v"),
        ("ws://host:8080/stomp?token=secret", "host:8080"),
        ("failover:(stomp://b,stomp://ann:secret@a)", "a:61613"),
        ("failover:(stomp://a,stomp://b)", "a:61613"),
        ("stomp://127.0.0.1", f"{HERE}:61613"),
        ("stomp://[::1]:5", f"{HERE}:5"),
        ("stomp://0.0.0.0", f"{HERE}:61613"),
        ("stomp://Host.example.", "host.example:61613"),
        ("stomp://localhost/a%2Cb%20c", f"{HERE}:61613/a%2Cb%20c"),
    ],
)
def test_a_name_has_no_secret_and_is_one_for_each_broker(url, name):
    assert broker_name(parse_uri(url)) == name
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("stomp://a", "stomp://a", True),
        ("stomp://ann:1@a", "stomp://bob:2@A:61613", True),
        ("stomp://a", "stomp://a:61614", False),
        ("stomp://a/v", "stomp://a/w", False),
        ("stomp://a", "stomp://b.invalid", False),
        ("stomp://localhost", "tcp://127.0.0.1", True),
        ("stomp://127.0.0.2", "stomp://[::1]", True),
        ("stomp://a", "failover:(stomp://c.invalid,stomp://a)", True),
        ("stomp://localhost", "stomp://0.0.0.0", True),
        ("stomp://localhost", "stomp://[::]", True),
        ("stomp://localhost", "stomp://[::ffff:127.0.0.1]", True),
        ("stomp://localhost", "stomp://Localhost.", True),
        ("stomp://a.invalid", "stomp://A.invalid.", True),
        ("stomp://localhost", "stomp+ssl://localhost:61613", True),
        ("stomp://localhost", "stomp://10.0.0.1", False),
    ],
)
def test_the_same_broker(one, other, same):
    assert same_broker(parse_uri(one), parse_uri(other)) == same


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        ("stomp://localhost", "stomp://127.0.0.1:61614", True),
        ("stomp://localhost", f"stomp://{HERE}:61614", True),
        ("stomp://a.invalid", "ws://A.invalid:1/ws", True),
        ("stomp://a.invalid/v", "stomp://a.invalid/w", True),
        ("stomp://a.invalid", "failover:(stomp://b.invalid,stomp://a.invalid)", True),
        ("stomp://a.invalid", "stomp://b.invalid", False),
        ("stomp://localhost", "stomp://10.0.0.1", False),
    ],
)
def test_ends_on_one_machine(one, other, may):
    assert may_be_one(parse_uri(one), parse_uri(other)) == may


@pytest.mark.parametrize("name", ["", "a,b", " a", "a\n", "x" * 256])
def test_names_that_cannot_stand_in_a_path(name):
    with pytest.raises(ValueError, match="a name has 1 to 255"):
        check_name(name)


HOSTS = st.text("abc.:/1", min_size=1, max_size=5)


@given(st.lists(HOSTS, max_size=5), HOSTS, HOSTS)
def test_a_path_never_has_a_broker_twice(brokers, source, target):
    path = None
    for broker in brokers:
        path = extended(path, broker)
    assert (circle(path, source, target) is None) == (source not in brokers and target not in brokers)


def test_a_path_has_an_end():
    path = ",".join(str(number) for number in range(MOST_HOPS))
    assert "carried 16 times" in circle(path, "a", "b")
    assert circle(path.rpartition(",")[0], "a", "b") is None


@given(st.tuples(HOSTS, HOSTS, HOSTS), st.tuples(HOSTS, HOSTS, HOSTS))
def test_a_key_is_that_of_one_message(one, other):
    assert (idempotency_key(*one) == idempotency_key(*other)) == (one == other)


def test_the_broker_knows_what_a_bridge_carries():
    assert management._CARRIED == PATH
