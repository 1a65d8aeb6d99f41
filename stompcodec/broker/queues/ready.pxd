from stompcodec.broker.message cimport Message

cdef class Tally:
    cdef public long long put, sent, ended, redelivered, expired, dropped, dead

cdef class Window:
    cdef public long long messages, octets
    cdef public bint spools

cdef class Bound:
    cdef public long long messages, octets
    cdef public double total

    cpdef bint is_low(self, long long messages, long long octets) except -1

cdef class ReadyMessages:
    cdef public object line, _late
    cdef public bint _ranked

    cpdef int rank(self, Message message) except -1
    cpdef tuple place(self, Message message)
    cpdef append(self, Message message)
    cpdef bint extend(self, list messages) except -1
    cpdef long long last(self, int rank) except? -1
