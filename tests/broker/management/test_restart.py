"""After a restart, management and metrics say of each queue what is in the store, paged queues included."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from broker.management.managing import check
from patience import patience

import stompcodec.client as stomp
from stompcodec.testing import StompBroker

parser = pytest.importorskip("prometheus_client.parser")
pytest.importorskip("websockets")

#: By column of management: the metric of a destination.
COLUMNS = {
    **{"ready": "ready_messages", "scheduled": "scheduled_messages", "paged": "paged_messages"},
    **{"bytes": "memory_bytes", "dead_letters": "dead_letter_messages_total", "received": "received_messages_total"},
    **{"unacknowledged": "unacknowledged_messages", "oldest": "oldest_message_age_seconds"},
}
WINDOW = 4


def rows(broker: StompBroker) -> dict[str, dict[str, Any]]:
    """The queues and durable subscriptions, as management and metrics say; both say the same."""
    found = {}
    with stomp.connect(broker.url) as client:
        for question, name in (("destinations", "destination"), ("durables", "name")):
            answer = json.loads(client.request(f"/management/{question}", "{}", timeout=patience(20)).body)
            check(answer)
            found |= {row[name]: row for row in answer["rows"] if row.get("kind") != "topic" and not row.get("owner")}
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.config.ws_port}/metrics", timeout=patience(20)) as response:
        families = list(parser.text_string_to_metric_families(response.read().decode()))
    metrics = {
        (sample.name, sample.labels["destination"]): sample.value
        for family in families
        for sample in family.samples
        if "destination" in sample.labels and sample.labels["kind"] != "topic"
    }
    for name, row in found.items():
        for column, metric in COLUMNS.items():
            value = metrics[f"stompcodec_broker_destination_{metric}", name]
            expected = row[column] or 0
            assert value == pytest.approx(expected, abs=patience(5) if column == "oldest" else 0), (name, column)
    return found


def stored(folder: Path) -> dict[str, int]:
    """How many messages each queue has in the store, by the end of its name."""
    with contextlib.closing(sqlite3.connect(folder / "messages.sqlite")) as connection:
        found = connection.execute(
            "SELECT name, count(*) FROM queue JOIN message ON queue.id = key >> 45 GROUP BY name"
        )
        return {name.partition("\0")[2]: count for name, count in found}


def fill(broker: StompBroker) -> None:
    """Have a long queue, dead letters, delayed and transient messages, and a durable subscription."""
    kept = {"persistent": "true"}
    with stomp.connect(broker.url, client_id="desk") as client:
        client.subscribe("/topic/t", durable="all")
        for number in range(3):
            client.send("/queue/bad", b"%d" % number, kept, receipt=True)
        bad = client.subscribe("/queue/bad", ack="client-individual")
        for _ in range(3):
            message = bad.get(timeout=patience(20))
            assert message is not None
            message.nack(requeue=False)
        client.ping()
    with stomp.connect(broker.url) as client:
        for number in range(20):
            client.send("/queue/a", b"x" * (100 + number), kept)
            client.send("/topic/t", b"y" * number, kept)
        client.send("/queue/a", b"later", {**kept, "delay": "600000"})
        client.send("/queue/a", b"transient", {"persistent": "false"}, receipt=True)
        held = client.subscribe("/queue/a", ack="client-individual", prefetch=2)
        assert held.get(timeout=patience(20)) is not None


def test_what_is_told_after_a_restart_is_what_is_stored(tmp_path: Path) -> None:
    config = {"data": str(tmp_path), "window_messages": WINDOW, "ws_port": 0, "web_metrics": True}
    with StompBroker(**config) as broker:
        fill(broker)
        before = rows(broker)
    (durable,) = [name for name in before if name.startswith("desk") or "all" in name]
    (letters,) = [name for name in before if "DLQ" in name]
    assert before["/queue/bad"]["dead_letters"] == before[letters]["ready"] == 3
    kept = stored(tmp_path)
    assert sorted(kept.values()) == [3, 20, 21]
    with StompBroker(**config) as broker:
        broker.advance(30.0)
        after = rows(broker)
        assert after.keys() >= {"/queue/a", letters, durable}
        long, delayed = after["/queue/a"], 1
        assert (long["ready"], long["scheduled"], long["unacknowledged"]) == (kept["/queue/a"] - delayed, delayed, 0)
        assert 0 < long["ready"] - WINDOW <= long["paged"] <= long["ready"]
        assert after[letters]["ready"] == kept[letters] == 3
        assert after[letters]["bytes"] == before[letters]["bytes"] > 0
        assert after[durable]["ready"] == after[durable]["paged"] == 20
        assert after[durable]["bytes"] == 0  # none of them is in memory
        for name in ("/queue/a", letters, durable):
            row = after[name]
            assert row["received"] == row["dead_letters"] == 0  # totals are those since the start
            assert 30.0 <= row["oldest"] <= 31.0 + patience(20)
        with stomp.connect(broker.url) as client:
            consumer = client.subscribe("/queue/a")
            sizes = [
                len(message.body) for message in [consumer.get(timeout=patience(20)) for _ in range(20)] if message
            ]
        assert sorted(sizes) == [100 + number for number in range(20)]
        emptied = rows(broker)["/queue/a"]
        assert (emptied["ready"], emptied["paged"], emptied["oldest"]) == (0, 0, None)
