"""Callers write to the socket themselves if nothing waits before their frames; plain messages take a fast path."""

from __future__ import annotations

import socket
import threading

import pytest
from client.busy import busy_hub
from hypothesis import given
from hypothesis import strategies as st
from patience import patience

import stompcodec.client as stomp
from stompcodec.client import engine
from stompcodec.client.core import ClientCore
from stompcodec.client.link import _HEADS, _LONGEST
from stompcodec.client.options import Options
from stompcodec.transport import sync
from stompcodec.transport.owner import BIG
from stompcodec.uri import parse_uri

LONG = 60.0


@pytest.fixture(params=[-1.0, 50e-6, 1e9], ids=["callers write", "both write", "the I/O thread writes"])
def gather(request, monkeypatch):
    monkeypatch.setattr(engine, "_GATHER", request.param)


def test_order_is_kept_whoever_writes(shell, peer, gather) -> None:
    """Small and large bodies, with and without headers, receipts and text, in blocks too."""
    client = shell.connect(peer.url)
    sizes = [1, 10, BIG, 0, 300_000]
    for number in range(60):
        body = b"%d " % number + bytes(sizes[number % 5])
        if number % 7 == 0:
            client.send("/queue/a", body, receipt=True)
        elif number % 7 == 1:
            client.send("/queue/a", body, {"a": "b"})
        elif number % 7 == 2:
            client.send_many([("/queue/a", body)], receipt_every=number % 2)
        else:
            client.send("/queue/a", body)
    client.ping()
    got = [frame.body for frame in peer.got("SEND")]
    assert [int(body.partition(b" ")[0]) for body in got] == list(range(60))


def test_many_threads_write_whole_frames(peer, gather) -> None:
    with stomp.connect(peer.url) as client:

        def send(name: bytes) -> None:
            for number in range(100):
                client.send("/queue/a", b"%b %d" % (name, number) + bytes(number * 20))

        threads = [threading.Thread(target=send, args=[b"%d" % name]) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        client.ping()
        for name in range(4):
            mine = [frame.body.rstrip(b"\0") for frame in peer.got("SEND") if frame.body.startswith(b"%d " % name)]
            assert mine == [b"%d %d" % (name, number) for number in range(100)]


def test_a_caller_needs_no_other_thread(peer, monkeypatch) -> None:
    """To send, and for an ACK that the consumer waits behind; an ACK before others of its batch goes with the last.

    An ACK does not start a burst, and what is sent right after it does not wait.
    """
    with stomp.connect(peer.url) as client:
        subscription = client.subscribe("/queue/a", id="s", ack="client-individual", prefetch=10)
        peer.deliver("s", b"x", count=3)
        client.ping()  # all are there
        messages = [subscription.get(patience(LONG)) for _ in range(2)]
        with busy_hub():
            messages[0].ack()
            messages.append(subscription.get(patience(LONG)))
            client.send("/queue/b", b"y", {"a": "b"})
            for message in messages[1:]:
                message.ack()
            peer.wait(lambda peer: len(peer.got("ACK")) == 3)
            assert peer.commands()[-4:] == ["ACK", "SEND", "ACK", "ACK"]
        assert [frame.headers["id"] for frame in peer.got("ACK")] == [message.get("ack") for message in messages]
        monkeypatch.setattr(engine, "_GATHER", patience(1))
        peer.deliver("s", b"x")
        message = subscription.get(patience(LONG))
        with busy_hub():
            message.ack()
            client.send("/queue/b", b"reply")
            peer.wait(lambda peer: len(peer.got("SEND")) == 2)
        assert peer.commands()[-2:] == ["ACK", "SEND"]


# ---- the fast path ----


def opened(version: str) -> ClientCore:
    offered = ("legacy",) if version == "legacy" else ("1.0", "1.1", "1.2")
    core = ClientCore(Options(heart_beat=(0, 0), versions=offered), lambda: "id")
    core.link.opened(0.0, host="h", login="a", passcode="b", whole_frames=False)
    core.link.take_output(0.0)
    core.inbound.receive(b"CONNECTED\nversion:%b\n\n\0" % version.encode() if version != "legacy" else CONNECTED, 0.0)
    assert core.link.phase == "up"
    core.link.take_output(0.0)
    return core


CONNECTED = b"CONNECTED\nsession:1\n\n\0"


def test_the_fast_path_is_taken_and_counts() -> None:
    core = opened("1.2")
    assert core.link.put_plain("/queue/a", b"hello")
    assert (core.link.outbox.frames, core.link.outbox.octets) == (1, 5 + 256)
    assert core.link.put_plain("/queue/a", bytes(BIG - 1))
    assert not core.link.put_plain("/queue/a", bytes(BIG))
    assert not core.link.put_plain("/queue/a", b"")
    core.link.take_output(0.0)
    core.link.writable(False)
    assert not core.link.put_plain("/queue/a", b"hello")
    core.link.writable(True)
    core.link.lost(None, 0.0)
    assert not core.link.put_plain("/queue/a", b"hello")
    core = opened("1.2")
    core.link.outbox._most_frames = 2
    assert [core.link.put_plain("/queue/a", b"x") for _ in range(3)] == [True, True, False]


def test_few_heads_are_kept_and_none_for_another_version() -> None:
    core = opened("1.2")
    for number in range(_HEADS + 10):
        assert core.link.put_plain(f"/queue/{number}", b"x")
        assert len(core.link._heads) <= _HEADS
        core.link.take_output(0.0)
    assert core.link.put_plain("x" * (_LONGEST + 1), b"x")
    assert "x" * (_LONGEST + 1) not in core.link._heads
    assert core.link.put_plain("x" * _LONGEST, b"x")
    assert "x" * _LONGEST in core.link._heads
    core.link.lost(None, 0.0)
    core.link.opened(0.0, host="h", login="a", passcode="b", whole_frames=False)
    core.inbound.receive(b"CONNECTED\nversion:1.0\n\n\0", 0.0)
    assert core.link._heads == {}


def test_what_a_caller_writes_counts_for_heart_beats_and_room() -> None:
    core = ClientCore(Options(heart_beat=(1000, 0), outbox_frames=1), lambda: "id")
    core.link.opened(0.0, host="h", login="a", passcode="b", whole_frames=False)
    core.link.take_output(0.0)
    core.inbound.receive(b"CONNECTED\nversion:1.2\nheart-beat:0,1000\n\n\0", 0.0)
    assert core.link.next_deadline() == 0.5
    core.link.now = 0.4
    assert core.link.put_plain("/queue/a", b"x")
    call = core.link.calls.make("room", 5.0)
    core.when_room(call, 0.4, 1)
    core.link.connection.output.clear()
    core.link.written()
    assert call.done
    assert call.error is None
    assert core.link.outbox.frames == 0
    assert core.link.next_deadline() == 0.9


# ---- the wire ----


class Note:
    """The owner of a wire, to which nothing happens."""

    opened = received = writable = lost = lambda self, what: None


@pytest.fixture
def ends():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wire = sync.connect(parse_uri(f"stomp://127.0.0.1:{listener.getsockname()[1]}")[0], Note())
        other, _ = listener.accept()
        with other:
            yield wire, other
        wire.abort()


class Socket:
    """A socket whose `send` takes some bytes, or fails."""

    def __init__(self, sizes) -> None:
        self.sizes = list(sizes)
        self.sent = b""

    def send(self, data) -> int:
        size = self.sizes.pop(0) if self.sizes else len(data)
        if size is None:
            raise BlockingIOError
        self.sent += data[:size]
        return min(size, len(data))


@given(
    st.lists(st.tuples(st.lists(st.binary(max_size=20), max_size=3), st.none() | st.integers(0, 30), st.booleans())),
)
def test_no_byte_is_lost_or_repeated(steps) -> None:
    """Whatever the kernel takes, and if an interrupt comes right after it did."""
    wire = sync.SyncWire.__new__(sync.SyncWire)
    wire._layer, wire.buffered, wire._closing, wire._broken, wire._sent = None, 0, False, False, []
    fake = wire._socket = Socket([size for _, size, _ in steps])
    chunks, whole, settle = [], b"", sync.SyncWire.settle
    for pieces, _, is_interrupted in steps:
        chunks += pieces
        whole += b"".join(pieces)
        wire.settle = (lambda chunks: None) if is_interrupted else settle.__get__(wire)
        if not wire._sent or not is_interrupted:
            wire.send_now(chunks)
    settle(wire, chunks)
    assert fake.sent + b"".join(chunks) == whole
