"""The road of plain SENDs and ACKs without frames: their heads are read while the parser has them, and the functions of
`stompcodec/broker/sessions/plain.py` do the rest. Every other frame is left to the parser, and so to the handlers.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_New, PyCapsule_SetName
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from stompcodec.broker.memory cimport Account
from stompcodec.broker.queues.consumer cimport Consumer
from stompcodec.broker.queues.queue cimport Queue
from stompcodec.broker.sessions.plain cimport acknowledge, defer, send
from stompcodec.broker.sessions.state cimport BrokerState, SessionState

cdef extern from "stomp.h":
    enum: STOMP_SEND, STOMP_ACK, STOMP_CHANGED, STOMP_LEFT, STOMP_TAKEN, STOMP_TAKEN_LAST
    const char *STOMP_HOOK

    struct stomp_scan:
        int command, marks
        void *starts

    struct stomp_hook:
        size_t scan_size
        int (*take)(void *owner, const stomp_scan *scan, const uint8_t *data, size_t size) except -1
        void *owner

cdef extern from "hot/read.h":
    struct hot_text:
        const uint8_t *at
        size_t len

    struct hot_send:
        hot_text destination, receipt, persistent, transaction
        size_t tail_len

    struct hot_ack:
        hot_text consumer, receipt
        long long tag

    int hot_send_names(object slow, object without) except -1
    int hot_send_read(hot_send *send, const stomp_scan *scan, const uint8_t *data, size_t size)
    void hot_send_tail(const hot_send *send, const stomp_scan *scan, const uint8_t *data, char *to)
    int hot_persistent(const hot_text *text)
    int hot_ack_read(hot_ack *ack, const stomp_scan *scan, const uint8_t *data)

#: The handlers of SEND and ACK whose work this does, and the command of an error.
cdef object handle_send = None, handle_ack = None, fail = None


def prepare(send_handler, ack_handler, failed, tuple slow, tuple without):
    """Tell which handlers have SENDs and ACKs done here, what is called with a session, an error, its command and its
    receipt, which headers keep a SEND off this road, and which are left out of MESSAGE.
    """
    global handle_send, handle_ack, fail
    hot_send_names(slow, without)
    handle_send, handle_ack, fail = send_handler, ack_handler, failed


#: Frames are taken.
cdef bint is_on = True


def switch(bint on):
    """Take frames, or leave all of them to the parser. Return what it was before."""
    global is_on
    before, is_on = is_on, on
    return before


cdef object text_of(const hot_text *text):
    """Return a text as a str, None without. Raise UnicodeDecodeError if it is no UTF-8."""
    return None if text.at == NULL else PyUnicode_DecodeUTF8(<const char *>text.at, <Py_ssize_t>text.len, NULL)


cdef bint is_text(str known, const hot_text *text) except -1:
    """Is that the text?"""
    cdef Py_ssize_t size = 0
    if known is None:
        return False
    cdef const char *octets = PyUnicode_AsUTF8AndSize(known, &size)
    return <size_t>size == text.len and memcmp(octets, text.at, text.len) == 0


cdef class Road:
    """The road of one session. It refers to the session until `close`."""

    cdef stomp_hook hook_of
    cdef readonly object hook
    cdef readonly int left
    cdef SessionState session
    cdef BrokerState broker
    cdef str destination, consumer, transaction
    cdef bint sends, acks, inside

    def __cinit__(self, SessionState session not None, int each):
        self.hook_of.scan_size = sizeof(stomp_scan)
        self.hook_of.take = take
        self.hook_of.owner = <void *>self
        self.hook = PyCapsule_New(&self.hook_of, STOMP_HOOK, NULL)
        self.session, self.broker = session, session.broker
        if self.broker is None:
            raise TypeError("the session has no broker")
        self.begin(each)

    def __dealloc__(self):
        if self.hook is not None:  # whoever has it still must not call us
            PyCapsule_SetName(self.hook, b"stompcodec.gone")

    cpdef begin(self, int left):
        """Begin a share of the loop: after `left` frames of all kinds somebody looks at the clock."""
        self.left = left
        handlers = None if self.session is None else self.session.handlers
        self.sends = handlers is not None and handlers.get("SEND") is handle_send
        self.acks = handlers is not None and handlers.get("ACK") is handle_ack

    def close(self):
        """Leave all frames to the handlers from now on."""
        self.session = None

    cdef int look_at_clock(self, SessionState session) except -1:
        """Return STOMP_TAKEN_LAST if the session has to wait for its turn."""
        self.left = EACH
        if not self.broker.quota.used_up(self.broker.now):
            return STOMP_TAKEN
        session.wait_for_turn()
        return STOMP_TAKEN_LAST

    cdef int end(self, SessionState session, str command, object receipt, object error) except -1:
        """End a frame, which has been taken: look at what became of it."""
        if error is None and self.session is not None:
            self.left -= 1
            if self.left > 0:
                return STOMP_TAKEN
            try:
                return self.look_at_clock(session)
            except Exception as late:
                error = late
        if error is not None:
            fail(session, error, command, receipt)
        return STOMP_TAKEN_LAST

    cdef int take_send(self, SessionState session, const stomp_scan *scan, const uint8_t *data, size_t size) except -1:
        cdef hot_send read
        if not hot_send_read(&read, scan, data, size):
            return STOMP_LEFT
        cdef int persistent = hot_persistent(&read.persistent)
        cdef bint defers = read.transaction.at != NULL
        if persistent == -1 or not (defers or session.plain) or self.broker.journal.short:
            return STOMP_LEFT
        try:
            if not is_text(self.destination, &read.destination):
                self.destination = text_of(&read.destination)
            if defers and not is_text(self.transaction, &read.transaction):
                self.transaction = text_of(&read.transaction)
            receipt = text_of(&read.receipt)
        except UnicodeDecodeError:
            return STOMP_LEFT
        target = session.cached_targets.get(self.destination)
        if target is None or (defers and self.transaction not in session.transactions):
            return STOMP_LEFT
        tail = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>read.tail_len)
        hot_send_tail(&read, scan, data, PyBytes_AS_STRING(tail))
        cdef bint stored = self.broker.stores_some
        if persistent == -2:
            stored = self.broker.stores_all and type(target) is Queue and (<Queue>target).journal is not None
        elif persistent == 0:
            stored = False
        error = None
        try:
            if defers:
                defer(session, self.transaction, target, self.destination, tail, stored, receipt)
            else:
                send(session, target, self.destination, tail, stored, receipt)
        except Exception as raised:
            error = raised
        return self.end(session, "SEND", receipt, error)

    cdef int take_ack(self, SessionState session, const stomp_scan *scan, const uint8_t *data) except -1:
        cdef hot_ack read
        if not hot_ack_read(&read, scan, data):
            return STOMP_LEFT
        try:
            if not is_text(self.consumer, &read.consumer):
                self.consumer = text_of(&read.consumer)
            receipt = text_of(&read.receipt)
        except UnicodeDecodeError:
            return STOMP_LEFT
        cdef Consumer consumer = session.by_number.get(self.consumer)
        if consumer is None or not consumer.single:
            return STOMP_LEFT
        error = None
        try:
            if not acknowledge(session, consumer, read.tag, receipt):
                return STOMP_LEFT
        except Exception as raised:
            error = raised
        return self.end(session, "ACK", receipt, error)


cdef enum:
    EACH = 8  # frames between two looks at the clock: EACH of session.py, which a test compares


cdef int take(void *owner, const stomp_scan *scan, const uint8_t *data, size_t size) except -1:
    """Take a frame, or leave it: `stomp_hook` of stomp.h."""
    cdef Road road = <Road>owner
    cdef SessionState session = road.session
    cdef Account account = road.broker.account
    cdef int outcome = STOMP_LEFT
    if (
        is_on and session is not None and not road.inside and scan.starts == NULL and not scan.marks & STOMP_CHANGED
        and account.used <= account.first  # else the handlers look more closely
    ):
        road.inside = True
        try:
            if scan.command == STOMP_SEND and road.sends:
                outcome = road.take_send(session, scan, data, size)
            elif scan.command == STOMP_ACK and road.acks:
                outcome = road.take_ack(session, scan, data)
        finally:
            road.inside = False
    if outcome == STOMP_LEFT:
        road.left -= 1
    return outcome
