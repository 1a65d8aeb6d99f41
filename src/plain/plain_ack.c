#include "plain_ack.h"

#include <string.h>

#include "plain_call.h"
#include "plain_fields.h"
#include "plain_ready.h"
#include "plain_ring.h"
#include "plain_store.h"

#define MOST_DIGITS 18 /* of the number of a delivery: so it fits into 64 bits */

static int is_named(const uint8_t *at, size_t len, const char *name, size_t name_len)
{
    return len == name_len && !memcmp(at, name, len);
}
#define IS_NAMED(at, len, name) is_named(at, len, name, sizeof(name) - 1)

/* Read the head: id and receipt. Returns 0 if there is a header that has more to say. */
static int read_head(struct plain_text *id, struct plain_text *receipt, const struct stomp_scan *scan, const uint8_t *data)
{
    size_t from = 0;
    id->at = receipt->at = NULL;
    for (uint32_t i = 0; i < scan->count; i++) {
        struct stomp_header header;
        from = stomp_header_of(scan, data, i, from, &header);
        const uint8_t *name = data + header.name;
        size_t len = header.colon - header.name;
        struct plain_text *text = IS_NAMED(name, len, "id") ? id : IS_NAMED(name, len, "receipt") ? receipt : NULL;
        if (IS_NAMED(name, len, "transaction") || IS_NAMED(name, len, "credit"))
            return 0;
        if (text && !text->at) {
            text->at = data + header.value;
            text->len = header.end - header.value;
        }
    }
    return id->at && plain_is_verbatim(receipt, scan);
}

/* Read "NUMBER-TAG". Returns the length of NUMBER, or -1. */
static Py_ssize_t read_id(const struct plain_text *id, long long *tag)
{
    const uint8_t *dash = memchr(id->at, '-', id->len), *end = id->at + id->len;
    if (!dash || dash + 1 == end || end - dash - 1 > MOST_DIGITS)
        return -1;
    *tag = 0;
    for (const uint8_t *at = dash + 1; at < end; at++) {
        if (*at < '0' || *at > '9')
            return -1;
        *tag = *tag * 10 + (*at - '0');
    }
    return dash - id->at;
}

/* The consumer with a number, which is mostly the one of the last ACK. Borrowed, or NULL. */
static PyObject *consumer_of(PyObject *session, const uint8_t *number, Py_ssize_t len, PyObject **name)
{
    PyObject *consumers = FIELD_OF(session, Session, by_number);
    Py_ssize_t last_len = -1;
    const char *last = *name ? PyUnicode_AsUTF8AndSize(*name, &last_len) : NULL;
    if (last_len != len || !last || memcmp(last, number, (size_t)len)) {
        PyObject *fresh = PyUnicode_DecodeUTF8((const char *)number, len, NULL);
        if (!fresh)
            return NULL;
        PyErr_Clear(); /* of the last one */
        plain_set(name, fresh);
    }
    return consumers && PyDict_CheckExact(consumers) ? PyDict_GetItemWithError(consumers, *name) : NULL;
}

/* May this delivery be settled here? */
static int is_simple(PyObject *consumer, PyObject *queue)
{
    PyObject *account = queue && IS_A(queue, Queue) ? FIELD_OF(queue, Queue, account) : NULL;
    PyObject *blocked = account ? FIELD_OF(queue, Queue, blocked) : NULL, *unacked = FIELD_OF(consumer, Consumer, unacked);
    return blocked && IS_A(account, Account) && PyDict_CheckExact(blocked) && unacked && PyDict_CheckExact(unacked)
        && FIELD_OF(consumer, Consumer, single) == Py_True;
}

int plain_ack_find(struct plain_ack *ack, PyObject *session, const struct stomp_scan *scan, const uint8_t *data, PyObject **name)
{
    struct plain_text id;
    long long tag;
    Py_ssize_t len;
    if (!read_head(&id, &ack->receipt, scan, data) || (len = read_id(&id, &tag)) < 0)
        return 0;
    PyObject *consumer = consumer_of(session, id.at, len, name);
    if (!consumer || !IS_A(consumer, Consumer) || !is_simple(consumer, FIELD_OF(consumer, Consumer, queue))) {
        PyErr_Clear();
        return 0;
    }
    ack->consumer = consumer;
    ack->queue = FIELD_OF(consumer, Consumer, queue);
    ack->tag = PyLong_FromLongLong(tag);
    ack->message = ack->tag ? PyDict_GetItemWithError(FIELD_OF(consumer, Consumer, unacked), ack->tag) : NULL;
    if (ack->message && IS_A(ack->message, Message))
        return 1;
    PyErr_Clear();
    Py_CLEAR(ack->tag);
    return 0;
}

/* `Queue.count_out_one`. Returns 0, or -1 with an exception. */
static int count_out(PyObject *queue, long long size)
{
    struct plain_counts counts;
    if (FIELD_OF(queue, Queue, closed) == Py_True)
        return 0;
    if (!plain_counts_make(&counts, queue, -1, size)) {
        PyErr_SetString(PyExc_OverflowError, "a count of a queue is not an int, or too large");
        return -1;
    }
    plain_counts_set(&counts, queue);
    return plain_release(queue);
}

/* A stored message leaves the store with the next commit, and receipts wait for that. Returns 0, or -1 with an exception. */
static int unstore(PyObject *session, PyObject *queue, PyObject *message, PyObject *receipt, PyObject *hold_receipts)
{
    PyObject *journal = FIELD_OF(queue, Queue, journal), *result = Py_None;
    if (journal == Py_None)
        journal = NULL;
    Py_XINCREF(journal);
    if (!journal || !plain_is_held(session, journal)) {
        result = PyObject_CallFunctionObjArgs(hold_receipts, session, receipt, NULL);
        Py_XDECREF(result);
    }
    if (result && journal && FIELD_OF(queue, Queue, closed) != Py_True) {
        PyObject *arguments[] = {journal, queue, message};
        result = PyObject_VectorcallMethod(plain_name.settle, arguments, 3, NULL);
        Py_XDECREF(result);
    }
    Py_XDECREF(journal);
    return result ? 0 : -1;
}

int plain_ack_settle(const struct plain_ack *ack, PyObject *session, PyObject *receipt, PyObject *hold_receipts)
{
    long long credit, size;
    PyObject *message = ack->message, *persistent = FIELD_OF(message, Message, persistent);
    if (!plain_number(FIELD_OF(ack->consumer, Consumer, credit), &credit) || !plain_size(FIELD_OF(message, Message, size), &size)) {
        PyErr_SetString(PyExc_OverflowError, "a credit or size is not an int, or too large");
        return -1;
    }
    PyObject *more = PyLong_FromLongLong(credit + 1);
    Py_INCREF(message);
    int error = !more || PyDict_DelItem(FIELD_OF(ack->consumer, Consumer, unacked), ack->tag) < 0;
    if (!error) {
        SET_FIELD(ack->consumer, Consumer, credit, more);
        more = NULL;
        int stored = persistent ? PyObject_IsTrue(persistent) : 0;
        error = stored < 0 || (stored && unstore(session, ack->queue, message, receipt, hold_receipts) < 0)
            || count_out(ack->queue, size) < 0;
    }
    Py_XDECREF(more);
    Py_DECREF(message);
    return error ? -1 : 0;
}

int plain_ack_offer(const struct plain_ack *ack)
{
    if (FIELD_OF(ack->consumer, Consumer, in_ring) == Py_True)
        return 0;
    return plain_offer(ack->queue, ack->consumer);
}
