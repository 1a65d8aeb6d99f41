#include "frame_bytes.h"

#ifndef Py_GIL_DISABLED
static size_t largest; /* room that was given back whole */
#endif

/* glibc keeps blocks for the next one who wants as much only up to the size of the largest one that was ever freed; others
   are had from the system, page by page, each time. A block that is made smaller is freed as a small one. So the first block
   of each size is copied, and freed as large as it is. */
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
    if (room - len <= len && is_kept_by_the_heap(room)) /* else what is left behind it would be a hole in the heap */
        return _PyBytes_Resize(bytes, (Py_ssize_t)len);
    copy = PyBytes_FromStringAndSize(PyBytes_AS_STRING(*bytes), (Py_ssize_t)len);
    Py_DECREF(*bytes);
    *bytes = copy;
    return copy ? 0 : -1;
}
