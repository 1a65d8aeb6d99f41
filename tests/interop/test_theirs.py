"""What other people's brokers do their own way, and what our client makes of it: on the real ones.

Answers that end a connection, refused logins and values, handlers that fail.
"""

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from client.shells import QUICK, Shell
from client.test_sent_on import ACTIVEMQ, ARTEMIS
from interop.taking import taken
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.dialects import BROKERS
from stompcodec.errors import RejectedError, StompError

TABLES = {"artemis": ARTEMIS, "activemq6": ACTIVEMQ}


@pytest.mark.peer("rabbitmq3", "rabbitmq4")
def test_a_message_that_is_not_persistent_leaves_the_queue_to_all(peer: Any) -> None:
    fresh, existing = f"/queue/{uuid4().hex}", f"/queue/{uuid4().hex}"
    with stomp.connect(peer.url, reconnect=None) as one, stomp.connect(peer.url, reconnect=None) as other:
        one.send(fresh, b"x", persistent=False, receipt=True)
        other.send(existing, b"1", receipt=True)
        one.send_many([(existing, b"2")], persistent=False)
        for name, count in ((fresh, 1), (existing, 2)):
            subscription = other.subscribe(name)
            assert all(subscription.get(patience(10)) is not None for _ in range(count))


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.peer("activemq6")
def test_an_error_does_not_end_the_session_of_activemq(peer: Any, version: str, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "stompcodec.client")
    name = f"/queue/{uuid4().hex}"
    with stomp.connect(peer.url, versions=[version]) as client:
        with pytest.raises(RejectedError):
            client.subscribe(name, selector="a !")
        client.send(name, b"x", receipt=True)  # on a new connection in 1.2, whose rules end it
        assert "the server ended" not in caplog.text
        assert ("the session ended with an ERROR of the server" in caplog.text) == (version == "1.2")


@pytest.mark.peer("activemq6")
def test_activemq_takes_the_group_out_of_messages(peer: Any) -> None:
    """So a `key` for handlers has to read another header."""
    name = f"/queue/{uuid4().hex}"
    with stomp.connect(peer.url) as client:
        client.send(name, b"x", {"JMSXGroupID": "g", "JMSXGroupSeq": "1", "group": "g"}, receipt=True)
        message = taken(client.subscribe(name))
        assert [message.get(key) for key in ("JMSXGroupID", "JMSXGroupSeq", "group")] == [None, None, "g"]


@pytest.fixture(params=["sync", "async"])
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    shell = Shell(request.param)
    yield shell
    shell.stop()


@pytest.mark.peer("activemq5", "activemq6")
def test_a_message_that_is_answered_by_closing_is_given_up_and_the_others_arrive(peer: Any, shell: Shell) -> None:
    destination = peer.row.queue.format(uuid4().hex)
    client = shell.connect(
        peer.url, reconnect=QUICK, resend=True, dialect="unknown"
    )  # that of theirs refuses the value
    receipts = [
        client.send_for_receipt(destination, b"1"),
        client.send_for_receipt(destination, b"bad", {"priority": "high"}, timeout=patience(60)),
        client.send_for_receipt(destination, b"2", timeout=patience(60)),
    ]
    receipts[0].wait()
    with pytest.raises(stomp.ConnectionLostError, match="the outcome is unknown") as unknown:
        receipts[1].wait()
    assert unknown.value.sent
    receipts[2].wait()
    subscription = client.subscribe(destination)
    assert [subscription.get(patience(30)).body for _ in range(2)] == [b"1", b"2"]


@pytest.mark.peer("spring", "activemq5", "activemq6", "artemis")
def test_a_subscribe_that_is_refused_without_a_receipt_ends_and_the_others_go_on(peer: Any, shell: Shell) -> None:
    client = shell.connect(peer.ws_url or peer.url, reconnect=QUICK)
    good = client.subscribe(peer.row.queue.format(uuid4().hex), confirm=False)
    destination, selector = ("/topic/refused", None) if peer.row.name == "spring" else ("/queue/refused", "((")
    bad = client.subscribe(destination, selector=selector, confirm=False)
    with pytest.raises(stomp.RejectedError, match=f"SUBSCRIBE to {bad.destination} was rejected"):
        bad.get(patience(60))
    client.wait_connected(patience(30))
    message = None
    while message is None:  # without a receipt of SUBSCRIBE, a message may overtake it
        client.send(good.destination, b"on")
        message = good.get(1)
    assert (message.body, good.error) == (b"on", None)


@pytest.mark.peer("activemq5", "activemq6", "rabbitmq3", "rabbitmq4")
def test_a_refused_login_is_known_by_its_words(peer: Any, shell: Shell) -> None:
    with pytest.raises(stomp.RejectedError) as refused:
        shell.connect(peer.url, login="guest", passcode="wrong")
    assert BROKERS[peer.row.dialect].refuses_login(str(refused.value))


@pytest.mark.peer("artemis", access="require-login")
def test_a_refused_login_of_artemis(peer: Any, shell: Shell) -> None:
    test_a_refused_login_is_known_by_its_words(peer, shell)


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
        letters = client.subscribe("/queue/ActiveMQ.DLQ", ack="client-individual")
        found = []
        while not found or found[-1] != bodies[2]:
            message = taken(letters)
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


@pytest.mark.peer("artemis", "activemq6")
def test_the_broker_loses_what_the_client_refuses_and_takes_what_it_sends(peer: Any) -> None:
    with stomp.connect(peer.url) as taker:
        for name, (lost, taken) in TABLES[peer.row.name].items():
            for value in lost + taken:
                queue = f"/queue/values-{uuid4().hex[:12]}"
                destination, headers = (value, {}) if name == "destination" else (queue, {name: value})
                subscription = taker.subscribe(queue)
                # Not by its own dialect, so that the client does not judge.
                options: Any = {"dialect": "stompcodec", "reconnect": None, "receipt_timeout": patience(10)}
                with stomp.connect(peer.url, **options) as client:
                    try:
                        client.send(destination, b"asked", headers, receipt=True)
                        is_sent = True
                    except StompError:
                        is_sent = False
                taker.send(queue, b"end", receipt=True)
                message = taken(subscription)
                came = destination != queue or message.body == b"asked"
                if headers != {"destination-type": "MULTICAST"}:  # which is another destination
                    assert (is_sent and came) is (value in taken), (name, value, is_sent)
                subscription.unsubscribe()
