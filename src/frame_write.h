/* The writer of frame heads: command, escaped headers, content-length, empty line. The caller writes the body. */
#ifndef FRAME_WRITE_H
#define FRAME_WRITE_H

#include "frame_object.h"
#include "frame_out.h"

enum length_mode { LENGTH_AUTO, LENGTH_ALWAYS, LENGTH_NEVER };

struct stomp_writer {
    struct stomp_rules rules;
    int length_mode;
    int lenient; /* lone surrogates are written as the bytes they stand for */
};

/* Write the head of a frame up to and including the empty line. Returns STOMP_OK; an error kind, with the index of the bad
   header in *culprit, or UINT32_MAX; or -1 with a Python error set. After an error, the partial output stays. */
int stomp_write_head(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *writer, uint32_t *culprit);

/* Return how many bytes a frame is likely to need, for many frames that are written into one block. */
size_t stomp_expected_size(const StompFrame *frame);

/* Make *bytes of a whole frame. Returns what stomp_write_head returns. */
int stomp_write_frame(PyObject **bytes, StompFrame *frame, const struct stomp_writer *writer, uint32_t *culprit);

/* Write the head without its command line, for a frame that may have a body. Headers named in `without`, and those that the
   version cannot represent, are left out; content-length is written last. Returns 0, or -1 with a Python error set. */
int stomp_write_tail(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *writer,
                     const struct stomp_name *without, size_t without_count);

#endif
