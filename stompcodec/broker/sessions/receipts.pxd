from stompcodec.broker.queues.outbox cimport Outbox
from stompcodec.broker.sessions.state cimport PendingCommit, SessionState
from stompcodec.broker.storage.journal cimport Batch, Journal

cimport cython

@cython.locals(journal=Journal, pending=PendingCommit)
cpdef hold_receipts_of(SessionState session, receipt)

@cython.locals(outbox=Outbox, pending=PendingCommit, octets=bytes)
cpdef send_receipt(SessionState session, str value)
