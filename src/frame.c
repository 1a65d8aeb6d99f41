/* Frames: bytes objects that grow, the type, frames from the scanner and from Python objects. */
#include "frame.h"

#include <stdlib.h>
#include <string.h>

#include "simd.h"

/* ======== bytes objects ======== */

enum { PAGE = 4096, SPARE = 2 };

/* glibc reuses freed blocks only up to the size of the largest block that was ever freed; larger blocks are mapped
   anew, page by page, each time. A block that was shrunk counts with its smaller size when it is freed. So a block of
   each new largest size is freed first; it costs no pages, since nothing is written into it. It is SPARE times as
   large, because glibc gives the end of the heap back when twice the size of that block is free there, which it is as
   soon as a body that grew is freed with the block that it grew out of: each body would fault in its pages again (165
   faults for a body of 1 MiB, 0 with it). Where pointers have 32 bits, glibc maps every block above 512 KiB anew, so
   this helps smaller ones only. */
static void keep_in_the_heap(size_t room)
{
#ifndef Py_GIL_DISABLED
    static size_t largest;
    if (room <= largest)
        return;
    largest = room;
    /* volatile: else the compiler leaves out both calls */
    void *volatile block = malloc(SPARE * room + sizeof(PyBytesObject));
    free(block);
#else
    (void)room;
#endif
}

PyObject *stomp_bytes_new(size_t room)
{
    keep_in_the_heap(room);
    return PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
}

int stomp_bytes_end(PyObject **bytes, size_t room, size_t len)
{
    PyObject *copy;
    if (room - len < PAGE && room - len <= room / 16) { /* not worth a call of realloc */
        Py_SET_SIZE((PyVarObject *)*bytes, (Py_ssize_t)len);
        PyBytes_AS_STRING(*bytes)[len] = 0;
        return 0;
    }
    if (room - len <= len) { /* otherwise the freed rest would be a hole in the heap */
        keep_in_the_heap(room);
        return _PyBytes_Resize(bytes, (Py_ssize_t)len);
    }
    copy = PyBytes_FromStringAndSize(PyBytes_AS_STRING(*bytes), (Py_ssize_t)len);
    Py_DECREF(*bytes);
    *bytes = copy;
    return copy ? 0 : -1;
}

/* ======== Frame ======== */

static PyObject *commands[STOMP_COMMANDS]; /* interned */
static PyObject *frame_repr;

/* ---- making frames ---- */

#define CACHED 512 /* bytes: the largest block that Python's allocator keeps for small objects */
#ifdef STOMP_FREE_LIST
static StompFrame *free_frame; /* enough for a loop that drops each frame before the next */
#endif

static STOMP_NOINLINE StompFrame *fresh_frame(size_t size)
{
    StompFrame *frame = PyObject_Malloc(16 * size);
    if (!frame) {
        PyErr_NoMemory();
        return NULL;
    }
    (void)PyObject_Init((PyObject *)frame, &StompFrame_Type);
    frame->headers = NULL;
    frame->room = size <= CACHED / 16 ? (uint8_t)size : 0;
    return frame;
}

static inline StompFrame *new_frame(size_t extra)
{
    size_t size = (sizeof(StompFrame) + extra + 15) / 16;
#ifdef STOMP_FREE_LIST
    StompFrame *frame = free_frame;
    if (frame && frame->room >= size && frame->room < size + 16) {
        free_frame = NULL;
        frame->headers = NULL;
        Py_SET_REFCNT((PyObject *)frame, 1);
        return frame;
    }
#endif
    return fresh_frame(size);
}

StompFrame *stomp_frame_alloc(size_t extra)
{
    return new_frame(extra);
}

static STOMP_NOINLINE PyObject *command_text(const struct stomp_scan *scan, const struct stomp_rules *rules,
                                             const uint8_t *data)
{
    PyObject *raw = PyUnicode_DecodeUTF8((const char *)data, (Py_ssize_t)scan->command_len, "surrogateescape");
    if (!raw || !(rules->flags & STOMP_LEGACY))
        return raw;
    Py_ssize_t len = PyUnicode_GET_LENGTH(raw);
    PyObject *folded = PyUnicode_New(len, PyUnicode_MAX_CHAR_VALUE(raw));
    for (Py_ssize_t i = 0; folded && i < len; i++) {
        Py_UCS4 c = PyUnicode_READ_CHAR(raw, i);
        PyUnicode_WRITE(PyUnicode_KIND(folded), PyUnicode_DATA(folded), i, c >= 'a' && c <= 'z' ? c - 32 : c);
    }
    Py_DECREF(raw);
    return folded;
}

/* Copy the header lines one by one, as name, colon, value; names in lower case for the legacy dialect. */
static size_t copy_lines(uint8_t *out, const struct stomp_scan *scan, const uint8_t *data, int fold)
{
    uint8_t *to = out;
    struct stomp_header at;
    size_t from = 0;
    for (uint32_t i = 0; i < scan->count; i++) {
        from = stomp_header_of(scan, data, i, from, &at);
        for (size_t j = at.name; fold && j < at.colon; j++)
            to[j - at.name] = data[j] >= 'A' && data[j] <= 'Z' ? data[j] + 32 : data[j];
        if (!fold)
            memcpy(to, data + at.name, at.colon - at.name);
        to += at.colon - at.name;
        *to++ = ':';
        memcpy(to, data + at.value, at.end - at.value);
        to += at.end - at.value;
        *to++ = '\n';
    }
    return (size_t)(to - out);
}

/* Pack two offsets as a frame stores them: the colon first. */
static inline uint32_t offsets_16(uint32_t colon, uint32_t end)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return colon << 16 | end;
#else
    return colon | end << 16;
#endif
}

static inline StompFrame *frame_of(const struct stomp_scan *scan, const struct stomp_rules *rules, PyObject *body,
                                   int kind, size_t head)
{
    StompFrame *frame = new_frame((kind == FRAME_WIDE16 ? 4 : 8) * (size_t)scan->count + head);
    if (!frame) {
        Py_XDECREF(body);
        return NULL;
    }
    frame->body = body;
    frame->count = scan->count;
    frame->kind = (uint8_t)kind;
    frame->level = (uint8_t)(scan->marks & STOMP_ESCAPED ? rules->escapes : 0);
    frame->marks = (uint8_t)scan->marks;
    frame->command_id = (uint8_t)scan->command;
    frame->first = 0;
    frame->head = (uint32_t)head;
    frame->command = NULL;
    return frame;
}

/* Make a frame whose lines must be copied one by one: some were trimmed, skipped or folded, or the head is large. */
static STOMP_NOINLINE StompFrame *frame_of_lines(const struct stomp_scan *scan, const struct stomp_rules *rules,
                                                 const uint8_t *data, PyObject *body, size_t head)
{
    size_t from = 0, end = 0;
    struct stomp_header at;
    int kind = head <= UINT16_MAX ? FRAME_WIDE16 : FRAME_WIDE32;
    StompFrame *frame = frame_of(scan, rules, body, kind, head);
    if (!frame)
        return NULL;
    frame->head =
        (uint32_t)copy_lines((uint8_t *)(uintptr_t)stomp_frame_lines(frame), scan, data, rules->flags & STOMP_LEGACY);
    for (uint32_t i = 0; i < scan->count; i++) {
        from = stomp_header_of(scan, data, i, from, &at);
        size_t colon = end + at.colon - at.name;
        end = colon + 1 + at.end - at.value;
        if (kind == FRAME_WIDE16) {
            ((uint32_t *)(void *)(frame + 1))[i] = offsets_16((uint32_t)colon, (uint32_t)end);
        } else {
            ((uint32_t *)(void *)(frame + 1))[2 * i] = (uint32_t)colon;
            ((uint32_t *)(void *)(frame + 1))[2 * i + 1] = (uint32_t)end;
        }
        end++;
    }
    return frame;
}

PyObject *stomp_frame_from_scan(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *data,
                                PyObject *body)
{
    uint32_t count = scan->count;
    size_t head = count ? scan->lines[count - 1].end + (size_t)1 : 0;
    StompFrame *frame;
    if (!(scan->marks & STOMP_CHANGED) && head <= UINT16_MAX) {
        frame = frame_of(scan, rules, body, FRAME_WIDE16, head);
        if (!frame)
            return NULL;
        uint32_t *at = (uint32_t *)(void *)(frame + 1);
        for (uint32_t i = 0; i < count; i++)
            at[i] = offsets_16(scan->lines[i].colon, scan->lines[i].end);
        memcpy(at + count, data, head);
        frame->first = (uint16_t)(count ? scan->first : 0);
    } else {
        frame = frame_of_lines(scan, rules, data, body, head);
        if (!frame)
            return NULL;
    }
    frame->command =
        scan->command < STOMP_COMMANDS ? Py_NewRef(commands[scan->command]) : command_text(scan, rules, data);
    if (!frame->command)
        Py_CLEAR(frame);
    return (PyObject *)frame;
}

static void frame_dealloc(StompFrame *frame)
{
    if (frame->kind == FRAME_TEXT)
        for (uint32_t i = 0; i < 2 * frame->count; i++)
            Py_DECREF(stomp_frame_texts(frame)[i]);
    Py_XDECREF(frame->command);
    Py_XDECREF(frame->body);
    Py_XDECREF(frame->headers);
#ifdef STOMP_FREE_LIST
    if (!free_frame || free_frame->room < frame->room) { /* keep the larger one */
        StompFrame *other = free_frame;
        free_frame = frame->room ? frame : other;
        frame = frame->room ? other : frame;
        if (!frame)
            return;
    }
#endif
    PyObject_Free(frame);
}

/* ---- reading frames ---- */

PyObject *stomp_frame_get(StompFrame *frame, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 1 || nargs > 2)
        return PyErr_Format(PyExc_TypeError, "get() takes 1 or 2 arguments, not %zd", nargs);
    PyObject *value = stomp_find(frame, args[0]);
    if (value || PyErr_Occurred())
        return value;
    return Py_NewRef(nargs == 2 ? args[1] : Py_None);
}

static PyObject *frame_has_any(StompFrame *frame, PyObject *const *args, Py_ssize_t nargs)
{
    int has = stomp_has_any(frame, args, nargs);
    return has < 0 ? NULL : PyBool_FromLong(has);
}

static PyObject *frame_command(StompFrame *frame, void *Py_UNUSED(closure))
{
    return Py_NewRef(frame->command);
}

static PyObject *frame_headers(StompFrame *frame, void *Py_UNUSED(closure))
{
    PyObject *headers;
#if PY_VERSION_HEX >= 0x030D0000
    Py_BEGIN_CRITICAL_SECTION(frame);
#endif
    if (!frame->headers)
        frame->headers = stomp_headers_new(frame);
    headers = Py_XNewRef(frame->headers);
#if PY_VERSION_HEX >= 0x030D0000
    Py_END_CRITICAL_SECTION();
#endif
    return headers;
}

static PyObject *frame_body(StompFrame *frame, void *Py_UNUSED(closure))
{
    return Py_NewRef(frame->body ? frame->body : Py_None);
}

static PyObject *frame_as_tuple(StompFrame *frame)
{
    PyObject *pairs = stomp_all_entries(frame, 2);
    PyObject *as_tuple = pairs ? PyList_AsTuple(pairs) : NULL;
    PyObject *all = as_tuple ? PyTuple_Pack(3, frame->command, as_tuple, frame->body ? frame->body : Py_None) : NULL;
    Py_XDECREF(pairs);
    Py_XDECREF(as_tuple);
    return all;
}

static PyObject *frame_richcompare(PyObject *a, PyObject *b, int op)
{
    if (!Py_IS_TYPE(b, &StompFrame_Type) || !Py_IS_TYPE(a, &StompFrame_Type) || (op != Py_EQ && op != Py_NE))
        Py_RETURN_NOTIMPLEMENTED;
    StompFrame *x = (StompFrame *)a, *y = (StompFrame *)b;
    PyObject *p = NULL, *q = NULL, *answer = NULL;
    if (a == b || x->count != y->count)
        return PyBool_FromLong((a == b) == (op == Py_EQ));
    p = frame_as_tuple(x);
    q = p ? frame_as_tuple(y) : NULL;
    if (q)
        answer = PyObject_RichCompare(p, q, op);
    Py_XDECREF(p);
    Py_XDECREF(q);
    return answer;
}

static Py_hash_t frame_hash(StompFrame *frame)
{
    PyObject *all = frame_as_tuple(frame);
    Py_hash_t hash = all ? PyObject_Hash(all) : -1;
    Py_XDECREF(all);
    return hash;
}

static PyObject *frame_repr_(StompFrame *frame)
{
    PyObject *all = frame_as_tuple(frame);
    PyObject *text = all ? PyObject_Call(frame_repr, all, NULL) : NULL;
    Py_XDECREF(all);
    return text;
}

/* Import a name when it is needed: those modules import this one. */
static PyObject *imported(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *found = module ? PyObject_GetAttrString(module, name) : NULL;
    Py_XDECREF(module);
    return found;
}

static PyObject *frame_reduce(StompFrame *frame, PyObject *Py_UNUSED(ignored))
{
    PyObject *all = frame_as_tuple(frame);
    PyObject *restore = all ? imported("stompcodec.codec", "_restore") : NULL;
    if (restore)
        return Py_BuildValue("(NN)", restore, all);
    Py_XDECREF(all);
    return NULL;
}

static PyObject *frame_copy(PyObject *frame, PyObject *Py_UNUSED(memo))
{
    return Py_NewRef(frame);
}

static PyObject *frame_text_(PyObject *frame, PyObject *Py_UNUSED(ignored))
{
    PyObject *text_of_frame = imported("stompcodec.content", "text_of");
    PyObject *text = text_of_frame ? PyObject_CallOneArg(text_of_frame, frame) : NULL;
    Py_XDECREF(text_of_frame);
    return text;
}

static PyObject *frame_sizeof(StompFrame *frame, PyObject *Py_UNUSED(ignored))
{
    size_t each = frame->kind == FRAME_WIDE16 ? 4 : frame->kind == FRAME_WIDE32 ? 8 : 2 * sizeof(PyObject *);
    return PyLong_FromSize_t(sizeof *frame + each * frame->count + (frame->kind == FRAME_TEXT ? 0 : frame->head));
}

/* ---- the type ---- */

#define METHOD(name, function, flags, doc) {name, (PyCFunction)(void (*)(void))(function), flags, doc}

static PyMethodDef frame_methods[] = {
    METHOD("get", stomp_frame_get, METH_FASTCALL,
           "get($self, name, default=None, /)\n--\n\n"
           "Return the first value of a header, or `default`."),
    METHOD("has_any", frame_has_any, METH_FASTCALL,
           "has_any($self, /, *names)\n--\n\n"
           "Return whether the frame has a header with one of these names.\n"
           "\n"
           ">>> Frame(\"SEND\", {\"destination\": \"/queue/a\"}).has_any(\"receipt\", \"destination\")\n"
           "True"),
    METHOD("text", frame_text_, METH_NOARGS,
           "text($self, /)\n--\n\n"
           "Return the body as text, by its content-type and content-encoding.\n"
           "\n"
           "Raises:\n"
           "    ContentError: the body is binary, streamed, or not in its charset. It is a ValueError.\n"
           "    FrameError: the content-encoding cannot be undone, or the result is larger than 100 MiB."),
    METHOD("__reduce__", frame_reduce, METH_NOARGS, NULL),
    METHOD("__copy__", frame_copy, METH_NOARGS, NULL),
    METHOD("__deepcopy__", frame_copy, METH_O, NULL),
    METHOD("__sizeof__", frame_sizeof, METH_NOARGS, NULL),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef frame_getset[] = {
    {"command", (getter)(void (*)(void))frame_command, NULL, "The command, such as \"SEND\".", NULL},
    {"headers", (getter)(void (*)(void))frame_headers, NULL,
     "The headers: a read-only dict, in which the first entry of a repeated name counts.", NULL},
    {"body", (getter)(void (*)(void))frame_body, NULL,
     "The body as bytes; None if `Parser(stream_over=n)` hands it out in pieces.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject StompFrame_Type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "stompcodec.Frame",
    .tp_basicsize = sizeof(StompFrame),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Frame(command, headers=(), body=b'')\n--\n\n"
              "A STOMP frame: a command, headers and a body. Immutable.\n"
              "\n"
              "Args:\n"
              "    command: such as \"SEND\". `serialize` checks whether the version has it.\n"
              "    headers: a mapping, or (name, value) pairs, in which a name may be repeated.\n"
              "    body: any contiguous bytes-like object. Encode text first.\n"
              "\n"
              "Raises:\n"
              "    TypeError: an argument has another type. The message never shows a value.\n"
              "\n"
              ">>> frame = Frame(\"SEND\", {\"destination\": \"/queue/a\"}, b\"hello\")\n"
              ">>> frame\n"
              "<Frame SEND destination='/queue/a' body=5 bytes b'hello'>\n"
              ">>> frame.headers[\"destination\"], frame.get(\"receipt\"), frame.body\n"
              "('/queue/a', None, b'hello')",
    .tp_new = stomp_frame_new,
    .tp_vectorcall = stomp_frame_vectorcall,
    .tp_dealloc = (destructor)(void (*)(void))frame_dealloc,
    .tp_methods = frame_methods,
    .tp_getset = frame_getset,
    .tp_richcompare = frame_richcompare,
    .tp_hash = (hashfunc)(void (*)(void))frame_hash,
    .tp_repr = (reprfunc)(void (*)(void))frame_repr_,
};

int stomp_frame_init(PyObject *helpers)
{
    for (int i = 0; i < STOMP_COMMANDS; i++)
        if (!(commands[i] = PyUnicode_InternFromString(stomp_command_names[i])))
            return -1;
    if (!(frame_repr = PyObject_GetAttrString(helpers, "frame_repr"))
        || stomp_known_names() < 0
        || stomp_headers_init(helpers) < 0)
        return -1;
    return PyType_Ready(&StompFrame_Type);
}

/* ======== frames from Python objects ======== */

/* Frame(command, headers, body): frames from Python objects, which are checked here. */

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
    const char *kind = Py_TYPE(text)->tp_name;
    return name ? PyErr_Format(PyExc_TypeError, "%s of header %R must be str, not %.100s", what, name, kind)
                : PyErr_Format(PyExc_TypeError, "%s must be str, not %.100s", what, kind);
}

static PyObject *exact_body(PyObject *body)
{
    if (!body)
        return PyBytes_FromStringAndSize(NULL, 0);
    if (PyBytes_CheckExact(body))
        return Py_NewRef(body);
    if (PyUnicode_Check(body))
        return PyErr_Format(PyExc_TypeError, "body must be bytes-like, not str: encode it, as in text.encode()");
    if (!PyObject_CheckBuffer(body))
        return PyErr_Format(PyExc_TypeError, "body must be bytes-like, not %.100s", Py_TYPE(body)->tp_name);
    return PyBytes_FromObject(body);
}

/* Return the headers given to Frame() as a sequence of pairs that nothing else can change: a pair may be an iterator
   that runs any code. */
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
        frame->command_id =
            (uint8_t)stomp_command_of(PyUnicode_1BYTE_DATA(command), (size_t)PyUnicode_GET_LENGTH(command));
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
    /* a list may change */
    PyObject *pair = PyList_Check(item) ? PyList_AsTuple(item) : PySequence_Fast(item, not_pairs);
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

/* Make the frame of an exact str, an exact dict and exact bytes, as most are. *fits is 0 if a header is not an exact
   str. */
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
