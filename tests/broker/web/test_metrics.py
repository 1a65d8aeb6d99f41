"""The metrics, as Prometheus's own parser reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from broker.management.managing import Managed

parser = pytest.importorskip("prometheus_client.parser")

from prometheus_client import CollectorRegistry, generate_latest

from stompcodec.broker.web.metrics import OTHER, Metrics

LABELS = ["virtual_host", "destination", "kind", "holder", "version", "dialect"]


def at_end(steps: Generator[Any, None, Any]) -> Any:
    """What a generator returns."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def written(metrics: Metrics) -> str:
    """The text, after as many turns as it takes."""
    octets, kind = at_end(metrics.text())
    assert kind.startswith("text/plain")
    text = octets.decode()
    assert isinstance(text, str)
    return text


def told(bench: Managed, metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """The values by name and labels."""
    return values_of(written(metrics))


def values_of(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parser.text_string_to_metric_families(text):
        assert re.fullmatch("stompcodec_broker_[a-z_]+", family.name)
        assert family.documentation
        for sample in family.samples:
            assert (family.type == "counter") is sample.name.endswith("_total"), sample.name
            labels = tuple(sample.labels[name] for name in sorted(sample.labels, key=LABELS.index))
            assert labels not in values.setdefault(sample.name, {})
            values[sample.name][labels] = sample.value
    return values


def made(**config: Any) -> tuple[Managed, Metrics]:
    bench = Managed(web_metrics=True, ws_port=0, **config)
    return bench, Metrics(bench.management)


READY, CAME = "stompcodec_broker_destination_ready_messages", "stompcodec_broker_destination_received_messages_total"


def test_destinations_have_labels_up_to_a_number():
    bench, metrics = made(web_metrics_destinations=2)
    peer = bench.peer()
    for number, name in enumerate(("/queue/b", "/queue/a", "/queue/c", "/queue/d"), 1):
        for _ in range(number):
            peer.put(name, "x")
    values = told(bench, metrics)
    keys = {("/", "/queue/b", "queue"): 1, ("/", "/queue/a", "queue"): 2, ("", OTHER, OTHER): 7}
    assert values[READY] == keys
    assert values[CAME] == keys


def test_totals_never_fall():
    """Not even when a destination ends, with labels or without."""
    bench, metrics = made(web_metrics_destinations=1)
    peer = bench.peer()
    for name in ("/queue/a", "/queue/b", "/queue/c"):
        peer.put(name, "x")
        peer.put(name, "y")
    before = told(bench, metrics)[CAME]
    assert before == {("/", "/queue/a", "queue"): 2, ("", OTHER, OTHER): 4}
    bench.result("delete", destination="/queue/c")
    assert told(bench, metrics)[CAME] == before
    bench.result("delete", destination="/queue/a")
    after = told(bench, metrics)
    assert after[CAME]["", OTHER, OTHER] >= 4
    assert ("/", "/queue/b", "queue") in after[CAME]  # there is room for its labels now


def came(bench: Managed, metrics: Metrics) -> float:
    """The messages that have come to `_other`."""
    return told(bench, metrics)[CAME]["", OTHER, OTHER]


def test_what_comes_while_another_destination_ends_counts():
    """The sum of those that live stays the same then."""
    bench, metrics = made(web_metrics_destinations=0)
    peer = bench.peer()
    for name in ("/queue/a", "/queue/b"):
        for _ in range(3):
            peer.put(name, "x")
    assert came(bench, metrics) == 6
    bench.result("delete", destination="/queue/a")
    for _ in range(3):
        peer.put("/queue/b", "x")
    assert came(bench, metrics) == 9


@pytest.mark.parametrize("kind", ["queue", "temporary", "topic", "durable"])
def test_what_comes_and_ends_between_two_scrapes_counts(kind):
    bench, metrics = made(web_metrics_destinations=0)
    before = came(bench, metrics)
    sender, peer = bench.peer(), bench.peer(connect=False)
    peer.connect(client_id="desk")
    if kind == "queue":
        sender.put("/queue/a", "x")
        bench.result("delete", destination="/queue/a")
        expected = 1
    elif kind == "temporary":
        peer.subscribe("/temp-queue/a", id="1")
        peer.put("/temp-queue/a", "x")
        expected = 1
    elif kind == "topic":
        peer.subscribe("/topic/t", id="1")
        sender.put("/topic/t", "x")
        peer.send("UNSUBSCRIBE", id="1")
        bench.result("delete", destination="/topic/t")
        expected = 1
    else:
        peer.subscribe("/topic/t", id="1", durable_subscription_name="all")
        sender.put("/topic/t", "x")
        peer.take()
        peer.send("UNSUBSCRIBE", id="1", durable_subscription_name="all")
        bench.result("delete", destination="/topic/t")
        expected = 2  # to the topic, and to the durable subscription
    peer.lose()
    assert came(bench, metrics) - before == expected
    assert came(bench, metrics) - before == expected


def test_a_destination_that_gets_labels_stays_in_the_totals_of_the_others():
    bench, metrics = made(web_metrics_destinations=1)
    peer = bench.peer()
    for name in ("/queue/a", "/queue/b", "/queue/c"):
        peer.put(name, "x")
    assert came(bench, metrics) == 2
    bench.result("delete", destination="/queue/a")
    peer.put("/queue/b", "x")
    peer.put("/queue/c", "x")
    values = told(bench, metrics)[CAME]
    assert values == {("/", "/queue/b", "queue"): 2, ("", OTHER, OTHER): 4}
    peer.put("/queue/b", "x")
    values = told(bench, metrics)[CAME]
    assert values == {("/", "/queue/b", "queue"): 3, ("", OTHER, OTHER): 4}


@pytest.mark.parametrize("most", [0, 10])
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_what_ends_during_a_scrape_counts_once(turns, most):
    """Before the scrape has seen it, or afterwards."""
    bench, metrics = made(web_metrics_destinations=most)
    destinations = bench.broker.virtual_host("/").destinations
    peer = bench.peer()
    for number in range(700):
        destinations.queue(f"/queue/{number}")
    for number in (5, 300, 699):
        peer.put(f"/queue/{number}", "x")
    steps = metrics.text()
    for _ in range(turns):
        next(steps)
    for number in (5, 300, 699):
        bench.result("delete", destination=f"/queue/{number}")
    values = values_of(at_end(steps)[0].decode())[CAME]
    labelled = most == 10 and turns > 0  # the queue 5 has labels
    assert values["", OTHER, OTHER] == (2 if labelled else 3)
    for _ in range(2):
        assert came(bench, metrics) == (2 if labelled else 3)


@pytest.mark.parametrize("turns", [1, 2])
def test_two_scrapes_at_once_do_not_count_twice(turns):
    """A destination ends while one of them has seen it, and the other has not."""
    bench, metrics = made(web_metrics_destinations=0)
    destinations = bench.broker.virtual_host("/").destinations
    bench.peer().put("/queue/a", "x")
    for number in range(600):
        destinations.queue(f"/queue/{number}")
    assert told(bench, metrics)[CAME]["", OTHER, OTHER] == 1
    early = metrics.text()
    for _ in range(turns):
        next(early)
    bench.result("delete", destination="/queue/a")
    assert told(bench, metrics)[CAME]["", OTHER, OTHER] == 1
    for _ in early:
        pass
    for _ in range(2):
        assert told(bench, metrics)[CAME]["", OTHER, OTHER] == 1


def test_the_virtual_hosts_are_those_of_the_configuration():
    bench, metrics = made(virtual_hosts=("one", "two"))
    bench.peer(connect=False).connect(host="two")
    hosts = {key[0] for key in told(bench, metrics)["stompcodec_broker_destinations"]}
    assert hosts == {"one", "two"}


def test_names_do_not_depend_on_what_there_is():
    bench, metrics = made()
    before = told(bench, metrics).keys()
    peer = bench.peer()
    peer.subscribe("/topic/t", id="1")
    peer.subscribe("/temp-queue/x", id="2")
    peer.subscribe("/queue/a", id="3", ack="client")
    for name in ("/topic/t", "/queue/a", "/queue/b"):
        peer.put(name, "x", persistent="true")
    after = told(bench, metrics)
    assert before <= after.keys()
    assert after.keys() - before <= {"stompcodec_broker_store_last_commit_seconds"}


def test_a_temporary_destination_has_no_labels():
    bench, metrics = made()
    peer = bench.peer()
    peer.subscribe("/temp-queue/x", id="1")
    assert list(told(bench, metrics)[READY]) == [("", OTHER, OTHER)]


def test_a_queue_of_one_session_has_no_labels():
    bench, metrics = made(dialect="rabbitmq")
    peer = bench.peer()
    peer.subscribe("/queue/mine", id="1", exclusive="true")
    assert list(told(bench, metrics)[READY]) == [("", OTHER, OTHER)]


FATES = ("redelivered", "expired", "dropped", "dead_letters")


def fates(bench: Managed, metrics: Metrics, name: str = "/topic/t") -> list[int]:
    """What became of the messages of a topic: the metrics are what management says."""
    values, row = told(bench, metrics), bench.row(name)
    names = [f"stompcodec_broker_destination_{each.removesuffix('s')}_messages_total" for each in FATES]
    found = [values[each]["/", name, "topic"] for each in names]
    assert found == [row[each] for each in FATES]
    return [int(each) for each in found]


@pytest.mark.parametrize("how", ["UNSUBSCRIBE", "DISCONNECT", "lost"])
def test_what_became_of_messages_of_a_topic_outlives_the_subscriptions(how):
    bench, metrics = made(topic_backlog=3, slow_consumer="drop")
    sender = bench.peer()
    assert "/topic/t" not in [row["destination"] for row in bench.result("destinations")]
    for round in range(1, 4):
        peer = bench.peer()
        peer.subscribe("/topic/t", id="1", ack="client-individual", prefetch_count="1")
        for number in range(8):
            sender.put("/topic/t", str(number))
        peer.nack(peer.next("MESSAGE"))
        message = peer.next("MESSAGE")
        during = fates(bench, metrics)
        assert during[0] == round
        assert during[2] >= 4 * round
        peer.send("ACK", id=message.headers["ack"])
        sender.put("/topic/t", "x", expires=str(int(bench.broker.wall() * 1000) + 1000))
        bench.wait(100.0)
        during = fates(bench, metrics)
        if how == "lost":
            peer.lose()
        else:
            peer.send(how, **({"id": "1"} if how == "UNSUBSCRIBE" else {}))
        assert fates(bench, metrics) == during
    bench.result("delete", destination="/topic/t")
    other = told(bench, metrics)["stompcodec_broker_destination_redelivered_messages_total"]
    assert sum(other.values()) == 3 or ("/", "/topic/t", "topic") not in other


def test_a_subscription_that_ends_during_a_scrape_counts_once():
    bench, metrics = made(max_subscriptions=1000)
    keeper, peer = bench.peer(), bench.peer()
    for number in range(600):
        peer.subscribe("/topic/t", id=str(number), ack="client-individual")
    keeper.subscribe("/topic/t", id="1", ack="client-individual")
    keeper.put("/topic/t", "x")
    bench.turn()
    for each in [peer.next("MESSAGE") for _ in range(600)]:
        peer.nack(each)
    bench.turn()
    assert fates(bench, metrics)[0] == 600
    steps = metrics.text()
    for _ in range(2):
        next(steps)
    peer.lose()
    values = values_of(at_end(steps)[0].decode())
    assert values["stompcodec_broker_destination_redelivered_messages_total"]["/", "/topic/t", "topic"] == 600
    assert fates(bench, metrics)[0] == 600


def test_what_becomes_of_messages_of_a_pattern_is_of_no_single_topic():
    """Else one message counted for each topic that the pattern matches, now or later, and less once it has ended."""
    bench, metrics = made(wildcards="activemq")
    peer = bench.peer()
    peer.subscribe("/topic/>", id="1", ack="client-individual")
    peer.put("/topic/t", "x")
    peer.put("/topic/u", "x")
    peer.nack(peer.next("MESSAGE"))
    assert fates(bench, metrics) == fates(bench, metrics, "/topic/u") == [0, 0, 0, 0]
    assert bench.row("/topic/t")["consumers"] == 1


def test_totals_of_a_topic_do_not_end_with_its_subscriptions():
    """Nor do those of other destinations that ended meanwhile."""
    bench, metrics = made()
    peer = bench.peer()
    peer.subscribe("/topic/t", id="1", ack="client-individual")
    peer.put("/topic/t", "x")
    peer.nack(peer.next("MESSAGE"))
    peer.next("MESSAGE")
    before = told(bench, metrics)
    assert bench.row("/topic/t")["redelivered"] == 1
    peer.send("UNSUBSCRIBE", id="1")
    after = told(bench, metrics)
    for name, found in before.items():
        if name.endswith("_total"):
            for labels, value in found.items():
                assert after[name].get(labels, value) >= value, name
    assert before[CAME]["/", "/topic/t", "topic"] == 1


@pytest.mark.parametrize(
    "name",
    [
        '/queue/"',
        "/queue/\\",
        "/queue/\n",
        "/queue/\n\nx{",
        "/queue/\u2028\x85\x0c",
        "/queue/ä",
        f"/queue/{'x' * 300}",
        OTHER,
    ],
)
def test_any_name_can_be_told(name):
    bench, metrics = made()
    bench.peer().put(name, "x")
    labels = {key[1] for key in told(bench, metrics)[READY]}
    assert labels == ({OTHER} if name == OTHER or len(name) > 256 else {OTHER, name})


def test_the_oldest_of_many_is_the_oldest():
    bench, metrics = made(web_metrics_destinations=0)
    for name in ("/queue/a", "/queue/b", "/queue/c"):
        bench.peer().put(name, "x")
        for _ in range(10):
            bench.wait(1.0)
    (age,) = told(bench, metrics)["stompcodec_broker_destination_oldest_message_age_seconds"].values()
    assert 30.0 <= age <= 32.0
    assert age == max(bench.row(name)["oldest"] for name in ("/queue/a", "/queue/b", "/queue/c"))


@pytest.mark.parametrize("most", [0, 2, 100])
def test_the_text_is_as_the_library_writes_it(most):
    """The lines of destinations are written without the library. With whole numbers as floats, they are the same."""
    bench, metrics = made(web_metrics_destinations=most)
    peer = bench.peer()
    for name in ('/queue/"', "/queue/\\", "/queue/\n", "/queue/ä} 1", '/queue/a",b="{', "/topic/t"):
        peer.subscribe(name, id=name, ack="client", prefetch_count="1")
        peer.put(name, "x")
        peer.put(name, "y", persistent="true")
    text = written(metrics)

    class Parsed:
        def collect(self) -> Any:
            return parser.text_string_to_metric_families(text)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Parsed())
    assert re.sub(r"(?m)^([^#].* \d+)$", r"\1.0", text) == generate_latest(registry).decode()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_accepts_it():
    bench, metrics = made(web_metrics_destinations=2)
    for name in ('/queue/"', "/queue/\\ä", "/topic/t", "/queue/c"):
        bench.peer().put(name, "x", persistent="true")
    found = subprocess.run(["promtool", "check", "metrics"], input=written(metrics), text=True, capture_output=True)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_the_turns_of_two_readers_do_not_disturb_each_other():
    """Destinations end and others come between them."""
    bench, metrics = made(web_metrics_destinations=50)
    destinations = bench.broker.virtual_host("/").destinations
    for number in range(600):
        destinations.queue(f"/queue/{number}")
    bench.peer().put("/queue/599", "x")
    first, second = metrics.text(), metrics.text()
    next(first)
    bench.result("delete", destination="/queue/0")
    destinations.queue("/queue/0")
    next(second)
    bench.result("delete", destination="/queue/599")
    for steps in (first, second):
        values = values_of(at_end(steps)[0].decode())
        assert values[CAME]["", OTHER, OTHER] == 1


def test_it_is_what_management_says():
    bench, metrics = made()
    peer = bench.peer()
    peer.subscribe("/queue/a", id="1", ack="client", prefetch_count="2")
    for body in "abcde":
        peer.put("/queue/a", body)
    values, row = told(bench, metrics), bench.row("/queue/a")
    key = "/", "/queue/a", "queue"
    for column, name in {
        "ready": "ready_messages",
        "unacknowledged": "unacknowledged_messages",
        "consumers": "consumers",
        "received": "received_messages_total",
        "delivered": "delivered_messages_total",
    }.items():
        assert values[f"stompcodec_broker_destination_{name}"][key] == row[column] > 0
    memory = bench.result("memory")
    assert sum(values["stompcodec_broker_memory_used_bytes"].values()) == memory["used"]


@pytest.mark.parametrize("count", [2000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_many_queues_are_told_in_turns(count):
    bench, metrics = made(max_destinations=100_000)
    destinations = bench.broker.virtual_host("/").destinations
    for number in range(count):
        destinations.queue(f"/queue/{number}")
    steps = metrics.text()
    turns = sum(1 for _ in iter(lambda: next(steps, None), None))
    assert turns >= count // 500
    values = told(bench, metrics)
    assert len(values[READY]) == 101
    assert values["stompcodec_broker_destinations"]["/", "queue"] == count


def test_the_subscriptions_of_a_topic_are_looked_at_in_turns():
    bench, metrics = made()
    for each in range(5):
        peer = bench.peer()
        for number in range(100):
            peer.subscribe("/topic/t", id=f"{each}.{number}", ack="client", prefetch_count="1")
    for _ in range(3):
        bench.peer().put("/topic/t", "x")
    bench.turn()
    steps = metrics.text()
    assert sum(1 for _ in iter(lambda: next(steps, None), None)) >= 2
    values, row = told(bench, metrics), bench.row("/topic/t")
    key = "/", "/topic/t", "topic"
    assert values[READY][key] == row["ready"] == 1000
    assert values["stompcodec_broker_destination_unacknowledged_messages"][key] == row["unacknowledged"] == 500
    assert values["stompcodec_broker_destination_consumers"][key] == 500
    assert values["stompcodec_broker_destination_oldest_message_age_seconds"][key] == row["oldest"]


@pytest.mark.parametrize("count", [1000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_many_labels_are_written_in_turns(count):
    bench, metrics = made(max_destinations=100_000, web_metrics_destinations=count)
    destinations = bench.broker.virtual_host("/").destinations
    for number in range(count):
        destinations.queue(f"/queue/{number}")
    steps = metrics.text()
    turns = sum(1 for _ in iter(lambda: next(steps, None), None))
    assert turns >= count // 250 + 14 * count // 2500 - 1
    assert written(metrics).count(f"\n{READY}{{") == count + 1


def test_the_page_names_all_metrics():
    bench, metrics = made(web_metrics_destinations=2)
    page = (Path(__file__).parents[3] / "docs" / "management.md").read_text(encoding="utf-8")
    bench.peer().put("/queue/a", "x", persistent="true")
    for name in told(bench, metrics):
        assert f"`{name.removeprefix('stompcodec_broker_')}`" in page, name
