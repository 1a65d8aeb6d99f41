"""Messages that cannot be read: each is named at once; one subscription ends, or goes on, and no other is to blame."""

import logging

import pytest
from client.peer import Peer
from client.scripted import Scripted
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.messages import SETTLED, Subscription
from stompcodec.errors import RemoteProtocolError

#: As ActiveMQ 6 writes a JMS message whose property is called "new\nline", and one whose text has a NUL.
LF = (
    "MESSAGE\ncontent-length:4\nexpires:0\ndestination:{0.destination}\nack:{2}\nsubscription:{0.id}\npriority:4\n"
    "message-id:{1}\ntimestamp:1764361234567\nnew\nline:v\n\nbody\0\n"
)
NUL = (
    "MESSAGE\nexpires:0\ndestination:{0.destination}\nack:{2}\nsubscription:{0.id}\npriority:4\nmessage-id:{1}\n"
    "timestamp:1764361234567\n\nnul\0in text\0\n"
)
GOOD = (
    "MESSAGE\ndestination:{0.destination}\nack:{2}\nsubscription:{0.id}\nmessage-id:{1}\ncontent-length:4\n\ngood\0\n"
)
POISON = pytest.mark.parametrize("poison", [LF, NUL], ids=["lf", "nul"])
CUTS = pytest.mark.parametrize("size", [1, 7, 10_000])


def write(client, *frames, size=10_000):
    """Octets of the server, in pieces. Each frame is a template, a subscription and a message-id."""
    wire = "".join(template.format(subscription, id, f"ack-{id}") for template, subscription, id in frames).encode()
    for at in range(0, len(wire), size):
        client.core.inbound.receive(wire[at : at + size], client.now)


def bodies(client, subscription):
    return [message.body for message in client.take(subscription)]


def states(client):
    return [(state, str(error)) for state, error in client.core.link.events]


def sent(client, command):
    return [frame.headers for frame in client.frames() if frame.command == command]


@pytest.fixture
def client():
    return Scripted(server="ActiveMQ/6.3.1").connect()


# ---- what is said ----


@POISON
def test_it_is_named_at_once(client, caplog, poison):
    subscription = client.subscribed("client-individual")
    write(client, (GOOD, subscription, "ID:a-1"), (poison, subscription, "ID:a-2"))
    error = client.core.link.error
    assert isinstance(error, RemoteProtocolError)
    text = str(error)
    for part in ("subscription 's1'", "destination '/queue/s1'", "message-id 'ID:a-2'", "at octet ", "near b'"):
        assert part in text
    assert ("NUL" in text) == (poison is NUL)
    assert text in caplog.text  # of the lost connection
    assert text in states(client)[-1][1]
    assert not subscription.closed


def test_other_violations_are_named_too(client):
    subscription = client.subscribed("client-individual")
    client.core.inbound.receive(b"MESSAGE\nsubscription:s1\ndestination:/queue/s1\n\n\0", client.now)
    assert str(client.core.link.error) == (
        "MESSAGE lacks message-id: MESSAGE with subscription 's1', destination '/queue/s1'"
    )
    assert not subscription.closed


@POISON
@pytest.mark.parametrize("before", ["RECEIPT\nreceipt-id:none\n\n\0\n", GOOD])
def test_without_a_name_nobody_is_blamed(client, poison, before):
    subscription = client.subscribed("client-individual")
    for _ in range(5):
        write(client, (before, subscription, "good"))
        client.core.inbound.receive(b"garbage\n\0", client.now)
        assert "message-id" not in str(client.core.link.error)
        client.connect()
    assert not subscription.closed


# ---- raise ----


@POISON
@CUTS
def test_the_third_time_ends_its_subscription_alone(client, poison, size):
    bad, good = client.subscribed("client-individual"), client.subscribed("client-individual")
    for number in range(3):
        assert not bad.closed
        write(client, (GOOD, good, f"good-{number}"), (poison, bad, "ID:poison"), size=size)
        assert client.core.link.phase == "down"
        if number == 2:
            break
        client.connect()
    assert bad.closed
    assert "ID:poison" in str(bad.error)
    assert not good.closed
    client.connect()
    write(client, (GOOD, good, "good-4"))
    assert bodies(client, good) == [b"good"]
    assert [frame.headers["id"] for _, frame in client.seen if frame.command == "SUBSCRIBE"][-1] == good.id


def test_messages_without_id_are_told_by_what_was_read(client):
    subscription = client.subscribed("client-individual")
    frame = "MESSAGE\nsubscription:s1\nack:%d\nn:%s\nbad\n\n\0"
    for number in range(10):
        client.core.inbound.receive((frame % (number, number)).encode(), client.now)
        client.connect()
    assert not subscription.closed
    for number in range(3):
        client.core.inbound.receive((frame % (number, "same")).encode(), client.now)
        client.connect()
    assert subscription.closed


def test_others_without_id_that_look_the_same_are_no_reason_to_end(client):
    subscription = client.subscribed("client-individual", prefetch=2)
    for _ in range(5):
        write(client, *[(GOOD, subscription, "1")] * 3)
        client.core.inbound.receive(b"MESSAGE\nsubscription:s1\nbad\n\n\0", client.now)
        client.connect()
    assert not subscription.closed


def test_without_reconnect_the_first_time_ends_the_client():
    client = Scripted(reconnect=None).connect()
    subscription = client.subscribed("client-individual")
    write(client, (LF, subscription, "ID:1"))
    assert subscription.closed
    assert "ID:1" in str(subscription.error)


# ---- skip, ack, ignore ----


def numbered(policy, mode, version="1.2", server="ActiveMQ/6.3.1", **options):
    client = Scripted(version=version, server=server, **options).connect()
    return client, client.subscribed(mode, on_unreadable=policy)


@POISON
@CUTS
@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_skip_goes_on_and_settles_that_message_alone(poison, size, mode, caplog):
    client, subscription = numbered("skip", mode)
    frames = [
        (GOOD, subscription, "1"),
        (poison, subscription, "2"),
        (poison, subscription, "3"),
        (GOOD, subscription, "4"),
    ]
    write(client, *frames, size=size)
    assert client.core.link.phase == "up"
    assert bodies(client, subscription) == [b"good", b"good"]
    nacks = [headers["id"] for headers in sent(client, "NACK")]
    assert nacks == (["ack-2", "ack-3"] if mode == "client-individual" else [])
    assert subscription.open == 2
    assert client.core.inbound.backlog == client.core.inbound.backlog_octets == 0
    passed = [record.getMessage() for record in caplog.records if record.name == "stompcodec.client.unreadable"]
    assert len(passed) == 2
    assert all(f"message-id '{id}'" in text for id, text in zip("23", passed))
    assert all(("with NACK" in text) == (mode == "client-individual") for text in passed)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


@pytest.mark.parametrize(
    ("policy", "server", "version", "wanted"),
    [
        ("skip", "ActiveMQ/6.3.1", "1.2", ("NACK", {"id": "ack-2"})),
        ("skip", "ActiveMQ/6.3.1", "1.1", ("NACK", {"message-id": "2", "subscription": "s1"})),
        ("skip", "ActiveMQ/6.3.1", "1.0", ("ACK", {"message-id": "2"})),
        ("skip", "RabbitMQ/4.0", "1.2", ("NACK", {"id": "ack-2", "requeue": "false"})),
        ("ack", "ActiveMQ/6.3.1", "1.2", ("ACK", {"id": "ack-2"})),
        ("ignore", "ActiveMQ/6.3.1", "1.2", None),
    ],
)
@POISON
def test_how_it_is_settled(policy, server, version, wanted, poison):
    client, subscription = numbered(policy, "client-individual", version, server)
    write(client, (poison, subscription, "2"), (GOOD, subscription, "3"))
    found = [(frame.command, dict(frame.headers)) for frame in client.frames()]
    assert found == ([wanted] if wanted else [])
    assert bodies(client, subscription) == [b"good"]
    assert subscription.open == 1


def test_what_a_consumer_has_is_not_taken_back():
    client, subscription = numbered("skip", "client-individual")
    wire = NUL.format(subscription, "1", "a").encode()
    at = wire.index(b"\0") + 1
    client.core.inbound.receive(wire[:at], client.now)
    assert bodies(client, subscription) == [b"nul"]
    client.core.inbound.receive(wire[at:], client.now)
    assert client.core.link.phase == "up"
    assert client.frames() == []  # whoever has it settles it


@pytest.mark.parametrize(
    "broken",
    [
        "MESSAGE\ndestination:/queue/s1\nbad\n\n\0",  # neither
        "MESSAGE\ndestination:/queue/s1\nack:1\nbad\nsubscription:s1\n\n\0",
        "MESSAGE\nsubscription:s1\nmessage-id:2\nbad\nack:1\n\n\0",
        "MESSAGE\nsubscription:other\nmessage-id:2\nack:1\nbad\n\n\0",  # of no subscription here
        "RECEIPT\nreceipt-id:1\nsubscription:s1\nack:1\nbad\n\n\0",
        "garbage\n\0",
    ],
)
def test_what_is_not_certain_is_not_settled(broken):
    client, subscription = numbered("skip", "client-individual")
    write(client, (broken, subscription, ""), (GOOD, subscription, "3"))
    assert client.core.link.phase == "up"
    assert client.frames() == []
    assert bodies(client, subscription) == [b"good"]
    assert subscription.open == 1


def test_unnamed_faults_are_passed_over_if_all_subscriptions_do_that(client):
    skips = client.subscribed(on_unreadable="skip")
    client.core.inbound.receive(b"garbage\n\0", client.now)
    assert client.core.link.phase == "up"
    ends = client.subscribed()
    client.core.inbound.receive(b"garbage\n\0", client.now)
    assert client.core.link.phase == "down"
    client.connect()
    write(client, (LF, skips, "1"), (GOOD, ends, "2"))  # a named one is that of its subscription
    assert bodies(client, ends) == [b"good"]


def test_a_streamed_body_goes_on_behind_it(tmp_path):
    client, subscription = numbered("skip", "client-individual", stream_over=65536, spool_folder=str(tmp_path))
    large = "MESSAGE\nsubscription:s1\ndestination:d\nmessage-id:1\nack:1\ncontent-length:{}\n\n{}\0\n"
    wire = large.format(70_000, "x" * 70_003) + GOOD.format(subscription, "2", "2") + large.format(70_000, "x" * 70_000)
    for at in range(0, len(wire), 5000):
        client.core.inbound.receive(wire[at : at + 5000].encode(), client.now)
    taken = [message.id for _ in range(2) for message in client.take(subscription)]
    assert taken == ["2", "1"]
    assert [headers["id"] for headers in sent(client, "NACK")] == ["1"]
    assert not client.core.inbound.in_body


def test_values():
    for value in SETTLED:
        assert Subscription("/queue/a", id="1", on_unreadable=value).on_unreadable == value
    with pytest.raises(ValueError, match="on_unreadable is 'never': use raise, skip, ack, ignore"):
        Subscription("/queue/a", id="1", on_unreadable="never")


# ---- both shells, and real sockets ----


@pytest.fixture
def peer():
    with Peer(server="ActiveMQ/6.3.1") as peer:

        def subscribe(side, frame):
            """Like a queue that holds two messages which cannot be read, among others."""
            peer.on_subscribe(side, frame)

            class Asked:
                id, destination = frame.headers["id"], frame.headers["destination"]

            for name in ("ack-1", "ack-2", "ack-3", "ack-4"):
                side.unacked[name] = frame
            for template, id in zip((GOOD, LF, NUL, GOOD), "1234"):
                side.connection.output.append(template.format(Asked, id, f"ack-{id}").encode())

        peer.rules["SUBSCRIBE"] = subscribe
        yield peer


def until_it_fails(subscription):
    for _ in range(20):
        subscription.get(patience(5))


def test_skip_in_both_shells(shell, peer):
    client = shell.connect(peer.url)
    subscription = client.subscribe("/queue/a", ack="client-individual", on_unreadable="skip")
    found = [subscription.get(patience(5)) for _ in range(2)]
    assert [message.id for message in found] == ["1", "4"]
    peer.wait(lambda peer: len(peer.got("NACK")) == 2)
    assert [frame.headers["id"] for frame in peer.got("NACK")] == ["ack-2", "ack-3"]
    assert client.epoch == 1


def test_raise_in_both_shells(shell, peer):
    client = shell.connect(peer.url, reconnect=stomp.Backoff(first=0.01, most=0.01))
    subscription = client.subscribe("/queue/a", ack="client-individual", id="s7")
    with pytest.raises(RemoteProtocolError, match="subscription 's7', destination '/queue/a', message-id '2'"):
        until_it_fails(subscription)
    other = client.subscribe("/queue/b", ack="client-individual", on_unreadable="skip")
    assert other.get(patience(5)).id == "1"
