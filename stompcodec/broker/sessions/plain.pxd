from stompcodec.broker.message cimport plain_message
from stompcodec.broker.queues.heads cimport ident_of
from stompcodec.broker.sessions.receipts cimport hold_receipts_of, send_receipt
from stompcodec.broker.message cimport Message
from stompcodec.broker.queues.consumer cimport Consumer
from stompcodec.broker.queues.queue cimport Queue
from stompcodec.broker.routing.topic cimport Topic
from stompcodec.broker.sessions.state cimport BrokerState, Footprint, PendingCommit, SessionState
from stompcodec.broker.sessions.transaction cimport Transaction
from stompcodec.broker.storage.journal cimport Journal

cimport cython

@cython.locals(broker=BrokerState, queue=Queue, topic=Topic, seq=cython.longlong, ident=bytes)
cpdef send(SessionState session, target, str destination, bytes tail, bint persistent, receipt)

@cython.locals(journal=Journal, pending=PendingCommit, queue=Queue)
cpdef put_persistent(SessionState session, target, Message message, receipt)

@cython.locals(transaction=Transaction)
cpdef defer(
    SessionState session, str name, target, str destination, bytes tail, bint persistent, receipt
)

@cython.locals(memory=Footprint, most=cython.longlong)
cpdef hold(SessionState session, long long octets)

@cython.locals(message=Message, queue=Queue)
cpdef bint acknowledge(SessionState session, Consumer consumer, tag, receipt) except -1

@cython.locals(message=Message, broker=BrokerState, seq=cython.longlong, messages=list)
cpdef list store_all(SessionState session, Queue queue, operations)
