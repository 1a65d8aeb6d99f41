from stompcodec.broker.queues.heads cimport head_of
from stompcodec.broker.message cimport Message
from stompcodec.broker.queues.outbox cimport Outbox

cdef class Consumer:
    cdef public object session, queue, key, mode, request, selector, flow, tags, conversion, destination, address, durable
    cdef public Outbox outbox
    cdef public bytes start, before, after
    cdef public str version
    cdef public dict unacked
    cdef public bint acks, in_ring, closed, direct, direct_selective, single, numbered
    cdef public long long number, window, credit, last, oldest, place, cost

    cpdef write(self, Message message)
    cpdef send(self, Message message)
    cpdef forget(self, long long tag)
