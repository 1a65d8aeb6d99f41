"""Heart-beats, deadlines of connections, and reading that pauses."""

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


_REFUSED = "login or passcode is wrong, or the virtual host is not open to this user."
_VHOST = "write the virtual host into the URL: stomp://host/%2F"


@pytest.mark.parametrize(
    ("message", "body", "said"),
    [
        ("Bad CONNECT", "Access refused for user 'ann'\n", "Bad CONNECT: Access refused for user 'ann'"),
        ("Bad CONNECT", "Virtual host '127.0.0.1' access denied", _VHOST),
        ("Virtual host 'h' is unknown", "", _VHOST),
        ("login refused", _REFUSED, f"CONNECT was rejected: login refused: {_REFUSED}"),
    ],
)
def test_a_refused_login_says_how_a_virtual_host_is_written(caplog, message, body, said):
    client = Scripted()
    client.open()
    client.frames()
    client.answer("ERROR", {"message": message}, body.encode())
    error = client.core.link.error
    assert client.core.link.connection is None
    assert isinstance(error, RejectedError)
    assert said in str(error)
    assert (_VHOST in str(error)) == (said == _VHOST)
    assert "s3cret" not in caplog.text + str(error)


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
    client.flood(subscription, 50)
    assert client.core.inbound.paused  # even then there is a bound
    client.receipt(frame)
    assert outcome(call) == "accepted"


@pytest.mark.parametrize("ticked", [True, False])
def test_the_time_of_a_pause_is_not_held_against_the_server(ticked):
    client = Scripted(inbox_messages=10, heart_beat=(0, 1000), server_beat=(1000, 0)).connect()
    subscription = client.subscribed()
    client.flood(subscription, 10)
    if ticked:
        client.wait(600)
    else:
        client.now += 600
        client.send()  # the core learns what time it is
    assert client.core.link.connection is not None
    client.take(subscription)
    client.wait(2.5)
    assert client.core.link.connection is not None
    client.wait(1)
    assert client.core.link.connection is None
