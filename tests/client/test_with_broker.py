"""Both shells against our own broker: over TCP and WebSocket, and through a proxy that cuts connections."""

import ssl
import threading
import time
from types import SimpleNamespace

import pytest
from client.broker import BrokerThread
from client.shells import QUICK
from patience import patience

import stompcodec.client as stomp
from stompcodec.testing.faults import FaultProxy


@pytest.fixture(scope="module", params=["tcp", "ws", "tls"])
def place(request, tmp_path_factory):
    """The address of a listener of a broker, and the options to connect to it."""
    if request.param == "tls":
        trustme = pytest.importorskip("trustme", reason="certificates for TLS are made by trustme")
        authority, file = trustme.CA(), tmp_path_factory.mktemp("tls") / "server.pem"
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
        context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        with BrokerThread(tls_port=0, tls_cert=str(file), tls_key=str(file)) as broker:
            yield SimpleNamespace(url=f"stomp+ssl://127.0.0.1:{broker.tls_port}", name="tls", options={"ssl": context})
        return
    if request.param == "ws":
        pytest.importorskip("websockets")
    with BrokerThread(ws_port=0) as broker:
        url = broker.url if request.param == "tcp" else f"ws://127.0.0.1:{broker.ws_port}/stomp"
        yield SimpleNamespace(url=url, name=request.param, options={})


@pytest.mark.req("S12-UTF-02", "S11-UTF-02")
def test_a_round_of_everything(shell, place):
    client = shell.connect(place.url, heart_beat=(500, 500), **place.options)
    assert (client.version, client.dialect) == ("1.2", "stompcodec")
    name = f"/queue/all-{shell.name}-{place.name}"
    bodies = [b"plain", b"\0\xff", "grüße".encode(), bytes(300_000)]
    for body in bodies[:2]:
        client.send(name, body, {"a:b": "c\\d\ne", "größe": "ß"}, receipt=True)
    assert client.send_many([(name, body) for body in bodies[2:]]) == 2
    with client.subscribe(name, ack="client-individual", prefetch=2) as subscription:
        first, second = subscription.get(patience(5)), subscription.get(patience(5))
        assert subscription.get(0.05) is None
        assert [first.body, second.body] == bodies[:2]
        assert first.get("a:b") == "c\\d\ne"
        assert first.get("größe") == "ß"
        with client.transaction() as transaction:
            transaction.ack(first)
            transaction.send(name, b"from the transaction")
        second.nack(receipt=True)
        again = subscription.get(patience(5))
        while again.body != second.body:
            again.ack()
            again = subscription.get(patience(5))
        assert (again.redelivered, again.attempt) == (True, 2)
        again.ack(receipt=True)
    assert client.ping() < patience(5)
    with pytest.raises(stomp.RejectedError, match="selector"):
        client.receive(name, selector="((")
    client.wait_connected()


def test_topics_requests_and_replies(shell, place):
    clients = [shell.connect(place.url, **place.options) for _ in range(3)]
    name = f"/topic/news-{shell.name}-{place.name}"
    subscriptions = [client.subscribe(name) for client in clients]
    clients[0].send(name, b"to all", receipt=True)
    assert [subscription.get(patience(5)).body for subscription in subscriptions] == [b"to all"] * 3
    name = f"/queue/service-{shell.name}-{place.name}"
    clients[0].subscribe(name, handler=shell.handler(lambda message: message.reply(message.body[::-1])))
    for number in range(10):
        assert clients[1].request(name, b"%d." % number, 5).body == b".%d" % number


class Consumer:
    """Takes messages and acknowledges them with a receipt; checks order and redeliveries."""

    def __init__(self, client, name):
        self.seen = []
        self.settled = set()
        self.failures = []
        self.stop = False
        self.subscription = client.subscribe(name, ack="client-individual", prefetch=10)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.stop:
                message = self.subscription.get(0.5)
                if message is not None:
                    self.take(message)
        except Exception as error:  # the test tells it
            self.failures.append(error)

    def take(self, message):
        number = int(message.body)
        if number in self.settled:
            self.failures.append(f"{number} came again after its ACK had a receipt")
        if number in self.seen and not message.redelivered:
            self.failures.append(f"{number} came twice without redelivered")
        if not message.redelivered and self.seen and number < max(self.seen):
            self.failures.append(f"{number} came behind {max(self.seen)}")
        self.seen.append(number)
        try:
            message.ack(receipt=True, timeout=patience(10))
            self.settled.add(number)
        except stomp.StaleAckError:
            pass
        except stomp.ConnectionLostError:
            pass  # unknown: it may come again or not


@pytest.mark.long
@pytest.mark.parametrize("seed", [1])
def test_cuts_lose_nothing(shell, seed):
    """The program sends again what has an unknown outcome, as `resend` would; so numbers may come twice, never not."""
    name = "/queue/cuts"
    with BrokerThread() as broker, FaultProxy(("127.0.0.1", broker.port), seed=seed) as proxy:
        consumer = Consumer(shell.connect(f"stomp://127.0.0.1:{proxy.port}", reconnect=QUICK), name)
        producer = shell.connect(f"stomp://127.0.0.1:{proxy.port}", reconnect=QUICK)
        stop = threading.Event()

        def cut():
            while not stop.wait(patience(0.03)):
                proxy.cut()

        cutter = threading.Thread(target=cut)
        cutter.start()
        accepted = set()
        unknown = set()
        number = 0
        while number < 150 or producer.epoch < 10:
            number += 1
            try:
                producer.send(name, b"%d" % number, receipt=True, timeout=patience(10))
                accepted.add(number)
            except stomp.ConnectionLostError as error:
                if error.sent:
                    unknown.add(number)
        stop.set()
        cutter.join()
        until = time.monotonic() + patience(20)
        while not accepted <= set(consumer.seen) and time.monotonic() < until and not consumer.failures:
            time.sleep(0.02)
        consumer.stop = True
        consumer.thread.join(patience(10))
        assert consumer.failures == []
        assert accepted <= set(consumer.seen)
        assert set(consumer.seen) <= accepted | unknown
