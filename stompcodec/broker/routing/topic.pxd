from stompcodec.broker.message cimport plain_message
from stompcodec.broker.queues.heads cimport frame_of, head_of, joined
from stompcodec.broker.message cimport Message
from stompcodec.broker.queues.consumer cimport Consumer
from stompcodec.broker.queues.outbox cimport Outbox

cimport cython

cdef class Bundle:
    cdef public dict _chunks, _frames
    cdef public bint _may_expire, plain
    cdef public long long _octets
    cdef public list messages, slow

    @cython.locals(consumer=Consumer, outbox=Outbox, octets=cython.longlong, plain=cython.bint, chunks=dict, frames=dict)
    cpdef give(self, consumers)
    cdef bytes _join(self, bytes start)
    cdef list _separate(self, bytes start)

cdef class Topic:
    cdef public str name
    cdef public object _line, _shared, maker, _patterns, _words, fates, sample
    cdef public tuple _consumers, _others, _durables
    cdef public dict _own
    cdef public long long _version, _octets, _most, received, delivered
    cdef public bint full, _may_expire
    cdef public list _slow, _opened, _gathered

    cpdef bint put(self, Message message, bint stored=*) except -1
    cpdef bint put_plain(self, str destination, bytes ident, long long seq, bytes tail) except -1
    cpdef flush(self)
