#include "headers_object.h"

#include "frame_entries.h"

typedef struct {
    PyDictObject dict; /* the first value of each name */
    PyObject *pairs;   /* list of all entries, or NULL if no name is repeated */
} Headers;

static PyObject *headers_repr, *empty_tuple;
#ifdef STOMP_SPARE_OBJECTS
static PyObject *spare_headers; /* empty; one is enough for a loop that drops each frame before the next */
#endif

/* Make empty headers that the garbage collector does not track. */
static PyObject *empty_headers(void)
{
    PyObject *headers;
#ifdef STOMP_SPARE_OBJECTS
    if (spare_headers) {
        headers = spare_headers;
        spare_headers = NULL;
        Py_SET_REFCNT(headers, 1);
        return headers;
    }
#endif
    headers = PyDict_Type.tp_new(&StompHeaders_Type, empty_tuple, NULL);
    if (headers)
        PyObject_GC_UnTrack(headers);
    return headers;
}

PyObject *stomp_headers_new(StompFrame *frame)
{
    PyObject *headers = empty_headers();
    if (headers && stomp_fill_dict(headers, frame) < 0)
        Py_CLEAR(headers);
    if (headers && (size_t)PyDict_GET_SIZE(headers) != frame->count && !(((Headers *)headers)->pairs = stomp_all_entries(frame, 2)))
        Py_CLEAR(headers);
    return headers;
}

/* Python code can write into headers around their type: eval() with them as globals, `__dict__`, dict.__setitem__. If it has put in
   what the collector tracks, it tracks the headers, too, and they must not be kept. */
static void headers_dealloc(PyObject *headers)
{
#ifdef STOMP_SPARE_OBJECTS
    const int is_ours = !PyObject_GC_IsTracked(headers);
#endif
    PyObject_GC_UnTrack(headers);
    Py_CLEAR(((Headers *)headers)->pairs);
#ifdef STOMP_SPARE_OBJECTS
    if (is_ours && !spare_headers) {
        PyDict_Clear(headers);
        if (!spare_headers) { /* a value that was put in may run code as it goes */
            spare_headers = headers;
            return;
        }
    }
#endif
    PyDict_Type.tp_dealloc(headers);
}

int stomp_has_keys(PyObject *object)
{
    PyObject *keys = PyObject_GetAttrString(object, "keys");
    if (keys) {
        Py_DECREF(keys);
        return 1;
    }
    if (!PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();
    return 0;
}

PyObject *stomp_headers_pairs(PyObject *headers)
{
    PyObject *pairs = ((Headers *)headers)->pairs;
    return pairs ? PySequence_List(pairs) : PyDict_Items(headers);
}

static PyObject *headers_pairs(PyObject *headers, PyObject *Py_UNUSED(ignored))
{
    return stomp_headers_pairs(headers);
}

static PyObject *headers_getall(PyObject *headers, PyObject *name)
{
    PyObject *pairs = stomp_headers_pairs(headers), *list = pairs ? PyList_New(0) : NULL;
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(pairs); i++) {
        PyObject *pair = PyList_GET_ITEM(pairs, i);
        int same = PyObject_RichCompareBool(PyTuple_GET_ITEM(pair, 0), name, Py_EQ);
        if (same < 0 || (same && PyList_Append(list, PyTuple_GET_ITEM(pair, 1)) < 0))
            Py_CLEAR(list);
    }
    Py_XDECREF(pairs);
    return list;
}

static PyObject *headers_richcompare(PyObject *a, PyObject *b, int op)
{
    PyObject *other, *answer = NULL;
    int mapping;
    if (PyDict_Check(b))
        return PyDict_Type.tp_richcompare(a, b, op);
    mapping = (op == Py_EQ || op == Py_NE) && PyMapping_Check(b) ? stomp_has_keys(b) : 0;
    if (!mapping)
        Py_RETURN_NOTIMPLEMENTED;
    other = mapping > 0 ? PyDict_New() : NULL;
    if (other && PyDict_Update(other, b) == 0)
        answer = PyDict_Type.tp_richcompare(a, other, op);
    Py_XDECREF(other);
    return answer;
}

static PyObject *headers_repr_(PyObject *headers)
{
    PyObject *pairs = stomp_headers_pairs(headers);
    PyObject *text = pairs ? PyObject_CallOneArg(headers_repr, pairs) : NULL;
    Py_XDECREF(pairs);
    return text;
}

static PyObject *headers_reduce(PyObject *headers, PyObject *Py_UNUSED(ignored))
{
    PyObject *plain = PyDict_Copy(headers);
    return plain ? Py_BuildValue("O(N)", &PyDict_Type, plain) : NULL;
}

/* ---- methods of dict that headers refuse ---- */

static PyObject *read_only(PyObject *Py_UNUSED(headers), PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    PyErr_SetString(PyExc_TypeError, "headers are read-only: make a new Frame");
    return NULL;
}

static int refuse_item(PyObject *Py_UNUSED(headers), PyObject *Py_UNUSED(name), PyObject *Py_UNUSED(value))
{
    (void)read_only(NULL, NULL, NULL);
    return -1;
}

static PyObject *refuse_update(PyObject *Py_UNUSED(headers), PyObject *Py_UNUSED(other))
{
    return read_only(NULL, NULL, NULL);
}

#define METHOD(name, function, flags, doc) {name, (PyCFunction)(void (*)(void))function, flags, doc}
#define REFUSED(name) METHOD(name, read_only, METH_VARARGS | METH_KEYWORDS, name "($self, /, *args, **kwargs)\n--\n\nRaise TypeError: headers are read-only.")

static PyMethodDef headers_methods[] = {
    METHOD("pairs", headers_pairs, METH_NOARGS,
           "pairs($self, /)\n--\n\n"
           "Return all entries as (name, value), in order, repeated names included."),
    METHOD("getall", headers_getall, METH_O,
           "getall($self, name, /)\n--\n\n"
           "Return the values of all entries of a name, in order."),
    METHOD("__reduce__", headers_reduce, METH_NOARGS, NULL),
    REFUSED("clear"),
    REFUSED("pop"),
    REFUSED("popitem"),
    REFUSED("setdefault"),
    REFUSED("update"),
    {NULL, NULL, 0, NULL},
};

static PyMappingMethods headers_mapping = {.mp_ass_subscript = refuse_item};
static PyNumberMethods headers_number = {.nb_inplace_or = refuse_update};

PyTypeObject StompHeaders_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "stompcodec.Headers",
    .tp_basicsize = sizeof(Headers),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Headers()\n--\n\n"
              "The headers of a frame: a read-only dict, in which the first entry of a repeated name counts (S12-HDR-02).\n"
              "\n"
              "`pairs()` and `getall()` return repeated entries too. Its methods do not write, but Python itself does: `eval(code,\n"
              "headers)`, `dict.__setitem__` and an object whose `__dict__` they are. Give those a copy: `dict(headers)`.\n"
              "\n"
              ">>> headers = Frame(\"SEND\", [(\"a\", \"1\"), (\"b\", \"2\"), (\"a\", \"3\")]).headers\n"
              ">>> headers[\"a\"], len(headers), headers.getall(\"a\"), dict(headers)\n"
              "('1', 2, ['1', '3'], {'a': '1', 'b': '2'})",
    .tp_dealloc = headers_dealloc,
    .tp_methods = headers_methods,
    .tp_as_mapping = &headers_mapping,
    .tp_as_number = &headers_number,
    .tp_init = refuse_item,
    .tp_richcompare = headers_richcompare,
    .tp_hash = PyObject_HashNotImplemented,
    .tp_repr = headers_repr_,
};

int stomp_headers_init(PyObject *helpers)
{
    headers_repr = PyObject_GetAttrString(helpers, "headers_repr");
    empty_tuple = PyTuple_New(0);
    StompHeaders_Type.tp_base = &PyDict_Type;
    /* Slots are inherited, except in the two tables that we define, which are filled by hand. */
    headers_mapping.mp_length = PyDict_Type.tp_as_mapping->mp_length;
    headers_mapping.mp_subscript = PyDict_Type.tp_as_mapping->mp_subscript;
    return headers_repr && empty_tuple ? PyType_Ready(&StompHeaders_Type) : -1;
}
