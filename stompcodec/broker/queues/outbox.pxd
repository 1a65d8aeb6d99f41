from stompcodec.broker.queues.heads cimport frame_of

cdef class Outbox:
    cdef public object _broker, _session, downloads
    cdef public list chunks
    cdef public bint whole_frames, dirty, starved, flowing
    cdef public long long delivered, send_budget, most, unread

    cpdef deliver(self, bytes head, bytes tail, long long size)
    cpdef schedule_flush(self)
