"""The proxy between real peers: nothing is changed, delayed or lost, and what passes is told; faults, layers, verb."""

import contextlib
import io
import json
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from cli.running import objects, run, started
from client.feeding import wait_for
from client.peer import closed_port
from hypothesis import given
from hypothesis import strategies as st
from patience import patience
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect as ws_connect
from websockets.sync.server import serve as ws_serve

import stompcodec.client as stomp
from stompcodec import Frame, parse, serialize
from stompcodec.capture import CaptureWriter
from stompcodec.cli.inputs import FrameReader
from stompcodec.cli.proxying.bytes import ACTIONS, Exchange, Foreign, Observer, Passed, Raw, faults_of
from stompcodec.cli.proxying.telling import Entry, Recorder, Tally, Watcher, chain_of, json_line
from stompcodec.cli.proxying.wire import Place, Proxy, Target
from stompcodec.errors import StoreError
from stompcodec.testing import StompBroker
from stompcodec.testing.faults import LoopThread
from stompcodec.transport.tls import client_context
from stompcodec.uri import parse_uri


class Proxied:
    def __init__(self, proxy: Proxy, tally: Tally, errors: list[tuple[str, Exception]]) -> None:
        self.proxy, self.tally, self.errors = proxy, tally, errors
        self.entries, self.changed = [], threading.Condition()

    @property
    def port(self) -> int:
        return self.proxy.place.port

    @property
    def url(self) -> str:
        return str(self.proxy.place)

    def add(self, entry: Entry) -> None:
        with self.changed:
            self.entries.append(entry)
            self.changed.notify_all()

    def wait(self, wanted: Callable[[Entry], object], number: int = 1) -> Entry:
        def found() -> list[Entry]:
            return list(filter(wanted, self.entries))

        with self.changed:
            assert self.changed.wait_for(lambda: len(found()) >= number, patience(10)), self.entries
            return found()[number - 1]

    def frame(self, command: str, number: int = 1) -> Entry:
        return self.wait(lambda entry: entry.frame is not None and entry.frame.command == command, number)

    def closed(self, connection: int = 1) -> str:
        return self.wait(lambda entry: entry.kind == "closed" and entry.connection == connection).text

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(json_line(entry)) for entry in self.entries]


@contextlib.contextmanager
def proxied(target, *faults, place=None, context=None, folder=None, seed=0, **options):
    """Run a proxy; when this ends, all is shown and recorded."""
    tally = Tally()
    recorder = None if folder is None else Recorder(str(folder), tally)
    outputs, errors = [], []
    watcher = Watcher(tally, outputs, recorder, failed=lambda what, error: errors.append((what, error)), **options)
    proxy = Proxy(
        place or Place("127.0.0.1", 0, None, False),
        Target(parse_uri(target)[0], context),
        watcher,
        faults=faults_of(faults, seed) if faults else None,
        whole=folder is not None,
        timeout=patience(10),
    )
    running = Proxied(proxy, tally, errors)
    outputs.append(running.add)
    thread = LoopThread("proxied")
    try:
        thread.run(proxy.start())
        try:
            yield running
        finally:
            thread.run(proxy.stop())
    finally:
        thread.end()
        assert watcher.close(patience(20))
        if recorder is not None:
            recorder.close()
    assert errors == []


class Peer:
    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(patience(10))
        self.send = sock.sendall

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self.sock.recv(size - len(data))):
            data += more
        return data

    def rest(self) -> bytes:
        return b"".join(iter(lambda: self.sock.recv(65536), b""))

    def end(self) -> None:
        with contextlib.suppress(OSError):  # a cut may have come first
            self.sock.shutdown(socket.SHUT_WR)


def last_words(port: int, data: bytes = b"") -> bytes:
    said = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=patience(10)) as client,
        contextlib.suppress(ConnectionError),
    ):
        client.sendall(data)
        while more := client.recv(65536):
            said += more
    return said


@contextlib.contextmanager
def raw(*faults: str, **options: Any) -> Iterator[tuple[Proxied, Callable[[], tuple[Peer, Peer]]]]:
    """A proxy in front of a bare listener, and a function that makes the two peers of a connection."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.settimeout(patience(10))
        proxy = stack.enter_context(proxied(f"stomp://127.0.0.1:{listener.getsockname()[1]}", *faults, **options))

        def connect() -> tuple[Peer, Peer]:
            near = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
            far, _ = listener.accept()
            return Peer(near), Peer(stack.enter_context(far))

        yield proxy, connect


@contextlib.contextmanager
def pair(*faults, **options):
    """A proxy, and the two peers of a connection through it."""
    with raw(*faults, **options) as (proxy, connect):
        yield proxy, *connect()


CONNECT = b"CONNECT\naccept-version:1.2\nhost:a\nlogin:ann\npasscode:hunter2\nx-authorization:hunter2\n\n\0"
CONNECTED = b"CONNECTED\nversion:1.2\n\n\0"
SEND = b"SEND\ndestination:/queue/a\ncontent-type:text/plain\ncontent-length:5\n\nhello\0"


@given(st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=2000)), max_size=12))
def test_any_bytes_in_both_directions(shared, pieces):
    _, connect = shared
    near, far = connect()
    up, down = (b"".join(data for side, data in pieces if side is wanted) for wanted in (True, False))
    for side, data in pieces:
        (near if side else far).send(data)
    assert far.read(len(up)) == up
    assert near.read(len(down)) == down
    near.end()
    far.end()
    assert far.rest() == near.rest() == b""
    near.sock.close()
    far.sock.close()


@pytest.fixture(scope="module")
def shared():
    with raw() as made:
        yield made


def test_a_reset_is_passed_on():
    with pair() as (proxy, near, far):
        near.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        near.sock.close()
        with pytest.raises(ConnectionResetError):
            far.rest()
        assert "the client was lost" in proxy.closed()


def test_a_slow_reader_stops_the_sender():
    """Back-pressure is end to end: what nobody reads is not read either, beyond the buffers of the sockets."""
    with pair() as (proxy, near, far):
        for peer in (near, far):
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        near.sock.setblocking(False)
        head = b"SEND\ndestination:/queue/a\ncontent-length:100000000\n\n"
        near.sock.send(head)
        sent, stuck = len(head), 0
        while stuck <= 30:
            try:
                sent += near.sock.send(b"x" * 65536)
                stuck = 0
            except BlockingIOError:
                stuck += 1
            assert sent < 40_000_000
            time.sleep(0.01)
        assert proxy.tally.octets["client"] < sent
        near.sock.setblocking(True)
        assert len(far.read(sent)) == sent


def test_a_large_body_streams():
    size = 3 * 2**20
    frame = b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n" % size + bytes(size) + b"\0"
    with pair() as (proxy, near, far):
        sender = threading.Thread(target=near.send, args=(frame + SEND,))
        sender.start()
        assert far.read(len(frame) + len(SEND)) == frame + SEND
        sender.join()
        large, small = proxy.frame("SEND"), proxy.frame("SEND", 2)
    assert (large.streamed, large.size, large.begin) == (True, size, bytes(256))
    assert (small.streamed, small.size) == (False, 5)
    line = next(line for line in proxy.lines() if line.get("size"))
    assert (line["body"], line["size"]) == (None, size)


@pytest.fixture(scope="module")
def broker():
    with StompBroker() as running:
        yield running


def test_rules_of_the_conversation_of_both_directions():
    subscribe = b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n\0"
    message = b"MESSAGE\nsubscription:1\nmessage-id:7\ndestination:/queue/a\n\n\0"
    with raw() as (proxy, connect):
        near, far = connect()
        for data in (CONNECT, CONNECTED, subscribe * 2, message):
            peer, reader = (far, near) if data in (CONNECTED, message) else (near, far)
            peer.send(data)
            reader.read(len(data))
        near.send(b"ACK\nid:1\ntransaction:t\n\n\0")
        proxy.frame("ACK")
        proxy.frame("MESSAGE")
        other, _ = connect()
        other.send(CONNECT + subscribe)  # no rule of another connection holds for it
        proxy.frame("SUBSCRIBE", 3)
    found = {
        (entry.connection, entry.frame.command, finding.rule)
        for entry in proxy.entries
        for finding in entry.findings
        if entry.frame is not None
    }
    assert found >= {(1, "SUBSCRIBE", "S12-SUB-06"), (1, "MESSAGE", "S12-MSG-05"), (1, "ACK", "S12-TX-02")}
    assert not [rule for number, command, rule in found if (number, command) == (2, "SUBSCRIBE")]
    assert proxy.tally.rules["S12-SUB-06"] == 1
    assert not any(rule.endswith(("FRM-06", "FRM-07")) for rule in proxy.tally.rules)


@pytest.mark.parametrize("shown", [False, True])
def test_heart_beats_are_shown_if_asked(shown):
    with pair(heart_beats=shown) as (proxy, near, _):
        near.send(b"\n\r\n" + SEND + b"?\n")
        proxy.wait(lambda entry: entry.kind == "not-stomp")
    assert ("heart-beats" in [entry.kind for entry in proxy.entries]) is shown
    assert all(abs(entry.time / 1e6 - time.time()) < patience(60) for entry in proxy.entries)
    assert proxy.tally.heart_beats["client"] == 2


def test_the_capture_holds_what_is_shown(tmp_path, broker):
    folder = tmp_path / "a.stompcap"
    with proxied(broker.url, folder=folder) as proxy:
        for number in range(2):
            with stomp.connect(proxy.url, login="ann", passcode="hunter2") as client:
                messages = client.subscribe("/queue/captured")
                client.send("/queue/captured", b"\0binary\xff", {"x-token": "hunter2", "n": f"a:\n{number}"})
                assert messages.get(timeout=patience(10)) is not None

    def told(line):
        return {name: line[name] for name in ("command", "headers", "body", "body_b64") if name in line}

    frames = [line for line in proxy.lines() if line["event"] == "frame"]
    for connection, side in product((1, 2), ("client", "broker")):
        (segment,) = folder.glob(f"{chain_of(connection, side)}-*.stomp")
        decoded = run("decode", "--json", segment)
        shown = [told(line) for line in frames if (line["connection"], line["from"]) == (connection, side)]
        assert (decoded.exit_code, [told(line) for line in objects(decoded)]) == (0, shown), decoded.output
        assert shown
    assert not [path for path in folder.iterdir() if b"hunter2" in path.read_bytes()]
    inspected = run("inspect", "--json", folder)
    assert inspected.exit_code == 0
    assert len(objects(inspected)) == proxy.tally.recorded == sum(proxy.tally.frames.values())


def test_a_body_that_is_too_large_is_not_recorded(tmp_path, monkeypatch):
    monkeypatch.setattr("stompcodec.cli.proxying.wire.KEEP_WHOLE", 4)
    with pair(folder=tmp_path / "a.stompcap") as (proxy, near, far):
        near.send(SEND + CONNECT)
        far.read(len(SEND) + len(CONNECT))
        proxy.frame("CONNECT")
    assert (proxy.tally.recorded, proxy.tally.not_recorded) == (1, 1)


def test_a_capture_that_fails_does_not_end_the_stream(tmp_path, monkeypatch):
    def full(*_):
        raise StoreError("no space left")

    monkeypatch.setattr(CaptureWriter, "append", full)
    with pair(folder=tmp_path / "a.stompcap") as (proxy, near, far):
        near.send(CONNECT)
        assert far.read(len(CONNECT)) == CONNECT
        wait_for(lambda: proxy.errors)
        near.send(SEND)
        assert far.read(len(SEND)) == SEND
        proxy.frame("SEND")
        assert [(what, str(error)) for what, error in proxy.errors] == [("nothing more is recorded", "no space left")]
        proxy.errors.clear()
    assert (proxy.tally.recorded, proxy.tally.not_recorded) == (0, 1)


@pytest.mark.long
def test_a_slow_output_does_not_hold_up_the_stream(broker):
    """The output is a pipe that nobody reads, until the end. Frames that were not shown are counted."""
    with started("proxy", "0", broker.url, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        with stomp.connect(process.stderr.readline().split()[2].decode()) as client:
            for _ in range(16):
                client.send("/topic/nobody", b"x" * 400_000)
            client.send("/topic/nobody", b"the last one", receipt=True, timeout=patience(20))
        shown = []
        reader = threading.Thread(target=lambda: shown.extend(process.stdout))
        reader.start()
        process.terminate()
        assert process.wait(patience(20)) == 0
        reader.join()
    lines = [json.loads(line) for line in shown]
    summary, frames = lines[-1], [line for line in lines if line["event"] == "frame"]
    assert (summary["event"], summary["frames"]["client"]) == ("summary", 19)
    assert summary["not_shown"] > 0
    assert len(frames) + summary["not_shown"] == sum(summary["frames"].values())
    assert next(line for line in frames if line["command"] == "SEND")["body"] == "x" * 400_000


# ---- faults ----
OTHER = b"SEND\ndestination:/queue/b\ncontent-length:5\n\nother\0"
MESSAGE = b"MESSAGE\ndestination:/queue/a\nmessage-id:1\nsubscription:0\ncontent-length:2\n\nhi\0"
RECEIPT = b"RECEIPT\nreceipt-id:1\n\n\0"
ALL = SEND + b"\r\n\n" + OTHER + b"?" + bytes(range(256))
#: Fault, the side that sends, what it sends, and what comes out at the other side.
CASES = [
    *(("lose RECEIPT", "broker", RECEIPT + MESSAGE, MESSAGE), ("drop SEND nth=2", "client", SEND * 3, SEND * 2)),
    ("lose SEND times=all destination=/queue/a", "client", SEND + OTHER + SEND, OTHER),
    ("duplicate MESSAGE", "broker", MESSAGE + MESSAGE, MESSAGE * 3),
    ("cut MESSAGE octets=20", "broker", RECEIPT + MESSAGE, RECEIPT + MESSAGE[:20]),
    *(("cut SEND", "client", OTHER + OTHER, b""), ("cut SEND after", "client", SEND + OTHER, SEND)),
    ("delay MESSAGE 0.01", "broker", RECEIPT + MESSAGE, RECEIPT + MESSAGE),
    ("crlf MESSAGE", "broker", MESSAGE, MESSAGE.replace(b"\n", b"\r\n")),
    *(("silent", "broker", b"\n" + MESSAGE + b"\n", MESSAGE), ("up piece=3 delay=0.0001", "client", SEND, SEND)),
    ("down swallow", "broker", MESSAGE, b""),
    ("duplicate SEND nth=100", "client", ALL, ALL),  # does not apply, though frames are taken apart
]


@pytest.mark.parametrize(("fault", "side", "data", "wanted"), CASES, ids=[case[0] for case in CASES])
def test_faults(fault, side, data, wanted):
    with pair(fault) as (proxy, near, far):
        sender, reader = (near, far) if side == "client" else (far, near)
        with contextlib.suppress(OSError):  # where it is cut, that may come before the last piece
            for at in range(0, len(data), 37):
                sender.send(data[at : at + 37])
            sender.end()
        assert reader.rest() == wanted
        reader.sock.close()
        sender.sock.close()
        proxy.closed()
    if fault.split()[0] in ACTIONS:
        told = [line for line in proxy.lines() if fault in line.get("faults", [])]
        assert len(told) == proxy.tally.faults[fault]
        assert bool(told) is (wanted != ALL)


def test_corrupt_flips_one_bit_and_repeat_headers_adds_entries():
    with pair("corrupt MESSAGE", seed=7) as (_, near, far):
        far.send(MESSAGE + RECEIPT)
        data = near.read(len(MESSAGE) + len(RECEIPT))
    ((a, b),) = [(a, b) for a, b in zip(data, MESSAGE + RECEIPT) if a != b]
    assert (a ^ b).bit_count() == 1
    with pair("repeat_headers MESSAGE") as (_, near, far):
        far.send(MESSAGE)
        far.end()
        (frame,) = parse(near.rest())
    assert (frame.headers.getall("destination"), frame.body) == (["/queue/a", "the second entry"], b"hi")


@pytest.mark.parametrize("fault", ["error SEND message='no room'", "refuse 'message=no room'"])
def test_errors(fault):
    data = b"CONNECT\naccept-version:1.2\nhost:a\nreceipt:r\n\n\0" if "refuse" in fault else SEND
    with pair(fault) as (_, near, far):
        near.send(data)
        (frame,) = parse(near.rest())
        assert far.rest() == b""
    assert (frame.command, frame.get("message")) == ("ERROR", "no room")
    assert frame.get("receipt-id") == ("r" if "refuse" in fault else None)


def test_no_answer_is_written_to_an_end_that_is_closed():
    with pair("error SEND") as (proxy, near, far):
        far.end()
        assert near.rest() == b""
        near.send(SEND)
        near.end()
        assert far.rest() == b""
        assert proxy.closed() == "closed"


def test_an_unreachable_broker_resets_its_clients():
    with (
        raw("unreachable") as (proxy, _),
        pytest.raises(ConnectionResetError),  # which may come before the connect has returned
        socket.create_connection(("127.0.0.1", proxy.port), timeout=patience(10)) as near,
    ):
        near.recv(1)


def test_a_cut_by_bytes_may_be_orderly_and_what_is_held_is_not_read():
    with pair("down cut_after=10", "fin") as (_, near, far):
        far.send(MESSAGE)
        assert near.rest() == MESSAGE[:10]
    with pair("up hold") as (proxy, near, far):
        near.send(SEND)
        proxy.frame("SEND")
        far.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            far.sock.recv(1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *(("", "the first word"), ("lose", "needs a command"), ("error MESSAGE", "frames of clients")),
        *(("crlf SEND", "frames of the broker"), ("lose SEND nth=0", "nth"), ("lose SEND times=none", "times")),
        *(("lose SEND after", "write NAME=VALUE"), ("cut MESSAGE octets=x", "octets")),
        *(("cut MESSAGE octets=1 after", "exclude"), ("delay MESSAGE", "needs seconds")),
        *(("delay MESSAGE nan", "seconds"), ("up", "name one of"), ("up melt=1", "is not one of")),
        *(("up hold=1", "takes no value"), ("up piece=0", "piece"), ("down cut_after=9..3", "cut_after")),
        *(("lose 'SEND", "quotation"), ("silent now", "the first word")),
    ],
)
def test_what_is_not_a_fault(text, problem):
    with pytest.raises(ValueError, match=re.escape(problem)) as caught:
        faults_of((text,), 0)
    assert repr(text) in str(caught.value)


# ---- TLS and WebSocket in front and behind ----
SEND_BINARY = b"SEND\ndestination:/queue/a\ncontent-length:2\n\n\xff\xfe\0"


@pytest.fixture(scope="module")
def doors(certificates):
    with StompBroker(ws_port=0, tls_port=0, tls_cert=certificates.server) as running:
        yield running


@pytest.mark.parametrize(
    ("front", "behind"), [("stomp", "stomp+ssl"), ("stomp+ssl", "ws"), ("ws", "stomp"), ("wss", "ws")]
)
def test_our_client_and_broker(front, behind, doors, certificates):
    ports = {"stomp": doors.port, "stomp+ssl": doors.config.tls_port, "ws": doors.config.ws_port}
    secure = certificates.contexts.server if front in ("stomp+ssl", "wss") else None
    place = Place("127.0.0.1", 0, secure, front.startswith("ws"))
    with proxied(f"{behind}://localhost:{ports[behind]}/", place=place, context=certificates.contexts.client) as proxy:
        options = {"ssl": certificates.contexts.client} if secure else {}
        with stomp.connect(proxy.url, passcode="hunter2", login="ann", **options) as client:
            messages = client.subscribe("/queue/layers")
            for body in (b"text", b"\xff\0binary", b"z" * 300_000):
                client.send("/queue/layers", body, receipt=True)
                assert messages.get(timeout=patience(10)).body == body
        proxy.frame("DISCONNECT")
    assert proxy.tally.foreign == {"client": 0, "broker": 0}
    assert proxy.frame("CONNECT").frame.get("passcode") == "***"
    assert not [entry for entry in proxy.entries if any(each.severity == "error" for each in entry.findings)]


def test_a_certificate_that_is_not_trusted_and_plain_bytes_at_a_port_of_tls(doors, certificates):
    with proxied(f"stomp+ssl://localhost:{doors.config.tls_port}", context=client_context()) as proxy:
        assert last_words(proxy.port) == b""
        assert "certificate verify failed" in proxy.closed().lower()
    with raw(place=Place("127.0.0.1", 0, certificates.contexts.server, False)) as (proxy, _):
        last_words(proxy.port, SEND)
        assert proxy.closed().startswith("closed: no handshake with the client: ")


@contextlib.contextmanager
def ws_server(handler, **options):
    with ws_serve(handler, "127.0.0.1", 0, compression=None, **options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/stomp?x=1"
        finally:
            server.shutdown()
            thread.join()


WS = Place("127.0.0.1", 0, None, True)


def test_messages_keep_kind_and_bytes():
    seen, offered = [], ["odd", "v12.stomp"]

    def handler(connection):
        seen.append((connection.request.path, connection.request.headers.get("Origin"), connection.subprotocol))
        for message in connection:
            seen.append(message)
            connection.send(message)

    messages = ["text", b"binary", SEND.decode(), SEND_BINARY, "é" * 70_000, b"", b"\xff" * 70_000]
    with (
        ws_server(handler, subprotocols=["v11.stomp", "odd"]) as url,
        proxied(url, place=WS) as proxy,
        ws_connect(proxy.url, subprotocols=offered, origin="https://app.example", compression=None) as client,
    ):
        assert client.subprotocol == "odd"
        for message in messages:
            client.send(message)
            assert client.recv(patience(10)) == message
        client.send(iter(["in ", "several ", "parts"]))
        assert client.recv(patience(10)) == "in several parts"
    assert seen == [("/stomp?x=1", "https://app.example", "odd"), *messages, "in several parts"]


def test_frames_become_messages_behind_tcp():
    seen, done = [], threading.Event()

    def handler(connection):
        with contextlib.suppress(ConnectionClosed):
            for message in connection:
                seen.append(message)
                connection.send("MESSAGE\n\n\0")
        done.set()

    large = b"SEND\ncontent-length:3000000\n\n" + bytes(3_000_000) + b"\0"
    with ws_server(handler, max_size=None) as url, proxied(url) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=patience(10)) as client:
            client.sendall(SEND[:20])
            client.sendall(SEND[20:] + b"\n" + SEND_BINARY + large)
            assert Peer(client).read(4 * 10) == b"MESSAGE\n\n\0" * 4
        assert done.wait(patience(10))
    assert seen == [SEND.decode(), "\n", SEND_BINARY, large]


@pytest.mark.parametrize("behind", ["url", "ws_url"])
def test_pages_of_others_may_not_use_it(behind, doors):
    """Before TCP, the proxy checks Origin and Host; before WebSocket, the broker does."""
    with proxied(getattr(doors, behind), place=WS) as proxy:
        with pytest.raises(InvalidStatus) as caught, ws_connect(proxy.url, origin="https://evil.example"):
            pass
        assert caught.value.response.status_code in (403, 502)
        with ws_connect(proxy.url, origin="http://localhost:3000"):
            pass


def test_a_target_that_is_down_answers_502():
    with closed_port() as port, proxied(f"ws://127.0.0.1:{port}/", place=WS) as proxy:
        with pytest.raises(InvalidStatus) as caught, ws_connect(proxy.url):
            pass
        assert caught.value.response.status_code == 502
        assert "Connection refused" in proxy.closed()


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 70_000])
def test_noise_at_a_port_of_websocket(data, doors):
    with proxied(doors.ws_url, place=WS) as proxy:
        last_words(proxy.port, data)
        assert proxy.closed() != "closed"


# ---- the verb ----
BROKEN = b"SEND\npasscode:hunter2\nx:\\q\n\n\0"


class Running:
    def __init__(self, process):
        self.process, self.first = process, process.stderr.readline().decode()
        self.port = int(re.search(r"://127\.0\.0\.1:(\d+) passes on", self.first)[1])

    def say(self, *parts):
        """Send parts, each after the answer to the one before, and return what came last, up to the end."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=patience(10)) as client:
            data = b""
            for part in parts:
                client.sendall(part)
                data = client.recv(65536)
            client.shutdown(socket.SHUT_WR)
            return data + b"".join(iter(lambda: client.recv(65536), b""))

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=patience(30))
        return self.process.returncode, out.decode(), self.first + err.decode()


@contextlib.contextmanager
def running(at, *arguments, target=None, **options):
    pytest.importorskip("pty")  # signals of POSIX
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with at.process("proxy", "0", target or at.url, *arguments, **pipes) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def test_rows_and_the_last_lines(at, tmp_path):
    folder = tmp_path / "a.stompcap"
    with running(at, "--record", folder) as proxy:
        assert b"CONNECTED" in proxy.say(CONNECT)
        proxy.say(b"GET / HTTP/1.1\r\nAuthorization: Basic hunter2\r\n\r\n")
        status, out, err = proxy.end(signal.SIGINT)
    time = r"^\d\d:\d\d:\d\d\.\d{3} +1 "
    for text, row in (
        *((out, time + r"- opened by 127\.0\.0\.1:\d+$"), (out, time + r"> CONNECT +- +accept-v.* 0$")),
        *((out, time + r"< CONNECTED "), (out, r"2 > not STOMP: it passes unchanged from here on$")),
        *((out, r"\|GET / HTTP/1\.1\.\.\|"), (out, r"error S12-FRM-06: unknown command")),
        (err, r"^2 connections; from clients 1 frame, \d+ bytes \(48 of them not STOMP\); from the"),
        (err, r"^lint: .*S12-FRM-06 1$"),
    ):
        assert re.search(row, text, re.MULTILINE), row
    assert (status, "\x1b" in out, "hunter2" in out + err) == (0, False, False)
    assert not [path for path in folder.iterdir() if b"hunter2" in path.read_bytes()]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_json(at):
    with running(at, "--json", "--fault", "lose CONNECTED nth=2") as proxy:
        proxy.say(CONNECT, b"SEND\ndestination:/queue/j\nreceipt:1\n\n\xff\0")
        proxy.say(BROKEN)
        status, out, _err = proxy.end()
    lines = objects(out.encode())
    assert (status, "hunter2" in out, b"hunter2".hex() in out) == (0, False, False)
    assert [line["event"] for line in lines[:2]] == ["listening", "opened"]
    connect, send = (next(line for line in lines if line.get("command") == name) for name in ("CONNECT", "SEND"))
    assert connect["from"] == "client"
    assert [name for name, value in connect["headers"] if value == "***"] == ["passcode", "x-authorization"]
    assert send["body_b64"] == "/w=="
    assert {finding["rule"] for finding in send["lint"]} == {"S12-CL-04", "S12-CT-01"}
    broken = next(line for line in lines if line["event"] == "not-stomp")
    assert bytes.fromhex(broken["begin"]).startswith(b"SEND\npasscode***")
    summary = lines[-1]
    assert (summary["event"], summary["connections"], summary["frames"]["client"]) == ("summary", 2, 2)
    assert summary["lint"]["S12-ESC-05"] == 1


def test_quiet_tells_only_of_a_target_that_is_down(at):
    with running(at, "-q") as proxy:
        proxy.say(CONNECT)
        status, out, err = proxy.end()
    assert (status, out, "1 connection; from clients 1 frame" in err) == (0, "", True)
    with closed_port() as port, running(at, "-q", target=f"127.0.0.1:{port}") as proxy:
        with contextlib.suppress(ConnectionError):
            assert proxy.say() == b""
        status, _out, err = proxy.end()
    assert (status, "(1 did not reach the target)" in err) == (0, True)
    assert f"connection 1 closed: cannot connect to stomp://127.0.0.1:{port}: Connection refused" in err


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("proxy", str(taken.getsockname()[1]), "localhost:61613")
    assert (result.exit_code, "cannot listen at 127.0.0.1 port" in result.stderr) == (1, True)


BODIES = st.binary(max_size=30)
TEXT = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8)
FRAMES = st.builds(
    lambda command, headers, body, length: serialize(
        Frame(command, headers, body if command in ("SEND", "MESSAGE") else b""),
        content_length="always" if length or b"\0" in body else "never",
        lenient=True,
    ),
    st.sampled_from(["SEND", "MESSAGE", "ACK", "RECEIPT"]),
    st.dictionaries(st.sampled_from(["destination", "id", "passcode", "x"]), TEXT, max_size=3),
    BODIES,
    st.booleans(),
)
CUTS = st.lists(st.integers(1, 20), max_size=200)


def chunks_of(data, cuts):
    chunks = []
    for size in cuts:
        chunks.append(data[:size])
        data = data[size:]
    return [chunk for chunk in (*chunks, data) if chunk]


@given(st.lists(FRAMES | st.just(b"\n"), max_size=8).map(b"".join), CUTS, st.sampled_from([0, 5, 1000]))
def test_frames_are_those_of_decode(data, cuts, keep):
    observer = Observer(keep=keep)
    passed = [event for chunk in chunks_of(data, cuts) for event in observer.feed(chunk) if isinstance(event, Passed)]
    assert observer.fed == len(data)
    found = [place for places in FrameReader(io.BytesIO(data).read).places() for place in places]
    assert [(event.place.start, event.place.body, event.place.end) for event in passed] == [
        (place.start, place.body, place.end) for place in found
    ]
    for event, place in zip(passed, found):
        assert (event.head, event.place.begin) == (data[place.start : place.body], place.frame.body[:256])
        assert event.streamed == (place.size > keep)
        if not event.streamed:
            assert (event.place.frame, event.octets) == (place.frame, data[place.start : place.end])


@pytest.mark.parametrize(("side", "destination"), [("broker", "a\\c"), ("client", "a:")])
def test_the_version_that_a_broker_says_holds_for_both_directions(side, destination):
    exchange = Exchange()
    exchange.feed(side, b"CONNECTED\nversion:1.0\n\n\0")
    (event,) = exchange.feed("client", b"SEND\ndestination:a\\c\n\n\0")
    assert isinstance(event, Passed)
    assert event.place.version == ("1.0" if side == "broker" else None)
    assert event.place.frame.get("destination") == destination


def test_an_endless_head_is_not_kept():
    observer, line = Observer(keep=10), b"x:" + b"y" * 60_000 + b"\n"
    events = [event for data in (b"SEND\n", *[line] * 40) for event in observer.feed(data)]
    assert type(events[0]) is Foreign
    assert {type(event) for event in events[1:]} == {Raw}
    assert b"".join(event.octets for event in events) == b"SEND\n" + line * 40
    assert observer.broken is not None
    assert observer.broken.error.limit == "max_headers"
