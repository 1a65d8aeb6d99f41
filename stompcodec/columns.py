"""`parse_columns` in Python: frames as Arrow columns.

The columns are exported through the Arrow C data interface (two C structs in PyCapsules), which pyarrow, polars and
others can import. This package needs none of them.
"""

from __future__ import annotations

import ctypes
import re
from _thread import allocate_lock
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, count
from typing import Any

from stompcodec.errors import FrameError
from stompcodec.frame import Frame
from stompcodec.spec import COLUMNS, Condition, Where, checked_columns, checked_flag, checked_names, checked_where

_MOST = 2**31 - 1  # bytes of data in a call: offsets have 32 bits
_NULLABLE = 2
_LONE = re.compile("[\ud800-\udfff]")
_pointer = ctypes.c_void_p
_long = ctypes.c_int64


class _Schema(ctypes.Structure):
    """The struct ArrowSchema."""


class _Array(ctypes.Structure):
    """The struct ArrowArray."""


_SchemaRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))
_ArrayRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))
_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", _long),
    ("n_children", _long),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.POINTER(_Schema)),
    ("release", _SchemaRelease),
    ("private_data", _pointer),
]
_Array._fields_ = [
    ("length", _long),
    ("null_count", _long),
    ("offset", _long),
    ("n_buffers", _long),
    ("n_children", _long),
    ("buffers", ctypes.POINTER(_pointer)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.POINTER(_Array)),
    ("release", _ArrayRelease),
    ("private_data", _pointer),
]

#: Objects that a struct points to, by its private_data, until it is released. A child has its own entry, since a
#: consumer may move it out of its parent.
_held: dict[int, Any] = {}
_keys = count(1)


def _release(struct: Any, held: dict[int, Any] = _held) -> None:
    node = struct.contents
    for index in range(node.n_children):
        child = node.children[index]
        if child.contents.release:
            child.contents.release(child)
    held.pop(node.private_data, None)
    node.release = type(node.release)()


_release_schema = _SchemaRelease(_release)
_release_array = _ArrayRelease(_release)


def _make_schema(form: bytes, name: str, flags: int = 0, children: Sequence[_Schema] = ()) -> _Schema:
    key, label = next(_keys), name.encode()
    places = (ctypes.POINTER(_Schema) * max(len(children), 1))(*map(ctypes.pointer, children))
    _held[key] = form, label, children, places
    return _Schema(form, label, None, flags, len(children), places, None, _release_schema, key)


def _make_array(length: int, nulls: int, buffers: Sequence[Any], children: Sequence[_Array] = ()) -> _Array:
    """Return an ArrowArray over buffers: arrays, bytes or None."""
    key = next(_keys)
    addresses = (_pointer * len(buffers))(*map(_address, buffers))
    places = (ctypes.POINTER(_Array) * max(len(children), 1))(*map(ctypes.pointer, children))
    _held[key] = buffers, addresses, children, places
    return _Array(length, nulls, 0, len(buffers), len(children), addresses, places, None, _release_array, key)


def _address(buffer: Any) -> int | None:
    if isinstance(buffer, array):
        return buffer.buffer_info()[0]
    return ctypes.cast(ctypes.c_char_p(buffer), _pointer).value


# A capsule owns its struct. The struct owns what it points to, until its release is called.
_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = _pointer, ctypes.c_char_p, _pointer
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = _pointer
_capsule_pointer.argtypes = _pointer, ctypes.c_char_p  # not py_object: that would revive a capsule being freed
_Destructor = ctypes.CFUNCTYPE(None, _pointer)
_SCHEMA_NAME, _ARRAY_NAME = b"arrow_schema", b"arrow_array"
_structs: dict[int, Any] = {}


def _drop(capsule: int, name: bytes, structs: dict[int, Any] = _structs, pointer: Any = _capsule_pointer) -> None:
    struct = structs.pop(pointer(capsule, name))
    if struct.release:
        struct.release(struct)


_drop_schema = _Destructor(lambda capsule, drop=_drop: drop(capsule, _SCHEMA_NAME))
_drop_array = _Destructor(lambda capsule, drop=_drop: drop(capsule, _ARRAY_NAME))
for _callback in (_release_schema, _release_array, _drop_schema, _drop_array):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))  # consumers may call them during interpreter shutdown


def _capsule(struct: Any, name: bytes, drop: Any) -> Any:
    address = ctypes.addressof(struct)
    _structs[address] = struct
    return _capsule_new(address, name, ctypes.cast(drop, _pointer))


def _offsets(sizes: Iterable[int]) -> array[int]:
    return array("i", accumulate(sizes, initial=0))


def _octets(values: Sequence[bytes | None]) -> _Array:
    """Return a column of text or bytes."""
    nulls = values.count(None)
    valid = None
    if nulls:
        bits = "".join(["0" if value is None else "1" for value in reversed(values)])
        valid = int(bits, 2).to_bytes((len(values) + 7) // 8, "little")
    return _make_array(
        len(values),
        nulls,
        [valid, _offsets([len(value or b"") for value in values]), b"".join([value or b"" for value in values])],
    )


def _text(value: str | None) -> bytes | None:
    """Return text as UTF-8, which Arrow requires; lone surrogates become U+FFFD."""
    if value is None:
        return None
    try:
        return value.encode()
    except UnicodeEncodeError:
        return _LONE.sub("\ufffd", value).encode()


def _map(rows: Sequence[Sequence[tuple[str, str]]]) -> _Array:
    pairs = [pair for row in rows for pair in row]
    columns = [_octets([_text(name) for name, _ in pairs]), _octets([_text(value) for _, value in pairs])]
    entries = _make_array(len(pairs), 0, [None], columns)
    return _make_array(len(rows), 0, [None, _offsets(map(len, rows))], [entries])


def _map_schema() -> _Schema:
    entries = [_make_schema(b"u", "key"), _make_schema(b"u", "value", _NULLABLE)]
    return _make_schema(b"+m", "headers", 0, [_make_schema(b"+s", "entries", 0, entries)])


def _numbers(form: str) -> Callable[[Sequence[int]], _Array]:
    return lambda numbers: _make_array(len(numbers), 0, [None, array(form, numbers)])


def _texts(values: Sequence[str | None]) -> _Array:
    return _octets([_text(value) for value in values])


#: Column -> a function that makes its schema, and one that makes the column from a value for each row.
_KINDS: dict[str, tuple[Callable[[], _Schema], Callable[[Sequence[Any]], _Array]]] = {
    "command": (lambda: _make_schema(b"u", "command"), _texts),
    "headers": (_map_schema, _map),
    "body": (lambda: _make_schema(b"z", "body"), _octets),
    "offset": (lambda: _make_schema(b"l", "offset"), _numbers("q")),
    "length": (lambda: _make_schema(b"i", "length"), _numbers("i")),
    "error": (lambda: _make_schema(b"u", "error", _NULLABLE), _texts),
}

#: Held while columns are taken: only one thread may have them.
_exporting = allocate_lock()


class Columns:
    """Frames as Arrow columns, the result of `parse_columns`, for `pyarrow.record_batch`, polars or pandas.

    The Arrow C data interface exports them once, since the memory moves to the importer. The columns, unless left out:
    command utf8, headers map<utf8, utf8>, body binary, offset int64, length int32, error utf8; then a nullable utf8
    column for each name that was given.

    >>> from stompcodec import parse_columns
    >>> columns = parse_columns(b"SEND\\n\\nhi\\0SEND\\n")
    >>> columns.rows, columns.consumed, columns.error
    (1, 9, None)
    """

    __slots__ = {
        "_columns": None,
        "_names": None,
        "_rows": None,
        "consumed": "Bytes that need not be given again.",
        "error": "The kind of the last row's error, or None.",
        "rows": "How many rows there are: one for each frame, and one for malformed data.",
    }

    def __init__(self) -> None:
        self._columns: list[str] = list(COLUMNS)
        self._names: list[str] = []
        self._rows: list[tuple[Any, ...]] | None = []
        self.rows = self.consumed = 0
        self.error: str | None = None

    def __init_subclass__(cls) -> None:
        raise TypeError("Columns cannot be subclassed")

    def __arrow_c_schema__(self) -> Any:
        """Return the schema as a PyCapsule."""
        columns = [_KINDS[name][0]() for name in self._columns]
        columns += [_make_schema(b"u", name, _NULLABLE) for name in self._names]
        return _capsule(_make_schema(b"+s", "", 0, columns), _SCHEMA_NAME, _drop_schema)

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Return schema and columns as two PyCapsules.

        Raises:
            ValueError: the columns were exported before.
        """
        with _exporting:
            rows, self._rows = self._rows, None
        if rows is None:
            raise ValueError("the columns were exported already: parse again")
        try:
            makers = [_KINDS[name][1] for name in self._columns] + [_texts for _ in self._names]
            values = list(zip(*rows)) if rows else [()] * len(makers)
            columns = [make(column) for make, column in zip(makers, values)]
            schema = self.__arrow_c_schema__()
        except MemoryError:
            self._rows = rows
            raise
        return schema, _capsule(_make_array(self.rows, 0, [None], columns), _ARRAY_NAME, _drop_array)


class _Rows:
    """The rows of the chosen frames and columns."""

    def __init__(self, columns: Columns, where: Sequence[Condition], repeats: bool) -> None:
        self.columns = columns
        self.where = [(condition.name.decode(), condition) for condition in where]
        self.repeats = checked_flag("repeats", repeats)
        self.rows: list[tuple[Any, ...]] = []

    def add(self, frame: Frame, at: int, end: int) -> None:
        for name, condition in self.where:
            text = _text(frame.command if name == "command" else _first(frame, name))
            if text is None or not condition.holds(text):
                return
        known = {"command": frame.command, "body": frame.body, "offset": at, "length": end - at, "error": None}
        if "headers" in self.columns._columns:
            known["headers"] = frame.headers.pairs() if self.repeats else _first_pairs(frame)
        self._put(known, [_first(frame, name) for name in self.columns._names])

    def add_bad(self, at: int, end: int, kind: str) -> None:
        known = {"command": "", "headers": [], "body": b"", "offset": at, "length": end - at, "error": kind}
        self._put(known, [None for _ in self.columns._names])

    def _put(self, known: dict[str, Any], named: list[str | None]) -> None:
        self.rows.append((*[known[name] for name in self.columns._columns], *named))


def _shown(text: str) -> str:
    return _LONE.sub("\ufffd", text)


def _first(frame: Frame, name: str) -> str | None:
    """Return the first value of a header, by its name as the columns show it."""
    if "\ufffd" not in name:
        return frame.get(name)
    return next((value for shown, value in frame.headers.pairs() if _shown(shown) == name), None)


def _first_pairs(frame: Frame) -> list[tuple[str, str]]:
    first: dict[str, str] = {}
    for name, value in frame.headers.pairs():
        first.setdefault(_shown(name), value)
    return list(first.items())


def columns_of(
    parser: Any,
    data: Any,
    names: Iterable[str] | None,
    lenient: bool,
    columns: Iterable[str] | None,
    where: Where,
    repeats: bool,
) -> Columns:
    """Read whole frames into columns. `parser` is a fresh `Parser` of the Python backend; the rest as for
    `parse_columns`.
    """
    read = Columns()
    wanted = checked_columns(columns)
    read._columns = [name for name in COLUMNS if name in wanted]
    read._names = list(checked_names(names))
    for name in read._names:
        name.encode()
    rows = _Rows(read, checked_where(where), repeats)
    read._rows = rows.rows
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("the octets are not contiguous: copy them to bytes first")
    most = _MOST // 3 if lenient else _MOST  # U+FFFD has three bytes in UTF-8
    parser.feed(data if view.nbytes <= most else view.cast("B")[:most])
    try:
        for frame in parser:
            rows.add(frame, *parser._span())
        read.consumed = min(view.nbytes, most) - parser.buffered
    except FrameError as error:
        read.consumed = at = parser._span()[0]
        rows.add_bad(at, error.offset or 0, error.kind)
        read.error = error.kind
    read.rows = len(rows.rows)
    return read
