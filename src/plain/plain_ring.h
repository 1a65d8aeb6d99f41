/* The ring of a queue, and its counts. */
#ifndef PLAIN_RING_H
#define PLAIN_RING_H

#include <Python.h>

#include "plain_fields.h"
#include "plain_record.h"

#define PLAIN_MOST_HEAD 1024 /* bytes of a consumer's part of a MESSAGE; longer ones are written by Python */

/* The consumer that is next, if it has credit and room, and is simple. Borrowed, or NULL. Those in front of it that can take nothing
   leave the ring, as in `Queue.deliver`, unless only `looks`. */
PyObject *plain_next(PyObject *queue, int looks);

/* After a delivery to the first consumer: set the outbox's budget, which takes the reference, turn the ring, and have the outbox flushed.
   The caller owns the outbox. Returns 0, or -1 with an exception. */
int plain_finish(PyObject *queue, PyObject *outbox, PyObject *budget);

/* The chunks of a MESSAGE as a tuple: its head, tail and EOL, or one chunk where chunks must be whole frames. Returns NULL with an exception. */
PyObject *plain_chunks(const char *head, Py_ssize_t len, PyObject *tail, int whole_frames);

/* New counts of a queue: they are made first, and set when nothing can fail any more. */
struct plain_counts {
    PyObject *count, *octets, *used;
};

static inline void plain_counts_drop(struct plain_counts *new)
{
    Py_CLEAR(new->count);
    Py_CLEAR(new->octets);
    Py_CLEAR(new->used);
}

/* Make the counts with `more` (1 or -1) messages of `size` bytes. Returns 0, without an exception, if that is not simple. Inline, as
   every ACK needs it. */
static inline int plain_counts_make(struct plain_counts *new, PyObject *queue, int more, long long size)
{
    PyObject *account = FIELD_OF(queue, Queue, account);
    long long count, octets, used;
    *new = (struct plain_counts){NULL, NULL, NULL};
    if (!account || !IS_A(account, Account) || !plain_number(FIELD_OF(queue, Queue, count), &count)
        || !plain_number(FIELD_OF(queue, Queue, octets), &octets) || !plain_number(FIELD_OF(account, Account, used), &used))
        return 0;
    new->count = PyLong_FromLongLong(count + more);
    new->octets = PyLong_FromLongLong(octets + more * size);
    new->used = PyLong_FromLongLong(used + more * (size + PLAIN_MESSAGE_COST));
    if (new->count && new->octets && new->used)
        return 1;
    plain_counts_drop(new);
    PyErr_Clear();
    return 0;
}

static inline void plain_counts_set(const struct plain_counts *new, PyObject *queue)
{
    SET_FIELD(queue, Queue, count, new->count);
    SET_FIELD(queue, Queue, octets, new->octets);
    PyObject *account = FIELD_OF(queue, Queue, account);
    if (account && IS_A(account, Account)) /* it was when they were made */
        SET_FIELD(account, Account, used, new->used);
    else
        Py_DECREF(new->used);
}

/* After a message is gone: let senders go on if there is room now. Returns 0, or -1 with an exception. */
int plain_release(PyObject *queue);

/* Does the sender of the last message have to wait? Returns 1, 0, or -1 with an exception. */
int plain_is_full(PyObject *queue);

/* A number less some others; NULL if that is not possible. */
PyObject *plain_less(PyObject *number, long long by);

#endif
