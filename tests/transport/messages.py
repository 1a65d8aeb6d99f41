"""WebSocket written out by hand (RFC 6455), so that the tests do not trust the library that they test."""

import base64
import hashlib
from itertools import cycle
from typing import NamedTuple

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = base64.b64encode(b"sixteen octets!!").decode()


def request(path: str = "/stomp", **more: str) -> bytes:
    """A handshake as browsers send it. more: headers, _ for -; an empty one leaves it out."""
    headers = {
        **{"Host": "localhost", "Upgrade": "websocket", "Connection": "keep-alive, Upgrade"},
        **{"Sec-WebSocket-Key": KEY, "Sec-WebSocket-Version": "13"},
        "Sec-WebSocket-Protocol": "v10.stomp, v11.stomp, v12.stomp",
        "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    lines = [f"{name}: {value}" for name, value in headers.items() if value]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


def accept_of(key: str = KEY) -> str:
    return base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, mask: bytes | None = b"\1\2\3\xff") -> bytes:
    size = len(payload)
    bit = 0 if mask is None else 128
    if size < 126:
        length = bytes([bit | size])
    elif size < 65536:
        length = bytes([bit | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([bit | 127]) + size.to_bytes(8, "big")
    head = bytes([(128 if fin else 0) | opcode]) + length
    return head + payload if mask is None else head + mask + masked(payload, mask)


def masked(payload: bytes, mask: bytes) -> bytes:
    return bytes(octet ^ key for octet, key in zip(payload, cycle(mask)))


def joined(pieces):
    return b"".join(map(bytes, pieces))


class Read(NamedTuple):
    """A frame that was read."""

    opcode: int
    payload: bytes
    fin: bool
    masked: bool


def frames(data: bytes) -> list[Read]:
    found = []
    while data:
        first, second, data = data[0], data[1], data[2:]
        size = second & 127
        if size >= 126:
            digits = 2 if size == 126 else 8
            size, data = int.from_bytes(data[:digits], "big"), data[digits:]
        mask = b""
        if second & 128:
            mask, data = data[:4], data[4:]
        assert len(data) >= size, "a frame is cut short"
        payload, data = data[:size], data[size:]
        assert first & 0x70 == 0, "reserved bits"
        found.append(Read(first & 15, masked(payload, mask) if mask else payload, first >= 128, bool(mask)))
    return found


def answered(data: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, rest
