cimport cython

cdef class Message:
    cdef public bytes ident, tail
    cdef public str destination
    cdef public long long seq, size
    cdef public int persistent, priority, attempts, special
    cdef public bint closes_group
    cdef public object body, due, expires, faults, group

    cdef int _fill(self, bytes ident, long long seq, str destination, bytes tail, int persistent) except -1
    cpdef Message again(self)
    cpdef Message spared(self)
    cpdef Message copied(self, int attempts)

@cython.locals(message=Message)
cpdef Message plain_message(bytes ident, long long seq, str destination, bytes tail, bint persistent)
