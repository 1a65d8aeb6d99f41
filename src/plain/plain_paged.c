#include "plain_paged.h"

#include <math.h>

#include "plain_fields.h"
#include "plain_queue.h"
#include "plain_store.h"
#include "plain_tally.h"

#define PRIORITY 4 /* of each message of this road */

/* The numbers that one more paged message changes, all of them made before anything is changed. */
struct sums {
    PyObject *count, *cost, *used; /* of the paging, of the batch until it is written, and of the account */
};

static void drop(struct sums *sums)
{
    Py_CLEAR(sums->count);
    Py_CLEAR(sums->cost);
    Py_CLEAR(sums->used);
}

static int is_empty(PyObject *list)
{
    return list && PyList_CheckExact(list) && !PyList_GET_SIZE(list);
}

/* Is it a queue without consumers, limits and rules of its own, which stores no transient messages? */
static int is_simple(PyObject *queue)
{
    PyObject *window = FIELD_OF(queue, Queue, window), *messages = FIELD_OF(queue, Queue, messages);
    return is_empty(FIELD_OF(queue, Queue, ring)) && FIELD_OF(queue, Queue, closed) == Py_False
        && FIELD_OF(queue, Queue, dispatcher) == Py_None && FIELD_OF(queue, Queue, arguments) == Py_None
        && FIELD_OF(queue, Queue, overflow) == Py_None && window && IS_A(window, Window)
        && FIELD_OF(window, Window, spools) == Py_False && messages && IS_A(messages, ReadyMessages);
}

/* The paged messages of its rank, if the message comes behind them all. Borrowed, or NULL. */
static PyObject *span_of(PyObject *queue, PyObject *paging, const struct plain_message *message)
{
    const int is_ranked = FIELD_OF(FIELD_OF(queue, Queue, messages), ReadyMessages, _ranked) == Py_True;
    PyObject *spans = FIELD_OF(paging, Paging, _spans), *rank = PyLong_FromLong(is_ranked ? 9 - PRIORITY : 0); /* `ReadyMessages.rank` */
    PyObject *span = rank && spans && PyDict_CheckExact(spans) ? PyDict_GetItemWithError(spans, rank) : NULL;
    long long last;
    PyErr_Clear();
    Py_XDECREF(rank);
    return span && IS_A(span, Span) && plain_number(FIELD_OF(span, Span, last), &last) && message->number > last ? span : NULL;
}

/* Does the batch write paged messages already, with lower seqs? */
static int is_noted(PyObject *paging, PyObject *batch, const struct plain_message *message)
{
    PyObject *unwritten = FIELD_OF(paging, Paging, _unwritten);
    Py_ssize_t count = unwritten && PyList_CheckExact(unwritten) ? PyList_GET_SIZE(unwritten) : 0;
    PyObject *last = count ? PyList_GET_ITEM(unwritten, count - 1) : NULL;
    long long first;
    return last && PyTuple_CheckExact(last) && PyTuple_GET_SIZE(last) == 2 && PyTuple_GET_ITEM(last, 0) == batch
        && plain_number(PyTuple_GET_ITEM(last, 1), &first) && first < message->number;
}

/* Does the queue hold more than it may, with that many paged messages? Returns -1, without an exception, if that is not known. */
static int is_above(PyObject *queue, long long paged)
{
    PyObject *bound = FIELD_OF(queue, Queue, bound), *total = bound && IS_A(bound, Bound) ? FIELD_OF(bound, Bound, total) : NULL;
    long long count, most;
    if (total && PyFloat_CheckExact(total) && isinf(PyFloat_AS_DOUBLE(total)))
        return 0;
    return plain_number(total, &most) && plain_number(FIELD_OF(queue, Queue, count), &count) ? paged > most - count : -1;
}

/* Make the numbers. Returns 0 if one of them is too large, or there is no memory. */
static int add(struct sums *sums, PyObject *batch, PyObject *account, long long paged, long long cost)
{
    long long before, used;
    if (!account || !IS_A(account, Account) || !plain_number(FIELD_OF(batch, Batch, cost), &before)
        || !plain_number(FIELD_OF(account, Account, used), &used))
        return 0;
    sums->count = PyLong_FromLongLong(paged);
    sums->cost = PyLong_FromLongLong(before + cost);
    sums->used = PyLong_FromLongLong(used + cost);
    return sums->count && sums->cost && sums->used;
}

/* Append the message to the batch, and set the sums. Returns 0, and then nothing is changed. */
static int append(PyObject *paging, PyObject *batch, PyObject *account, PyObject *span, PyObject *queue, const struct sums *sums,
                  const struct plain_message *message)
{
    PyObject *const own[] = {paging, batch, account, span}; /* Python may run meanwhile */
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        Py_INCREF(own[i]);
    const int done = plain_append(batch, queue, message);
    if (done) {
        SET_FIELD(paging, Paging, count, sums->count);
        SET_FIELD(batch, Batch, cost, sums->cost);
        SET_FIELD(account, Account, used, sums->used);
        Py_INCREF(message->seq), SET_FIELD(span, Span, last, message->seq);
        Py_INCREF(message->seq), SET_FIELD(queue, Queue, newest, message->seq);
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        Py_DECREF(own[i]);
    return done;
}

int plain_page(PyObject *session, PyObject *queue, const struct plain_message *message)
{
    PyObject *paging = FIELD_OF(queue, Queue, paging), *batch = plain_open_batch(session, queue), *account, *span;
    struct sums sums = {0};
    long long paged;
    if (!batch || !paging || !IS_A(paging, Paging) || !is_simple(queue) || !(span = span_of(queue, paging, message))
        || !is_noted(paging, batch, message) || !plain_number(FIELD_OF(paging, Paging, count), &paged))
        return PLAIN_NOT_DELIVERED;
    account = FIELD_OF(FIELD_OF(batch, Batch, intake), Intake, account);
    const int above = is_above(queue, paged + 1);
    if (above < 0 || !add(&sums, batch, account, paged + 1, (long long)message->send->tail_len + PLAIN_MESSAGE_COST)
        || !append(paging, batch, account, span, queue, &sums, message)) {
        PyErr_Clear();
        drop(&sums);
        return PLAIN_NOT_DELIVERED;
    }
    PLAIN_TALLY(queue, put);
    return above ? PLAIN_DELIVERED_FULL : PLAIN_DELIVERED;
}
