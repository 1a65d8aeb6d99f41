"""A thread that waits for a receipt reads it itself; whatever else comes is left to the I/O thread.

For messages see `test_waiting_messages.py`.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from functools import partial

import pytest
from client.busy import busy_hub
from client.peer import Peer
from client.test_interrupts import interrupted, is_sound
from patience import patience

import stompcodec.client as stomp
from stompcodec import Frame
from stompcodec.client.core import ClientCore
from stompcodec.client.io import engine
from stompcodec.client.io.owner import WireOwner
from stompcodec.client.subscription import Subscription
from stompcodec.client.sync import waiting
from stompcodec.transport import sync

pytestmark = pytest.mark.skipif(not hasattr(waiting.select, "poll"), reason="no poll here")
LONG = 60.0
OPTIONS = {"heart_beat": (0, 0), "receipt_timeout": LONG, "reconnect": stomp.Backoff(first=0.01, most=0.02)}


@pytest.fixture
def kept(monkeypatch):
    """A lent socket stays with the waiting threads, and callers always write themselves.

    Not for ever: a poll may begin just after the I/O thread took the socket back, and then finds nothing.
    """
    monkeypatch.setattr(engine, "_IDLE", patience(5))
    monkeypatch.setattr(engine, "_GATHER", -1.0)


@pytest.fixture
def peer():
    with Peer() as peer:
        yield peer


@pytest.fixture
def client(peer):
    with stomp.connect(peer.url, **OPTIONS) as client:
        yield client


def is_lent(client) -> bool:
    return client._link.engine.look(lambda: (owner := client._link.engine._owner) and owner.wire.is_lent)


def talk(client) -> None:
    """Have a conversation until waiting threads read."""
    until = time.monotonic() + patience(LONG)
    while not is_lent(client):
        assert time.monotonic() < until
        client.send("/queue/a", b"x", receipt=True)


def test_a_conversation_needs_no_other_thread(kept, client) -> None:
    talk(client)
    with busy_hub():
        for headers in (None, {"a": "b"}):
            client.send("/queue/a", b"x", headers, receipt=True)
            receipt = client.send_for_receipt("/queue/a", b"x", headers)
            receipt.wait()
            assert receipt.done
    assert client.epoch == 1


@pytest.mark.parametrize(
    "shape",
    [
        b"RECEIPT\nreceipt-id:%b\n\n\0",
        b"RECEIPT\nreceipt-id:%b\n\n\0\n",
        b"\nRECEIPT\r\ncontent-length:0\r\nreceipt-id:%b\r\nmore:%b\r\n\r\n\0",
    ],
)
def test_receipts_of_any_shape(kept, client, peer, shape) -> None:
    def answer(side, frame) -> None:
        side.sock.sendall(shape.replace(b"%b", frame.headers["receipt"].encode()))

    peer.rules["SEND"] = answer
    talk(client)
    with busy_hub():
        for _ in range(3):
            client.send("/queue/a", b"x", receipt=True)


def test_other_frames_are_left_to_the_io_thread(kept, client, peer) -> None:
    """A receipt beside another frame, of another call, cut in two, and an ERROR."""
    held = []

    def answer(side, frame) -> None:
        number = frame.headers.get("receipt")
        octets = b"RECEIPT\nreceipt-id:%b\n\n\0" % number.encode()
        if frame.body == b"held":
            held.append(octets)
        elif frame.body == b"both":
            side.sock.sendall(octets + held.pop())
        elif frame.body == b"other first":
            side.sock.sendall(held.pop())
            side.sock.sendall(octets)
        elif frame.body == b"cut":
            side.sock.sendall(octets[:5])
            time.sleep(0)
            side.sock.sendall(octets[5:])
        elif frame.body == b"error":
            side.error(frame)
        else:
            side.sock.sendall(octets)

    peer.rules["SEND"] = answer
    for text in (b"both", b"other first", b"cut"):
        talk(client)
        receipt = client.send_for_receipt("/queue/a", b"x" if text == b"cut" else b"held")
        client.send("/queue/a", text, receipt=True)
        receipt.wait()
    talk(client)
    with pytest.raises(stomp.RejectedError):
        client.send("/queue/a", b"error", receipt=True)
    client.wait_connected()
    client.send("/queue/a", b"x", receipt=True)
    assert client.epoch == 2


def test_a_lost_connection_is_followed_by_another(kept, client, peer) -> None:
    for number in range(1, 4):
        talk(client)
        peer.rules["SEND"] = lambda side, frame: side.close()
        with pytest.raises(stomp.ConnectionLostError):
            client.send("/queue/a", b"x", receipt=True)
        peer.rules.clear()
        client.wait_connected()
        assert client.epoch == number + 1
    talk(client)
    with busy_hub():
        client.send("/queue/a", b"last", receipt=True)


@contextlib.contextmanager
def polling(client):
    """At the end, the thread that was started inside polls the socket, for a call made inside or for messages."""
    engine, delivery, calls = client._link.engine, client._link.delivery, client._link.core.link.calls
    before, poll = (delivery.read, calls.read), delivery.selector.poll

    def patient_poll(timeout):
        while True:
            with contextlib.suppress(RuntimeError):  # this function's thread has the poll below
                return poll(timeout)

    delivery.read, calls.read = partial(engine.read_messages, patient_poll), partial(engine.read_for, patient_poll)
    yield
    until = time.monotonic() + patience(LONG)
    with contextlib.suppress(RuntimeError):  # that thread polls
        while True:
            poll(0)
            time.sleep(0.001)  # else it hardly gets a chance
            assert time.monotonic() < until
    delivery.read, calls.read = before


def has_ended(side) -> bool:
    """Return whether the client has ended this connection."""
    try:
        while not side.closed and side.sock.recv(65536, socket.MSG_DONTWAIT):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def reconnect_in_the_middle_of_a_body(client, peer) -> list[bool]:
    """Break off an upload; return what `has_ended` said of the earlier connections at the next CONNECT."""
    ended: list[bool] = []

    def on_connect(side, frame) -> None:
        ended.extend(has_ended(each) for each in peer.sides if each is not side)
        peer.on_connect(side, frame)

    peer.rules["CONNECT"] = on_connect
    with pytest.raises(stomp.BodySourceError):
        client.send("/queue/b", iter([b"x"]), length=2)
    peer.wait(lambda _: ended)
    return ended


def test_a_connection_has_ended_before_the_next_one_begins(kept, client, peer) -> None:
    """Also while a thread waits in the system for its bytes: else the broker may send messages there."""
    lost, held = [], []
    talk(client)
    peer.rules["SEND"] = lambda side, frame: held.append(frame)

    def wait() -> None:
        try:
            client.send("/queue/a", b"x", receipt=True)
        except stomp.ConnectionLostError as error:
            lost.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    with polling(client):
        thread.start()
    assert reconnect_in_the_middle_of_a_body(client, peer) == [True]
    thread.join(patience(LONG))
    assert len(lost) == 1
    assert client.epoch == 2


def test_many_threads_wait(client, peer) -> None:
    """Each gets its receipt, whoever reads."""
    failures = []

    def work() -> None:
        try:
            for _ in range(50):
                client.send("/queue/a", b"x", receipt=True)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(LONG))
    assert not failures
    assert not any(thread.is_alive() for thread in threads)
    assert len(peer.got("SEND")) == 200


def test_two_threads_wait_for_one_receipt(kept, client, peer) -> None:
    held, done = [], []
    talk(client)
    peer.rules["SEND"] = lambda side, frame: held.append((side, frame))
    receipt = client.send_for_receipt("/queue/a", b"x")
    threads = [threading.Thread(target=lambda: done.append(receipt.wait()), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    peer.wait(lambda _: held)
    peer.do(lambda: held[0][0].receipt(held[0][1]))
    for thread in threads:
        thread.join(patience(LONG))
    assert len(done) == 3


def test_two_subscriptions_end_it(client, peer) -> None:
    """Messages of one come while a thread waits for those of the other."""
    talk(client)
    with client.subscribe("/queue/b", id="s", confirm=False) as subscription, client.subscribe("/queue/c", id="t"):
        peer.deliver("s", b"x")
        assert subscription.get(patience(LONG)).body == b"x"
        until = time.monotonic() + patience(LONG)
        while is_lent(client):
            assert time.monotonic() < until
            client.send("/queue/a", b"x", receipt=True)


def test_a_thread_that_waits_for_messages_ends_it(client, peer) -> None:
    """They come while no thread waits for a receipt."""
    got = []
    with client.subscribe("/queue/b", id="s") as subscription:
        talk(client)
        thread = threading.Thread(target=lambda: got.append(subscription.get(patience(LONG))), daemon=True)
        thread.start()
        until = time.monotonic() + patience(LONG)
        while is_lent(client) or not subscription.waiting:
            assert time.monotonic() < until
            client.send("/queue/a", b"x", receipt=True)
        peer.deliver("s", b"x")
        thread.join(patience(LONG))
        assert [message.body for message in got] == [b"x"]


def test_requests_end_it(client, peer) -> None:
    """Their replies are messages, which the core has to hand to their callers."""
    talk(client)
    peer.rules["SEND"] = lambda side, frame: answer_request(side, frame)
    for _ in range(5):
        assert client.request("/queue/a", b"x").body == b"reply"
        assert not is_lent(client)


@pytest.fixture
def readers(monkeypatch):
    """The times that the wire was lent, or that a thread polled for its receipt."""
    found, lend, read_by = [], sync.SyncWire.lend, engine.Engine._read_by

    def noted_lend(self, borrower):
        if borrower is not None:
            found.append("lent")
        lend(self, borrower)

    def noted_read_by(self, poll, *rest):
        return read_by(self, lambda most: found.append("polled") or poll(most), *rest)

    monkeypatch.setattr(sync.SyncWire, "lend", noted_lend)
    monkeypatch.setattr(engine.Engine, "_read_by", noted_read_by)
    return found


def test_who_waits_to_hand_over_its_next_piece_does_not_read(client, peer, readers) -> None:
    """The I/O thread asks for the next piece, in microseconds; no bytes of the server do."""
    client.send("/queue/a", iter([b"x" * 65536] * 20), length=20 * 65536)
    peer.wait(lambda peer: peer.got("SEND"))
    assert not readers


def test_who_waits_for_room_does_not_read(peer, readers) -> None:
    with stomp.connect(peer.url, **OPTIONS, outbox_frames=1) as client:
        for _ in range(50):
            client.send("/queue/a", b"x" * 65536, {"a": "b"})
        assert not readers


def test_who_waits_for_room_gives_the_socket_back(kept, client) -> None:
    """Otherwise the socket would stay unread for up to 20 ms."""
    polled = []
    talk(client)
    call = client._link.call("waiting for room", "", LONG)
    client._link.engine.read_for(polled.append, call)
    assert not polled
    assert not is_lent(client)


def answer_request(side, frame) -> None:
    side.receipt(frame)
    if frame.get("reply-to"):
        (id,) = side.subscriptions
        side.deliver(id, b"reply", {"correlation-id": frame.get("correlation-id")})


def test_frames_are_shown_in_their_order(peer) -> None:
    """So a waiting thread does not read if there is an `on_frame`."""
    with stomp.connect(peer.url, on_frame=lambda direction, frame: None, **OPTIONS) as client:
        for _ in range(10):
            client.send("/queue/a", b"x", receipt=True)
            assert not is_lent(client)


def test_a_silent_broker_gives_the_socket_back(client, peer) -> None:
    talk(client)
    peer.rules["SEND"] = lambda side, frame: None
    with pytest.raises(stomp.ReceiptTimeoutError):
        client.send("/queue/a", b"x", receipt=True, timeout=0.1)
    until = time.monotonic() + patience(LONG)
    while is_lent(client):
        assert time.monotonic() < until


def test_an_interrupt_at_each_place_loses_nothing(client, peer, monkeypatch) -> None:
    """Neither the connection nor a frame; each message is sent at most once, in order."""
    monkeypatch.setattr(engine, "_GATHER", -1.0)
    place, lent, going_on = 1, 0, True
    while going_on:
        talk(client)
        text = b"%d" % place
        going_on = interrupted(lambda text=text: client.send("/queue/b", text, receipt=True), place)
        lent += is_lent(client)
        is_sound(client)
        place += 1
        assert place < 1500
    client.send("/queue/b", b"last", receipt=True)
    *numbers, last = [frame.body for frame in peer.got("SEND", destination="/queue/b")]
    assert last == b"last"
    assert [int(number) for number in numbers] == sorted({int(number) for number in numbers})
    assert int(numbers[-1]) == place - 1
    assert lent > 5
    assert client.epoch == 1
    assert not client._link.core.link.calls.sent


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals for threads here")
def test_real_interrupts_while_it_reads(client, peer) -> None:
    held, begun, seen, ended = [], [], [], []
    main = threading.get_ident()
    talk(client)
    peer.rules["SEND"] = lambda side, frame: held.append((side, frame))
    receipt = client.send_for_receipt("/queue/a", b"x")

    def interrupt() -> None:
        for count in range(30):
            while len(begun) <= count and not ended:
                time.sleep(0.0005)
            signal.pthread_kill(main, signal.SIGINT)
            while len(seen) <= count and not ended:
                time.sleep(0.0005)

    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt, daemon=True)
    try:
        thread.start()
        while len(seen) < 30:
            try:
                begun.append(True)
                receipt.wait()
                raise AssertionError("nobody has interrupted it")
            except KeyboardInterrupt:
                seen.append(True)
    finally:
        ended.append(True)
        thread.join(patience(30))
        signal.signal(signal.SIGINT, old)
    peer.wait(lambda _: held)
    peer.do(lambda: held[0][0].receipt(held[0][1]))
    receipt.wait()
    is_sound(client)
    assert client.epoch == 1


class Ahead:
    """A wire that has read these bytes ahead."""

    def __init__(self, octets: bytes) -> None:
        self.octets = octets
        self.ahead = [len(octets)]

    def read_ahead(self) -> bytes:
        return self.octets


@pytest.mark.parametrize("behind", [b"", b"x"])
@pytest.mark.parametrize("subscription", ["s", "gone"])
def test_a_streamed_body_may_look_like_a_receipt(subscription, behind) -> None:
    """The head of its frame, and perhaps some of it, was read before."""
    core = ClientCore(stomp.Options(heart_beat=(0, 0), stream_over=4096), lambda: "id")
    core.link.opened(0.0, host="h", login=None, passcode=None, whole_frames=False)
    core.inbound.receive(b"CONNECTED\nversion:1.2\n\n\0", 0.1)
    core.inbound.subscribe(Subscription("/queue/a", id="s"), 0.1, core.link.calls.make("SUBSCRIBE", 30.0, "SUBSCRIBE"))
    call = core.link.calls.make("SEND", 30.0, "SEND")
    core.send(Frame("SEND", {"destination": "/queue/a", "receipt": call.id}, b"x"), 0.1, call)
    receipt = b"RECEIPT\nreceipt-id:%b\n\n\0" % call.id.encode()
    size = 4096 + len(receipt)
    head = f"MESSAGE\nsubscription:{subscription}\nmessage-id:1\ndestination:/queue/a\ncontent-length:{size}\n\n"
    core.inbound.receive(head.encode() + behind, 0.2)
    owner = WireOwner(core)
    owner.connection, owner.wire = core.link.connection, Ahead(receipt)
    assert not owner.take_receipt(call, 0.3)
    core.inbound.receive(receipt + b"x" * (4096 - len(behind)) + b"\0", 0.4)
    assert not call.done
    assert owner.take_receipt(call, 0.5) is (subscription == "gone")  # else a message waits to be taken
