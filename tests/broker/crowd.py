"""Many clients of a broker process at once, from one thread, beside a client that behaves well."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from crash.process import BrokerProcess
from patience import patience

#: Rounds in which nobody can send anything more, after which all are stuck.
_STUCK = 30


def connect_frame(version: str = "1.2", *headers: str) -> bytes:
    """CONNECT; 1.0 has no accept-version."""
    if version == "legacy":
        return b"CONNECT\nusername: guest\npasscode: guest\n\n\0"
    lines = [] if version == "1.0" else [f"accept-version:{version}"]
    return "\n".join(["CONNECT", *lines, "host:/", "login:guest", "passcode:guest", *headers, "", "\0"]).encode()


def masked(data: bytes, opcode: int = 2, final: bool = True, length: int | None = None) -> bytes:
    """A frame of WebSocket, as a client writes it, with a mask of zeros; or its beginning, if the length is larger."""
    size = len(data) if length is None else length
    return struct.pack("!BBQI", opcode | (0x80 if final else 0), 0x80 | 127, size, 0) + data


def highest(broker: BrokerProcess) -> int:
    for line in Path(f"/proc/{broker.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM")


class Member:
    """One of the crowd: it sends what its script says as fast as it can, and reads or does not."""

    def __init__(
        self, address: tuple[str, int], opening: bytes, script: Iterator[bytes], reads: bool, wrap: str
    ) -> None:
        self.socket: socket.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(patience(60))
        self.socket.connect(address)
        if wrap == "tls":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)
        self.websocket = wrap == "ws"
        if self.websocket:
            lines = ["GET / HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade"]
            lines += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", "", ""]
            self.socket.sendall("\r\n".join(lines).encode())
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += self.socket.recv(1)
        self.socket.sendall(masked(opening) if self.websocket else opening)
        answer = self.socket.recv(65536)
        assert b"CONNECTED" in answer or b"connected" in answer.lower(), answer
        self.socket.setblocking(False)
        self.script = script
        self.out = memoryview(b"")
        self.reads = reads
        self.closed = False
        self.done = False
        self.sent = 0
        self.received = b""

    def step(self) -> int:
        before = self.sent
        try:
            if self.reads:
                self._read()
            for _ in range(8):
                if not self.out:
                    piece = next(self.script, None)
                    if piece is None:
                        self.done = True
                        break
                    self.out = memoryview(piece)
                count = self.socket.send(self.out)
                self.sent += count
                self.out = self.out[count:]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self._end()
        return self.sent - before

    def _read(self) -> None:
        with suppress(BlockingIOError, ssl.SSLWantReadError):
            data = self.socket.recv(65536)
            self.received = (self.received + data)[-8192:]
            if not data:
                self._end()

    def _end(self) -> None:
        """The broker has closed the connection; what it said before is there."""
        with suppress(OSError):
            while data := self.socket.recv(65536):
                self.received = (self.received + data)[-8192:]
        self.closed = self.done = True
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


class Probe:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), patience(60))
        self.socket.sendall(connect_frame())
        self._until(b"CONNECTED")
        self.socket.sendall(b"SUBSCRIBE\nid:0\nack:client-individual\ndestination:/queue/probe\nreceipt:s\n\n\0")
        self._until(b"receipt-id:s")
        self.number = 0

    def _until(self, text: bytes) -> bytes:
        got = b""
        while text not in got:
            data = self.socket.recv(65536)
            assert data, f"the broker has closed the connection: {got!r}"
            got += data
        return got

    def round(self) -> None:
        self.number += 1
        self.socket.sendall(b"SEND\ndestination:/queue/probe\n\nprobe %d\0" % self.number)
        got = self._until(b"probe %d\0" % self.number)
        ack = got.rpartition(b"\nack:")[2].partition(b"\n")[0]
        self.socket.sendall(b"ACK\nid:%b\nreceipt:%d\n\n\0" % (ack, self.number))
        self._until(b"receipt-id:%d\n" % self.number)

    def close(self) -> None:
        self.socket.close()


class Crowd:
    """Members, and the rounds in which they go on."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.members: list[Member] = []
        self.probe = Probe(broker.port)

    def join(self, script: Iterator[bytes], *headers: str, version="1.2", reads=False, wrap="") -> Member:
        port = {"ws": self.broker.ws_port, "tls": self.broker.address["tls_port"], "": self.broker.port}[wrap]
        if version == "legacy":
            port = self.broker.address["legacy_port"]
        member = Member(("127.0.0.1", port), connect_frame(version, *headers), script, reads, wrap)
        self.members.append(member)
        return member

    def join_all(self, count: int, script: Callable[[int], Iterator[bytes]], **options: Any) -> None:
        for number in range(count):
            self.join(script(number), **options)

    def run(self) -> None:
        """Go on until everybody is at an end, or nobody can send any more."""
        give_up, stuck = time.monotonic() + patience(60), 0
        while stuck < _STUCK and not all(member.done for member in self.members):
            assert time.monotonic() < give_up, "the crowd does not come to an end"
            moved = sum(member.step() for member in self.members if not member.done)
            self.probe.round()
            stuck = 0 if moved else stuck + 1

        self.settle()

    def settle(self) -> None:
        """Let the broker read what the transports hold, as long as it takes more memory for that."""
        most, same = 0, 0
        while same < _STUCK:
            self.probe.round()
            now = highest(self.broker)
            same = same + 1 if now == most else 0
            most = now

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_error: object) -> None:
        self.probe.close()
        for member in self.members:
            member.close()
