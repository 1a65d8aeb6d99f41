#include "headers_object.h"

#include "frame_entries.h"

static PyObject *headers_repr;

typedef struct {
    PyObject_HEAD
    StompFrame *frame;
    uint32_t next; /* entry that is likely asked for next */
    size_t from;   /* where it begins */
    int distinct;  /* no name comes twice, so `next` may be trusted */
} Headers;

#ifndef Py_GIL_DISABLED
static Headers *spare; /* one is made and dropped for each look at frame.headers */
#endif

PyObject *stomp_headers_of(StompFrame *frame, void *Py_UNUSED(closure))
{
    Headers *headers;
#ifndef Py_GIL_DISABLED
    headers = spare;
    if (headers) {
        spare = NULL;
        (void)PyObject_Init((PyObject *)headers, &StompHeaders_Type);
    } else
#endif
        headers = PyObject_New(Headers, &StompHeaders_Type);
    if (!headers)
        return NULL;
    headers->frame = (StompFrame *)Py_NewRef((PyObject *)frame);
    headers->next = 0;
    headers->from = frame->first;
    headers->distinct = 0;
    return (PyObject *)headers;
}

static void headers_dealloc(Headers *headers)
{
    Py_DECREF((PyObject *)headers->frame);
#ifndef Py_GIL_DISABLED
    if (!spare) {
        spare = headers;
        return;
    }
#endif
    PyObject_Free(headers);
}

/* Does some name come twice? Only for few headers without escapes; else says yes. */
static int may_repeat(StompFrame *frame)
{
    struct frame_entry all[12];
    size_t from = frame->first;
    if (frame->count > 12 || frame->level || frame->kind == FRAME_TEXT)
        return 1;
    for (uint32_t i = 0; i < frame->count; i++) {
        from = stomp_frame_entry(frame, i, from, &all[i]);
        for (uint32_t j = 0; j < i; j++)
            if (all[i].name_len == all[j].name_len && !memcmp(all[i].name, all[j].name, all[i].name_len))
                return 1;
    }
    return 0;
}

static PyObject *headers_keys(Headers *headers, PyObject *Py_UNUSED(ignored))
{
    headers->next = 0;
    headers->from = headers->frame->first;
    headers->distinct = !may_repeat(headers->frame);
    if (headers->distinct)
        return stomp_all_entries(headers->frame, 0);
    PyObject *dict = stomp_as_dict(headers->frame);
    PyObject *keys = dict ? PyDict_Keys(dict) : NULL;
    if (dict)
        headers->distinct = PyDict_GET_SIZE(dict) == headers->frame->count;
    Py_XDECREF(dict);
    return keys;
}

static PyObject *headers_subscript(Headers *headers, PyObject *name)
{
    StompFrame *frame = headers->frame;
    struct wanted w;
    struct frame_entry e = {0};
    if (headers->distinct && headers->next < frame->count && want(&w, name) == 0) {
        uint32_t i = headers->next;
        size_t from = frame->kind == FRAME_TEXT ? 0 : stomp_frame_entry(frame, i, headers->from, &e);
        if (is_called(frame, i, &e, &w) == 1) {
            headers->next = i + 1;
            headers->from = from;
            return stomp_entry_text(frame, i, &e, 1);
        }
        PyErr_Clear();
    }
    PyObject *value = stomp_find(frame, name);
    if (!value && !PyErr_Occurred())
        PyErr_SetObject(PyExc_KeyError, name);
    return value;
}

static Py_ssize_t headers_length(Headers *headers)
{
    if (headers->distinct || !may_repeat(headers->frame))
        return headers->frame->count;
    PyObject *dict = stomp_as_dict(headers->frame);
    Py_ssize_t size = dict ? PyDict_GET_SIZE(dict) : -1;
    Py_XDECREF(dict);
    return size;
}

static int headers_contains(Headers *headers, PyObject *name)
{
    PyObject *value = stomp_find(headers->frame, name);
    if (!value)
        return PyErr_Occurred() ? -1 : 0;
    Py_DECREF(value);
    return 1;
}

static PyObject *headers_iter(Headers *headers)
{
    PyObject *keys = headers_keys(headers, NULL);
    PyObject *iter = keys ? PyObject_GetIter(keys) : NULL;
    Py_XDECREF(keys);
    return iter;
}

static PyObject *headers_get(Headers *headers, PyObject *const *args, Py_ssize_t nargs)
{
    return stomp_frame_get(headers->frame, args, nargs);
}

static PyObject *headers_pairs(Headers *headers, PyObject *Py_UNUSED(ignored))
{
    return stomp_all_entries(headers->frame, 2);
}

PyObject *stomp_headers_pairs(PyObject *headers)
{
    return stomp_all_entries(((Headers *)headers)->frame, 2);
}

static PyObject *headers_values(Headers *headers, PyObject *Py_UNUSED(ignored))
{
    if (headers->distinct || !may_repeat(headers->frame))
        return stomp_all_entries(headers->frame, 1);
    PyObject *dict = stomp_as_dict(headers->frame);
    PyObject *values = dict ? PyDict_Values(dict) : NULL;
    Py_XDECREF(dict);
    return values;
}

static PyObject *headers_items(Headers *headers, PyObject *Py_UNUSED(ignored))
{
    if (headers->distinct || !may_repeat(headers->frame))
        return stomp_all_entries(headers->frame, 2);
    PyObject *dict = stomp_as_dict(headers->frame);
    PyObject *items = dict ? PyDict_Items(dict) : NULL;
    Py_XDECREF(dict);
    return items;
}

static PyObject *headers_getall(Headers *headers, PyObject *name)
{
    StompFrame *frame = headers->frame;
    struct wanted w;
    struct frame_entry e = {0};
    size_t from = frame->first;
    PyObject *list = PyList_New(0);
    if (want(&w, name) < 0)
        return list;
    for (uint32_t i = 0; list && i < frame->count; i++) {
        if (frame->kind != FRAME_TEXT)
            from = stomp_frame_entry(frame, i, from, &e);
        int hit = is_called(frame, i, &e, &w);
        PyObject *value = hit > 0 ? stomp_entry_text(frame, i, &e, 1) : NULL;
        if (hit < 0 || (hit && (!value || PyList_Append(list, value) < 0)))
            Py_CLEAR(list);
        Py_XDECREF(value);
    }
    return list;
}

static PyObject *headers_richcompare(PyObject *a, PyObject *b, int op)
{
    if (op != Py_EQ && op != Py_NE)
        Py_RETURN_NOTIMPLEMENTED;
    if (!PyMapping_Check(b) || !(PyDict_Check(b) || PyObject_HasAttrString(b, "keys")))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *mine = stomp_as_dict(((Headers *)a)->frame), *other = mine ? PyDict_New() : NULL, *answer = NULL;
    if (other && PyDict_Update(other, b) == 0)
        answer = PyObject_RichCompare(mine, other, op);
    Py_XDECREF(mine);
    Py_XDECREF(other);
    return answer;
}

static PyObject *headers_repr_(Headers *headers)
{
    PyObject *pairs = stomp_all_entries(headers->frame, 2);
    PyObject *text = pairs ? PyObject_CallOneArg(headers_repr, pairs) : NULL;
    Py_XDECREF(pairs);
    return text;
}

#define METHOD(name, function, flags, doc) {name, (PyCFunction)(void (*)(void))(function), flags, doc}

static PyMethodDef headers_methods[] = {
    METHOD("get", headers_get, METH_FASTCALL, "get($self, name, default=None, /)\n--\n\nThe first value of that name, or the default."),
    METHOD("keys", headers_keys, METH_NOARGS, "keys($self, /)\n--\n\nEvery name once, in order, as a list."),
    METHOD("values", headers_values, METH_NOARGS, "values($self, /)\n--\n\nThe first value of every name, as a list."),
    METHOD("items", headers_items, METH_NOARGS, "items($self, /)\n--\n\nEvery name with its first value, as a list."),
    METHOD("pairs", headers_pairs, METH_NOARGS, "pairs($self, /)\n--\n\nEvery entry in order, repeats kept, as a list."),
    METHOD("getall", headers_getall, METH_O, "getall($self, name, /)\n--\n\nEvery value of that name in order, as a list."),
    {NULL, NULL, 0, NULL},
};

static PyMappingMethods headers_mapping = {
    .mp_length = (lenfunc)(void (*)(void))headers_length,
    .mp_subscript = (binaryfunc)(void (*)(void))headers_subscript,
};

static PySequenceMethods headers_sequence = {
    .sq_contains = (objobjproc)(void (*)(void))headers_contains,
};

PyTypeObject StompHeaders_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "stompcodec.Headers",
    .tp_basicsize = sizeof(Headers),
#if PY_VERSION_HEX >= 0x030A0000
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_MAPPING,
#endif
    .tp_doc = "The headers of a frame, read-only and in order.",
    .tp_dealloc = (destructor)(void (*)(void))headers_dealloc,
    .tp_methods = headers_methods,
    .tp_as_mapping = &headers_mapping,
    .tp_as_sequence = &headers_sequence,
    .tp_iter = (getiterfunc)(void (*)(void))headers_iter,
    .tp_richcompare = headers_richcompare,
    .tp_hash = PyObject_HashNotImplemented,
    .tp_repr = (reprfunc)(void (*)(void))headers_repr_,
};

int stomp_headers_init(PyObject *helpers)
{
    headers_repr = PyObject_GetAttrString(helpers, "headers_repr");
    return headers_repr ? PyType_Ready(&StompHeaders_Type) : -1;
}
