"""Topics: slow subscribers, temporary destinations, patterns that mean several topics, and retained messages."""

import re

import pytest
from broker.harness import Bench, FaultyStore
from broker.moves import left, put_all, refusal, taker
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.broker import settings
from stompcodec.broker.auth import Auth, Rule, User
from stompcodec.broker.settings import SYNTAXES, Patterns, Wildcards
from stompcodec.broker.storage.store import MemoryStore
from stompcodec.broker.values import Refused

TOPIC = "/topic/a"


def stuck_subscriber(**config):
    bench = Bench(**{"topic_backlog": 5, **config})
    stuck, eager = taker(bench, TOPIC), taker(bench, TOPIC)
    stuck.session.writable(False, bench.now)
    return bench, bench.peer(), stuck, eager


@pytest.mark.parametrize("limit", [{"topic_backlog": 5}, {"topic_backlog": 100, "topic_backlog_octets": 250}])
def test_a_slow_subscriber_is_disconnected(limit):
    bench, sender, stuck, eager = stuck_subscriber(slow_consumer="disconnect", **limit)
    put_all(sender, range(5), TOPIC)
    assert not stuck.closed
    sender.put(TOPIC, "5" if "topic_backlog_octets" not in limit else "5" * 240)
    assert refusal(stuck) == "slow consumer"
    sender.put(TOPIC, "6")
    assert (len(eager.bodies()), bench.octets) == (7, 0)


def test_a_session_that_is_too_slow_while_it_subscribes():
    bench = Bench(topic_backlog=2, max_attempts=1)
    peer, sender = taker(bench, TOPIC, ack="client", prefetch_count="1"), bench.peer()
    sender.session.receive(b"SEND\ndestination:/topic/a\n\n\0" * 3, 0.0)
    peer.session.receive(b"SUBSCRIBE\nid:2\ndestination:/topic/a\n\n\0", 0.0)
    bench.turn()
    assert refusal(peer) == "slow consumer"
    assert (bench.broker.virtual_host("/").topics[TOPIC].consumers, bench.octets) == ((), 0)


def test_a_slow_subscriber_loses_the_oldest():
    bench, sender, stuck, eager = stuck_subscriber(slow_consumer="drop")
    put_all(sender, range(100), TOPIC)
    stuck.session.writable(True, bench.now)
    bench.turn()
    assert stuck.bodies() == [b"95", b"96", b"97", b"98", b"99"]
    assert len(eager.bodies()) == 100


def test_a_slow_subscriber_makes_senders_wait():
    bench, sender, stuck, eager = stuck_subscriber(slow_consumer="block")
    put_all(sender, range(5), TOPIC)
    assert not sender.session.paused
    put_all(sender, "56", TOPIC)  # that the backlog is full is seen when a turn ends
    assert sender.session.paused
    stuck.session.writable(True, bench.now)
    bench.turn()
    assert not sender.session.paused
    assert len(stuck.bodies()) == len(eager.bodies()) == 7
    stuck.session.writable(False, bench.now)
    put_all(sender, range(7), TOPIC)
    assert sender.session.paused
    stuck.lose()
    assert not sender.session.paused


@pytest.mark.parametrize("itself", [False, True])
def test_unacknowledged_messages_of_a_topic_are_bounded_too(itself):
    bench = Bench(topic_backlog=5)
    peer = taker(bench, TOPIC, ack="client-individual")
    sender = peer if itself else bench.peer()
    put_all(sender, range(5), TOPIC)
    peer.ack(peer.take()[0])
    sender.put(TOPIC, "5")
    assert not peer.closed
    sender.put(TOPIC, "6")
    assert refusal(peer) == "slow consumer"


@pytest.mark.parametrize(("kind", "copies"), [("queue", 1), ("topic", 2)])
def test_it_ends_with_its_owner(kind, copies):
    bench = Bench()
    owner, other = taker(bench, f"/temp-{kind}/a", ack="client"), bench.peer()
    owner.subscribe(f"/temp-{kind}/a", "2", ack="client")
    left(bench, "/topic/idle")
    bench.broker.virtual_host("/").destinations.sweep()
    (address,) = bench.broker.virtual_host("/").owners
    other.put(address, "x", persistent="true")
    assert owner.bodies() == [b"x"] * copies
    owner.lose()
    other.put(address, "y", receipt="r")
    other.next("RECEIPT")
    assert (other.closed, bool(bench.broker.virtual_host("/").owners)) == (False, False)
    assert (bench.octets, bench.broker.queues, list(bench.store.load())) == (0, {}, [])


WORDS = st.lists(st.sampled_from(["a", "b", "", "ab"]), min_size=1, max_size=6)
MARKED = st.lists(st.sampled_from(["a", "b", "", "ab", "*", "#", "#"]), min_size=1, max_size=6)


@given(MARKED, WORDS)
def test_a_pattern_means_what_a_regular_expression_says(pattern, words):
    wildcards = Wildcards(SYNTAXES["rabbitmq"])
    found = wildcards.pattern("/topic/", ".".join(pattern))
    name = wildcards.words("/topic/", ".".join(words))
    parts = {"*": r"(?:\.[^.]*)", "#": r"(?:\.[^.]*)*"}
    regex = "".join(parts.get(word) or r"\." + re.escape(word) for word in pattern)
    if found is None:
        assert not {"*", "#"} & set(pattern)
    else:
        assert found.matches(name) is bool(re.fullmatch(regex, "".join("." + word for word in words)))
        assert not found.matches(("/other/", *name[1:]))


@given(st.lists(st.tuples(MARKED, st.integers(0, 3))), WORDS)
def test_patterns_are_found_as_one_by_one(entries, words):
    wildcards, patterns, kept = Wildcards(SYNTAXES["rabbitmq"]), Patterns(), {}
    name = wildcards.words("", ".".join(words))
    for number, (marked, action) in enumerate(entries):
        pattern = wildcards.pattern("", ".".join(marked))
        if pattern is not None:
            patterns.add(pattern, number)
            kept[number] = pattern
            patterns.find(name)
            if action == 0:
                patterns.remove(pattern, number)
                del kept[number]
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
    rules = (Rule(destination="/topic/secret.*", allow=False), Rule(destination="/topic/*"))
    frame = taker(Bench(wildcards="rabbitmq", rules=rules), destination, receipt="r").next()
    assert frame.command == ("RECEIPT" if allowed else "ERROR")


def test_what_topics_remember_of_patterns_is_bounded(monkeypatch):
    monkeypatch.setattr(settings, "_MOST_REMEMBERED", 30)
    bench = Bench(wildcards="rabbitmq")
    peer, sender = bench.peer(), bench.peer()
    for number in range(10):
        peer.subscribe("/topic/#", str(number))
    remembered = []
    for number in range(100):
        sender.put(f"/topic/{number % 7}", "x")
        topics = bench.broker.virtual_host("/").destinations.topics.by_name
        remembered.append(sum(len(topic._others) for topic in topics.values()))
    assert max(remembered) == 30, "each of the ten for three topics"
    assert len(peer.bodies()) == 1000


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
    if auth.may(user, "subscribe", head + rest):
        assert auth.may_all(user, "subscribe", head, some=True)


# ---- retained messages ----
def retaining(store=None, **config):
    bench = Bench(store, retain=True, **config)
    return bench, bench.peer()


def test_the_latest_one_is_for_those_who_come_later():
    bench, sender = retaining()
    early = taker(bench, TOPIC)
    put_all(sender, "12", TOPIC, retain="set")
    sender.put(TOPIC, "3")
    assert early.bodies() == [b"1", b"2", b"3"]
    assert left(bench, TOPIC) == left(bench, TOPIC, ack="client") == [b"2"]
    assert left(bench, "/topic/b") == []
    sender.put(TOPIC, "4", retain="remove")
    assert (early.bodies(), left(bench, TOPIC)) == ([b"4"], [])
    destinations = bench.broker.virtual_host("/").destinations
    destinations.sweep()
    assert (bench.octets, destinations.retained.part.used, destinations.retained.queues) == (0, 0, {})


def test_an_unknown_value_is_refused():
    _bench, sender = retaining()
    sender.put(TOPIC, "1", retain="yes")
    assert refusal(sender) == "unknown value of retain"


@pytest.mark.parametrize("bounds", [{"max_destinations": 3}, {"max_retained_octets": 250}])
def test_retained_messages_are_bounded(bounds):
    _bench, sender = retaining(**bounds)
    for number in (0, 1, 2, 1, 1, 1):  # those that are there may change
        sender.put(f"/topic/{number}", "x" * 40, retain="set")
    assert sender.take() == []
    sender.put("/topic/new", "x", retain="set")
    assert refusal(sender) == "too many retained messages"


def test_one_that_was_stored_half_is_the_latest():
    """A crash between two commits: the new one is stored, the old one is not removed yet."""
    store = MemoryStore()
    _bench, sender = retaining(store)
    sender.put(TOPIC, "1", retain="set", persistent="true")
    (old,) = store.load()
    sender.put(TOPIC, "2", retain="set", persistent="true")
    store.append(old.queue, old)
    store.commit()
    again, sender = retaining(store)
    assert left(again, TOPIC) == [b"2"]
    again.turn()
    sender.put("/topic/b", "x", persistent="true")
    assert len(list(store.load())) == 1


@pytest.mark.parametrize("together", [False, True])
def test_a_receipt_behind_a_transaction_follows_its_own_commit(together):
    store = FaultyStore(background=True)
    bench, sender = retaining(store)
    sender.put(TOPIC, "1", retain="set", persistent="true")
    store.finish(at_once=True)
    sender.send("BEGIN", transaction="t")
    sender.put("/queue/q", "2", transaction="t", persistent="true")
    frames = [
        sender.octets_of("COMMIT", transaction="t", receipt="r"),
        sender.octets_of("SEND", b"3", destination=TOPIC, retain="remove", receipt="s"),
    ]
    for octets in [b"".join(frames)] if together else frames:
        sender.raw(octets)
    receipts = []
    while store.job is not None:
        assert "s" not in receipts
        store.finish(at_once=True)
        gone = "1" not in store.bodies
        bench.turn()
        receipts += [frame.headers["receipt-id"] for frame in sender.take()]
        assert gone or "s" not in receipts
    assert (receipts, store.bodies) == (["r", "s"], ["2"])


def test_a_later_one_wins_over_what_came_back():
    store = FaultyStore(background=True)
    bench, sender = retaining(store)
    sender.put(TOPIC, "1", retain="set", persistent="true", receipt="r")
    store.finish(at_once=True)
    sender.put(TOPIC, "2", retain="set", persistent="true", receipt="s")
    bench.peer().put(TOPIC, "3", retain="set", persistent="true", receipt="t")
    store.faulty = True
    store.finish(at_once=True)
    store.faulty = False
    assert left(bench, TOPIC) == [b"3"]
