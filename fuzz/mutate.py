"""Inputs without coverage feedback: seeds from the vectors, pieces of the grammar, and what may go wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from case import HEAD, LIMITS

#: Tables are written with | between their entries; what comes twice is more likely.
COMMANDS = (
    b"SEND|SEND|SEND|MESSAGE|MESSAGE|ERROR|ACK|NACK|RECEIPT|SUBSCRIBE|UNSUBSCRIBE|BEGIN|COMMIT|ABORT|CONNECT|CONNECT"
    b"|CONNECTED|STOMP|DISCONNECT|PING|caf\xc3\xa9|send|Message|SENDER|NOPE||SEND |\xff|SEND:|connected \r"
).split(b"|")
EOLS = b"\n|\n|\n|\n|\n|\n|\r\n|\r\n|\r\r\n| \n|\r| \r\n|\0|\n\r".split(b"|")
TEXTS = (
    b"|a|b|x|destination|/queue/a|id|0|1234567|receipt|passcode|A|Ab-C|content-length|\\n|\\r|\\c|\\\\|\\t|\\|:|\\:| "
    b"|  |\t|\r|\x01|\x1f|\x7f|\0|\xc3\xa9|\xe2\x82\xac|\xf0\x9d\x84\x9e|\xed\xa0\x80|\xc3|\xe2\x82|\x80|\xff|\xc0\x80"
).split(b"|") + [b"y" * size for size in (15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 130)]
LENGTHS = (
    b"0|1|2|3|4|5|12|13|00|003| 2|2 | 2 |\t1|1\t|| |-1|+1|1_0|0x1|1.|\xc2\xb2|\xd9\xa1|\\n|1\\n|2\r|4294967296"
    b"|9223372036854775808|18446744073709551615|18446744073709551616|18446744073709551617"
).split(b"|") + [b"9" * 30, b"0" * 30]
BODIES = b"||a|hi|abc|hello|\n|a\nb:c\n\n|\r\n|SEND\n\n".split(b"|") + [b"z" * size for size in (12, 13, 101)]
GAPS = b"||||\n|\n\n|\r\n|\r|\0| | \r\n|\r\r\n|\n\0\n| \n|\t".split(b"|") + [b"\n" * 70]
STRETCHED = b"\xff\xfe\x10a|\xff\xfe\x2db|\xff\xfe\x2ec|\xff\xfe\x18\n|\xff\xfe\x80d|\xff\xfe\xb5\xc3".split(b"|")
LINES = [b"\n\n", b"\n\n\0", b"\0\n", b"content-length:2\n", b"content-length:0\n", b"a:b\n", b"a:\n" * 16]
WORDS = [*COMMANDS, *EOLS, *TEXTS, *GAPS, *LINES]


class Source:
    """An endless supply of inputs, the same for the same seed and corpus."""

    def __init__(self, corpus: Sequence[bytes], seed: int | str) -> None:
        self._random = Random(seed)
        self._corpus = [data for data in corpus if len(data) < 600] or [bytes(HEAD)]
        self._makers: tuple[Callable[[], bytes], ...] = (self._written, self._mutated, self._written, self._spliced)

    def pick(self, words: Sequence[bytes]) -> bytes:
        """Choose a word."""
        return words[int(self._random.random() * len(words))]

    def __iter__(self) -> Iterator[bytes]:
        random, makers = self._random.random, self._makers
        while True:
            base = makers[int(random() * len(makers))]()
            yield base
            # What was made is used more than once: under other options and with small changes.
            for _ in range(4):
                data = self.changed(base) if random() < 0.7 else base
                yield self._options() + data[HEAD:]

    def _options(self) -> bytes:
        random = self._random.random
        limits = len(LIMITS) - 1 if random() < 0.6 else int(random() * 8)
        plan = 0 if random() < 0.4 else int(random() * 256)
        return bytes((int(random() * 40), limits, 0 if random() < 0.7 else int(random() * 8), plan))

    def _header(self) -> bytes:
        roll = self._random.random()
        if roll < 0.2:
            return b"content-length:" + self.pick(LENGTHS)
        if roll < 0.8:
            return self.pick(TEXTS) + b":" + self.pick(TEXTS)
        return b"".join([self.pick(TEXTS) for _ in range(int(roll * 40) - 31)])

    def frame(self) -> bytes:
        """Write one frame by the grammar, with what may be wrong with it."""
        random = self._random.random
        eol = self.pick(EOLS)
        parts = [self.pick(COMMANDS), eol]
        for _ in range(int(random() * random() * 7)):
            parts += (self._header(), eol if random() < 0.8 else self.pick(EOLS))
        body = self.pick(BODIES)
        if random() < 0.3:
            parts += (b"content-length:%d" % len(body), eol)
        if random() < 0.002:
            body = self.pick(STRETCHED) + body
        parts += (eol, body, b"\0", self.pick(GAPS))
        return b"".join(parts)

    def _written(self) -> bytes:
        """Frames by the grammar, one or a few."""
        wire = b"".join([self.frame() for _ in range(1 + int(self._random.random() ** 2 * 4))])
        return self._options() + self.pick(GAPS) + wire

    def _mutated(self) -> bytes:
        return self.changed(self.pick(self._corpus))

    def _spliced(self) -> bytes:
        """The start of one seed and the end of another."""
        first, second = self.pick(self._corpus), self.pick(self._corpus)
        random = self._random.random
        return first[: HEAD + int(random() * len(first))] + second[HEAD + int(random() * len(second)) :]

    def changed(self, data: bytes) -> bytes:
        """One to four small changes."""
        random = self._random.random
        for _ in range(1 + int(random() * random() * 4)):
            at = int(random() * (len(data) + 1))
            to = at + int(random() * random() * 20)
            kind = int(random() * 6)
            if kind == 0:  # an octet
                data = data[:at] + bytes((int(random() * 256),)) + data[at + 1 :]
            elif kind == 1:  # a word goes in
                data = data[:at] + self.pick(WORDS) + data[at:]
            elif kind == 2:  # a word takes a place
                data = data[:at] + self.pick(WORDS) + data[to:]
            elif kind == 3:  # some go
                data = data[:at] + data[to:]
            elif kind == 4:  # some come twice
                data = data[:to] + data[at:]
            else:  # a bit
                data = data[:at] + bytes(octet ^ 1 << int(random() * 8) for octet in data[at : at + 1]) + data[at + 1 :]
        return data
