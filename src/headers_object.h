/* Headers: a read-only mapping of a frame's headers. A view that is made when it is asked for and holds its frame, so
   that the frame itself needs no reference that could form a cycle. */
#ifndef HEADERS_OBJECT_H
#define HEADERS_OBJECT_H

#include "frame_object.h"

extern PyTypeObject StompHeaders_Type;

/* Readies the type. `helpers` is the module stompcodec.frame. 0 or -1. */
int stomp_headers_init(PyObject *helpers);

/* frame.headers */
PyObject *stomp_headers_of(StompFrame *frame, void *closure);

/* Every entry as a list of pairs. */
PyObject *stomp_headers_pairs(PyObject *headers);

#endif
