/* Frame(command, headers, body): frames from Python objects, which are checked here. */
#include "frame_object.h"
#include "headers_object.h"
#include "stomp_command.h"

/* Return `text` as an exact str, or NULL with a TypeError that names `what`. */
static PyObject *exact_text(PyObject *text, const char *what, PyObject *name)
{
    if (PyUnicode_CheckExact(text))
        return Py_NewRef(text);
    if (PyUnicode_Check(text))
        return PyUnicode_FromObject(text);
    if (name)
        PyErr_Format(PyExc_TypeError, "%s of header %R must be str, not %.100s", what, name, Py_TYPE(text)->tp_name);
    else
        PyErr_Format(PyExc_TypeError, "%s must be str, not %.100s", what, Py_TYPE(text)->tp_name);
    return NULL;
}

static PyObject *exact_body(PyObject *body)
{
    if (!body)
        return PyBytes_FromStringAndSize(NULL, 0);
    if (PyBytes_CheckExact(body))
        return Py_NewRef(body);
    if (PyUnicode_Check(body)) {
        PyErr_SetString(PyExc_TypeError, "body must be bytes-like, not str: encode it, as in text.encode()");
        return NULL;
    }
    if (!PyObject_CheckBuffer(body)) {
        PyErr_Format(PyExc_TypeError, "body must be bytes-like, not %.100s", Py_TYPE(body)->tp_name);
        return NULL;
    }
    return PyBytes_FromObject(body);
}

/* Return the headers given to Frame() as a fast sequence of pairs. */
static PyObject *sequence_of_pairs(PyObject *headers)
{
    static const char wrong[] = "headers must be a mapping or pairs of name and value";
    PyObject *items = NULL, *pairs;
    if (!headers)
        return PyList_New(0);
    if (Py_IS_TYPE(headers, &StompHeaders_Type))
        return stomp_headers_pairs(headers);
    if (PyDict_CheckExact(headers)) {
        items = PyDict_Items(headers);
    } else {
        int mapping = stomp_has_keys(headers);
        PyObject *dict = mapping > 0 ? PyDict_New() : NULL;
        if (dict && PyDict_Update(dict, headers) == 0)
            items = PyDict_Items(dict);
        else if (!mapping)
            items = Py_NewRef(headers);
        Py_XDECREF(dict);
    }
    pairs = items ? PySequence_Fast(items, wrong) : NULL;
    Py_XDECREF(items);
    return pairs;
}

PyObject *stomp_frame_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"command", "headers", "body", NULL};
    PyObject *command, *headers = NULL, *body = NULL, *pairs = NULL;
    StompFrame *frame = NULL;
    (void)type;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:Frame", keywords, &command, &headers, &body))
        return NULL;
    command = exact_text(command, "command", NULL);
    body = command ? exact_body(body) : NULL;
    pairs = body ? sequence_of_pairs(headers) : NULL;
    if (!pairs)
        goto fail;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(pairs);
    if (count > UINT32_MAX / 2) {
        PyErr_SetString(PyExc_OverflowError, "too many headers");
        goto fail;
    }
    frame = stomp_frame_alloc(2 * (size_t)count * sizeof(PyObject *));
    if (!frame)
        goto fail;
    frame->count = frame->head = frame->first = 0;
    frame->level = frame->marks = 0;
    frame->kind = FRAME_TEXT;
    frame->command_id = STOMP_COMMANDS;
    if (PyUnicode_IS_COMPACT_ASCII(command))
        frame->command_id = (uint8_t)stomp_command_of(PyUnicode_1BYTE_DATA(command), (size_t)PyUnicode_GET_LENGTH(command));
    frame->command = command;
    frame->body = body;
    command = body = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PySequence_Fast(PySequence_Fast_GET_ITEM(pairs, i), "headers must be a mapping or pairs of name and value");
        if (!pair || PySequence_Fast_GET_SIZE(pair) != 2 || PyUnicode_Check(PySequence_Fast_GET_ITEM(pairs, i))) {
            if (pair)
                PyErr_SetString(PyExc_TypeError, "headers must be a mapping or pairs of name and value");
            Py_XDECREF(pair);
            goto fail;
        }
        PyObject *name = exact_text(PySequence_Fast_GET_ITEM(pair, 0), "header name", NULL);
        PyObject *value = name ? exact_text(PySequence_Fast_GET_ITEM(pair, 1), "value", name) : NULL;
        Py_DECREF(pair);
        if (!value) {
            Py_XDECREF(name);
            goto fail;
        }
        stomp_frame_texts(frame)[2 * i] = name;
        stomp_frame_texts(frame)[2 * i + 1] = value;
        frame->count++;
    }
    Py_DECREF(pairs);
    return (PyObject *)frame;
fail:
    Py_XDECREF(command);
    Py_XDECREF(body);
    Py_XDECREF(pairs);
    Py_XDECREF(frame);
    return NULL;
}
