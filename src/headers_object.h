/* Headers: a read-only mapping of a frame's headers. It is a dict underneath, made when frame.headers is asked for the
   first time, so that dict(headers) and every look-up cost what they cost with a dict. It holds text only: no cycle
   passes through it, and the garbage collector need not look at it. */
#ifndef HEADERS_OBJECT_H
#define HEADERS_OBJECT_H

#include "frame_layout.h"

extern PyTypeObject StompHeaders_Type;

/* Readies the type. `helpers` is the module stompcodec.frame. 0 or -1. */
int stomp_headers_init(PyObject *helpers);

/* The headers of a frame, made anew. */
PyObject *stomp_headers_new(StompFrame *frame);

/* Has it a method keys(), as mappings have? 1, 0, or -1 with an error set. */
int stomp_has_keys(PyObject *object);

/* Every entry as a list of pairs. */
PyObject *stomp_headers_pairs(PyObject *headers);

#endif
