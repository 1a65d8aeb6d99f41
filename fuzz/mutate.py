"""Inputs without coverage feedback: seeds from the vectors, pieces of the grammar, and what may go wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from case import HEAD, LIMITS

COMMANDS = (
    *(b"SEND", b"SEND", b"SEND", b"MESSAGE", b"MESSAGE", b"ERROR", b"ACK", b"NACK", b"RECEIPT", b"SUBSCRIBE"),
    *(b"UNSUBSCRIBE", b"BEGIN", b"COMMIT", b"ABORT", b"CONNECT", b"CONNECT", b"CONNECTED", b"STOMP", b"DISCONNECT"),
    *(b"PING", b"caf\xc3\xa9", b"send", b"Message", b"SENDER", b"NOPE", b"", b"SEND ", b"\xff", b"SEND:", b"connected \r"),
)
EOLS = (b"\n", b"\n", b"\n", b"\n", b"\n", b"\n", b"\r\n", b"\r\n", b"\r\r\n", b" \n", b"\r", b" \r\n", b"\0", b"\n\r")
TEXTS = (
    *(b"", b"a", b"b", b"x", b"destination", b"/queue/a", b"id", b"0", b"1234567", b"receipt", b"passcode", b"A", b"Ab-C"),
    *(b"\\n", b"\\r", b"\\c", b"\\\\", b"\\t", b"\\", b":", b"\\:", b" ", b"  ", b"\t", b"\r", b"\x01", b"\x1f", b"\x7f"),
    *(b"\xc3\xa9", b"\xe2\x82\xac", b"\xf0\x9d\x84\x9e", b"\xed\xa0\x80", b"\xc3", b"\xe2\x82", b"\x80", b"\xff", b"\xc0\x80"),
    *(b"content-length", b"a" * 15, b"b" * 16, b"c" * 17, b"d" * 40, b"e" * 63, b"f" * 64, b"g" * 65, b"h" * 130, b"\0"),
)
LENGTHS = (
    *(b"0", b"1", b"2", b"3", b"4", b"5", b"12", b"13", b"00", b"003", b" 2", b"2 ", b" 2 ", b"\t1", b"1\t", b"", b" "),
    *(b"-1", b"+1", b"1_0", b"0x1", b"1.", b"\xc2\xb2", b"\xd9\xa1", b"\\n", b"4294967296", b"9223372036854775808"),
    *(b"18446744073709551615", b"18446744073709551616", b"18446744073709551617", b"9" * 30, b"0" * 30, b"1\\n", b"2\r"),
)
BODIES = (b"", b"", b"a", b"hi", b"abc", b"hello", b"\n", b"a\nb:c\n\n", b"\r\n", b"SEND\n\n", b"x" * 12, b"y" * 13, b"z" * 101)
GAPS = (b"", b"", b"", b"", b"\n", b"\n\n", b"\r\n", b"\r", b"\0", b" ", b" \r\n", b"\r\r\n", b"\n\0\n", b"\n" * 70, b" \n", b"\t")
STRETCHED = (b"\xff\xfe\x10a", b"\xff\xfe\x2db", b"\xff\xfe\x2ec", b"\xff\xfe\x18\n", b"\xff\xfe\x80d", b"\xff\xfe\xb5\xc3")
WORDS = (*COMMANDS, *EOLS, *TEXTS, *GAPS, b"\n\n", b"\n\n\0", b"\0\n", b"content-length:2\n", b"content-length:0\n", b"a:b\n", b"a:\n" * 16)


class Source:
    """An endless supply of inputs, the same for the same seed and corpus."""

    def __init__(self, corpus: Sequence[bytes], seed: int) -> None:
        self._random = Random(seed)
        self._corpus = [data for data in corpus if len(data) < 600] or [bytes(HEAD)]
        self._makers: tuple[Callable[[], bytes], ...] = (self._written, self._mutated, self._written, self._spliced)

    def _pick(self, words: Sequence[bytes]) -> bytes:
        return words[int(self._random.random() * len(words))]

    def __iter__(self) -> Iterator[bytes]:
        random, makers = self._random.random, self._makers
        while True:
            base = makers[int(random() * len(makers))]()
            yield base
            # What was made is used more than once: under other options and with small changes.
            for _ in range(4):
                data = self._changed(base) if random() < 0.7 else base
                yield self._options() + data[HEAD:]

    def _options(self) -> bytes:
        random = self._random.random
        limits = len(LIMITS) - 1 if random() < 0.6 else int(random() * 8)
        plan = 0 if random() < 0.4 else int(random() * 256)
        return bytes((int(random() * 40), limits, 0 if random() < 0.7 else int(random() * 8), plan))

    def _header(self) -> bytes:
        roll = self._random.random()
        if roll < 0.2:
            return b"content-length:" + self._pick(LENGTHS)
        if roll < 0.8:
            return self._pick(TEXTS) + b":" + self._pick(TEXTS)
        return b"".join([self._pick(TEXTS) for _ in range(int(roll * 40) - 31)])

    def _frame(self) -> bytes:
        random = self._random.random
        eol = self._pick(EOLS)
        parts = [self._pick(COMMANDS), eol]
        for _ in range(int(random() * random() * 7)):
            parts += (self._header(), eol if random() < 0.8 else self._pick(EOLS))
        body = self._pick(BODIES)
        if random() < 0.3:
            parts += (b"content-length:%d" % len(body), eol)
        if random() < 0.002:
            body = self._pick(STRETCHED) + body
        parts += (eol, body, b"\0", self._pick(GAPS))
        return b"".join(parts)

    def _written(self) -> bytes:
        """Frames by the grammar, one or a few."""
        wire = b"".join([self._frame() for _ in range(1 + int(self._random.random() ** 2 * 4))])
        return self._options() + self._pick(GAPS) + wire

    def _mutated(self) -> bytes:
        return self._changed(self._pick(self._corpus))

    def _spliced(self) -> bytes:
        """The start of one seed and the end of another."""
        first, second = self._pick(self._corpus), self._pick(self._corpus)
        random = self._random.random
        return first[: HEAD + int(random() * len(first))] + second[HEAD + int(random() * len(second)) :]

    def _changed(self, data: bytes) -> bytes:
        """One to four small changes."""
        random = self._random.random
        for _ in range(1 + int(random() * random() * 4)):
            at = int(random() * (len(data) + 1))
            to = at + int(random() * random() * 20)
            kind = int(random() * 6)
            if kind == 0:  # an octet
                data = data[:at] + bytes((int(random() * 256),)) + data[at + 1 :]
            elif kind == 1:  # a word goes in
                data = data[:at] + self._pick(WORDS) + data[at:]
            elif kind == 2:  # a word takes a place
                data = data[:at] + self._pick(WORDS) + data[to:]
            elif kind == 3:  # some go
                data = data[:at] + data[to:]
            elif kind == 4:  # some come twice
                data = data[:to] + data[at:]
            else:  # a bit
                data = data[:at] + bytes(octet ^ 1 << int(random() * 8) for octet in data[at : at + 1]) + data[at + 1 :]
        return data
