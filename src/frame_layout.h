/* The memory layout of a frame, and access to its headers. Frame, Headers and frame_entries.c include it.

   A frame has one of two kinds of contents:
   - from the wire: the head as "name:value\n" lines, with two offsets per header. The scanner has checked it, so reading
     fails only if memory runs out;
   - from Python: names and values as str objects, checked by Frame(). */
#ifndef FRAME_LAYOUT_H
#define FRAME_LAYOUT_H

#include <Python.h>
#include "stomp_scan.h"

/* Is freed memory kept for reuse? Not without the GIL, where two threads could take the same block. */
#if defined(Py_GIL_DISABLED)
enum { STOMP_SPARE_BLOCKS = 0 };
#else
enum { STOMP_SPARE_BLOCKS = 1 };
#endif

/* The same for objects. */
#if !defined(Py_GIL_DISABLED) && !defined(Py_REF_DEBUG)
#define STOMP_SPARE_OBJECTS 1
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
    uint8_t marks;      /* enum stomp_mark; from Python: STOMP_NON_ASCII unless all texts are ASCII and head is their size */
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

/* Read entry i of a frame from the wire. `from` is frame->first for the first entry, then the result of the last call. */
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

#endif
