"""Restoring at a pace with real processes: a refused SUBSCRIBE is found, and cuts and kills convict nobody."""

import contextlib
import socket
import threading

import pytest
from client.shells import QUICK
from crash.process import BrokerProcess
from patience import patience

import stompcodec.client as stomp

CUTS = 20


@pytest.fixture
def broker(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with BrokerProcess(tmp_path / "broker", flags=("--port", str(port))) as broker:
        yield broker


class CuttingProxy:
    """Carries bytes to a broker, and cuts each of the first connections as soon as a SUBSCRIBE was passed on."""

    def __init__(self, port, cuts):
        self.left = cuts
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            for ends, cuts in (((near, far), True), ((far, near), False)):
                threading.Thread(target=self._carry, args=(*ends, cuts), daemon=True).start()

    def _carry(self, source, target, cuts):
        try:
            while data := source.recv(65536):
                target.sendall(data)
                if cuts and self.left and b"SUBSCRIBE\n" in data:
                    self.left -= 1
                    break
        except OSError:
            pass
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def gets(client, subscription, body):
    """A message arrives by the subscription, after others that were sent before."""
    client.send(subscription.destination, body, {"persistent": "true"}, receipt=True, resend=True, timeout=patience(60))
    while (message := subscription.get(patience(60))).body != body:
        message.ack()
    message.ack()


@pytest.mark.long
def test_a_refused_subscribe_without_a_receipt_ends_and_the_others_go_on(shell, broker):
    client = shell.connect(f"stomp://127.0.0.1:{broker.port}", reconnect=QUICK)
    options = {"ack": "client-individual"}
    good = [client.subscribe("/queue/a", **options), client.subscribe("/queue/b", confirm=False, **options)]
    bad = client.subscribe("/queue/bad", selector="((", confirm=False)
    with pytest.raises(stomp.RejectedError, match="SUBSCRIBE to /queue/bad was rejected: bad selector"):
        bad.get(patience(60))
    for subscription in good:
        gets(client, subscription, b"on")
    assert [each.error for each in good] == [None, None]


@pytest.mark.long
def test_cuts_right_after_the_subscribes_end_nothing(shell, broker):
    with CuttingProxy(broker.port, CUTS) as proxy:
        url = f"stomp://127.0.0.1:{proxy.port}"
        client = shell.connect(url, reconnect=QUICK)
        subscriptions = [
            client.subscribe(f"/queue/{number}", ack="client-individual", confirm=number < 2) for number in range(3)
        ]
        for number, subscription in enumerate(subscriptions):
            gets(client, subscription, b"%d" % number)
        assert proxy.left == 0
        assert [each.error for each in subscriptions] == [None] * 3
        client.close()


@pytest.mark.slow
def test_kills_of_the_broker_end_nothing(shell, broker):
    client = shell.connect(f"stomp://127.0.0.1:{broker.port}", reconnect=QUICK)
    subscriptions = [
        client.subscribe(f"/queue/{number}", ack="client-individual", confirm=number < 2) for number in range(3)
    ]
    for number in range(CUTS):
        gets(client, subscriptions[number % 3], b"%d" % number)
        broker.kill()
        broker.start()
    for subscription in subscriptions:
        gets(client, subscription, b"last")
    assert [each.error for each in subscriptions] == [None] * 3
