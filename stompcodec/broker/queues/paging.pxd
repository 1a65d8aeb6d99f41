from stompcodec.broker.message cimport Message
from stompcodec.broker.storage.journal cimport Batch, Journal

cdef class Span:
    cdef public long long cursor, last
    cdef public set out

cdef class Paging:
    cdef public object _queue, _chunk, _wanted
    cdef public Journal _journal
    cdef public Batch _noted
    cdef public dict _spans, _leaving
    cdef public list _unwritten, _retries, _waiters
    cdef public bint _reading, _holds
    cdef public long long _noted_from, _forget_at, count, deferred
    cdef public tuple deferred_seqs

    cpdef bint covers(self, int rank, long long seq) except -1
    cpdef bint comes_last(self, int rank, long long seq) except -1
    cpdef bint take_new(self, int rank, Message message) except -1
    cpdef bint take_stored(self, int rank, list messages) except -1
    cpdef put(self, int rank, Message message, bint stored)
    cpdef comes(self, Message message)
    cpdef keep_out(self, int rank, long long seq)
    cpdef bint allows(self, tuple place) except -1
