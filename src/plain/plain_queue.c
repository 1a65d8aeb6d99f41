#include "plain_queue.h"

#include <string.h>

#include "plain_fields.h"
#include "plain_ring.h"
#include "plain_select.h"
#include "plain_tally.h"

/* To a consumer that acknowledges nothing: the whole frame is one chunk. */
static int deliver_auto(PyObject *queue, PyObject *consumer, const struct plain_message *message)
{
    char head[PLAIN_MOST_HEAD];
    size_t tail = message->send->tail_len;
    PyObject *outbox = FIELD_OF(consumer, Consumer, outbox);
    Py_ssize_t len = plain_format(head, sizeof head, FIELD_OF(consumer, Consumer, quick), NULL, &message->number, 1);
    if (len < 0)
        return PLAIN_NOT_DELIVERED;
    PyObject *budget = plain_less(FIELD_OF(outbox, Outbox, send_budget), (long long)tail);
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
    Py_INCREF(outbox);
    PLAIN_TALLY(queue, direct);
    const int error = plain_finish(queue, outbox, budget);
    Py_DECREF(outbox);
    return error < 0 ? -1 : PLAIN_DELIVERED;
}

/* What changes with a delivery that has to be acknowledged. All of it is made before anything is changed. */
struct unacked {
    PyObject *chunks, *record, *tag, *budget, *credit;
    struct plain_counts counts;
};

static void drop(struct unacked *new)
{
    Py_CLEAR(new->chunks);
    Py_CLEAR(new->record);
    Py_CLEAR(new->tag);
    Py_CLEAR(new->budget);
    Py_CLEAR(new->credit);
    plain_counts_drop(&new->counts);
}

/* Make everything. Returns 0 if something is missing, or too large for this road. */
static int prepare(struct unacked *new, PyObject *queue, PyObject *consumer, PyObject *outbox, const struct plain_message *message)
{
    char head[PLAIN_MOST_HEAD];
    long long tag, size = (long long)message->send->tail_len;
    if (!plain_number(FIELD_OF(consumer, Consumer, last), &tag))
        return 0;
    const long long numbers[] = {message->number, tag + 1};
    Py_ssize_t head_len = plain_format(head, sizeof head, FIELD_OF(consumer, Consumer, quick), NULL, numbers, 2);
    if (head_len < 0 || !plain_counts_make(&new->counts, queue, 1, size))
        return 0;
    PyObject *tail = plain_tail(message);
    if (tail) {
        new->chunks = plain_chunks(head, head_len, tail, FIELD_OF(outbox, Outbox, whole_frames) == Py_True);
        new->record = plain_record(message, FIELD_OF(queue, Queue, name), tail);
        Py_DECREF(tail);
    }
    new->tag = PyLong_FromLongLong(tag + 1);
    new->budget = plain_less(FIELD_OF(outbox, Outbox, send_budget), size);
    new->credit = plain_less(FIELD_OF(consumer, Consumer, credit), 1);
    return new->chunks && new->record && new->tag && new->budget && new->credit;
}

/* With an outbox that plain_next has found, and that the caller owns, as it does `unacked` and `chunks`. */
static int deliver_into(PyObject *queue, PyObject *consumer, PyObject *outbox, PyObject *unacked, PyObject *chunks,
                        const struct plain_message *message)
{
    struct unacked new = {0};
    if (!prepare(&new, queue, consumer, outbox, message) || PyDict_SetItem(unacked, new.tag, new.record) < 0) {
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
    SET_FIELD(consumer, Consumer, last, new.tag);
    SET_FIELD(consumer, Consumer, credit, new.credit);
    plain_counts_set(&new.counts, queue);
    PLAIN_TALLY(queue, put);
    Py_DECREF(new.chunks);
    Py_DECREF(new.record);
    PyObject *type, *raised, *trace;
    const int full = plain_is_full(queue);
    PyErr_Fetch(&type, &raised, &trace); /* if it raised, the delivery is finished all the same */
    const int error = plain_finish(queue, outbox, new.budget);
    if (type)
        PyErr_Restore(type, raised, trace);
    return full < 0 || error < 0 ? -1 : full ? PLAIN_DELIVERED_FULL : PLAIN_DELIVERED;
}

static int deliver_unacked(PyObject *queue, PyObject *consumer, const struct plain_message *message)
{
    PyObject *outbox = FIELD_OF(consumer, Consumer, outbox), *unacked = FIELD_OF(consumer, Consumer, unacked);
    PyObject *chunks = FIELD_OF(outbox, Outbox, chunks);
    if (!unacked || !PyDict_CheckExact(unacked))
        return PLAIN_NOT_DELIVERED;
    Py_INCREF(outbox), Py_INCREF(unacked), Py_INCREF(chunks);
    const int result = deliver_into(queue, consumer, outbox, unacked, chunks, message);
    Py_DECREF(outbox), Py_DECREF(unacked), Py_DECREF(chunks);
    return result;
}

int plain_deliver(PyObject *queue, const struct plain_message *message)
{
    /* a message that expires at once, by its queue's arguments, does not need a consumer that can take it */
    PyObject *consumer = plain_next(queue, FIELD_OF(queue, Queue, arguments) != Py_None);
    if (!consumer) {
        PyObject *dispatcher = FIELD_OF(queue, Queue, dispatcher);
        return dispatcher && dispatcher != Py_None ? plain_select(queue, dispatcher, message) : plain_enqueue(queue, message);
    }
    Py_INCREF(consumer);
    PyObject *acks = FIELD_OF(consumer, Consumer, acks);
    int result = PLAIN_NOT_DELIVERED;
    if (acks == Py_False && !message->persistent)
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
    Py_INCREF(gathered);
    PyObject *sum = PyLong_FromLongLong(octets), *tail = plain_tail(message);
    PyObject *record = sum && tail ? plain_record(message, FIELD_OF(topic, Topic, name), tail) : NULL;
    int failed = !record || PyList_Append(gathered, record) < 0;
    Py_XDECREF(tail);
    Py_XDECREF(record);
    Py_DECREF(gathered);
    if (failed) {
        PyErr_Clear();
        Py_XDECREF(sum);
        return PLAIN_NOT_DELIVERED;
    }
    SET_FIELD(topic, Topic, _octets, sum);
    return full == Py_True ? PLAIN_DELIVERED_FULL : PLAIN_DELIVERED;
}
