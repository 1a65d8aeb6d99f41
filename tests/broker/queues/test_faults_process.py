"""A consumer that cannot be written to, on a broker process: over TCP, WebSocket and the legacy port."""

import contextlib
import socket

import pytest
from patience import patience

pytest.importorskip("click")

from crash.process import BrokerProcess
from run_scenarios import WebSocket

from stompcodec import Parser

pytestmark = pytest.mark.long

CONNECTS = {"1.0": "CONNECT\nlogin:guest\n\n\0", "legacy": "CONNECT\nusername:guest\npasscode:guest\n\n\0\n"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker"), config="[listen]\nlegacy = 0\n") as broker:
        yield broker
        log = broker.log.read_text()
        assert "Traceback" not in log
        assert "internal error" not in log


@pytest.mark.parametrize("destination", ["/queue/a", "/topic/t"])
@pytest.mark.parametrize(
    ("port", "version", "name"),
    [("port", "1.0", "s:eq"), ("ws_port", "1.0", "s:eq"), ("legacy_port", "legacy", "Content-Length")],
)
def test_a_subscription_that_cannot_be_served_is_refused(broker, port, version, name, destination):
    address = "127.0.0.1", broker.address[port]
    wire = (
        WebSocket(*address, "/", patience(30)) if port == "ws_port" else socket.create_connection(address, patience(30))
    )
    parser = Parser(version)

    def ask(text):
        wire.sendall(text.encode())
        while not (frames := list(parser.feed(wire.recv(65536)))):
            pass
        return frames[0]

    with contextlib.closing(wire):
        assert ask(CONNECTS[version]).command == "CONNECTED"
        error = ask(f"SUBSCRIBE\ndestination:{destination}\nid:1\nreceipt:s\ninclude-seq:{name}\n\n\0")
        assert (error.command, error.headers["message"]) == ("ERROR", "bad include-seq")
