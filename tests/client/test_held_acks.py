"""Acknowledgements that wait for the answer to a COMMIT, where the broker takes none in a transaction."""

from __future__ import annotations

import logging

import pytest
from client.scripted import Scripted, outcome

ARTEMIS = "ActiveMQ-Artemis/2.40.0"


def committing(count=3, *, prefetch=3, acknowledged=2, ack="client-individual", **options):
    """A client whose COMMIT is on its way, its subscription, and the call."""
    client = Scripted(server=ARTEMIS, **options).connect()
    subscription = client.subscribed(ack, prefetch=prefetch)
    messages = [client.deliver(subscription, f"m{number}") for number in range(count)]
    transaction = client.begin()
    for message in messages[:acknowledged]:
        client.ack(message, transaction=transaction)
    call = client.finish(transaction)
    commit = client.frames()[-1]
    assert commit.command == "COMMIT"
    return client, subscription, call, commit


# ---- they fill the window ----


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("acknowledged", [2, 3])
def test_acks_of_a_commit_without_answer_that_fill_the_window_are_named_once(waits, acknowledged, caplog):
    """Also if the program was waiting before."""
    client, subscription, call, _ = committing(acknowledged=acknowledged)
    with caplog.at_level(logging.WARNING):
        client.core.waits(subscription, client.now, polls=False)
        client.wait(29)
        assert not caplog.records
        client.wait(1.5)
        assert outcome(call) == "ReceiptTimeoutError"
        for _ in range(3):
            if waits:
                client.core.waits(subscription, client.now, polls=False)
            client.wait(20)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "transaction t1" in said
    assert "prefetch of 3" in said
    assert f"{acknowledged} of them" in said


def test_acks_of_a_commit_without_answer_are_not_named_while_messages_can_come(caplog):
    client, subscription, _, _ = committing(prefetch=4, acknowledged=3)
    with caplog.at_level(logging.WARNING):
        client.wait(31)
        client.core.waits(subscription, client.now, polls=False)
        client.wait(100)
    assert not caplog.records


# ---- closing ----


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_close_waits_for_the_answer_to_commit_and_sends_the_acks(ack):
    client, _, call, commit = committing(ack=ack)
    closing = client.call("close")
    client.core.close(client.now, closing)
    again = client.call("close")
    client.core.close(client.now, again)
    assert client.frames() == []
    client.receipt(commit)
    frames = client.frames()
    assert [frame.command for frame in frames] == ["ACK", "ACK", "DISCONNECT"]
    assert outcome(call) == "accepted"
    client.receipt(frames[-1])
    assert outcome(closing) == outcome(again) == "accepted"
    assert client.core.link.state == "closed"


@pytest.mark.parametrize("end", ["refused", "lost", "silent", "silent later"])
def test_close_waits_no_longer_than_its_time(end):
    client, _, call, commit = committing(close_timeout=5.0)
    closing = client.call("close", 60.0)
    client.core.close(client.now, closing)
    if end == "refused":
        client.error(commit)
    elif end == "lost":
        client.lose()
    elif end == "silent later":
        client.wait(3)
        client.receipt(commit)
        assert client.commands() == ["ACK", "ACK", "DISCONNECT"]
        client.wait(1.9)
        assert client.core.link.state == "closing"
        client.wait(0.2)
    else:
        client.wait(5.1)
    assert client.core.link.state == "closed"
    assert outcome(closing) == "accepted"
    assert outcome(call) == {"refused": "RejectedError", "silent later": "accepted"}.get(end, "ConnectionLostError")
    assert client.commands() == []
    assert client.core.link.next_deadline() is None


def test_close_does_not_wait_for_a_commit_that_holds_nothing():
    client, _, _, _ = committing(acknowledged=0)
    client.core.close(client.now, client.call())
    assert client.commands() == ["DISCONNECT"]
