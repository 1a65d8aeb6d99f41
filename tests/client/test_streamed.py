"""Streamed bodies with both shells: sources of every kind, broken sources, and readers of received bodies."""

from __future__ import annotations

import asyncio
import errno
import gc
import io
import os
import runpy
import tempfile
import threading
import time
import warnings
import weakref

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from client.shells import QUICK
from patience import interval, patience

import stompcodec.client as stomp
from stompcodec.client import bodies as received
from stompcodec.client import options
from stompcodec.client.bodies import Spool
from stompcodec.spec import Limits
from stompcodec.transport import sync

BODY = bytes(range(256)) * 4000  # over 1 MB: several pieces


@pytest.fixture(scope="module")
def broker():
    with BrokerThread(limits=Limits(max_body=2**21), ws_port=0) as broker:
        yield broker


@pytest.fixture
def queue(request):
    return f"/queue/{request.node.name}"


class OneWay(io.RawIOBase):
    """A file that cannot seek, as a pipe."""

    def __init__(self, octets):
        self._file = io.BytesIO(octets)

    def readable(self):
        return True

    def readinto(self, view):
        return self._file.readinto(view)


class Closed(io.FileIO):
    """A file that closes itself at the end of a test."""

    def __del__(self):
        self.close()


def sources(tmp_path):
    path = tmp_path / "body"
    path.write_bytes(BODY)
    halves = [BODY[:300_001], b"", memoryview(BODY)[300_001:]]
    offset = io.BytesIO(b"before" + BODY)
    offset.seek(6)
    return {
        "path": (lambda: path, {}),
        "file": (lambda: Closed(path), {}),
        "memory": (lambda: offset, {}),
        "one way": (lambda: OneWay(BODY), {}),
        "one way with length": (lambda: OneWay(BODY), {"length": len(BODY)}),
        "list": (lambda: halves, {}),
        "generator with length": (lambda: (each for each in halves), {"length": len(BODY)}),
        "many": (lambda: (BODY[at : at + 100] for at in range(0, len(BODY), 100)), {}),
    }


@pytest.mark.parametrize(
    "kind", ["path", "file", "memory", "one way", "one way with length", "list", "generator with length", "many"]
)
def test_every_kind_of_source(shell, broker, queue, tmp_path, kind):
    client = shell.connect(broker.url, stream_over=4096)
    make, options = sources(tmp_path)[kind]
    client.send(queue, make(), {"n": "1"}, receipt=True, **options)
    message = client.subscribe(queue).get(patience(10))
    assert (message.is_streamed, message.size, message.get("n")) == (True, len(BODY), "1")
    with message.open() as reader:
        assert reader.read() == BODY


def test_text_and_bytes_stay_what_they_are(shell, broker, queue):
    client = shell.connect(broker.url, stream_over=4096)
    subscription = client.subscribe(queue)
    client.send(queue, "text", receipt=True)
    message = subscription.get(patience(10))
    assert (message.text(), message.is_streamed, message.size) == ("text", False, 4)
    with message.open() as reader:
        assert (reader.size, reader.read()) == (4, b"text")


def test_an_asynchronous_iterable(broker, queue):
    async def halves():
        yield BODY[:1000]
        await asyncio.sleep(0)
        yield BODY[1000:]

    async def main():
        async with stomp.connect_async(broker.url) as client:
            await client.send(queue, halves(), receipt=True)
            await client.send(queue, halves(), receipt=True, length=len(BODY))
            subscription = client.subscribe(queue)
            return [(await subscription.get(patience(10))).body for _ in range(2)]

    assert asyncio.run(main()) == [BODY, BODY]
    with stomp.connect(broker.url) as client, pytest.raises(TypeError, match="connect_async"):
        client.send(queue, halves())


def test_over_websocket(shell, broker, queue, tmp_path):
    client = shell.connect(f"ws://127.0.0.1:{broker.ws_port}/", stream_over=4096)
    (tmp_path / "body").write_bytes(BODY)
    client.send(queue, tmp_path / "body", receipt=True)
    client.send(queue, b"behind it", receipt=True)
    subscription = client.subscribe(queue)
    with subscription.get(patience(10)).open() as reader:
        assert reader.read() == BODY
    assert subscription.get(patience(10)).body == b"behind it"


# ---- sources that break their word ----


def failing():
    yield b"some"
    raise RuntimeError("no more")


BROKEN = {
    "less": (lambda: [b"abc"], 4, stomp.BodySourceError, "gave 3 bytes, and 4 were announced"),
    "more": (lambda: [b"abc"], 2, stomp.BodySourceError, "more than the 2 bytes"),
    "nothing": (lambda: [], 2, stomp.BodySourceError, "gave 0 bytes"),
    "raises": (failing, 10, RuntimeError, "no more"),
    "text": (lambda: ["abc"], 3, TypeError, "str"),
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("receipt", [False, True])
def test_a_broken_source_ends_the_connection_and_no_half_message_counts(shell, broker, queue, kind, receipt):
    make, length, error, words = BROKEN[kind]
    client = shell.connect(broker.url, reconnect=QUICK)
    epoch = client.epoch
    with pytest.raises(error, match=words):
        client.send(queue, make(), length=length, receipt=receipt)
    client.send(queue, b"next", receipt=True)
    assert client.epoch == epoch + 1
    assert client.subscribe(queue).get(patience(10)).body == b"next"


def test_a_source_that_fails_while_it_is_spooled_harms_no_connection(shell, broker, queue):
    client = shell.connect(broker.url)
    with pytest.raises(RuntimeError, match="no more"):
        client.send(queue, failing())
    client.send(queue, b"next", receipt=True)
    assert client.epoch == 1


@pytest.mark.parametrize(
    ("body", "options", "error"),
    [
        (io.StringIO("text"), {}, TypeError),
        (7, {}, TypeError),
        (b"", {"headers": {"content-length": "0"}}, None),
        ([b"a"], {"headers": {"content-length": "1"}}, stomp.StompError),
        ([b"a"], {"length": -1}, ValueError),
        ([b"a"], {"length": 1.0}, ValueError),
        ([b"a"], {"content_encoding": "gzip"}, ValueError),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is_sent(shell, peer, body, options, error):
    client = shell.connect(peer.url)
    if error is not None:
        with pytest.raises(error):
            client.send("/queue/a", body, **options)
    client.send("/queue/a", b"next", receipt=True)
    assert [frame.body for frame in peer.got("SEND")] == [b"next"]


def test_a_missing_file(shell, peer, tmp_path):
    client = shell.connect(peer.url)
    with pytest.raises(FileNotFoundError):
        client.send("/queue/a", tmp_path / "none")
    assert client.state == "connected"


def test_a_source_that_hangs_ends_the_connection(shell, peer):
    client = shell.connect(peer.url, reconnect=QUICK)
    gate = threading.Event()

    def hanging():
        yield b"a" * 100
        gate.wait(patience(30))
        yield b"a" * 100

    errors = []

    def send():
        try:
            client.send("/queue/a", hanging(), length=200, timeout=0.2)
        except stomp.StompError as error:
            errors.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    peer.wait(lambda peer: len(peer.sides) == 2)  # while it still hangs
    gate.set()
    sender.join(patience(10))
    assert isinstance(errors[0], stomp.BodySourceError)
    client.send("/queue/a", b"next", receipt=True)
    assert [frame.body for frame in peer.got("SEND")] == [b"next"]


@pytest.mark.parametrize("receipt", [False, True])
def test_a_body_over_the_brokers_limit_fails_with_the_name_of_the_limit(shell, broker, queue, tmp_path, receipt):
    path = tmp_path / "body"
    with path.open("wb") as file:
        file.truncate(64 * 2**20)
    client = shell.connect(broker.url, reconnect=QUICK)
    with pytest.raises(stomp.RejectedError, match="max_body"):
        client.send(queue, path, receipt=receipt)
    client.send(queue, b"next", receipt=True)


def test_a_cancelled_send_ends_the_connection(broker, queue):
    begun = asyncio.Event()

    async def endless():
        while True:
            yield b"x" * 1000
            begun.set()
            await asyncio.sleep(0)

    async def main():
        async with stomp.connect_async(broker.url, reconnect=QUICK) as client:
            task = asyncio.create_task(client.send(queue, endless(), length=2**21))
            await asyncio.wait_for(begun.wait(), patience(10))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await client.send(queue, b"next", receipt=True)
            return (await client.subscribe(queue).get(patience(10))).body, client.epoch

    assert asyncio.run(main()) == (b"next", 2)


def test_a_keyboard_interrupt_in_the_source_ends_the_connection(broker, queue):
    def interrupted():
        yield b"x" * 1000
        raise KeyboardInterrupt

    with stomp.connect(broker.url, reconnect=QUICK) as client:
        with pytest.raises(KeyboardInterrupt):
            client.send(queue, interrupted(), length=2000)
        client.send(queue, b"next", receipt=True)
        assert client.subscribe(queue).get(patience(10)).body == b"next"


# ---- others meanwhile, and losses ----


def test_others_wait_and_heart_beats_go_on(shell):
    with Peer(heart_beat=(interval(200), interval(200))) as peer:
        client = shell.connect(peer.url, heart_beat=(interval(200), interval(200)))
        gate, begun = threading.Event(), threading.Event()

        def slow():
            yield b"a" * 300
            begun.set()
            gate.wait(patience(30))
            yield b"b" * 300

        sender = threading.Thread(target=client.send, args=("/queue/slow", slow()), kwargs={"length": 600})
        if shell.name == "async":  # its loop must not block
            sender = threading.Thread(
                target=client.send, args=("/queue/slow", awaiting(begun, gate)), kwargs={"length": 600}
            )
        sender.start()
        assert begun.wait(patience(10))
        client.send("/queue/other", b"other")
        heard = peer.side().connection
        for _ in range(3):  # the peer hears bytes of the body, and drops no one
            last = heard._heard
            deadline = time.monotonic() + patience(10)
            while heard._heard == last and time.monotonic() < deadline:
                threading.Event().wait(0.01)
            assert heard._heard > last
        assert peer.got("SEND") == []
        gate.set()
        sender.join(patience(10))
        peer.wait(lambda peer: len(peer.got("SEND")) == 2)
        assert [frame.body for frame in peer.got("SEND")] == [b"a" * 300 + b"b" * 300, b"other"]
        assert peer.dead == []


async def awaiting(begun, gate):
    yield b"a" * 300
    begun.set()
    await asyncio.to_thread(gate.wait, patience(30))
    yield b"b" * 300


def cutting(peer, times=1):
    """Cut the connection when the head of a SEND has come, as often as that."""
    left = [times]

    def rule(side, frame):
        if left[0]:
            left[0] -= 1
            side.close()
        else:
            Peer.on_send(peer, side, frame)

    return rule


@pytest.mark.parametrize("kind", ["path", "file", "many"])
def test_a_body_that_can_be_read_again_is_sent_again_with_resend(shell, peer, tmp_path, kind):
    peer.rules["SEND"] = cutting(peer)
    client = shell.connect(peer.url, reconnect=QUICK)
    make, options = sources(tmp_path)[kind]
    client.send("/queue/a", make(), receipt=True, resend=True, **options)
    first, second = peer.got("SEND")
    assert first.body == second.body == BODY
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_one_that_cannot_raises(shell, peer):
    peer.rules["SEND"] = cutting(peer)
    client = shell.connect(peer.url, reconnect=QUICK)
    with pytest.raises(stomp.ConnectionLostError):
        client.send("/queue/a", iter([b"abc"]), length=3, receipt=True, resend=True)


def test_send_for_receipt_returns_when_the_body_is_sent(shell, peer, tmp_path):
    held = []
    peer.rules["SEND"] = lambda side, frame: held.append((side, frame))
    client = shell.connect(peer.url)
    make, _ = sources(tmp_path)["path"]
    receipt = client.send_for_receipt("/queue/a", make())
    peer.wait(lambda peer: held)
    assert not receipt.done
    peer.do(lambda: held[0][0].receipt(held[0][1]))
    receipt.wait()
    with pytest.raises(stomp.LocalProtocolError, match="resend"):
        client.send_for_receipt("/queue/a", make(), resend=True)


def test_in_a_transaction(shell, broker, queue):
    client = shell.connect(broker.url, reconnect=QUICK)
    # The broker may hand messages to the session that has ended before it notices that. It delivers those again.
    subscription = client.subscribe(queue, ack="client-individual")
    with client.transaction() as transaction:
        transaction.send(queue, iter([BODY]), length=len(BODY))
        transaction.send(queue, b"small")
    for body in (BODY, b"small"):
        message = subscription.get(patience(10))
        assert message.body == body
        message.ack(receipt=True)
    with pytest.raises(stomp.BodySourceError), client.transaction() as transaction:  # noqa: PT012
        transaction.send(queue, b"never seen")
        transaction.send(queue, iter([BODY]), length=len(BODY) + 1)
    assert transaction.state == "lost"
    client.send(queue, b"next", receipt=True)
    assert subscription.get(patience(10)).body == b"next"


# ---- receiving ----


def test_what_needs_the_body_in_memory_says_what_to_do(shell, broker, queue):
    client = shell.connect(broker.url, stream_over=4096)
    client.send(queue, b"x" * 5000)
    message = client.subscribe(queue).get(patience(10))
    for name in ("text", "content"):
        with pytest.raises(stomp.LocalProtocolError, match="open"):
            getattr(message, name)()
    with pytest.raises(stomp.LocalProtocolError, match="5000 bytes"):
        _ = message.body
    assert "streamed" in repr(message)


@pytest.mark.parametrize("size", [4096, 4097])
def test_the_threshold(shell, broker, queue, size):
    client = shell.connect(broker.url, stream_over=4096)
    client.send(queue, b"x" * size)
    message = client.subscribe(queue).get(patience(10))
    assert (message.is_streamed, message.size) == (size > 4096, size)


def test_no_threshold_is_below_what_a_waiting_thread_reads_at_once(monkeypatch):
    """It hands over bodies in memory only."""
    monkeypatch.setattr(sync, "AHEAD", 2**16)
    assert runpy.run_path(options.__file__)["SHORT"] >= 2**16


@pytest.mark.parametrize("value", [4095, -1, 5000.0, "5000", True])
def test_other_thresholds_are_refused(value):
    with pytest.raises(ValueError, match="stream_over"):
        stomp.Options(stream_over=value)


def test_a_reader_is_a_binary_file(broker, queue):
    with stomp.connect(broker.url, stream_over=4096) as client:
        client.send(queue, b"line\n" * 2000)
        message = client.subscribe(queue).get(patience(10))
        with message.open() as reader, message.open() as other:
            assert (reader.read(3), other.read(5)) == (b"lin", b"line\n")
            buffer = bytearray(4)
            assert (reader.readinto(buffer), buffer) == (4, b"e\nli")
            assert (reader.seek(-3, os.SEEK_END), reader.read(), reader.read(), reader.tell()) == (
                9997,
                b"ne\n",
                b"",
                10000,
            )
            assert reader.seek(0) == 0
            assert b"".join(reader) == b"line\n" * 2000
            assert len(io.BufferedReader(other).readlines()) == 1999
            with pytest.raises(ValueError, match="-1"):
                reader.seek(-1)
        with pytest.raises(ValueError, match="closed"):
            reader.read(1)


def test_an_asynchronous_reader(broker, queue):
    async def main():
        async with stomp.connect_async(broker.url, stream_over=4096) as client:
            await client.send(queue, BODY)
            message = await client.subscribe(queue).get(patience(10))
            async with message.open() as reader:
                first = await reader.read(10)
                buffer = bytearray(10)
                count = await reader.readinto(buffer)
                pieces = [piece async for piece in reader]
                assert (reader.tell(), await reader.read(), await reader.seek(5)) == (len(BODY), b"", 5)
            return first + buffer[:count] + b"".join(pieces), max(map(len, pieces))

    octets, longest = asyncio.run(main())
    assert octets == BODY
    assert longest == 256 * 1024


def test_a_reader_outlives_client_and_message(shell, broker, queue):
    client = shell.connect(broker.url, stream_over=4096)
    client.send(queue, BODY)
    reader = client.subscribe(queue).get(patience(10)).open()
    client.close()
    with reader:
        assert reader.read() == BODY


def test_replies_and_fetched_messages_are_streamed_too(shell, broker, queue):
    client = shell.connect(broker.url, stream_over=4096)
    client.subscribe(queue, handler=shell.handler(lambda message: message.reply(BODY)))
    reply = client.request(queue, b"please", timeout=patience(10))
    with reply.open() as reader:
        assert reader.read() == BODY
    client.send(queue + "2", BODY, receipt=True)
    fetched = client.receive(queue + "2")
    with fetched.open() as reader:
        assert reader.read() == BODY


def test_a_full_disk_fails_the_reader_and_not_the_connection(shell, broker, queue, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    client = shell.connect(broker.url, stream_over=4096)
    client.send(queue, BODY, receipt=True)
    monkeypatch.setattr(received, "write_all", full)
    subscription = client.subscribe(queue, ack="client-individual")
    message = subscription.get(patience(10))
    with pytest.raises(OSError, match="No space left") as raised:
        message.open()
    assert raised.value.errno == errno.ENOSPC
    monkeypatch.undo()
    message.nack(requeue=True)
    with subscription.get(patience(10)).open() as reader:
        assert reader.read() == BODY
    assert client.epoch == 1


def test_the_spool_folder_is_used_and_nothing_is_left_in_it(shell, broker, queue, tmp_path):
    client = shell.connect(broker.url, stream_over=4096, spool_folder=tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        client.send(queue, [b"a", b"b"])
    client.send(queue, BODY, receipt=True)
    with pytest.raises(OSError, match="could not be kept"):
        client.subscribe(queue).get(patience(10)).open()
    client.close()
    client = shell.connect(broker.url, stream_over=4096, spool_folder=tmp_path)
    client.send(queue, iter([BODY]), receipt=True)
    with client.subscribe(queue).get(patience(10)).open() as reader:
        assert reader.read() == BODY
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [received.ReceivedBody, Spool])
def test_a_body_in_garbage_is_closed_without_a_warning(make, monkeypatch, tmp_path):
    """Python may finalize garbage in any order: here first the file, which a collection has parted from its owner."""

    def parted(**options):
        gc.collect(0)
        return make_file(**options)

    make_file = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", parted)
    gc.collect()
    gc.disable()
    try:
        cycle = [make(tmp_path)]
        cycle.append(cycle)
        file = weakref.ref(cycle[0]._file)
        del cycle
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            gc.collect()
    finally:
        gc.enable()
    assert file() is None
    assert not seen, [str(each.message) for each in seen]


def test_a_consumer_that_takes_nothing_stops_the_reading_and_keeps_its_session(shell):
    with Peer(heart_beat=(interval(300), interval(300))) as peer:
        client = shell.connect(
            peer.url, stream_over=4096, inbox_octets=100_000, heart_beat=(interval(300), interval(300))
        )
        subscription = client.subscribe("/queue/a")
        link = (client if shell.name == "sync" else client.target)._link
        stop = threading.Event()

        def flood():
            peer.do(lambda: [peer.side().deliver("s1", BODY, count=1)])

        for _ in range(2):
            flood()
        deadline = time.monotonic() + patience(10)
        while not link.core.inbound.paused and time.monotonic() < deadline:
            stop.wait(0.01)
        assert link.core.inbound.paused
        assert link.core.inbound.backlog <= 2
        beats = peer.side().connection
        last = beats._heard
        while beats._heard == last and time.monotonic() < deadline:
            stop.wait(0.01)
        assert beats._heard > last  # it goes on sending heart-beats
        for _ in range(2):
            with subscription.get(patience(10)).open() as reader:
                assert reader.read() == BODY
        assert (client.epoch, peer.dead) == (1, [])


def test_a_body_that_is_cut_is_not_delivered(shell, peer):
    client = shell.connect(peer.url, stream_over=4096, reconnect=QUICK)
    subscription = client.subscribe("/queue/a")
    head = b"MESSAGE\nsubscription:s1\nmessage-id:1\ndestination:/queue/a\ncontent-length:9000\n\n"

    def half():
        peer.side().sock.sendall(head + b"x" * 5000)
        peer.side().close()

    peer.do(half)
    peer.wait(lambda peer: len(peer.got("SUBSCRIBE")) == 2)
    peer.deliver("s1", b"whole")
    assert subscription.get(patience(10)).body == b"whole"


def test_bodies_of_an_ended_subscription_are_dropped(shell, peer):
    client = shell.connect(peer.url, stream_over=4096)
    subscription = client.subscribe("/queue/a")
    other = client.subscribe("/queue/b")
    kept = dict(peer.side().subscriptions)
    subscription.unsubscribe()
    peer.do(lambda: peer.side().subscriptions.update(kept))
    peer.deliver("s1", BODY)
    peer.deliver("s2", b"kept")
    assert other.get(patience(10)).body == b"kept"
