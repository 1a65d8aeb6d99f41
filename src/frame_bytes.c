#include "frame_bytes.h"

#ifndef Py_GIL_DISABLED
static size_t largest; /* the largest size freed so far */
#endif

/* glibc reuses freed blocks only up to the size of the largest block that was ever freed; larger blocks are mapped anew, page
   by page, each time. A block that was shrunk counts with its smaller size when it is freed. So the first block of each size
   is not shrunk but copied, and freed at its full size. */
static int is_kept_by_the_heap(size_t room)
{
#ifndef Py_GIL_DISABLED
    if (room <= largest)
        return 1;
    largest = room;
#else
    (void)room;
#endif
    return 0;
}

int stomp_bytes_end(PyObject **bytes, size_t room, size_t len)
{
    PyObject *copy;
    if (len == room)
        return 0;
    if (room - len <= len && is_kept_by_the_heap(room)) /* otherwise the freed rest would be a hole in the heap */
        return _PyBytes_Resize(bytes, (Py_ssize_t)len);
    copy = PyBytes_FromStringAndSize(PyBytes_AS_STRING(*bytes), (Py_ssize_t)len);
    Py_DECREF(*bytes);
    *bytes = copy;
    return copy ? 0 : -1;
}
