"""Messages that ActiveMQ cannot write as STOMP: a JMS client sends two, and the client and the tools get past them."""

import json
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from interop.taking import taken, verb
from patience import patience

pytest.importorskip("click")


import stompcodec.client as stomp
from stompcodec.errors import RemoteProtocolError

POISON = Path(__file__).with_name("Poison.java")
LETTERS = "/queue/ActiveMQ.DLQ"
BOTH = pytest.mark.peer("activemq5", "activemq6")


@pytest.fixture
def queue(peer: Any, tmp_path: Path) -> str:
    """A queue with a good message, two that cannot be read, and a good one."""
    name = f"poison.{uuid4().hex}"
    source = tmp_path / POISON.name
    jms = "javax.jms" if peer.row.name == "activemq5" else "jakarta.jms"
    source.write_text(POISON.read_text("utf-8").replace("jakarta.jms", jms), "utf-8")
    url = f"tcp://127.0.0.1:{peer.ports['openwire']}"
    done = subprocess.run(
        ["java", "-cp", peer.classpath, str(source), url, name], capture_output=True, text=True, timeout=patience(120)
    )
    assert done.returncode == 0, done.stderr
    return f"/queue/{name}"


def run(peer: Any, *arguments: str, status: int = 0) -> str:
    return str(verb(peer.url, *arguments, status=status).stdout)


def count(peer: Any, queue: str) -> int:
    """How many messages a queue has, with those that cannot be read."""
    counts = json.loads(run(peer, "purge", queue, "--dry-run", "--lenient", "--json"))
    return int(counts["messages"])


def until_it_fails(subscription: stomp.Subscription) -> None:
    for _ in range(20):
        message = subscription.get(patience(10))
        assert message is None or message.body in (b"first", b"nul")


@BOTH
def test_without_an_option_the_subscription_ends_and_says_why(peer: Any, queue: str) -> None:
    with stomp.connect(peer.url, reconnect=stomp.Backoff(first=0.05, most=0.05)) as client:
        other = client.subscribe(f"{queue}.other", ack="client-individual")
        subscription = client.subscribe(queue, ack="client-individual", id="mine")
        with pytest.raises(RemoteProtocolError, match=f"subscription 'mine', destination '{queue}', message-id 'ID:"):
            until_it_fails(subscription)
        assert client.epoch <= 4  # the third loss has counted, too
        client.wait_connected(patience(10))
        client.send(f"{queue}.other", "hello", receipt=True)
        message = taken(other)
        message.ack()


@BOTH
@pytest.mark.parametrize(("policy", "letters", "left"), [("skip", 2, 0), ("ack", 0, 0), ("ignore", 0, 2)])
def test_the_others_come_and_each_policy_does_what_it_says(peer, queue, policy, letters, left):
    run(peer, "purge", LETTERS, "--yes", "--lenient")
    with stomp.connect(peer.url) as client:
        subscription = client.subscribe(queue, ack="client-individual", on_unreadable=policy)
        for body in (b"first", b"last"):
            message = taken(subscription)
            assert message.body == body
            message.ack(receipt=True)
        assert client.epoch == 1
    assert count(peer, queue) == left
    assert count(peer, LETTERS) == letters


@BOTH
def test_dead_letters_that_cannot_be_read_stay_until_they_are_purged(peer: Any, queue: str) -> None:
    run(peer, "purge", LETTERS, "--yes", "--lenient")
    run(peer, "sub", queue, "-n", "2", "-f", "{body}", "--lenient")
    run(peer, "dlq", "list", status=1)
    assert run(peer, "dlq", "list", "--lenient", "--json") == ""
    run(peer, "dlq", "retry", LETTERS, "--yes", "--lenient", status=1)
    assert count(peer, LETTERS) == 2
    run(peer, "purge", LETTERS, "--yes", status=1)
    assert json.loads(run(peer, "purge", LETTERS, "--yes", "--lenient", "--json"))["messages"] == 2
    assert count(peer, LETTERS) == 0


@BOTH
def test_they_do_not_hold_up_what_is_moved(peer: Any, queue: str) -> None:
    run(peer, "move", queue, f"{queue}.moved", "--yes", "--lenient", status=1)
    assert count(peer, queue) == 2
    assert count(peer, f"{queue}.moved") == 2
