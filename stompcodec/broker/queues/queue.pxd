from stompcodec.broker.message cimport plain_message
from stompcodec.broker.queues.heads cimport head_of
from stompcodec.broker.memory cimport Account
from stompcodec.broker.message cimport Message
from stompcodec.broker.queues.consumer cimport Consumer
from stompcodec.broker.queues.outbox cimport Outbox
from stompcodec.broker.queues.paging cimport Paging
from stompcodec.broker.queues.ready cimport Bound, ReadyMessages, Tally, Window
from stompcodec.broker.storage.journal cimport Journal

cimport cython

cdef class Queue:
    cdef public str name, key
    cdef public Account account
    cdef public Bound bound
    cdef public Window window
    cdef public Journal journal
    cdef public Paging paging
    cdef public ReadyMessages messages
    cdef public Tally tally
    cdef public dict deferred, blocked, members
    cdef public list ring, parked
    cdef public long long count, octets, newest, _ended, suspensions
    cdef public bint closed, paused
    cdef public object _on_drop, quota, maker, arguments, used, expiry, returned, dispatcher, sample, overflow

    @cython.locals(bound=Bound, account=Account)
    cdef bint is_full(self) except -1
    @cython.locals(paging=Paging, ready=cython.longlong, scheduled=cython.longlong, unacked=cython.longlong)
    cpdef tuple depth(self)
    @cython.locals(each=Consumer, count=cython.longlong)
    cpdef long long delivered(self) except -1
    cpdef count_in(self, Message message)
    cpdef count_out(self, long long count, long long octets)
    cpdef bint put_new(self, Message message) except -1
    cpdef bint put_committed(self, list messages) except -1
    @cython.locals(account=Account)
    cdef bint _make_ready(self, Journal journal, list messages) except -1
    @cython.locals(consumer=Consumer)
    cpdef bint put(self, Message message, bint stored=*, bint recorded=*) except -1
    @cython.locals(account=Account, window=Window)
    cpdef bint enqueue(self, Message message, bint stored=*) except -1
    @cython.locals(consumer=Consumer, outbox=Outbox, ring=list)
    cpdef bint put_plain(self, str destination, bytes ident, long long seq, bytes tail) except -1
    cdef bint _put_through(self, Consumer consumer, str destination, bytes ident, long long seq, bytes tail) except -1
    cdef int _turn_ring(self) except -1
    cpdef count_through(self)
    cpdef add_ready(self, Message message)
    @cython.locals(consumer=Consumer, outbox=Outbox, ring=list)
    cpdef Consumer deliver(self, Message message)
    @cython.locals(message=Message, consumer=Consumer, step=cython.longlong, journal=Journal, paging=Paging)
    cpdef long long dispatch(self, long long count=*) except -1
    cpdef long long offer(self, Consumer consumer) except -1
