"""A session learns the names of those destinations alone that it may subscribe to, and gets messages of no others."""

import json
import random

import pytest
from broker.harness import Bench
from broker.moves import client, put_all, refusal

from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.broker.config import DIALECTS
from stompcodec.broker.sessions import subscribe

USERS = {name: User(name, hash_passcode("x", n=16)) for name in ("root", "ada", "eve")}
TOPIC, QUEUE = "/topic/VirtualTopic.S", "/queue/Consumer.A.VirtualTopic.S"
LETTERS = "/queue/DLQ.Consumer.A.VirtualTopic.S"
NOT_ALLOWED = "not allowed to subscribe there"
#: One of each kind of destination; and patterns of rules, of which some concern each of them.
NAMES = (
    *("/queue/a", "/queue/DLQ.a", "/queue/plain", TOPIC, "/topic/t", QUEUE, LETTERS),
    *("/queue/Consumer.W.VirtualTopic.>", "/queue/DLQ.Consumer.W.VirtualTopic.>"),
    *("/queue/DLQ.~ada~desk.all", "/queue/DLQ.desk.all"),
)
PATTERNS = ("*", "/queue/*", "/queue/DLQ.*", "/queue/Consumer.*", "/topic/*", "/topic/VirtualTopic.*", TOPIC, *NAMES)


def bench_of(rules, dialect="activemq", **config):
    """A broker with all of the destinations, where root may do everything."""
    letters = {"dead_letter": "/queue/DLQ.{name}"}
    named = {**DIALECTS[dialect], **letters, "virtual_topics": True, "composite": False, **config}
    bench = Bench(users=USERS, rules=(Rule("root", "*", "*"), *rules), **named)
    root = login(bench, "root")
    for number, name in enumerate(NAMES if dialect == "activemq" else ()):
        if name.startswith("/topic/"):
            root.subscribe(name, id=str(number))
        else:
            root.put(name, "x")
    return bench


def login(bench, name):
    return client(bench, "", login=name, passcode="x")


def order(peer, command, **headers):
    """SUBSCRIBE, or RECEIVE, which the codec writes where that is named only."""
    pairs = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items())
    peer.raw(f"{command}\n{pairs}\n\0".encode())


def listed(peer, **headers):
    order(peer, "RECEIVE", destination="*", id="n", browser="names", **headers)
    if peer.closed:
        assert refusal(peer) == NOT_ALLOWED
        return [], None
    page = json.loads(peer.next("MESSAGE").body)
    return [row["destination"] for row in page["destinations"]], page["next"]


def may_subscribe(bench, user, name, **headers):
    peer = login(bench, user)
    peer.subscribe(name, **headers)
    refused = peer.closed and refusal(peer) == NOT_ALLOWED
    peer.lose()
    return not refused


@pytest.mark.parametrize("seed", range(10))
def test_what_is_listed_is_what_may_be_subscribed_to(seed):
    chosen = random.Random(seed)
    rules = [
        Rule("eve", chosen.choice(("*", "subscribe", "subscribe", "send")), pattern, allow=chosen.random() < 0.7)
        for pattern in chosen.choices(PATTERNS, k=chosen.randrange(1, 5))
    ]
    bench = bench_of(rules, wildcards="activemq")
    names, _ = listed(login(bench, "eve"))
    assert len(names) == len(set(names))
    assert set(names) == {name for name in NAMES if may_subscribe(bench, "eve", name, browser="false", ack="client")}


@pytest.mark.parametrize("way", [{}, {"ack": "client"}, {"browser": "true"}, {"selector": "x = 'y'"}])
@pytest.mark.parametrize("command", ["SUBSCRIBE", "RECEIVE"])
@pytest.mark.parametrize("name", [QUEUE, LETTERS, QUEUE.removeprefix("/queue/"), LETTERS.removeprefix("/queue/")])
def test_a_denied_topic_is_read_in_no_way(name, command, way):
    bench = bench_of([Rule("eve", "subscribe", "/queue/*"), Rule("eve", "subscribe", "DLQ.*")])
    peer = login(bench, "eve")
    order(peer, command, destination=name, id="1", **way)
    assert refusal(peer) in (NOT_ALLOWED, "RECEIVE cannot browse")


def test_the_name_to_go_on_from_is_one_that_may_be_seen(monkeypatch):
    monkeypatch.setattr(subscribe, "PAGE", 2)
    bench = bench_of([Rule("eve", "subscribe", "/queue/e*")])
    for name in ("e1", "e2", "e3", "e4", "e5", "ea", "a1", "a2", "a3", "eb"):
        login(bench, "root").put(f"/queue/{name}", "x")
    eve, pages, after = login(bench, "eve"), [], ""
    while after is not None:
        page, after = listed(eve, from_name=after)
        pages.append(page)
        assert after is None or after in page
    assert [len(page) for page in pages] == [2, 2, 2, 1]
    assert [name for page in pages for name in page] == [f"/queue/e{each}" for each in "12345ab"]


def test_many_names_are_looked_at_in_several_turns(monkeypatch):
    monkeypatch.setattr(subscribe, "_LOOKS", 3)
    peer = Bench().peer()
    for number in range(10):
        peer.put(f"/queue/{number}", "x")
    order(peer, "RECEIVE", destination="*", id="n", browser="names", receipt="r")
    peer.put("/queue/late", "x")
    answer, receipt = peer.take()
    assert (len(json.loads(answer.body)["destinations"]), receipt.command) == (10, "RECEIPT")


@pytest.mark.parametrize("allowed", [False, True])
def test_dead_letters_are_not_led_to_another_queue_by_who_may_only_send(allowed):
    rules = [Rule("eve", "*" if allowed else "send", "*"), Rule("eve", "subscribe", "/queue/mine")]
    bench = bench_of(rules, "rabbitmq", virtual_topics=False)
    eve = login(bench, "eve")
    arguments = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "mine", "x_message_ttl": "1"}
    eve.put("/queue/victim", "x", **arguments)
    assert eve.closed is not allowed
    if not allowed:
        assert "subscribe" in refusal(eve)
    put_all(login(bench, "root"), ["secret"], "/queue/victim")
    bench.date += 10
    bench.wait(5)
    queue = bench.broker.queues.get(("/", "/queue/mine"))
    assert (queue is not None and queue.total > 0) is allowed
