#include "plain_ring.h"

#include <string.h>

#include "plain_call.h"
#include "plain_fields.h"
#include "plain_record.h"

/* Remove the first consumer: it comes back with credit, or with a new budget. Returns 0 if that is not possible. */
static int remove_first(PyObject *ring, PyObject *consumer, PyObject *outbox, int starves)
{
    Py_INCREF(consumer), Py_INCREF(outbox);
    int error = PyList_SetSlice(ring, 0, 1, NULL);
    if (error)
        PyErr_Clear();
    else {
        Py_INCREF(Py_False), SET_FIELD(consumer, Consumer, in_ring, Py_False);
        if (starves)
            Py_INCREF(Py_True), SET_FIELD(outbox, Outbox, starved, Py_True);
    }
    Py_DECREF(consumer), Py_DECREF(outbox);
    return !error;
}

PyObject *plain_next(PyObject *queue, int looks)
{
    PyObject *ring;
    while ((ring = FIELD_OF(queue, Queue, ring)) && PyList_CheckExact(ring) && PyList_GET_SIZE(ring)) {
        PyObject *consumer = PyList_GET_ITEM(ring, 0), *outbox = IS_A(consumer, Consumer) ? FIELD_OF(consumer, Consumer, outbox) : NULL;
        long long credit, budget;
        if (!outbox || !IS_A(outbox, Outbox) || !plain_number(FIELD_OF(consumer, Consumer, credit), &credit)
            || !plain_number(FIELD_OF(outbox, Outbox, send_budget), &budget))
            return NULL;
        if (credit > 0 && budget > 0) {
            PyObject *quick = FIELD_OF(consumer, Consumer, quick), *head = FIELD_OF(consumer, Consumer, head);
            PyObject *chunks = FIELD_OF(outbox, Outbox, chunks);
            int simple = FIELD_OF(consumer, Consumer, direct) == Py_True && quick && PyBytes_CheckExact(quick) && head
                         && PyBytes_CheckExact(head) && chunks && PyList_CheckExact(chunks);
            return simple ? consumer : NULL;
        }
        if (looks || !remove_first(ring, consumer, outbox, budget <= 0))
            return NULL;
    }
    return NULL;
}

/* The consumer that was first becomes the last one. */
static void turn(PyObject *ring)
{
    Py_ssize_t count = ring && PyList_CheckExact(ring) ? PyList_GET_SIZE(ring) : 0;
    if (count < 2)
        return;
    PyObject *first = PyList_GET_ITEM(ring, 0);
    for (Py_ssize_t i = 1; i < count; i++)
        PyList_SET_ITEM(ring, i - 1, PyList_GET_ITEM(ring, i));
    PyList_SET_ITEM(ring, count - 1, first);
}

int plain_finish(PyObject *queue, PyObject *outbox, PyObject *budget)
{
    SET_FIELD(outbox, Outbox, send_budget, budget);
    turn(FIELD_OF(queue, Queue, ring));
    return FIELD_OF(outbox, Outbox, dirty) == Py_True ? 0 : plain_call(outbox, plain_name.schedule_flush, NULL);
}

PyObject *plain_chunks(const char *head, Py_ssize_t len, PyObject *tail, int whole_frames)
{
    const Py_ssize_t tail_len = PyBytes_GET_SIZE(tail);
    PyObject *first = PyBytes_FromStringAndSize(NULL, whole_frames ? len + tail_len + 1 : len);
    PyObject *chunks = first ? PyTuple_New(whole_frames ? 1 : 3) : NULL;
    if (!chunks) {
        Py_XDECREF(first);
        return NULL;
    }
    memcpy(PyBytes_AS_STRING(first), head, (size_t)len);
    PyTuple_SET_ITEM(chunks, 0, first);
    if (whole_frames) {
        memcpy(PyBytes_AS_STRING(first) + len, PyBytes_AS_STRING(tail), (size_t)tail_len);
        PyBytes_AS_STRING(first)[len + tail_len] = '\n';
    } else {
        Py_INCREF(tail), PyTuple_SET_ITEM(chunks, 1, tail);
        Py_INCREF(plain_name.eol), PyTuple_SET_ITEM(chunks, 2, plain_name.eol);
    }
    return chunks;
}

PyObject *plain_less(PyObject *number, long long by)
{
    long long value;
    return plain_number(number, &value) ? PyLong_FromLongLong(value - by) : NULL;
}

int plain_release(PyObject *queue)
{
    PyObject *blocked = FIELD_OF(queue, Queue, blocked);
    if (blocked && PyDict_CheckExact(blocked) && !PyDict_GET_SIZE(blocked))
        return 0;
    int low = plain_truth(PyObject_GetAttr(queue, plain_name.is_low));
    return low <= 0 ? low : plain_call(queue, plain_name.release_blocked, NULL);
}

int plain_is_full(PyObject *queue)
{
    PyObject *bound = FIELD_OF(queue, Queue, bound), *account = FIELD_OF(queue, Queue, account);
    long long count, octets, most_messages, most_octets, used, first;
    if (bound && IS_A(bound, Bound) && account && IS_A(account, Account) && plain_number(FIELD_OF(queue, Queue, count), &count)
        && plain_number(FIELD_OF(queue, Queue, octets), &octets) && plain_number(FIELD_OF(bound, Bound, messages), &most_messages)
        && plain_number(FIELD_OF(bound, Bound, octets), &most_octets) && plain_number(FIELD_OF(account, Account, used), &used)
        && plain_number(FIELD_OF(account, Account, first), &first) && count <= most_messages && octets <= most_octets && used <= first
        && FIELD_OF(queue, Queue, paging) == Py_None)
        return 0;
    int full = plain_truth(PyObject_GetAttr(queue, plain_name.full));
    PyObject *overflow = FIELD_OF(queue, Queue, overflow);
    if (full <= 0 || !overflow || overflow == Py_None)
        return full;
    Py_INCREF(overflow);
    full = plain_truth(PyObject_CallNoArgs(overflow));
    Py_DECREF(overflow);
    return full;
}
