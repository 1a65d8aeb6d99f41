#include "plain_queue.h"

#include <string.h>

#include "plain_call.h"
#include "plain_fields.h"

#define MOST_HEAD 1024 /* bytes of a consumer's part of a MESSAGE; longer ones are written by Python */
PyObject *plain_tail(const struct plain_message *message)
{
    PyObject *tail = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)message->send->tail_len);
    if (tail)
        plain_send_tail(message->send, message->scan, message->data, PyBytes_AS_STRING(tail));
    return tail;
}

/* Write a format of bytes with %d for each number, as Python's % would. Returns the length, or -1 if it has no room, or is another
   format than those of `Consumer._heads`. */
static Py_ssize_t write_format(char *to, size_t room, PyObject *format, const long long *numbers, int count)
{
    const char *at = PyBytes_AS_STRING(format), *end = at + PyBytes_GET_SIZE(format);
    size_t len = 0;
    int used = 0;
    while (at < end) {
        const char *percent = memchr(at, '%', (size_t)(end - at));
        size_t some = (size_t)((percent ? percent : end) - at);
        if (len + some + 20 > room)
            return -1;
        memcpy(to + len, at, some);
        len += some;
        if (!percent)
            break;
        at = percent + 2;
        if (at > end)
            return -1;
        if (percent[1] == '%') {
            to[len++] = '%';
        } else if (percent[1] == 'd' && used < count && numbers[used] >= 0) {
            char digits[20];
            int i = 20;
            unsigned long long n = (unsigned long long)numbers[used++];
            do
                digits[--i] = (char)('0' + n % 10);
            while (n /= 10);
            memcpy(to + len, digits + i, (size_t)(20 - i));
            len += (size_t)(20 - i);
        } else {
            return -1;
        }
    }
    return used == count ? (Py_ssize_t)len : -1;
}

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
    Py_ssize_t len = write_format(head, sizeof head, FIELD_OF(consumer, Consumer, quick), &message->number, 1);
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

/* Make the Message. Its ident and destination are new references, which it takes. */
static PyObject *record_of(const struct plain_message *message, PyObject *ident, PyObject *name, PyObject *tail)
{
    PyObject *size = PyLong_FromSize_t(message->send->tail_len), *priority = PyLong_FromLong(4), *zero = PyLong_FromLong(0);
    PyObject *record = ident && size && priority && zero ? plain_at.Message->tp_alloc(plain_at.Message, 0) : NULL;
    if (!record) {
        Py_XDECREF(ident), Py_DECREF(name), Py_XDECREF(size), Py_XDECREF(priority), Py_XDECREF(zero);
        return NULL;
    }
#define SET(field, value) FIELD_OF(record, Message, field) = (value)
#define SET_NEW(field, value) (Py_INCREF(value), SET(field, value))
    SET(ident, ident);
    SET(destination, name);
    SET(size, size);
    SET(priority, priority);
    SET(attempts, zero);
    SET_NEW(special, zero);
    SET_NEW(seq, message->seq);
    SET_NEW(tail, tail);
    SET_NEW(persistent, Py_False);
    SET_NEW(expires, Py_None);
    SET_NEW(body, Py_None);
#undef SET_NEW
#undef SET
    return record;
}

/* The name of the queue if that is the destination, else the destination: names may be large, and are shared. New. */
static PyObject *shared_name(PyObject *queue, PyObject *destination)
{
    PyObject *name = FIELD_OF(queue, Queue, name);
    if (name && PyUnicode_Check(name) && PyUnicode_Compare(name, destination) == 0)
        return Py_INCREF(name), name;
    Py_INCREF(destination);
    PyUnicode_InternInPlace(&destination);
    return destination;
}

/* The chunks of a MESSAGE as a tuple. It takes the reference to the head. */
static PyObject *chunks_of(PyObject *head, PyObject *tail)
{
    PyObject *chunks = head ? PyTuple_New(3) : NULL;
    if (!chunks) {
        Py_XDECREF(head);
        return NULL;
    }
    PyTuple_SET_ITEM(chunks, 0, head);
    Py_INCREF(tail), PyTuple_SET_ITEM(chunks, 1, tail);
    Py_INCREF(plain_name.eol), PyTuple_SET_ITEM(chunks, 2, plain_name.eol);
    return chunks;
}

/* Make everything. Returns 0 if something is missing, or too large for this road. */
static int prepare(struct unacked *new, PyObject *queue, PyObject *consumer, const struct plain_message *message)
{
    char head[MOST_HEAD], ident[256];
    PyObject *account = FIELD_OF(queue, Queue, account), *outbox = FIELD_OF(consumer, Consumer, outbox);
    long long tag, credit, count, octets, used, budget, size = (long long)message->send->tail_len;
    if (!plain_number(FIELD_OF(consumer, Consumer, last), &tag) || !plain_number(FIELD_OF(consumer, Consumer, credit), &credit)
        || !plain_number(FIELD_OF(queue, Queue, count), &count) || !plain_number(FIELD_OF(queue, Queue, octets), &octets)
        || !account || !IS_A(account, Account) || !plain_number(FIELD_OF(account, Account, used), &used)
        || !plain_number(FIELD_OF(outbox, Outbox, send_budget), &budget))
        return 0;
    const long long numbers[] = {message->number, tag + 1};
    Py_ssize_t head_len = write_format(head, sizeof head, FIELD_OF(consumer, Consumer, quick), numbers, 2);
    Py_ssize_t ident_len = write_format(ident, sizeof ident, message->ident, &message->number, 1);
    if (head_len < 0 || ident_len < 0)
        return 0;
    PyObject *tail = plain_tail(message);
    if (tail) {
        new->chunks = chunks_of(PyBytes_FromStringAndSize(head, head_len), tail);
        new->record = record_of(message, PyBytes_FromStringAndSize(ident, ident_len), shared_name(queue, message->destination), tail);
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
    PyObject *consumer = IS_A(queue, Queue) ? ready_consumer(queue) : NULL;
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
