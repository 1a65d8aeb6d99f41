"""Types, windows, identities and retries of the client together, where a broker counts in bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from client.scripted import Scripted

from stompcodec.client import handlers

ARTEMIS = "ActiveMQ-Artemis/2.40.0"
UNTYPED: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"artemis_types": False}, {}),
    ({}, {"subscription-type": "MULTICAST"}),
]


@pytest.mark.parametrize(("options", "headers"), UNTYPED)
def test_a_queue_without_its_type_has_a_wide_window(options: dict[str, Any], headers: dict[str, str]) -> None:
    client = Scripted(server=ARTEMIS, **options).connect()
    subscription = client.subscribed("client-individual", prefetch=5, destination="/queue/a", headers=headers)
    assert int(dict(subscription.asked)["consumer-window-size"]) >= 2**23


@pytest.mark.parametrize(("options", "headers"), UNTYPED)
def test_an_address_that_is_no_queue_is_not_left_for_a_window(options: dict[str, Any], headers: dict[str, str]) -> None:
    """With the subscription, all that waits would go."""
    client = Scripted(server=ARTEMIS, **options).connect()
    subscription = client.subscribed("client-individual", prefetch=5, destination="/queue/a", headers=headers)
    call = client.call("UNSUBSCRIBE", 30.0, "UNSUBSCRIBE")
    client.core.inbound.begin_again(subscription, client.now, call, narrow=True)
    assert client.commands() == []


def test_the_calls_with_a_message_are_counted_over_its_deliveries() -> None:
    """Its message-id is another one in each of them, and not all are said to be redelivered."""
    retries = handlers.Retries(handlers.Handling(print, "client-individual", None, 1, None, 4, ()))
    first: Any = SimpleNamespace(
        id="1,7", identity="7 5", redelivered=False, subscription=SimpleNamespace(destination="a")
    )
    again: Any = SimpleNamespace(id="2,7", identity="7 5", redelivered=False)
    retries.keep(first, 3)
    assert retries.calls_of(again) == 3
