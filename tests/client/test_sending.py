"""Both shells against a scripted server on real sockets: sending, transactions, the end."""

import threading
import time

import pytest
from client.peer import Peer
from client.shells import Seen
from patience import patience

import stompcodec.client as stomp
from stompcodec import FrameError

# ---- sending ----


@pytest.mark.req("S12-SND-01", "S12-SND-03", "S12-RCP-01", "S12-CT-01", "S12-CT-07")
def test_send_returns_when_the_server_has_it(shell, peer):
    client = shell.connect(peer.url)
    assert (client.state, client.version, client.dialect) == ("connected", "1.2", "unknown")
    client.send("/queue/a", b"hello", {"priority": "4"}, receipt=True)
    (frame,) = peer.got("SEND")
    assert (frame.body, frame.headers["priority"], frame.get("content-type")) == (b"hello", "4", None)
    client.send("/queue/a", "grüße", [("x", "1"), ("x", "2")], receipt=True)
    frame = peer.got("SEND")[1]
    assert frame.text() == "grüße"
    assert frame.headers.getall("x") == ["1", "2"]


def test_the_three_outcomes(shell):
    def on_send(side, frame):
        if frame.body == b"accept":
            side.receipt(frame)
        elif frame.body == b"reject":
            side.error(frame, "not allowed")
        elif frame.body == b"cut":
            side.close()

    with Peer(rules={"SEND": on_send}) as peer:
        client = shell.connect(peer.url)
        client.send("/queue/a", b"accept", receipt=True)
        with pytest.raises(stomp.RejectedError, match=r"SEND to /queue/a was rejected: not allowed") as rejected:
            client.send("/queue/a", b"reject", receipt=True)
        assert rejected.value.frame.headers["message"] == "not allowed"
        client.wait_connected()
        with pytest.raises(stomp.ConnectionLostError) as lost:
            client.send("/queue/a", b"cut", receipt=True)
        assert lost.value.sent
        with pytest.raises(stomp.ReceiptTimeoutError):
            client.send("/queue/a", b"silence", receipt=True, timeout=0.1)
        client.send("/queue/a", b"accept", receipt=True)


@pytest.mark.req("S12-CT-03", "S12-CT-04")
def test_content_encoding(shell, peer):
    client = shell.connect(peer.url)
    subscription = client.subscribe("/queue/z")
    client.send("/queue/z", "x" * 10_000, content_encoding="gzip")
    message = subscription.get(patience(5))
    assert len(message.body) < 200
    assert message.content() == b"x" * 10_000
    with pytest.raises(FrameError, match="max_size"):
        message.content(9_999)


# ---- transactions ----


def test_a_transaction_that_raises_is_aborted(shell, peer):
    client = shell.connect(peer.url)
    with pytest.raises(ZeroDivisionError), client.transaction() as transaction:
        transaction.send("/queue/b", b"%d" % (1 / 0))
    peer.wait(lambda peer: peer.got("ABORT"))
    with client.transaction() as transaction:
        transaction.abort()
    assert not peer.got("COMMIT")


# ---- the end ----


def test_close_is_idempotent_and_final(shell):
    """It has a deadline, and ends iterators."""
    with Peer(rules={"DISCONNECT": lambda side, frame: None}) as peer:
        client = shell.connect(peer.url, close_timeout=0.3)
        subscription = client.subscribe("/queue/b")
        got, started = [], time.monotonic()
        reader = threading.Thread(target=lambda: got.extend(subscription))
        reader.start()
        client.send("/queue/a", b"last")
        client.close()
        client.close()
        assert time.monotonic() - started < patience(5)
        reader.join(patience(5))
        assert not reader.is_alive()
        assert got == []
        assert peer.commands()[-2:] == ["SEND", "DISCONNECT"]
    assert client.state == "closed"
    for call in (
        lambda: client.send("/queue/a"),
        lambda: client.subscribe("/queue/a"),
        lambda: client.wait_connected(),
        lambda: client.ping(),
        lambda: client.request("/queue/a"),
    ):
        with pytest.raises(stomp.LocalProtocolError, match="closed"):
            call()


def test_drain_finishes_what_was_handed_out(shell, peer):
    client = shell.connect(peer.url)
    started, go_on, seen = threading.Event(), threading.Event(), Seen()

    def slow(message):
        started.set()
        assert go_on.wait(patience(10))
        client.send("/queue/out", message.body)
        seen.add(message.body)

    client.subscribe("/queue/a", ack="client-individual", handler=shell.handler(slow))
    peer.deliver("s1", b"1")
    assert started.wait(patience(5))
    peer.deliver("s1", b"not handed out")
    drain = threading.Thread(target=lambda: client.drain(patience(10)))
    drain.start()
    time.sleep(0.05)
    go_on.set()
    drain.join(patience(10))
    assert not drain.is_alive()
    assert seen.bodies[0] == b"1"
    assert peer.commands()[-3:] == ["SEND", "ACK", "DISCONNECT"] or seen.bodies == [b"1", b"not handed out"]
    assert client.state == "closed"


def test_drain_takes_its_time_and_no_more(shell, peer):
    client = shell.connect(peer.url)
    subscription = client.subscribe("/queue/a", ack="client-individual")
    peer.deliver("s1", b"never settled")
    assert subscription.get(patience(5)).body == b"never settled"
    with pytest.raises(stomp.ReceiptTimeoutError):
        client.drain(0.1)
    assert client.state == "closed"
