"""Send a message through our broker that is larger than the memory it may have, to a consumer that is slow.

Shows how long it took, and the most memory that the broker had; fails if that was too much or if an octet is wrong.
With --client, our client sends it from an iterable and reads it by `message.open()`: neither broker nor client may then
grow by 64 MiB or more.

Usage: large.py [--size 2GiB] [--persistent] [--ws] [--rate MIB_A_SECOND] [--most MIB] [--client]
"""

from __future__ import annotations

import argparse
import re
import resource
import socket
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "tests"))

from crash.process import BrokerProcess
from run_scenarios import WebSocket

import stompcodec.client as stomp
from stompcodec.spec import Limits

MIB = 2**20
PIECE = 256 * 1024
PATIENCE = 600
_FILLING = (bytes(range(256)) * (PIECE // 256))[16:]


def octets_of(text: str) -> int:
    found = re.fullmatch(r"(\d+)(MiB|GiB)", text)
    if found is None:
        raise argparse.ArgumentTypeError("such as 64MiB or 2GiB")
    return int(found[1]) * (MIB if found[2] == "MiB" else 1024 * MIB)


def pieces(size: int) -> Iterator[bytes]:
    """The body: each piece begins with its number."""
    for number, start in enumerate(range(0, size, PIECE)):
        yield (b"%016d" % number + _FILLING)[: size - start]


class Watch(threading.Thread):
    """The most memory that a process has, while this runs."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self.broker = broker
        self.before = self.most = broker.rss()
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.05):
            self.most = max(self.most, self.broker.rss())


def connected(broker: BrokerProcess, ws: bool) -> Any:
    wire: Any
    if ws:
        wire = WebSocket("127.0.0.1", broker.ws_port, "/", PATIENCE)
    else:
        wire = socket.create_connection(("127.0.0.1", broker.port), PATIENCE)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 * 1024)
    wire.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0")
    assert wire.recv(65536).startswith(b"CONNECTED")
    return wire


def send(broker: BrokerProcess, size: int, persistent: bool, ws: bool) -> float:
    """Seconds until RECEIPT."""
    start = time.perf_counter()
    wire = connected(broker, ws)
    more = b"persistent:true\n" if persistent else b""
    wire.sendall(b"SEND\ndestination:/queue/large\nreceipt:r\n%bcontent-length:%d\n\n" % (more, size))
    for piece in pieces(size):
        wire.sendall(piece)
    wire.sendall(b"\0")
    answer = wire.recv(65536)
    assert answer.startswith(b"RECEIPT"), answer[:200]
    wire.close()
    return time.perf_counter() - start


def take(broker: BrokerProcess, size: int, ws: bool, rate: float) -> float:
    """Seconds until all of it came."""
    start = time.perf_counter()
    wire = connected(broker, ws)
    wire.sendall(b"SUBSCRIBE\nid:0\ndestination:/queue/large\nack:client-individual\n\n\0")
    head = b""
    while b"\n\n" not in head:
        head += wire.recv(PIECE)
    head, _, rest = head.partition(b"\n\n")
    assert b"content-length:%d" % size in head, head
    expected = crc = got = 0
    for piece in pieces(size):
        expected = zlib.crc32(piece, expected)
    while got < size:
        piece = (rest or wire.recv(PIECE))[: size - got]
        assert piece, "the broker hung up"
        crc, got, rest = zlib.crc32(piece, crc), got + len(piece), b""
        ahead = got / MIB / rate - (time.perf_counter() - start) if rate else 0.0
        if ahead > 0:
            time.sleep(ahead)
    assert crc == expected, "it is another body"
    ack = re.search(rb"\nack:([^\n]*)", head)
    assert ack is not None
    wire.sendall(b"ACK\nid:%b\nreceipt:a\n\n\0" % ack[1])
    answer = b""
    while b"RECEIPT" not in answer:
        answer += wire.recv(65536)
    wire.close()
    return time.perf_counter() - start


def send_and_take(broker: BrokerProcess, size: int, persistent: bool, ws: bool) -> tuple[float, float, int]:
    """Seconds to send and to take, by our client; and how many octets this process has grown at the most."""
    url = f"ws://127.0.0.1:{broker.ws_port}/" if ws else f"stomp://127.0.0.1:{broker.port}"
    expected = crc = 0
    for piece in pieces(size):
        expected = zlib.crc32(piece, expected)
    options: Any = {"login": "guest", "passcode": "guest", "limits": Limits(max_body=size), "stream_over": MIB}
    with stomp.connect(url, **options) as client:
        client.send("/queue/other", b"warm", receipt=True)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        more = {"persistent": "true"} if persistent else {}
        client.send("/queue/large", pieces(size), more, length=size, receipt=True, timeout=PATIENCE)
        sent = time.perf_counter() - start
        message = client.subscribe("/queue/large", ack="client-individual", prefetch=1).get(PATIENCE)
        assert message is not None, "nothing came"
        with message.open() as reader:
            for piece in reader:
                crc = zlib.crc32(piece, crc)
        message.ack(receipt=True, timeout=PATIENCE)
        taken = time.perf_counter() - start - sent
    assert crc == expected, "it is another body"
    return sent, taken, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--size", type=octets_of, default=2 * 1024 * MIB)
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--ws", action="store_true", help="over WebSocket")
    parser.add_argument("--rate", type=float, default=0.0, help="MiB a second that the consumer takes; 0 as it can")
    parser.add_argument("--client", action="store_true", help="by our client, whose memory is watched, too")
    parser.add_argument("--most", type=int, default=100, help="MiB of memory that the broker may have")
    options = parser.parse_args()
    size = options.size
    config = f'[limits]\nmax_body = {size}\n[messages]\nlarge = "100 KiB"\n'
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess(Path(folder), config=config, memory=not options.persistent) as broker,
    ):
        watch = Watch(broker)
        watch.start()
        grown = 0
        if options.client:
            sent, taken, grown = send_and_take(broker, size, options.persistent, options.ws)
        else:
            sent = send(broker, size, options.persistent, options.ws)
            taken = take(broker, size, options.ws, options.rate)
        watch.over.set()
        watch.join()
    kind = f"{'persistent' if options.persistent else 'not persistent'}, {'WebSocket' if options.ws else 'TCP'}"
    print(
        f"{size / MIB:.0f} MiB, {kind}: sent in {sent:.1f} s, taken in {taken:.1f} s; "
        f"memory {watch.before / MIB:.1f} MiB before, {watch.most / MIB:.1f} MiB at most"
        + (f"; the client grew by {grown / MIB:.1f} MiB" if options.client else "")
    )
    if options.client and max(grown, watch.most - watch.before) >= 64 * MIB:
        sys.exit("that is 64 MiB or more")
    if watch.most > options.most * MIB:
        sys.exit(f"that is over {options.most} MiB")


if __name__ == "__main__":
    main()
