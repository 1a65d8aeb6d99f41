"""Frames as Arrow columns, in Python: the twin of what the C backend does without objects.

The columns leave through the Arrow C data interface (two structs of C, told by PyCapsules), so that pyarrow, polars and
others can take them and this package needs none of them.
"""

from __future__ import annotations

import ctypes
import re
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, count
from typing import Any

from stompcodec._codec_py import Parser
from stompcodec.errors import FrameError
from stompcodec.spec import Limits, checked_names

__all__ = ["Columns", "columns_of"]

_MOST = 2**31 - 1  # octets of data in a call: offsets have 32 bits
_NULLABLE = 2
_LONE = re.compile("[\ud800-\udfff]")
_pointer = ctypes.c_void_p
_long = ctypes.c_int64


class _Schema(ctypes.Structure):
    """struct ArrowSchema."""


class _Array(ctypes.Structure):
    """struct ArrowArray."""


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

#: What a struct points to, by its private_data, until it is released. A child has an entry of its own, since a consumer
#: may move it out of its parent.
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
    """Buffers are arrays, bytes, or None."""
    key = next(_keys)
    addresses = (_pointer * len(buffers))(*map(_address, buffers))
    places = (ctypes.POINTER(_Array) * max(len(children), 1))(*map(ctypes.pointer, children))
    _held[key] = buffers, addresses, children, places
    return _Array(length, nulls, 0, len(buffers), len(children), addresses, places, None, _release_array, key)


def _address(buffer: Any) -> int | None:
    if isinstance(buffer, array):
        return buffer.buffer_info()[0]
    return ctypes.cast(ctypes.c_char_p(buffer), _pointer).value


# A capsule owns its struct; what the struct points to is owned by whoever holds the struct, and goes by its release.
_capsule_new = ctypes.pythonapi.PyCapsule_New
_capsule_new.restype = ctypes.py_object
_capsule_new.argtypes = _pointer, ctypes.c_char_p, _pointer
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = _pointer
_capsule_pointer.argtypes = _pointer, ctypes.c_char_p  # the capsule is dying: it must not be counted again
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
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))  # consumers may call them while the interpreter ends


def _capsule(struct: Any, name: bytes, drop: Any) -> Any:
    address = ctypes.addressof(struct)
    _structs[address] = struct
    return _capsule_new(address, name, ctypes.cast(drop, _pointer))


def _offsets(sizes: Iterable[int]) -> array[int]:
    return array("i", accumulate(sizes, initial=0))


def _octets(values: Sequence[bytes | None]) -> _Array:
    """A column of text or octets."""
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
    """UTF-8, which Arrow asks for, so octets that were none become U+FFFD."""
    if value is None:
        return None
    try:
        return value.encode()
    except UnicodeEncodeError:
        return _LONE.sub("\ufffd", value).encode()


class Columns:
    """Many frames as columns, made by `parse_columns`. Hand it to `pyarrow.record_batch`, polars or pandas.

    It exports the Arrow C data interface, once, since the memory moves to whoever takes it. The columns: command utf8,
    headers map<utf8, utf8>, body binary, offset int64, length int32, error utf8, then one of utf8 for each of the names
    that were asked for.
    """

    __slots__ = ("_names", "_rows", "consumed", "error", "rows")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._rows: list[tuple[Any, ...]] | None = []
        self.rows = 0
        """How many rows there are: a frame each, and one for what was malformed."""
        self.consumed = 0
        """Octets that need not be given again."""
        self.error: str | None = None
        """The kind of the last row's error, or None."""

    def __init_subclass__(cls) -> None:
        raise TypeError("Columns cannot be subclassed")

    def __arrow_c_schema__(self) -> Any:
        """What the columns are, as a PyCapsule."""
        entries = [_make_schema(b"u", "key"), _make_schema(b"u", "value", _NULLABLE)]
        columns = [
            _make_schema(b"u", "command"),
            _make_schema(b"+m", "headers", 0, [_make_schema(b"+s", "entries", 0, entries)]),
            _make_schema(b"z", "body"),
            _make_schema(b"l", "offset"),
            _make_schema(b"i", "length"),
            _make_schema(b"u", "error", _NULLABLE),
            *[_make_schema(b"u", name, _NULLABLE) for name in self._names],
        ]
        return _capsule(_make_schema(b"+s", "", 0, columns), _SCHEMA_NAME, _drop_schema)

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Schema and columns, as two PyCapsules. Works once."""
        if self._rows is None:
            raise ValueError("these columns were handed over already: parse again")
        none: list[tuple[Any, ...]] = [()] * (6 + len(self._names))
        commands, headers, bodies, offsets, lengths, errors, *extra = zip(*self._rows) if self._rows else none
        pairs = [pair for row in headers for pair in row]
        entries = _make_array(
            len(pairs), 0, [None], [_octets([_text(name) for name, _ in pairs]), _octets([_text(v) for _, v in pairs])]
        )
        columns = [
            _octets([_text(command) for command in commands]),
            _make_array(self.rows, 0, [None, _offsets(map(len, headers))], [entries]),
            _octets(bodies),
            _make_array(self.rows, 0, [None, array("q", offsets)]),
            _make_array(self.rows, 0, [None, array("i", lengths)]),
            _octets([_text(kind) for kind in errors]),
            *[_octets([_text(value) for value in column]) for column in extra],
        ]
        schema = self.__arrow_c_schema__()
        self._rows = None
        return schema, _capsule(_make_array(self.rows, 0, [None], columns), _ARRAY_NAME, _drop_array)


def columns_of(
    data: Any,
    version: str | None,
    names: Iterable[str] | None,
    *,
    limits: Limits | None,
    lenient: bool,
    commands: Iterable[str],
) -> Columns:
    """Read whole frames into columns; see `parse_columns`.

    >>> columns_of(b"SEND\\n\\nhi\\0SEND\\n", "1.2", None, limits=None, lenient=False, commands=()).rows
    1
    """
    parser = Parser(version, limits=limits, lenient=lenient, commands=commands)
    columns = Columns()
    columns._names = wanted = list(checked_names(names))
    rows: list[tuple[Any, ...]] = []
    columns._rows = rows
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("the octets are not contiguous: copy them to bytes first")
    most = _MOST // 3 if lenient else _MOST  # U+FFFD takes three octets
    parser.feed(data if view.nbytes <= most else view.cast("B")[:most])
    try:
        for frame in parser:
            at, end = parser._span()
            named = [frame.get(name) for name in wanted]
            rows.append((frame.command, frame.headers.pairs(), frame.body, at, end - at, None, *named))
        columns.consumed = min(view.nbytes, most) - parser.buffered
    except FrameError as error:
        columns.consumed = at = parser._span()[0]
        rows.append(("", [], b"", at, (error.offset or 0) - at, error.kind, *[None for _ in wanted]))
        columns.error = error.kind
    columns.rows = len(rows)
    return columns
