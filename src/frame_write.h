/* Frames to octets: command, escaped headers, content-length, empty line. The body is left to the caller. */
#ifndef FRAME_WRITE_H
#define FRAME_WRITE_H

#include "frame_object.h"

enum length_mode { LENGTH_AUTO, LENGTH_ALWAYS, LENGTH_NEVER };

struct stomp_writer {
    struct stomp_rules rules;
    int length_mode;
    int lenient; /* lone surrogates are written as the octets they stand for */
};

/* Where the octets go: on the stack first, in a bytes object when they get more. */
struct stomp_out {
    uint8_t *data;
    size_t len, room;
    PyObject *bytes; /* NULL while on the stack */
    uint8_t few[1024];
};

void stomp_out_init(struct stomp_out *out);
void stomp_out_free(struct stomp_out *out);

/* Room for `more` octets; 0, or -1 with MemoryError set. */
int stomp_out_reserve(struct stomp_out *out, size_t more);

/* The octets written so far and, if tail is not NULL, `tail` and a NUL, as bytes; empties out. */
PyObject *stomp_out_take(struct stomp_out *out, PyObject *tail);

/* Append a body and its NUL; 0 or -1 with MemoryError set. */
int stomp_out_body(struct stomp_out *out, PyObject *body);

/* Write the head of a frame up to and including the empty line. Returns STOMP_OK; an error kind, with the index of the
   header at fault in *culprit or UINT32_MAX; or -1 with a Python error set. Nothing written is taken back on errors. */
int stomp_write_head(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *writer, uint32_t *culprit);

/* The same without the command line, for a frame that takes a body. Headers that are named in `without`, and those
   that the version cannot carry, are left out; content-length is written last, anew. 0, or -1 with a Python error set. */
int stomp_write_tail(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *writer,
                     const struct stomp_name *without, size_t without_count);

#endif
