from stompcodec.broker.memory cimport Account
from stompcodec.broker.queues.outbox cimport Outbox
from stompcodec.broker.storage.journal cimport Batch, Journal

cdef class BrokerState:
    cdef public Account account
    cdef public Journal journal
    cdef public object quota
    cdef public bytes ident
    cdef public long long seq, send_budget, write_high, max_transaction_octets
    cdef public double now
    cdef public list dirty
    cdef public bint plain, stores_some, stores_all

cdef class Footprint:
    cdef public Account _account
    cdef public long long fixed, pending, below, transactions, _bases, unwritten

    cpdef hold_transaction(self, long long octets, long long base=*)

cdef class PendingCommit:
    cdef public object session, fault
    cdef public Batch batch
    cdef public list receipts

cdef class SessionState:
    cdef public BrokerState broker
    cdef public Outbox outbox
    cdef public Footprint memory
    cdef public bint plain, ended, closing
    cdef public long long received, acknowledged
    cdef public dict by_number, cached_targets, transactions
    cdef public PendingCommit pending_commit
    cdef public Batch behind
