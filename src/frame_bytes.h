/* bytes objects that are filled before their final size is known: bodies and output. */
#ifndef FRAME_BYTES_H
#define FRAME_BYTES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Return a new object of `room` bytes, which need not be a new mapping the next time. NULL: no memory. */
PyObject *stomp_bytes_new(size_t room);

/* Shrink *bytes, a new object of `room` bytes, to its first `len` bytes. Returns 0, or -1 with MemoryError set and *bytes
   NULL. */
int stomp_bytes_end(PyObject **bytes, size_t room, size_t len);

#endif
