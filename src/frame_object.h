/* The Frame type: immutable, one block of memory of variable size, not tracked by the garbage collector (it can only
   hold str and bytes, so no cycle passes through it), its headers made into text when they are asked for. */
#ifndef FRAME_OBJECT_H
#define FRAME_OBJECT_H

#include "frame_layout.h"

extern PyTypeObject StompFrame_Type;

/* Readies the types. `helpers` is the module stompcodec.frame, for what is shared with the Python twin. 0 or -1. */
int stomp_frame_init(PyObject *helpers);

/* The frame whose head the scanner has just found at data. Takes over `body` (NULL: set later). NULL on no memory. */
PyObject *stomp_frame_from_scan(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *data, PyObject *body);

/* Frame(command, headers=(), body=b"") */
PyObject *stomp_frame_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);

/* Memory for a frame with so many octets behind it; all but refcount, type, headers and room is for the caller to fill.
   NULL on no memory. */
StompFrame *stomp_frame_alloc(size_t extra);

/* get(name[, default]) */
PyObject *stomp_frame_get(StompFrame *frame, PyObject *const *args, Py_ssize_t nargs);

#endif
