"""Lost connections: when and where a client tries again, when it gives up, and refused logins."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest
from client.peer import Peer, closed_port
from client.shells import QUICK
from patience import patience

import stompcodec.client as stomp
from stompcodec.bridge import End
from stompcodec.bridge import sources as bridge_ends
from stompcodec.client import engine
from stompcodec.client.dialects import BROKERS, row_of
from stompcodec.testing.faults import FaultProxy


def test_failover_list(shell):
    with closed_port() as closed, Peer() as first, Peer() as second:
        url = f"failover:(stomp://127.0.0.1:{closed},{first.url},{second.url})"
        client = shell.connect(url, reconnect=QUICK)
        subscription = client.subscribe("/queue/a")
        first.stop()
        second.wait(lambda peer: peer.got("SUBSCRIBE"))
        client.wait_connected()
        client.send("/queue/a", b"over there", receipt=True)
        assert subscription.get(patience(5)).body == b"over there"


def test_nothing_with_a_receipt_is_lost_whenever_it_is_cut(shell):
    """Cuts at any octet, both ways. A receipt means that it came; what is unknown is sent again by the program."""
    with Peer() as peer, FaultProxy(("127.0.0.1", peer.port), seed=0) as proxy:
        client = shell.connect(f"stomp://127.0.0.1:{proxy.port}", reconnect=QUICK)
        proxy.rules.up.cut_after = (10, 3000)
        proxy.rules.down.cut_after = (10, 3000)
        proxy.rules.up.piece = 50
        got = []
        client.subscribe("/queue/a", ack="client-individual", handler=shell.handler(lambda m: got.append(int(m.body))))
        for number in range(100):
            while True:
                try:
                    client.send("/queue/a", b"%d" % number, receipt=True, timeout=patience(10))
                    break
                except stomp.ConnectionLostError:
                    continue
        proxy.rules.up.cut_after = proxy.rules.down.cut_after = None
        accepted = [int(frame.body) for frame in peer.got("SEND")]
        assert set(accepted) == set(range(100))
        assert sorted(set(accepted), key=accepted.index) == list(range(100))
        assert client.epoch > 3
        # `Peer.on_ack` fails the connection with an assertion where an ACK is stale.
        assert peer.thread.is_alive()


# ---- delays between attempts ----

ATTEMPTS = 4


def delays(until, backoff=stomp.Backoff(), round_=0.0, seed=1):  # noqa: B008
    """Each delay before a point of time, with the seconds since the loss; a round of attempts takes some, too."""
    at, found = 0.0, []
    following = backoff.delays(random.Random(seed).random, lambda: 1000.0 + at)
    while at < until:
        found.append((at, next(following)))
        at += found[-1][1] + round_
    return found


def test_clients_that_lost_one_broker_together_are_spread_over_seconds():
    """Of 500 clients, no more than 60 come in any 200 ms once the delays have grown."""
    at = sorted(delays(30.0, seed=seed)[-1][0] for seed in range(500))
    assert max(sum(1 for other in at if one <= other < one + 0.2) for one in at) <= 60


def test_a_client_is_back_within_half_of_the_outage():
    """A broker that was down for 8 s and is up for 3 s is found."""
    for seed in range(200):
        for at, delay in delays(60.0, seed=seed):
            assert delay <= max(1.0, at / 2)
            assert at > 8.0 or delay <= 3.0


def gives_up(shell, peer, **options):
    """How many sessions there were until the client gave up, which it does if delays never begin from the first."""
    states = []
    client = shell.connect(
        peer.url,
        reconnect=stomp.Backoff(first=0.001, most=0.002, attempts=ATTEMPTS),
        on_state=lambda state, error: states.append(state),
        **options,
    )
    give_up = time.monotonic() + patience(60)
    while client.state != "closed" or "closed" not in states:  # states come from a thread of their own
        assert time.monotonic() < give_up
        time.sleep(0.005)
    return states.count("connected")


def test_short_sessions_use_up_the_attempts(shell):
    with Peer(rules={"CONNECT": lambda side, frame: (accept(side), side.close())}) as peer:
        assert gives_up(shell, peer) == ATTEMPTS + 1


def accept(side):
    side.connection.accept({"session": "1", "server": "test/1"})
    side.flush()


# ---- refused logins ----

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


@pytest.fixture
def at_once(monkeypatch):
    """No least time from the first to the last refused login."""
    monkeypatch.setattr(engine, "SPAN", 0.0)


def test_it_ends_the_client_after_some_attempts(shell, at_once):
    with Peer(server="RabbitMQ/3.10.8") as peer:
        told = Told()
        client = shell.connect(peer.url, reconnect=QUICK, on_state=told, login_attempts=3)
        subscription = client.subscribe("/queue/a")
        peer.rules["CONNECT"] = refuse(RABBITMQ)
        peer.cut()
        with pytest.raises(stomp.RejectedError, match="Access refused"):
            subscription.get(patience(30))
        told.wait(lambda all: all[-1][0] == "closed")
        assert isinstance(client.error, stomp.RejectedError)
        assert RABBITMQ in str(client.error)
        assert len(peer.got("CONNECT")) == 1 + 3


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


@pytest.mark.parametrize("value", [0, -1, True, 2.0, "5"])
def test_login_attempts_has_a_range(value):
    with pytest.raises(ValueError, match="login_attempts"):
        stomp.connect("stomp://127.0.0.1:1", login_attempts=value)


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


def test_an_end_of_a_bridge_gives_up_too(monkeypatch):
    monkeypatch.setattr(bridge_ends, "SPAN", 0.0)
    seen = []
    with Peer(rules={"CONNECT": refuse(RABBITMQ)}) as peer:
        end = End(peer.url, backoff=QUICK, login_attempts=3)
        with pytest.raises(stomp.RejectedError):
            asyncio.run(end.reopen(lambda end, error: seen.append(str(error))))
        assert len(peer.got("CONNECT")) == len(seen) == 3
