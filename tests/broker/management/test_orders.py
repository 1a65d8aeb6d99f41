"""What orders do: to queues in memory and in the store, beside consumers, and when the disk fails."""

import json
from types import SimpleNamespace

import pytest
from broker.harness import FaultyStore
from broker.management.managing import LOCAL, Managed

from stompcodec.broker.management.management import Management
from stompcodec.broker.management.schema import Asker
from stompcodec.broker.sessions import plain


def filled(count=6, store=None, destination="/queue/a", **config):
    """A queue with messages, every second one persistent; and the sender."""
    bench = Managed(store, **config)
    peer = bench.peer(peer=LOCAL)
    for number in range(count):
        peer.put(destination, f"m{number}", persistent="true" if number % 2 else "false", n=str(number))
    return bench, peer


def bodies(bench, destination="/queue/a"):
    return [row["body"] for row in bench.result("messages", destination=destination)]


def kept(bench):
    """The bodies in the store, by queue."""
    stored = bench.store.load()
    return sorted((one.queue.partition("\0")[2], one.tail[:-1].rpartition(b"\n\n")[2]) for one in stored)


# ---- purge and move ----


def test_a_purge_may_be_limited_and_selective():
    bench, _ = filled()
    assert bench.result("purge", destination="/queue/a", limit=2)["messages"] == 2
    assert bodies(bench) == ["m2", "m3", "m4", "m5"]
    assert bench.result("purge", destination="/queue/a", selector="n > 3")["messages"] == 2
    assert bodies(bench) == ["m2", "m3"]
    (row, _) = bench.result("messages", destination="/queue/a")
    assert bench.result("purge", destination="/queue/a", message_id=row["message_id"])["messages"] == 1
    assert bodies(bench) == ["m3"]
    assert bench.result("purge", destination="/queue/a")["messages"] == 1
    assert bench.row("/queue/a")["ready"] == 0
    assert kept(bench) == []


def test_a_move_to_a_topic_and_to_a_durable_subscription():
    bench, _ = filled(4)
    consumer = bench.peer(connect=False)
    consumer.connect(client_id="desk")
    consumer.subscribe("/topic/t", durable_subscription_name="all")
    consumer.lose()
    assert bench.result("move", destination="/queue/a", to="/topic/t", limit=2)["messages"] == 2
    assert bodies(bench, "desk.all") == ["m0", "m1"]
    assert bench.result("move", destination="/queue/a", to="desk.all")["messages"] == 2
    assert bodies(bench, "desk.all") == ["m0", "m1", "m2", "m3"]
    assert {row["destination"] for row in bench.result("messages", destination="desk.all")} == {"/topic/t"}
    assert [body for _, body in kept(bench)] == [b"m1", b"m3"]
    assert bench.result("purge", destination="desk.all")["messages"] == 4
    assert kept(bench) == []


def test_a_move_stops_at_a_full_queue():
    bench, _ = filled(10, max_queue_messages=12)
    other = bench.peer()
    for number in range(10):
        other.put("/queue/b", f"b{number}")
    result = bench.result("move", destination="/queue/a", to="/queue/b")
    assert result["messages"] == 2
    assert "full" in result["stopped"]
    assert len(bodies(bench)) + len(bodies(bench, "/queue/b")) == 20


def begun(bench, request, **fields):
    """Begin a request that takes some turns; its answers, once they are there."""
    answers = []
    bench.management.begin(request, fields, Asker(bench.broker.virtual_host("/"), "a test"), answers.append)
    return answers


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_a_move_ends_when_its_target_is_deleted(persistent):
    """What has not left by then stays, and the answer counts what was moved."""
    bench = Managed()
    peer = bench.peer()
    for number in range(300):
        peer.put("/queue/a", f"m{number}", persistent=persistent)
    answers = begun(bench, "move", destination="/queue/a", to="/queue/b")
    begun(bench, "delete", destination="/queue/b")
    assert not answers
    bench.turn()
    (result,) = (answer["result"] for answer in answers)
    assert result["stopped"] == "/queue/b was deleted"
    assert 0 < result["messages"] < 300
    assert len(bodies(bench)) == 300 - result["messages"]
    assert len(kept(bench)) == (len(bodies(bench)) if persistent == "true" else 0)


def test_a_move_ends_when_the_last_subscription_to_its_topic_does():
    bench, _ = filled(300)
    consumer = bench.peer()
    consumer.subscribe("/topic/t")
    answers = begun(bench, "move", destination="/queue/a", to="/topic/t")
    assert not answers
    consumer.lose()
    bench.turn()
    (result,) = (answer["result"] for answer in answers)
    assert result["stopped"] == "/topic/t has no subscriptions any more"
    assert len(bodies(bench)) == 300 - result["messages"] > 0


def test_a_move_to_a_topic_goes_on_when_its_subscribers_have_read():
    bench = Managed(topic_backlog=3, slow_consumer="block")
    consumer, peer = bench.peer(), bench.peer()
    consumer.subscribe("/topic/t", ack="client-individual", prefetch_count="1")
    for number in range(200):
        peer.put("/queue/a", f"m{number}")
    for _ in range(2):
        result = bench.result("move", destination="/queue/a", to="/topic/t")
        assert result["stopped"] == "/topic/t is full"
    assert result["messages"] == 0
    for message in iter(lambda: next(iter(consumer.take()), None), None):
        consumer.ack(message)
    assert bench.result("move", destination="/queue/a", to="/topic/t")["messages"] > 0


def test_dead_letters_are_sent_again():
    bench, peer = filled(4)
    peer.subscribe("/queue/a", id="1", ack="client-individual")
    for message in peer.take():
        peer.nack(message, requeue="false")
    peer.send("UNSUBSCRIBE", id="1")
    peer.put("/queue/DLQ.a", "not one")
    (first, *_) = bench.result("messages", destination="/queue/DLQ.a")
    assert dict(first["headers"])["dead-letter-reason"] == "rejected"
    assert bench.row("/queue/a")["dead_letters"] == 4
    result = bench.result("move", destination="/queue/DLQ.a", message_id=first["message_id"])
    assert (result["messages"], result["skipped"]) == (1, 0)
    result = bench.result("move", destination="/queue/DLQ.a")
    assert (result["messages"], result["skipped"]) == (3, 1)
    assert bodies(bench) == ["m0", "m1", "m2", "m3"]
    for row in bench.result("messages", destination="/queue/a"):
        names = {name for name, _ in row["headers"]}
        assert not names & {"dead-letter-reason", "original-destination", "dead-letter-attempts"}
        assert "dead-letter-first-time" in names
        assert row["attempts"] == 0


def test_dead_letters_of_a_durable_subscription_go_back_to_it():
    bench = Managed()
    peer = bench.peer(connect=False)
    peer.connect(client_id="desk")
    peer.subscribe("/topic/t", id="1", ack="client-individual", durable_subscription_name="all")
    other = bench.peer()
    other.subscribe("/topic/t")
    other.put("/topic/t", "x", persistent="true")
    other.take()
    peer.nack(peer.next("MESSAGE"), requeue="false")
    assert bodies(bench, "/queue/DLQ.desk.all") == ["x"]
    assert bench.result("move", destination="/queue/DLQ.desk.all")["messages"] == 1
    message = peer.next("MESSAGE")
    assert (message.headers["destination"], message.get("dead-letter-reason")) == ("/topic/t", None)
    assert not other.take()


# ---- queues that are longer than memory ----


@pytest.mark.parametrize("window", [1, 3, 1000])
@pytest.mark.parametrize("consumers", [False, True])
def test_messages_in_the_store_only_are_found(window, consumers):
    bench, peer = filled(0, window_messages=window)
    for number in range(30):
        peer.put("/queue/a", f"m{number:02}", persistent="true", n=str(number))
    if consumers:
        other = bench.peer()
        other.subscribe("/queue/a", id="1", ack="client", selector="n > 100")
        other.subscribe("/queue/a", id="2", browser="true", browser_end="false")
    wanted = [f"m{number:02}" for number in range(30)]
    assert bodies(bench) == wanted
    assert [row["body"] for row in bench.result("messages", destination="/queue/a", limit=7)] == wanted
    assert bench.result("move", destination="/queue/a", to="/queue/b", selector="n < 10 AND n > 4")["messages"] == 5
    assert bodies(bench, "/queue/b") == wanted[5:10]
    assert bench.result("purge", destination="/queue/a", limit=12)["messages"] == 12
    assert bodies(bench) == wanted[17:]
    assert bench.result("move", destination="/queue/a", to="/queue/b")["messages"] == 13
    assert bench.result("delete", destination="/queue/b")["messages"] == 18
    assert kept(bench) == []


# ---- the disk ----


@pytest.mark.parametrize("order", ["purge", "move"])
def test_after_a_failed_commit_nothing_has_changed(order):
    bench, peer = filled(6, FaultyStore(background=False))
    before = kept(bench)
    bench.store.faulty = True
    fields = {"to": "/queue/b"} if order == "move" else {}
    assert bench.fault(order, destination="/queue/a", **fields) == "destination"
    bench.store.faulty = False
    bench.wait(3.0)
    assert bodies(bench) == [f"m{number}" for number in range(6)]
    assert kept(bench) == before
    assert not peer.closed
    assert all(row["attempts"] == 0 for row in bench.result("messages", destination="/queue/a"))


@pytest.mark.parametrize("order", ["purge", "move", "delete"])
def test_the_answer_comes_after_the_commit(order):
    """So a crash before the answer is as if nothing was done, or all of it; in between there is nothing."""
    bench, peer = filled(6, FaultyStore(background=True))
    while bench.store.job is not None:
        bench.store.finish()
        bench.turn()
    peer.subscribe("/temp-queue/answers")
    before = kept(bench)
    fields = {"destination": "/queue/a", **({"to": "/queue/b"} if order == "move" else {})}
    peer.put(f"/management/{order}", json.dumps(fields), reply_to="/temp-queue/answers")
    for _ in range(4):
        if bench.store.job is None:
            break
        assert not peer.take()
        assert kept(bench) == before
        bench.store.finish()
        bench.turn()
    after = [("/queue/b", body) for _, body in before] if order == "move" else []
    assert kept(bench) == after
    (answer,) = peer.take()
    assert "error" not in json.loads(answer.body)


# ---- turns ----


@pytest.mark.parametrize("stays", [True, False])
def test_a_long_purge_leaves_the_loop_to_others(stays):
    bench, peer = filled(3000)
    peer.subscribe("/temp-queue/answers")
    other = bench.peer()
    octets = peer.octets_of(
        "SEND", b'{"destination": "/queue/a"}', destination="/management/purge", reply_to="/temp-queue/answers"
    )
    peer.session.receive(octets, bench.now)
    before = bench.broker.queues["/", "/queue/a"].count
    assert before > 2900
    other.session.receive(other.octets_of("SEND", b"x", destination="/queue/b", receipt="r"), bench.now)
    for session in bench.broker.turn(bench.now):
        bench.peers[session].flush()
    assert other.next().command == "RECEIPT"
    assert bench.broker.queues["/", "/queue/a"].count > 2800
    if stays:
        bench.turn()
        assert json.loads(peer.next("MESSAGE").body)["result"]["messages"] == 3000
    else:  # the order goes on
        peer.lose()
    assert bench.row("/queue/a")["ready"] == 0


# ---- delete, pause, close ----


def test_delete():
    bench, peer = filled()
    assert bench.result("delete", destination="/queue/a")["messages"] == 6
    assert ("/", "/queue/a") not in bench.broker.queues
    assert kept(bench) == []
    peer.put("/queue/a", "again")
    assert bodies(bench) == ["again"]
    peer.subscribe("/temp-queue/mine", id="1")
    peer.send("UNSUBSCRIBE", id="1")
    name = f"/temp-queue/{peer.session.id}-mine"
    assert bench.fault("delete", destination=name) == "destination"


def test_delete_a_topic_and_a_durable_subscription():
    bench = Managed()
    peer = bench.peer(connect=False)
    peer.connect(client_id="desk")
    peer.subscribe("/topic/t", id="1", durable_subscription_name="all")
    assert bench.fault("delete", destination="desk.all") == "destination"
    assert bench.fault("delete", destination="/topic/t") == "destination"
    peer.lose()
    bench.peer().put("/topic/t", "x", persistent="true")
    (row,) = bench.result("durables")
    assert (row["name"], row["destination"], row["ready"]) == ("desk.all", "/topic/t", 1)
    assert bench.result("delete", destination="desk.all")["messages"] == 1
    assert bench.result("durables") == []
    assert kept(bench) == list(bench.store.subscriptions()) == []
    assert bench.result("delete", destination="/topic/t")["messages"] == 0


def test_a_paused_queue_delivers_nothing_until_it_is_resumed():
    bench = Managed()
    consumer, sender = bench.peer(), bench.peer()
    consumer.subscribe("/queue/a", id="1", ack="client-individual")
    assert bench.result("pause", destination="/queue/a")["changed"]
    assert not bench.result("pause", destination="/queue/a")["changed"]
    for number in range(3):
        sender.put("/queue/a", f"m{number}", persistent="true")
    consumer.session.receive(b"RECEIVE\ndestination:/queue/a\nid:r\n\n\0", bench.now)
    assert consumer.session.take_output()[0].startswith(b"EMPTY\n")
    bench.wait(40.0)
    assert not consumer.take()
    assert bench.row("/queue/a")["paused"]
    assert bench.result("move", destination="/queue/a", to="/queue/b", limit=1)["messages"] == 1
    assert bench.result("resume", destination="/queue/a")["changed"]
    assert consumer.bodies() == [b"m1", b"m2"]
    assert not bench.result("resume", destination="/queue/a")["changed"]
    assert not bench.row("/queue/a")["paused"]
    bench.result("pause", destination="/queue/b")
    bench.result("purge", destination="/queue/b")
    bench.wait(100.0)
    assert bench.row("/queue/b")["paused"]  # though it is empty


# ---- what is computed ----


def test_what_is_looked_at_and_not_shown_takes_turns_too():
    """Else one request for what is not there would stop the loop, for as long as all destinations take."""
    bench = Managed(max_destinations=100_000)
    peer = bench.peer()
    destinations = bench.broker.virtual_host("/").destinations
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
    bench = Managed(max_destinations=100_000)
    peer = bench.peer()
    destinations = bench.broker.virtual_host("/").destinations
    asker = Asker(bench.broker.virtual_host("/"), "a test")
    for number in range(6000):
        destinations.queue(f"/queue/{number * 7919 % 6000:04}")
    assert sum(1 for _ in bench.management.answering("destinations", {}, asker)) == 1
    for name in ("/queue/0001!", "/queue/0001\x01", "/topic/0001", "both"):
        peer.subscribe(name, id=name)
    found = [(row["destination"], row["kind"]) for row in bench.result("destinations", limit=999)]
    assert found == sorted(found)
    assert len(set(found)) == len(found) == 6004


def test_bodies_are_shown_as_text_or_in_base64():
    bench = Managed(large=3000)
    peer = bench.peer()
    bench.wait(100.0)
    for body in ("hello", "ä" * 40, b"\xff\x00", b"", b"x" * 5000):
        peer.put("/queue/a", body)
    bench.wait(5.0)
    rows = bench.result("messages", destination="/queue/a", body=41)
    assert all(5.0 <= row["age"] <= 6.5 for row in rows)
    shown = [(row["body"], row["encoding"], row["size"], row["truncated"]) for row in rows]
    assert shown == [
        ("hello", "utf-8", 5, False),
        ("ä" * 20, "utf-8", 80, True),
        ("/wA=", "base64", 2, False),
        ("", "utf-8", 0, False),
        ("x" * 41, "utf-8", 5000, True),
    ]


def test_a_page_of_messages_has_at_most_a_mebibyte_of_bodies():
    bench = Managed()
    peer = bench.peer()
    for _ in range(20):
        peer.put("/queue/a", "x" * 90_000)
    answer = bench.ask("messages", destination="/queue/a", body=65_536, limit=1000)
    assert 10 <= len(answer["rows"]) <= 17
    assert answer["next"] is not None
    assert len(bench.result("messages", destination="/queue/a", body=65_536)) == 20


@pytest.mark.parametrize("road", [True, False], ids=["c", "python"])
def test_counts_agree_in_c_and_in_python(road):
    if plain.EXTENSION is not None:
        plain.EXTENSION.switch(road)
    bench = Managed()
    sender, consumer = bench.peer(), bench.peer()
    sender.put("/queue/a", "0")
    consumer.subscribe("/queue/a", id="1", ack="client-individual")
    consumer.subscribe("/queue/b", id="2")
    for name in ("/queue/a", "/queue/a", "/queue/b", "/queue/b", "/queue/c", "/queue/c"):
        sender.put(name, "x")
    first, *_ = consumer.take()
    consumer.nack(first)
    consumer.subscribe("/queue/c", id="3")
    rows = bench.result("destinations")
    found = [(row["received"], row["delivered"], row["redelivered"]) for row in rows]
    assert found == [(3, 4, 1), (2, 2, 0), (2, 2, 0)]


def test_the_store_and_memory_are_told_to_this_process_too():
    bench, _ = filled(4)
    store = bench.result("store")
    assert store["kind"] == "memory"
    assert store["commits"] >= 2
    memory = bench.result("memory")
    assert memory["largest_queues"][0]["destination"] == "/queue/a"
    assert memory["used"] == bench.broker.account.used
    assert Management(bench.broker).ask("broker")["result"]["queues"] == 1


@pytest.mark.parametrize("waits", [True, False], ids=["ready", "delivered"])
def test_messages_of_a_transaction_are_counted(waits):
    bench = Managed()
    sender = bench.peer()
    if not waits:
        bench.peer().subscribe("/queue/a")
    for name in ("t", "u"):  # the second one goes to a queue that the session knows
        sender.send("BEGIN", transaction=name)
        for number in range(3):
            sender.put("/queue/a", str(number), transaction=name, persistent="true")
        sender.send("COMMIT", transaction=name)
        bench.turn()
    row = bench.row("/queue/a")
    assert (row["received"], row["ready"], row["delivered"]) == (6, 6 * waits, 6 * (not waits))
