"""Heart-beats, deadlines of connections, and reading that pauses."""

import logging

import pytest
from client.scripted import Scripted, outcome

from stompcodec.errors import RejectedError


@pytest.fixture
def client():
    return Scripted().connect()


# ---- time ----


@pytest.mark.req("S12-HB-08", "S12-HB-09", "S12-HB-10", "S12-HB-11", "S12-HB-12")
def test_heart_beats_are_sent_and_a_dead_server_is_noticed_in_time():
    client = Scripted(heart_beat=(1000, 1000), server_beat=(1000, 1000)).connect()
    client.wait(0.6)
    assert client.core.link.take_output(client.now) == [b"\n"]
    client.core.inbound.receive(b"\n", client.now)
    at = client.now
    client.wait(2.9)
    assert client.core.link.connection is not None
    client.wait(0.2)
    assert client.core.link.connection is None
    assert client.now - at <= 3.2
    assert "silent" in str(client.core.link.error)


def test_any_octet_is_a_sign_of_life():
    client = Scripted(heart_beat=(0, 1000), server_beat=(1000, 0)).connect()
    client.subscribed()
    frame = b"MESSAGE\nsubscription:s1\nmessage-id:m\ndestination:d\ncontent-length:100\n\n" + b"x" * 100 + b"\0"
    for octet in frame:
        client.wait(2.9)
        client.core.inbound.receive(bytes([octet]), client.now)
    assert client.core.link.connection is not None
    assert client.core.inbound.backlog == 1


def test_a_stall_of_ours_is_not_held_against_the_server():
    client = Scripted(heart_beat=(0, 1000), server_beat=(1000, 0)).connect()
    client.now += 60
    client.core.link.tick(client.now, late=59.0)
    assert client.core.link.connection is not None
    client.wait(3.1)
    assert client.core.link.connection is None


def test_no_connected_in_time():
    client = Scripted(connect_timeout=5.0)
    client.open()
    client.wait(5.1)
    assert client.core.link.connection is None
    assert "no CONNECTED" in str(client.core.link.error)


def test_a_refused_login(caplog):
    client = Scripted()
    client.open()
    client.frames()
    with caplog.at_level(logging.ERROR):
        client.answer("ERROR", {"message": "Bad CONNECT"}, b"Access refused for user 'ann'\n")
    assert client.core.link.connection is None
    assert isinstance(client.core.link.error, RejectedError)
    assert "CONNECT was rejected: Bad CONNECT: Access refused" in str(client.core.link.error)
    assert "s3cret" not in caplog.text + str(client.core.link.error)


@pytest.mark.parametrize(
    ("message", "body"),
    [
        ("Bad CONNECT", b"Virtual host '127.0.0.1' access denied"),
        ("Virtual host 'h' is unknown", b""),
    ],
)
def test_a_refused_virtual_host_names_how_it_is_written(message, body):
    client = Scripted()
    client.open()
    client.frames()
    client.answer("ERROR", {"message": message}, body)
    assert "write the virtual host into the URL: stomp://host/%2F" in str(client.core.link.error)


def test_a_refused_login_is_not_taken_for_a_missing_virtual_host():
    client = Scripted()
    client.open()
    client.frames()
    words = b"login or passcode is wrong, or the virtual host is not open to this user."
    client.answer("ERROR", {"message": "login refused"}, words)
    assert str(client.core.link.error) == f"CONNECT was rejected: login refused: {words.decode()}"


def test_rubbish_ends_the_connection_only(client):
    subscription = client.subscribed()
    client.core.inbound.receive(
        b"MESSAGE\nsubscription:s1\nmessage-id:m\ndestination:d\n\nok\0HTTP/1.1 200\n\n\0", client.now
    )
    assert client.core.link.connection is None
    assert [message.body for message in client.take(subscription)] == [b"ok"]
    client.connect()
    assert client.core.link.state == "connected"


# ---- too much ----


@pytest.mark.parametrize(("count", "size"), [(100, 10), (10, 1000)])
def test_reading_pauses_where_nobody_takes_and_goes_on_at_half(count, size):
    client = Scripted(inbox_messages=100, inbox_octets=10_000).connect()
    subscription = client.subscribed()
    client.flood(subscription, count - 1, size)
    assert not client.core.inbound.paused
    client.flood(subscription, 1, size)
    assert client.core.inbound.paused
    assert len(client.take(subscription)) == count
    assert not client.core.inbound.paused
    assert (client.core.inbound.backlog, client.core.inbound.backlog_octets) == (0, 0)


def test_a_call_that_waits_for_a_receipt_does_not_wait_for_a_consumer():
    client = Scripted(inbox_messages=100).connect()
    subscription = client.subscribed()
    client.flood(subscription, 100)
    assert client.core.inbound.paused
    call = client.send(receipt=True)
    assert not client.core.inbound.paused  # its receipt is behind the messages
    (frame,) = client.frames()
    client.flood(subscription, 250)
    assert not client.core.inbound.paused
    client.receipt(frame)
    assert outcome(call) == "accepted"
    assert client.core.inbound.paused


def test_even_then_there_is_a_bound():
    client = Scripted(inbox_messages=100).connect()
    subscription = client.subscribed()
    client.send(receipt=True)
    client.flood(subscription, 400)
    assert client.core.inbound.paused


def test_the_time_of_a_pause_is_not_held_against_the_server():
    client = Scripted(inbox_messages=10, heart_beat=(0, 1000), server_beat=(1000, 0)).connect()
    subscription = client.subscribed()
    client.flood(subscription, 10)
    client.wait(600)
    assert client.core.link.connection is not None
    client.take(subscription)
    client.wait(2.5)
    assert client.core.link.connection is not None
    client.wait(1)
    assert client.core.link.connection is None


def test_a_pause_that_nobody_ticked_through_is_excused_too():
    client = Scripted(inbox_messages=10, heart_beat=(0, 1000), server_beat=(1000, 0)).connect()
    subscription = client.subscribed()
    client.flood(subscription, 10)
    client.now += 600
    client.send()  # the core learns what time it is
    client.take(subscription)
    client.wait(2.5)
    assert client.core.link.connection is not None
