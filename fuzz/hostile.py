"""What hostile sessions send: frames that are right, nearly right, or wrong, for every version and dialect."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from mutate import TEXTS, Source

__all__ = ["Names", "Stream", "ws_frames"]

#: Destinations of hostile sessions, with the patterns, prefixes and exchanges of all dialects.
DESTINATIONS = (
    b"/queue/a|/queue/a|/queue/b|/topic/t|/topic/t|/topic/t.u|/topic/*|/topic/>|/topic/#|/topic/**|/temp-queue/x"
    b"|/temp-topic/y|/queue/DLQ.a|plain|/queue/a,/topic/t|/exchange/amq.topic/a.b|/exchange/amq.fanout|/amq/queue/q"
    b"|/queue/DLQ.b|/queue/\xc3\xa9|/topic/|/queue/a\\cb|a,b,c|/queue/a?x=y"
).split(b"|")
IDS = b"1|1|2|3|a|s\\cub|%s|%d%%|\xc3\xa9|1-1|".split(b"|")
NAMES = (
    b"seq|s|s:eq|s\\ceq|Content-Length|content-length|Message-Id|message-id|destination|a b|%d|\xc3\xa9|n%n"
    b"|seq|s|seq|s|seq|Subscription|"
).split(b"|")
NUMBERS = b"0|1|1|2|3|10|100|-1|9|99999999999999999999|x|1,100|2,50,false|0,0".split(b"|")
SELECTORS = (
    b"a = 'b'|n > 3|JMSPriority > 4|a LIKE '%x_' ESCAPE '!'|a IN ('b','c')|NOT (n BETWEEN 1 AND 2)|TRUE|a =|(((("
    b"|n / 0 = 1|1e999 > n|-n * 9223372036854775807 > 1|convert_string_expressions:n > '1'|AMQSize > 10"
).split(b"|")
#: Header of a command, and what it may say.
OF_SEND: tuple[tuple[bytes, Sequence[bytes]], ...] = (
    (b"persistent", (b"true", b"true", b"false")),
    (b"receipt", IDS),
    (b"transaction", (b"t", b"u")),
    (b"priority", NUMBERS),
    (b"expires", (b"1", b"0", b"99999999999999", b"x")),
    (b"expiration", (b"1", b"50", b"100000")),
    (b"delay", (b"1", b"30", b"x", b"99999999999")),
    (b"JMSXGroupID", (b"g", b"h")),
    (b"JMSXGroupSeq", (b"-1", b"1")),
    (b"retain", (b"set", b"remove", b"x")),
    (b"reply-to", DESTINATIONS),
    (b"destination-type", (b"ANYCAST", b"MULTICAST", b"x")),
    (b"transformation", (b"jms-map-xml", b"jms-map-json", b"jms-xml")),
    (b"content-encoding", (b"gzip", b"base64", b"identity")),
    (b"x-message-ttl", NUMBERS),
    (b"x-max-length", NUMBERS),
    (b"n", NUMBERS),
    (b"a", (b"b", b"c", b"it's", b"x\\ny")),
    *((name, (b"5", b"forged")) for name in (b"Content-Length", b"contenT-length", b"Message-Id", b"Subscription")),
)
OF_SUBSCRIBE: tuple[tuple[bytes, Sequence[bytes]], ...] = (
    (b"id", IDS),
    (b"ack", (b"auto", b"client", b"client-individual", b"x")),
    (b"receipt", IDS),
    (b"selector", SELECTORS),
    (b"include-seq", NAMES),
    (b"from-seq", NUMBERS),
    (b"browser", (b"true", b"false")),
    (b"browser-end", (b"true", b"false")),
    (b"exclusive", (b"true",)),
    (b"consumer-priority", NUMBERS),
    (b"prefetch-count", NUMBERS),
    (b"consumer-window-size", NUMBERS),
    (b"credit", NUMBERS),
    (b"transformation", (b"jms-map-xml", b"jms-map-json", b"jms-byte", b"x")),
    (b"content-encoding", (b"gzip", b"deflate", b"base64", b"x")),
    (b"durable-subscriber-name", (b"d", b"e")),
    (b"x-queue-name", (b"q", b"/queue/a")),
    (b"durable", (b"true",)),
    (b"auto-delete", (b"true", b"false")),
    (b"x-expires", NUMBERS),
    (b"subscription-type", (b"ANYCAST", b"MULTICAST")),
)
OF_ACK: tuple[tuple[bytes, Sequence[bytes]], ...] = (
    (b"id", (b"1-1", b"1-2", b"2-1", b"1-0", b"9-9", b"x", b"1-99999999999999999999")),
    (b"message-id", (b"1", b"x", b"0-1")),
    (b"subscription", IDS),
    (b"transaction", (b"t", b"u")),
    (b"receipt", IDS),
    (b"requeue", (b"false",)),
    (b"credit", NUMBERS),
)
#: Commands, what comes with each, and how often.
COMMANDS: tuple[tuple[bytes, bool, Sequence[tuple[bytes, Sequence[bytes]]]], ...] = (
    *((b"SEND", True, OF_SEND),) * 6,
    *((b"SUBSCRIBE", True, OF_SUBSCRIBE),) * 4,
    *((b"ACK", False, OF_ACK), (b"NACK", False, OF_ACK)) * 2,
    (b"RECEIVE", True, OF_SUBSCRIBE),
    (b"UNSUBSCRIBE", True, OF_SUBSCRIBE[:1]),
    *((name, False, ((b"transaction", (b"t", b"u")), (b"receipt", IDS))) for name in (b"BEGIN", b"COMMIT", b"ABORT")),
    (b"PING", False, OF_ACK),
    (b"DISCONNECT", False, ((b"receipt", IDS),)),
)
BODIES = (b"", b"", b"hi", b'{"map":{"entry":{"string":["a","b"]}}}', b"\x1f\x8b\x08\x00", b"\xff\xfe", b"x" * 900)


class Names:
    """What the model has for itself: nobody may consume its queue, but all may look at it, send there, and listen."""

    def __init__(self, nonce: str) -> None:
        self.queue = f"/queue/m{nonce}".encode()
        self.topic = f"/topic/m{nonce}".encode()


class Stream:
    """The choices of one hostile session. The same key makes the same choices.

    Args:
        key: what they are made of.
        corpus: octets of other fuzz targets' seeds, as frames.
        names: of the model.
    """

    def __init__(self, key: str, corpus: Sequence[bytes], names: Names) -> None:
        self.random = Random(key)
        self._source = Source((), key)
        self._corpus = corpus
        self._names = names
        self.transport = self.random.choice(("tcp", "tcp", "tcp", "ws", "ws", "legacy"))
        #: How it ends: closed, torn, half-closed, left open and read, or left open and not read.
        self.end = self.random.choice(("close", "abort", "eof", "linger", "linger", "deaf"))
        self.version = "legacy" if self.transport == "legacy" else self.random.choice(("1.0", "1.1", "1.2", "1.2"))

    def octets(self) -> bytes:
        """Return all that the session sends."""
        roll = self.random.random
        if roll() < 0.95:  # behind what is cut or changed, those for the model could become something else
            parts = [self._connect(), *(self._on_the_model() for _ in range(int(roll() ** 2 * 8)))]
        else:
            parts = [self._wrong()]
        for _ in range(int(roll() * 24)):
            kind = roll()
            if kind < 0.7:
                parts.append(self._frame())
            elif kind < 0.9:
                parts.append(self._source.changed(self._frame()))
            else:
                parts.append(self._wrong())
            parts.append(self.random.choice((b"", b"\n", b"\n", b"\r\n")))
        return b"".join(parts)

    def cuts(self, octets: bytes) -> list[bytes]:
        """Return the pieces in which they are written."""
        count = self.random.choice((0, 0, 1, 3, 10, 30))
        places = sorted(self.random.randrange(len(octets) + 1) for _ in range(count))
        pieces = [octets[a:b] for a, b in zip([0, *places], [*places, len(octets)])]
        if self.random.random() < 0.2:  # the rest never comes
            pieces[-1] = pieces[-1][: self.random.randrange(len(pieces[-1]) + 1)]
        return [piece for piece in pieces if piece]

    def _connect(self) -> bytes:
        if self.version == "legacy" or self.random.random() < 0.03:
            return b"CONNECT\nusername:hostile\npasscode:guest\n\n\0\n"
        lines = [b"CONNECT", b"host:/", b"login:hostile", b"passcode:guest"]
        if self.version != "1.0":
            lines.append(b"accept-version:" + self.version.encode())
        if self.random.random() < 0.2:
            lines.append(b"client-id:" + self.random.choice((b"c", b"d")))
        if self.random.random() < 0.1:
            lines.append(b"heart-beat:" + self.random.choice((b"0,0", b"1,1", b"1000,0", b"x")))
        return b"\n".join((*lines, b"", b"\0"))

    def _frame(self) -> bytes:
        """A frame of a client, with any headers that mean something to a broker."""
        random = self.random
        command, addressed, table = random.choice(COMMANDS)
        return self._written(command, random.choice(DESTINATIONS) if addressed else None, table)

    def _written(
        self, command: bytes, destination: bytes | None, table: Sequence[tuple[bytes, Sequence[bytes]]]
    ) -> bytes:
        random = self.random
        lines = [command] if destination is None else [command, b"destination:" + destination]
        if command == b"BEGIN" or (command in (b"COMMIT", b"ABORT") and random.random() < 0.9):
            lines.append(b"transaction:t")
        if command in (b"SUBSCRIBE", b"UNSUBSCRIBE") and random.random() < 0.9:
            lines.append(b"id:" + random.choice(IDS[:5]))
        for name, values in random.sample(list(table), min(len(table), int(random.random() ** 2 * 6))):
            lines.append(name + b":" + random.choice(list(values)))
        if random.random() < 0.05:
            lines.append(random.choice(TEXTS) + b":" + random.choice(TEXTS))
        body = random.choice(BODIES) if command == b"SEND" else b""
        if body and random.random() < 0.5:
            lines.append(b"content-length:%d" % len(body))
        return b"\n".join((*lines, b"", body + b"\0"))

    def _on_the_model(self) -> bytes:
        """Something that may not disturb those who use a destination properly. It is never changed or cut short."""
        random, names = self.random, self._names
        kind = random.randrange(4)
        if kind == 0:
            return self._written(b"SEND", random.choice((names.queue, names.topic)), OF_ODD)
        if kind == 1:
            lines = [b"SUBSCRIBE", b"destination:" + names.queue, b"id:b", b"browser:true", b"ack:auto"]
            return b"\n".join((*lines, b"include-seq:" + random.choice(NAMES), b"", b"\0"))
        if kind == 2 and self.version == "1.0":  # refused: this version cannot write it
            return b"SUBSCRIBE\ndestination:%b\nid:p\ninclude-seq:s:eq\n\n\0" % names.queue
        return self._written(b"SUBSCRIBE", names.topic, OF_LISTENERS)

    def _wrong(self) -> bytes:
        if self._corpus and self.random.random() < 0.6:
            return self.random.choice(list(self._corpus))
        return self._source.frame()


#: What junk for the model's destinations may say: nothing that holds others up, or asks for a place of its own.
OF_ODD = tuple(pair for pair in OF_SEND if pair[0][:1].isupper() or pair[0] in (b"receipt", b"n", b"a", b"persistent"))
OF_LISTENERS = tuple(
    pair
    for pair in OF_SUBSCRIBE
    if pair[0] in (b"ack", b"receipt", b"selector", b"include-seq", b"prefetch-count", b"credit", b"transformation")
)


def ws_frames(random: Random, pieces: Sequence[bytes]) -> list[bytes]:
    """Wrap pieces into WebSocket messages, some in fragments, with pings between, and now and then with a fault."""
    frames = []
    for piece in pieces:
        parts = [piece]
        if random.random() < 0.3:
            at = random.randrange(len(piece) + 1)
            parts = [piece[:at], piece[at:]]
        opcode = random.choice((1, 2, 2))
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            frames.append(ws_frame(opcode if number == 0 else 0, part, last))
            if random.random() < 0.1:
                frames.append(ws_frame(9, b"ping"))
        if random.random() < 0.01:
            frames.append(random.randbytes(9))
    return frames


def ws_frame(opcode: int, payload: bytes, last: bool = True) -> bytes:
    """Return a frame of a client, masked with zeroes."""
    if len(payload) < 126:
        size = bytes([0x80 | len(payload)])
    elif len(payload) < 1 << 16:
        size = b"\xfe" + len(payload).to_bytes(2, "big")
    else:
        size = b"\xff" + len(payload).to_bytes(8, "big")
    return bytes([0x80 * last | opcode]) + size + bytes(4) + payload
