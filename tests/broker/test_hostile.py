"""Peers that mean harm, or do it: the broker's memory stays bounded, and others are served meanwhile.

The broker is a process of its own, so that its memory can be looked at. `test_memory_attacks.py` fills its account.
"""

import contextlib
import select
import socket
import sys

import pytest
from broker.crowd import Probe, connect_frame, masked
from patience import patience

pytest.importorskip("click")

from crash.process import BrokerProcess
from run_scenarios import WebSocket

pytestmark = [
    pytest.mark.long,
    pytest.mark.no_asan,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory of a process from /proc"),
]

MIB = 2**20
ENDS = '[limits]\nmax_body = "1 MiB"\nmax_headers = 100\n[sessions]\nlogin_timeout = 1.0\n'


class Watch:
    """A broker that is watched: how much its memory grew at the most, and whether others are served."""

    def __init__(self, broker):
        self.broker, self.probe = broker, Probe(broker.port)
        self.start()

    def start(self):
        self.probe.round()
        self.before = self.most = self.broker.rss()

    def look(self):
        self.probe.round()
        self.most = max(self.most, self.broker.rss())
        return self.most - self.before

    def open(self, kind="tcp", logged_in=False):
        if kind == "ws":
            pytest.importorskip("websockets")
            wire = WebSocket("127.0.0.1", self.broker.ws_port, "/", patience(30))
        else:
            port = self.broker.port if kind == "tcp" else self.broker.ws_port
            wire = socket.create_connection(("127.0.0.1", port), patience(30))
        if logged_in:
            wire.sendall(connect_frame())
            assert wire.recv(65536).startswith(b"CONNECTED")
        return contextlib.closing(wire)


@contextlib.contextmanager
def watched(folder, config=""):
    with BrokerProcess(folder, config=config, memory=True) as broker:
        watch = Watch(broker)
        with contextlib.closing(watch.probe):
            yield watch


def flood(wire, block, octets, stall=1.0):
    wire, sent, view = getattr(wire, "socket", wire), 0, memoryview(block)
    while sent < octets:
        if not select.select([], [wire], [], stall)[1]:
            return False
        try:
            sent += wire.send(view[sent % len(block) :])
        except ConnectionError:
            return False
    return True


@pytest.mark.parametrize(
    "frame",
    ["SEND\ndestination:/topic/t{}\n\nx\0", "SEND\ndestination:/queue/a\nreply-to:/temp-queue/{}\n\n\0"],
    ids=["SEND topics", "reply-to"],
)
def test_a_hundred_thousand_of_everything(frame, tmp_path):
    with watched(tmp_path) as watch, watch.open("tcp", True) as wire:
        for first in range(0, 100_000, 1000):
            block = "".join(frame.replace("{}", str(number)) for number in range(first, first + 1000)).encode()
            if not flood(wire, block, len(block)):
                break
        assert watch.look() < 40 * MIB


#: What goes on for ever, by transport: the first octets, and the piece that is repeated. Masks are zero.
ENDLESS = {
    "tcp": {
        "a command": (b"", b"S" * 1000),
        "a header line": (b"SEND\nx:", b"y" * 1000),
        "headers": (b"SEND\n", b"name:value\n" * 100),
        "a body": (b"SEND\ndestination:/queue/a\n\n", b"x" * 1000),
        "a counted body": (b"SEND\ndestination:/queue/a\ncontent-length:1000000\n\n", b"x" * 1000),
        "escapes": (b"SEND\nx:", b"\\n" * 500),
        "heart-beats": (b"", b"\n" * 1000),
        "NULs": (b"", b"\0" * 1000),
    },
    "ws": {
        "a message in fragments": (b"\2\x80" + bytes(4), b"\0\xfe\x03\xe8" + bytes(4) + b"x" * 1000),
        "a message of many octets": (b"\x82\xff" + (2**40).to_bytes(8, "big") + bytes(4), b"x" * 1000),
        "pings": (b"", (b"\x89\xfd" + bytes(4) + b"x" * 125) * 8),
        "empty messages": (b"", (b"\x82\x80" + bytes(4)) * 100),
    },
    "handshake": {"headers": (b"", b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 64_000)},
}


WAYS = [("tcp", False), ("tcp", True), ("ws", False), ("ws", True), ("handshake", False)]


@pytest.mark.parametrize(("kind", "logged_in"), WAYS)
def test_a_frame_that_never_ends(kind, logged_in, tmp_path):
    """Nothing of what the broker says is read, either: pongs pile up."""
    with watched(tmp_path, ENDS) as watch:
        for name, (begin, more) in ENDLESS[kind].items():
            with watch.open(kind, logged_in) as wire:
                getattr(wire, "socket", wire).sendall(begin)
                for _ in range(10):
                    flood(wire, more * (1 if kind == "handshake" else 64), 2 * MIB if kind == "tcp" else MIB // 2)
                    assert watch.look() < (16 if kind == "tcp" else 40) * MIB, name


def test_strangers_with_large_websocket_messages(tmp_path):
    """Who has not logged in may have little of a message in the broker; who has, as much as a frame can be."""
    with watched(tmp_path) as watch, contextlib.ExitStack() as stack:
        for _ in range(20):
            wire = stack.enter_context(watch.open("ws"))
            flood(wire, head := masked(b"", length=8 * MIB), len(head))
            flood(wire, b"x" * 65536, 7 * MIB, 0.2)
        assert watch.look() < 24 * MIB
        friend = stack.enter_context(watch.open("ws", True))
        friend.sendall(b"SEND\ndestination:/queue/a\nreceipt:r\n\n" + b"x" * (8 * MIB) + b"\0")
        assert friend.recv(65536).startswith(b"RECEIPT")


@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_connections_that_say_nothing(count, tmp_path):
    """Half of them stop inside CONNECT. All are dropped when their time is over; one that logs in is served."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 500:
        pytest.skip(f"only {hard} open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 500), hard))
    config = f"[sessions]\nlogin_timeout = {max(3.0, count / 500)}\n"
    with watched(tmp_path, config) as watch, contextlib.ExitStack() as stack:
        mute = []
        for number in range(count):
            mute.append(stack.enter_context(watch.open()))
            if number % 2:
                mute[-1].sendall(b"CONNECT\nlogin:")
            if number % 100 == 0:
                watch.probe.round()
        assert watch.look() < count * 16 * 1024
        for wire in mute:
            with contextlib.suppress(ConnectionError):
                while wire.recv(4096):
                    pass
        assert watch.look() < 2 * count * 8 * 1024 + 8 * MIB
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_come_and_go(tmp_path):
    """They leave nothing behind: in the second half memory does not grow."""
    with watched(tmp_path) as watch:
        for _ in range(2):
            watch.start()
            for number in range(1000):
                with watch.open() as wire:
                    wire.sendall(
                        connect_frame()
                        + b"SUBSCRIBE\nid:1\ndestination:/queue/c%d\nack:client\n\n\0" % (number % 500)
                        + b"SUBSCRIBE\nid:2\ndestination:/temp-queue/c\n\n\0BEGIN\ntransaction:t\n\n\0"
                        + b"SEND\ndestination:/topic/t\n\nx\0SEND\ndestination:/queue/x\ntransaction:t\n\nx\0"
                    )
                    assert wire.recv(65536).startswith(b"CONNECTED")
                    if number % 100 == 0:
                        watch.look()
        assert watch.look() < 4 * MIB
