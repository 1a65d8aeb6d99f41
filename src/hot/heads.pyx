"""`stompcodec/broker/queues/heads.py` in C: the % of bytes is a call of Python, and takes twenty times as long."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

from stompcodec.broker.message cimport Message

cdef enum:
    MOST_DIGITS = 20


cdef inline int write_number(char *to, unsigned long long number) noexcept:
    """Write a number, and return its length."""
    cdef char digits[MOST_DIGITS]
    cdef int at = MOST_DIGITS
    while True:
        at -= 1
        digits[at] = <char>(48 + number % 10)
        number //= 10
        if not number:
            break
    memcpy(to, digits + at, MOST_DIGITS - at)
    return MOST_DIGITS - at


cdef inline char *copy(char *to, bytes octets) noexcept:
    """Copy bytes, and return their end."""
    memcpy(to, PyBytes_AS_STRING(octets), PyBytes_GET_SIZE(octets))
    return to + PyBytes_GET_SIZE(octets)


cdef inline int check(bytes octets) except -1:
    """Raise TypeError for None, which counts as bytes here."""
    if octets is None:
        raise TypeError("bytes are needed, not None")
    return 0


cdef inline bytes room(Py_ssize_t size):
    """Return bytes to be written into."""
    return PyBytes_FromStringAndSize(NULL, size)


cpdef bytes ident_of(bytes epoch, long long seq):
    cdef char digits[MOST_DIGITS]
    check(epoch)
    if seq < 0:
        raise ValueError(f"the seq is {seq}: it is at least 0")
    cdef int size = write_number(digits, seq)
    made = room(PyBytes_GET_SIZE(epoch) + size)
    memcpy(copy(PyBytes_AS_STRING(made), epoch), digits, size)
    return made


cpdef bytes head_of(bytes before, bytes ident, bytes after, long long tag):
    cdef char digits[MOST_DIGITS]
    cdef int size = 0
    check(before)
    check(ident)
    check(after)
    if tag < 0:
        raise ValueError(f"the number of a delivery is {tag}: it is at least 0")
    if tag:
        size = write_number(digits, tag)
    made = room(PyBytes_GET_SIZE(before) + PyBytes_GET_SIZE(ident) + PyBytes_GET_SIZE(after) + size + (size > 0))
    to = copy(copy(copy(PyBytes_AS_STRING(made), before), ident), after)
    if size:
        memcpy(to, digits, size)
        to[size] = b"\n"
    return made


cpdef bytes frame_of(bytes head, bytes tail):
    check(head)
    check(tail)
    made = room(PyBytes_GET_SIZE(head) + PyBytes_GET_SIZE(tail) + 1)
    copy(copy(PyBytes_AS_STRING(made), head), tail)[0] = b"\n"
    return made


cpdef bytes joined(bytes start, list messages):
    cdef Py_ssize_t size = 0, extra
    cdef Message message
    check(start)
    if messages is None:
        raise TypeError("a list is needed, not None")
    extra = PyBytes_GET_SIZE(start) + 13
    for message in messages:
        check(message.ident)
        check(message.tail)
        size += extra + len(message.ident) + len(message.tail)
    made = room(size)
    to = PyBytes_AS_STRING(made)
    for message in messages:
        to = copy(to, start)
        memcpy(to, b"message-id:", 11)
        to = copy(to + 11, message.ident)
        to[0] = b"\n"
        to = copy(to + 1, message.tail)
        to[0] = b"\n"
        to += 1
    return made
