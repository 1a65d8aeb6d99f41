/* The writer of frame heads: command, escaped headers, content-length, empty line. The caller writes the body. */
#ifndef FRAME_WRITE_H
#define FRAME_WRITE_H

#include "frame_object.h"

enum length_mode { LENGTH_AUTO, LENGTH_ALWAYS, LENGTH_NEVER };

struct stomp_writer {
    struct stomp_rules rules;
    int length_mode;
    int lenient; /* lone surrogates are written as the bytes they stand for */
};

/* The output buffer: on the stack first, then in a bytes object. */
struct stomp_out {
    uint8_t *data;
    size_t len, room;
    PyObject *bytes; /* NULL while on the stack */
    uint8_t few[1024];
};

void stomp_out_init(struct stomp_out *out);
void stomp_out_free(struct stomp_out *out);

/* Make room for `more` bytes. Returns 0, or -1 with MemoryError set. */
int stomp_out_reserve(struct stomp_out *out, size_t more);

/* Return the output as bytes and empty it. If tail is not NULL, `tail` and a NUL are appended. */
PyObject *stomp_out_take(struct stomp_out *out, PyObject *tail);

/* Append a body and its NUL. Returns 0, or -1 with MemoryError set. */
int stomp_out_body(struct stomp_out *out, PyObject *body);

/* Write the head of a frame up to and including the empty line. Returns STOMP_OK; an error kind, with the index of the bad
   header in *culprit, or UINT32_MAX; or -1 with a Python error set. After an error, the partial output stays. */
int stomp_write_head(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *writer, uint32_t *culprit);

/* Write the head without its command line, for a frame that may have a body. Headers named in `without`, and those that the
   version cannot represent, are left out; content-length is written last. Returns 0, or -1 with a Python error set. */
int stomp_write_tail(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *writer,
                     const struct stomp_name *without, size_t without_count);

#endif
