/* Frame and Headers: the layout of a frame, and what works on it. */
#ifndef STOMP_FRAME_H
#define STOMP_FRAME_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "stomp.h"

/* ======== bytes objects ======== */

/* bytes objects that are filled before their final size is known: bodies and output. */

/* Return a new object of `room` bytes, which need not be a new mapping the next time. NULL: no memory. */
PyObject *stomp_bytes_new(size_t room);

/* Shrink *bytes, a new object of `room` bytes, to its first `len` bytes. Returns 0, or -1 with MemoryError set and
   *bytes NULL. */
int stomp_bytes_end(PyObject **bytes, size_t room, size_t len);

/* ======== the layout of a frame ======== */

/* The memory layout of a frame, and access to its headers. Frame and Headers use it.

   A frame has one of two kinds of contents:
   - from the wire: the head as "name:value\n" lines, with two offsets per header. The scanner has checked it, so
     reading fails only if memory runs out;
   - from Python: names and values as str objects, checked by Frame(). */

/* Is freed memory kept for reuse? Not without the GIL, where two threads could take the same block. */
#if defined(Py_GIL_DISABLED)
enum { STOMP_FREE_BLOCKS = 0 };
#else
enum { STOMP_FREE_BLOCKS = 1 };
#endif

/* The same for objects. */
#if !defined(Py_GIL_DISABLED) && !defined(Py_REF_DEBUG)
#define STOMP_FREE_LIST 1
#endif

enum frame_kind { FRAME_WIDE16, FRAME_WIDE32, FRAME_TEXT };

typedef struct {
    PyObject_HEAD
    PyObject *command; /* exact str */
    PyObject *body;    /* exact bytes; NULL until the body is complete, and always if it is streamed */
    PyObject *headers; /* Headers, made on first use; else NULL */
    uint32_t count;    /* headers, repeated ones included */
    uint32_t head;     /* bytes of the head that are kept; from Python: characters of all texts */
    uint16_t first;     /* offset of the first header in the head, which may begin with the command line */
    uint8_t kind;       /* enum frame_kind */
    uint8_t command_id; /* enum stomp_command */
    uint8_t room;       /* memory of the object in units of 16 bytes; 0: large */
    uint8_t level;      /* escapes in the head lines: 0 none, 1 or 2 as in stomp_rules */
    uint8_t marks; /* enum stomp_mark; from Python: STOMP_NON_ASCII unless all texts are ASCII and head is their size */
} StompFrame;           /* then offsets and bytes, or PyObject pointers */

struct frame_entry {
    const uint8_t *name, *value;
    size_t name_len, value_len;
    const uint8_t *slash; /* for entry_has_escape: NULL before the first entry */
};

static inline PyObject **stomp_frame_texts(StompFrame *frame)
{
    return (PyObject **)(void *)(frame + 1);
}

static inline const uint8_t *stomp_frame_lines(const StompFrame *frame)
{
    size_t width = frame->kind == FRAME_WIDE16 ? 4 : 8;
    return (const uint8_t *)(frame + 1) + width * frame->count;
}

/* Read entry i of a frame from the wire. `from` is frame->first for the first entry, then the result of the last
   call. */
static inline size_t stomp_frame_entry(const StompFrame *frame, uint32_t i, size_t from, struct frame_entry *entry)
{
    const uint8_t *lines = stomp_frame_lines(frame);
    size_t colon, end;
    if (frame->kind == FRAME_WIDE16) {
        const uint16_t *at = (const uint16_t *)(const void *)(frame + 1);
        colon = at[2 * i];
        end = at[2 * i + 1];
    } else {
        const uint32_t *at = (const uint32_t *)(const void *)(frame + 1);
        colon = at[2 * i];
        end = at[2 * i + 1];
    }
    entry->name = lines + from;
    entry->name_len = colon - from;
    entry->value = lines + colon + 1;
    entry->value_len = end - colon - 1;
    return end + 1 + (lines[end] == '\r');
}

/* ======== Frame ======== */

/* The Frame type: immutable, one block of memory of variable size. Headers become text on first use. The garbage
   collector does not track frames: they refer to str and bytes only, and cannot be part of a cycle. */

extern PyTypeObject StompFrame_Type;

/* Ready the types. `helpers` is the module stompcodec.frame, whose functions both backends share. Returns 0 or -1. */
int stomp_frame_init(PyObject *helpers);

/* Make the frame whose head the scanner has found at data. Steals the reference `body` (NULL: set later). NULL: no
   memory. */
PyObject *stomp_frame_from_scan(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *data,
                                PyObject *body);

/* Frame(command, headers=(), body=b"") */
PyObject *stomp_frame_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);

/* The same by the vectorcall protocol, which most calls use: no tuple of arguments is made. */
PyObject *stomp_frame_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *names);

/* Allocate a frame with this many bytes after it. The caller sets everything but refcount, type, headers and room.
   NULL: no memory. */
StompFrame *stomp_frame_alloc(size_t extra);

/* get(name[, default]) */
PyObject *stomp_frame_get(StompFrame *frame, PyObject *const *args, Py_ssize_t nargs);

/* ======== the headers of a frame ======== */

/* The headers of a frame as text, for the types Frame and Headers. */

/* Return the name or value (which = 0 or 1) of an entry as a new reference. */
PyObject *stomp_entry_text(StompFrame *frame, uint32_t i, struct frame_entry *e, int which);

/* Put the first value of each name into dict. Returns 0 or -1. */
int stomp_fill_dict(PyObject *dict, StompFrame *frame);

/* Return the value of the first header of that name; NULL, without an error if it is missing. */
PyObject *stomp_find(StompFrame *frame, PyObject *name);

/* Is there an entry with one of these names? Returns 1, 0, or -1 with an error set. */
int stomp_has_any(StompFrame *frame, PyObject *const *names, Py_ssize_t count);

/* Return a list of all names, values or pairs (which = 0, 1, 2), in order. */
PyObject *stomp_all_entries(StompFrame *frame, int which);

/* Fill the table of common names. Returns 0 or -1. */
int stomp_known_names(void);

/* Has this entry a backslash that starts an escape? Call it for the entries of a frame in order: the search goes from
   one backslash to the next, not through each entry. */
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

/* Returns 0, or -1 with an error set. */
static inline int want(struct wanted *w, PyObject *name)
{
    w->text = name;
    w->octets = NULL;
    w->len = 0;
    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "name must be str, not %.100s", Py_TYPE(name)->tp_name);
        return -1;
    }
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

/* ======== Headers ======== */

/* The Headers type: a read-only mapping of a frame's headers, made on first use. It is a subtype of dict, so that
   look-ups and dict(headers) cost as much as with a dict. The garbage collector does not track it, since it refers to
   str only, unless Python code puts something else in. */

extern PyTypeObject StompHeaders_Type;

/* Ready the type. `helpers` is the module stompcodec.frame. Returns 0 or -1. */
int stomp_headers_init(PyObject *helpers);

/* Make the headers of a frame. */
PyObject *stomp_headers_new(StompFrame *frame);

/* Has it a method keys(), as mappings have? Returns 1, 0, or -1 with an error set. */
int stomp_has_keys(PyObject *object);

/* Return all entries as a list of pairs. */
PyObject *stomp_headers_pairs(PyObject *headers);

#endif
