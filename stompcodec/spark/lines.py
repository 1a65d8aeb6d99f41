"""Header lines of many frames at once, as Arrow arrays, escaped and checked as `serialize` does it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stompcodec.errors import StompError

_TEXT = "content-type:text/plain;charset=utf-8\n"
#: The backslash comes first, for the other escapes add some.
_ESCAPES = (("\\", "\\\\"), (":", "\\c"), ("\n", "\\n"), ("\r", "\\r"))


class SinkError(StompError):
    """Error for rows that cannot be sent or were not all accepted: one line that names the row.

    >>> issubclass(SinkError, StompError)
    True
    """


class Target(NamedTuple):
    """Properties of the connection that frames are written for."""

    version: str
    """"1.2" or "1.1"; both have escapes."""
    text: bool = False
    """True to send text without content-length, for JMS brokers take a message with it as a bytes message."""
    lines: str = ""
    """Header lines that come first in all frames, such as that of the transaction."""


def escaped(text: str, version: str) -> str:
    """Return text escaped as part of a header line.

    >>> escaped("a:b", "1.2")
    'a\\\\cb'
    """
    for octet, escape in _escapes(version):
        text = text.replace(octet, escape)
    return text


def _escapes(version: str) -> tuple[tuple[str, str], ...]:
    return _ESCAPES if version == "1.2" else _ESCAPES[:3]


class Line:
    """Builder of text for each row, from parts that are the same for all rows and arrays."""

    def __init__(self, target: Target, first: int) -> None:
        self._target = target
        self._first = first
        self._parts: list[Any] = []

    def add(self, *parts: Any) -> None:
        """Append texts, and arrays of strings without nulls."""
        for part in parts:
            if isinstance(part, str) and self._parts and isinstance(self._parts[-1], str):
                self._parts[-1] += part
            else:
                self._parts.append(part)

    def header(self, name: str, values: Any) -> None:
        """Append a header to the rows whose value is not null."""
        name = escaped(name, self._target.version)
        if values.null_count == 0:
            self.add(f"{name}:", values, "\n")
        elif values.null_count < len(values):
            self.add(pc.binary_join_element_wise(f"{name}:", values, "\n", "").fill_null(""))

    def joined(self) -> Any:
        """Return everything as one array, or as a scalar if all rows are the same."""
        if len(self._parts) == 1 and isinstance(self._parts[0], str):
            return pa.scalar(self._parts[0])
        return pc.binary_join_element_wise(*self._parts, "")

    # ---- values ----

    def text(self, column: Any) -> Any:
        """Return the values of a column as they are written."""
        kind = column.type
        if pa.types.is_timestamp(kind):
            return column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64()).cast(pa.string())
        if pa.types.is_decimal(kind):  # without an exponent
            texts = [None if value is None else format(value, "f") for value in column.to_pylist()]
            return pa.array(texts, pa.string())
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return self.check(column, header=True)
        return column.cast(pa.string())

    def check(self, column: Any, header: bool = False) -> Any:
        """Return strings after checking that they are UTF-8, which Spark does not guarantee; escaped if `header`.

        Raises SinkError for a value that is not UTF-8, or a header with a NUL.
        """
        column = column.cast(pa.string())
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            self._refuse(column, "is not UTF-8")
        if not header:
            return column
        octets = _octets(column)
        if b"\0" in octets:
            self._refuse(column, "holds a NUL")
        for octet, escape in _escapes(self._target.version):
            if octet.encode() in octets:
                column = pc.replace_substring(column, octet, escape)
        return column

    def _refuse(self, column: Any, why: str) -> None:
        """Raise an error that names the first bad row. Bytes under a null, or outside the slice, do not count."""
        for row, value in enumerate(column.cast(pa.binary()).to_pylist()):
            if value is not None and (b"\0" in value if why == "holds a NUL" else not _is_utf8(value)):
                raise SinkError(f"row {self._first + row}: a header or text body {why}")

    def maps(self, column: Any, without: set[str] | frozenset[str]) -> Any:
        """Return the header lines of maps of strings."""
        offsets, keys, values = column.offsets, column.keys, column.items
        start, stop = offsets[0].as_py(), offsets[-1].as_py()
        keys, values = keys.slice(start, stop - start), values.slice(start, stop - start)
        wanted = pc.and_(pc.invert(pc.is_in(keys, pa.array(sorted(without), keys.type))), values.is_valid())
        pairs = Line(self._target, self._first)
        lines = pc.binary_join_element_wise(pairs._of_map(keys), ":", pairs._of_map(values), "\n", "")
        lines = pc.if_else(wanted, lines, "").fill_null("")
        lists = pa.ListArray.from_arrays(pc.subtract(offsets, start).cast(pa.int32()), lines)
        joined = pc.binary_join(lists, "")
        return joined if column.null_count == 0 else pc.if_else(column.is_valid(), joined, "")

    def _of_map(self, column: Any) -> Any:
        try:
            return self.check(column, header=True)
        except SinkError as error:
            raise SinkError(f"column headers: {str(error).partition(': a header or text body ')[2]}") from None

    # ---- headers for the body ----

    def content_type(self, may_have: bool) -> None:
        """Append the content-type of text, unless a map has its own."""
        if not may_have:
            self.add(_TEXT)
            return
        head = self.joined()
        self._parts = [head, pc.if_else(pc.match_substring(head, "\ncontent-type:"), "", _TEXT)]

    def content_length(self, body: Any, text: bool) -> None:
        """Append the length of the body; with `text` only if the body contains a NUL."""
        if text and b"\0" not in _octets(body):
            return
        lengths = pc.binary_length(body).cast(pa.string())
        if not text:
            self.add("content-length:", lengths, "\n")
            return
        lines = pc.binary_join_element_wise("content-length:", lengths, "\n", "")
        self.add(pc.if_else(pc.match_substring(body, b"\0"), lines, ""))


def _octets(column: Any) -> bytes:
    """Return the concatenated bytes of an array of string or binary."""
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return b""
    ends = memoryview(offsets).cast("i")
    return bytes(memoryview(data)[ends[column.offset] : ends[column.offset + len(column)]])


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True
