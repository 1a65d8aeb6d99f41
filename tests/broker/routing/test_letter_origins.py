"""Where a dead letter came from is the broker's word, kept beside the frame: in its message-id."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from broker.harness import Peer
from broker.management.managing import Managed
from hypothesis import assume, given
from hypothesis import strategies as st
from patience import patience

import stompcodec.client as stomp
from stompcodec.broker.config.config import DIALECTS
from stompcodec.broker.message import OF_DURABLE, RETURNS, STRAYS
from stompcodec.broker.storage.body_files import BodyFile
from stompcodec.broker.storage.rows import message_crc
from stompcodec.broker.storage.salvage import salvage
from stompcodec.codec import Frame
from stompcodec.testing import StompBroker

#: What an attacker writes to make a message look like a dead letter.
FORGED = {
    **{"dead_letter_reason": "rejected", "original_destination": "/queue/secret", "original_message_id": "e-1"},
    **{"dead_letter_attempts": "6", "dead_letter_time": "1", "message_id": "e-dl-1", "amqMessageId": "e-dl-1"},
}


def bury(peer: Peer, destination: str, **headers: str) -> list[Frame]:
    """Make dead letters of what waits there. Return what was refused."""
    peer.subscribe(destination, id="b", ack="client-individual", **headers)
    refused = [frame for frame in peer.take() if frame.command == "MESSAGE"]
    for frame in refused:
        peer.nack(frame, requeue="false")
    peer.send("UNSUBSCRIBE", id="b", destination=destination)
    peer.take()
    return refused


def rows(bench: Managed, queue: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = bench.result("messages", destination=queue)
    return found


def lying(bench: Managed) -> dict[str, int]:
    """How many messages each queue holds."""
    queues = bench.broker.virtual_host("/").queues.values()
    return {queue.name: queue.total for queue in queues if queue.total}


# What senders write does not count


def test_a_sender_cannot_make_a_letter_that_move_sends_to_a_queue_of_its_choice() -> None:
    bench = Managed()
    peer = bench.peer()
    peer.put("/queue/a", "good")
    bury(peer, "/queue/a")
    peer.put("/queue/DLQ.a", "evil", **FORGED)
    good, evil = rows(bench, "/queue/DLQ.a")
    assert (good["origin"], evil["origin"]) == ("/queue/a", None)
    assert ("original-destination", "/queue/secret") in [tuple(pair) for pair in evil["headers"]]  # it stays readable
    result = bench.result("move", destination="/queue/DLQ.a")
    assert (result["messages"], result["skipped"], result["stopped"]) == (1, 1, None)
    assert lying(bench) == {"/queue/DLQ.a": 1, "/queue/a": 1}


WAYS: dict[str, dict[str, str]] = {
    **{"plain": {}, "transaction": {"transaction": "t"}, "receipt": {"receipt": "r"}, "large": {}},
    **{"key": {"idempotency-key": "k"}, "delay": {"delay": "1"}, "group": {"message_group": "g"}},
    **{"expires": {"expiration": "5000"}, "reply": {"reply-to": "/temp-queue/r"}},
}


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("spelled", ["message-id", "Message-Id", "message-id "])
@pytest.mark.parametrize("way", WAYS)
def test_no_send_gives_a_message_the_id_of_a_letter(way: str, spelled: str, version: str) -> None:
    bench = Managed(message_id_header=True)
    peer, more = bench.peer(version), WAYS[way]
    peer.subscribe("/queue/b", id="1")
    if way == "transaction":
        peer.send("BEGIN", transaction="t")
    body = b"x" * (200_000 if way == "large" else 1)
    peer.send("SEND", body, destination="/queue/b", persistent="true", **{spelled: "e-dl-7", **more})
    if way == "transaction":
        peer.send("COMMIT", transaction="t")
    bench.date += 1
    bench.wait(1)
    (message,) = (frame for frame in peer.take() if frame.command == "MESSAGE")
    assert "-d" not in message.headers["message-id"]


def test_a_letter_of_a_full_queue_does_not_stop_the_others() -> None:
    bench = Managed(max_queue_messages=2)
    peer = bench.peer()
    for name in ("a", "b"):
        peer.put(f"/queue/{name}", "1", **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "DLQ.all"})
    for name in ("a", "b"):
        bury(peer, f"/queue/{name}")
    peer.put("/queue/a", "2")
    peer.put("/queue/a", "3")
    result = bench.result("move", destination="/queue/DLQ.all")
    assert (result["messages"], result["skipped"], result["stopped"]) == (1, 1, None)
    assert lying(bench) == {"/queue/a": 2, "/queue/b": 1, "/queue/DLQ.all": 1}


def test_letters_of_a_queue_do_not_go_to_a_durable_subscription_with_the_same_dead_letter_queue() -> None:
    bench = Managed()
    peer = bench.peer(connect=False)
    peer.connect(client_id="desk")
    peer.subscribe("/topic/t", id="1", durable_subscription_name="all")
    peer.send("UNSUBSCRIBE", id="1")
    peer.put("/queue/desk.all", "of the queue")
    bury(peer, "/queue/desk.all")
    peer.put("/queue/DLQ.desk.all", "forged", **{**FORGED, "original_destination": "/topic/t"})
    result = bench.result("move", destination="/queue/DLQ.desk.all")
    assert (result["messages"], result["skipped"]) == (1, 1)
    assert [row["body"] for row in rows(bench, "/queue/desk.all")] == ["of the queue"]
    assert bench.result("durables")[0]["ready"] == 0


def test_letters_of_a_topic_stay_whatever_queue_has_the_name_of_its_subscription() -> None:
    bench = Managed()
    peer = bench.peer()
    peer.subscribe("/topic/t", id="1", ack="client-individual")
    peer.put("/topic/t", "x")
    peer.nack(peer.next("MESSAGE"), requeue="false")
    (letter,) = rows(bench, "/queue/DLQ.t")
    assert letter["message_id"].startswith("e-ds-")
    assert bench.result("move", destination="/queue/DLQ.t")["skipped"] == 1


def test_a_letter_of_a_queue_that_refuses_more_does_not_stop_the_others() -> None:
    bench = Managed()
    peer = bench.peer()
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "DLQ.all"}
    strict = {"x-max-length": "1", "x-overflow": "reject-publish", **letters}
    for queue, arguments in (("/queue/a", strict), ("/queue/b", letters)):
        peer.put(queue, "1", **arguments)
        peer.subscribe(queue, id="b", ack="client-individual")
        peer.nack(peer.next("MESSAGE"), requeue="false")
        peer.put(queue, "2") if queue == "/queue/a" else None
        peer.send("UNSUBSCRIBE", id="b", destination=queue)
        peer.take()
    result = bench.result("move", destination="/queue/DLQ.all")
    assert (result["messages"], result["skipped"], result["stopped"]) == (1, 1, None)
    result = bench.result("move", destination="/queue/DLQ.all", to="/queue/a")
    assert (result["messages"], result["stopped"]) == (0, "/queue/a is full")


def test_a_letter_of_a_topic_does_not_go_to_a_queue_that_has_its_name_later() -> None:
    """In Artemis, `a` may be a topic, and a queue later."""
    bench = Managed(dialect="artemis")
    peer = bench.peer()
    peer.subscribe("a", id="1", ack="client-individual", **{"subscription-type": "MULTICAST"})
    peer.put("a", "x", **{"destination-type": "MULTICAST"})
    peer.nack(peer.next("MESSAGE"), requeue="false")
    peer.send("UNSUBSCRIBE", id="1")
    peer.put("a", "y", **{"destination-type": "ANYCAST"})
    (letters,) = (queue for queue in lying(bench) if "DLQ" in queue)
    assert bench.result("move", destination=letters)["skipped"] == 1
    assert lying(bench) == {letters: 1, "a": 1}


ANYCAST = {"anycast_prefix": "queue/", "dialect": "artemis"}
WORDS: dict[str, tuple[dict[str, Any], str, dict[str, str], str | None]] = {
    "a name": ({}, "a", {}, "a"),
    "another form of the name": ({"dialect": "rabbitmq"}, "/amq/queue/a", {}, "/queue/a"),
    "a prefix for the routing type": (ANYCAST, "queue/a", {}, "queue/a"),
    "a name that would lose its prefix": (ANYCAST, "queue/queue/a", {}, "queue/queue/a"),
    "a header for the routing type": ({"dialect": "artemis"}, "a", {"destination-type": "ANYCAST"}, "a"),
}


@pytest.mark.parametrize(("config", "name", "headers", "origin"), WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("idle", [False, True])
def test_the_origin_is_a_name_by_which_a_send_finds_the_queue(
    config: dict[str, Any], name: str, headers: dict[str, str], origin: str, idle: bool
) -> None:
    bench = Managed(**config)
    peer = bench.peer()
    if name.startswith("/amq/queue/"):  # which makes no queue
        peer.subscribe("/queue/a", id="1")
        peer.send("UNSUBSCRIBE", id="1")
    peer.put(name, "x", **headers)
    (queue,) = lying(bench)
    bury(peer, name, **{"subscription-type": "ANYCAST"})
    if idle:
        bench.broker.virtual_host("/").destinations.sweep()
    (letters,) = lying(bench)
    (row,) = rows(bench, letters)
    assert (row["origin"], "-dl-" in row["message_id"]) == (origin, True)
    bench.result("purge", destination=letters)
    peer.put(row["origin"], "x", **headers)
    assert lying(bench) == {queue: 1}


def test_a_letter_that_a_manager_moves_to_another_queue_keeps_its_origin() -> None:
    bench = Managed()
    peer = bench.peer()
    peer.put("/queue/a", "x")
    bury(peer, "/queue/a")
    peer.put("/queue/DLQ.a", "forged", **FORGED)
    assert bench.result("move", destination="/queue/DLQ.a", to="/queue/parked")["messages"] == 2
    assert [row["origin"] for row in rows(bench, "/queue/parked")] == ["/queue/a", None]
    result = bench.result("move", destination="/queue/parked")
    assert (result["messages"], result["skipped"]) == (1, 1)
    assert lying(bench) == {"/queue/a": 1, "/queue/parked": 1}
    (back,) = rows(bench, "/queue/a")
    assert back["origin"] is None  # it is a message like any other


def test_a_letter_that_fails_again_says_where_it_failed_last_and_when_first() -> None:
    bench = Managed(max_attempts=1)
    peer = bench.peer()
    peer.put("/queue/a", "x")
    for _ in range(3):
        bury(peer, "/queue/a")
        bench.date += 60
        assert bench.result("move", destination="/queue/DLQ.a")["messages"] == 1
    assert bench.result("move", destination="/queue/a", to="/queue/b")["messages"] == 1
    bury(peer, "/queue/b")
    (letter,) = rows(bench, "/queue/DLQ.b")
    headers = dict(letter["headers"])
    assert (letter["origin"], headers["dead-letter-attempts"]) == ("/queue/b", "1")
    assert (headers["dead-letter-first-time"], headers["dead-letter-time"]) == ("1000000000", "1000180000")


# The same queue, in all dialects

NAMES = st.text("ab/.,: *>#~-_é\\", min_size=1, max_size=12)
PREFIXES = ["", "/", "/queue/", "/amq/queue/", "queue/", "jms.queue.", "queue://", "/foo/", "/exchange/"]
CONFIGS = [*({"dialect": name} for name in DIALECTS)] + [
    {"dialect": "artemis", "anycast_prefix": "queue/", "multicast_prefix": "topic/"},
    {"dialect": "stompcodec", "queue_prefixes": ("jms.queue.", "/queue/")},
]


@given(
    config=st.sampled_from(CONFIGS),
    prefix=st.sampled_from(PREFIXES),
    name=NAMES,
    routing=st.sampled_from([{}, {"destination-type": "ANYCAST"}, {"destination-type": "MULTICAST"}]),
    idle=st.booleans(),
    way=st.sampled_from(["move", "send"]),
)
def test_a_letter_comes_back_exactly_to_its_queue_or_is_skipped(
    config: dict[str, Any], prefix: str, name: str, routing: dict[str, str], idle: bool, way: str
) -> None:
    """`move`, and a SEND to `original-destination` with the headers of the letter, as `dlq retry` does."""
    bench = Managed(**config)
    bench.audit = lambda: None  # type: ignore[method-assign]  # a name beyond ASCII grows when it is encoded
    kind = {"subscription-type": "ANYCAST"}
    keeper, sender = bench.peer(), bench.peer()
    keeper.subscribe(prefix + name, id="k", ack="client-individual", **kind)
    sender.put(prefix + name, "x", **routing)
    lay = lying(bench)
    assume(len(lay) == 1)  # not those with two names
    for frame in keeper.take():
        if frame.command == "MESSAGE":
            keeper.nack(frame, requeue="false")
    keeper.lose()
    letters = [queue for queue in lying(bench) if "DLQ" in queue]
    if idle:  # the queue is removed, and is made anew
        bench.broker.virtual_host("/").destinations.sweep()
    for queue in letters:
        (row,) = rows(bench, queue)
        if way == "move":
            moved = bench.result("move", destination=queue)["messages"]
        else:
            moved = int("-dl-" in row["message_id"])
            again = [pair for pair in row["headers"] if pair[0] not in ("destination", "content-length")]
            if moved:
                bench.result("purge", destination=queue)
                retried = bench.peer()
                frame = dict(again)
                retried.send("SEND", b"x", **{"destination": row["origin"], **frame})
                assert not retried.closed
        assert lying(bench) == (lay if moved else {queue: 1})


# Pages, restarts and older folders


def ask(broker: StompBroker, request: str, **fields: Any) -> dict[str, Any]:
    with stomp.connect(broker.url) as client:
        answer: dict[str, Any] = json.loads(
            client.request(f"/management/{request}", json.dumps(fields), timeout=patience(20)).body
        )
    return answer


def fill(broker: StompBroker, count: int, persistent: bool = True) -> None:
    """Have dead letters, small and large, and one that is forged behind them."""
    kept = {"persistent": "true"} if persistent else {}
    with stomp.connect(broker.url) as client:
        for number in range(count):
            body = b"%d" % number if number % 5 else b"%d" % number + bytes(70_000)
            client.send("/queue/a", body, {**kept, "priority": str(4 + number % 2)}, receipt=True)
        bad = client.subscribe("/queue/a", ack="client-individual")
        for _ in range(count):
            message = bad.get(timeout=patience(20))
            assert message is not None
            message.nack(requeue=False, receipt=True)
        forged = {name.replace("_", "-"): value for name, value in FORGED.items() if name != "message_id"}
        client.send("/queue/DLQ.a", b"forged", {**kept, **forged}, receipt=True)


@pytest.mark.parametrize("window", [2, 1000])
@pytest.mark.parametrize("ends", ["spool", "it goes on", "restart", "salvage"])
def test_the_origin_survives_pages_restarts_and_salvage(tmp_path: Path, window: int, ends: str) -> None:
    config: dict[str, Any] = {"data": str(tmp_path / "data"), "window_messages": window}
    with StompBroker(**config) as broker:
        fill(broker, 12, persistent=ends != "spool")
        if ends in ("spool", "it goes on"):
            check_origins(broker, 12)
    if ends == "salvage":
        salvage(tmp_path / "data", tmp_path / "saved")
    if ends not in ("spool", "it goes on"):
        config["data"] = str(tmp_path / ("saved" if ends == "salvage" else "data"))
        with StompBroker(**config) as broker:
            check_origins(broker, 12)


def check_origins(broker: StompBroker, count: int) -> None:
    found = [row["origin"] for row in ask(broker, "messages", destination="/queue/DLQ.a", body=0)["rows"]]
    assert sorted(map(str, found)) == ["/queue/a"] * count + ["None"]
    result = ask(broker, "move", destination="/queue/DLQ.a")["result"]
    assert (result["messages"], result["skipped"]) == (count, 1)
    ready = {row["destination"]: row["ready"] for row in ask(broker, "destinations")["rows"]}
    assert (ready["/queue/a"], ready["/queue/DLQ.a"]) == (count, 1)


def test_letters_without_a_mark_have_no_known_origin_and_can_be_moved_by_name(tmp_path: Path) -> None:
    """As those of another broker: a sender could have written their headers."""
    with StompBroker(data=str(tmp_path)) as broker:
        fill(broker, 3)
    with contextlib.closing(sqlite3.connect(tmp_path / "messages.sqlite")) as db, db:
        columns = "key, id, destination, tail, persistent, expires, priority, attempts, redelivered"
        marked = db.execute(f"SELECT {columns} FROM message WHERE instr(id, '-dl-')").fetchall()
        files = {key: BodyFile(*file) for key, *file in db.execute("SELECT key, file, size, crc FROM body")}
        for key, ident, *rest in marked:
            other = ident.replace("-dl-", "-")
            crc = message_crc(key, other, *rest, file=files.get(key))
            db.execute("UPDATE message SET id = ?, crc = ? WHERE key = ?", (other, crc, key))
    with StompBroker(data=str(tmp_path)) as broker:
        assert ask(broker, "move", destination="/queue/DLQ.a")["result"]["skipped"] == 4
        assert ask(broker, "move", destination="/queue/DLQ.a", to="/queue/a")["result"]["messages"] == 4


def test_the_marks_differ_and_are_not_part_of_other_ids() -> None:
    marks = (RETURNS, OF_DURABLE, STRAYS)
    assert not any(one in other for one, other in itertools.permutations(marks, 2))
    bench = Managed()
    assert bench.broker.ident.count(b"-") == 1
