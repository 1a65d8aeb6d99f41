"""A login that is refused: after a reconnect it is told and ends the client some time; at the start nobody hammers."""

import asyncio
import threading

import pytest
from client.peer import Peer
from client.shells import QUICK
from patience import patience

import stompcodec.client as stomp
from stompcodec.bridge import End
from stompcodec.bridge import sources as bridge_ends
from stompcodec.client.dialects import BROKERS, row_of
from stompcodec.client.io import engine

RABBITMQ = "Bad CONNECT: Access refused for user 'ann'"


class Told:
    """What `on_state` was told, and a wait for it."""

    def __init__(self):
        self.all = []
        self._changed = threading.Condition()

    def __call__(self, state, error):
        with self._changed:
            self.all.append((state, error))
            self._changed.notify_all()

    def wait(self, condition):
        with self._changed:
            assert self._changed.wait_for(lambda: self.all and condition(self.all), patience(30)), self.all

    @property
    def reasons(self):
        return [str(error) for state, error in self.all if state == "reconnecting"]


def refuse(words):
    return lambda side, frame: side.error(frame, words)


def refused_later(shell, peer, words, **options):
    """A client whose session is lost, and whose next logins are refused; and what it is told."""
    told = Told()
    client = shell.connect(peer.url, reconnect=QUICK, on_state=told, **options)
    peer.rules["CONNECT"] = refuse(words)
    peer.cut()
    return client, told


@pytest.fixture
def at_once(monkeypatch):
    """No least time from the first to the last refused login."""
    monkeypatch.setattr(engine, "SPAN", 0.0)


def test_it_ends_the_client_after_some_attempts(shell, at_once):
    with Peer(server="RabbitMQ/3.10.8") as peer:
        client, told = refused_later(shell, peer, RABBITMQ, login_attempts=3)
        told.wait(lambda all: all[-1][0] == "closed")
        assert isinstance(client.error, stomp.RejectedError)
        assert RABBITMQ in str(client.error)
        assert len(peer.got("CONNECT")) == 1 + 3


def test_consumers_get_the_refusal(shell, at_once):
    with Peer(server="RabbitMQ/3.10.8") as peer:
        client = shell.connect(peer.url, reconnect=QUICK, login_attempts=2)
        subscription = client.subscribe("/queue/a")
        peer.rules["CONNECT"] = refuse(RABBITMQ)
        peer.cut()
        with pytest.raises(stomp.RejectedError, match="Access refused"):
            subscription.get(patience(30))


def test_it_does_not_end_the_client_within_a_minute(shell):
    """A broker that restarts may refuse until its users are loaded."""
    with Peer(server="RabbitMQ/3.10.8") as peer:
        client, told = refused_later(shell, peer, RABBITMQ, login_attempts=1)
        peer.wait(lambda peer: len(peer.got("CONNECT")) > 4)
        del peer.rules["CONNECT"]
        told.wait(lambda all: all[-1][0] == "connected")
        assert client.state == "connected"


def test_the_reason_is_told_each_time_it_changes(shell):
    with Peer(server="RabbitMQ/3.10.8") as peer:
        client, told = refused_later(shell, peer, RABBITMQ)
        told.wait(lambda all: RABBITMQ in str(all[-1:]))
        peer.wait(lambda peer: len(peer.got("CONNECT")) > 4)
        peer.rules["CONNECT"] = refuse("the server is busy")
        told.wait(lambda all: "busy" in str(all[-1:]))
        del peer.rules["CONNECT"]
        told.wait(lambda all: all[-1][0] == "connected")
    assert [reason for reason in told.reasons if "refused for" in reason] == [f"CONNECT was rejected: {RABBITMQ}"]
    assert told.reasons[0].startswith("the connection was lost")
    assert client.error is not None


@pytest.mark.parametrize("words", ["Client: me already connected from tcp://10.0.0.1", "Broker not available."])
def test_other_refusals_go_on(shell, at_once, words):
    with Peer(server="ActiveMQ/6.3.1") as peer:
        client, told = refused_later(shell, peer, words, login_attempts=1)
        peer.wait(lambda peer: len(peer.got("CONNECT")) > 4)
        assert client.state == "reconnecting"
        del peer.rules["CONNECT"]
        told.wait(lambda all: all[-1][0] == "connected")


def test_a_session_or_another_answer_in_between_begins_the_count_anew(shell, at_once):
    answers = [RABBITMQ, "the server is busy"] * 3 + [None]

    def answer(side, frame):
        words = answers.pop(0)
        if words is None:
            side.connection.accept({"session": "1", "server": peer.server})
        else:
            side.error(frame, words)

    with Peer(server="RabbitMQ/3.10.8") as peer:
        told = Told()
        shell.connect(peer.url, reconnect=QUICK, on_state=told, login_attempts=2)
        peer.rules["CONNECT"] = answer
        peer.cut()
        told.wait(lambda all: all[-1][0] == "connected" and len(all) > 1)


# ---- the start ----


def test_the_start_asks_no_more_often_than_login_attempts(shell, monkeypatch):
    monkeypatch.setattr(engine, "_REFUSED", 0.01)
    with Peer(rules={"CONNECT": refuse(RABBITMQ)}) as peer:
        with pytest.raises(stomp.RejectedError, match="Access refused"):
            shell.connect(peer.url, startup_timeout=patience(60), reconnect=QUICK, login_attempts=3)
        assert len(peer.got("CONNECT")) == 3


def test_the_start_tries_each_address_once(shell):
    with Peer(rules={"CONNECT": refuse(RABBITMQ)}) as bad, Peer() as good:
        url = f"failover:({bad.url},{bad.url},{good.url})"
        assert shell.connect(url, login_attempts=1).state == "connected"


def test_the_start_leaves_a_broker_that_refuses_some_time(shell, monkeypatch):
    """Delays would otherwise shrink towards the end of startup_timeout."""
    monkeypatch.setattr(engine, "_REFUSED", 0.3)
    with Peer(rules={"CONNECT": refuse("the server is busy")}) as peer:
        with pytest.raises(stomp.RejectedError, match="busy"):
            shell.connect(peer.url, startup_timeout=1.0, reconnect=QUICK)
        assert 1 <= len(peer.got("CONNECT")) <= 1.0 / 0.3 + 2


@pytest.mark.parametrize("value", [0, -1, True, 2.0, "5"])
def test_login_attempts_has_a_range(value):
    with pytest.raises(ValueError, match="login_attempts"):
        stomp.connect("stomp://127.0.0.1:1", login_attempts=value)


# ---- the table ----


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("RabbitMQ/3.10.8", RABBITMQ),
        ("ActiveMQ/6.3.1", "User name [ann] or password is invalid."),
        ("ActiveMQ-Artemis/2.40.0", "Security Error occurred: User name [ann] or password is invalid"),
        ("stompcodec/0.1.0", "login refused: login or passcode is wrong"),
        ("stompcodec/0.1.0 as rabbitmq", "login refused: login or passcode is wrong"),
    ],
)
def test_each_broker_has_its_words_and_an_unknown_one_all_of_them(server, words):
    assert row_of("auto", server).refuses_login(words)
    assert BROKERS["unknown"].refuses_login(words)
    assert not row_of("auto", server).refuses_login("the disk is full")


# ---- the bridge ----


def test_an_end_of_a_bridge_gives_up_too(monkeypatch):
    monkeypatch.setattr(bridge_ends, "SPAN", 0.0)
    seen = []
    with Peer(rules={"CONNECT": refuse(RABBITMQ)}) as peer:
        end = End(peer.url, backoff=QUICK, login_attempts=3)
        with pytest.raises(stomp.RejectedError):
            asyncio.run(end.reopen(lambda end, error: seen.append(str(error))))
        assert len(peer.got("CONNECT")) == len(seen) == 3
