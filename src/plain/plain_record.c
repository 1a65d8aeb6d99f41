#include "plain_record.h"

#include <string.h>

#include "plain_fields.h"

PyObject *plain_tail(const struct plain_message *message)
{
    if (message->record) {
        PyObject *made = FIELD_OF(message->record, Message, tail);
        if (made && PyBytes_CheckExact(made))
            return Py_INCREF(made), made;
        PyErr_SetString(PyExc_TypeError, "the tail of a message is no longer bytes");
        return NULL;
    }
    PyObject *tail = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)message->send->tail_len);
    if (tail)
        plain_send_tail(message->send, message->scan, message->data, PyBytes_AS_STRING(tail));
    return tail;
}

static size_t write_number(char *to, unsigned long long n)
{
    char digits[20];
    int i = 20;
    do
        digits[--i] = (char)('0' + n % 10);
    while (n /= 10);
    memcpy(to, digits + i, (size_t)(20 - i));
    return (size_t)(20 - i);
}

Py_ssize_t plain_format(char *to, size_t room, PyObject *format, PyObject *octets, const long long *numbers, int count)
{
    const char *at = PyBytes_AS_STRING(format), *end = at + PyBytes_GET_SIZE(format);
    size_t len = 0, more = octets ? (size_t)PyBytes_GET_SIZE(octets) : 0;
    int used = 0;
    while (at < end) {
        const char *percent = memchr(at, '%', (size_t)(end - at));
        size_t some = (size_t)((percent ? percent : end) - at);
        if (len + some + more + 20 > room)
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
        } else if (percent[1] == 'b' && octets) {
            memcpy(to + len, PyBytes_AS_STRING(octets), more);
            len += more;
            octets = NULL;
            more = 0;
        } else if (percent[1] == 'd' && used < count && numbers[used] >= 0) {
            len += write_number(to + len, (unsigned long long)numbers[used++]);
        } else {
            return -1;
        }
    }
    return used == count && !octets ? (Py_ssize_t)len : -1;
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
    SET_NEW(persistent, message->persistent ? Py_True : Py_False);
    SET_NEW(expires, Py_None);
    SET_NEW(body, Py_None);
#undef SET_NEW
#undef SET
    return record;
}

/* The name of the target if that is the destination, else the destination as other messages have it. New, or NULL with an exception. */
static PyObject *name_of(const struct plain_message *message, PyObject *name)
{
    if (name && PyUnicode_Check(name) && PyUnicode_Compare(name, message->destination) == 0)
        return Py_INCREF(name), name;
    return PyObject_CallFunctionObjArgs(message->shared, message->destination, NULL);
}

PyObject *plain_record(const struct plain_message *message, PyObject *name, PyObject *tail)
{
    char ident[256];
    if (message->record)
        return Py_INCREF(message->record), message->record;
    Py_ssize_t len = plain_format(ident, sizeof ident, message->ident, NULL, &message->number, 1);
    if (len < 0) {
        PyErr_SetString(PyExc_ValueError, "the message-id has another format");
        return NULL;
    }
    PyObject *destination = name_of(message, name);
    return destination ? record_of(message, PyBytes_FromStringAndSize(ident, len), destination, tail) : NULL;
}

PyObject *plain_record_unnumbered(const struct plain_message *message, PyObject *name, PyObject *tail)
{
    PyObject *destination = name_of(message, name);
    return destination ? record_of(message, PyBytes_FromStringAndSize(NULL, 0), destination, tail) : NULL;
}

#define BEFORE_IDENT "message-id:"
#define BEFORE_IDENT_LEN (sizeof BEFORE_IDENT - 1)

/* The length of the MESSAGEs of plain_join, or -1 if something is of another type. */
static Py_ssize_t joined_length(PyObject *start, PyObject *messages)
{
    Py_ssize_t len = 0;
    if (!PyBytes_CheckExact(start) || !PyList_CheckExact(messages))
        return -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(messages); i++) {
        PyObject *message = PyList_GET_ITEM(messages, i);
        PyObject *ident = IS_A(message, Message) ? FIELD_OF(message, Message, ident) : NULL;
        PyObject *tail = ident ? FIELD_OF(message, Message, tail) : NULL;
        if (!tail || !PyBytes_CheckExact(ident) || !PyBytes_CheckExact(tail))
            return -1;
        len += PyBytes_GET_SIZE(start) + (Py_ssize_t)BEFORE_IDENT_LEN + PyBytes_GET_SIZE(ident) + 1 + PyBytes_GET_SIZE(tail) + 1;
    }
    return len;
}

static char *copy_octets(char *to, PyObject *octets, char after)
{
    const Py_ssize_t len = PyBytes_GET_SIZE(octets);
    memcpy(to, PyBytes_AS_STRING(octets), (size_t)len);
    to[len] = after;
    return to + len + 1;
}

PyObject *plain_join(PyObject *start, PyObject *messages)
{
    const Py_ssize_t len = plain_at.Message ? joined_length(start, messages) : -1;
    if (len < 0)
        Py_RETURN_NONE;
    PyObject *joined = PyBytes_FromStringAndSize(NULL, len);
    char *to = joined ? PyBytes_AS_STRING(joined) : NULL;
    for (Py_ssize_t i = 0; joined && i < PyList_GET_SIZE(messages); i++) {
        PyObject *message = PyList_GET_ITEM(messages, i);
        memcpy(to, PyBytes_AS_STRING(start), (size_t)PyBytes_GET_SIZE(start));
        to += PyBytes_GET_SIZE(start);
        memcpy(to, BEFORE_IDENT, BEFORE_IDENT_LEN);
        to = copy_octets(to + BEFORE_IDENT_LEN, FIELD_OF(message, Message, ident), '\n');
        to = copy_octets(to, FIELD_OF(message, Message, tail), '\n');
    }
    return joined;
}
