"""Handlers that fail, with both shells: what pauses and what goes on, and what the defaults of `subscribe` do."""

import asyncio
import logging
import threading

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from client.shells import Seen
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.aio.waiting import AsyncPauses
from stompcodec.client.handlers import Retries
from stompcodec.client.sync.waiting import Pauses


@pytest.fixture
def pauses(monkeypatch):
    """The pauses, which take no time."""
    made = Seen()

    async def rest(_pauses, seconds, is_over):
        made.add(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(Pauses, "rest", lambda _pauses, seconds, is_over: made.add(seconds))
    monkeypatch.setattr(AsyncPauses, "rest", rest)
    return made


@pytest.fixture
def long_pauses(monkeypatch):
    """Each pause lasts longer than any test."""
    begun = Seen()
    monkeypatch.setattr(Retries, "pause", lambda _retries, before: begun.add(b"") or patience(600.0))
    return begun


@pytest.fixture(scope="module")
def ours():
    with BrokerThread() as broker:
        yield broker


def failing(shell, seen, *bad):
    def handle(message):
        seen.add(message.body)
        if message.body in bad:
            raise ValueError("no")

    return shell.handler(handle)


# ---- our broker ----


def test_our_broker_makes_a_dead_letter_of_it_after_six_calls_in_all(shell, ours, pauses):
    client, seen = shell.connect(ours.url), Seen()
    queue = f"/queue/six-{shell.name}"
    client.send_many([(queue, b"1"), (queue, b"bad"), (queue, b"2")])
    client.subscribe(queue, handler=failing(shell, seen, b"bad"))
    assert seen.wait(8) == [b"1", *[b"bad"] * 6, b"2"]
    letter = client.subscribe(f"/queue/DLQ.six-{shell.name}").get(patience(10))
    assert (letter.body, letter.headers["dead-letter-reason"]) == (b"bad", "rejected")
    assert pauses.bodies == [0.1, 0.2, 0.4, 0.8, 1.6]


def failing_twice(shell, calls):
    def handle(message):
        calls.add(message.body)
        if len(calls.bodies) < 3:
            raise ValueError("no")

    return shell.handler(handle)


def test_a_long_outage_gives_the_window_back_until_a_call_succeeds(shell, ours, pauses, monkeypatch):
    monkeypatch.setattr(Retries, "pause", lambda _retries, before: 30.0)
    windows, calls, queue = Seen(), Seen(), f"/queue/window-{shell.name}"

    def watch(direction, frame):
        if frame.command == "SUBSCRIBE":
            windows.add(frame.get("prefetch-count"))

    client = shell.connect(ours.url, on_frame=watch)
    client.send_many([(queue, b"%d" % number) for number in range(5)])
    client.subscribe(queue, handler=failing_twice(shell, calls))
    assert windows.wait(3) == ["100", "1", "100"]
    assert calls.wait(7) == [b"0"] * 3 + [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(("server", "windows"), [("RabbitMQ/3.10.8", ["100", "100"]), ("other/1", ["100"])])
def test_a_window_stays_where_its_messages_would_not_come_again(shell, pauses, server, windows, monkeypatch):
    """RabbitMQ keeps them for the connection. Behind the outage it gets the window that a new connection lacks."""
    monkeypatch.setattr(Retries, "pause", lambda _retries, before: 30.0)
    with Peer(server=server) as peer:
        client, calls = shell.connect(peer.url), Seen()
        client.send("/queue/a", b"x")
        client.subscribe("/queue/a", handler=failing_twice(shell, calls))
        peer.wait(lambda peer: peer.got("ACK"))
        peer.wait(lambda peer: len(peer.got("SUBSCRIBE")) == len(windows))
        assert [frame.get("prefetch-count") for frame in peer.got("SUBSCRIBE")] == windows


# ---- what pauses, and what goes on ----


@pytest.mark.parametrize("options", [{}, {"key": lambda message: message.body}])
def test_only_the_worker_of_a_message_pauses(shell, peer, long_pauses, options):
    client, seen = shell.connect(peer.url, close_timeout=0.1), Seen()
    handler = failing(shell, seen, b"0")
    client.subscribe("/queue/a", handler=handler, concurrency=2, **options)
    peer.deliver("s1", b"0")
    long_pauses.wait(1)
    others = [b"%d" % number for number in range(1, 20) if hash(b"%d" % number) % 2 != hash(b"0") % 2 or not options]
    for body in others:
        peer.deliver("s1", body)
    assert seen.wait(1 + len(others))[1:] == others
    peer.wait(lambda peer: len(peer.got("ACK")) == len(others))


@pytest.mark.parametrize("end", ["unsubscribe", "close", "drain", "lose"])
def test_the_end_does_not_wait_for_a_pause_and_leaves_the_message(shell, peer, long_pauses, end):
    client, seen = shell.connect(peer.url, close_timeout=patience(30)), Seen()
    subscription = client.subscribe("/queue/a", handler=failing(shell, seen, b"bad"))
    peer.deliver("s1", b"bad")
    long_pauses.wait(1)
    if end == "lose":
        peer.cut()
        client.close()
    else:
        {"unsubscribe": subscription.unsubscribe, "close": client.close, "drain": client.drain}[end]()
    subscription.join(patience(30))
    assert seen.bodies == [b"bad"]
    assert not peer.got("ACK") + peer.got("NACK")


def test_middleware_sees_each_call_and_its_receive_is_repeated_too(shell, peer, pauses):
    places, seen = [], Seen()

    class Failing(stomp.Middleware):
        def receive(self, event):
            return self._around("receive", 2)

        def process(self, event):
            return self._around("process", 3)

        def _around(self, place, most):
            places.append(place)
            if places.count(place) < most:
                raise ValueError(place)
            return threading.Lock()  # a context

    client = shell.connect(peer.url, middleware=[Failing()])
    client.subscribe("/queue/a", handler=failing(shell, seen))
    peer.deliver("s1", b"x")
    peer.wait(lambda peer: peer.got("ACK"))
    assert (places, seen.bodies) == (["receive"] * 2 + ["process"] * 3, [b"x"])


# ---- the defaults of `subscribe` ----


def test_a_handler_acknowledges_unless_something_else_is_asked_for(shell, peer):
    client, seen = shell.connect(peer.url), Seen()
    for options in ({"handler": failing(shell, seen)}, {}, {"handler": failing(shell, seen), "ack": "auto"}):
        client.subscribe("/queue/a", **options)
    modes = [(frame.headers["ack"], frame.get("prefetch-count")) for frame in peer.got("SUBSCRIBE")]
    assert modes == [("client-individual", "100"), ("auto", None), ("auto", None)]
    peer.deliver("s1", b"x")
    peer.wait(lambda peer: peer.got("ACK"))


@pytest.mark.parametrize("policy", ["nack", "stop", lambda message, error: "nack"])
def test_a_policy_without_acknowledgements_is_refused(shell, peer, policy):
    client = shell.connect(peer.url)
    with pytest.raises(ValueError, match=r"on_error=.* has no effect with ack='auto'"):
        client.subscribe("/queue/a", ack="auto", handler=shell.handler(print), on_error=policy)
    assert not peer.got("SUBSCRIBE")


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (ValueError, {"attempts": 0}),
        (TypeError, {"attempts": 1.5}),
        (TypeError, {"attempts": None}),
        (TypeError, {"give_up": "ValueError"}),
        (TypeError, {"give_up": (ValueError("x"),)}),
        (TypeError, {"give_up": KeyboardInterrupt}),
    ],
)
def test_a_wrong_option_is_named(shell, peer, error, options):
    client = shell.connect(peer.url)
    with pytest.raises(error, match=f"^{next(iter(options))} is "):
        client.subscribe("/queue/a", handler=shell.handler(print), **options)
    assert not peer.got("SUBSCRIBE")


def bare(peer, *bodies):
    """Messages without an ack header, whatever the mode of the subscription."""
    side = peer.side()
    for number, body in enumerate(bodies):
        more = {"subscription": "s1", "message-id": f"b{number}", "destination": "/queue/a"}
        peer.do(lambda more=more, body=body: side.send("MESSAGE", more, body))


def test_messages_without_ack_header_count_as_acknowledged_which_is_said_once(shell, peer, pauses, caplog):
    client, seen = shell.connect(peer.url), Seen()
    with caplog.at_level(logging.WARNING, "stompcodec.client"):
        client.subscribe("/queue/a", handler=failing(shell, seen, b"bad"))
        bare(peer, b"1", b"bad", b"2")
        assert seen.wait(8) == [b"1", *[b"bad"] * 6, b"2"]
        client.drain(patience(10))
    assert not peer.got("ACK") + peer.got("NACK")
    assert caplog.text.count("without an ack header") == 1
    assert "not settled" not in caplog.text


def test_what_counts_as_acknowledged_can_be_acknowledged_and_not_refused(shell, peer):
    client = shell.connect(peer.url)
    subscription = client.subscribe("/queue/a", ack="client-individual")
    bare(peer, b"1")
    message = subscription.get(patience(10))
    message.ack(receipt=True)
    with pytest.raises(stomp.LocalProtocolError, match=r"NACK not possible: .* without an ack header"):
        message.nack()
    assert not peer.got("ACK") + peer.got("NACK")
