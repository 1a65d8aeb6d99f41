"""Peers that mean harm, or do it: the broker's memory stays bounded, and others are served meanwhile."""

import contextlib
import itertools
import select
import socket
import sys
import time

import pytest
from broker.sockets import Probe, connect_frame, masked
from patience import patience
from transport.messages import request

from stompcodec.broker.memory import MESSAGE

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
        **{"a command": (b"", b"S" * 1000), "a header line": (b"SEND\nx:", b"y" * 1000)},
        "headers": (b"SEND\n", b"name:value\n" * 100),
        "a body": (b"SEND\ndestination:/queue/a\n\n", b"x" * 1000),
        "a counted body": (b"SEND\ndestination:/queue/a\ncontent-length:1000000\n\n", b"x" * 1000),
        **{"escapes": (b"SEND\nx:", b"\\n" * 500), "heart-beats": (b"", b"\n" * 1000), "NULs": (b"", b"\0" * 1000)},
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
    with watched(tmp_path, ENDS.replace("= 1.0", "= 60.0") if logged_in else ENDS) as watch:
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


#: Rounds in which nobody can send anything more, after which all are stuck.
STUCK = 30
LIMIT = 64 * MIB
#: Three times the limit comes from so many peers.
PEERS, TOTAL = 60, 3 * LIMIT
LINE = b"h:" + b"x" * 65_000 + b"\n"
LINES = TOTAL // PEERS // len(LINE) + 1
CONFIG = '[limits]\nmemory = "64 MiB"\n[listen]\nlegacy = 0\n[topics]\nretain = true\n'


class Member:
    """One of a crowd: it sends what its script says as fast as it can, and reads or does not."""

    def __init__(self, port, opening, script, reads, wrap):
        self.script, self.reads, self.out, self.done = script, reads, memoryview(b""), False
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(patience(60))
        self.socket.connect(("127.0.0.1", port))
        if wrap:
            self.socket.sendall(request())
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += self.socket.recv(1)
        self.socket.sendall(masked(opening) if wrap else opening)
        answer = self.socket.recv(65536)
        assert b"connected" in answer.lower(), answer
        self.socket.setblocking(False)

    def step(self):
        """Send what the transport takes now; return how many bytes that were."""
        sent = 0
        try:
            with contextlib.suppress(BlockingIOError):
                if self.reads and not self.socket.recv(65536):
                    raise ConnectionError("the broker has closed it")
            for _ in range(8):
                self.out = self.out or memoryview(next(self.script, b""))
                if not self.out:
                    self.done = True
                    break
                count = self.socket.send(self.out)
                sent, self.out = sent + count, self.out[count:]
        except BlockingIOError:
            pass
        except OSError:
            self.done = True
            self.socket.close()
        return sent


class Crowd:
    """Members, and the rounds in which they go on."""

    def __init__(self, broker):
        self.broker, self.members, self.probe = broker, [], Probe(broker.port)

    def join(self, script, version="1.2", reads=False, wrap=False):
        port = self.broker.ws_port if wrap else self.broker.port
        port = self.broker.address["legacy_port"] if version == "legacy" else port
        self.members.append(Member(port, connect_frame(version), script, reads, wrap))
        return self.members[-1]

    def join_all(self, count, script, **options):
        for number in range(count):
            self.join(script(number), **options)

    def run(self):
        """Go on until everybody is at an end, or nobody can send any more; then as long as that takes more memory."""
        give_up, stuck = time.monotonic() + patience(60), 0
        while stuck < STUCK and not all(member.done for member in self.members):
            assert time.monotonic() < give_up, "the crowd does not come to an end"
            moved = sum(member.step() for member in self.members if not member.done)
            self.probe.round()
            stuck = 0 if moved else stuck + 1
        most, same = 0, 0
        while same < STUCK:
            self.probe.round()
            before, most = most, self.broker._status("VmHWM")
            same = same + 1 if before == most else 0

    def close(self):
        self.probe.close()
        for member in self.members:
            member.socket.close()


def repeated(count, *pieces):
    return itertools.chain.from_iterable(itertools.repeat(pieces, count))


def send(destination, body=b"", *headers):
    return "\n".join(["SEND", f"destination:{destination}", *headers, "", ""]).encode() + body + b"\0"


def subscribe(destination, *headers, number=1):
    return "\n".join(["SUBSCRIBE", f"id:{number}", f"destination:{destination}", *headers, "", "\0"]).encode()


def empty_messages(crowd, peers, *headers):
    count = max(1, TOTAL // MESSAGE // peers // 1000)
    crowd.join_all(peers, lambda number: repeated(count, send(f"/queue/{number}", b"", *headers) * 1000))


def heads(crowd, version, wrap=False):
    wrapped = masked if wrap else bytes
    script = [wrapped(b"SEND\n"), *[wrapped(LINE)] * LINES]
    crowd.join_all(PEERS, lambda _: iter(script), version=version, wrap=wrap)


def websocket_frames(crowd):
    """Frames of WebSocket that come to no end: nothing of them reaches a session."""
    script = [masked(b"SEND\n", length=60 * MIB), *[LINE] * LINES]
    crowd.join_all(PEERS, lambda _: iter(script), wrap=True)


def bodies(crowd, *headers):
    crowd.join_all(TOTAL // 100_000, lambda _: iter([send("/queue/a", b"x" * 99_000, *headers)[:-1]]))


def transactions(crowd, body):
    piece = send("/queue/a", body, "transaction:t") * 100
    count = TOTAL // PEERS // ((MESSAGE + len(body)) * 100) + 1
    crowd.join_all(PEERS, lambda _: iter([b"BEGIN\ntransaction:t\n\n\0", *[piece] * count]))


def slow_subscribers(crowd, topics, size, total, *headers):
    """They do not read, or do not acknowledge, what is sent to topics."""
    crowd.join_all(PEERS, lambda number: iter([subscribe(f"/topic/{number % topics}", *headers, number=number)]))
    many = max(1, 100_000 // (size + MESSAGE))
    count = total // topics // ((MESSAGE + size) * many) + 1
    crowd.join_all(topics, lambda number: repeated(count, send(f"/topic/{number}", b"x" * size) * many), reads=True)


def slow_readers(crowd):
    """The transport of each takes some MiB; then its output waits in the broker."""
    crowd.join_all(PEERS, lambda number: iter([subscribe("/queue/a", number=number)]))
    crowd.join_all(4, lambda _: repeated(1000, send("/queue/a", b"x" * 90_000)), reads=True)


def unread_receipts(crowd):
    crowd.join_all(PEERS, lambda _: repeated(120, send("/topic/nobody", b"", "receipt:" + "x" * 60_000)))


def consumers_that_do_not_acknowledge(crowd, version):
    for number in range(20):
        crowd.join(iter([subscribe(f"/queue/{number}", "ack:client", "prefetch-count:0")]), version=version, reads=True)
        crowd.join(repeated(10, send(f"/queue/{number}") * 1000))


def subscriptions(crowd):
    selector, id = " OR ".join(["b = 1"] * 20), "i" * 500
    crowd.join_all(
        PEERS,
        lambda _: (
            subscribe(f"/topic/{n % 50}", f"selector:a = '{n}' OR {selector}", f"x:{n}", number=f"{n}-{id}")
            for n in range(400)
        ),
        reads=True,
    )


def destinations(crowd):
    crowd.join_all(20, lambda peer: (send(f"/queue/{'q' * 3000}{peer}-{n}") for n in range(600)), reads=True)


def long_names(crowd):
    """As text, a name takes up to four times the bytes that it has in a frame."""
    crowd.join_all(4, lambda number: repeated(120, send(f"/queue/{number}\U0001f600{'x' * 3900}") * 40))


def delayed(crowd):
    crowd.join_all(10, lambda number: repeated(20, send(f"/queue/{number}", b"", "delay:9999999") * 1000))


def retained(crowd):
    body = b"x" * 20_000
    crowd.join_all(10, lambda peer: (send(f"/topic/{peer}-{n}", body, "retain:set") for n in range(600)), reads=True)


def what_is_left_in_between(crowd):
    """Many small messages, of which a few stay where they lie in memory; then something larger."""
    eater = crowd.join(iter([subscribe("/queue/f", "ack:client-individual", "prefetch-count:0")]), reads=True)
    crowd.join(repeated(70, send("/queue/f") * 1000))
    crowd.run()
    eater.script = (b"ACK\nid:1-%d\n\n\0" % number for number in range(1, 70_000) if number % 100)
    eater.done = False
    crowd.run()
    heads(crowd, "1.2")


#: Name -> what makes the crowd, its arguments; and whether `make test` has it: one of each kind. The others differ in
#: the version, the transport or the number of peers.
ATTACKS = {
    "empty messages from 4": (True, empty_messages, 4),
    "empty messages from 60": (False, empty_messages, 60),
    "empty messages that ask to be stored": (False, empty_messages, 4, "persistent:true"),
    "heads, 1.0": (False, heads, "1.0"),
    "heads, 1.2": (True, heads, "1.2"),
    "heads, legacy": (False, heads, "legacy"),
    "heads over WebSocket": (False, heads, "1.2", True),
    "frames of WebSocket": (True, websocket_frames),
    "bodies with a length": (False, bodies, "content-length:100000"),
    "bodies without a length": (True, bodies),
    "transactions of empty messages": (True, transactions, b""),
    "transactions of larger messages": (False, transactions, b"x" * 10_000),
    "subscribers that do not read": (False, slow_subscribers, 1, 90_000, TOTAL // 20),
    "subscribers of many topics that do not read": (False, slow_subscribers, PEERS, 90_000, 2 * TOTAL),
    "subscribers that do not acknowledge": (False, slow_subscribers, 1, 100, TOTAL // 10, "ack:client"),
    "subscribers of many topics that do not acknowledge": (True, slow_subscribers, PEERS, 1000, TOTAL, "ack:client"),
    "slow readers": (False, slow_readers),
    "unread receipts": (True, unread_receipts),
    "consumers that do not acknowledge, 1.1": (False, consumers_that_do_not_acknowledge, "1.1"),
    "consumers that do not acknowledge, 1.2": (True, consumers_that_do_not_acknowledge, "1.2"),
    "subscriptions": (True, subscriptions),
    "destinations": (True, destinations),
    "long names": (False, long_names),
    "delayed": (False, delayed),
    "retained": (True, retained),
    "what is left in between": (True, what_is_left_in_between),
}
NEEDS = {"heads over WebSocket": "websockets", "frames of WebSocket": "websockets", "subscriptions": "lark"}
#: With 60 outboxes at once the buffers of the transports take some 10 MiB besides, which is much of 64. So are the
#: buffers of the Python backend.
LIMITS = dict.fromkeys(
    ("subscribers of many topics that do not read", "what is left in between", "slow readers", "unread receipts"),
    2 * LIMIT,
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if ATTACKS[name][0] else pytest.mark.slow) for name in ATTACKS]
)
def test_resident_memory_stays_near_the_limit(name, tmp_path):
    pytest.importorskip(NEEDS.get(name, "click"))
    limit = LIMITS.get(name, LIMIT)
    config = CONFIG.replace("64 MiB", f"{limit // MIB} MiB")
    with BrokerProcess(tmp_path, config=config, memory=True) as broker:
        with contextlib.closing(Crowd(broker)) as crowd:
            _quick, attack, *arguments = ATTACKS[name]
            attack(crowd, *arguments)
            crowd.run()
        assert broker._status("VmHWM") < 1.3 * limit
        assert "Traceback" not in broker.tail(10_000)
