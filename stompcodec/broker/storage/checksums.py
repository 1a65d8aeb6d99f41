"""Checksums of the rows in a store's tables: CRC-32, written with each row and compared when it is read."""

from __future__ import annotations

from zlib import crc32

from stompcodec.broker.storage.body_files import BodyFile

#: The bits of a message's checksum that are a CRC-32. The higher bits are `shifted`.
CRC = 2**32 - 1
#: Greatest number of attempts that fits into a message's checksum.
_MOST_ATTEMPTS = 2**29


def message_crc(
    key: int,
    ident: str,
    destination: str,
    tail: bytes | None,
    persistent: bool,
    expires: float | None,
    priority: int,
    attempts: int,
    redelivered: bool,
    file: BodyFile | None = None,
) -> int:
    """Return the checksum of a message: a CRC-32 of the fixed columns, and above it a copy of the changing ones.

    `attempts` and `redelivered` change in place, in SQL, and so does their copy. Thus an update does not vouch for
    columns that it has not read. The size and checksum of the body's file are covered as well.

    >>> crc = message_crc(1, "m-1", "/queue/a", b"\\n\\n\\0", True, None, 4, 0, False)
    >>> again = message_crc(1, "m-1", "/queue/a", b"\\n\\n\\0", True, None, 4, 2, True)
    >>> again == crc | shifted(2, True), crc == crc & CRC
    (True, True)
    """
    crc = (start_crc(destination, key >> 32) ^ key) & CRC
    crc = crc32(ident.encode("utf-8", "surrogateescape"), crc)
    if expires is not None or priority != 4 or persistent != 1 or tail is None:
        crc = crc32(f"{persistent:d} {expires!r} {priority} {tail is None:d}\n".encode(), crc)
    if tail is not None:
        crc = crc32(tail, crc)
    if file is not None:
        crc = crc32(b"%d %d" % (file.size, file.crc), crc)
    return crc | shifted(attempts, redelivered) if attempts or redelivered else crc


def start_crc(destination: str, upper: int) -> int:
    """Return the part of a checksum that messages of a destination share, and keys without their lower 32 bits
    (`upper`).

    A message without a file or an expiry, with priority 4 and never delivered, has the checksum `crc32(tail,
    crc32(ident, start ^ key))`; `crc32` only uses the lower 32 bits of its start. The writer computes it this way.
    """
    return crc32(f"{upper}\n{destination}".encode("utf-8", "surrogateescape"))


def shifted(attempts: int, redelivered: bool) -> int:
    """Return attempts and the redelivered flag as encoded in a message's checksum.

    >>> shifted(1, False) >> 32
    2
    """
    return (min(attempts, _MOST_ATTEMPTS) << 1 | bool(redelivered)) << 32


def record_crc(*columns: str | int | None) -> int:
    """Return the checksum of a row of any other table.

    >>> record_crc("a", 1) == record_crc("a", True), record_crc("a", None) == record_crc("a", "")
    (True, False)
    """
    parts = (str(int(column)) if isinstance(column, int) else repr(column) for column in columns)
    return crc32("\n".join(parts).encode("utf-8", "surrogateescape"))


def key_crc(number: int, scope: bytes, key: bytes, body: int, at: int) -> int:
    """Return the checksum of a row of the table `sent`.

    >>> key_crc(1, b"ab", b"c", 0, 0) == key_crc(1, b"a", b"bc", 0, 0)
    False
    """
    return crc32(b"%d %d %d %d " % (number, len(scope), body, at) + scope + key)
