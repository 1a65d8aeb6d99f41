#include "plain_store.h"

#ifndef MS_WINDOWS
#include <errno.h>
#include <sys/stat.h>
#endif

#include "plain_call.h"
#include "plain_fields.h"
#include "plain_queue.h"
#include "plain_ring.h"

#define MOST_SEQ (1LL << 42) /* seqs are less: `append` of storage/store.py */

int plain_is_held(PyObject *session, PyObject *journal)
{
    PyObject *pending = FIELD_OF(session, Session, pending_commit);
    if (!pending || !IS_A(pending, PendingCommit))
        return 0;
    Py_INCREF(pending);
    PyObject *batch = PyObject_GetAttr(journal, plain_name.batch), *busy = batch ? PyObject_GetAttr(journal, plain_name.busy) : NULL;
    int held = busy == Py_None && batch == FIELD_OF(pending, PendingCommit, batch);
    if (!busy)
        PyErr_Clear();
    Py_XDECREF(batch);
    Py_XDECREF(busy);
    Py_DECREF(pending);
    return held;
}

PyObject *plain_open_batch(PyObject *session, PyObject *queue)
{
    PyObject *pending = FIELD_OF(session, Session, pending_commit);
    PyObject *batch = pending && IS_A(pending, PendingCommit) ? FIELD_OF(pending, PendingCommit, batch) : NULL;
    PyObject *intake = batch && IS_A(batch, Batch) ? FIELD_OF(batch, Batch, intake) : NULL;
    return intake && IS_A(intake, Intake) && FIELD_OF(intake, Intake, queue) == queue ? batch : NULL;
}

int plain_append(PyObject *batch, PyObject *queue, const struct plain_message *message)
{
    PyObject *intake = FIELD_OF(batch, Batch, intake);
    PyObject *put = FIELD_OF(batch, Batch, put), *puts = FIELD_OF(intake, Intake, puts);
    long long base, top;
    if (!put || !PyList_CheckExact(put) || !puts || !PyDict_CheckExact(puts) || !plain_number(FIELD_OF(intake, Intake, base), &base)
        || !plain_number(FIELD_OF(intake, Intake, top), &top) || message->number <= top || message->number >= MOST_SEQ)
        return 0;
    Py_INCREF(put), Py_INCREF(puts);
    PyObject *key = PyLong_FromLongLong(base + message->number), *pair = key ? PyTuple_Pack(2, queue, message->record) : NULL;
    Py_ssize_t end = PyList_GET_SIZE(put);
    int done = pair && !PyList_Append(put, pair);
    if (done && PyDict_SetItem(puts, key, message->record) < 0) {
        PyErr_Clear();
        done = 0;
        if (PyList_SetSlice(put, end, end + 1, NULL) < 0)
            PyErr_Clear();
    }
    if (!done) /* out of memory: Python says what happens then */
        PyErr_Clear();
    Py_XDECREF(key);
    Py_XDECREF(pair);
    Py_DECREF(put), Py_DECREF(puts);
    return done;
}

int plain_is_short(PyObject *journal)
{
    PyObject *found = PyObject_GetAttr(journal, plain_name.is_short);
    if (!found)
        PyErr_Clear();
    Py_XDECREF(found);
    return found != Py_False;
}

int plain_record_put(PyObject *session, PyObject *queue, const struct plain_message *message, PyObject *receipt, PyObject *record_put)
{
    PyObject *journal = FIELD_OF(queue, Queue, journal), *batch = plain_open_batch(session, queue), *result;
    if (batch && plain_append(batch, queue, message)) {
        Py_INCREF(message->seq), SET_FIELD(queue, Queue, newest, message->seq);
        return 0;
    }
    Py_INCREF(journal);
    if (plain_is_held(session, journal) && !plain_is_short(journal)) {
        PyObject *arguments[] = {journal, queue, message->record};
        result = PyObject_VectorcallMethod(plain_name.append_more, arguments, 3, NULL);
        if (result)
            Py_INCREF(message->seq), SET_FIELD(queue, Queue, newest, message->seq);
    } else {
        PyObject *arguments[] = {session, queue, message->record, receipt};
        result = PyObject_Vectorcall(record_put, arguments, 4, NULL);
    }
    Py_DECREF(journal);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

int plain_is_stored(PyObject *target, const struct plain_text *persistent, int stores, int stores_all)
{
    if (!persistent->at)
        return stores_all && IS_A(target, Queue) && FIELD_OF(target, Queue, journal) != Py_None;
    return stores && persistent->len == 4;
}

/* Is there room for one more message below a `Bound` or `Window`, whose fields these are? */
static int has_room(PyObject *messages, PyObject *octets, long long count, long long total)
{
    long long most_messages, most_octets;
    return plain_number(messages, &most_messages) && plain_number(octets, &most_octets) && count < most_messages && total < most_octets;
}

int plain_may_store(PyObject *queue, const struct plain_message *message)
{
    PyObject *bound = FIELD_OF(queue, Queue, bound), *account = FIELD_OF(queue, Queue, account), *journal = FIELD_OF(queue, Queue, journal);
    long long count, octets, used, first, size = (long long)message->send->tail_len;
    if (!journal || journal == Py_None || FIELD_OF(queue, Queue, arguments) != Py_None || FIELD_OF(queue, Queue, closed) != Py_False
        || !bound || !IS_A(bound, Bound) || !account || !IS_A(account, Account) || !plain_number(FIELD_OF(queue, Queue, count), &count)
        || !plain_number(FIELD_OF(queue, Queue, octets), &octets) || !plain_number(FIELD_OF(account, Account, used), &used)
        || !plain_number(FIELD_OF(account, Account, first), &first) || used + size + PLAIN_MESSAGE_COST > first
        || !has_room(FIELD_OF(bound, Bound, messages), FIELD_OF(bound, Bound, octets), count, octets + size))
        return 0;
    if (FIELD_OF(queue, Queue, paging) != Py_None)
        return 0;
    PyObject *consumer = plain_next(queue, 0);
    return consumer ? FIELD_OF(consumer, Consumer, acks) == Py_True : plain_may_enqueue(queue, message);
}

int plain_put_stored(PyObject *session, PyObject *queue, const struct plain_message *message)
{
    int outcome = plain_deliver(queue, message);
    if (outcome == PLAIN_NOT_DELIVERED) {
        PyObject *arguments[] = {queue, message->record, Py_False, Py_True};
        int full = plain_truth(PyObject_VectorcallMethod(plain_name.put, arguments, 4, NULL));
        outcome = full < 0 ? -1 : full ? PLAIN_DELIVERED_FULL : PLAIN_DELIVERED;
    }
    if (outcome == PLAIN_DELIVERED_FULL)
        return plain_call(queue, plain_name.block, session);
    return outcome < 0 ? -1 : 0;
}

#ifndef MS_WINDOWS
PyObject *plain_are_at(PyObject *module, PyObject *places)
{
    (void)module;
    if (!PyTuple_Check(places))
        return PyErr_Format(PyExc_TypeError, "are_at() takes a tuple");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(places); i++) {
        struct stat found;
        PyObject *place = PyTuple_GET_ITEM(places, i);
        if (!PyTuple_Check(place) || PyTuple_GET_SIZE(place) != 3)
            return PyErr_Format(PyExc_TypeError, "are_at() takes tuples of path, device and inode");
        const char *path = PyBytes_AsString(PyTuple_GET_ITEM(place, 0)); /* PyArg_ParseTuple takes longer than stat */
        unsigned long long device = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(place, 1));
        unsigned long long inode = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(place, 2));
        if (!path || PyErr_Occurred())
            return NULL;
        if (stat(path, &found)) {
            if (errno == ENOENT || errno == ENOTDIR || errno == ESTALE)
                Py_RETURN_FALSE;
            return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
        }
        if ((unsigned long long)found.st_dev != device || found.st_ino != inode)
            Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}
#endif
