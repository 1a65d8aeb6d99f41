"""The metrics, as Prometheus's own parser reads them."""

import contextlib
import re
import sqlite3
from pathlib import Path

import pytest
from broker.management.managing import Managed
from broker.moves import settle
from broker.storage.storing import stop
from hypothesis import given
from hypothesis import strategies as st

parser = pytest.importorskip("prometheus_client.parser")
from stompcodec.broker.storage.sqlite import SqliteStore
from stompcodec.broker.web import metrics as module
from stompcodec.broker.web.metrics import OTHER, Metrics

LABELS = ["virtual_host", "destination", "kind", "holder", "version", "dialect"]


def at_end(steps):
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class Scraped(Managed):
    def __init__(self, store=None, **config):
        super().__init__(store, web_metrics=True, ws_port=0, **config)
        self.metrics = Metrics(self.management)

    def text(self):
        """The metrics, after as many turns as it takes."""
        octets, kind = at_end(self.metrics.text())
        assert kind.startswith("text/plain")
        return octets.decode()

    def told(self):
        return values_of(self.text())

    def came(self):
        return self.told()[CAME]["", OTHER, OTHER]


def values_of(text):
    values = {}
    for family in parser.text_string_to_metric_families(text):
        assert re.fullmatch("stompcodec_broker_[a-z_]+", family.name)
        assert family.documentation
        for sample in family.samples:
            assert (family.type == "counter") is sample.name.endswith("_total"), sample.name
            labels = tuple(sample.labels[name] for name in sorted(sample.labels, key=LABELS.index))
            assert labels not in values.setdefault(sample.name, {})
            values[sample.name][labels] = sample.value
    return values


READY, CAME = "stompcodec_broker_destination_ready_messages", "stompcodec_broker_destination_received_messages_total"


def test_a_destination_that_gets_labels_stays_in_the_totals_of_the_others():
    bench, peer = Scraped.with_peers(1, web_metrics_destinations=1)
    for deleted, sent, labelled, expected, others in (
        *((None, "abc", "a", 1, 2), ("a", "bc", "b", 2, 4)),
        (None, "b", "b", 3, 4),  # then the one without labels ends
        *(("c", "", "b", 3, 4), (None, "d", "b", 3, 5)),
    ):
        if deleted:
            bench.result("delete", destination=f"/queue/{deleted}")
        for name in sent:
            peer.put(f"/queue/{name}", "x")
        assert bench.told()[CAME] == {("/", f"/queue/{labelled}", "queue"): expected, ("", OTHER, OTHER): others}


QUEUES = [f"/queue/{letter}" for letter in "abcd"]
DEEDS = st.one_of(
    st.tuples(st.sampled_from(["send", "delete"]), st.sampled_from(QUEUES)),
    st.tuples(st.sampled_from(["scrape", "step", "step", "finish"]), st.integers(0, 2)),
)
START = [*(("send", name) for name in QUEUES), ("scrape", 0), ("step", 0)]


@given(st.lists(DEEDS, min_size=15, max_size=40), st.sampled_from([0, 0, 2]))
def test_each_message_counts_once_whatever_ends_during_which_scrape(deeds, most):
    """Scrapes go on in turns, also beside each other, while destinations end and others come."""
    bench = Scraped(web_metrics_destinations=most)
    peer, sent, last, scrapes = bench.peer(), 0, 0.0, []

    def finish(steps, begun):
        """A scrape tells at least what had come when it began, and never less than was told before."""
        nonlocal last
        total = values_of(at_end(steps)[0].decode())[CAME]["", OTHER, OTHER]
        assert max(last, 0 if most else begun) <= total <= sent
        last = total

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_AT_ONCE", 1)
        for deed, which in START + deeds:
            if deed == "send":
                peer.put(which, "x")
                sent += 1
            elif deed == "delete":
                if which in bench.broker.virtual_host("/").queues:
                    bench.result("delete", destination=which)
            elif deed == "scrape":
                scrapes.append((bench.metrics.text(), sent))
            elif deed == "step" and scrapes:
                steps, begun = scrapes.pop(which % len(scrapes))
                if next(steps, None) is not None:
                    scrapes.append((steps, begun))
            elif scrapes:
                finish(*scrapes.pop(which % len(scrapes)))
        for steps, begun in (*scrapes, (bench.metrics.text(), sent)):
            finish(steps, begun)
        assert last == sent or most
        assert bench.came() == last


def test_what_comes_and_ends_between_two_scrapes_counts():
    bench = Scraped(web_metrics_destinations=0)
    sender, peer = bench.peer(), bench.client(client_id="desk")
    before = bench.came()
    peer.subscribe("/temp-queue/a", id="0")
    peer.put("/temp-queue/a", "x")
    for durable in ({}, {"durable_subscription_name": "all"}):
        peer.subscribe("/topic/t", id="1", **durable)
        sender.put("/topic/t", "x")  # to the topic, and to the durable subscription
        peer.send("UNSUBSCRIBE", id="1", **durable)
        bench.result("delete", destination="/topic/t")
    peer.lose()
    assert bench.came() - before == bench.came() - before == 1 + 1 + 2


def test_destinations_of_one_session_have_no_labels():
    bench, peer = Scraped.with_peers(1, dialect="rabbitmq")
    peer.subscribe("/temp-queue/x", id="1")
    peer.subscribe("/queue/mine", id="2", exclusive="true")
    assert list(bench.told()[READY]) == [("", OTHER, OTHER)]


FATES = ("redelivered", "expired", "dropped", "dead_letters")


def fates(bench, name="/topic/t"):
    """What became of the messages of a topic: the metrics are what management says."""
    values, row = bench.told(), bench.row(name)
    names = [f"stompcodec_broker_destination_{each.removesuffix('s')}_messages_total" for each in FATES]
    found = [values[each]["/", name, "topic"] for each in names]
    assert found == [row[each] for each in FATES]
    return [int(each) for each in found]


def test_a_subscription_that_ends_during_a_scrape_counts_once(monkeypatch):
    monkeypatch.setattr(module, "_AT_ONCE", 2)
    bench, keeper, peer = Scraped.with_peers(2)
    for number in range(5):
        peer.subscribe("/topic/t", id=str(number), ack="client-individual")
    keeper.subscribe("/topic/t", id="1", ack="client-individual")
    keeper.put("/topic/t", "x")
    for each in [peer.next("MESSAGE") for _ in range(5)]:
        peer.nack(each)
    assert fates(bench)[0] == 5
    steps = bench.metrics.text()
    for _ in range(2):
        next(steps)
    peer.lose()
    values = values_of(at_end(steps)[0].decode())
    assert values["stompcodec_broker_destination_redelivered_messages_total"]["/", "/topic/t", "topic"] == 5
    assert fates(bench)[0] == 5


def test_what_becomes_of_messages_of_a_pattern_is_of_no_single_topic():
    """Else one message counted for each topic that the pattern matches, now or later, and less once it has ended."""
    bench, peer = Scraped.with_peers(1, wildcards="activemq")
    peer.subscribe("/topic/>", id="1", ack="client-individual")
    peer.put("/topic/t", "x")
    peer.put("/topic/u", "x")
    peer.nack(peer.next("MESSAGE"))
    assert fates(bench) == fates(bench, "/topic/u") == [0, 0, 0, 0]
    assert bench.row("/topic/t")["consumers"] == 1


def test_any_name_can_be_told():
    bench = Scraped()
    names = {*map("/queue/".__add__, ['"', "\\", "a\n", "\n\nx{", "\u2028\x85\x0ca", "ä", "x" * 249])}
    for name in (*names, OTHER, "/queue/" + "x" * 250):
        bench.peer().put(name, "x")
    assert {key[1] for key in bench.told()[READY]} == {OTHER, *names}


@pytest.mark.parametrize("count", [1000, pytest.param(50_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("labelled", [False, True])
def test_many_queues_are_told_in_turns(count, labelled):
    most = count if labelled else 100
    bench = Scraped(max_destinations=100_000, web_metrics_destinations=most)
    destinations = bench.broker.virtual_host("/").destinations
    for number in range(count):
        destinations.queue(f"/queue/{number}")
    assert sum(1 for _ in bench.metrics.text()) >= count // 250 + 14 - 1
    text = bench.text()
    assert text.count(f"\n{READY}{{") == most + 1
    assert f'\nstompcodec_broker_destinations{{kind="queue",virtual_host="/"}} {float(count)}\n' in text


#: By column of management: the metric of a destination.
COLUMNS = {
    **{"ready": "ready_messages", "scheduled": "scheduled_messages", "paged": "paged_messages"},
    **{"bytes": "memory_bytes", "dead_letters": "dead_letter_messages_total", "received": "received_messages_total"},
    **{"unacknowledged": "unacknowledged_messages", "oldest": "oldest_message_age_seconds", "consumers": "consumers"},
    "delivered": "delivered_messages_total",
}
WINDOW = 4


def rows(bench):
    """The queues and durable subscriptions, as management and metrics say; both say the same."""
    settle(bench)
    found = {row["destination"]: row for row in bench.result("destinations", kind="queue")}
    found |= {row["name"]: row for row in bench.result("durables")}
    told = bench.told()
    assert sum(told["stompcodec_broker_memory_used_bytes"].values()) == bench.result("memory")["used"]
    metrics = {
        (name, labels[1]): value
        for name, values in told.items()
        for labels, value in values.items()
        if len(labels) == 3 and labels[2] != "topic"
    }
    for name, row in found.items():
        for column, metric in COLUMNS.items():
            assert metrics[f"stompcodec_broker_destination_{metric}", name] == pytest.approx(row[column] or 0), name
    return found


def fill(bench):
    """A long queue and its consumer, dead letters, delayed and transient messages, and a durable subscription."""
    peer, kept = bench.client(client_id="desk"), {"persistent": "true"}
    peer.subscribe("/topic/t", id="t", durable_subscription_name="all")
    peer.subscribe("/queue/bad", id="b", ack="client-individual")
    for number in range(3):
        peer.put("/queue/bad", str(number), **kept)
        peer.nack(peer.next("MESSAGE"), requeue="false")
    peer.lose()
    peer = bench.peer()
    for number in range(20):
        peer.put("/queue/a", b"x" * (100 + number), **kept)
        peer.put("/topic/t", b"y" * number, **kept)
    peer.put("/queue/a", b"later", delay="600000", **kept)
    peer.put("/queue/a", b"transient")
    peer.subscribe("/queue/a", ack="client-individual", prefetch_count="2")
    settle(bench)
    assert peer.next("MESSAGE")
    return peer


def test_what_is_told_after_a_restart_is_what_is_stored(tmp_path):
    bench = Scraped(SqliteStore(tmp_path), data=str(tmp_path), window_messages=WINDOW)
    peer, before = fill(bench), rows(bench)
    assert [before["/queue/a"][name] for name in ("unacknowledged", "consumers", "delivered")] == [2, 1, 2]
    peer.lose()
    assert before["/queue/bad"]["dead_letters"] == before["/queue/DLQ.bad"]["ready"] == 3
    stop(bench)
    with contextlib.closing(sqlite3.connect(tmp_path / "messages.sqlite")) as connection:
        query = "SELECT name, count(*) FROM queue JOIN message ON queue.id = key >> 45 GROUP BY name"
        kept = {name.partition("\0")[2]: count for name, count in connection.execute(query)}
    assert kept == {"/queue/DLQ.bad": 3, "\0ddesk.all": 20, "/queue/a": 21}
    again = Scraped(SqliteStore(tmp_path), data=str(tmp_path), window_messages=WINDOW)
    again.date = bench.date
    again.later(30.0)
    after = rows(again)
    long, letters, durable = (after[name] for name in ("/queue/a", "/queue/DLQ.bad", "desk.all"))
    assert (long["ready"], long["scheduled"], long["unacknowledged"]) == (kept["/queue/a"] - 1, 1, 0)
    assert 0 < long["ready"] - WINDOW <= long["paged"] <= long["ready"] + 1  # the scheduled one may have to be read yet
    assert letters["ready"] == 3
    assert letters["bytes"] == before["/queue/DLQ.bad"]["bytes"] > 0
    assert (durable["ready"], durable["paged"], durable["bytes"]) == (20, 20, 0)  # none of them is in memory
    for row in (long, letters, durable):
        assert row["received"] == row["dead_letters"] == 0  # totals are those since the start
        assert 30.0 <= row["oldest"] <= 31.0
    peer = again.peer()
    peer.subscribe("/queue/a")
    settle(again, lambda: len(peer.inbox) == 20)
    assert sorted(map(len, peer.bodies())) == [100 + number for number in range(20)]
    emptied = rows(again)["/queue/a"]
    assert (emptied["ready"], emptied["paged"], emptied["oldest"]) == (0, 0, None)
    stop(again)


def test_the_page_names_all_metrics():
    bench = Scraped(web_metrics_destinations=2)
    page = (Path(__file__).parents[3] / "docs" / "management.md").read_text(encoding="utf-8")
    bench.peer().put("/queue/a", "x", persistent="true")
    for name in bench.told():
        assert f"`{name.removeprefix('stompcodec_broker_')}`" in page, name
