"""Consumers that cannot be written to, on a broker process: over TCP, WebSocket and the legacy port."""

import contextlib
import socket

import pytest
from patience import patience

pytest.importorskip("click")

from crash.process import BrokerProcess
from run_scenarios import WebSocket

from stompcodec import Parser

pytestmark = pytest.mark.long

DESTINATIONS = ("/queue/a", "/topic/t")
CONNECTS = {
    "1.0": "CONNECT\nlogin:guest\n\n\0",
    "1.1": "CONNECT\naccept-version:1.1\nhost:/\n\n\0",
    "1.2": "CONNECT\naccept-version:1.2\nhost:/\n\n\0",
    "legacy": "CONNECT\nusername:guest\npasscode:guest\n\n\0\n",
}


class Client:
    def __init__(self, broker, transport, version):
        port = broker.address[{"tcp": "port", "ws": "ws_port", "legacy": "legacy_port"}[transport]]
        if transport == "ws":
            self.wire = WebSocket("127.0.0.1", port, "/", patience(30))
        else:
            self.wire = socket.create_connection(("127.0.0.1", port), patience(30))
        self.parser, self.frames = Parser(version), []
        assert self.ask(CONNECTS[version]).command == "CONNECTED"

    def send(self, text):
        self.wire.sendall(text.encode())

    def ask(self, text):
        self.send(text)
        return self.frame()

    def frame(self):
        while not self.frames:
            data = self.wire.recv(65536)
            assert data, "the broker closed"
            self.frames += self.parser.feed(data)
        return self.frames.pop(0)

    def subscribe(self, destination, *headers):
        lines = ["SUBSCRIBE", f"destination:{destination}", f"id:{destination[1:]}", "receipt:s", *headers]
        return self.ask("\n".join(lines) + "\n\n\0")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config="[listen]\nlegacy = 0\n") as broker:
        yield broker
        log = broker.log.read_text()
        assert "Traceback" not in log
        assert "internal error" not in log


@pytest.fixture
def client(broker):
    """Makes clients, which are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(transport, version):
            client = Client(broker, transport, version)
            stack.callback(client.wire.close)
            return client

        yield make


@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize(
    ("transport", "version", "name"),
    [("tcp", "1.0", "s:eq"), ("ws", "1.0", "s:eq"), ("legacy", "legacy", "Content-Length")],
)
def test_a_subscription_that_cannot_be_served_is_refused(client, transport, version, name, destination):
    error = client(transport, version).subscribe(destination, f"include-seq:{name}")
    assert (error.command, error.headers["message"]) == ("ERROR", "bad include-seq")


@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("name", ["Content-Length", "contenT-length", "Message-Id"])
@pytest.mark.parametrize("ack", ["auto", "client"])
def test_what_a_sender_writes_reaches_a_legacy_consumer(client, destination, name, ack):
    """The subscribers behind it get it, too, and the sender its receipts."""
    consumer = client("legacy", "legacy")
    assert consumer.subscribe(destination, f"ack:{ack}").command == "RECEIPT"
    others = [client(transport, "1.2") for transport in ("tcp", "ws")]
    for other in others if destination.startswith("/topic") else ():
        assert other.subscribe(destination).command == "RECEIPT"
    sender = client("tcp", "1.2")
    for number in range(3):
        sender.send(f"SEND\ndestination:{destination}\n{name}:77\nreceipt:{number}\n\n{number}\0")
    assert [sender.frame().headers["receipt-id"] for _ in range(3)] == ["0", "1", "2"]
    for taker in [consumer, *others] if destination.startswith("/topic") else [consumer]:
        messages = [taker.frame() for _ in range(3)]
        assert [message.body for message in messages] == [b"0", b"1", b"2"]
        if ack == "client" and taker is consumer:
            taker.send(f"ACK\nmessage-id:{messages[-1].headers['message-id']}\n\n\0\n")
    consumer.send("DISCONNECT\nreceipt:d\n\n\0\n")
    assert consumer.frame().command == "RECEIPT"
