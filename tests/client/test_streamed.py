"""Streamed bodies: sources of every kind, broken sources and readers with both shells; bodies in pieces in the core."""

import asyncio
import contextlib
import errno
import io
import os
import sys

import pytest
from client.broker import BrokerThread
from client.peer import Peer
from client.scripted import Scripted
from client.shells import QUICK
from crash.process import BrokerProcess
from installed import program
from patience import patience

import stompcodec.client as stomp
from stompcodec.client import bodies as received
from stompcodec.client.bodies import BodySourceError
from stompcodec.client.outbox import Upload
from stompcodec.errors import ConnectionLostError, FrameError, LocalProtocolError, ReceiptTimeoutError
from stompcodec.spec import Limits

BODY = bytes(range(256)) * 4000  # over 1 MB: several pieces


@pytest.fixture(scope="module")
def broker():
    with BrokerThread(limits=Limits(max_body=2**21), ws_port=0) as broker:
        yield broker


@pytest.fixture
def streaming(shell, broker):
    return shell.connect(broker.url, stream_over=4096)


def read(message):
    with message.open() as reader:
        return reader.read()


class OneWay(io.BytesIO):
    def seekable(self):
        return False

    def seek(self, *_):
        raise io.UnsupportedOperation

    tell = seek


def offset(_):
    file = io.BytesIO(b"before" + BODY)
    file.seek(6)
    return file


HALVES = [BODY[:300_001], b"", memoryview(BODY)[300_001:]]
#: How each kind of source is made from a path, and the options that it is sent with.
SOURCES = {
    **{"path": (lambda path: path, {}), "file": (io.FileIO, {}), "memory": (offset, {})},
    "one way": (lambda _: OneWay(BODY), {}),
    **{"one way with length": (lambda _: OneWay(BODY), {"length": len(BODY)}), "list": (lambda _: HALVES, {})},
    "generator with length": (lambda _: iter(HALVES), {"length": len(BODY)}),
    "many": (lambda _: (BODY[at : at + 100] for at in range(0, len(BODY), 100)), {}),
}


@pytest.fixture
def path(tmp_path):
    (tmp_path / "body").write_bytes(BODY)
    return tmp_path / "body"


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source(streaming, queue, path, kind):
    make, options = SOURCES[kind]
    with contextlib.closing(make(path)) if kind == "file" else contextlib.nullcontext(make(path)) as source:
        streaming.send(queue, source, {"n": "1"}, receipt=True, **options)
    message = streaming.subscribe(queue).get(patience(10))
    assert (message.is_streamed, message.size, message.get("n")) == (True, len(BODY), "1")
    assert read(message) == BODY


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


def failing():
    yield b"some"
    raise RuntimeError("no more")


def interrupted():
    yield b"x" * 1000
    raise KeyboardInterrupt


#: Its pieces, the length that is announced, and what the caller gets.
BROKEN = {
    "is interrupted": (interrupted, 2000, KeyboardInterrupt, None),
    "less": (lambda: [b"abc"], 4, BodySourceError, "gave 3 bytes, and 4 were announced"),
    "more": (lambda: [b"abc"], 2, BodySourceError, "more than the 2 bytes"),
    "nothing": (lambda: [], 2, BodySourceError, "gave 0 bytes"),
    **{"raises": (failing, 10, RuntimeError, "no more"), "text": (lambda: ["abc"], 3, TypeError, "str")},
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
    if error not in (BodySourceError, KeyboardInterrupt):
        with pytest.raises(error, match=words):
            client.send(queue, make())
        assert client.ping()
        assert client.epoch == epoch


@pytest.mark.parametrize("receipt", [False, True])
def test_a_body_over_the_brokers_limit_fails_with_the_name_of_the_limit(shell, broker, queue, path, receipt):
    os.truncate(path, 64 * 2**20)
    client = shell.connect(broker.url, reconnect=QUICK)
    with pytest.raises(stomp.RejectedError, match="max_body"):
        client.send(queue, path, receipt=receipt)
    client.send(queue, b"next", receipt=True)


@pytest.mark.parametrize("kind", ["path", "memory", "many", None])
def test_a_body_that_can_be_read_again_is_sent_again_with_resend(shell, peer, path, kind):
    peer.rules["SEND"] = lambda side, frame: side.close() if side.number == 1 else Peer.on_send(peer, side, frame)
    client = shell.connect(peer.url, reconnect=QUICK)
    if kind is None:
        with pytest.raises(ConnectionLostError):
            client.send("/queue/a", iter([b"abc"]), length=3, receipt=True, resend=True)
        return
    make, options = SOURCES[kind]
    client.send("/queue/a", make(path), receipt=True, resend=True, **options)
    first, second = peer.got("SEND")
    assert first.body == second.body == BODY
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_send_for_receipt_returns_when_the_body_is_sent(shell, peer, path):
    held = []
    peer.rules["SEND"] = lambda side, frame: held.append((side, frame))
    client = shell.connect(peer.url)
    receipt = client.send_for_receipt("/queue/a", path)
    peer.wait(lambda peer: held)
    assert not receipt.done
    peer.do(lambda: held[0][0].receipt(held[0][1]))
    receipt.wait()
    with pytest.raises(LocalProtocolError, match="resend"):
        client.send_for_receipt("/queue/a", path, resend=True)
    with pytest.raises(TypeError, match="text mode"):
        client.send("/queue/a", io.StringIO("text"))


# ---- receiving ----
def test_the_threshold(streaming, queue):
    for size in (4096, 4097):
        streaming.send(queue, b"x" * size, receipt=True)
    subscription = streaming.subscribe(queue)
    whole, message = subscription.get(patience(10)), subscription.get(patience(10))
    assert [(each.is_streamed, each.size) for each in (whole, message)] == [(False, 4096), (True, 4097)]
    for name in ("text", "content"):
        with pytest.raises(LocalProtocolError, match="open"):
            getattr(message, name)()
    with pytest.raises(LocalProtocolError, match="4097 bytes"):
        _ = message.body
    assert "streamed" in repr(message)
    assert (whole.open().size, read(whole)) == (4096, b"x" * 4096)
    reader = message.open()
    streaming.close()
    del message, subscription
    with reader:
        assert reader.read() == b"x" * 4097


def test_a_reader_is_a_binary_file(broker, queue):
    with stomp.connect(broker.url, stream_over=4096) as client:
        client.send(queue, b"line\n" * 2000)
        message = client.subscribe(queue).get(patience(10))
        with message.open() as reader, message.open() as other:
            assert (reader.read(3), other.read(5)) == (b"lin", b"line\n")
            buffer = bytearray(4)
            assert (reader.readinto(buffer), buffer) == (4, b"e\nli")
            assert (reader.seek(-3, os.SEEK_END), reader.read(), reader.read()) == (9997, b"ne\n", b"")
            assert (reader.tell(), reader.seek(0)) == (10000, 0)
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
                first, buffer = await reader.read(10), bytearray(10)
                count = await reader.readinto(buffer)
                pieces = [piece async for piece in reader]
                assert (reader.tell(), await reader.read(), await reader.seek(5)) == (len(BODY), b"", 5)
            return first + buffer[:count] + b"".join(pieces), max(map(len, pieces))

    assert asyncio.run(main()) == (BODY, 256 * 1024)


def test_replies_and_fetched_messages_are_streamed_too(shell, streaming, queue):
    streaming.subscribe(queue, handler=shell.handler(lambda message: message.reply(BODY)))
    assert read(streaming.request(queue, b"please", timeout=patience(10))) == BODY
    streaming.send(queue + "2", BODY, receipt=True)
    assert read(streaming.receive(queue + "2")) == BODY


def test_a_full_disk_fails_the_reader_and_not_the_connection(streaming, queue, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    streaming.send(queue, BODY, receipt=True)
    monkeypatch.setattr(received, "write_all", full)
    subscription = streaming.subscribe(queue, ack="client-individual")
    message = subscription.get(patience(10))
    with pytest.raises(OSError, match="No space left") as raised:
        message.open()
    assert raised.value.errno == errno.ENOSPC
    monkeypatch.undo()
    message.nack(requeue=True)
    assert (read(subscription.get(patience(10))), streaming.epoch) == (BODY, 1)


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
    assert read(client.subscribe(queue).get(patience(10))) == BODY
    assert list(tmp_path.iterdir()) == []


_CLIENT = """
import hashlib, pathlib, resource, sys
import stompcodec.client as stomp
from stompcodec.spec import Limits

url, size, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
piece = bytes(range(256)) * 1024
path, sent = folder / "body", hashlib.sha256()
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
        message, got = subscription.get(600), hashlib.sha256()
        with message.open() as reader:
            for part in reader:
                got.update(part)
        message.ack(receipt=True)
        assert got.digest() == sent.digest()
        del message, reader
print(most() - before)
"""


def test_a_body_that_is_cut_is_not_delivered(shell, peer):
    client = shell.connect(peer.url, stream_over=4096, reconnect=QUICK)
    subscription = client.subscribe("/queue/a")
    head = b"MESSAGE\nsubscription:s1\nmessage-id:1\ndestination:/queue/a\ncontent-length:9000\n\n"
    peer.do(lambda: (peer.side().sock.sendall(head + b"x" * 5000), peer.side().close()))
    peer.wait(lambda peer: len(peer.got("SUBSCRIBE")) == 2)
    peer.deliver("s1", b"whole")
    assert subscription.get(patience(10)).body == b"whole"


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, and ru_maxrss in KiB")
def test_a_large_body_is_never_in_memory_as_a_whole(tmp_path):
    size, most = 96 * 2**20, 64 * 2**20  # a body in memory would be more than the growth that is allowed
    with BrokerProcess(tmp_path / "broker", config=f"[limits]\nmax_body = {size}\n", memory=True) as broker:
        before = broker.rss()
        assert int(program("-c", _CLIENT, f"stomp://127.0.0.1:{broker.port}", size, tmp_path)) < most
        assert broker.peak() - before < most


# ---- piece by piece, in the core: what waits for their end, heart-beats, losses and refusals ----
def error_of(call):
    assert call.done, call
    return call.error


class Body:
    def __init__(self, client, body=b"hello", *, receipt=False, resend=False, timeout=30.0, transaction=None):
        self.client, self.body = client, body
        self.call = client.call("SEND", timeout, resend=resend) if receipt else None
        pairs = [("destination", "/queue/big"), *([("receipt", self.call.id)] if receipt else [])]
        self.upload = Upload("SEND to /queue/big", pairs, len(body), timeout, self.call)
        self.was_put = client.core.upload(self.upload, client.now, transaction)

    def ask(self):
        asked = self.client.call("piece", 30.0)
        self.client.core.ask(self.upload, self.client.now, asked)
        return asked

    def feed(self, size=None):
        asked = self.ask()
        assert error_of(asked) is None
        self.give(asked.result, self.body[asked.result :][:size])
        return self.client.frames()

    def give(self, at, piece):
        self.client.core.feed(self.upload, at, piece, self.client.now)

    def finish(self):
        found = []
        while self.upload.state == "open":
            found += self.feed()
        return found


def begun(client, *args, **options):
    body = Body(client, *args, **options)
    assert body.was_put
    assert client.frames() == []
    return body


def beating(**options):
    return Scripted(heart_beat=(1000, 0), server_beat=(0, 1000), **options).connect()


def test_everything_else_waits_for_the_end_of_the_body_in_order(client):
    subscription = client.subscribed("client-individual")
    message, body = client.deliver(subscription), begun(client, b"x" * 100)
    body.feed(50)
    assert client.core.acknowledge(message) is False
    client.ack(message)
    assert client.core.link.put_plain("/queue/a", b"plain") is False
    client.send(b"1")
    late = client.subscribe()
    client.send(b"2")
    assert client.frames() == []
    assert not client.core.link.has_output()
    body.finish()
    client.confirm_all()
    assert [frame.command for _, frame in client.seen][-5:] == ["SEND", "SUBSCRIBE", "ACK", "SEND", "SEND"]
    assert [frame.body for _, frame in client.seen][-2:] == [b"1", b"2"]
    assert late.subscribed


def test_a_heart_beat_in_a_body_is_a_byte_of_the_body():
    client, heard = beating(receipt_timeout=1000.0), []
    body = begun(client, bytes(range(200)), timeout=1000.0)
    body.feed(100)
    for _ in range(20):
        client.wait(0.5)
        octets = b"".join(client.core.link.take_output(client.now))
        heard.append(len(octets))
        assert list(client.server.receive(octets, client.now)) == []
    assert heard == [1] * 20
    body.give(100, body.body[100:])
    client.frames()
    assert [frame.body for frame in body.feed()] == [body.body]


def test_without_a_byte_to_spare_no_beat_is_sent_and_the_core_does_not_spin():
    client = beating()
    begun(client, b"xyz", timeout=1000.0)
    client.wait(0.5)
    assert client.core.link.take_output(client.now) == []
    assert client.core.link.next_deadline() > client.now


def test_a_source_that_gives_nothing_in_time_ends_the_connection(client):
    body = begun(client, receipt=True, timeout=5.0)
    assert body.ask().done
    client.wait(4.9)
    assert client.core.link.connection is not None
    client.wait(0.2)
    assert client.core.link.connection is None
    assert isinstance(error_of(body.ask()), BodySourceError)
    assert isinstance(error_of(body.call), BodySourceError)


def test_a_caller_who_gives_up_in_the_body_ends_the_connection_and_before_it_does_not(client):
    first, second = begun(client), Body(client)
    for body, is_up, frames in ((second, True, 1), (first, False, 0)):
        client.core.give_up(body.upload, "given up", client.now)
        assert (client.core.link.connection is not None, client.core.link.outbox.frames) == (is_up, frames)
    assert error_of(first.ask()).sent is False


def test_with_resend_a_body_begins_anew_before_all_others(client):
    body = begun(client, b"x" * 200, receipt=True, resend=True)
    body.feed(100)
    client.core.link.writable(False)
    client.send(b"later")
    again = body.ask()
    client.lose()
    assert (error_of(again), again.result) == (None, -1)
    client.connect()
    body.give(100, b"too late")
    asked = body.ask()
    client.frames()
    assert asked.result == 0
    body.give(0, body.body)
    client.frames()
    sends = [frame for frame in body.feed() if frame.command == "SEND"]
    assert [frame.body for frame in sends] == [body.body, b"later"]
    client.receipt(sends[0])
    assert error_of(body.call) is error_of(body.ask()) is None


def test_the_timeout_of_the_receipt_begins_with_the_end_of_the_body(client):
    body = begun(client, receipt=True, timeout=5.0)
    for _ in range(2):
        client.wait(4.0)
        body.feed()
    client.wait(4.9)
    assert not body.call.done
    client.wait(0.2)
    assert isinstance(error_of(body.call), ReceiptTimeoutError)
    assert isinstance(error_of(body.ask()), ReceiptTimeoutError)
    assert client.core.link.connection is not None


def test_a_body_in_a_transaction_is_bound_to_its_connection(client):
    transaction = client.begin()
    client.frames()
    begun(client, transaction=transaction).finish()
    assert client.seen[-1][1].headers["transaction"] == transaction.id
    waiting, bound = begun(client, b"a" * 9), Body(client, transaction=transaction)
    client.lose()
    for body in (bound, waiting):
        assert isinstance(error_of(body.ask()), ConnectionLostError)
    with pytest.raises(ConnectionLostError):
        Body(client, transaction=transaction)


def test_closing_the_client_ends_bodies(client):
    bodies, closed = (begun(client), Body(client)), client.call("close", 5.0)
    client.core.close(client.now, closed)
    with pytest.raises(LocalProtocolError):
        Body(client)
    client.wait(6.0)
    assert closed.done
    assert all(isinstance(error_of(body.ask()), ConnectionLostError) for body in bodies)


def test_a_head_that_the_next_version_cannot_carry_fails_and_others_go_on(client):
    client.lose()
    upload = Upload("SEND", [("destination", "/queue/a"), ("a:b", "3")], 3, 5.0)
    client.core.upload(upload, client.now)
    client.send(b"next")
    client.version = "1.0"
    client.connect()
    client.frames()
    assert upload.state == "over"
    assert isinstance(upload.error, FrameError)
    assert [frame.body for _, frame in client.seen if frame.command == "SEND"] == [b"next"]
