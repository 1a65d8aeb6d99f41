/* Memory for the files that know no Python. In the extension it comes from Python's raw allocator, which needs no GIL, so
   that tracemalloc, debug hooks and tests with failing memory see every allocation. Elsewhere it comes from libc. */
#ifndef STOMP_MEMORY_H
#define STOMP_MEMORY_H

#include <stddef.h>
#include <stdlib.h>

#ifdef STOMP_PYTHON
void *PyMem_RawMalloc(size_t size);
void *PyMem_RawCalloc(size_t count, size_t size);
void *PyMem_RawRealloc(void *old, size_t size);
void PyMem_RawFree(void *old);
#endif

/* `size` bytes, or NULL. */
static inline void *stomp_alloc(size_t size)
{
#ifdef STOMP_PYTHON
    return PyMem_RawMalloc(size);
#else
    return malloc(size);
#endif
}

/* `count` times `size` bytes, all zero, or NULL. */
static inline void *stomp_alloc_zeroed(size_t count, size_t size)
{
#ifdef STOMP_PYTHON
    return PyMem_RawCalloc(count, size);
#else
    return calloc(count, size);
#endif
}

/* The block made larger or smaller, maybe elsewhere; NULL: it stays as it was. */
static inline void *stomp_resize(void *old, size_t size)
{
#ifdef STOMP_PYTHON
    return PyMem_RawRealloc(old, size);
#else
    return realloc(old, size);
#endif
}

static inline void stomp_release(void *old)
{
#ifdef STOMP_PYTHON
    PyMem_RawFree(old);
#else
    free(old);
#endif
}

#endif
