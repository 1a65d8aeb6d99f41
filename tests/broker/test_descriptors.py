"""A broker process without file descriptors: who comes too late is told or closed, and all others are served."""

import contextlib
import os
import re
import socket
import sys
import time

import pytest
from patience import patience

pytest.importorskip("click")
from crash.process import BrokerProcess

import stompcodec
from stompcodec import Frame

pytestmark = [
    pytest.mark.long,
    pytest.mark.no_asan,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="lowers the limit of a process, and reads /proc"),
]
#: Descriptors of the broker, and how many clients come.
LIMIT, CLIENTS = 64, 150
CONNECT = b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


class Limited(BrokerProcess):
    """One with few descriptors, which it cannot raise. Its connections are closed after each test."""

    def reduce(self, number):
        import resource

        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (number, LIMIT))

    def descriptors(self):
        folder, found = f"/proc/{self.pid}/fd", []
        for name in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                found.append(os.readlink(f"{folder}/{name}"))
        return found

    def held(self):
        """Descriptors of sockets and of messages; folders and spare ones are opened once and stay."""
        return sum(any(each in name for each in ("socket:", "/incoming/", "/bodies/")) for name in self.descriptors())

    def connect(self, kind="tcp"):
        port = self.address[{"tcp": "port", "tls": "tls_port", "ws": "ws_port", "legacy": "legacy_port"}[kind]]
        sock = socket.create_connection(("127.0.0.1", port), patience(30))
        self.open.append(sock)
        return sock


@pytest.fixture(scope="module", params=["--no-uvloop", "--uvloop"])
def process(request, tmp_path_factory, certificates):
    if request.param == "--uvloop":
        pytest.importorskip("uvloop")
    config = '[listen]\nlegacy = 0\n[messages]\nlarge = "1 KiB"\n'
    fields = {"upload_timeout": 0.5, "max_uploads": 8, "user_uploads": 8}
    flags = (request.param, "--tls-port", "0", "--tls-cert", certificates.server)
    with Limited(tmp_path_factory.mktemp("broker"), config=config, fields=fields, flags=flags) as process:
        process.open = []
        process.reduce(LIMIT)
        yield process


@pytest.fixture
def broker(process):
    """Afterwards all connections are closed, and the next one is served again."""
    yield process
    while process.open:
        process.open.pop().close()
    give_up = time.monotonic() + patience(30)
    while True:
        with process.connect() as sock:
            sock.sendall(CONNECT)
            with contextlib.suppress(ConnectionError):
                if sock.recv(9) == b"CONNECTED":
                    return
        assert time.monotonic() < give_up
        time.sleep(0.02)


def told(sock):
    found = b""
    with contextlib.suppress(ConnectionError):
        while data := sock.recv(65536):
            found += data
    return found


def exchange(sock, parser, data):
    sock.sendall(data)
    while True:
        for frame in parser.feed(sock.recv(65536)):
            return frame


def occupy(broker):
    """Connect until there are no descriptors; those who are served."""
    answers = []
    for _ in range(LIMIT):
        sock = broker.connect()
        sock.sendall(CONNECT)
        answers.append((sock, sock.recv(5)))
    served = [sock for sock, answer in answers if answer == b"CONNE"]
    assert 10 < len(served) < LIMIT - 10
    return served


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws", "legacy"])
def test_who_comes_too_late_is_told_or_closed(broker, kind):
    occupy(broker)
    late = [broker.connect(kind) for _ in range(20)]
    request = {"tls": b"", "ws": REQUEST}.get(kind, CONNECT)
    for sock in late:
        with contextlib.suppress(ConnectionError):
            sock.sendall(request)
    answers = [told(sock) for sock in late]  # each comes to its end
    error = b"ERROR\nmessage:too many connections\n"
    words = {"ws": b"HTTP/1.1 503 Service Unavailable\r\n", "tls": b""}.get(kind, error)
    assert all(answer.startswith(words) or not answer for answer in answers)
    if words:
        assert sum(answer.startswith(words) for answer in answers) >= 10
        assert any(b"connect again later" in answer for answer in answers)


def test_others_are_served_meanwhile_and_files_are_made(broker):
    served = occupy(broker)
    first, parser = served[0], stompcodec.Parser("1.2")
    while not first.recv(65536).endswith(b"\0\n"):  # the rest of CONNECTED
        pass
    for number, size in enumerate((10, 5000, 200_000)):
        frame = Frame("SEND", {"destination": "/queue/a", "persistent": "true", "receipt": f"{number}"}, b"x" * size)
        answer = exchange(first, parser, stompcodec.serialize(frame, "1.2"))
        assert (answer.command, answer.get("receipt-id")) == ("RECEIPT", f"{number}")
    subscribe = Frame("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "ack": "auto"})
    found = [exchange(first, parser, stompcodec.serialize(subscribe, "1.2"))]
    while len(found) < 3:
        found += parser.feed(first.recv(65536))
    assert [len(frame.body) for frame in found] == [10, 5000, 200_000]


def test_the_log_stays_short(broker):
    occupy(broker)
    before, began = broker.log.stat().st_size, time.monotonic()
    for _ in range(5):
        late = [broker.connect() for _ in range(CLIENTS)]
        for sock in late:
            told(sock)
            sock.close()
    seconds = time.monotonic() - began
    with broker.log.open("rb") as log:
        log.seek(before)
        lines = log.read().decode().splitlines()
    lines = [line for line in lines if " INFO " not in line]
    assert len(lines) <= seconds + 2
    assert all(re.search(r"no more connections, with 64 file descriptors: \d+ refused \(raise", line) for line in lines)


def test_without_a_single_descriptor(broker):
    """Also the last ones, which are for files, are taken: the spare one is used to close who comes."""
    occupy(broker)
    broker.reduce(len(broker.descriptors()) - 10)
    try:
        late = [broker.connect() for _ in range(20)]
        answers = [told(sock) for sock in late]
        assert all(answer.startswith(b"ERROR\n") or not answer for answer in answers)
    finally:
        broker.reduce(LIMIT)


@pytest.mark.parametrize("kind", ["tcp", "tls"])
def test_half_sent_messages_end(broker, kind, certificates):
    """Each of them is told, its file and its descriptors are free again; there are only so many at a time."""
    before, wires = broker.held(), []
    for _ in range(12):
        sock = broker.connect(kind)
        if kind == "tls":
            sock = certificates.contexts.client.wrap_socket(sock, server_hostname="localhost")
            broker.open.append(sock)
        wires.append(sock)
        assert exchange(wires[-1], stompcodec.Parser("1.2"), CONNECT).command == "CONNECTED"
    for wire in wires:  # all before the first one has stalled
        wire.sendall(b"SEND\ndestination:/queue/half\ncontent-length:50000\n\n" + bytes(20_000))
    answers = [told(wire) for wire in wires]
    assert sum(b"message:the large message has stalled\n" in answer for answer in answers) == 8
    assert sum(b"message:too many large messages at a time\n" in answer for answer in answers) == 4
    for wire in wires:
        wire.close()
    give_up = time.monotonic() + patience(30)
    while list((broker.folder / "data" / "incoming").iterdir()) or broker.held() > before:
        assert time.monotonic() < give_up
        time.sleep(0.01)
