"""Handlers on other people's brokers: a message that always fails becomes a dead letter, and no other."""

from __future__ import annotations

import threading
import time
from typing import Any
from uuid import uuid4

import pytest
from patience import patience

import stompcodec.client as stomp

LETTERS = {"activemq5": "/queue/ActiveMQ.DLQ", "activemq6": "/queue/ActiveMQ.DLQ"}


@pytest.mark.peer("activemq5", "activemq6")
def test_only_what_always_fails_becomes_a_dead_letter(peer: Any) -> None:
    """The first message fails for two seconds, the third one always."""
    queue, calls, handled = f"/queue/handled.{uuid4().hex}", [], []
    began, done = time.monotonic(), threading.Event()

    def handle(message: stomp.Message) -> None:
        text = message.text()
        calls.append(text)
        if text.endswith("bad") or (text.endswith("0") and time.monotonic() - began < 2):
            raise RuntimeError("not now")
        handled.append(text)
        if len(handled) == 4:
            done.set()

    with stomp.connect(peer.url) as client:
        bodies = [f"{queue} {end}" for end in ("0", "1", "bad", "3", "4")]
        client.send_many([(queue, body) for body in bodies], persistent=True)
        client.subscribe(queue, handler=handle)
        assert done.wait(patience(60))
        letters = client.subscribe(LETTERS[peer.row.name], ack="client-individual")
        found = []
        while not found or found[-1] != bodies[2]:
            message = letters.get(patience(20))
            assert message is not None
            found.append(message.text())
            message.ack()
    assert handled == [body for body in bodies if body != bodies[2]]
    assert calls.count(bodies[2]) == 6
    assert [each for each in found if each.startswith(queue)] == [bodies[2]]


@pytest.mark.peer("activemq5", "activemq6")
def test_an_outage_does_not_change_the_order(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the longest pauses the window is one message, and grows again behind them."""
    monkeypatch.setattr("stompcodec.client.handlers.LONGEST", 0.4)
    monkeypatch.setattr("stompcodec.client.sync.messages.LONGEST", 0.4)
    queue, handled, windows = f"/queue/outage.{uuid4().hex}", [], []
    began, done = time.monotonic(), threading.Event()

    def handle(message: stomp.Message) -> None:
        if time.monotonic() - began < 1.5:
            raise RuntimeError("not now")
        handled.append(int(message.body))
        if message.body == b"59":
            done.set()

    def watch(_way: str, frame: Any) -> None:
        if frame.command == "SUBSCRIBE":
            windows.append(frame.get("activemq.prefetchSize"))

    with stomp.connect(peer.url, on_frame=watch) as client:
        client.send_many([(queue, b"%d" % number) for number in range(60)], persistent=True)
        client.subscribe(queue, handler=handle, prefetch=20)
        assert done.wait(patience(60))
    assert windows == ["20", "1", "20"]
    assert handled == sorted(set(handled))
