"""The damage found in a store: logged up to a bound, and counted; and a look at SQLite's write-ahead log for it.

Each frame of that log is one page, with a checksum over itself and all frames before it. Recovery stops at the first
bad frame and silently drops the rest. A torn write at a power cut looks the same, but can only affect the last commit,
because the broker syncs each commit before it begins the next. So an intact frame after a damaged commit means damage.
"""

from __future__ import annotations

import logging
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

#: Number of findings that are logged. Later ones are only counted.
_MOST_LINES = 100
_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
#: The lowest bit is set if checksums use big-endian words.
_MAGIC = 0x377F0682
_DEFAULT_PAGE = 8192
_MASK = 2**32 - 1


class Damage:
    """The damage found since the store was opened. Each finding is logged as an error.

    >>> damage = Damage(logging.getLogger("example"))
    >>> damage.messages, damage.findings
    (0, 0)
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        #: Messages that are damaged or missing.
        self.messages = 0
        #: All findings, including those that are not logged.
        self.findings = 0

    def message(self, ident: str, destination: str, why: str) -> None:
        """Report a damaged message, which is set aside."""
        self.messages += 1
        self.found(f"message {shown(ident)} of {shown(destination)} is lost: {why} (kept aside for broker salvage)")

    def missing(self, count: int, queue: str) -> None:
        """Report that a queue holds fewer messages than its total says, or more if the count is negative."""
        self.messages += max(count, 0)
        name = shown(queue.replace("\0", " ", 1))
        if count > 0:
            self.found(f"{count} messages of the queue {name} are missing: its total is {count} higher than its rows")
        else:
            self.found(f"the queue {name} holds {-count} rows more than its total says")

    def found(self, what: str) -> None:
        """Report any other damage."""
        self.findings += 1
        if self.findings <= _MOST_LINES:
            self._log.error("the store is damaged: %s", what)
        if self.findings == _MOST_LINES:
            self._log.error("the store is damaged: no more is logged; stompcodec broker check lists everything")


def shown(name: str) -> str:
    """Return a name as printable text for the log.

    >>> shown("/queue/a"), shown("a\\nb")
    ('/queue/a', "'a\\\\nb'")
    """
    return name if name.isprintable() else ascii(name)


class Frame(NamedTuple):
    """A frame that belongs to the current run of the log."""

    number: int
    """Number of the page that it holds."""
    offset: int
    """Position of the page in the file."""
    commits: bool
    """True for the last frame of a transaction."""


class Wal(NamedTuple):
    """The result of `examine_wal`."""

    taken: list[Frame]
    """Frames that recovery applies: whole transactions up to the first bad frame."""
    lost: int
    """Least number of dropped transactions that had been synced."""
    torn: bool
    """The last transaction has all its marks but wrong checksums: a power cut, or damage."""
    page: int = _DEFAULT_PAGE
    """Bytes of a page."""


class _Scanned(NamedTuple):
    frame: Frame
    head: bytes
    salts: tuple[int, int]
    before: tuple[int, int]
    """The computed checksum of the previous frame."""
    stored: tuple[int, int]
    chained: tuple[int, int]
    """The checksum that follows from the stored one of the previous frame."""
    computed: tuple[int, int]
    """The checksum that follows from the computed one of the previous frame."""

    @property
    def intact(self) -> bool:
        return self.stored in (self.chained, self.computed)


def examine_wal(path: Path) -> Wal:
    """Read a log, `messages.sqlite-wal`, without changing it. It must not be written to meanwhile. A missing or empty
    one has no frames.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return Wal([], 0, False)
    with file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            return Wal([], 0, False)
        return _examine(file, head)


def _examine(file: BinaryIO, head: bytes) -> Wal:
    magic, _version, page, _count, *salts, first, second = _HEADER.unpack(head)
    known = magic & ~1 == _MAGIC
    words = ("<", ">")[magic & 1] if known else ("<" if sys.byteorder == "little" else ">")
    sound = known and _checksum(words, head[:24], (0, 0)) == (first, second)
    if not 512 <= page <= 65536 or page & page - 1:
        page = _DEFAULT_PAGE
    scanned = list(_scan(file, page, words, (first, second)))
    run = (salts[0], salts[1]) if sound else _usual_salts(scanned)
    end = taken = 0
    while sound and end < len(scanned) and scanned[end].salts == run and scanned[end].stored == scanned[end].computed:
        end += 1
        if scanned[end - 1].frame.commits:
            taken = end
    good = [one.frame for one in scanned[:taken]]
    if end == len(scanned):
        return Wal(good, 0, False, page)
    last = end  # of the transaction with the bad frame, which may be torn
    while sound and last < len(scanned) - 1 and not scanned[last].frame.commits:
        last += 1
    later = [one for one in scanned[last + 1 :] if one.salts == run and one.intact]
    if not sound:
        later = [one for one in scanned if one.salts == run and one.intact]
    certain = sound and scanned[end].salts == run and _is_one_bit(scanned[end], words, file, page)
    ours = any(one.salts == run for one in scanned[end:])
    lost = sum(one.frame.commits for one in later)
    if (later and sound) or certain:
        lost += 1
    torn = not lost and ours and any(one.frame.commits and one.salts == run for one in scanned[end:])
    return Wal(good, lost, torn, page)


def _scan(file: BinaryIO, page: int, words: str, seed: tuple[int, int]) -> Iterator[_Scanned]:
    """Yield every frame of the file, including those of earlier runs."""
    computed, stored, offset = seed, seed, _HEADER.size
    while True:
        head, content = file.read(_FRAME.size), file.read(page)
        if len(content) < page:
            return
        number, size, *rest = _FRAME.unpack(head)
        before, seed = computed, stored
        stored = (rest[2], rest[3])
        chained = computed = _checksum(words, content, _checksum(words, head[:8], seed))
        if seed != before:
            computed = _checksum(words, content, _checksum(words, head[:8], before))
        frame = Frame(number, offset + _FRAME.size, size != 0)
        yield _Scanned(frame, head[:8], (rest[0], rest[1]), before, stored, chained, computed)
        offset += _FRAME.size + page


def _checksum(words: str, octets: bytes, seed: tuple[int, int]) -> tuple[int, int]:
    """Return SQLite's checksum of the log: two interleaved sums."""
    first, second = seed
    for one, two in struct.iter_unpack(words + "II", octets):
        first = first + one + second & _MASK
        second = second + two + first & _MASK
    return first, second


def _usual_salts(scanned: list[_Scanned]) -> tuple[int, int]:
    """Return the salts of most frames, for use when the header is damaged."""
    return Counter(one.salts for one in scanned).most_common(1)[0][0] if scanned else (0, 0)


def _is_one_bit(bad: _Scanned, words: str, file: BinaryIO, page: int) -> bool:
    """Return whether one flipped bit in its head explains a bad frame, which a torn write would not cause."""
    wrong = (bad.stored[0] ^ bad.computed[0]) << 32 | bad.stored[1] ^ bad.computed[1]
    if bin(wrong).count("1") == 1:
        return True
    file.seek(bad.frame.offset)
    content, head = file.read(page), int.from_bytes(bad.head, "big")
    heads = ((head ^ 1 << bit).to_bytes(8, "big") for bit in range(64))
    return any(_checksum(words, content, _checksum(words, head, bad.before)) == bad.stored for head in heads)
