/* bytes objects that are filled before it is known how long they will be: bodies, and what is written. */
#ifndef FRAME_BYTES_H
#define FRAME_BYTES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* Ends *bytes, which nobody else has seen and which has `room` octets, behind the first `len` of them, and gives back the
   rest. 0, or -1 with MemoryError set; then *bytes is NULL. */
int stomp_bytes_end(PyObject **bytes, size_t room, size_t len);

#endif
