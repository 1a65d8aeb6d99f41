"""Messages that cannot be read: each is named at once; one subscription ends, or goes on, and no other is to blame."""

import pytest
from client.scripted import Scripted
from patience import patience

import stompcodec.client as stomp
from stompcodec.client.messages import Subscription
from stompcodec.errors import RemoteProtocolError

#: As ActiveMQ 6 writes a JMS message whose property is called "new\nline", and one whose text has a NUL.
HEAD = "MESSAGE\nexpires:0\ndestination:{0.destination}\nack:{2}\nsubscription:{0.id}\nmessage-id:{1}\n"
LF = HEAD + "content-length:4\nnew\nline:v\n\nbody\0\n"
NUL = HEAD + "\nnul\0in text\0\n"
GOOD = HEAD + "content-length:4\n\ngood\0\n"
POISON = pytest.mark.parametrize("poison", [LF, NUL], ids=["lf", "nul"])


def write(client, *frames, size=10_000):
    """Bytes of the server, in pieces. Each frame is a template, a subscription and a message-id."""
    wire = "".join(template.format(subscription, id, f"ack-{id}") for template, subscription, id in frames).encode()
    for at in range(0, len(wire), size):
        client.core.inbound.receive(wire[at : at + size], client.now)


def bodies(client, subscription):
    return [message.body for message in client.take(subscription)]


@pytest.fixture
def client():
    return Scripted(server="ActiveMQ/6.3.1").connect()


@POISON
def test_it_is_named_at_once(client, caplog, poison):
    subscription = client.subscribed("client-individual")
    write(client, (GOOD, subscription, "ID:a-1"), (poison, subscription, "ID:a-2"))
    text = str(client.core.link.error)
    assert isinstance(client.core.link.error, RemoteProtocolError)
    for part in ("subscription 's1'", "destination '/queue/s1'", "message-id 'ID:a-2'", "at octet ", "near b'"):
        assert part in text
    assert ("NUL" in text, "(fix the sender, or read with lenient=True" in text) == (poison is NUL, poison is LF)
    assert text in caplog.text  # of the lost connection
    assert text in str(client.core.link.events[-1][1])
    assert not subscription.closed


def test_other_violations_are_named_too(client):
    subscription = client.subscribed("client-individual")
    client.core.inbound.receive(b"MESSAGE\nsubscription:s1\ndestination:/queue/s1\n\n\0", client.now)
    words = "MESSAGE lacks message-id: MESSAGE with subscription 's1', destination '/queue/s1'"
    assert (str(client.core.link.error), subscription.closed) == (words, False)


@POISON
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_third_time_ends_its_subscription_alone(client, poison, size):
    bad, good = client.subscribed("client-individual"), client.subscribed("client-individual")
    for number in range(3):
        assert not bad.closed
        write(client, (GOOD, good, f"good-{number}"), (poison, bad, "ID:poison"), size=size)
        assert client.core.link.phase == "down"
        if number == 2:
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


def settling(policy, version="1.2", server="ActiveMQ/6.3.1"):
    client = Scripted(version=version, server=server).connect()
    return client, client.subscribed("client-individual", on_unreadable=policy)


@pytest.mark.parametrize(
    ("policy", "server", "version", "wanted"),
    [
        ("skip", "ActiveMQ/6.3.1", "1.2", ("NACK", {"id": "ack-2"})),
        ("skip", "ActiveMQ/6.3.1", "1.1", ("NACK", {"message-id": "2", "subscription": "s1"})),
        ("skip", "ActiveMQ/6.3.1", "1.0", ("ACK", {"message-id": "2"})),
        ("skip", "RabbitMQ/4.0", "1.2", ("NACK", {"id": "ack-2", "requeue": "false"})),
        *(("ack", "ActiveMQ/6.3.1", "1.2", ("ACK", {"id": "ack-2"})), ("ignore", "ActiveMQ/6.3.1", "1.2", None)),
    ],
)
@POISON
def test_how_it_is_settled(policy, server, version, wanted, poison):
    client, subscription = settling(policy, version, server)
    write(client, (poison, subscription, "2"), (GOOD, subscription, "3"))
    assert [(frame.command, dict(frame.headers)) for frame in client.frames()] == ([wanted] if wanted else [])
    assert (bodies(client, subscription), subscription.open) == ([b"good"], 1)


def test_what_a_consumer_has_is_not_taken_back():
    client, subscription = settling("skip")
    whole, rest = NUL.format(subscription, "1", "a").encode().split(b"\0", 1)
    client.core.inbound.receive(whole + b"\0", client.now)
    assert bodies(client, subscription) == [b"nul"]
    client.core.inbound.receive(rest, client.now)
    assert client.core.link.phase == "up"
    assert client.frames() == []  # whoever has it settles it


@pytest.mark.parametrize(
    "broken",
    [
        "MESSAGE\ndestination:/queue/s1\nbad\n\n\0",  # neither
        "MESSAGE\ndestination:/queue/s1\nack:1\nbad\nsubscription:s1\n\n\0",
        "MESSAGE\nsubscription:s1\nmessage-id:2\nbad\nack:1\n\n\0",
        "MESSAGE\nsubscription:other\nmessage-id:2\nack:1\nbad\n\n\0",  # of no subscription here
        *("RECEIPT\nreceipt-id:1\nsubscription:s1\nack:1\nbad\n\n\0", "garbage\n\0"),
    ],
)
def test_what_is_not_certain_is_not_settled(broken):
    client, subscription = settling("skip")
    write(client, (broken, subscription, ""), (GOOD, subscription, "3"))
    assert (client.core.link.phase, client.frames()) == ("up", [])
    assert (bodies(client, subscription), subscription.open) == ([b"good"], 1)


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


def test_raise_in_both_shells(shell, peer):
    def subscribe(side, frame):
        peer.on_subscribe(side, frame)
        asked = Subscription(frame.headers["destination"], id=frame.headers["id"])
        for template, id in zip((GOOD, LF, NUL, GOOD), "1234"):
            side.unacked[f"ack-{id}"] = frame
            side.connection.output.append(template.format(asked, id, f"ack-{id}").encode())

    def until_it_fails():
        for _ in range(20):
            subscription.get(patience(5))

    peer.server, peer.rules["SUBSCRIBE"] = "ActiveMQ/6.3.1", subscribe
    client = shell.connect(peer.url, reconnect=stomp.Backoff(first=0.01, most=0.01))
    subscription = client.subscribe("/queue/a", ack="client-individual", id="s7")
    with pytest.raises(RemoteProtocolError, match="subscription 's7', destination '/queue/a', message-id '2'"):
        until_it_fails()
    other = client.subscribe("/queue/b", ack="client-individual", on_unreadable="skip")
    assert other.get(patience(5)).id == "1"
