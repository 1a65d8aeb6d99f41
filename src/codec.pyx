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
from .errors import tell_of_length as _tell_of_length
from .spec import COLUMNS as _COLUMNS
from .spec import LENIENCIES as _LENIENCIES
from .spec import UNESCAPED as _UNESCAPED
from .spec import checked_columns as _checked_columns
from .spec import checked_commands as _checked_commands
from .spec import checked_every as _checked_every
from .spec import checked_flag as _checked_flag
from .spec import checked_leniency as _checked_leniency
from .spec import checked_limits as _checked_limits
from .spec import checked_names as _checked_names
from .spec import checked_where as _checked_where
from .spec import dialect_of as _dialect_of

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX
    Py_ssize_t PyNumber_AsSsize_t(object number, PyObject *overflow) except? -1
    int PyUnicode_Compare(object left, object right) except? -1
    Py_ssize_t Py_REFCNT(void *object)
    int _PyBytes_Resize(PyObject **bytes, Py_ssize_t size) except -1
    # the caller owns the reference
    PyObject *PyBytes_New "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size) except NULL

stomp_frame_init(_frame)
Frame = <object>StompFrame_Type_ptr
Headers = <object>StompHeaders_Type_ptr
HEARTBEAT = _frame.HEARTBEAT
END_OF_BODY = _frame.END_OF_BODY
cdef object _HEARTBEAT = HEARTBEAT, _END_OF_BODY = END_OF_BODY, _EMPTY = b""

__all__ = ["END_OF_BODY", "HEARTBEAT", "Columns", "Frame", "Headers", "Parser", "frame_ends", "parse_columns",
           "read_websocket", "serialize", "serialize_many", "serialize_parts", "serialize_tail", "write_websocket"]

#: Limit error of stomp.h -> field of Limits.
cdef dict _LIMITS = {10: "max_command_line", 11: "max_header_line", 12: "max_headers", 13: "max_body"}
cdef object _LONGEST = 2**64 - 1
cdef dict _LOWER = {c: c + 32 for c in range(65, 91)}
cdef dict _UPPER = {c: c - 32 for c in range(97, 123)}
cdef dict _MODES = {"auto": LENGTH_AUTO, "always": LENGTH_ALWAYS, "never": LENGTH_NEVER}
cdef dict _FLAGS = {
    "crlf": STOMP_CRLF, "any_body": STOMP_ANY_BODY, "trims_lines": STOMP_LEGACY, "trims_headers": STOMP_TRIMS_HEADERS,
    "any_command": STOMP_ANY_COMMAND, "keeps_bad_escapes": STOMP_KEEPS_BAD_ESCAPES,
    "keeps_bad_utf8": STOMP_KEEPS_BAD_UTF8, "skips_bad_lines": STOMP_SKIPS_BAD_LINES, "skips_nul": STOMP_SKIPS_NUL,
    "mends_length": STOMP_MENDS_LENGTH, "skips_idle_length": STOMP_SKIPS_IDLE_LENGTH,
    "keeps_login_escapes": STOMP_KEEPS_LOGIN_ESCAPES,
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
    """Return names as UTF-8. A list comprehension of Cython 3.3 frees an item twice if the list cannot grow: use a
    loop."""
    cdef list encoded = []
    for text in texts:
        encoded.append(text.encode())
    return _Names(encoded)


cdef tuple _VERSIONS = (None, "1.2", "1.1", "1.0", "legacy")
cdef stomp_rules _RULES[5][3]  # for each version and each of `LENIENCIES`


cdef int _dialect_rules(stomp_rules *rules, version, int lenient) except -1:
    """Set the rules of a dialect, with the default limits. `lenient` is an index in `LENIENCIES`."""
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
    _dialect_of(version)  # raises for unknown versions
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
    for _lenient in range(3):
        _RULES[<int>_i][<int>_lenient] = _read_rules(_dialect_of(_VERSIONS[_i], _LENIENCIES[_lenient]))


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


cdef _Block _free_small = None, _free_large = None  # the free list: idle parsers own no buffer


cdef _Block _block_for(uint64_t room):
    """Return a block of at least this many bytes, a free one if possible."""
    global _free_small, _free_large
    cdef _Block free
    if room > <uint64_t>PY_SSIZE_T_MAX:
        raise MemoryError
    if STOMP_FREE_BLOCKS:
        free = _free_small if room <= SMALL else _free_large
        if free is not None and free.room >= room:
            if room <= SMALL:
                _free_small = None
            else:
                _free_large = None
            return free
    return _Block(room if room > SMALL else <size_t>SMALL)


cdef int _give_back(_Block block) except -1:
    """Keep or free a block that nothing refers to."""
    global _free_small, _free_large
    if STOMP_FREE_BLOCKS:
        if block.room <= SMALL:
            _free_small = block
        elif block.room <= IDLE_ROOM and (_free_large is None or _free_large.room < block.room):
            _free_large = block
    return 0


@cython.final
cdef class _Lease:
    """Memory that is lent to a reader. Views of it keep its owner alive, and may be written at any time, by any thread:
    nothing is scanned there."""
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


include "parser.pxi"


# ==== the writer: frames to bytes ====

cdef object _AUTO = "auto", _NO_COMMANDS = ()

cdef int _writer(stomp_writer *room, version, content_length, lenient, _Names extra) except -1:
    """Set the rules of a call."""
    _dialect_rules(&room.rules, version, 0)
    if content_length is _AUTO or content_length == "auto":
        room.length_mode = LENGTH_AUTO
    else:
        try:
            room.length_mode = _MODES[content_length]
        except (KeyError, TypeError):
            raise ValueError(f"content_length is {content_length!r}: use 'auto', 'always' or 'never'") from None
    room.lenient = lenient is not False
    if lenient is not False and lenient is not True:
        _checked_flag("lenient", lenient)
    if extra is not None:
        room.rules.extra = extra.names
        room.rules.extra_count = extra.count
    return 0


cdef inline _Names _extra(commands):
    if commands is _NO_COMMANDS:
        return None
    return _names_of(_checked_commands(commands)) if commands != () else None


cdef StompFrame *_checked_frame(frame) except NULL:
    if type(frame) is not Frame:
        raise TypeError(f"{type(frame).__name__} cannot be serialized: it must be a Frame of this backend")
    if not (<StompFrame *>(<PyObject *>frame)).body:
        raise TypeError("the body of this frame was streamed: make a Frame with the whole body")
    return <StompFrame *>(<PyObject *>frame)


cdef int _write(stomp_out *out, frame, const stomp_writer *writer) except -1:
    """Write everything but the body and its NUL."""
    cdef uint32_t culprit
    cdef int error = stomp_write_head(out, _checked_frame(frame), writer, &culprit)
    if error:
        _raise(error, None, b"", _detail(error, frame, culprit, writer))
    return 0


cdef _detail(int error, frame, uint32_t culprit, const stomp_writer *writer):
    """Return the details of an error in words."""
    cdef bint legacy = (writer.rules.flags & STOMP_LEGACY) != 0
    command = frame.command.translate(_UPPER) if legacy else frame.command
    pairs = frame.headers.pairs()
    if error == STOMP_UNKNOWN_COMMAND:
        return f"command {command[:40]!a}"
    if error == STOMP_BODY_NOT_ALLOWED:
        return f"command {command}"
    if error == STOMP_BAD_CONTENT_LENGTH:
        return f"the body has {len(frame.body)} bytes"
    if culprit >= len(pairs):
        return "a body with NUL octets needs content-length"
    name, value = pairs[culprit]
    connect = command in _UNESCAPED
    return _refusal(name.translate(_LOWER) if legacy else name, value, raw=not writer.rules.escapes or connect,
                    connect=connect, errors="surrogateescape" if writer.lenient else "strict")


def serialize(frame, version="1.2", *, content_length="auto", lenient=False, commands=()):
    """Return a frame as bytes.

    Args:
        frame: the frame to write.
        version: "1.0", "1.1", "1.2", "legacy", or None before negotiation.
        content_length: "auto" adds the header at the end if the frame has a body and no such header; "always" adds it
            to frames without a body too; "never" leaves it out, even if the frame has it.
        lenient: whether lone surrogates are written as the bytes they stand for.
        commands: names of further commands, such as "PING".

    Raises:
        FrameError: the version cannot represent the frame ("unencodable", "unknown-command", "body-not-allowed"), or
            its content-length is wrong ("bad-content-length").
        TypeError: `frame` is not a Frame of this backend, or its body was streamed.

    >>> serialize(Frame("SEND", {"destination": "/queue/a"}, b"hello"))
    b'SEND\\ndestination:/queue/a\\ncontent-length:5\\n\\nhello\\x00'
    """
    cdef stomp_writer writer
    cdef _Names extra = _extra(commands)
    _writer(&writer, version, content_length, lenient, extra)
    cdef uint32_t culprit
    cdef PyObject *made
    cdef int error = stomp_write_frame(&made, _checked_frame(frame), &writer, &culprit)
    if error:
        _raise(error, None, b"", _detail(error, frame, culprit, &writer))
    octets = <object>made
    Py_XDECREF(made)  # `octets` owns it now
    return octets


def serialize_parts(frame, version="1.2", *, content_length="auto", lenient=False, commands=()):
    """Return a frame as a list of bytes, for `writelines`. A body of 8 KiB or more is not copied.

    Arguments and errors are those of `serialize`.

    >>> serialize_parts(Frame("BEGIN", {"transaction": "t"}))
    [b'BEGIN\\ntransaction:t\\n\\n\\x00']
    """
    cdef stomp_writer writer
    cdef stomp_out out
    cdef _Names extra = _extra(commands)
    _writer(&writer, version, content_length, lenient, extra)
    stomp_out_init(&out)
    try:
        _write(&out, frame, &writer)
        body = <object>(<StompFrame *>(<PyObject *>frame)).body
        if PyBytes_GET_SIZE(body) < 8192:
            return [stomp_out_take(&out, <void *>body)]
        return [stomp_out_take(&out, NULL), body, b"\0"]
    finally:
        stomp_out_free(&out)


cdef size_t _expected(frames):
    """Return the likely size of the output of many frames, or 0 if they are not in a list or tuple."""
    cdef size_t size = 0
    if type(frames) is list or type(frames) is tuple:
        for frame in frames:
            if type(frame) is Frame and (<StompFrame *>(<PyObject *>frame)).body:
                size += stomp_expected_size(<StompFrame *>(<PyObject *>frame))
    return size


def serialize_many(frames, version="1.2", *, content_length="auto", lenient=False, commands=()):
    """Return many frames as bytes, one after the other.

    Arguments and errors are those of `serialize`.

    >>> serialize_many([Frame("BEGIN", {"transaction": "t"}), Frame("COMMIT", {"transaction": "t"})])
    b'BEGIN\\ntransaction:t\\n\\n\\x00COMMIT\\ntransaction:t\\n\\n\\x00'
    """
    cdef stomp_writer writer
    cdef stomp_batch batch
    cdef _Names extra = _extra(commands)
    _writer(&writer, version, content_length, lenient, extra)
    stomp_batch_init(&batch, _expected(frames))
    try:
        for frame in frames:
            _write(&batch.head, frame, &writer)
            stomp_batch_add(&batch, (<StompFrame *>(<PyObject *>frame)).body)
        return stomp_batch_take(&batch)
    finally:
        stomp_batch_free(&batch)


cdef extern from *:
    """
    /* dict.get with a reference of its own: Cython takes it too late, when another thread may have freed the value. */
    static int stomp_dict_get(PyObject *dict, PyObject *key, PyObject **value)
    {
    #if PY_VERSION_HEX >= 0x030D0000
        return PyDict_GetItemRef(dict, key, value);
    #else
        *value = Py_XNewRef(PyDict_GetItemWithError(dict, key));
        return *value ? 1 : PyErr_Occurred() ? -1 : 0;
    #endif
    }
    """
    int stomp_dict_get(object dict, object key, PyObject **value) except -1

cdef dict _LEFT_OUT = {}  # tuple of names -> the same for C: a broker passes the same tuple each time


cdef _Names _left_out(without):
    cdef PyObject *found = NULL
    cdef _Names names
    if type(without) is not tuple:
        return _names_of(_checked_names(without))
    if stomp_dict_get(_LEFT_OUT, without, &found):
        names = <_Names>found
        Py_XDECREF(found)
        return names
    checked = _checked_names(without)  # of exact str: others may claim to equal what they do not
    names = _names_of(checked)
    if len(_LEFT_OUT) >= 100:
        _LEFT_OUT.clear()
    _LEFT_OUT[checked] = names
    return names


def serialize_tail(frame, version="1.2", *, without=()):
    """Return the part of a SEND, MESSAGE or ERROR frame after its command line: headers, empty line, body, NUL.

    Brokers put a command and their own headers before it. Headers that the version cannot represent are left out.
    content-length is written last if the frame has a body or the header.

    Args:
        frame: the frame to write. Its command is ignored.
        version: "1.0", "1.1" or "1.2".
        without: names of headers to leave out, except content-length. Passing the same tuple each time is fastest.

    Raises:
        TypeError: `frame` is not a Frame of this backend, or its body was streamed.
        ValueError: the version is unknown, or a name in `without` is not UTF-8.

    >>> frame = Frame("SEND", {"destination": "/queue/a", "receipt": "7"}, b"hi")
    >>> b"MESSAGE\\nsubscription:0\\n" + serialize_tail(frame, without=("receipt",))
    b'MESSAGE\\nsubscription:0\\ndestination:/queue/a\\ncontent-length:2\\n\\nhi\\x00'
    """
    cdef stomp_writer writer
    cdef stomp_out out
    cdef _Names names = _left_out(without)
    _dialect_rules(&writer.rules, version, 0)
    if writer.rules.flags & STOMP_LEGACY or version is None:
        raise ValueError(f"version is {version!r}: use '1.0', '1.1' or '1.2'")
    writer.length_mode = LENGTH_AUTO
    writer.lenient = 0
    cdef StompFrame *checked = _checked_frame(frame)
    stomp_out_init(&out)
    try:
        stomp_write_tail(&out, checked, &writer, names.names, names.count)
        return stomp_out_take(&out, (<StompFrame *>(<PyObject *>frame)).body)
    finally:
        stomp_out_free(&out)


# ==== many frames at once: `parse_columns` and `frame_ends`, without objects and without the GIL ====

cdef void _free_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release:
        schema.release(schema)
    PyMem_RawFree(schema)


cdef void _free_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release:
        array.release(array)
    PyMem_RawFree(array)


cdef object _capsule(void *empty, const char *name, PyCapsule_Destructor destructor):
    """Return a capsule for a structure that is filled later. The capsule frees it, even if it stays empty."""
    if not empty:
        raise MemoryError
    try:
        return PyCapsule_New(empty, name, destructor)
    except MemoryError:
        PyMem_RawFree(empty)
        raise


@cython.final
cdef class Columns:
    """Columns()
--

    Frames as Arrow columns, the result of `parse_columns`, for `pyarrow.record_batch`, polars or pandas.

    The Arrow C data interface exports them once, since the memory moves to the importer. The columns, unless left out:
    command utf8, headers map<utf8, utf8>, body binary, offset int64, length int32, error utf8; then a nullable utf8
    column for each name that was given.

    >>> from stompcodec import parse_columns
    >>> columns = parse_columns(b"SEND\\n\\nhi\\0SEND\\n")
    >>> columns.rows, columns.consumed, columns.error
    (1, 9, None)
    """
    cdef stomp_columns columns
    cdef _Names names
    cdef bint taken
    cdef readonly object rows
    """How many rows there are: one for each frame, and one for malformed data."""
    cdef readonly object consumed
    """Bytes that need not be given again."""
    cdef readonly object error
    """The kind of the last row's error, or None."""

    def __dealloc__(self):
        stomp_columns_free(&self.columns)

    def __arrow_c_schema__(self):
        """Return the schema as a PyCapsule."""
        cdef ArrowSchema *schema = <ArrowSchema *>PyMem_RawCalloc(1, sizeof(ArrowSchema))
        capsule = _capsule(schema, "arrow_schema", _free_schema)
        if stomp_columns_schema(&self.columns, schema) < 0:
            raise MemoryError
        return capsule

    def __arrow_c_array__(self, requested_schema=None):
        """Return schema and columns as two PyCapsules.

        Raises:
            ValueError: the columns were exported before.
        """
        cdef ArrowArray *array
        cdef bint taken
        with cython.critical_section(self):  # one thread alone may have them
            taken = self.taken
            self.taken = True
        if taken:
            raise ValueError("the columns were exported already: parse again")
        try:
            schema = self.__arrow_c_schema__()
            array = <ArrowArray *>PyMem_RawCalloc(1, sizeof(ArrowArray))
            both = schema, _capsule(array, "arrow_array", _free_array)
            if stomp_columns_array(&self.columns, array) < 0:  # nothing after this can fail: it owns the columns
                raise MemoryError
        except MemoryError:
            with cython.critical_section(self):
                self.taken = False
            raise
        return both


@cython.final
cdef class _Where:
    """Conditions in a form for C."""
    cdef list texts
    cdef stomp_condition *conditions
    cdef size_t count

    def __cinit__(self, where):
        cdef _Names name, values
        cdef stomp_condition *to
        self.texts = []
        self.conditions = <stomp_condition *>PyMem_RawMalloc((len(where) + 1) * sizeof(stomp_condition))
        if not self.conditions:
            raise MemoryError
        for condition in where:
            name, values = _Names((condition.name,)), _Names(condition.values)
            self.texts += [name, values]
            to = self.conditions + self.count
            to.name = name.names[0]
            to.of_command = condition.name == b"command"
            to.is_prefix = condition.is_prefix
            to.values = values.names
            to.count = values.count
            self.count += 1

    def __dealloc__(self):
        PyMem_RawFree(self.conditions)


cdef int _columns_bits(columns) except -1:
    """Return the chosen columns as bits, in order."""
    cdef int bits = 0
    wanted = _checked_columns(columns)
    for i, name in enumerate(_COLUMNS):
        bits |= (<int>(name in wanted)) << <int>i
    return bits


def parse_columns(data, version="1.2", names=None, *, limits=None, lenient=False, commands=(), columns=None, where=(),
                  repeats=True):
    """Read whole frames into Arrow columns.

    Args:
        data: any contiguous bytes-like object. At most 2**31 - 1 bytes are read; pass the data from `.consumed` on
            again.
        version: "1.0", "1.1", "1.2", "legacy", or None before negotiation.
        names: headers that get a column of their own.
        limits, lenient, commands: as for `Parser`.
        columns: some of "command", "headers", "body", "offset", "length" and "error"; None for all.
        where: conditions that a frame must all meet to become a row: (name, "in", values) or (name, "prefix", values).
            The name is that of a header, whose first entry counts, or "command".
        repeats: whether the column of headers has repeated entries; False keeps the first of each name.

    Raises:
        TypeError, ValueError: an argument has another type, or is unknown. Malformed data does not raise: it becomes
            the last row, whose column "error" has the kind.

    >>> parse_columns(b"SEND\\n\\nhi\\0SEND\\n", names=["destination"]).rows
    1
    """
    cdef stomp_rules rules
    cdef stomp_wanted wanted
    cdef Py_buffer view
    cdef int failed
    cdef Columns read = Columns.__new__(Columns)
    cdef _Names extra = _names_of(_checked_commands(commands))
    cdef _Where conditions = _Where(_checked_where(where))
    _dialect_rules(&rules, version, _LENIENCIES.index(_checked_leniency(lenient)))
    _limit_rules(&rules, _checked_limits(limits))
    rules.extra = extra.names
    rules.extra_count = extra.count
    read.names = _names_of(_checked_names(names))
    wanted.columns = _columns_bits(columns)
    wanted.repeats = _checked_flag("repeats", repeats)
    wanted.names = read.names.names
    wanted.names_count = read.names.count
    wanted.where = conditions.conditions
    wanted.where_count = conditions.count
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            failed = stomp_columns_parse(&read.columns, &rules, &wanted, <const uint8_t *>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    if failed:
        raise MemoryError
    read.rows = read.columns.rows
    read.consumed = read.columns.consumed
    read.error = stomp_error_name(read.columns.bad).decode() or None
    return read


def frame_ends(data, every=1, most=None, *, limits=None):
    """Return the offsets at which frames end, found by a light parse that checks little.

    Args:
        data: any contiguous bytes-like object.
        every: the least distance in bytes between two returned ends. The end of the last whole frame is always
            returned.
        most: the largest number of ends to return; None for all.
        limits: only max_body is used: a larger content-length is ignored.

    Returns:
        An array of 64-bit integers, in ascending order.

    Raises:
        TypeError, ValueError: an argument has another type, or is out of range.

    >>> list(frame_ends(b"SEND\\n\\nhi\\0\\nACK\\nid:1\\n\\n\\0SEND\\n"))
    [9, 21]
    """
    cdef stomp_ends ends
    cdef stomp_ends_wanted wanted
    cdef Py_buffer view
    cdef int failed
    every, most = _checked_every(every, most)
    wanted.every, wanted.most = min(every, SIZE_MAX), min(most, SIZE_MAX)
    wanted.max_body = _checked_limits(limits).max_body
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            failed = stomp_frame_ends(&ends, &wanted, <const uint8_t *>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    try:
        if failed:
            raise MemoryError
        found = _array("q")
        found.frombytes((<const char *>ends.ends)[:ends.count * sizeof(int64_t)])
        return found
    finally:
        stomp_ends_free(&ends)


# ==== plain WebSocket frames, both ways ====

def read_websocket(data, at=0, *, bint masked, bint utf8, longest, most):
    """Read the plain WebSocket frames at `at`: whole ones of text or binary, in one fragment.

    Reading stops before the first frame that is not plain, too large or incomplete, and leaves it to a library.

    Args:
        data: any contiguous bytes-like object.
        at: where the first frame begins.
        masked: whether frames must have masks (those of clients), or must not.
        utf8: whether reading also stops before text that is not UTF-8.
        longest: the largest payload in bytes.
        most: the largest number of frames to read.

    Returns:
        All payloads joined, where the next frame begins, and the number of frames.

    Raises:
        ValueError: `at` is outside of the data, or a number is negative.

    >>> read_websocket(b"\\x81\\x02hi\\x82\\x01!\\x89\\x00", masked=False, utf8=True, longest=100, most=100)
    (b'hi!', 7, 2)
    """
    cdef stomp_websocket_rules rules
    cdef stomp_websocket_run run
    cdef Py_buffer view
    cdef const uint8_t *start
    cdef PyObject *payload = NULL
    cdef size_t measured
    cdef Py_ssize_t begin = PyNumber_AsSsize_t(at, NULL), count = PyNumber_AsSsize_t(most, NULL)  # clipped if too large
    if longest < 0 or count < 0:
        raise ValueError("longest and most must not be negative")
    rules.masked, rules.utf8, rules.longest, rules.most = masked, utf8, min(longest, _LONGEST), <size_t>count
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if begin < 0 or begin > view.len:
            raise ValueError(f"at is {at}: it must be within the data")
        start = <const uint8_t *>view.buf + begin
        stomp_websocket_measure(&run, &rules, start, <size_t>(view.len - begin))
        measured = run.payload
        payload = PyBytes_New(NULL, <Py_ssize_t>measured)
        stomp_websocket_copy(<uint8_t *>PyBytes_AS_STRING(<object>payload), &run, &rules, start)
        if run.payload < measured:
            _PyBytes_Resize(&payload, <Py_ssize_t>run.payload)
        return <object>payload, begin + <Py_ssize_t>run.end, <Py_ssize_t>run.frames
    finally:
        Py_XDECREF(payload)
        PyBuffer_Release(&view)


def write_websocket(chunks, bytes masks=b""):
    """Return chunks as WebSocket frames, joined: each is a message of its own, text if it is UTF-8, else binary.

    Args:
        chunks: bytes; empty ones are left out.
        masks: 4 random bytes for each chunk, as clients need them; empty for frames without masks.

    Raises:
        TypeError: an argument has another type.
        ValueError: the masks are not 4 bytes for each chunk.

    >>> write_websocket([b"hi", b"", b"\\xff"])
    b'\\x81\\x02hi\\x82\\x01\\xff'
    """
    cdef uint64_t room = 0
    cdef const uint8_t *mask = NULL
    cdef PyObject *written = NULL
    cdef uint8_t *start
    cdef uint8_t *out
    cdef tuple fixed = tuple(chunks)  # another thread may change a list between the two loops
    if masks:
        if PyBytes_GET_SIZE(masks) != 4 * len(fixed):
            raise ValueError(f"{len(masks)} bytes of masks for {len(fixed)} chunks: 4 bytes each are needed")
        mask = <const uint8_t *>PyBytes_AS_STRING(masks)
    for chunk in fixed:
        if not isinstance(chunk, bytes):
            raise TypeError("chunks must be bytes")
        room += <size_t>PyBytes_GET_SIZE(chunk) + STOMP_WEBSOCKET_HEAD
    if room > <uint64_t>PY_SSIZE_T_MAX:
        raise MemoryError
    written = PyBytes_New(NULL, <Py_ssize_t>room)
    try:
        start = out = <uint8_t *>PyBytes_AS_STRING(<object>written)
        for chunk in fixed:
            if PyBytes_GET_SIZE(chunk):
                out = stomp_websocket_write(out, <const uint8_t *>PyBytes_AS_STRING(chunk),
                                            <size_t>PyBytes_GET_SIZE(chunk), mask)
            if mask:
                mask += 4
        _PyBytes_Resize(&written, out - start)
        return <object>written
    finally:
        Py_XDECREF(written)
