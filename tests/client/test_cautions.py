"""Traps of brokers that the client names or refuses, and the counts of deliveries that they send."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from client.peer import Peer
from client.scripted import Scripted, outcome

from stompcodec import Frame
from stompcodec.client import dialects, handlers
from stompcodec.errors import LocalProtocolError, ReceiptTimeoutError

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


def test_that_a_server_ended_the_session_is_not_said_of_an_error(caplog):
    here = Scripted(server=FOREIGN["artemis"], reconnect=None).connect()
    call = here.send(receipt=True)
    (frame,) = here.frames()
    here.error(frame, "no such thing")  # and it is the client that closes
    assert outcome(call) == "RejectedError"
    assert "the session ended with an ERROR of the server: no such thing" in caplog.text
    assert "the server ended" not in caplog.text


@pytest.mark.parametrize(
    ("headers", "attempt"),
    [
        ({"redelivered": "false"}, 1),
        ({"redelivered": "true"}, 2),
        ({"redelivered": "true", "x-delivery-count": "3"}, 4),  # 3.10
        ({"redelivered": "true", "x-acquired-count": "2"}, 3),  # 4.3, after NACKs
        ({"redelivered": "true", "x-delivery-count": "1", "x-acquired-count": "3"}, 4),  # and a lost connection
        ({"redelivered": "true", "x-acquired-count": "3", "x-delivery-count": "1"}, 4),
    ],
)
def test_attempts_of_rabbitmq_count_every_delivery(headers, attempt):
    here = Scripted(server=FOREIGN["rabbitmq"]).connect()
    subscription = here.subscribed("client-individual")
    assert here.deliver(subscription, **headers).attempt == attempt


@pytest.mark.parametrize("said", ["call", "option", "headers", "request", "many", "frame", "transaction"])
def test_rabbitmq_is_not_told_what_makes_a_queue_exclusive(shell, said):
    """RabbitMQ takes persistent:false for the wish to have the queue alone, and refuses it to everyone else."""
    with Peer(server="stompcodec/1 as rabbitmq") as peer:
        shell.connect(peer.url).send("/queue/a", b"x", persistent=False, receipt=True)
        assert [frame.get("persistent") for frame in peer.got("SEND")] == ["false"]
    with Peer(server=FOREIGN["rabbitmq"]) as peer:
        client = shell.connect(peer.url, **({"persistent": False} if said == "option" else {}))
        given = {"persistent": "false"}
        if said == "many":
            client.send_many([("/queue/a", b"x")] * 2, persistent=False)
        elif said == "frame":
            client.send_many([Frame("SEND", {"destination": "/queue/a", **given}, b"x")])
        elif said == "transaction":
            with client.transaction() as transaction:
                transaction.send("/queue/a", b"x", given)
        elif said == "request":
            with pytest.raises(ReceiptTimeoutError):
                client.request("/queue/a", b"x", 0.01)
        else:
            client.send("/queue/a", b"x", given if said == "headers" else None, receipt=True)
            client.send("/queue/a", "x", persistent=False if said == "call" else None, receipt=True)
            client.send("/queue/a", b"x", persistent=True, receipt=True)
        client.ping()
        sent = [frame.get("persistent") for frame in peer.got("SEND")]
        assert sent
        assert set(sent) <= {None, "true"}
        assert ("true" in sent) == (said in ("call", "option", "headers"))


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


@pytest.mark.parametrize(("options", "headers"), UNTYPED)
def test_an_address_that_is_no_queue_is_not_left_for_a_window(options, headers):
    """With the subscription, all that waits would go."""
    client = Scripted(server=FOREIGN["artemis"], **options).connect()
    subscription = client.subscribed("client-individual", prefetch=5, destination="/queue/a", headers=headers)
    call = client.call("UNSUBSCRIBE", 30.0, "UNSUBSCRIBE")
    client.core.inbound.begin_again(subscription, client.now, call, narrow=True)
    assert client.commands() == []


def test_the_calls_with_a_message_are_counted_over_its_deliveries():
    """Its message-id is another one in each of them, and not all are said to be redelivered."""
    retries = handlers.Retries(handlers.Handling(print, "client-individual", None, 1, None, 4, ()))
    first = SimpleNamespace(id="1,7", identity="7 5", redelivered=False, subscription=SimpleNamespace(destination="a"))
    again = SimpleNamespace(id="2,7", identity="7 5", redelivered=False)
    retries.keep(first, 3)
    assert retries.calls_of(again) == 3
