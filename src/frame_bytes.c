#include "frame_bytes.h"

#include <stdlib.h>


enum { PAGE = 4096, SPARE = 2 };

/* glibc reuses freed blocks only up to the size of the largest block that was ever freed; larger blocks are mapped anew, page
   by page, each time. A block that was shrunk counts with its smaller size when it is freed. So a block of each new largest
   size is freed first; it costs no pages, since nothing is written into it. It is SPARE times as large, because glibc gives the end
   of the heap back when twice the size of that block is free there, which it is as soon as a body that grew is freed with the
   block that it grew out of: each body would fault in its pages again (165 faults for a body of 1 MiB, 0 with it). Where
   pointers have 32 bits, glibc maps every block above 512 KiB anew, so this helps smaller ones only. */
static void keep_in_the_heap(size_t room)
{
#ifndef Py_GIL_DISABLED
    static size_t largest;
    if (room <= largest)
        return;
    largest = room;
    void *volatile block = malloc(SPARE * room + sizeof(PyBytesObject)); /* volatile: else the compiler leaves out both calls */
    free(block);
#else
    (void)room;
#endif
}

PyObject *stomp_bytes_new(size_t room)
{
    keep_in_the_heap(room);
    return PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
}

int stomp_bytes_end(PyObject **bytes, size_t room, size_t len)
{
    PyObject *copy;
    if (room - len < PAGE && room - len <= room / 16) { /* not worth a call of realloc */
        Py_SET_SIZE((PyVarObject *)*bytes, (Py_ssize_t)len);
        PyBytes_AS_STRING(*bytes)[len] = 0;
        return 0;
    }
    if (room - len <= len) { /* otherwise the freed rest would be a hole in the heap */
        keep_in_the_heap(room);
        return _PyBytes_Resize(bytes, (Py_ssize_t)len);
    }
    copy = PyBytes_FromStringAndSize(PyBytes_AS_STRING(*bytes), (Py_ssize_t)len);
    Py_DECREF(*bytes);
    *bytes = copy;
    return copy ? 0 : -1;
}
