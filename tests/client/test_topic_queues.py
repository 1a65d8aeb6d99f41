"""Plain subscriptions to topics of RabbitMQ 4.3, which refuses queues that are neither durable nor exclusive."""

import pytest
from client.peer import Peer
from client.shells import QUICK
from patience import patience

import stompcodec.client as stomp

REFUSED = "PRECONDITION_FAILED - Feature `transient_nonexcl_queues` is deprecated."


def accepts(frame):
    """Return True if RabbitMQ 4.3 makes the queue that this SUBSCRIBE asks for, by the rules of its STOMP plugin."""
    durable = frame.get("durable", frame.get("persistent")) == "true"
    exclusive = frame.get("exclusive") == "true"
    return (durable or exclusive) and not (durable and exclusive)


@pytest.fixture
def rabbit():
    """A server that says it is RabbitMQ and keeps its rule from 4.3 on; the version is `server`."""

    def subscribe(side, frame):
        if peer.server >= "RabbitMQ/4.3" and not accepts(frame):
            side.error(frame, REFUSED)
            side.close()
        else:
            peer.on_subscribe(side, frame)

    with Peer(server="RabbitMQ/4.3.0", rules={"SUBSCRIBE": subscribe}) as peer:
        yield peer


def asked(frame):
    names = ("durable", "auto-delete", "exclusive")
    return {name: frame.headers[name] for name in names if frame.get(name) is not None}


@pytest.mark.parametrize("dialect", ["auto", "rabbitmq"])
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_by_default_it_gets_a_queue_of_its_connection(shell, rabbit, version, dialect):
    client = shell.connect(rabbit.url, versions=[version], dialect=dialect)
    subscription = client.subscribe("/topic/prices")
    client.send("/topic/prices", b"1", receipt=True)
    assert subscription.get(patience(10)).body == b"1"
    (frame,) = rabbit.got("SUBSCRIBE")
    assert asked(frame) == {"exclusive": "true"}


@pytest.mark.parametrize(
    ("choice", "headers"),
    [("exclusive", {"exclusive": "true"}), ("durable", {"durable": "true", "auto-delete": "true"})],
)
@pytest.mark.parametrize("server", ["RabbitMQ/3.13.7", "RabbitMQ/4.2.1", "RabbitMQ/4.3.0"])
def test_the_option_chooses_with_every_version(shell, rabbit, server, choice, headers):
    rabbit.server = server
    client = shell.connect(rabbit.url, topic_queues=choice)
    subscriptions = [client.subscribe("/topic/prices") for _ in range(2)]
    client.ping()
    for subscription in subscriptions:
        rabbit.deliver(subscription.id, b"1")
        assert subscription.get(patience(10)).body == b"1"
    frames = rabbit.got("SUBSCRIBE")
    assert [asked(frame) for frame in frames] == [headers] * 2
    names = {frame.get("x-queue-name") for frame in frames}
    assert len(names) == (2 if choice == "durable" else 1)  # a shared queue would halve the messages


def test_an_older_version_is_asked_for_nothing(shell, rabbit):
    rabbit.server = "RabbitMQ/4.2.9"
    client = shell.connect(rabbit.url)
    client.subscribe("/topic/prices")
    client.ping()
    assert asked(rabbit.got("SUBSCRIBE")[0]) == {}


def test_what_the_broker_refuses_is_told(shell, rabbit):
    """As with topic_queues="transient", for brokers that permit such queues."""
    client = shell.connect(rabbit.url, topic_queues="transient", reconnect=None)
    with pytest.raises(stomp.StompError, match="transient_nonexcl_queues"):
        client.subscribe("/topic/prices")
    assert [asked(frame) for frame in rabbit.got("SUBSCRIBE")] == [{}]


def test_an_update_of_the_broker_is_noticed_at_the_next_connection(shell, rabbit):
    rabbit.server = "RabbitMQ/4.2.9"
    client = shell.connect(rabbit.url, reconnect=QUICK)
    subscription = client.subscribe("/topic/prices")
    client.ping()
    rabbit.server = "RabbitMQ/4.3.0"
    rabbit.cut()
    rabbit.wait(lambda peer: len(peer.got("SUBSCRIBE")) == 2)
    rabbit.deliver(subscription.id, b"after")
    assert subscription.get(patience(10)).body == b"after"
    assert [asked(frame) for frame in rabbit.got("SUBSCRIBE")] == [{}, {"exclusive": "true"}]


def test_a_programs_own_headers_win(shell, rabbit):
    client = shell.connect(rabbit.url)
    client.subscribe("/topic/prices", headers={"durable": "true", "auto-delete": "false"})
    client.ping()
    assert asked(rabbit.got("SUBSCRIBE")[0]) == {"durable": "true", "auto-delete": "false"}
