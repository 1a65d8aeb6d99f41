# Many frames at once, without objects and without the GIL: `parse_columns` and `frame_ends`. Included by _codec_c.pyx.

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
    _dialect_rules(&rules, version, lenient)
    _limit_rules(&rules, _checked_limits(limits))
    rules.extra = extra.names
    rules.extra_count = extra.count
    read.names = _names_of(_checked_names(names))
    wanted.columns = _columns_bits(columns)
    wanted.repeats = 1 if repeats else 0
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
