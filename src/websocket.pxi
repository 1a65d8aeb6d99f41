# Plain WebSocket frames, both ways. Included by _codec_c.pyx.

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
                out = stomp_websocket_write(out, <const uint8_t *>PyBytes_AS_STRING(chunk), <size_t>PyBytes_GET_SIZE(chunk), mask)
            if mask:
                mask += 4
        _PyBytes_Resize(&written, out - start)
        return <object>written
    finally:
        Py_XDECREF(written)
