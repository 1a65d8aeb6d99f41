"""A reader of SQLite's file format that continues where SQLite gives up: page by page, row by row, without writing.

It reads tables without indexes, as a store has them. Unreadable pages and rows are reported to `problem` and skipped.
Every loop is bounded by the number of pages, whatever the pages contain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from io import BytesIO
from pathlib import Path
from struct import error as StructError
from struct import unpack_from
from typing import Any, BinaryIO

from stompcodec.broker.storage.sqlite_file.wal import Wal, examine_wal

_HEADER = 100
_LEAF, _INTERIOR = 13, 5
_DEFAULT_PAGE = 8192
#: Bytes of a number, by its serial type.
_NUMBERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class _Bad(Exception):
    """Raised for a page or row that cannot be read."""


class Pages:
    """The pages of a database, including the frames of its WAL. If the database is missing, only the WAL is read.

    If `behind`, it also uses intact frames after a damaged one, which SQLite drops. `problem` is called with each
    problem. Raise OSError if the files cannot be read.
    """

    def __init__(self, path: Path, problem: Callable[[str], object], *, behind: bool = False) -> None:
        self._problem = problem
        self._stack = ExitStack()
        wal_path = path.with_name(f"{path.name}-wal")
        self.wal: Wal = examine_wal(wal_path)
        try:
            file: BinaryIO = path.open("rb")
        except FileNotFoundError:
            file = BytesIO()
        self._file = self._stack.enter_context(file)
        self._log: BinaryIO | None = None
        frames = self.wal.taken + (self.wal.behind if behind else [])
        if frames:
            self._log = self._stack.enter_context(wal_path.open("rb"))
        self._newer = {frame.number: frame.offset for frame in frames}
        head = self._file.read(_HEADER)
        size = int.from_bytes(head[16:18], "big")
        size = 65536 if size == 1 else size
        if frames:
            size = self.wal.page
        elif size < 512 or size & size - 1:
            size = _DEFAULT_PAGE
        self.size = size
        self._usable = size - (head[20] if len(head) > 20 and head[20] <= 32 else 0)
        self.count = max([self._file.seek(0, 2) // size, *self._newer], default=0)
        #: Pages that were read, including overflow pages.
        self.seen: set[int] = set()

    def close(self) -> None:
        """Close the files."""
        self._stack.close()

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def page(self, number: int) -> bytes:
        """Return a page in its newest version."""
        if not 1 <= number <= self.count:
            raise _Bad(f"page {number} does not exist")
        if number in self._newer:
            assert self._log is not None
            self._log.seek(self._newer[number])
            octets = self._log.read(self.size)
        else:
            self._file.seek((number - 1) * self.size)
            octets = self._file.read(self.size)
        if len(octets) < self.size:
            raise _Bad(f"page {number} is cut off")
        return octets

    @property
    def identity(self) -> tuple[int, int]:
        """The application id and the user version in the header; zeros if it cannot be read."""
        with suppress(_Bad):
            head = self.page(1)
            return int.from_bytes(head[68:72], "big"), int.from_bytes(head[60:64], "big")
        return 0, 0

    def tables(self) -> dict[str, int]:
        """Return the first page of each table, by name."""
        found = {}
        for _rowid, row in self.rows(1):
            if len(row) == 5 and row[0] == b"table" and isinstance(row[1], bytes) and isinstance(row[3], int):
                found[row[1].decode("utf-8", "replace")] = row[3]
        return found

    def rows(self, root: int) -> Iterator[tuple[int, list[Any]]]:
        """Yield the rows of a table in order: the rowid, and the columns, with texts as bytes."""
        stack = [root]
        while stack:
            number = stack.pop()
            if number in self.seen:
                self._problem(f"page {number} belongs to two places")
                continue
            self.seen.add(number)
            try:
                page = self.page(number)
                start = _HEADER if number == 1 else 0
                kind = page[start]
                if kind == _INTERIOR:
                    stack += reversed(self._children(page, start))
                elif kind != _LEAF:
                    self._problem(f"page {number} is not a page of a table")
                else:
                    yield from self._cells(number, page, start, strict=True)
            except (_Bad, IndexError, StructError) as error:
                self._problem(f"page {number} cannot be read: {error}")

    def strays(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield apparent rows of pages that are neither free nor part of a table. Some may be garbage."""
        free = self._free()
        for number in range(2, self.count + 1):
            if number in self.seen or number in free:
                continue
            try:
                page = self.page(number)
                if page[0] == _LEAF:
                    yield from self._cells(number, page, 0, strict=False)
            except (_Bad, IndexError, StructError):
                continue

    def _free(self) -> set[int]:
        """Return the pages on the free list, as far as it can be read."""
        free: set[int] = set()
        try:
            (trunk,) = unpack_from(">I", self.page(1), 32)
            while trunk and trunk not in free:
                free.add(trunk)
                page = self.page(trunk)
                trunk, count = unpack_from(">2I", page)
                free.update(unpack_from(f">{min(count, self._usable // 4 - 2)}I", page, 8))
        except (_Bad, StructError):
            pass
        return free

    def _children(self, page: bytes, start: int) -> list[int]:
        (count,) = unpack_from(">H", page, start + 3)
        (last,) = unpack_from(">I", page, start + 8)
        cells = unpack_from(f">{count}H", page, start + 12)
        return [*(unpack_from(">I", page, cell)[0] for cell in cells), last]

    def _cells(self, number: int, page: bytes, start: int, strict: bool) -> Iterator[tuple[int, list[Any]]]:
        (count,) = unpack_from(">H", page, start + 3)
        for cell in unpack_from(f">{count}H", page, start + 8):
            try:
                length, at = _varint(page, cell)
                rowid, at = _varint(page, at)
                rowid -= 1 << 64 if rowid >> 63 else 0
                yield rowid, _columns(self._payload(page, at, length))
            except (_Bad, IndexError, StructError) as error:
                if strict:
                    self._problem(f"a row of page {number} cannot be read: {error}")

    def _payload(self, page: bytes, at: int, length: int) -> bytes:
        usable = self._usable
        most, least = usable - 35, (usable - 12) * 32 // 255 - 23
        if length <= most:
            local = length
        else:
            local = least + (length - least) % (usable - 4)
            local = local if local <= most else least
        if at + local > len(page) or length > self.count * self.size:
            raise _Bad("it is longer than its page")
        if local == length:
            return page[at : at + local]
        parts, left = [page[at : at + local]], length - local
        (following,) = unpack_from(">I", page, at + local)
        taken = set()
        while left > 0:
            if following in taken or following in self.seen:
                raise _Bad("its overflow pages form a loop, or belong to another row")
            taken.add(following)
            more = self.page(following)
            (following,) = unpack_from(">I", more)
            parts.append(more[4 : 4 + min(left, usable - 4)])
            left -= usable - 4
        self.seen |= taken
        return b"".join(parts)


def _varint(octets: bytes, at: int) -> tuple[int, int]:
    """Return a number of 1 to 9 bytes, and the position after it."""
    value = 0
    for number in range(8):
        byte = octets[at + number]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + number + 1
    return value << 8 | octets[at + 8], at + 9


def _columns(payload: bytes) -> list[Any]:
    """Return the columns of a record."""
    end, at = _varint(payload, 0)
    values: list[Any] = []
    body = end
    if end > len(payload):
        raise _Bad("its head is too long")
    while at < end:
        kind, at = _varint(payload, at)
        if kind in (0, 8, 9):
            values.append(None if kind == 0 else kind - 8)
            continue
        size = 8 if kind == 7 else _NUMBERS.get(kind, (kind - 12) // 2 if kind >= 12 else -1)
        if size < 0 or body + size > len(payload):
            raise _Bad("a column is too long")
        octets = payload[body : body + size]
        body += size
        if kind == 7:
            values.append(unpack_from(">d", octets)[0])
        else:
            values.append(octets if kind >= 12 else int.from_bytes(octets, "big", signed=True))
    if body != len(payload):
        raise _Bad("its columns do not fill it")
    return values
