"""Wildcards: what a pattern means, and subscriptions to several topics at once."""

import re

import pytest
from broker.harness import Bench, bench_with_two
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.broker import settings
from stompcodec.broker.auth import Auth, Rule, User
from stompcodec.broker.settings import SYNTAXES, Patterns, Wildcards
from stompcodec.broker.values import Refused

WORDS = st.lists(st.sampled_from(["a", "b", "", "ab"]), min_size=1, max_size=6)
MARKED = st.lists(st.sampled_from(["a", "b", "", "ab", "*", "#", "#"]), min_size=1, max_size=6)


def as_regex(pattern):
    """Match by other means: each word with a separator in front."""
    parts = {"*": r"(?:\.[^.]*)", "#": r"(?:\.[^.]*)*"}
    return re.compile("".join(parts.get(word) or r"\." + re.escape(word) for word in pattern))


@given(MARKED, WORDS)
def test_a_pattern_means_what_a_regular_expression_says(pattern, words):
    wildcards = Wildcards(SYNTAXES["rabbitmq"])
    found = wildcards.pattern("/topic/", ".".join(pattern))
    name = wildcards.words("/topic/", ".".join(words))
    expected = bool(as_regex(pattern).fullmatch("".join("." + word for word in words)))
    if found is None:
        assert not {"*", "#"} & set(pattern)
    else:
        assert found.matches(name) is expected
        assert not found.matches(("/other/", *name[1:]))


@given(st.lists(st.tuples(MARKED, st.integers(0, 3))), WORDS)
def test_patterns_are_found_as_one_by_one(entries, words):
    wildcards, patterns = Wildcards(SYNTAXES["rabbitmq"]), Patterns()
    kept = {}
    for number, (marked, action) in enumerate(entries):
        pattern = wildcards.pattern("", ".".join(marked))
        if pattern is not None:
            patterns.add(pattern, number)
            kept[number] = pattern
            patterns.find(wildcards.words("", ".".join(words)))
            if action == 0:
                patterns.remove(pattern, number)
                del kept[number]
    name = wildcards.words("", ".".join(words))
    for _ in range(2):  # the second time it is known
        assert sorted(patterns.find(name)) == [number for number, pattern in kept.items() if pattern.matches(name)]


def test_hostile_names_are_bounded():
    wildcards = Wildcards(SYNTAXES["rabbitmq"])
    assert wildcards.words("", "a." * 63 + "a") != ()
    assert wildcards.words("", "a." * 64 + "a") == ()
    with pytest.raises(Refused):
        wildcards.pattern("", "#." * 64 + "a")
    steps = wildcards.pattern("", "#.a." * 31 + "b")
    assert not steps.matches(wildcards.words("", "a." * 63 + "a"))


def bench_of(syntax="rabbitmq", **config):
    return bench_with_two(wildcards=syntax, **config)


RULES = [Rule(destination="/topic/secret.*", allow=False), Rule(destination="/topic/*")]


@pytest.mark.parametrize(
    ("destination", "allowed"),
    [
        ("/topic/secret.a", False),
        ("/topic/#", False),
        ("/topic/*.a", False),
        ("/topic/secret.#", False),
        ("/topic/s*", True),  # no wildcard: it is a part of a word
        ("/topic/open.#", True),
        ("/topic/open.*", True),
    ],
)
def test_rules_hold_for_all_that_a_pattern_means(destination, allowed):
    bench = Bench(wildcards="rabbitmq", rules=tuple(RULES))
    peer = bench.peer()
    peer.send("SUBSCRIBE", destination=destination, id="1", receipt="r")
    frame = peer.next()
    assert frame.command == ("RECEIPT" if allowed else "ERROR")


def topics_of(bench):
    (host,) = bench.broker._virtual_hosts.values()
    return host.destinations.topics.by_name


def test_what_topics_remember_of_patterns_is_bounded(monkeypatch):
    monkeypatch.setattr(settings, "_MOST_REMEMBERED", 30)
    bench = Bench(wildcards="rabbitmq")
    peer, sender = bench.peer(), bench.peer()
    for number in range(10):
        peer.send("SUBSCRIBE", id=str(number), destination="/topic/#")
    remembered = []
    for number in range(100):
        sender.put(f"/topic/{number % 7}", "x")
        remembered.append(sum(len(topic._others) for topic in topics_of(bench).values()))
    assert max(remembered) == 30, "each of the ten for three topics"
    assert sum(frame.command == "MESSAGE" for frame in peer.take()) == 1000


@given(
    st.lists(st.tuples(st.sampled_from(["a*", "ab", "abc*", "b*", "*", "*c", "a*c"]), st.booleans()), max_size=4),
    st.sampled_from(["", "a", "ab", "abc", "b"]),
    st.text("abc", max_size=3),
)
def test_what_is_allowed_for_all_is_allowed_for_each(rules, head, rest):
    auth = Auth(rules=[Rule(destination=pattern, allow=allow) for pattern, allow in rules])
    user = User("x", vhost="/")
    if auth.may_all(user, "subscribe", head):
        assert auth.may(user, "subscribe", head + rest)
