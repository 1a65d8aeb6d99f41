/* The writer of frames. */
#ifndef STOMP_WRITER_H
#define STOMP_WRITER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "frame.h"

/* ======== output ======== */

/* The output of the writer: bytes that are written before their number is known. */

/* One output: on the stack first, then in a bytes object. */
struct stomp_out {
    uint8_t *data;
    size_t len, room;
    PyObject *bytes; /* NULL while on the stack */
    uint8_t few[2048];
};

void stomp_out_init(struct stomp_out *out);
void stomp_out_free(struct stomp_out *out);

/* Make room for `more` bytes, which is of 64 bits so that no sum of sizes wraps. Returns 0, or -1 with MemoryError
   set. */
int stomp_out_grow(struct stomp_out *out, uint64_t more);
static inline int stomp_out_reserve(struct stomp_out *out, uint64_t more)
{
    return more <= out->room - out->len ? 0 : stomp_out_grow(out, more);
}

/* Return the output as bytes and empty it. If tail is not NULL, `tail` and a NUL are appended. */
PyObject *stomp_out_take(struct stomp_out *out, PyObject *tail);

/* Many frames. Room for all is made at once if their size is known: bytes that grow are moved, and a block of a new
   size is mapped anew, page by page. */
struct stomp_batch {
    struct stomp_out head; /* of the current frame */
    PyObject *bytes;       /* NULL: not yet */
    size_t len, room;
};

/* Begin with room for `expected` bytes, perhaps 0. It is made for the first frame. */
void stomp_batch_init(struct stomp_batch *batch, size_t expected);
void stomp_batch_free(struct stomp_batch *batch);

/* Append the head, and the body with its NUL. Returns 0, or -1 with MemoryError set. */
int stomp_batch_add(struct stomp_batch *batch, PyObject *body);

/* Return all frames as bytes. NULL: no memory. */
PyObject *stomp_batch_take(struct stomp_batch *batch);

/* ======== frames ======== */

/* The writer of frame heads: command, escaped headers, content-length, empty line. The caller writes the body. */

enum length_mode { LENGTH_AUTO, LENGTH_ALWAYS, LENGTH_NEVER };

struct stomp_writer {
    struct stomp_rules rules;
    int length_mode;
    int lenient; /* lone surrogates are written as the bytes they stand for */
};

/* Write the head of a frame up to and including the empty line. Returns STOMP_OK; an error kind, with the index of
   the bad header in *culprit, or UINT32_MAX; or -1 with a Python error set.
   After an error, the partial output stays. */
int stomp_write_head(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *writer, uint32_t *culprit);

/* Return how many bytes a frame is likely to need, for many frames that are written into one block. */
size_t stomp_expected_size(const StompFrame *frame);

/* Make *bytes of a whole frame. Returns what stomp_write_head returns. */
int stomp_write_frame(PyObject **bytes, StompFrame *frame, const struct stomp_writer *writer, uint32_t *culprit);

/* Write the head without its command line, for a frame that may have a body. Headers named in `without`, and those
   that the version cannot represent, are left out; content-length is written last. Returns 0, or -1 with a Python
   error set. */
int stomp_write_tail(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *writer,
                     const struct stomp_name *without, size_t without_count);

#endif
