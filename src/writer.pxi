# The writer: frames to bytes. Included by _codec_c.pyx.

cdef object _AUTO = "auto", _NO_COMMANDS = ()

cdef int _writer(stomp_writer *room, version, content_length, lenient, _Names extra) except -1:
    """Set the rules of a call."""
    _dialect_rules(&room.rules, version, False)
    if content_length is _AUTO or content_length == "auto":
        room.length_mode = LENGTH_AUTO
    else:
        try:
            room.length_mode = _MODES[content_length]
        except (KeyError, TypeError):
            raise ValueError(f"content_length is {content_length!r}: use 'auto', 'always' or 'never'") from None
    room.lenient = 1 if lenient else 0
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
    return _refusal(name.translate(_LOWER) if legacy else name, value, raw=not writer.rules.escapes or command in _UNESCAPED,
                    connect=command in _UNESCAPED, errors="surrogateescape" if writer.lenient else "strict")


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
    /* dict.get with a reference of its own: Cython's takes it too late, when another thread may have freed the value. */
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
    _dialect_rules(&writer.rules, version, False)
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
