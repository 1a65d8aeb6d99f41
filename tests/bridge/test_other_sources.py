"""Bridges from brokers of other people, as which ours appears here: how they are asked, and what they cannot do."""

from __future__ import annotations

import asyncio

import pytest
from bridge.running import Running, call_itself, carry, end, fill, request, take_all

import stompcodec.client as stomp
from stompcodec.bridge import DEAD_LETTER, BridgeError, Mapping, Request, Rule, UnsuitableError
from stompcodec.bridge.bridge import _Session
from stompcodec.bridge.sources import Lane


def test_a_broker_that_does_not_count_is_browsed(one, other):
    call_itself(one, "ActiveMQ/5.17.2")
    fill(one.url, "/queue/a", 3)
    with Running(one.url, other.url, request("/queue/a", "/topic/b", drain=True)) as running:
        assert running.result().carried == 3
    browsed = [frame for frame in one.frames if frame.command == "SUBSCRIBE" and frame.headers.get("browser")]
    assert {frame.headers["destination"] for frame in browsed} == {"/queue/a"}  # a topic holds nothing


@pytest.mark.parametrize(
    "server", ["ActiveMQ/5.17.2", "apache-activemq-artemis/2.31.2 ActiveMQ Artemis Messaging Engine"]
)
def test_a_durable_subscription_without_the_client_id_that_the_broker_requires(one, other, server):
    call_itself(one, server)
    with pytest.raises(UnsuitableError, match="give one with --client-id"):
        carry(one.url, other.url, "/topic/a", durable="x")
    assert carry(end(one.url, client_id="me"), other.url, "/topic/a", durable="x", way={"idle": 0.1}).carried == 0


@pytest.mark.parametrize(
    ("server", "options", "maps", "what"),
    [
        ("SomeBroker/1", {}, "/topic/a", "has no durable subscriptions"),
        ("stompcodec/1.0", {"versions": ["1.0"]}, "/topic/a\nb", "cannot be written"),
    ],
)
def test_a_subscription_that_cannot_be_asked_for_ends_the_bridge(one, other, server, options, maps, what):
    """To connect again would not help."""
    call_itself(one, server)
    rules = Mapping([Rule(maps, "/topic/b")])
    running = Running(end(one.url, **options), other.url, Request(rules, durable="x"))
    with running, pytest.raises(BridgeError, match=what):
        running.result()


def test_dead_letters_of_a_broker_whose_acks_take_no_part_in_transactions(one, other):
    call_itself(one, "SomeBroker/1")
    fill(one.url, "/queue/a", 2)
    other.faults.error("SEND", "no", times=1)
    tally = carry(one.url, other.url, "/queue/a", way={"idle": 0.1})
    assert (tally.carried, tally.refused, one.queued("/queue/a")) == (1, 1, 0)
    (letter,) = take_all(one.url, DEAD_LETTER)
    assert letter.get("original-destination") == "/queue/a"


def test_a_queue_of_which_a_browser_sees_something_is_not_empty(one, other):
    call_itself(one, "ActiveMQ/5.17.2")

    async def look(client):
        bridge = Running(one.url, other.url, request("/queue/a", "/queue/b")).bridge
        bridge._session = _Session(client)
        bridge._session.subscribed = [Lane("/queue/a", None), Lane("/queue/b", None)]
        return await bridge._has_more()

    async def look_anew():
        async with stomp.connect_async(one.url) as client:
            return await look(client)

    assert not asyncio.run(look_anew())
    fill(one.url, "/queue/b", 1)
    assert asyncio.run(look_anew())
