"""The queue tools at ActiveMQ and RabbitMQ: what they can, and that what they cannot takes nothing."""

import json
import signal
import subprocess
import uuid
from collections import Counter
from typing import Any

import pytest
from interop.taking import held, taken, verb
from patience import patience

pytest.importorskip("click")

from cli.verbs.test_queue_tools import started
from click.testing import Result

import stompcodec.client as stomp

pytestmark = pytest.mark.no_asan

COUNT = 350
#: Seconds without a message after which a queue counts as empty. Each test waits for them, so they are not stretched.
_EMPTY = 4.0


both = pytest.mark.peer("rabbitmq", "activemq")


@pytest.fixture
def url(peer: Any) -> str:
    return str(peer.url)


@pytest.fixture
def queues() -> tuple[str, str]:
    name = uuid.uuid4().hex
    return f"/queue/from.{name}", f"/queue/to.{name}"


def run(url: str, *arguments: str, status: int | None = None) -> Result:
    idle = ["--idle", str(_EMPTY)] if arguments[0] in ("move", "purge") or "retry" in arguments else []
    return verb(url, *arguments, *idle, status=status)


def good(url: str, *arguments: str) -> str:
    return str(run(url, *arguments, status=0).output)


def fill(url: str, queue: str, count: int, text: bool = False) -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    headers = {"persistent": "true", "kind": "a"}
    with stomp.connect(url) as client:
        client.send_many([(queue, body.decode() if text else body, {**headers, "n": body.decode()}) for body in bodies])
    return bodies


@both
def test_move_keeps_order_headers_and_bodies(url: str, queues: tuple[str, str]) -> None:
    expected = fill(url, queues[0], COUNT)
    assert good(url, "move", *queues, "--yes") == f"{COUNT} messages moved to {queues[1]}\n"
    moved = held(url, queues[1], _EMPTY)
    assert [message.body for message in moved] == expected
    for message, body in zip(moved, expected):
        assert (message.headers["n"], message.headers["kind"]) == (body.decode(), "a")
        assert message.headers["persistent"] in ("true", "1")
        assert not message.redelivered
    assert held(url, queues[0], _EMPTY) == []


@both
def test_move_ends_at_its_limit(url: str, queues: tuple[str, str]) -> None:
    expected = fill(url, queues[0], 50)
    good(url, "move", *queues, "--yes", "--limit", "20")
    assert [message.body for message in held(url, queues[1], _EMPTY)] == expected[:20]
    assert [message.body for message in held(url, queues[0], _EMPTY)] == expected[20:]


@both
def test_purge(url: str, queues: tuple[str, str]) -> None:
    fill(url, queues[0], COUNT)
    assert good(url, "purge", queues[0], "--yes") == f"{COUNT} messages removed\n"
    assert held(url, queues[0], _EMPTY) == []


@both
def test_kill_9_loses_nothing(url: str, queues: tuple[str, str]) -> None:
    """ActiveMQ doubles nothing either; at RabbitMQ a batch may be in both queues."""
    expected = fill(url, queues[0], COUNT)
    process = started("move", *queues, "--yes", "--url", url, stderr=subprocess.DEVNULL)
    with stomp.connect(url) as client, client.subscribe(queues[1], ack="client-individual") as subscription:
        first = subscription.get(patience(60))  # which returns to the queue, since it is not acknowledged
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert first is not None
        atomic = client.dialect == "activemq"
    counts = Counter(message.body for queue in queues for message in held(url, queue, _EMPTY))
    assert set(counts) == set(expected)
    assert sum(counts.values()) <= COUNT + (0 if atomic else 100)


@pytest.mark.peer("activemq")
def test_activemq_shows_selects_and_says_how_many(url: str, queues: tuple[str, str]) -> None:
    expected = fill(url, queues[0], COUNT)
    shown = run(url, "browse", queues[0], "-f", "{body} ").stdout  # a line about them is on stderr
    assert shown.split() == [body.decode() for body in expected]
    assert good(url, "move", *queues, "--dry-run") == f"would move {COUNT} messages to {queues[1]}\n"
    good(url, "move", *queues, "--yes", "--selector", "n = '7'")
    assert [message.body for message in held(url, queues[1], _EMPTY)] == [b"7"]
    assert len(held(url, queues[0], _EMPTY)) == COUNT - 1


@pytest.mark.peer("activemq", "activemq6")
def test_dead_letters_of_activemq_go_back_as_what_they_were(url: str, queues: tuple[str, str]) -> None:
    queue, letters = queues[0], "/queue/ActiveMQ.DLQ"
    fill(url, queue, 2, text=True)
    fill(url, queue, 1)
    with stomp.connect(url) as client, client.subscribe(queue, ack="client-individual") as subscription:
        for _ in range(3):
            message = taken(subscription)
            message.nack(receipt=True)
    rows = [json.loads(line) for line in good(url, "dlq", "list", "--json").splitlines()]
    assert [(row["queue"], row["messages"]) for row in rows if row["from"] == queue] == [(letters, 3)]
    assert queue[:20] in good(url, "dlq", "show", letters)
    planned = good(url, "dlq", "retry", letters, "--only", queue, "--dry-run").splitlines()
    assert any(line.startswith(f"  3 to {queue} ") for line in planned)
    good(url, "dlq", "retry", letters, "--only", queue, "--yes")
    back = held(url, queue, _EMPTY)
    assert [message.body for message in back] == [b"0", b"1", b"0"]
    assert [message.get("content-length") is None for message in back] == [True, True, False]
    stale = {"dlqDeliveryFailureCause", "original-destination"}
    assert not any(stale.intersection(message.headers) for message in back)


@pytest.mark.peer("rabbitmq")
def test_rabbitmq_says_what_it_cannot_and_loses_nothing(url: str, queues: tuple[str, str]) -> None:
    fill(url, queues[0], 3)
    for arguments in (
        ["browse", queues[0]],
        ["dlq", "show", queues[0]],
        ["dlq", "list"],
        ["move", *queues, "--dry-run"],
        ["move", *queues, "--yes", "--selector", "n = '1'"],
        ["dlq", "retry", queues[0], "--dry-run"],
    ):
        result = run(url, *arguments)
        assert result.exit_code == 2, result.output
        assert "RabbitMQ" in result.output
    result = run(url, "dlq", "retry", queues[0], "--yes")
    assert (result.exit_code, "3 messages stayed" in result.output) == (1, True)
    good(url, "dlq", "retry", queues[0], "--to", queues[1], "--yes")
    assert [message.body for message in held(url, queues[1], _EMPTY)] == [b"0", b"1", b"2"]
