from stompcodec.broker.message cimport Message

cimport cython

cdef class Transaction:
    cdef public list operations, receipts
    cdef public bint keyed, delayed, stores, retains, settles, _mixed
    cdef public long long weight, octets, base
    cdef public object _target

    @cython.locals(octets=cython.longlong, stores=cython.bint)
    cpdef long long send(self, queue, Message message) except -1
