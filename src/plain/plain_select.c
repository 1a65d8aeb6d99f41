#include "plain_select.h"

#include "plain_call.h"
#include "plain_fields.h"
#include "plain_ring.h"
#include "plain_tally.h"

/* The consumer that Python would ask, if it has room. Borrowed, or NULL. */
static PyObject *consumer_of(PyObject *dispatcher)
{
    PyObject *consumer = IS_A(dispatcher, Dispatcher) ? FIELD_OF(dispatcher, Dispatcher, only_consumer) : NULL;
    if (!consumer || !IS_A(consumer, Consumer))
        return NULL;
    PyObject *outbox = FIELD_OF(consumer, Consumer, outbox), *quick = FIELD_OF(consumer, Consumer, quick);
    PyObject *selector = FIELD_OF(consumer, Consumer, selector);
    long long budget;
    int simple = outbox && IS_A(outbox, Outbox) && plain_number(FIELD_OF(outbox, Outbox, send_budget), &budget) && budget > 0 && quick
                 && PyBytes_CheckExact(quick) && selector && selector != Py_None && FIELD_OF(outbox, Outbox, chunks)
                 && PyList_CheckExact(FIELD_OF(outbox, Outbox, chunks));
    return simple ? consumer : NULL;
}

/* Have a method of the queue take the Message. Returns enum plain_delivery, or -1 with an exception. */
static int leave_to(PyObject *queue, PyObject *method, PyObject *record)
{
    PyObject *arguments[] = {queue, record};
    int full = plain_truth(PyObject_VectorcallMethod(method, arguments, 2, NULL));
    return full < 0 ? -1 : full ? PLAIN_DELIVERED_FULL : PLAIN_DELIVERED;
}

/* Ask the selector, and do what it says. */
static int ask(PyObject *queue, PyObject *selector, PyObject *outbox, PyObject *record, PyObject *chunks, PyObject *budget)
{
    PyObject *arguments[] = {selector, record};
    const int matches = plain_truth(PyObject_VectorcallMethod(plain_name.matches, arguments, 2, NULL));
    if (matches < 0)
        return -1;
    if (!matches) {
        PLAIN_TALLY(queue, put);
        return leave_to(queue, plain_name.enqueue, record);
    }
    PyObject *list = FIELD_OF(outbox, Outbox, chunks);
    const Py_ssize_t end = list && PyList_CheckExact(list) ? PyList_GET_SIZE(list) : -1;
    if (end < 0 || PyList_SetSlice(list, end, end, chunks) < 0) { /* out of memory: Python says what happens then */
        PyErr_Clear();
        return leave_to(queue, plain_name.put, record);
    }
    PLAIN_TALLY(queue, direct);
    Py_INCREF(budget);
    return plain_finish(queue, outbox, budget) < 0 ? -1 : PLAIN_DELIVERED;
}

int plain_select(PyObject *queue, PyObject *dispatcher, const struct plain_message *message)
{
    PyObject *consumer = message->persistent ? NULL : consumer_of(dispatcher);
    if (!consumer)
        return PLAIN_NOT_DELIVERED;
    char head[PLAIN_MOST_HEAD];
    PyObject *outbox = FIELD_OF(consumer, Consumer, outbox), *selector = FIELD_OF(consumer, Consumer, selector);
    PyObject *tail = NULL, *record = NULL, *chunks = NULL, *budget = NULL;
    Py_INCREF(outbox), Py_INCREF(selector);
    const Py_ssize_t len = plain_format(head, sizeof head, FIELD_OF(consumer, Consumer, quick), NULL, &message->number, 1);
    if (len >= 0 && (tail = plain_tail(message)) && (record = plain_record(message, FIELD_OF(queue, Queue, name), tail))
        && (chunks = plain_chunks(head, len, tail, FIELD_OF(outbox, Outbox, whole_frames) == Py_True)))
        budget = plain_less(FIELD_OF(outbox, Outbox, send_budget), (long long)message->send->tail_len);
    int result = PLAIN_NOT_DELIVERED;
    if (budget)
        result = ask(queue, selector, outbox, record, chunks, budget);
    else
        PyErr_Clear();
    Py_DECREF(outbox), Py_DECREF(selector);
    Py_XDECREF(tail), Py_XDECREF(record), Py_XDECREF(chunks), Py_XDECREF(budget);
    return result;
}
