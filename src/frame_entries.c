#include "frame_entries.h"

#include "stomp_text.h"

static PyObject *text_of(const uint8_t *octets, size_t len, int non_ascii)
{
    PyObject *text;
    if (non_ascii)
        return PyUnicode_DecodeUTF8((const char *)octets, (Py_ssize_t)len, "surrogateescape");
    text = PyUnicode_New((Py_ssize_t)len, 127);
    if (text && len)
        memcpy(PyUnicode_1BYTE_DATA(text), octets, len);
    return text;
}

static PyObject *unescaped_text(const uint8_t *octets, size_t len, int level, int non_ascii)
{
    uint8_t few[256];
    uint8_t *room = len <= sizeof few ? few : PyMem_Malloc(len);
    if (!room)
        return PyErr_NoMemory();
    PyObject *text = text_of(room, stomp_unescape(room, octets, len, level), non_ascii);
    if (room != few)
        PyMem_Free(room);
    return text;
}

static inline PyObject *value_text(const StompFrame *frame, const struct frame_entry *e)
{
    if (has_escape(frame, e->value, e->value_len))
        return unescaped_text(e->value, e->value_len, frame->level, (frame->marks & STOMP_NON_ASCII));
    return text_of(e->value, e->value_len, (frame->marks & STOMP_NON_ASCII));
}

/* Header names come again and again: a small table keeps their str objects. An entry is only ever replaced whole.
   Without the GIL it is filled once, when the module is made, and only read afterwards. */
#define NAMES 512u
static PyObject *names[NAMES];

static inline size_t name_slot(const uint8_t *name, size_t len)
{
    uint64_t a = 0, b = 0;
    if (len >= 8) {
        memcpy(&a, name, 8);
        memcpy(&b, name + len - 8, 8);
    } else {
        memcpy(&a, name, len);
    }
    return (size_t)((((a ^ (b << 1 | b >> 63)) + len) * 0x9E3779B97F4A7C15u) >> 55);
}

static PyObject *new_name(const uint8_t *name, size_t len, size_t slot)
{
    PyObject *text = text_of(name, len, 0);
    if (text) {
        PyUnicode_InternInPlace(&text);
#ifndef Py_GIL_DISABLED
        Py_INCREF(text);
        Py_XSETREF(names[slot], text);
#else
        (void)slot;
#endif
    }
    return text;
}

static inline PyObject *name_text(const StompFrame *frame, const struct frame_entry *e)
{
    if (has_escape(frame, e->name, e->name_len))
        return unescaped_text(e->name, e->name_len, frame->level, (frame->marks & STOMP_NON_ASCII));
    if ((frame->marks & STOMP_NON_ASCII) || e->name_len > 48)
        return text_of(e->name, e->name_len, (frame->marks & STOMP_NON_ASCII));
    size_t slot = name_slot(e->name, e->name_len);
    PyObject *known = names[slot];
    if (known && (size_t)PyUnicode_GET_LENGTH(known) == e->name_len && !memcmp(PyUnicode_1BYTE_DATA(known), e->name, e->name_len))
        return Py_NewRef(known);
    return new_name(e->name, e->name_len, slot);
}

int stomp_known_names(void)
{
    static const char *const common[] = {
        "destination", "message-id", "subscription", "content-type", "content-length", "content-encoding", "id", "ack",
        "receipt", "receipt-id", "transaction", "version", "session", "server", "heart-beat", "accept-version", "host",
        "login", "passcode", "message", "timestamp", "expires", "persistent", "priority", "redelivered", "reply-to",
        "correlation-id", "selector", "type", "username", "browser",
    };
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        size_t slot = name_slot((const uint8_t *)common[i], strlen(common[i]));
        PyObject *text = PyUnicode_InternFromString(common[i]);
        if (!text)
            return -1;
        Py_XSETREF(names[slot], text);
    }
    return 0;
}

PyObject *stomp_entry_text(StompFrame *frame, uint32_t i, const struct frame_entry *e, int which)
{
    if (frame->kind == FRAME_TEXT)
        return Py_NewRef(stomp_frame_texts(frame)[2 * i + (uint32_t)which]);
    return which ? value_text(frame, e) : name_text(frame, e);
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
        if (hit)
            return hit < 0 ? NULL : stomp_entry_text(frame, i, &e, 1);
    }
    return NULL;
}

PyObject *stomp_all_entries(StompFrame *frame, int which)
{
    struct frame_entry e = {0};
    size_t from = frame->first;
    PyObject *list = PyList_New(frame->count);
    for (uint32_t i = 0; list && i < frame->count; i++) {
        PyObject *item, *name, *value;
        if (frame->kind != FRAME_TEXT)
            from = stomp_frame_entry(frame, i, from, &e);
        if (which < 2) {
            item = stomp_entry_text(frame, i, &e, which);
        } else {
            name = stomp_entry_text(frame, i, &e, 0);
            value = stomp_entry_text(frame, i, &e, 1);
            item = name && value ? PyTuple_Pack(2, name, value) : NULL;
            Py_XDECREF(name);
            Py_XDECREF(value);
        }
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}
