"""Traps of brokers that the client names or refuses, and the counts of deliveries that they send."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from client.scripted import Scripted

from stompcodec.client import dialects, handlers
from stompcodec.errors import LocalProtocolError

CONVERTS = "convert_string_expressions:n > 9"
FOREIGN = {"activemq": "ActiveMQ/6.3.1", "artemis": "ActiveMQ-Artemis/2.40.0", "rabbitmq": "RabbitMQ/4.3.6"}


@pytest.fixture(autouse=True)
def unnamed(monkeypatch):
    monkeypatch.setattr(dialects, "_warned", set())


def forgeries(caplog):
    return [record for record in caplog.records if "forge" in record.getMessage()]


@pytest.mark.parametrize(
    ("server", "version", "warns"),
    [
        (FOREIGN["activemq"], "1.0", True),
        ("unheard of", "1.0", True),  # Artemis says nothing in 1.0
        (FOREIGN["rabbitmq"], "1.0", False),
        ("stompcodec/1 as activemq", "1.0", False),
        (FOREIGN["activemq"], "1.1", False),
        (FOREIGN["activemq"], "1.2", False),
    ],
)
def test_a_session_of_1_0_warns_once_where_senders_can_forge_headers(caplog, server, version, warns):
    for _ in range(2):
        here = Scripted(version=version, server=server, versions=(version,), reconnect=None)
        here.connect()
    assert len(forgeries(caplog)) == warns
    assert all(
        record.levelno == logging.WARNING and "1.1 or 1.2" in record.getMessage() for record in forgeries(caplog)
    )


@pytest.mark.parametrize(
    ("server", "says"),
    [
        (FOREIGN["activemq"], "activemq drops what waits"),
        (FOREIGN["artemis"], "artemis keeps the old ones"),
        *[(server, None) for server in ("stompcodec/1", "stompcodec/1 as activemq", FOREIGN["rabbitmq"])],
    ],
)
def test_a_durable_name_with_a_selector_says_that_it_must_be_deleted_first(caplog, server, says):
    """Where a changed selector is neither refused nor unknown."""
    caplog.set_level(logging.INFO, "stompcodec.client")
    here = Scripted(server=server, client_id="me").connect()
    here.subscribed(durable="plain", destination="/topic/a")
    assert "unsubscribe(delete=True)" not in caplog.text
    here.subscribed(durable="daily", selector="n = '1'", destination="/topic/a")
    assert ("unsubscribe(delete=True)" in caplog.text) is (says is not None)
    assert f"'daily' has a selector: if it or the destination changes, {says}" in caplog.text or says is None


@pytest.mark.parametrize("given", [{"selector": CONVERTS}, {"headers": {"selector": CONVERTS}}])
def test_a_selector_that_breaks_others_is_refused_at_the_call(given):
    here = Scripted(server=FOREIGN["activemq"]).connect()
    with pytest.raises(LocalProtocolError, match="breaks 'n > 9' for all clients of activemq"):
        here.subscribe(**given)
    assert here.commands() == []
    for server in (FOREIGN["artemis"], "stompcodec/1 as activemq"):
        Scripted(server=server).connect().subscribed(**given)


# ---- windows of Artemis, which count in bytes ----

UNTYPED = [
    ({"artemis_types": False}, {}),
    ({}, {"subscription-type": "MULTICAST"}),
]


@pytest.mark.parametrize(("options", "headers"), UNTYPED)
def test_a_queue_without_its_type_has_a_wide_window(options, headers):
    client = Scripted(server=FOREIGN["artemis"], **options).connect()
    subscription = client.subscribed("client-individual", prefetch=5, destination="/queue/a", headers=headers)
    assert int(dict(subscription.asked)["consumer-window-size"]) >= 2**23


def test_the_calls_with_a_message_are_counted_over_its_deliveries():
    """Its message-id is another one in each of them, and not all are said to be redelivered."""
    retries = handlers.Retries(handlers.Handling(print, "client-individual", None, 1, None, 4, ()))
    first = SimpleNamespace(id="1,7", identity="7 5", redelivered=False, subscription=SimpleNamespace(destination="a"))
    again = SimpleNamespace(id="2,7", identity="7 5", redelivered=False)
    retries.keep(first, 3)
    assert retries.calls_of(again) == 3
