#include "frame_entries.h"

#include "stomp_text.h"

/* Texts are short: two loads that may overlap are quicker than a call. */
static inline void copy_octets(uint8_t *to, const uint8_t *from, size_t len)
{
    uint64_t word, last;
    uint32_t half, half_last;
    if (len > 32) {
        memcpy(to, from, len);
    } else if (len >= 8) {
        memcpy(&last, from + len - 8, 8);
        for (size_t i = 0; i + 8 < len; i += 8) {
            memcpy(&word, from + i, 8);
            memcpy(to + i, &word, 8);
        }
        memcpy(to + len - 8, &last, 8);
    } else if (len >= 4) {
        memcpy(&half, from, 4);
        memcpy(&half_last, from + len - 4, 4);
        memcpy(to, &half, 4);
        memcpy(to + len - 4, &half_last, 4);
    } else if (len) {
        to[0] = from[0];
        to[len / 2] = from[len / 2];
        to[len - 1] = from[len - 1];
    }
}

static inline int is_ascii(const uint8_t *octets, size_t len)
{
    uint64_t word, all = 0;
    if (len < 8) {
        for (size_t i = 0; i < len; i++)
            all |= octets[i];
        return all < 128;
    }
    for (size_t i = 0; i + 8 < len; i += 8) {
        memcpy(&word, octets + i, 8);
        all |= word;
    }
    memcpy(&word, octets + len - 8, 8);
    return !((all | word) & 0x8080808080808080u);
}

/* May this text be something else than ASCII? */
static inline int is_wide(const StompFrame *frame, const uint8_t *octets, size_t len)
{
    return (frame->marks & STOMP_NON_ASCII) && !is_ascii(octets, len);
}

static PyObject *text_of(const uint8_t *octets, size_t len, int wide)
{
    PyObject *text;
    if (wide)
        return PyUnicode_DecodeUTF8((const char *)octets, (Py_ssize_t)len, "surrogateescape");
    if (len == 1)
        return PyUnicode_FromOrdinal(*octets); /* there is one already */
    text = PyUnicode_New((Py_ssize_t)len, 127);
    if (text)
        copy_octets(PyUnicode_1BYTE_DATA(text), octets, len);
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

/* Header names come again and again, and so do the values of some: small tables keep their str objects, found by a hash of
   their octets. An entry is only ever replaced whole. Without the GIL names are filled in once, when the module is made, and
   only read afterwards; values are not kept. */
#define TEXTS 512u
#define MOST 48 /* octets of a text that is kept */
struct known_name {
    PyObject *text;
    int repeats; /* values are kept, too: nothing that is secret or another one each time */
};
static struct known_name names[TEXTS];
#ifndef Py_GIL_DISABLED
static PyObject *values[TEXTS];
#endif

static inline size_t text_slot(const uint8_t *octets, size_t len)
{
    uint64_t a, b;
    uint32_t half, half_last;
    if (len >= 8) {
        memcpy(&a, octets, 8);
        memcpy(&b, octets + len - 8, 8);
    } else if (len >= 4) {
        memcpy(&half, octets, 4);
        memcpy(&half_last, octets + len - 4, 4);
        a = half;
        b = half_last;
    } else {
        a = len ? octets[0] | (uint32_t)octets[len / 2] << 8 : 0;
        b = len ? octets[len - 1] : 0;
    }
    return (size_t)((((a ^ (b << 1 | b >> 63)) + len) * 0x9E3779B97F4A7C15u) >> 55);
}

static inline int is_text(PyObject *known, const uint8_t *octets, size_t len)
{
    const uint8_t *text;
    uint64_t x, y, other = 0;
    if (!known || (size_t)PyUnicode_GET_LENGTH(known) != len)
        return 0;
    text = PyUnicode_1BYTE_DATA(known);
    if (len < 8)
        return !memcmp(text, octets, len);
    for (size_t i = 0; i + 8 < len; i += 8) {
        memcpy(&x, text + i, 8);
        memcpy(&y, octets + i, 8);
        other |= x ^ y;
    }
    memcpy(&x, text + len - 8, 8);
    memcpy(&y, octets + len - 8, 8);
    return !(other | (x ^ y));
}

static PyObject *new_name(const uint8_t *name, size_t len, size_t slot)
{
    PyObject *text = text_of(name, len, 0);
#ifndef Py_GIL_DISABLED /* not interned: what is, is never freed in Python 3.12, and a peer has names without end */
    if (text) {
        Py_INCREF(text);
        Py_XSETREF(names[slot].text, text);
        names[slot].repeats = 0;
    }
#else
    (void)slot;
#endif
    return text;
}

static inline PyObject *name_text(const StompFrame *frame, struct frame_entry *e, int *repeats)
{
    if (entry_has_escape(frame, e) && memchr(e->name, '\\', e->name_len))
        return unescaped_text(frame, e->name, e->name_len);
    int wide = is_wide(frame, e->name, e->name_len);
    if (wide || e->name_len > MOST)
        return text_of(e->name, e->name_len, wide);
    size_t slot = text_slot(e->name, e->name_len);
    if (is_text(names[slot].text, e->name, e->name_len)) {
        *repeats = names[slot].repeats;
        return Py_NewRef(names[slot].text);
    }
    return new_name(e->name, e->name_len, slot);
}

static inline PyObject *value_text(const StompFrame *frame, struct frame_entry *e, int repeats)
{
    if (entry_has_escape(frame, e) && memchr(e->value, '\\', e->value_len))
        return unescaped_text(frame, e->value, e->value_len);
    int wide = is_wide(frame, e->value, e->value_len);
#ifndef Py_GIL_DISABLED
    if (repeats && e->value_len > 1 && e->value_len <= MOST && !wide) {
        PyObject **slot = &values[text_slot(e->value, e->value_len)];
        if (is_text(*slot, e->value, e->value_len))
            return Py_NewRef(*slot);
        PyObject *text = text_of(e->value, e->value_len, 0);
        if (text) {
            Py_INCREF(text);
            Py_XSETREF(*slot, text);
        }
        return text;
    }
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
        {"destination", 1}, {"subscription", 1}, {"content-type", 1}, {"content-encoding", 1}, {"persistent", 1},
        {"priority", 1}, {"redelivered", 1}, {"type", 1}, {"browser", 1}, {"version", 1}, {"server", 1}, {"heart-beat", 1},
        {"accept-version", 1}, {"host", 1}, {"content-length", 0}, {"message-id", 0}, {"id", 0}, {"ack", 0}, {"receipt", 0},
        {"receipt-id", 0}, {"transaction", 0}, {"session", 0}, {"login", 0}, {"passcode", 0}, {"message", 0},
        {"timestamp", 0}, {"expires", 0}, {"reply-to", 0}, {"correlation-id", 0}, {"selector", 0}, {"username", 0},
    };
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        struct known_name *name = &names[text_slot((const uint8_t *)common[i].text, strlen(common[i].text))];
        PyObject *text = PyUnicode_InternFromString(common[i].text);
        if (!text)
            return -1;
        Py_XSETREF(name->text, text);
        name->repeats = common[i].repeats;
    }
    return 0;
}

PyObject *stomp_entry_text(StompFrame *frame, uint32_t i, struct frame_entry *e, int which)
{
    int repeats = 0;
    if (frame->kind == FRAME_TEXT)
        return Py_NewRef(stomp_frame_texts(frame)[2 * i + (uint32_t)which]);
    return which ? value_text(frame, e, 0) : name_text(frame, e, &repeats);
}

int stomp_entry_pair(StompFrame *frame, uint32_t i, struct frame_entry *e, PyObject *pair[2])
{
    int repeats = 0;
    if (frame->kind == FRAME_TEXT) {
        pair[0] = Py_NewRef(stomp_frame_texts(frame)[2 * i]);
        pair[1] = Py_NewRef(stomp_frame_texts(frame)[2 * i + 1]);
        return 0;
    }
    pair[0] = name_text(frame, e, &repeats);
    pair[1] = pair[0] ? value_text(frame, e, repeats) : NULL;
    return pair[1] ? 0 : -1;
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
            e.slash = frame->level ? memchr(e.value, '\\', e.value_len) : NULL; /* not further than this entry */
            e.slash = e.slash ? e.slash : e.value + e.value_len;
            return stomp_entry_text(frame, i, &e, 1);
        }
    }
    return NULL;
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
            item = stomp_entry_pair(frame, i, &e, pair) == 0 ? PyTuple_Pack(2, pair[0], pair[1]) : NULL;
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
