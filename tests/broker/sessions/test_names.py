"""RECEIVE with `browser:names` lists destinations, page by page, and only those that its user may subscribe to."""

import json

import pytest
from broker.harness import Bench

from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.spec import VERSIONS


def ask(peer, pattern="*", **headers):
    """The answer as rows and the name to go on from."""
    pairs = {"destination": pattern, "id": "1", "browser": "names", **headers}
    peer.raw(("RECEIVE\n" + "".join(f"{k.replace('_', '-')}:{v}\n" for k, v in pairs.items()) + "\n\0").encode())
    answer = peer.next("MESSAGE")
    assert (answer.get("browser"), answer.get("content-type")) == ("names", "application/json")
    page = json.loads(answer.body)
    return page["destinations"], page["next"]


def named(peer, pattern="*", **headers):
    return [row["destination"] for row in ask(peer, pattern, **headers)[0]]


def fill(peer, *destinations):
    for destination in destinations:
        peer.put(destination, "x")


@pytest.mark.parametrize("version", VERSIONS)
def test_names_and_counts(version):
    bench = Bench()
    peer = bench.peer(version)
    fill(peer, "/queue/b", "/queue/a", "/queue/a", "plain")
    peer.subscribe("/topic/t")
    rows, more = ask(peer)
    assert more is None
    assert [(row["destination"], row["kind"], row["ready"], row["messages"]) for row in rows] == [
        ("/queue/a", "queue", 2, 2),
        ("/queue/b", "queue", 1, 1),
        ("/topic/t", "topic", 0, 0),
        ("plain", "queue", 1, 1),
    ]


def test_paged_messages_are_counted():
    bench = Bench(window_messages=3)
    peer = bench.peer()
    for number in range(10):
        peer.put("/queue/a", str(number), persistent="true")
    (row,), _ = ask(peer)
    assert (row["ready"], row["messages"]) == (10, 10)
    peer.subscribe("/queue/a", ack="client-individual", prefetch_count="4")
    assert len(peer.bodies()) == 4
    (row,), _ = ask(peer)
    assert (row["ready"], row["messages"]) == (6, 10)


def test_temporary_ones_and_those_of_others_are_not_named():
    users = {name: User(name, hash_passcode("x", n=16)) for name in ("ann", "bob")}
    bench = Bench(users=users, rules=(Rule("ann", "*", "*"), Rule("bob", "*", "/queue/b")))
    ann, bob = (bench.peer(connect=False) for _ in range(2))
    ann.connect(login="ann", passcode="x")
    bob.connect(login="bob", passcode="x")
    fill(ann, "/queue/a", "/queue/b")
    ann.subscribe("/temp-queue/x")
    assert named(ann) == ["/queue/a", "/queue/b"]
    assert named(bob) == ["/queue/b"]
