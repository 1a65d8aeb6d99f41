/* Frame(command, headers, body): frames from Python objects, which are checked here. */
#include "frame_object.h"
#include "headers_object.h"
#include "stomp_command.h"

/* Headers of a frame: their count has 32 bits, and so may the size of their pointers. */
#define MOST (SIZE_MAX / 16 < UINT32_MAX / 2 ? SIZE_MAX / 16 : UINT32_MAX / 2)

static const char not_pairs[] = "headers must be a mapping or pairs of name and value";

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

/* Return the headers given to Frame() as a sequence of pairs that nothing else can change: a pair may be an iterator that runs
   any code. */
static PyObject *sequence_of_pairs(PyObject *headers)
{
    PyObject *items = NULL, *pairs;
    if (!headers)
        return PyTuple_New(0);
    if (Py_IS_TYPE(headers, &StompHeaders_Type))
        return stomp_headers_pairs(headers);
    if (PyList_CheckExact(headers)) /* before has_keys, which is slow when the answer is no */
        return PyList_AsTuple(headers);
    if (PyDict_CheckExact(headers)) {
        items = PyDict_Items(headers);
    } else {
        int mapping = PyTuple_CheckExact(headers) ? 0 : stomp_has_keys(headers);
        PyObject *dict = mapping > 0 ? PyDict_New() : NULL;
        if (dict && PyDict_Update(dict, headers) == 0)
            items = PyDict_Items(dict);
        else if (!mapping)
            items = PyList_Check(headers) ? PyList_AsTuple(headers) : Py_NewRef(headers);
        Py_XDECREF(dict);
    }
    pairs = items ? PySequence_Fast(items, not_pairs) : NULL;
    Py_XDECREF(items);
    return pairs;
}

/* Allocate a frame for `count` headers, of which it has none yet. Takes over `command` and `body`. NULL: no memory. */
static StompFrame *frame_for(PyObject *command, PyObject *body, size_t count)
{
    StompFrame *frame = stomp_frame_alloc(2 * count * sizeof(PyObject *));
    if (!frame) {
        Py_DECREF(command);
        Py_DECREF(body);
        return NULL;
    }
    frame->count = frame->head = frame->first = 0;
    frame->level = frame->marks = 0;
    frame->kind = FRAME_TEXT;
    frame->command_id = STOMP_COMMANDS;
    if (PyUnicode_IS_COMPACT_ASCII(command))
        frame->command_id = (uint8_t)stomp_command_of(PyUnicode_1BYTE_DATA(command), (size_t)PyUnicode_GET_LENGTH(command));
    frame->command = command;
    frame->body = body;
    return frame;
}

/* Note how many characters the texts have, and whether all are ASCII, for the writer. */
static void measure_texts(StompFrame *frame)
{
    PyObject *const *text = stomp_frame_texts(frame), *const *last = text + 2 * (size_t)frame->count;
    int ascii = 1;
    uint64_t size = 0;
    for (; text != last; text++) {
        ascii &= PyUnicode_IS_COMPACT_ASCII(*text);
        size += (uint64_t)PyUnicode_GET_LENGTH(*text);
    }
    frame->marks = ascii && size <= UINT32_MAX ? 0 : STOMP_NON_ASCII;
    frame->head = size <= UINT32_MAX ? (uint32_t)size : UINT32_MAX;
}

/* Append a header. Returns 0, or -1 with a TypeError. */
static int add_pair(StompFrame *frame, PyObject *item)
{
    PyObject *pair = PyList_Check(item) ? PyList_AsTuple(item) : PySequence_Fast(item, not_pairs); /* a list may change */
    if (!pair)
        return -1;
    if (PySequence_Fast_GET_SIZE(pair) != 2 || PyUnicode_Check(item)) {
        PyErr_SetString(PyExc_TypeError, not_pairs);
        Py_DECREF(pair);
        return -1;
    }
    PyObject *name = exact_text(PySequence_Fast_GET_ITEM(pair, 0), "header name", NULL);
    PyObject *value = name ? exact_text(PySequence_Fast_GET_ITEM(pair, 1), "value", name) : NULL;
    Py_DECREF(pair);
    if (!value) {
        Py_XDECREF(name);
        return -1;
    }
    PyObject **to = stomp_frame_texts(frame) + 2 * (size_t)frame->count++;
    to[0] = name;
    to[1] = value;
    return 0;
}

static PyObject *frame_of_any(PyObject *command, PyObject *headers, PyObject *body)
{
    PyObject *pairs = NULL;
    StompFrame *frame = NULL;
    command = exact_text(command, "command", NULL);
    body = command ? exact_body(body) : NULL;
    pairs = body ? sequence_of_pairs(headers) : NULL;
    Py_ssize_t count = pairs ? PySequence_Fast_GET_SIZE(pairs) : 0;
    if ((size_t)count > MOST) {
        PyErr_SetString(PyExc_OverflowError, "too many headers");
        Py_CLEAR(pairs);
    }
    if (!pairs) {
        Py_XDECREF(command);
        Py_XDECREF(body);
        return NULL;
    }
    frame = frame_for(command, body, (size_t)count);
    for (Py_ssize_t i = 0; frame && i < count; i++)
        if (add_pair(frame, PySequence_Fast_GET_ITEM(pairs, i)) < 0)
            Py_CLEAR(frame);
    if (frame)
        measure_texts(frame);
    Py_DECREF(pairs);
    return (PyObject *)frame;
}

/* Take the headers from a dict without an object for each pair. Returns 1; 0 if one of them is not an exact str. */
static int take_dict(StompFrame *frame, PyObject *headers)
{
    PyObject *name, *value, **to = stomp_frame_texts(frame);
    Py_ssize_t at = 0;
    while (PyDict_Next(headers, &at, &name, &value)) {
        if (!PyUnicode_CheckExact(name) || !PyUnicode_CheckExact(value))
            return 0;
        *to++ = Py_NewRef(name);
        *to++ = Py_NewRef(value);
        frame->count++;
    }
    return 1;
}

/* Make the frame of an exact str, an exact dict and exact bytes, as most are. *fits is 0 if a header is not an exact str. */
static PyObject *frame_of_dict(PyObject *command, PyObject *headers, PyObject *body, int *fits)
{
    StompFrame *frame = NULL;
    body = exact_body(body);
    if (!body)
        return NULL;
#if PY_VERSION_HEX >= 0x030D0000
    Py_BEGIN_CRITICAL_SECTION(headers);
#endif
    frame = frame_for(Py_NewRef(command), body, (size_t)PyDict_GET_SIZE(headers));
    *fits = !frame || take_dict(frame, headers);
#if PY_VERSION_HEX >= 0x030D0000
    Py_END_CRITICAL_SECTION();
#endif
    if (!*fits)
        Py_CLEAR(frame);
    if (frame)
        measure_texts(frame);
    return (PyObject *)frame;
}

static PyObject *make_frame(PyObject *command, PyObject *headers, PyObject *body)
{
    if (headers && PyUnicode_CheckExact(command) && PyDict_CheckExact(headers) && (!body || PyBytes_CheckExact(body))
        && (size_t)PyDict_GET_SIZE(headers) <= MOST) {
        int fits = 1;
        PyObject *frame = frame_of_dict(command, headers, body, &fits);
        if (fits)
            return frame;
    }
    return frame_of_any(command, headers, body);
}

PyObject *stomp_frame_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"command", "headers", "body", NULL};
    PyObject *command, *headers = NULL, *body = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:Frame", keywords, &command, &headers, &body))
        return NULL;
    return make_frame(command, headers, body);
}

PyObject *stomp_frame_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *names)
{
    const size_t count = (size_t)PyVectorcall_NARGS(nargsf);
    if (!names && count - 1 < 3)
        return make_frame(args[0], count > 1 ? args[1] : NULL, count > 2 ? args[2] : NULL);
    PyObject *tuple = PyTuple_New((Py_ssize_t)count), *kwargs = tuple && names ? PyDict_New() : NULL, *frame = NULL;
    Py_ssize_t named = kwargs ? PyTuple_GET_SIZE(names) : 0;
    int failed = !tuple || (names && !kwargs);
    for (size_t i = 0; !failed && i < count; i++)
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; !failed && i < named; i++)
        failed = PyDict_SetItem(kwargs, PyTuple_GET_ITEM(names, i), args[count + (size_t)i]) < 0;
    if (!failed)
        frame = stomp_frame_new((PyTypeObject *)type, tuple, kwargs);
    Py_XDECREF(tuple);
    Py_XDECREF(kwargs);
    return frame;
}
