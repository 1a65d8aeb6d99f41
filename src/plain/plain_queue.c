#include "plain_queue.h"

#include <string.h>

#include "plain_call.h"
#include "plain_fields.h"

#define MOST_HEAD 1024 /* bytes of a consumer's part of a MESSAGE; longer ones are written by Python */
/* The consumer that is next, if the message may go straight into its outbox. Borrowed. */
static PyObject *ready_consumer(PyObject *queue)
{
    PyObject *ring = FIELD_OF(queue, Queue, ring);
    long long credit, budget;
    if (!ring || !PyList_CheckExact(ring) || !PyList_GET_SIZE(ring))
        return NULL;
    PyObject *consumer = PyList_GET_ITEM(ring, 0);
    if (!IS_A(consumer, Consumer) || FIELD_OF(consumer, Consumer, direct) != Py_True)
        return NULL;
    PyObject *outbox = FIELD_OF(consumer, Consumer, outbox);
    if (!plain_number(FIELD_OF(consumer, Consumer, credit), &credit) || credit <= 0 || !outbox || !IS_A(outbox, Outbox)
        || !plain_number(FIELD_OF(outbox, Outbox, send_budget), &budget) || budget <= 0)
        return NULL;
    PyObject *quick = FIELD_OF(consumer, Consumer, quick), *chunks = FIELD_OF(outbox, Outbox, chunks);
    return quick && PyBytes_CheckExact(quick) && chunks && PyList_CheckExact(chunks) ? consumer : NULL;
}

/* The consumer that was first becomes the last one. */
static void turn(PyObject *ring)
{
    Py_ssize_t count = PyList_GET_SIZE(ring);
    if (count < 2)
        return;
    PyObject *first = PyList_GET_ITEM(ring, 0);
    for (Py_ssize_t i = 1; i < count; i++)
        PyList_SET_ITEM(ring, i - 1, PyList_GET_ITEM(ring, i));
    PyList_SET_ITEM(ring, count - 1, first);
}

/* Deduct the size from the budget, which takes the reference, turn the ring, and have the outbox flushed. Returns 0, or -1 with an
   exception. */
static int finish(PyObject *ring, PyObject *outbox, PyObject *budget)
{
    SET_FIELD(outbox, Outbox, send_budget, budget);
    turn(ring);
    return FIELD_OF(outbox, Outbox, dirty) == Py_True ? 0 : plain_call(outbox, plain_name.schedule_flush, NULL);
}

static PyObject *less(PyObject *number, size_t by)
{
    long long value;
    return plain_number(number, &value) ? PyLong_FromLongLong(value - (long long)by) : NULL;
}

/* To a consumer that acknowledges nothing: the whole frame is one chunk. */
static int deliver_auto(PyObject *queue, PyObject *consumer, const struct plain_message *message)
{
    char head[MOST_HEAD];
    size_t tail = message->send->tail_len;
    PyObject *outbox = FIELD_OF(consumer, Consumer, outbox);
    Py_ssize_t len = plain_format(head, sizeof head, FIELD_OF(consumer, Consumer, quick), &message->number, 1);
    if (len < 0)
        return PLAIN_NOT_DELIVERED;
    PyObject *budget = less(FIELD_OF(outbox, Outbox, send_budget), tail);
    PyObject *chunk = PyBytes_FromStringAndSize(NULL, len + (Py_ssize_t)tail + 1);
    if (chunk) {
        char *to = PyBytes_AS_STRING(chunk);
        memcpy(to, head, (size_t)len);
        plain_send_tail(message->send, message->scan, message->data, to + len);
        to[len + (Py_ssize_t)tail] = '\n';
    }
    int failed = !budget || !chunk || PyList_Append(FIELD_OF(outbox, Outbox, chunks), chunk) < 0;
    Py_XDECREF(chunk);
    if (failed) { /* out of memory: Python says what happens then */
        PyErr_Clear();
        Py_XDECREF(budget);
        return PLAIN_NOT_DELIVERED;
    }
    return finish(FIELD_OF(queue, Queue, ring), outbox, budget) < 0 ? -1 : PLAIN_DELIVERED;
}

/* What changes with a delivery that has to be acknowledged. All of it is made before anything is changed. */
struct unacked {
    PyObject *chunks, *record, *tag, *budget, *credit, *count, *octets, *used;
};

static void drop(struct unacked *new)
{
    PyObject **all = (PyObject **)new;
    for (size_t i = 0; i < sizeof *new / sizeof *all; i++)
        Py_CLEAR(all[i]);
}

/* The chunks of a MESSAGE as a tuple: its head, tail and EOL, or one chunk where chunks must be whole frames. */
static PyObject *chunks_of(const char *head, Py_ssize_t len, PyObject *tail, int whole_frames)
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

/* Make everything. Returns 0 if something is missing, or too large for this road. */
static int prepare(struct unacked *new, PyObject *queue, PyObject *consumer, const struct plain_message *message)
{
    char head[MOST_HEAD];
    PyObject *account = FIELD_OF(queue, Queue, account), *outbox = FIELD_OF(consumer, Consumer, outbox);
    long long tag, credit, count, octets, used, budget, size = (long long)message->send->tail_len;
    if (!plain_number(FIELD_OF(consumer, Consumer, last), &tag) || !plain_number(FIELD_OF(consumer, Consumer, credit), &credit)
        || !plain_number(FIELD_OF(queue, Queue, count), &count) || !plain_number(FIELD_OF(queue, Queue, octets), &octets)
        || !account || !IS_A(account, Account) || !plain_number(FIELD_OF(account, Account, used), &used)
        || !plain_number(FIELD_OF(outbox, Outbox, send_budget), &budget))
        return 0;
    const long long numbers[] = {message->number, tag + 1};
    Py_ssize_t head_len = plain_format(head, sizeof head, FIELD_OF(consumer, Consumer, quick), numbers, 2);
    if (head_len < 0)
        return 0;
    PyObject *tail = plain_tail(message);
    if (tail) {
        new->chunks = chunks_of(head, head_len, tail, FIELD_OF(outbox, Outbox, whole_frames) == Py_True);
        new->record = plain_record(message, FIELD_OF(queue, Queue, name), tail);
        Py_DECREF(tail);
    }
    new->tag = PyLong_FromLongLong(tag + 1);
    new->budget = PyLong_FromLongLong(budget - size);
    new->credit = PyLong_FromLongLong(credit - 1);
    new->count = PyLong_FromLongLong(count + 1);
    new->octets = PyLong_FromLongLong(octets + size);
    new->used = PyLong_FromLongLong(used + size + PLAIN_MESSAGE_COST);
    return new->chunks && new->record && new->tag && new->budget && new->credit && new->count && new->octets && new->used;
}

/* Does the sender of a message that was delivered have to wait? Returns 1, 0, or -1 with an exception. */
static int is_full(PyObject *queue)
{
    PyObject *bound = FIELD_OF(queue, Queue, bound), *account = FIELD_OF(queue, Queue, account);
    long long count, octets, most_messages, most_octets, used, first;
    if (bound && IS_A(bound, Bound) && plain_number(FIELD_OF(queue, Queue, count), &count)
        && plain_number(FIELD_OF(queue, Queue, octets), &octets) && plain_number(FIELD_OF(bound, Bound, messages), &most_messages)
        && plain_number(FIELD_OF(bound, Bound, octets), &most_octets) && plain_number(FIELD_OF(account, Account, used), &used)
        && plain_number(FIELD_OF(account, Account, first), &first) && count <= most_messages && octets <= most_octets && used <= first
        && FIELD_OF(queue, Queue, paging) == Py_None)
        return 0;
    int full = plain_truth(PyObject_GetAttr(queue, plain_name.full));
    PyObject *overflow = FIELD_OF(queue, Queue, overflow);
    if (full <= 0 || overflow == Py_None)
        return full;
    return plain_truth(PyObject_CallNoArgs(overflow));
}

static int deliver_unacked(PyObject *queue, PyObject *consumer, const struct plain_message *message)
{
    struct unacked new = {0};
    PyObject *outbox = FIELD_OF(consumer, Consumer, outbox), *unacked = FIELD_OF(consumer, Consumer, unacked);
    PyObject *chunks = FIELD_OF(outbox, Outbox, chunks);
    if (!unacked || !PyDict_CheckExact(unacked) || !prepare(&new, queue, consumer, message)
        || PyDict_SetItem(unacked, new.tag, new.record) < 0) {
        PyErr_Clear();
        drop(&new);
        return PLAIN_NOT_DELIVERED;
    }
    Py_ssize_t end = PyList_GET_SIZE(chunks);
    if (PyList_SetSlice(chunks, end, end, new.chunks) < 0) {
        PyErr_Clear();
        if (PyDict_DelItem(unacked, new.tag) < 0)
            PyErr_Clear();
        drop(&new);
        return PLAIN_NOT_DELIVERED;
    }
    PyObject *account = FIELD_OF(queue, Queue, account);
    SET_FIELD(consumer, Consumer, last, new.tag);
    SET_FIELD(consumer, Consumer, credit, new.credit);
    SET_FIELD(queue, Queue, count, new.count);
    SET_FIELD(queue, Queue, octets, new.octets);
    SET_FIELD(account, Account, used, new.used);
    Py_DECREF(new.chunks);
    Py_DECREF(new.record);
    PyObject *ring = FIELD_OF(queue, Queue, ring);
    Py_INCREF(ring), Py_INCREF(outbox);
    int full = is_full(queue), error = finish(ring, outbox, new.budget);
    Py_DECREF(ring), Py_DECREF(outbox);
    return full < 0 || error < 0 ? -1 : full ? PLAIN_DELIVERED_FULL : PLAIN_DELIVERED;
}

int plain_deliver(PyObject *queue, const struct plain_message *message)
{
    PyObject *consumer = ready_consumer(queue);
    if (!consumer)
        return PLAIN_NOT_DELIVERED;
    Py_INCREF(consumer);
    PyObject *acks = FIELD_OF(consumer, Consumer, acks);
    int result = PLAIN_NOT_DELIVERED;
    if (acks == Py_False)
        result = deliver_auto(queue, consumer, message);
    else if (acks == Py_True)
        result = deliver_unacked(queue, consumer, message);
    Py_DECREF(consumer);
    return result;
}

int plain_gather(PyObject *topic, const struct plain_message *message)
{
    PyObject *gathered = IS_A(topic, Topic) ? FIELD_OF(topic, Topic, _gathered) : NULL, *full = gathered ? FIELD_OF(topic, Topic, full) : NULL;
    long long octets, most;
    if (!full || !PyBool_Check(full) || !PyList_CheckExact(gathered) || !PyList_GET_SIZE(gathered)
        || !plain_number(FIELD_OF(topic, Topic, _octets), &octets) || !plain_number(FIELD_OF(topic, Topic, _most), &most))
        return PLAIN_NOT_DELIVERED;
    octets += (long long)message->send->tail_len;
    if (octets > most) /* it is time to deliver them */
        return PLAIN_NOT_DELIVERED;
    PyObject *sum = PyLong_FromLongLong(octets), *tail = plain_tail(message);
    PyObject *record = sum && tail ? plain_record(message, FIELD_OF(topic, Topic, name), tail) : NULL;
    int failed = !record || PyList_Append(gathered, record) < 0;
    Py_XDECREF(tail);
    Py_XDECREF(record);
    if (failed) {
        PyErr_Clear();
        Py_XDECREF(sum);
        return PLAIN_NOT_DELIVERED;
    }
    SET_FIELD(topic, Topic, _octets, sum);
    return full == Py_True ? PLAIN_DELIVERED_FULL : PLAIN_DELIVERED;
}
