"""Bodies that are sent piece by piece, in the core: what waits for their end, heart-beats, losses and refusals."""

from __future__ import annotations

import pytest
from client.scripted import Scripted

from stompcodec.client.bodies import BodySourceError
from stompcodec.client.outbox import Upload
from stompcodec.errors import ConnectionLostError, FrameError, LocalProtocolError, ReceiptTimeoutError


def outcome(call):
    """The error of a call that is done, or None."""
    assert call.done, call
    return call.error


class Body:
    """An upload, and the caller who has its source."""

    def __init__(self, client, body=b"hello", *, receipt=False, resend=False, timeout=30.0, transaction=None):
        self.client, self.body = client, body
        self.call = client.call("SEND", timeout, resend=resend) if receipt else None
        pairs = [("destination", "/queue/big"), *([("receipt", self.call.id)] if receipt else [])]
        self.upload = Upload("SEND to /queue/big", pairs, len(body), timeout, self.call)
        self.was_put = client.core.upload(self.upload, client.now, transaction)

    def ask(self):
        """The call by which the next piece is asked for."""
        asked = self.client.call("piece", 30.0)
        self.client.core.ask(self.upload, self.client.now, asked)
        return asked

    def feed(self, size=None):
        """Give the next piece, all that is left by default; then the end."""
        asked = self.ask()
        assert outcome(asked) is None
        piece = self.body[asked.result :][:size]
        self.client.core.feed(self.upload, asked.result, piece, self.client.now)

    def finish(self):
        while self.upload.state == "open":
            self.feed()
            self.client.frames()

    def whole(self):
        """Give all, and the end; the frames that the client sends."""
        self.feed()
        found = self.client.frames()
        self.feed()
        return found + self.client.frames()


@pytest.fixture
def client():
    return Scripted().connect()


def begun(client, *args, **options):
    body = Body(client, *args, **options)
    assert body.was_put
    assert client.frames() == []
    return body


def test_a_body_goes_out_piece_by_piece_and_is_one_frame(client):
    body = begun(client, b"0123456789" * 100)
    for size in (1, 10, 500, 489):
        body.feed(size)
        assert client.frames() == []
    body.feed()
    (frame,) = client.frames()
    assert (frame.command, frame.body, frame.get("content-length")) == ("SEND", body.body, "1000")
    assert body.upload.state == "over"
    assert outcome(body.ask()) is None
    begun(client, b"").feed()
    assert [frame.body for frame in client.frames()] == [b""]


def test_everything_else_waits_for_the_end_of_the_body_in_order(client):
    subscription = client.subscribed("client-individual")
    message = client.deliver(subscription)
    body = begun(client, b"x" * 100)
    body.feed(50)
    assert client.core.acknowledge(message) is False
    client.core.settle(message, "ACK", client.now)
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


def test_a_piece_is_asked_for_only_while_the_transport_takes_more(client):
    body = begun(client, b"x" * 1000)
    client.core.link.writable(False)
    asked = body.ask()
    assert not asked.done
    client.core.link.writable(True)
    assert asked.done
    assert asked.result == 0


def test_a_heart_beat_in_a_body_is_a_byte_of_the_body():
    client = Scripted(heart_beat=(1000, 0), server_beat=(0, 1000), receipt_timeout=1000.0).connect()
    body = begun(client, bytes(range(200)), timeout=1000.0)
    body.feed(100)
    client.frames()
    heard = []
    for _ in range(20):
        client.wait(0.5)
        octets = b"".join(client.core.link.take_output(client.now))
        heard.append(len(octets))
        assert list(client.server.receive(octets, client.now)) == []
    assert heard == [1] * 20
    client.core.feed(body.upload, 100, body.body[100:], client.now)
    client.frames()
    body.feed()
    (frame,) = client.frames()
    assert frame.body == body.body


def test_without_a_byte_to_spare_no_beat_is_sent_and_the_core_does_not_spin():
    client = Scripted(heart_beat=(1000, 0), server_beat=(0, 1000)).connect()
    begun(client, b"xyz", timeout=1000.0)
    client.wait(0.5)
    assert client.core.link.take_output(client.now) == []
    assert client.core.link.next_deadline() > client.now


def test_a_source_that_gives_nothing_in_time_ends_the_connection(client):
    body = begun(client, receipt=True, timeout=5.0)
    asked = body.ask()
    assert asked.done
    client.wait(4.9)
    assert client.core.link.connection is not None
    client.wait(0.2)
    assert client.core.link.connection is None
    assert isinstance(outcome(body.ask()), BodySourceError)
    assert isinstance(outcome(body.call), BodySourceError)


def test_a_caller_who_gives_up_in_the_body_ends_the_connection_and_before_it_does_not(client):
    first, second = begun(client), Body(client)
    client.core.give_up(second.upload, "given up", client.now)
    assert client.core.link.connection is not None
    assert client.core.link.outbox.frames == 1
    client.core.give_up(first.upload, "given up", client.now)
    assert client.core.link.connection is None
    assert client.core.link.outbox.frames == 0
    assert outcome(first.ask()).sent is False


@pytest.mark.parametrize("fed", [0, 3, 5])
def test_a_loss_in_the_body_says_that_nothing_was_sent(client, fed):
    body = begun(client, receipt=True)
    if fed:
        body.feed(fed)
    client.lose()
    for error in (outcome(body.ask()), outcome(body.call)):
        assert isinstance(error, ConnectionLostError)
        assert error.sent is False
    client.connect()
    assert client.commands() == []


def test_with_resend_a_body_begins_anew_before_all_others(client):
    body = begun(client, b"x" * 200, receipt=True, resend=True)
    body.feed(100)
    client.frames()
    client.core.link.writable(False)
    client.send(b"later")
    again = body.ask()
    client.lose()
    assert (outcome(again), again.result) == (None, -1)
    client.connect()
    client.core.feed(body.upload, 100, b"too late", client.now)
    asked = body.ask()
    client.frames()
    assert asked.result == 0
    client.core.feed(body.upload, 0, body.body, client.now)
    client.frames()
    body.feed()
    sends = [frame for frame in client.frames() if frame.command == "SEND"]
    assert [frame.body for frame in sends] == [body.body, b"later"]
    client.receipt(sends[0])
    assert outcome(body.call) is None
    assert outcome(body.ask()) is None


@pytest.mark.parametrize("is_gone", [False, True])
def test_with_resend_a_body_without_its_receipt_begins_anew(client, is_gone):
    """But if its caller is gone, there is no body to send again."""
    body = begun(client, receipt=True, resend=True)
    body.whole()
    waiting = body.ask()
    assert not waiting.done
    if is_gone:
        client.core.give_up(body.upload, "cancelled", client.now)
    client.lose()
    if is_gone:
        assert outcome(body.call).sent is True
        client.connect()
        assert client.commands() == []
        return
    assert waiting.result == -1
    client.connect()
    client.frames()
    client.receipt(body.whole()[-1])
    assert outcome(body.call) is None


def test_the_timeout_of_the_receipt_begins_with_the_end_of_the_body(client):
    body = begun(client, receipt=True, timeout=5.0)
    client.wait(4.0)
    body.feed()
    client.frames()
    client.wait(4.0)
    body.feed()
    client.frames()
    client.wait(4.9)
    assert not body.call.done
    client.wait(0.2)
    assert isinstance(outcome(body.call), ReceiptTimeoutError)
    assert isinstance(outcome(body.ask()), ReceiptTimeoutError)
    assert client.core.link.connection is not None


def test_a_body_in_a_transaction_is_bound_to_its_connection(client):
    transaction = client.begin()
    client.frames()
    body = Body(client, transaction=transaction)
    client.frames()
    body.finish()
    assert client.seen[-1][1].headers["transaction"] == transaction.id
    waiting = Body(client, b"a" * 9)
    client.frames()
    bound = Body(client, transaction=transaction)
    client.lose()
    assert isinstance(outcome(bound.ask()), ConnectionLostError)
    assert isinstance(outcome(waiting.ask()), ConnectionLostError)
    with pytest.raises(ConnectionLostError):
        Body(client, transaction=transaction)


def test_closing_the_client_ends_bodies(client):
    first, second = begun(client), Body(client)
    closed = client.call("close", 5.0)
    client.core.close(client.now, closed)
    with pytest.raises(LocalProtocolError):
        Body(client)
    client.wait(6.0)
    assert closed.done
    for body in (first, second):
        assert isinstance(outcome(body.ask()), ConnectionLostError)


def test_a_head_that_the_next_version_cannot_carry_fails_and_others_go_on(client):
    client.lose()
    upload = Upload("SEND", [("destination", "/queue/a"), ("a:b", "3")], 3, 5.0)
    client.core.upload(upload, client.now)
    client.send(b"next")
    client.version = "1.0"
    client.connect()
    found = client.frames()
    assert upload.state == "over"
    assert isinstance(upload.error, FrameError)
    assert [frame.body for _, frame in client.seen if frame.command == "SEND"] == [b"next"], found
