"""Messages that cannot be read: each is named at once; one subscription ends, or goes on, and no other is to blame."""

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


def test_others_without_id_that_look_the_same_are_no_reason_to_end(client):
    subscription = client.subscribed("client-individual", prefetch=2)
    for _ in range(5):
        write(client, *[(GOOD, subscription, "1")] * 3)
        client.core.inbound.receive(b"MESSAGE\nsubscription:s1\nbad\n\n\0", client.now)
        client.connect()
    assert not subscription.closed


# ---- skip, ack, ignore ----


def numbered(policy, mode, version="1.2", server="ActiveMQ/6.3.1", **options):
    client = Scripted(version=version, server=server, **options).connect()
    return client, client.subscribed(mode, on_unreadable=policy)


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


def test_raise_in_both_shells(shell, peer):
    client = shell.connect(peer.url, reconnect=stomp.Backoff(first=0.01, most=0.01))
    subscription = client.subscribe("/queue/a", ack="client-individual", id="s7")
    with pytest.raises(RemoteProtocolError, match="subscription 's7', destination '/queue/a', message-id '2'"):
        until_it_fails(subscription)
    other = client.subscribe("/queue/b", ack="client-individual", on_unreadable="skip")
    assert other.get(patience(5)).id == "1"
