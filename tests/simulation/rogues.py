"""What misbehaving clients send: bytes that are no frames, frames that make no sense, and frames that never end."""

from __future__ import annotations

#: Where a half frame may go, if what is sent behind it ends it: what is there is in no ledger.
LITTER = ("/queue/w", "/queue/DLQ.w")

#: What can be sent, by name. Each is refused, or waits for more; none may hurt anybody else.
WRONGS: dict[str, bytes] = {
    "garbage": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03GET / HTTP/1.1\r\n\r\n",
    "no colon": b"SEND\ndestination\n\nx\0",
    "no UTF-8": b"SEND\ndestination:/queue/a\xff\xfe\n\nx\0",
    "an unknown command": b"SELL\ndestination:/queue/a\n\n\0",
    "a frame of the server": b"MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/queue/a\n\nx\0",
    "no destination": b"SEND\nreceipt:w1\n\nx\0",
    "half a body": b"SEND\ndestination:/queue/w\ncontent-length:5000\n\nhalf",
    "half a head": b"SEND\ndestination:/queue/w\nx:" + b"y" * 3000,
    "many empty lines": b"\n" * 5000,
    "a second CONNECT": b"CONNECT\naccept-version:1.2\nhost:/\n\n\0",
    "an ACK of another": b"ACK\nid:1-1\nmessage-id:b1-1\nsubscription:s0\n\n\0",
    "an ACK of nothing": b"ACK\nid:99-99\nmessage-id:none\nsubscription:none\nreceipt:w2\n\n\0",
    "a NACK of nothing": b"NACK\nid:1-999999999999\nmessage-id:none\nsubscription:none\n\n\0",
    "a COMMIT of nothing": b"COMMIT\ntransaction:none\nreceipt:w3\n\n\0",
    "the same BEGIN twice": b"BEGIN\ntransaction:w\n\n\0BEGIN\ntransaction:w\n\n\0",
    "the same SUBSCRIBE twice": b"SUBSCRIBE\nid:w\ndestination:/queue/w\n\n\0" * 2,
    "an UNSUBSCRIBE of nothing": b"UNSUBSCRIBE\nid:none\n\n\0",
    "a selector that makes no sense": b"SUBSCRIBE\nid:w4\ndestination:/queue/w\nselector:a = = b\n\n\0",
    "a temporary queue of another": b"SUBSCRIBE\nid:w5\ndestination:/temp-queue/none-x\n\n\0",
}


def wrong(name: str) -> bytes:
    """The bytes of one of `WRONGS`."""
    return WRONGS[name]
