"""What orders do: to queues in memory and in the store, beside consumers, and when the disk fails."""

import json
import threading
from itertools import pairwise
from types import SimpleNamespace

import pytest
from broker.harness import FaultyStore, switch
from broker.management.managing import LOCAL, Managed
from broker.moves import settle
from client.feeding import wait_for

from stompcodec.broker.management.management import Management
from stompcodec.broker.management.schema import Asker
from stompcodec.broker.storage.sqlite import SqliteStore


def filled(count=6, store=None, **config):
    bench = Managed(store, **config)
    peer = bench.peer(peer=LOCAL)
    for number in range(count):
        peer.put("/queue/a", f"m{number}", persistent="true" if number % 2 else "false", n=str(number))
    return bench, peer


def kept(bench):
    stored = bench.store.load()
    return sorted((one.queue.partition("\0")[2], one.tail[:-1].rpartition(b"\n\n")[2]) for one in stored)


def durable(bench, **headers):
    peer = bench.client(client_id="desk")
    peer.subscribe("/topic/t", durable_subscription_name="all", **headers)
    return peer


# ---- purge and move ----
def test_a_purge_may_be_limited_and_selective():
    bench, _ = filled()
    assert (bench.count("purge", limit=2), bench.bodies()) == (2, ["m2", "m3", "m4", "m5"])
    assert (bench.count("purge", selector="n > 3"), bench.bodies()) == (2, ["m2", "m3"])
    (row, _) = bench.result("messages", destination="/queue/a")
    assert (bench.count("purge", message_id=row["message_id"]), bench.bodies()) == (1, ["m3"])
    assert (bench.count("purge"), bench.row("/queue/a")["ready"], kept(bench)) == (1, 0, [])


def test_a_move_to_a_topic_and_to_a_durable_subscription():
    bench, _ = filled(4)
    durable(bench).lose()
    assert (bench.count("move", to="/topic/t", limit=2), bench.bodies("desk.all")) == (2, ["m0", "m1"])
    assert (bench.count("move", to="desk.all"), bench.bodies("desk.all")) == (2, ["m0", "m1", "m2", "m3"])
    assert {row["destination"] for row in bench.result("messages", destination="desk.all")} == {"/topic/t"}
    assert [body for _, body in kept(bench)] == [b"m1", b"m3"]
    assert (bench.count("purge", "desk.all"), kept(bench)) == (4, [])


def test_a_move_stops_at_a_full_queue():
    bench, peer = filled(10, max_queue_messages=12)
    for number in range(10):
        peer.put("/queue/b", f"b{number}")
    result = bench.result("move", destination="/queue/a", to="/queue/b")
    assert result["messages"] == 2
    assert "full" in result["stopped"]
    assert len(bench.bodies()) + len(bench.bodies("/queue/b")) == 20


@pytest.mark.parametrize(("to", "why"), [("/queue/b", "was deleted"), ("/topic/t", "has no subscriptions any more")])
def test_a_move_ends_with_its_target(to, why):
    """What has not left by then stays, and the answer counts what was moved."""
    bench, _ = filled(300)
    consumer = bench.peer()
    consumer.subscribe("/topic/t")
    answers = bench.begun("move", destination="/queue/a", to=to)
    bench.begun("delete", destination="/queue/b")
    assert not answers
    consumer.lose()
    bench.turn()
    (result,) = (answer["result"] for answer in answers)
    assert result["stopped"] == f"{to} {why}"
    assert 0 < result["messages"] < 300
    left = bench.bodies()
    assert left == [f"m{number}" for number in range(result["messages"], 300)]
    assert len(kept(bench)) == sum(int(body[1:]) % 2 for body in left)


def test_a_move_to_a_topic_goes_on_when_its_subscribers_have_read():
    bench, peer = filled(0, topic_backlog=3, slow_consumer="block")
    consumer = bench.peer()
    consumer.subscribe("/topic/t", ack="client-individual", prefetch_count="1")
    for number in range(200):
        peer.put("/queue/a", f"m{number}")
    for _ in range(2):
        result = bench.result("move", destination="/queue/a", to="/topic/t")
        assert result["stopped"] == "/topic/t is full"
    assert result["messages"] == 0
    while messages := consumer.take():
        consumer.ack(messages[0])
    assert bench.count("move", to="/topic/t") > 0


def test_dead_letters_of_a_durable_subscription_go_back_to_it():
    bench = Managed()
    peer, other = durable(bench, ack="client-individual"), bench.peer()
    other.subscribe("/topic/t")
    other.put("/topic/t", "x", persistent="true")
    other.take()
    peer.nack(peer.next("MESSAGE"), requeue="false")
    assert (bench.bodies("/queue/DLQ.desk.all"), bench.count("move", "/queue/DLQ.desk.all")) == (["x"], 1)
    message = peer.next("MESSAGE")
    assert (message.headers["destination"], message.get("dead-letter-reason")) == ("/topic/t", None)
    assert not other.take()


@pytest.mark.parametrize("window", [1, 3, 1000])
@pytest.mark.parametrize("consumers", [False, True])
def test_messages_in_the_store_only_are_found(window, consumers):
    bench, peer = filled(0, window_messages=window)
    wanted = [f"m{number:02}" for number in range(30)]
    for number, body in enumerate(wanted):
        peer.put("/queue/a", body, persistent="true", n=str(number))
    if consumers:
        peer.subscribe("/queue/a", id="1", ack="client", selector="n > 100")
        peer.subscribe("/queue/a", id="2", browser="true", browser_end="false")
    assert bench.bodies() == wanted
    assert [row["body"] for row in bench.result("messages", destination="/queue/a", limit=7)] == wanted
    assert bench.count("move", to="/queue/b", selector="n < 10 AND n > 4") == 5
    assert bench.bodies("/queue/b") == wanted[5:10]
    assert (bench.count("purge", limit=12), bench.bodies()) == (12, wanted[17:])
    assert bench.count("move", to="/queue/b") == 13
    assert (bench.count("delete", "/queue/b"), kept(bench)) == (18, [])


@pytest.mark.parametrize(("order", "fields"), [("purge", {}), ("move", {"to": "/queue/b"})])
def test_after_a_failed_commit_nothing_has_changed(order, fields):
    bench, peer = filled(6, FaultyStore(background=False))
    before = kept(bench)
    bench.store.faulty = True
    assert bench.fault(order, destination="/queue/a", **fields) == "destination"
    bench.store.faulty = False
    bench.wait(3.0)
    assert bench.bodies() == [f"m{number}" for number in range(6)]
    assert kept(bench) == before
    assert not peer.closed
    assert all(row["attempts"] == 0 for row in bench.result("messages", destination="/queue/a"))


@pytest.mark.parametrize("stays", [True, False])
def test_a_long_purge_leaves_the_loop_to_others(stays):
    bench, peer = filled(3000)
    peer.subscribe("/temp-queue/answers")
    other = bench.peer()
    headers = {"destination": "/management/purge", "reply_to": "/temp-queue/answers"}
    peer.session.receive(peer.octets_of("SEND", b'{"destination": "/queue/a"}', **headers), bench.now)
    assert bench.queue().count > 2900
    other.session.receive(other.octets_of("SEND", b"x", destination="/queue/b", receipt="r"), bench.now)
    bench.step()
    assert other.next().command == "RECEIPT"
    assert bench.queue().count > 2800
    if stays:
        bench.turn()
        assert json.loads(peer.next("MESSAGE").body)["result"]["messages"] == 3000
    else:  # the order goes on
        peer.lose()
    assert bench.row("/queue/a")["ready"] == 0


def test_delete():
    bench, peer = filled()
    assert bench.count("delete") == 6
    assert ("/", "/queue/a") not in bench.broker.queues
    assert kept(bench) == []
    peer.put("/queue/a", "again")
    assert bench.bodies() == ["again"]
    peer.subscribe("/temp-queue/mine", id="1")
    peer.send("UNSUBSCRIBE", id="1")
    assert bench.fault("delete", destination=f"/temp-queue/{peer.session.id}-mine") == "destination"


def test_delete_a_topic_and_a_durable_subscription():
    bench = Managed()
    peer = durable(bench)
    assert bench.fault("delete", destination="desk.all") == "destination"
    assert bench.fault("delete", destination="/topic/t") == "destination"
    peer.lose()
    bench.peer().put("/topic/t", "x", persistent="true")
    (row,) = bench.result("durables")
    assert (row["name"], row["destination"], row["ready"]) == ("desk.all", "/topic/t", 1)
    assert (bench.count("delete", "desk.all"), bench.result("durables")) == (1, [])
    assert kept(bench) == list(bench.store.subscriptions()) == []
    assert bench.count("delete", "/topic/t") == 0


def test_a_paused_queue_delivers_nothing_until_it_is_resumed():
    bench, consumer, sender = Managed.with_peers(2)
    consumer.subscribe("/queue/a", id="1", ack="client-individual")
    assert [bench.result("pause", destination="/queue/a")["changed"] for _ in range(2)] == [True, False]
    for number in range(3):
        sender.put("/queue/a", f"m{number}", persistent="true")
    consumer.session.receive(b"RECEIVE\ndestination:/queue/a\nid:r\n\n\0", bench.now)
    assert consumer.session.take_output()[0].startswith(b"EMPTY\n")
    bench.wait(40.0)
    assert not consumer.take()
    assert bench.row("/queue/a")["paused"]
    assert bench.count("move", to="/queue/b", limit=1) == 1
    assert [bench.result("resume", destination="/queue/a")["changed"] for _ in range(2)] == [True, False]
    assert consumer.bodies() == [b"m1", b"m2"]
    assert not bench.row("/queue/a")["paused"]
    bench.result("pause", destination="/queue/b")
    bench.result("purge", destination="/queue/b")
    bench.wait(100.0)
    assert bench.row("/queue/b")["paused"]  # though it is empty


def test_what_is_looked_at_and_not_shown_takes_turns_too():
    """Else one request for what is not there would stop the loop, for as long as all destinations take."""
    bench = Managed(max_destinations=100_000)
    peer, destinations = bench.peer(), bench.broker.virtual_host("/").destinations
    address = destinations.addresses.find("/topic/t", None, True)
    for number in range(3000):
        destinations.queue(f"/queue/{number}")
        destinations.durables.make(f"d{number}", address)
    peer.subscribe("/queue/0", id="0")
    (consumer,) = peer.session.consumers.values()
    peer.session.consumers.update({str(number): consumer for number in range(3000)})
    for number in range(10**6, 10**6 + 3000):  # sessions that have not connected
        bench.broker.sessions[f"{number}-x"] = SimpleNamespace(id=f"{number}-x", version="")
    asker = Asker(bench.broker.virtual_host("/"), "a test")
    for name, fields in [
        *[("destinations", fields) for fields in ({"match": "none"}, {"match": "*a" * 16}, {"kind": "topic"})],
        *[("subscriptions", {"destination": "none"}), ("durables", {"match": "none"})],
        *[("sessions", {}), ("transactions", {}), ("broker", {})],
    ]:
        assert sum(1 for _ in bench.management.answering(name, fields, asker)) >= 2, name
    peer.session.consumers.clear()


def test_destinations_are_in_the_order_of_their_names_and_kinds():
    bench, peer = Managed.with_peers(1, max_destinations=100_000)
    for number in range(6000):
        bench.broker.virtual_host("/").destinations.queue(f"/queue/{number * 7919 % 6000:04}")
    asker = Asker(bench.broker.virtual_host("/"), "a test")
    assert sum(1 for _ in bench.management.answering("destinations", {}, asker)) == 1
    for name in ("/queue/0001!", "/queue/0001\x01", "/topic/0001", "both"):
        peer.subscribe(name, id=name)
    found = [(row["destination"], row["kind"]) for row in bench.result("destinations", limit=999)]
    assert found == sorted(found)
    assert len(set(found)) == len(found) == 6004
    for name in ("x.10", "x.9", "DLQ.x.10", "DLQ.x.9"):
        peer.put(f"/queue/{name}", "1")
    for sort in ({}, {"sort": "ready"}):  # of equal ones the lower number first
        names = [row["destination"] for row in bench.ask("destinations", match="/queue/x.*", limit=2, **sort)["rows"]]
        assert names == ["/queue/x.9", "/queue/x.10"]
    assert bench.result("broker")["dead_letters"] == 2


def test_bodies_are_shown_as_text_or_in_base64_at_most_a_mebibyte_on_a_page():
    bench, peer = Managed.with_peers(1, large=3000)
    bench.wait(100.0)
    for body in ("hello", "ä" * 40, b"\xff\x00", b"", b"x" * 5000):
        peer.put("/queue/a", body)
    bench.wait(5.0)
    rows = bench.result("messages", destination="/queue/a", body=41)
    assert all(5.0 <= row["age"] <= 6.5 for row in rows)
    assert [(row["body"], row["encoding"], row["size"], row["truncated"]) for row in rows] == [
        *(("hello", "utf-8", 5, False), ("ä" * 20, "utf-8", 80, True), ("/wA=", "base64", 2, False)),
        *(("", "utf-8", 0, False), ("x" * 41, "utf-8", 5000, True)),
    ]
    bench, peer = Managed.with_peers(1)
    for _ in range(20):
        peer.put("/queue/a", "x" * 90_000)
    answer = bench.ask("messages", destination="/queue/a", body=65_536, limit=1000)
    assert 10 <= len(answer["rows"]) <= 17
    assert answer["next"] is not None
    assert len(bench.result("messages", destination="/queue/a", body=65_536)) == 20


def test_a_backup_is_made_while_the_broker_goes_on(tmp_path, monkeypatch):
    go_on = threading.Event()
    bench, _ = filled(4, SqliteStore(tmp_path / "data"))
    backup, new = bench.store.backup, tmp_path / "new"
    monkeypatch.setattr(bench.store, "backup", lambda to: go_on.wait(60) and backup(to))
    answers = bench.begun("backup", to=str(new))
    bench.peer().put("/queue/a", "later", persistent="true")
    settle(bench)  # on a slow disk a thread commits, and says so by `soon`, too
    assert (answers, bench.fault("backup", to=str(new))) == ([], "to")
    go_on.set()
    wait_for(lambda: bench.soon)
    bench.turn()
    assert answers[0]["result"] == {"to": str(new), "bytes": (new / "messages.sqlite").stat().st_size}
    again = bench.begun("backup", to=str(new))
    wait_for(lambda: bench.soon)
    bench.turn()
    assert [answer["error"]["field"] for answer in (*again, bench.ask("backup", to="relative"))] == ["to", "to"]
    bench.store.close()
    assert [message.tail[-3:-1] for message in SqliteStore(new).load()] == [b"m1", b"m3", b"er"]


@pytest.mark.parametrize("road", [True, False], ids=["c", "python"])
def test_counts_agree_in_c_and_in_python(road):
    switch(road)
    bench, sender, consumer = Managed.with_peers(2)
    sender.put("/queue/a", "0")
    consumer.subscribe("/queue/a", id="1", ack="client-individual")
    consumer.subscribe("/queue/b", id="2")
    for name in "aabbcc":
        sender.put(f"/queue/{name}", "x")
    consumer.nack(consumer.take()[0])
    consumer.subscribe("/queue/c", id="3")
    found = [(row["received"], row["delivered"], row["redelivered"]) for row in bench.result("destinations")]
    assert found == [(3, 4, 1), (2, 2, 0), (2, 2, 0)]


@pytest.mark.parametrize("road", [True, False], ids=["c", "python"])
def test_the_traffic_of_sessions_and_of_the_last_ten_minutes(road):
    switch(road)
    bench, sender, consumer = Managed.with_peers(2)
    consumer.subscribe("/queue/a", id="1", ack="client-individual")
    consumer.subscribe("/queue/b", id="2")
    bench.wait(2.0)
    assert [row["received_rate"] for row in bench.result("sessions")] == [None, None]
    sender.send("BEGIN", transaction="t")
    consumer.send("BEGIN", transaction="t")
    for more in ({}, {"priority": "7"}, {"transaction": "t"}, {"transaction": "t", "persistent": "true"}):
        sender.put("/queue/a", "x", **more)
        sender.put("/queue/b", "x", **more)
    sender.send("COMMIT", transaction="t")
    first, second, third, fourth = (each for each in consumer.take() if each.get("ack"))
    consumer.ack(first)
    consumer.ack(second, receipt="r", transaction="t")
    consumer.ack(third, credit="1")
    consumer.nack(fourth, requeue="false")
    bench.wait(2.0)
    assert bench.result("broker")["acknowledged"] == 2
    consumer.send("COMMIT", transaction="t")
    bench.wait(1.0)
    rates = [(row["received_rate"], row["delivered_rate"]) for row in bench.result("sessions")]
    assert rates == [pytest.approx((8 / 3, 0.0), abs=0.001), pytest.approx((0.0, 8 / 3), abs=0.001)]
    names, expected = ("messages", "delivered", "acknowledged", "dead_letters"), (9, 8, 3, 1)
    assert tuple(bench.result("broker")[name] for name in names) == expected
    consumer.lose()
    assert tuple(bench.result("broker")[name] for name in names) == expected
    found = bench.result("history")
    seconds = [dict(zip(found["names"], row, strict=True)) for row in found["seconds"]]
    assert [(each["age"], each["sessions"]) for each in seconds] == [(age, 2.0) for age in (4.0, 3.0, 2.0, 1.0, 0.0)]
    assert [seconds[2][f"{name}_rate"] for name in names[:3]] == [9.0, 8.0, 2.0]
    assert seconds[4]["acknowledged_rate"] == 1.0
    bench.wait(900.0)
    assert len(bench.result("history")["seconds"]) == 600


def test_the_deepest_queues_have_a_history_of_ten_minutes():
    bench = Managed()
    producer = bench.peer()

    def fill(prefix, count, messages):
        names = [f"/queue/{prefix}{number}" for number in range(count)]
        for name in names * messages:
            producer.send("SEND", destination=name)
        return names

    (shallow, *_), (deep, *_) = fill("a", 50, 1), fill("b", 100, 3)
    bench.wait(20.0)
    producer.send("SEND", destination=deep)
    bench.wait(10.0)
    found = bench.result("history", destination=deep)
    assert found["names"] == ["age", "ready", "unacknowledged", "received_rate", "delivered_rate"]
    ages, ready, _, received, _ = zip(*found["seconds"], strict=True)
    assert [before - age for before, age in pairwise(ages)] == [5.0] * 5
    assert (ready, received) == ((3.0, 3.0, 3.0, 3.0, 4.0, 4.0), (None, 0.0, 0.0, 0.0, 0.2, 0.0))
    assert bench.result("history", destination=shallow)["seconds"] == []
    assert bench.fault("history", destination="/queue/none") == "destination"
    bench.wait(650.0)
    assert len(bench.result("history", destination=deep)["seconds"]) == 120
    for _ in range(5):
        names = fill("c", 100, 4)
        bench.wait(5.0)
        assert [bench.count("delete", name) for name in names] == [4] * 100
    assert len(bench.management._questions._queues) == 200
    bench.wait(650.0)
    assert len(bench.management._questions._queues) == 100


def test_the_store_and_memory_are_told_to_this_process_too():
    bench, _ = filled(4)
    store, memory = bench.result("store"), bench.result("memory")
    assert store["kind"] == "memory"
    assert store["commits"] >= 2
    assert memory["largest_queues"][0]["destination"] == "/queue/a"
    assert memory["used"] == bench.broker.account.used
    assert Management(bench.broker).ask("broker")["result"]["queues"] == 1


@pytest.mark.parametrize("waits", [True, False], ids=["ready", "delivered"])
def test_messages_of_a_transaction_are_counted(waits):
    bench, sender = Managed.with_peers(1)
    if not waits:
        bench.peer().subscribe("/queue/a")
    for name in ("t", "u"):  # the second one goes to a queue that the session knows
        sender.send("BEGIN", transaction=name)
        for number in range(3):
            sender.put("/queue/a", str(number), transaction=name, persistent="true")
        sender.send("COMMIT", transaction=name)
    row = bench.row("/queue/a")
    assert (row["received"], row["ready"], row["delivered"]) == (6, 6 * waits, 6 * (not waits))
