"""One broker at both ends of a bridge: by two ports, schemes or virtual hosts."""

import asyncio

import pytest
from bridge.running import call_itself, carry, fill, take_all

from stompcodec.bridge import UnsuitableError
from stompcodec.bridge.bridge import _PROBE
from stompcodec.bridge.headers import may_be_one
from stompcodec.bridge.sources import is_one_broker
from stompcodec.testing import StompBroker


@pytest.fixture(autouse=True)
def near(monkeypatch, apart):
    """Have bridges look at their ends, in spite of `apart`."""
    monkeypatch.setattr("stompcodec.bridge.bridge.may_be_one", may_be_one)


@pytest.fixture
def one():
    with StompBroker(ws_port=0) as broker:
        yield broker


@pytest.fixture
def other():
    with StompBroker() as broker:
        yield broker


@pytest.mark.parametrize("back", [False, True])
def test_two_ports_of_one_broker(one, back):
    fill(one.url, "/queue/a", 3)
    ends = (one.ws_url, one.url) if back else (one.url, one.ws_url)
    with pytest.raises(UnsuitableError, match=r"FROM and TO are the same broker: a message to .* arrived from "):
        carry(*ends, "/queue/a=/queue/b")
    assert [int(message.body) for message in take_all(one.url, "/queue/a")] == [0, 1, 2]
    assert one.queued("/queue/b") == 0


def test_two_virtual_hosts_that_are_one(one):
    fill(one.url, "/queue/a", 1)
    with pytest.raises(UnsuitableError, match="the same broker"):
        carry(one.url, f"{one.url}/other", "/queue/a=/queue/b")


def test_two_brokers_on_one_machine(one, other):
    fill(one.url, "/queue/a", 3)
    assert carry(one.url, other.url, "/queue/a").carried == 3
    (probe,) = [frame for frame in other.frames if frame.command == "SEND" and "probe" in frame.headers["destination"]]
    assert probe.headers["destination"].startswith("/topic/bridge-probe-")


@pytest.mark.parametrize("refusal", ["SUBSCRIBE", "SEND", "PING"])
def test_a_broker_that_refuses_to_be_looked_at_counts_as_another(one, other, refusal):
    fill(one.url, "/queue/a", 3)
    (other if refusal == "SEND" else one).faults.error(refusal, "not yours", times=1)
    assert carry(one.url, other.url, "/queue/a").carried == 3


@pytest.mark.parametrize(
    ("server", "seconds"), [("stompcodec/1.0", 0.0), ("RabbitMQ/3.10.8", _PROBE), ("ActiveMQ/5.17.2", _PROBE)]
)
def test_only_our_broker_has_delivered_the_probe_when_it_answers(one, other, monkeypatch, server, seconds):
    waited = []

    async def is_one(source, target, seconds):
        waited.append(seconds)
        return False

    monkeypatch.setattr("stompcodec.bridge.bridge.is_one_broker", is_one)
    for broker in (one, other):
        call_itself(broker, server)
    fill(one.url, "/queue/a", 3)
    assert carry(one.url, other.url, "/queue/a", way={"idle": 0.1}).carried == 3
    assert waited == [seconds]


class Recorded:
    """A client and its subscription that only record what is done with them, in order."""

    def __init__(self):
        self.done = []

    def subscribe(self, destination):
        return self

    def __await__(self):
        self.done.append("confirmed")
        return iter(())

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.done.append("unsubscribed")

    async def send(self, destination, *, receipt):
        self.done.append(f"sent, receipt={receipt}")

    async def ping(self):
        self.done.append("answered")

    async def get(self, seconds):
        self.done.append(f"waited {seconds} s")


def test_the_probe_is_sent_once_it_can_arrive():
    client = Recorded()
    assert asyncio.run(is_one_broker(client, client, 1.5)) is False
    assert client.done == ["confirmed", "sent, receipt=True", "answered", "waited 1.5 s", "unsubscribed"]
