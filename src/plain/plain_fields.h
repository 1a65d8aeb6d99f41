/* Where the fields of the broker's Python objects are, so that C reads and writes them without a look-up.

   Every class has __slots__, so a field is a pointer at a fixed offset. plain_fields_find looks the offsets up once; a class
   that differs from this list is an error there, never a wrong access. The classes must be exactly these, no subclasses, except
   for the session, whose subclasses begin with its fields. */
#ifndef PLAIN_FIELDS_H
#define PLAIN_FIELDS_H

#include <Python.h>

#define PLAIN_CLASSES(CLASS) CLASS(Session) CLASS(Queue) CLASS(Topic) CLASS(Consumer) CLASS(Dispatcher) CLASS(Outbox) CLASS(Account) CLASS(Bound) CLASS(Message) \
    CLASS(PendingCommit) CLASS(ReadyMessages) CLASS(Fifo) CLASS(Window) CLASS(Footprint) CLASS(Transaction) CLASS(Target) CLASS(Sending) \
    CLASS(Batch) CLASS(Intake) CLASS(Paging) CLASS(Span)

#define PLAIN_FIELDS(FIELD) \
    FIELD(Session, plain) FIELD(Session, cached_targets) FIELD(Session, pending_commit) FIELD(Session, by_number) FIELD(Session, handlers) \
    FIELD(Session, memory) FIELD(Session, transactions) FIELD(Footprint, _account) FIELD(Footprint, transactions) \
    FIELD(Transaction, _target) FIELD(Transaction, octets) FIELD(Transaction, operations) FIELD(Transaction, stores) FIELD(Transaction, weight) \
    FIELD(Queue, account) FIELD(Queue, arguments) FIELD(Queue, blocked) FIELD(Queue, bound) FIELD(Queue, closed) \
    FIELD(Queue, count) FIELD(Queue, dispatcher) FIELD(Queue, journal) FIELD(Queue, messages) FIELD(Queue, name) FIELD(Queue, newest) FIELD(Queue, octets) FIELD(Queue, overflow) \
    FIELD(Queue, paging) FIELD(Queue, parked) FIELD(Queue, ring) FIELD(Queue, tally) FIELD(Queue, window) \
    FIELD(Batch, cost) FIELD(Batch, intake) FIELD(Batch, put) FIELD(Intake, account) FIELD(Intake, base) FIELD(Intake, puts) FIELD(Intake, queue) FIELD(Intake, top) \
    FIELD(Paging, _spans) FIELD(Paging, _unwritten) FIELD(Paging, count) FIELD(Span, last) \
    FIELD(ReadyMessages, _ranked) FIELD(ReadyMessages, line) FIELD(Window, messages) FIELD(Window, octets) FIELD(Window, spools) \
    FIELD(Topic, _gathered) FIELD(Topic, _most) FIELD(Topic, _octets) FIELD(Topic, full) FIELD(Topic, name) \
    FIELD(PendingCommit, batch) FIELD(PendingCommit, receipts) \
    FIELD(Consumer, acks) FIELD(Consumer, closed) FIELD(Consumer, credit) FIELD(Consumer, direct) FIELD(Consumer, head) FIELD(Consumer, last) \
    FIELD(Consumer, in_ring) FIELD(Consumer, outbox) FIELD(Consumer, queue) FIELD(Consumer, single) FIELD(Consumer, quick) FIELD(Consumer, selector) FIELD(Consumer, unacked) \
    FIELD(Dispatcher, only_consumer) \
    FIELD(Outbox, chunks) FIELD(Outbox, dirty) FIELD(Outbox, flowing) FIELD(Outbox, send_budget) \
    FIELD(Outbox, starved) FIELD(Outbox, whole_frames) \
    FIELD(Account, first) FIELD(Account, held) FIELD(Account, used) FIELD(Bound, messages) FIELD(Bound, octets) FIELD(Bound, total) \
    FIELD(Message, attempts) FIELD(Message, body) FIELD(Message, destination) FIELD(Message, expires) FIELD(Message, ident) \
    FIELD(Message, persistent) FIELD(Message, priority) FIELD(Message, seq) FIELD(Message, size) FIELD(Message, special) \
    FIELD(Message, tail)

/* The number of fields of a Message: C makes messages, so it has to know all of them. */
#define PLAIN_MESSAGE_FIELDS 11

struct plain_fields {
#define CLASS(name) PyTypeObject *name;
    PLAIN_CLASSES(CLASS)
#undef CLASS
#define FIELD(class, name) Py_ssize_t class##_##name;
    PLAIN_FIELDS(FIELD)
#undef FIELD
};

extern struct plain_fields plain_at;

/* Fields of the tuples that C reads and makes. */
enum { PLAIN_TARGET_FIELDS = 4, PLAIN_SENDING_FIELDS = 3 };

/* The field of an object, as a pointer to an object that may be read and set. */
#define FIELD_OF(object, class, name) (*(PyObject **)((char *)(object) + plain_at.class##_##name))
#define IS_A(object, class) (Py_TYPE(object) == plain_at.class)

/* Set a variable to a new reference. */
static inline void plain_set(PyObject **variable, PyObject *value)
{
    PyObject *old = *variable;
    *variable = value;
    Py_XDECREF(old);
}

/* Set a field of an object to a new reference. Only the broker's thread writes, but others may read. Without the GIL a reader takes
   its reference under the lock of the object, or sees by an atomic load that the field has not changed (PyMember_GetOne): so it must be
   set as PyMember_SetOne does it. */
static inline void plain_set_field(PyObject *object, PyObject **field, PyObject *value)
{
#ifdef Py_GIL_DISABLED
    PyObject *old;
    Py_BEGIN_CRITICAL_SECTION(object);
    old = *field;
    _Py_atomic_store_ptr_release(field, value);
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(old);
#else
    (void)object;
    plain_set(field, value);
#endif
}
#define SET_FIELD(object, class, name, value) plain_set_field(object, &FIELD_OF(object, class, name), value)

/* Look up all offsets in the classes, a dict by name. Returns 0, or -1 with an exception. */
int plain_fields_find(PyObject *classes);

/* Get a number. Returns 0 if it is no int, or above 2**62, which means "no limit", or as far below 0: so that with the size of a
   message added to it, or of two the difference, it fits into 64 bits. */
static inline int plain_number(PyObject *object, long long *number)
{
    int over;
    if (!object || !PyLong_CheckExact(object))
        return 0;
    *number = PyLong_AsLongLongAndOverflow(object, &over); /* -1 if it is over */
    return (unsigned long long)*number + ((1ULL << 62) - 1) < 1ULL << 63 && !over;
}

/* The same for the size of a message, which has been in memory. */
static inline int plain_size(PyObject *object, long long *size)
{
    return plain_number(object, size) && *size >= 0 && *size < 1LL << 48;
}

#endif
