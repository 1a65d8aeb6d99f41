from stompcodec.broker.memory cimport Account
from stompcodec.broker.message cimport Message

cdef long long _MOST_SEQ

cdef class Intake:
    cdef public object queue
    cdef public dict puts
    cdef public long long base, top

cdef class Batch:
    cdef public list put, settled, gone, moved, updated, actions, waiters
    cdef public long long cost
    cdef public bint is_long
    cdef public object first, keys
    cdef public Intake intake

cdef class Journal:
    cdef public object quota, store, lost, on_lost, _log, _call_soon, times, restored, _wake
    cdef public Batch batch, busy
    cdef public dict blocked, paged, _late, _watchers, _lined_up
    cdef public long long failures, commits, _most_gone, _times_put_off, _calm, kept, look_at
    cdef public double began
    cdef public bint failing, staging, short, is_tight, _inside
    cdef public Account _account

    cpdef append(self, queue, Message message)
    cpdef settle(self, queue, Message message)
    cpdef remove(self, str key, Message message)
    cpdef charge(self, Batch batch, long long cost)
