#include "plain_ready.h"

#include "plain_call.h"
#include "plain_fields.h"
#include "plain_ring.h"
#include "plain_tally.h"

#define FIRST_STEP 8 /* deliveries without a look at the clock: not more than FEW of loop_quota.py */

PyObject *plain_no_line;

/* The READY messages of a queue, if all of them are in memory and in their order. Borrowed, or NULL. */
static PyObject *line_of(PyObject *queue)
{
    PyObject *messages = FIELD_OF(queue, Queue, messages);
    PyObject *line = messages && IS_A(messages, ReadyMessages) ? FIELD_OF(messages, ReadyMessages, line) : NULL;
    int simple = line && IS_A(line, Fifo) && FIELD_OF(queue, Queue, paging) == Py_None
                 && FIELD_OF(queue, Queue, dispatcher) == Py_None;
    return simple ? line : NULL;
}

/* Does a message stay in memory, because the window has room, or because it is transient and the queue does not spool? */
static int stays(PyObject *queue, int persistent)
{
    PyObject *window = FIELD_OF(queue, Queue, window);
    long long count, octets, most_messages, most_octets;
    if (window == Py_None || FIELD_OF(queue, Queue, journal) == Py_None)
        return 1;
    return window && IS_A(window, Window)
        && ((!persistent && FIELD_OF(window, Window, spools) == Py_False)
            || (plain_number(FIELD_OF(queue, Queue, count), &count) && plain_number(FIELD_OF(queue, Queue, octets), &octets)
                && plain_number(FIELD_OF(window, Window, messages), &most_messages)
                && plain_number(FIELD_OF(window, Window, octets), &most_octets) && count < most_messages && octets < most_octets));
}

int plain_may_enqueue(PyObject *queue, const struct plain_message *message)
{
    PyObject *line = line_of(queue), *ring = FIELD_OF(queue, Queue, ring);
    return line && line != plain_no_line && ring && PyList_CheckExact(ring) && !PyList_GET_SIZE(ring) && FIELD_OF(queue, Queue, closed) == Py_False
        && FIELD_OF(queue, Queue, arguments) == Py_None && stays(queue, message->persistent);
}

int plain_enqueue(PyObject *queue, const struct plain_message *message)
{
    PyObject *line = line_of(queue);
    struct plain_counts counts;
    if (!plain_may_enqueue(queue, message)
        || !plain_counts_make(&counts, queue, 1, (long long)message->send->tail_len))
        return PLAIN_NOT_DELIVERED;
    Py_INCREF(line);
    PyObject *tail = plain_tail(message), *record = tail ? plain_record(message, FIELD_OF(queue, Queue, name), tail) : NULL;
    int failed = !record || plain_call(line, plain_name.append, record) < 0;
    Py_XDECREF(tail);
    Py_XDECREF(record);
    Py_DECREF(line);
    if (failed) {
        PyErr_Clear();
        plain_counts_drop(&counts);
        return PLAIN_NOT_DELIVERED;
    }
    plain_counts_set(&counts, queue);
    PLAIN_TALLY(queue, put);
    int full = plain_is_full(queue);
    if (!full && message->persistent && FIELD_OF(queue, Queue, parked) != Py_None)
        full = plain_truth(PyObject_GetAttr(queue, plain_name.catches_up));
    return full < 0 ? -1 : full ? PLAIN_DELIVERED_FULL : PLAIN_DELIVERED;
}

/* What changes with the delivery of a READY message. All of it is made before anything is changed. */
struct delivery {
    PyObject *chunks, *budget;
    PyObject *tag, *credit; /* if it has to be acknowledged */
    struct plain_counts counts; /* if not */
};

static void drop(struct delivery *new)
{
    Py_CLEAR(new->chunks);
    Py_CLEAR(new->budget);
    Py_CLEAR(new->tag);
    Py_CLEAR(new->credit);
    plain_counts_drop(&new->counts);
}

/* Make everything. Returns 0 if something is missing, or too large. */
static int prepare(struct delivery *new, PyObject *queue, PyObject *consumer, PyObject *outbox, PyObject *message, int acks)
{
    char head[PLAIN_MOST_HEAD];
    long long tag, size;
    PyObject *ident = FIELD_OF(message, Message, ident), *tail = FIELD_OF(message, Message, tail);
    if (!ident || !PyBytes_CheckExact(ident) || !tail || !PyBytes_CheckExact(tail)
        || !plain_size(FIELD_OF(message, Message, size), &size) || !plain_number(FIELD_OF(consumer, Consumer, last), &tag))
        return 0;
    tag++;
    Py_ssize_t len = plain_format(head, sizeof head, FIELD_OF(consumer, Consumer, head), ident, &tag, acks);
    if (len < 0)
        return 0;
    new->chunks = plain_chunks(head, len, tail, FIELD_OF(outbox, Outbox, whole_frames) == Py_True);
    new->budget = plain_less(FIELD_OF(outbox, Outbox, send_budget), size);
    if (!acks)
        return new->chunks && new->budget && plain_counts_make(&new->counts, queue, -1, size);
    new->tag = PyLong_FromLongLong(tag);
    new->credit = plain_less(FIELD_OF(consumer, Consumer, credit), 1);
    return new->chunks && new->budget && new->tag && new->credit;
}

/* Move a message from the line into the outbox of a consumer. Returns 0 if nothing was changed. */
static int move(const struct delivery *new, PyObject *line, PyObject *consumer, PyObject *outbox, PyObject *message, int acks)
{
    PyObject *chunks = FIELD_OF(outbox, Outbox, chunks), *unacked = acks ? FIELD_OF(consumer, Consumer, unacked) : NULL;
    if (!chunks || !PyList_CheckExact(chunks) || (acks && (!unacked || !PyDict_CheckExact(unacked))))
        return 0;
    int moved = 0;
    Py_INCREF(chunks), Py_XINCREF(unacked);
    if (!acks || !PyDict_SetItem(unacked, new->tag, message)) {
        Py_ssize_t end = PyList_GET_SIZE(chunks);
        if (!PyList_SetSlice(chunks, end, end, new->chunks)) {
            moved = !plain_call(line, plain_name.popleft, NULL);
            if (!moved)
                (void)PyList_SetSlice(chunks, end, end + PyTuple_GET_SIZE(new->chunks), NULL);
        }
        if (acks && !moved)
            (void)PyDict_DelItem(unacked, new->tag);
    }
    Py_DECREF(chunks), Py_XDECREF(unacked);
    return moved;
}

/* Deliver the first message of the line to the first consumer of the ring. Returns 1, 0 if that is not simple, or -1 with an exception. */
static int deliver(PyObject *queue, PyObject *line, PyObject *consumer, PyObject *message, int acks)
{
    struct delivery new = {0};
    PyObject *outbox = FIELD_OF(consumer, Consumer, outbox);
    Py_INCREF(outbox);
    if (!prepare(&new, queue, consumer, outbox, message, acks) || !move(&new, line, consumer, outbox, message, acks)) {
        PyErr_Clear();
        drop(&new);
        Py_DECREF(outbox);
        return 0;
    }
    Py_DECREF(new.chunks);
    if (acks) {
        SET_FIELD(consumer, Consumer, last, new.tag);
        SET_FIELD(consumer, Consumer, credit, new.credit);
    }
    int error = plain_finish(queue, outbox, new.budget);
    Py_DECREF(outbox);
    if (acks)
        return error < 0 ? -1 : 1;
    plain_counts_set(&new.counts, queue);
    PLAIN_TALLY(queue, sent);
    return error < 0 || plain_release(queue) < 0 ? -1 : 1;
}

/* Is the message transient, without an expiry time, and not special? */
static int is_simple(PyObject *message)
{
    long long special;
    return IS_A(message, Message) && FIELD_OF(message, Message, persistent) == Py_False
        && FIELD_OF(message, Message, expires) == Py_None && plain_number(FIELD_OF(message, Message, special), &special) && !special;
}

/* Deliver the first READY message. Returns 1, 0 if that is not simple or possible, or -1 with an exception. */
static int deliver_first(PyObject *queue)
{
    PyObject *line = FIELD_OF(queue, Queue, closed) == Py_False ? line_of(queue) : NULL;
    if (!line)
        return 0;
    Py_INCREF(line);
    PyObject *message = PyObject_Size(line) > 0 ? PySequence_GetItem(line, 0) : NULL;
    PyObject *consumer = message && is_simple(message) ? plain_next(queue, 0) : NULL;
    int outcome = 0;
    if (consumer) {
        Py_INCREF(consumer);
        PyObject *acks = FIELD_OF(consumer, Consumer, acks);
        if (acks == Py_True || acks == Py_False)
            outcome = deliver(queue, line, consumer, message, acks == Py_True);
        Py_DECREF(consumer);
    } else
        PyErr_Clear();
    Py_XDECREF(message);
    Py_DECREF(line);
    return outcome;
}

Py_ssize_t plain_deliver_ready(PyObject *queue, Py_ssize_t most)
{
    for (Py_ssize_t count = 0; count < most; count++) {
        int outcome = deliver_first(queue);
        if (outcome <= 0)
            return outcome < 0 ? -1 : count;
    }
    return most < 0 ? 0 : most;
}

int plain_offer(PyObject *queue, PyObject *consumer)
{
    PyObject *ring = FIELD_OF(queue, Queue, ring), *line = line_of(queue);
    if (!line || !ring || !PyList_CheckExact(ring) || FIELD_OF(queue, Queue, parked) != Py_None
        || FIELD_OF(consumer, Consumer, closed) != Py_False)
        return plain_call(queue, plain_name.offer, consumer);
    if (PyList_Append(ring, consumer) < 0)
        return -1;
    Py_INCREF(Py_True), SET_FIELD(consumer, Consumer, in_ring, Py_True);
    Py_ssize_t count = plain_deliver_ready(queue, FIRST_STEP);
    line = count < 0 ? NULL : line_of(queue);
    Py_XINCREF(line);
    const Py_ssize_t left = line ? PyObject_Size(line) : 1;
    Py_XDECREF(line);
    ring = FIELD_OF(queue, Queue, ring);
    if (count < 0 || left <= 0 || (ring && PyList_CheckExact(ring) && !PyList_GET_SIZE(ring)))
        return count < 0 || left < 0 ? -1 : 0;
    PyObject *number = PyLong_FromSsize_t(count);
    int error = number ? plain_call(queue, plain_name.dispatch, number) : -1;
    Py_XDECREF(number);
    return error;
}
