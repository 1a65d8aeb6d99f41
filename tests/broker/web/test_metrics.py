"""The metrics, as Prometheus's own parser reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from broker.management.managing import Managed

parser = pytest.importorskip("prometheus_client.parser")

from stompcodec.broker.web.metrics import OTHER, Metrics

LABELS = ["virtual_host", "destination", "kind", "holder", "version", "dialect"]


def told(bench: Managed, metrics: Metrics) -> dict[str, dict[tuple[str, ...], float]]:
    """The values by name and labels, after as many turns as it takes."""
    steps, found = metrics.text(), None
    while found is None:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
    octets, kind = found
    assert kind.startswith("text/plain")
    values: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parser.text_string_to_metric_families(octets.decode()):
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


def test_many_labels_are_written_in_turns():
    bench, metrics = made(max_destinations=10_000, web_metrics_destinations=600)
    destinations = bench.broker.virtual_host("/").destinations
    for number in range(600):
        destinations.queue(f"/queue/{number}")
    steps = metrics.text()
    assert sum(1 for _ in steps) > 2 * 14
    values = told(bench, metrics)
    assert len(values[READY]) == len(values[CAME]) == 601


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


@pytest.mark.parametrize("name", ['/queue/"', "/queue/\\", "/queue/\n", "/queue/ä", f"/queue/{'x' * 300}", OTHER])
def test_any_name_can_be_told(name):
    bench, metrics = made()
    bench.peer().put(name, "x")
    labels = {key[1] for key in told(bench, metrics)[READY]}
    assert labels == ({OTHER} if name == OTHER or len(name) > 256 else {OTHER, name})


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


def test_the_page_names_all_metrics():
    bench, metrics = made(web_metrics_destinations=2)
    page = (Path(__file__).parents[3] / "docs" / "management.md").read_text(encoding="utf-8")
    bench.peer().put("/queue/a", "x", persistent="true")
    for name in told(bench, metrics):
        assert f"`{name.removeprefix('stompcodec_broker_')}`" in page, name
