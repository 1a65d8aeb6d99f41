# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# cython: autotestdict=False, auto_pickle=False, freethreading_compatible=True
"""The C backend: the same as `_codec_py`, which specifies it, but faster."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_Destructor, PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport SIZE_MAX, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memmove

from stomp cimport *

from array import array as _array
from operator import index as _index

from . import frame as _frame
from .errors import FrameError
from .errors import excerpt as _excerpt
from .errors import refusal as _refusal
from .column_filter import COLUMNS as _COLUMNS
from .column_filter import checked_columns as _checked_columns
from .column_filter import checked_every as _checked_every
from .column_filter import checked_where as _checked_where
from .spec import UNESCAPED as _UNESCAPED
from .spec import checked_commands as _checked_commands
from .spec import checked_limits as _checked_limits
from .spec import checked_names as _checked_names
from .spec import dialect_of as _dialect_of

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX
    Py_ssize_t PyNumber_AsSsize_t(object number, PyObject *overflow) except? -1
    int PyUnicode_Compare(object left, object right) except? -1
    Py_ssize_t Py_REFCNT(void *object)
    int _PyBytes_Resize(PyObject **bytes, Py_ssize_t size) except -1
    PyObject *PyBytes_New "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size) except NULL  # the caller owns the reference

stomp_frame_init(_frame)
Frame = <object>StompFrame_Type_ptr
Headers = <object>StompHeaders_Type_ptr
HEARTBEAT = _frame.HEARTBEAT
END_OF_BODY = _frame.END_OF_BODY
cdef object _HEARTBEAT = HEARTBEAT, _END_OF_BODY = END_OF_BODY, _EMPTY = b""

__all__ = ["END_OF_BODY", "HEARTBEAT", "Columns", "Frame", "Headers", "Parser", "frame_ends", "parse_columns",
           "read_websocket", "serialize", "serialize_many", "serialize_parts", "serialize_tail", "write_websocket"]

#: Limit error of stomp_scan.h -> field of Limits.
cdef dict _LIMITS = {10: "max_command_line", 11: "max_header_line", 12: "max_headers", 13: "max_body"}
cdef object _LONGEST = 2**64 - 1
cdef dict _LOWER = {c: c + 32 for c in range(65, 91)}
cdef dict _UPPER = {c: c - 32 for c in range(97, 123)}
cdef dict _MODES = {"auto": LENGTH_AUTO, "always": LENGTH_ALWAYS, "never": LENGTH_NEVER}
cdef dict _FLAGS = {
    "crlf": STOMP_CRLF, "any_body": STOMP_ANY_BODY, "trims_lines": STOMP_LEGACY, "trims_headers": STOMP_TRIMS_HEADERS,
    "any_command": STOMP_ANY_COMMAND, "keeps_bad_escapes": STOMP_KEEPS_BAD_ESCAPES,
    "keeps_bad_utf8": STOMP_KEEPS_BAD_UTF8, "skips_bad_lines": STOMP_SKIPS_BAD_LINES, "skips_nul": STOMP_SKIPS_NUL,
}

cdef enum:
    PIECE = 65536  # bytes: the smallest buffer, and the most that get_buffer offers
    IDLE_ROOM = 262144  # bytes: larger empty buffers are freed
    SMALL = 4096  # bytes: smaller chunks are joined, larger ones are read in place


# ---- rules ----

cdef class _Names:
    """A tuple of bytes in a form for C."""
    cdef tuple texts
    cdef stomp_name *names
    cdef size_t count

    def __cinit__(self, texts):
        self.texts = tuple(texts)
        self.count = len(self.texts)
        self.names = <stomp_name *>PyMem_RawMalloc((self.count + 1) * sizeof(stomp_name))
        if not self.names:
            raise MemoryError
        for i, text in enumerate(self.texts):
            if not PyBytes_CheckExact(text):
                raise TypeError(f"a name or value is {type(text).__name__}: it must be bytes here")
            self.names[i].octets = <const uint8_t *>PyBytes_AS_STRING(text)
            self.names[i].len = PyBytes_GET_SIZE(text)

    def __dealloc__(self):
        PyMem_RawFree(self.names)


cdef _Names _names_of(texts):
    """Return names as UTF-8. A list comprehension of Cython 3.3 frees an item twice if the list cannot grow: use a loop."""
    cdef list encoded = []
    for text in texts:
        encoded.append(text.encode())
    return _Names(encoded)


cdef tuple _VERSIONS = (None, "1.2", "1.1", "1.0", "legacy")
cdef stomp_rules _RULES[5][2]  # for each version, strict and lenient


cdef int _dialect_rules(stomp_rules *rules, version, bint lenient) except -1:
    """Set the rules of a dialect, with the default limits."""
    cdef int i
    for i in range(5):
        if version is _VERSIONS[i]:
            rules[0] = _RULES[i][lenient]
            return 0
    if type(version) is str:
        for i in range(1, 5):
            if PyUnicode_Compare(version, _VERSIONS[i]) == 0:
                rules[0] = _RULES[i][lenient]
                return 0
    _dialect_of(version, lenient)  # raises for unknown versions
    rules[0] = _RULES[_VERSIONS.index(version)][lenient]
    return 0


cdef stomp_rules _read_rules(dialect) except *:
    cdef stomp_rules rules
    rules.flags = 0
    for name, flag in _FLAGS.items():
        if getattr(dialect, name):
            rules.flags |= flag
    rules.flags |= (STOMP_PADS_SPACE if b" " in dialect.length_padding else 0)
    rules.flags |= (STOMP_PADS_TAB if b"\t" in dialect.length_padding else 0)
    rules.commands = 0
    for i in range(STOMP_COMMANDS):
        if stomp_command_names[i].decode() in dialect.commands:
            rules.commands |= 1u << <uint32_t>i
    rules.escapes = 0 if not dialect.escapes else 2 if b"r" in dialect.escapes else 1
    rules.report_beats = 0
    rules.extra = NULL
    rules.extra_count = 0
    _limit_rules(&rules, _checked_limits(None))
    return rules


cdef int _limit_rules(stomp_rules *rules, limits) except -1:
    rules.max_command_line, header_line, rules.max_headers, rules.max_body = limits
    rules.max_header_line = min(header_line, SIZE_MAX)  # unbounded where max_headers is 0
    return 0


for _i in range(5):
    for _lenient in range(2):
        _RULES[<int>_i][<int>_lenient] = _read_rules(_dialect_of(_VERSIONS[_i], bool(_lenient)))


cdef _raise(int error, offset, near=b"", detail=""):
    if error == STOMP_NO_MEMORY:
        raise MemoryError
    raise FrameError(stomp_error_name(error).decode(), offset, limit=_LIMITS.get(error), near=near, detail=detail)


# ---- buffers ----

@cython.final
cdef class _Block:
    """A buffer of the parser. It is from the raw allocator, so that sanitizers detect reads out of bounds."""
    cdef uint8_t *data
    cdef size_t room

    def __cinit__(self, size_t room):
        self.data = <uint8_t *>PyMem_RawMalloc(room)
        self.room = room
        if not self.data:
            raise MemoryError

    def __dealloc__(self):
        PyMem_RawFree(self.data)


cdef _Block _small_spare = None, _large_spare = None  # idle parsers own no buffer, and leave it here


cdef _Block _block_for(uint64_t room):
    """Return a block of at least this many bytes, a spare one if possible."""
    global _small_spare, _large_spare
    cdef _Block spare
    if room > <uint64_t>PY_SSIZE_T_MAX:
        raise MemoryError
    if STOMP_SPARE_BLOCKS:
        spare = _small_spare if room <= SMALL else _large_spare
        if spare is not None and spare.room >= room:
            if room <= SMALL:
                _small_spare = None
            else:
                _large_spare = None
            return spare
    return _Block(room if room > SMALL else <size_t>SMALL)


cdef int _give_back(_Block block) except -1:
    """Keep or free a block that nothing refers to."""
    global _small_spare, _large_spare
    if STOMP_SPARE_BLOCKS:
        if block.room <= SMALL:
            _small_spare = block
        elif block.room <= IDLE_ROOM and (_large_spare is None or _large_spare.room < block.room):
            _large_spare = block
    return 0


@cython.final
cdef class _Lease:
    """Memory that is lent to a reader. Views of it keep its owner alive, and may be written at any time, by any thread: nothing
    is scanned there."""
    cdef object owner
    cdef uint8_t *data
    cdef size_t room

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, <Py_ssize_t>self.room, 0, flags)


cdef _Lease _lend(owner, uint8_t *data, size_t room):
    cdef _Lease lease = _Lease.__new__(_Lease)
    lease.owner = owner
    lease.data = data
    lease.room = room
    return lease


include "input.pxi"
include "bodies.pxi"
include "parser.pxi"
include "writer.pxi"
include "columns.pxi"
include "websocket.pxi"
