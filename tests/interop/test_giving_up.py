"""A message that cannot be handled on other people's brokers: it is a dead letter, or it is still there."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest
from interop.taking import taken

pytest.importorskip("click")

from patience import patience

import stompcodec.client as stomp
from stompcodec.errors import StompError

BROKERS = ("activemq5", "activemq6", "artemis", "artemis-plain", "rabbitmq3", "rabbitmq4")
#: Where the dead letters of /queue/NAME are read.
LETTERS = {"activemq": "/queue/ActiveMQ.DLQ", "artemis": "DLQ", "rabbitmq": "/queue/DLQ.{}"}
_TYPED = {"SEND": {"destination-type": "ANYCAST"}, "SUBSCRIBE": {"subscription-type": "ANYCAST"}}


def typed(peer: Any, command: str) -> dict[str, str]:
    """The headers that make a name that of a queue on Artemis, whose acceptor may have no prefixes."""
    return _TYPED[command] if peer.row.dialect == "artemis" else {}


class Place:
    """A queue of a peer, and that of its dead letters."""

    def __init__(self, peer: Any) -> None:
        self.peer, self.name = peer, uuid4().hex
        self.queue = peer.row.queue.format(self.name)
        self.letters = LETTERS[peer.row.dialect].format(self.name)

    def send(self, client: stomp.Client, *bodies: bytes | str, **options: Any) -> None:
        for body in bodies:
            headers = {**typed(self.peer, "SEND"), "n": self.name, **options.pop("headers", {})}
            client.send(self.queue, body, headers, receipt=True, **options)

    def subscribe(self, client: stomp.Client, **options: Any) -> stomp.Subscription:
        headers = typed(self.peer, "SUBSCRIBE")
        return client.subscribe(self.queue, headers=headers, **{"ack": "client-individual", **options})

    def waiting(self, client: stomp.Client, queue: str, count: int, last: float = 0.5) -> list[stomp.Message]:
        """The messages of this test that are in a queue: at least `count` are waited for."""
        found: list[stomp.Message] = []
        with client.subscribe(queue, ack="client-individual", headers=typed(self.peer, "SUBSCRIBE")) as subscription:
            while message := subscription.get(patience(20) if len(found) < count else last):
                if message.get("n") == self.name:
                    found.append(message)
                message.ack()
        return found


@contextmanager
def connected(peer: Any, **options: Any) -> Iterator[stomp.Client]:
    with closing(stomp.connect(peer.url, receipt_timeout=patience(30), **options)) as client:
        yield client


def fail(_message: stomp.Message) -> None:
    raise json.JSONDecodeError("bad", "", 0)  # which another call would raise again


@pytest.mark.peer(*BROKERS)
@pytest.mark.parametrize("persistent", [True, False])
def test_what_a_handler_cannot_handle_is_a_dead_letter(peer: Any, persistent: bool) -> None:
    place, expires = Place(peer), "4102444800000"
    with connected(peer) as client:
        place.send(client, "text", persistent=persistent, headers={"expires": expires})
        place.send(client, b"\0bytes", persistent=persistent)
        with place.subscribe(client, handler=fail):
            letters = place.waiting(client, place.letters, 2)
        assert place.waiting(client, place.queue, 0) == []
    assert [letter.body for letter in letters] == [b"text", b"\0bytes"]
    for letter in letters:
        assert letter.headers["original-destination"] == place.queue
        assert letter.headers["persistent"] == "true"
    assert (letters[0].get("original-expires") or letters[0].get("originalExpiration")) == expires
    if peer.row.dialect != "activemq" or not persistent:  # else its own
        assert letters[0].headers["dead-letter-reason"].startswith("JSONDecodeError")
    if peer.row.dialect == "artemis":  # content-length is the last header of a text message
        assert [letter.headers.pairs()[-1][0] == "content-length" for letter in letters] == [True, False]
    elif peer.row.dialect == "activemq":
        assert ["content-length" in letter.headers for letter in letters] == [False, True]


class _Refusing(stomp.Middleware):
    """Every copy fails."""

    def send(self, event: stomp.SendEvent) -> Any:
        raise RuntimeError("no room")


@pytest.mark.peer(*BROKERS)
@pytest.mark.parametrize("persistent", [True, False])
def test_without_its_copy_the_message_is_still_there(peer: Any, persistent: bool) -> None:
    place, failed = Place(peer), threading.Event()

    def handle(message: stomp.Message) -> None:
        failed.set()
        fail(message)

    with connected(peer) as client:
        place.subscribe(client).unsubscribe()  # RabbitMQ makes a queue for a transient message exclusive to its sender
        place.send(client, b"x", persistent=persistent)
        with connected(peer, middleware=[_Refusing()], dead_letter="/queue/elsewhere") as other:
            place.subscribe(other, handler=handle)
            assert failed.wait(patience(20))
        assert [message.body for message in place.waiting(client, place.queue, 1)] == [b"x"]


@pytest.mark.peer("rabbitmq3", "rabbitmq4")
def test_a_dead_letter_queue_that_the_broker_refuses_costs_no_message(peer: Any) -> None:
    """RabbitMQ ends the connection at a name with two slashes."""
    place, calls = Place(peer), threading.Semaphore(0)

    def handle(message: stomp.Message) -> None:
        calls.release()
        fail(message)

    logging.getLogger("stompcodec.client").setLevel(logging.CRITICAL)
    with connected(peer) as client:
        place.send(client, b"x", persistent=True)
        with connected(peer, dead_letter="/queue/a/b") as other:
            place.subscribe(other, handler=handle)
            for _ in range(2):  # again, on the next connection
                assert calls.acquire(timeout=patience(20))
        assert [message.body for message in place.waiting(client, place.queue, 1)] == [b"x"]
    logging.getLogger("stompcodec.client").setLevel(logging.NOTSET)


@pytest.mark.peer("activemq6")
def test_a_topics_message_and_a_dead_letter_are_not_given_to_nack_which_drops_them(peer: Any) -> None:
    place = Place(peer)
    with connected(peer) as client:
        topic = f"/topic/{place.name}"
        with client.subscribe(topic, handler=fail) as _:
            client.send(topic, b"t", {"n": place.name}, persistent=True, receipt=True)
            letters = place.waiting(client, place.letters, 1)
        assert [(letter.body, letter.headers["original-destination"]) for letter in letters] == [(b"t", topic)]
        client.send(place.letters, b"letter", {"n": place.name}, persistent=True, receipt=True)
        with connected(peer) as other:
            reading = other.subscribe(place.letters, handler=fail)
            with pytest.raises(json.JSONDecodeError):
                reading.join(patience(20))
        assert [letter.body for letter in place.waiting(client, place.letters, 1)] == [b"letter"]


@pytest.mark.peer("vertx", "gostomp")
def test_a_server_without_dead_letters_gets_a_copy_where_a_program_says_or_keeps_the_message(peer: Any) -> None:
    """Both keep nothing for later on: the dead letters have a reader. Their NACK is not used."""
    queue, failed = f"/queue/{uuid4().hex}", threading.Event()
    confirm = "SUBSCRIBE" in peer.row.receipts
    sent: list[str] = []

    def handle(message: stomp.Message) -> None:
        failed.set()
        fail(message)

    options: Any = {
        "versions": ["1.1"],
        "on_frame": lambda way, frame: sent.append(frame.command) if way == "out" else None,
    }
    with connected(peer, **options) as client, connected(peer, versions=["1.1"]) as reader:
        dead = reader.subscribe(f"{queue}.dead", confirm=confirm)
        plain = client.subscribe(queue, handler=handle, confirm=confirm)
        while not failed.wait(0.2):
            reader.send(queue, b"1", receipt=True)
        with pytest.raises(json.JSONDecodeError):
            plain.join(patience(20))
        client.subscribe(queue, handler=fail, confirm=confirm, dead_letter=f"{queue}.dead")
        letter = None
        while letter is None:
            with suppress(StompError):
                reader.send(queue, b"2", receipt=True)
            letter = dead.get(0.5)
        assert letter.headers["original-destination"] == queue
    assert "NACK" not in sent


@pytest.mark.peer("artemis")
def test_artemis_in_1_0_is_unknown_and_gets_text_as_text(peer: Any) -> None:
    """It does not say what it is. Without `dead_letter=` the message stays."""
    place = Place(peer)
    dead = f"/queue/dead.{place.name}"
    with connected(peer) as client, connected(peer, versions=["1.0"]) as old:
        place.send(client, "text", persistent=True)
        with pytest.raises(json.JSONDecodeError):
            old.subscribe(place.queue, handler=fail).join(patience(20))
        old.subscribe(place.queue, handler=fail, dead_letter=dead)
        (letter,) = place.waiting(client, dead, 1)
        assert letter.body == b"text"
        assert letter.headers.pairs()[-1] == ("content-length", "4")  # that of a text message is the last header
        assert place.waiting(client, place.queue, 0) == []


@pytest.mark.peer("artemis", "artemis-plain")
def test_a_second_copy_of_the_same_message_is_a_duplicate(peer: Any) -> None:
    """The client is killed between the RECEIPT of the copy and its ACK, and another one gets the message."""
    place = Place(peer)
    with connected(peer) as client:
        place.send(client, b"x", persistent=True)
        for _ in range(2):
            with connected(peer) as other:
                message = taken(place.subscribe(other))
                core = message.subscription.link.core
                core.settle = lambda *_, **__: None  # type: ignore[method-assign]
                with pytest.raises(KeyError), message.processing():
                    raise KeyError
        assert [letter.body for letter in place.waiting(client, place.letters, 1, last=2.0)] == [b"x"]
