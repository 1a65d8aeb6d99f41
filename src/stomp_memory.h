/* The allocator of the files that do not use Python. In the extension it is Python's raw allocator, which needs no GIL, so
   that tracemalloc, debug hooks and tests with failing memory see each allocation. Elsewhere it is that of libc. */
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

/* Allocate `size` bytes, or return NULL. */
static inline void *stomp_alloc(size_t size)
{
#ifdef STOMP_PYTHON
    return PyMem_RawMalloc(size);
#else
    return malloc(size);
#endif
}

/* Allocate `count` times `size` bytes, all zero, or return NULL. */
static inline void *stomp_alloc_zeroed(size_t count, size_t size)
{
#ifdef STOMP_PYTHON
    return PyMem_RawCalloc(count, size);
#else
    return calloc(count, size);
#endif
}

/* Resize a block, which may move it. NULL: no memory, and the block is unchanged. */
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
