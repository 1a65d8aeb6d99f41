/* The headers of a frame: their texts, look-ups, and the type Headers. */
#include "frame.h"
#include "text.h"

/* ======== texts and look-ups ======== */

/* May this text contain non-ASCII characters? */
static inline int is_wide(const StompFrame *frame, const uint8_t *octets, size_t len)
{
    return (frame->marks & STOMP_NON_ASCII) && !stomp_is_ascii(octets, len);
}

static PyObject *text_of(const uint8_t *octets, size_t len, int wide)
{
    PyObject *text;
    if (wide)
        return PyUnicode_DecodeUTF8((const char *)octets, (Py_ssize_t)len, "surrogateescape");
    if (len == 1)
        return PyUnicode_FromOrdinal(*octets); /* a cached singleton */
    text = PyUnicode_New((Py_ssize_t)len, 127);
    if (text)
        memcpy(PyUnicode_1BYTE_DATA(text), octets, len);
    return text;
}

static PyObject *unescaped_text(const StompFrame *frame, const uint8_t *octets, size_t len)
{
    uint8_t few[256];
    uint8_t *room = len <= sizeof few ? few : PyMem_Malloc(len);
    if (!room)
        return PyErr_NoMemory();
    int wide = is_wide(frame, octets, len);
    PyObject *text = text_of(room, stomp_unescape(room, octets, len, frame->level), wide);
    if (room != few)
        PyMem_Free(room);
    return text;
}

/* Header names repeat, and so do the values of some headers: small tables cache their str objects by a hash of their
   bytes. Common names are never replaced, so that a peer that sends ever new names slows only itself. Without the GIL
   only common names are cached. */
#define TEXTS 512u
#define MOST 48 /* bytes of the longest cached text */
struct known_name {
    PyObject *text;
    int common;
    int repeats; /* values are cached too: not secret, and few different ones */
};
static struct known_name names[TEXTS];
#ifndef Py_GIL_DISABLED
static PyObject *values[TEXTS];
#endif

/* Both ends of a text, for its hash; up to 16 bytes they are all of it. */
struct ends {
    uint64_t first, last;
};

static inline struct ends ends_of(const uint8_t *octets, size_t len)
{
    struct ends ends = {0, 0};
    uint32_t half, half_last;
    if (len >= 8) {
        memcpy(&ends.first, octets, 8);
        memcpy(&ends.last, octets + len - 8, 8);
    } else if (len >= 4) {
        memcpy(&half, octets, 4);
        memcpy(&half_last, octets + len - 4, 4);
        ends.first = half;
        ends.last = half_last;
    } else if (len) {
        ends.first = octets[0] | (uint32_t)octets[len / 2] << 8;
        ends.last = octets[len - 1];
    }
    return ends;
}

static inline size_t text_slot(struct ends ends, size_t len)
{
    return (size_t)((((ends.first ^ (ends.last << 1 | ends.last >> 63)) + len) * 0x9E3779B97F4A7C15u) >> 55);
}

static inline int is_text(PyObject *known, const uint8_t *octets, size_t len, struct ends ends)
{
    const uint8_t *text;
    struct ends others;
    uint64_t x, y, other;
    if (!known || (size_t)PyUnicode_GET_LENGTH(known) != len)
        return 0;
    text = (const uint8_t *)((PyASCIIObject *)known + 1);
    others = ends_of(text, len);
    other = (ends.first ^ others.first) | (ends.last ^ others.last);
    for (size_t i = 8; i + 8 < len; i += 8) {
        memcpy(&x, text + i, 8);
        memcpy(&y, octets + i, 8);
        other |= x ^ y;
    }
    return !other;
}

static PyObject *new_name(const uint8_t *name, size_t len, size_t slot)
{
    PyObject *text = text_of(name, len, 0);
    /* not interned: Python 3.12 never frees interned strings, and a peer can send any number of names */
#ifndef Py_GIL_DISABLED
    if (text && !names[slot].common) {
        Py_INCREF(text);
        Py_XSETREF(names[slot].text, text);
    }
#else
    (void)slot;
#endif
    return text;
}

static inline PyObject *known_name(const uint8_t *name, size_t len, int *repeats)
{
    struct ends ends = ends_of(name, len);
    size_t slot = text_slot(ends, len);
    if (!is_text(names[slot].text, name, len, ends))
        return new_name(name, len, slot);
    *repeats = names[slot].repeats;
    return Py_NewRef(names[slot].text);
}

#ifndef Py_GIL_DISABLED
static inline PyObject *known_value(const uint8_t *value, size_t len)
{
    struct ends ends = ends_of(value, len);
    PyObject *text, **slot = &values[text_slot(ends, len)];
    if (is_text(*slot, value, len, ends))
        return Py_NewRef(*slot);
    text = text_of(value, len, 0);
    if (text) {
        Py_INCREF(text);
        Py_XSETREF(*slot, text);
    }
    return text;
}
#endif

/* An entry with an escape may have a name without one. */
static inline PyObject *name_text(const StompFrame *frame, const struct frame_entry *e, int escaped, int *repeats)
{
    if (escaped && memchr(e->name, '\\', e->name_len))
        return unescaped_text(frame, e->name, e->name_len);
    int wide = is_wide(frame, e->name, e->name_len);
    return wide || e->name_len > MOST ? text_of(e->name, e->name_len, wide) : known_name(e->name, e->name_len, repeats);
}

static inline PyObject *value_text(const StompFrame *frame, const struct frame_entry *e, int escaped, int repeats)
{
    if (escaped && memchr(e->value, '\\', e->value_len))
        return unescaped_text(frame, e->value, e->value_len);
    int wide = is_wide(frame, e->value, e->value_len);
#ifndef Py_GIL_DISABLED
    if (repeats && !wide && e->value_len <= MOST)
        return known_value(e->value, e->value_len);
#else
    (void)repeats;
#endif
    return text_of(e->value, e->value_len, wide);
}

int stomp_known_names(void)
{
    static const struct {
        const char *text;
        int repeats;
    } common[] = {
        {"destination", 1}, {"subscription", 1},   {"content-type", 1},   {"content-encoding", 1},
        {"persistent", 1},  {"priority", 1},       {"redelivered", 1},    {"type", 1},
        {"browser", 1},     {"version", 1},        {"heart-beat", 1},     {"accept-version", 1},
        {"host", 1},        {"content-length", 0}, {"message-id", 0},     {"id", 0},
        {"ack", 0},         {"receipt", 0},        {"receipt-id", 0},     {"transaction", 0},
        {"session", 0},     {"login", 0},          {"message", 0},        {"timestamp", 0},
        {"expires", 0},     {"reply-to", 0},       {"correlation-id", 0}, {"selector", 0},
        {"username", 0},
    };
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        size_t len = strlen(common[i].text);
        struct known_name *name = &names[text_slot(ends_of((const uint8_t *)common[i].text, len), len)];
        PyObject *text = PyUnicode_InternFromString(common[i].text);
        if (!text)
            return -1;
        Py_XSETREF(name->text, text);
        name->common = 1;
        name->repeats = common[i].repeats;
    }
    return 0;
}

PyObject *stomp_entry_text(StompFrame *frame, uint32_t i, struct frame_entry *e, int which)
{
    int repeats = 0, escaped;
    if (frame->kind == FRAME_TEXT)
        return Py_NewRef(stomp_frame_texts(frame)[2 * i + (uint32_t)which]);
    escaped = entry_has_escape(frame, e);
    return which ? value_text(frame, e, escaped, 0) : name_text(frame, e, escaped, &repeats);
}

/* Make name and value as new references, NULL on failure. Returns 0 or -1. */
static inline int entry_pair(StompFrame *frame, uint32_t i, struct frame_entry *e, PyObject *pair[2])
{
    int repeats = 0, escaped;
    if (frame->kind == FRAME_TEXT) {
        pair[0] = Py_NewRef(stomp_frame_texts(frame)[2 * i]);
        pair[1] = Py_NewRef(stomp_frame_texts(frame)[2 * i + 1]);
        return 0;
    }
    escaped = entry_has_escape(frame, e);
    pair[0] = name_text(frame, e, escaped, &repeats);
    pair[1] = pair[0] ? value_text(frame, e, escaped, repeats) : NULL;
    return pair[1] ? 0 : -1;
}

int stomp_fill_dict(PyObject *dict, StompFrame *frame)
{
    struct frame_entry e = {0};
    size_t from = frame->first;
    PyObject *pair[2];
    for (uint32_t i = 0; i < frame->count; i++) {
        int failed;
        if (frame->kind != FRAME_TEXT)
            from = stomp_frame_entry(frame, i, from, &e);
        failed = entry_pair(frame, i, &e, pair) < 0 || !PyDict_SetDefault(dict, pair[0], pair[1]);
        Py_XDECREF(pair[0]);
        Py_XDECREF(pair[1]);
        if (failed)
            return -1;
    }
    return 0;
}

PyObject *stomp_find(StompFrame *frame, PyObject *name)
{
    struct wanted w;
    struct frame_entry e = {0};
    size_t from = frame->first;
    if (want(&w, name) < 0)
        return NULL;
    for (uint32_t i = 0; i < frame->count; i++) {
        if (frame->kind != FRAME_TEXT)
            from = stomp_frame_entry(frame, i, from, &e);
        int hit = is_called(frame, i, &e, &w);
        if (hit < 0)
            return NULL;
        if (hit) {
            e.slash = frame->level ? memchr(e.value, '\\', e.value_len) : NULL; /* within this entry */
            e.slash = e.slash ? e.slash : e.value + e.value_len;
            return stomp_entry_text(frame, i, &e, 1);
        }
    }
    return NULL;
}

int stomp_has_any(StompFrame *frame, PyObject *const *names, Py_ssize_t count)
{
    struct wanted wanted[16];
    while (count > 0) { /* one pass over the entries for all names, or for a batch of them */
        struct frame_entry e = {0};
        size_t from = frame->first;
        int many = 0;
        for (; count > 0 && many < (int)(sizeof wanted / sizeof *wanted); names++, count--)
            if (want(&wanted[many++], *names) < 0)
                return -1;
        for (uint32_t i = 0; i < frame->count; i++) {
            if (frame->kind != FRAME_TEXT)
                from = stomp_frame_entry(frame, i, from, &e);
            for (int k = 0; k < many; k++) {
                int hit = is_called(frame, i, &e, &wanted[k]);
                if (hit)
                    return hit;
            }
        }
    }
    return 0;
}

PyObject *stomp_all_entries(StompFrame *frame, int which)
{
    struct frame_entry e = {0};
    size_t from = frame->first;
    PyObject *list = PyList_New(frame->count);
    for (uint32_t i = 0; list && i < frame->count; i++) {
        PyObject *item, *pair[2];
        if (frame->kind != FRAME_TEXT)
            from = stomp_frame_entry(frame, i, from, &e);
        if (which < 2) {
            item = stomp_entry_text(frame, i, &e, which);
        } else {
            item = entry_pair(frame, i, &e, pair) == 0 ? PyTuple_Pack(2, pair[0], pair[1]) : NULL;
            Py_XDECREF(pair[0]);
            Py_XDECREF(pair[1]);
        }
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

/* ======== the type ======== */

typedef struct {
    PyDictObject dict; /* the first value of each name */
    PyObject *pairs;   /* list of all entries, or NULL if no name is repeated */
} Headers;

static PyObject *headers_repr, *empty_tuple;
#ifdef STOMP_FREE_LIST
static PyObject *free_headers; /* empty; one is enough for a loop that drops each frame before the next */
#endif

/* Make empty headers that the garbage collector does not track. */
static PyObject *empty_headers(void)
{
    PyObject *headers;
#ifdef STOMP_FREE_LIST
    if (free_headers) {
        headers = free_headers;
        free_headers = NULL;
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
    if (headers && (size_t)PyDict_GET_SIZE(headers) != frame->count
        && !(((Headers *)headers)->pairs = stomp_all_entries(frame, 2)))
        Py_CLEAR(headers);
    return headers;
}

/* Python code can write into headers around their type: eval() with them as globals, `__dict__`, dict.__setitem__. If
   it has put in what the collector tracks, it tracks the headers, too, and they must not be kept. */
static void headers_dealloc(PyObject *headers)
{
#ifdef STOMP_FREE_LIST
    const int is_ours = !PyObject_GC_IsTracked(headers);
#endif
    PyObject_GC_UnTrack(headers);
    Py_CLEAR(((Headers *)headers)->pairs);
#ifdef STOMP_FREE_LIST
    if (is_ours && !free_headers) {
        PyDict_Clear(headers);
        if (!free_headers) { /* a value that was put in may run code as it goes */
            free_headers = headers;
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
    if (!PyUnicode_Check(name))
        return PyErr_Format(PyExc_TypeError, "name must be str, not %.100s", Py_TYPE(name)->tp_name);
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
#define REFUSED(name)                                                                                                  \
    METHOD(name, read_only, METH_VARARGS | METH_KEYWORDS,                                                              \
           name "($self, /, *args, **kwargs)\n--\n\nRaise TypeError: headers are read-only.")

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
    .tp_doc =
        "Headers()\n--\n\n"
        "The headers of a frame: a read-only dict, in which the first entry of a repeated name counts (S12-HDR-02).\n"
        "\n"
        "`pairs()` and `getall()` return repeated entries too. Its methods do not write, but Python itself does:\n"
        "`eval(code, headers)`, `dict.__setitem__` and an object whose `__dict__` they are. Give those a copy:\n"
        "`dict(headers)`.\n"
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
