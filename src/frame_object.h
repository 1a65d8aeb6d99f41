/* The Frame type: immutable, one block of memory of variable size. Headers become text on first use. The garbage collector
   does not track frames: they refer to str and bytes only, and cannot be part of a cycle. */
#ifndef FRAME_OBJECT_H
#define FRAME_OBJECT_H

#include "frame_layout.h"

extern PyTypeObject StompFrame_Type;

/* Ready the types. `helpers` is the module stompcodec.frame, whose functions both backends share. Returns 0 or -1. */
int stomp_frame_init(PyObject *helpers);

/* Make the frame whose head the scanner has found at data. Steals the reference `body` (NULL: set later). NULL: no memory. */
PyObject *stomp_frame_from_scan(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *data, PyObject *body);

/* Frame(command, headers=(), body=b"") */
PyObject *stomp_frame_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);

/* The same by the vectorcall protocol, which most calls use: no tuple of arguments is made. */
PyObject *stomp_frame_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *names);

/* Allocate a frame with this many bytes after it. The caller sets everything but refcount, type, headers and room.
   NULL: no memory. */
StompFrame *stomp_frame_alloc(size_t extra);

/* get(name[, default]) */
PyObject *stomp_frame_get(StompFrame *frame, PyObject *const *args, Py_ssize_t nargs);

#endif
