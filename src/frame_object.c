#include "frame_object.h"

#include <string.h>

#include "frame_entries.h"
#include "headers_object.h"
#include "stomp_command.h"
#include "stomp_mask.h" /* STOMP_NOINLINE */

static PyObject *commands[STOMP_COMMANDS]; /* interned */
static PyObject *frame_repr;

/* ---- making frames ---- */

#define CACHED 512 /* bytes: the largest block that Python's allocator keeps for small objects */
#ifdef STOMP_SPARE_OBJECTS
static StompFrame *spare_frame; /* enough for a loop that drops each frame before the next */
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
#ifdef STOMP_SPARE_OBJECTS
    StompFrame *frame = spare_frame;
    if (frame && frame->room >= size && frame->room < size + 16) {
        spare_frame = NULL;
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

static STOMP_NOINLINE PyObject *command_text(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *data)
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

static inline StompFrame *frame_of(const struct stomp_scan *scan, const struct stomp_rules *rules, PyObject *body, int kind, size_t head)
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
static STOMP_NOINLINE StompFrame *frame_of_lines(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *data, PyObject *body, size_t head)
{
    size_t from = 0, end = 0;
    struct stomp_header at;
    int kind = head <= UINT16_MAX ? FRAME_WIDE16 : FRAME_WIDE32;
    StompFrame *frame = frame_of(scan, rules, body, kind, head);
    if (!frame)
        return NULL;
    frame->head = (uint32_t)copy_lines((uint8_t *)(uintptr_t)stomp_frame_lines(frame), scan, data, rules->flags & STOMP_LEGACY);
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

PyObject *stomp_frame_from_scan(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *data, PyObject *body)
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
    frame->command = scan->command < STOMP_COMMANDS ? Py_NewRef(commands[scan->command]) : command_text(scan, rules, data);
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
#ifdef STOMP_SPARE_OBJECTS
    if (!spare_frame || spare_frame->room < frame->room) { /* keep the larger one */
        StompFrame *other = spare_frame;
        spare_frame = frame->room ? frame : other;
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
    if (nargs < 1 || nargs > 2) {
        PyErr_Format(PyExc_TypeError, "get() takes 1 or 2 arguments, not %zd", nargs);
        return NULL;
    }
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
    {"headers", (getter)(void (*)(void))frame_headers, NULL, "The headers: a read-only dict, in which the first entry of a repeated name counts.", NULL},
    {"body", (getter)(void (*)(void))frame_body, NULL, "The body as bytes; None if `Parser(stream_over=n)` hands it out in pieces.", NULL},
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
