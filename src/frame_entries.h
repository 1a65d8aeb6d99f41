/* The headers of a frame as text, for the types Frame and Headers. */
#ifndef FRAME_ENTRIES_H
#define FRAME_ENTRIES_H

#include <string.h>

#include "frame_layout.h"

/* Return the name or value (which = 0 or 1) of an entry as a new reference. */
PyObject *stomp_entry_text(StompFrame *frame, uint32_t i, struct frame_entry *e, int which);

/* Put the first value of each name into dict. Returns 0 or -1. */
int stomp_fill_dict(PyObject *dict, StompFrame *frame);

/* Return the value of the first header of that name; NULL without an error if it is missing. */
PyObject *stomp_find(StompFrame *frame, PyObject *name);

/* Is there an entry with one of these names? Returns 1, 0, or -1 with an error set. Objects that are not str match nothing. */
int stomp_has_any(StompFrame *frame, PyObject *const *names, Py_ssize_t count);

/* Return a list of all names, values or pairs (which = 0, 1, 2), in order. */
PyObject *stomp_all_entries(StompFrame *frame, int which);

/* Fill the table of common names. Returns 0 or -1. */
int stomp_known_names(void);

/* Has this entry a backslash that starts an escape? Call it for the entries of a frame in order: the search goes from one
   backslash to the next, not through each entry. */
static inline int entry_has_escape(const StompFrame *frame, struct frame_entry *e)
{
    if (!frame->level)
        return 0;
    if (e->slash < e->name) {
        const uint8_t *end = stomp_frame_lines(frame) + frame->head;
        e->slash = memchr(e->name, '\\', (size_t)(end - e->name));
        e->slash = e->slash ? e->slash : end;
    }
    return e->slash < e->value + e->value_len;
}

struct wanted {
    PyObject *text;
    const uint8_t *octets; /* NULL: compare text */
    size_t len;
};

static inline int want(struct wanted *w, PyObject *name)
{
    w->text = name;
    w->octets = NULL;
    w->len = 0;
    if (!PyUnicode_Check(name))
        return -1;
    if (PyUnicode_IS_COMPACT_ASCII(name)) {
        w->octets = PyUnicode_1BYTE_DATA(name);
        w->len = (size_t)PyUnicode_GET_LENGTH(name);
    }
    return 0;
}

/* Has entry i this name? Returns 1, 0, or -1 with an error set. */
static inline int is_called(StompFrame *frame, uint32_t i, struct frame_entry *e, const struct wanted *w)
{
    PyObject *name;
    int same;
    if (frame->kind == FRAME_TEXT) {
        name = stomp_frame_texts(frame)[2 * i];
        return name == w->text || PyUnicode_Compare(name, w->text) == 0;
    }
    if (w->octets) { /* an escaped name is longer than the plain one */
        int equal = e->name_len == w->len && !memcmp(e->name, w->octets, w->len);
        if (!frame->level || e->name_len < w->len || !memchr(e->name, '\\', e->name_len))
            return equal;
    }
    name = stomp_entry_text(frame, i, e, 0);
    if (!name)
        return -1;
    same = PyUnicode_Compare(name, w->text) == 0;
    Py_DECREF(name);
    return same;
}

#endif
