"""Streamed bodies with both shells: sources of every kind, broken sources, and readers of received bodies."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import warnings
import weakref
from pathlib import Path

import pytest
from client.broker import BrokerThread
from client.feeding import wait_for
from client.peer import Peer
from client.shells import QUICK
from crash.process import BrokerProcess
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


class OneWay(io.BytesIO):
    """A file that cannot seek, as a pipe."""

    def seekable(self):
        return False

    def seek(self, *_):
        raise io.UnsupportedOperation

    tell = seek


def sources(tmp_path):
    path = tmp_path / "body"
    path.write_bytes(BODY)
    halves = [BODY[:300_001], b"", memoryview(BODY)[300_001:]]
    offset = io.BytesIO(b"before" + BODY)
    offset.seek(6)
    return {
        "path": (lambda: path, {}),
        "file": (lambda: io.FileIO(path), {}),
        "memory": (lambda: offset, {}),
        "one way": (lambda: OneWay(BODY), {}),
        "one way with length": (lambda: OneWay(BODY), {"length": len(BODY)}),
        "list": (lambda: halves, {}),
        "generator with length": (lambda: (each for each in halves), {"length": len(BODY)}),
        "many": (lambda: (BODY[at : at + 100] for at in range(0, len(BODY), 100)), {}),
    }


KINDS = ["path", "file", "memory", "one way", "one way with length", "list", "generator with length", "many"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_source(shell, broker, queue, tmp_path, kind):
    client = shell.connect(broker.url, stream_over=4096)
    make, options = sources(tmp_path)[kind]
    with contextlib.closing(make()) if kind == "file" else contextlib.nullcontext(make()) as source:
        client.send(queue, source, {"n": "1"}, receipt=True, **options)
    message = client.subscribe(queue).get(patience(10))
    assert (message.is_streamed, message.size, message.get("n")) == (True, len(BODY), "1")
    with message.open() as reader:
        assert reader.read() == BODY


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


# ---- sources that break their word ----


def failing():
    yield b"some"
    raise RuntimeError("no more")


def interrupted():
    yield b"x" * 1000
    raise KeyboardInterrupt


#: Its pieces, the length that is announced, and what the caller gets.
BROKEN = {
    "is interrupted": (interrupted, 2000, KeyboardInterrupt, None),
    "less": (lambda: [b"abc"], 4, stomp.BodySourceError, "gave 3 bytes, and 4 were announced"),
    "more": (lambda: [b"abc"], 2, stomp.BodySourceError, "more than the 2 bytes"),
    "nothing": (lambda: [], 2, stomp.BodySourceError, "gave 0 bytes"),
    "raises": (failing, 10, RuntimeError, "no more"),
    "text": (lambda: ["abc"], 3, TypeError, "str"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_source_ends_the_connection_and_no_half_message_counts(shell, broker, queue, kind):
    """While it is spooled, for want of a length, it does the connection no harm."""
    make, length, error, words = BROKEN[kind]
    if error is KeyboardInterrupt and shell.name == "async":
        pytest.skip("it ends the loop")
    client = shell.connect(broker.url, reconnect=QUICK)
    for epoch, receipt in enumerate((False, True), 2):
        with pytest.raises(error, match=words):
            client.send(queue, make(), length=length, receipt=receipt)
        client.send(queue, b"next", receipt=True)
        assert client.epoch == epoch
    subscription = client.subscribe(queue)
    assert [subscription.get(patience(10)).body for _ in range(2)] == [b"next"] * 2
    if error not in (stomp.BodySourceError, KeyboardInterrupt):
        with pytest.raises(error, match=words):
            client.send(queue, make())
        assert client.ping()
        assert client.epoch == epoch


@pytest.mark.parametrize(
    ("body", "options", "error"),
    [
        (io.StringIO("text"), {}, TypeError),
        (7, {}, TypeError),
        ([b"a"], {"headers": {"content-length": "1"}}, stomp.StompError),
        ([b"a"], {"length": -1}, ValueError),
        (Path("none"), {}, FileNotFoundError),
        ([b"a"], {"content_encoding": "gzip"}, ValueError),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is_sent(shell, peer, body, options, error):
    client = shell.connect(peer.url)
    with pytest.raises(error):
        client.send("/queue/a", body, **options)
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


# ---- others meanwhile, and losses ----


def hears(peer):
    """Wait until the client has sent bytes, of a heart-beat or of a body."""
    connection = peer.side().connection
    last = connection._heard
    wait_for(lambda: connection._heard > last)


def test_others_wait_and_heart_beats_go_on(shell):
    beat = (interval(200), interval(200))
    with Peer(heart_beat=beat) as peer:
        client = shell.connect(peer.url, heart_beat=beat)
        gate, begun = threading.Event(), threading.Event()

        def slow():
            yield b"a" * 300
            begun.set()
            gate.wait(patience(30))
            yield b"b" * 300

        async def awaiting():
            for piece in (waiting := slow()):
                yield piece
                if piece[:1] == b"a":  # the loop must not block
                    await asyncio.to_thread(lambda: (begun.set(), gate.wait(patience(30))))
            waiting.close()

        source = slow() if shell.name == "sync" else awaiting()
        sender = threading.Thread(target=client.send, args=("/queue/slow", source), kwargs={"length": 600})
        sender.start()
        assert begun.wait(patience(10))
        client.send("/queue/other", b"other")
        for _ in range(3):  # the peer hears bytes of the body, and drops no one
            hears(peer)
        assert peer.got("SEND") == []
        gate.set()
        sender.join(patience(10))
        peer.wait(lambda peer: len(peer.got("SEND")) == 2)
        assert [frame.body for frame in peer.got("SEND")] == [b"a" * 300 + b"b" * 300, b"other"]
        assert peer.dead == []


@pytest.mark.parametrize("kind", ["path", "memory", "many", None])
def test_a_body_that_can_be_read_again_is_sent_again_with_resend(shell, peer, tmp_path, kind):
    """The first SEND cuts the connection. One that cannot be read again raises."""
    peer.rules["SEND"] = lambda side, frame: side.close() if side.number == 1 else Peer.on_send(peer, side, frame)
    client = shell.connect(peer.url, reconnect=QUICK)
    if kind is None:
        with pytest.raises(stomp.ConnectionLostError):
            client.send("/queue/a", iter([b"abc"]), length=3, receipt=True, resend=True)
        return
    make, options = sources(tmp_path)[kind]
    client.send("/queue/a", make(), receipt=True, resend=True, **options)
    first, second = peer.got("SEND")
    assert first.body == second.body == BODY
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


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


# ---- receiving ----


def test_the_threshold(shell, broker, queue):
    """What needs the body in memory says what to do. A reader outlives client and message."""
    client = shell.connect(broker.url, stream_over=4096)
    for size in (4096, 4097):
        client.send(queue, b"x" * size, receipt=True)
    subscription = client.subscribe(queue)
    whole, message = subscription.get(patience(10)), subscription.get(patience(10))
    assert [(each.is_streamed, each.size) for each in (whole, message)] == [(False, 4096), (True, 4097)]
    for name in ("text", "content"):
        with pytest.raises(stomp.LocalProtocolError, match="open"):
            getattr(message, name)()
    with pytest.raises(stomp.LocalProtocolError, match="4097 bytes"):
        _ = message.body
    assert "streamed" in repr(message)
    with whole.open() as reader:
        assert (reader.size, reader.read()) == (4096, b"x" * 4096)
    reader = message.open()
    client.close()
    del message, subscription
    with reader:
        assert reader.read() == b"x" * 4097


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


_CLIENT = """
import hashlib, json, pathlib, resource, sys
import stompcodec.client as stomp
from stompcodec.spec import Limits

url, size, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
piece = bytes(range(256)) * 1024
path = folder / "body"
sent = hashlib.sha256()
with path.open("wb") as file:
    for _ in range(size // len(piece)):
        file.write(piece)
        sent.update(piece)

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

with stomp.connect(url, stream_over=65536, limits=Limits(max_body=size), spool_folder=folder) as client:
    subscription = client.subscribe("/queue/big", ack="client-individual", prefetch=1)
    client.send("/queue/small", b"warm", receipt=True)
    before = most()
    for body in (path, (piece for _ in range(size // len(piece)))):
        client.send("/queue/big", body, receipt=True, timeout=600)
        message = subscription.get(600)
        got = hashlib.sha256()
        with message.open() as reader:
            for part in reader:
                got.update(part)
        message.ack(receipt=True)
        assert got.digest() == sent.digest()
        del message, reader
print(json.dumps({"grown": most() - before}))
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, and ru_maxrss in KiB")
def test_a_large_body_is_never_in_memory_as_a_whole(tmp_path):
    size, most = 96 * 2**20, 64 * 2**20  # a body in memory would be more than the growth that is allowed
    config = f"[limits]\nmax_body = {size}\n"
    with BrokerProcess(tmp_path / "broker", config=config, memory=True) as broker:
        before = broker.rss()
        done = subprocess.run(
            [sys.executable, "-c", _CLIENT, f"stomp://127.0.0.1:{broker.port}", str(size), str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=patience(300),
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["grown"] < most
        assert broker.peak() - before < most
