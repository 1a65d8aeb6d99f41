"""A client of a broker process that behaves well, beside those that do not."""

import socket
import struct

from patience import patience


def connect_frame(version: str = "1.2") -> bytes:
    """CONNECT; 1.0 has no accept-version."""
    if version == "legacy":
        return b"CONNECT\nusername: guest\npasscode: guest\n\n\0"
    lines = [] if version == "1.0" else [f"accept-version:{version}"]
    return "\n".join(["CONNECT", *lines, "host:/", "login:guest", "passcode:guest", "", "\0"]).encode()


def masked(data: bytes, opcode: int = 2, final: bool = True, length: int | None = None) -> bytes:
    """A frame of WebSocket, as a client writes it, with a mask of zeros; or its beginning, if the length is larger."""
    size = len(data) if length is None else length
    return struct.pack("!BBQI", opcode | (0x80 if final else 0), 0x80 | 127, size, 0) + data


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
