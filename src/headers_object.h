/* The Headers type: a read-only mapping of a frame's headers, made on first use. It is a subtype of dict, so that look-ups
   and dict(headers) cost as much as with a dict. The garbage collector does not track it, since it refers to str only, unless Python code
   puts something else in. */
#ifndef HEADERS_OBJECT_H
#define HEADERS_OBJECT_H

#include "frame_layout.h"

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
