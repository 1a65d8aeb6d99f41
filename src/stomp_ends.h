/* A light parse that finds the ends of frames and checks nothing else. It uses no Python and runs without the GIL.

   A frame is: EOLs, a head up to the first empty line, a body. The first content-length in the head counts if it is a number
   and a NUL follows the body of that length; otherwise the body ends at the first NUL. So the ends are right for all frames
   that are valid in 1.0, 1.1 or 1.2, and tell where to continue after a malformed one. */
#ifndef STOMP_ENDS_H
#define STOMP_ENDS_H

#include <stddef.h>
#include <stdint.h>

struct stomp_ends {
    int64_t *ends; /* offsets, ascending */
    size_t count, room;
};

/* The ends to return: those at least `every` bytes after the last returned one, and the end of the last whole frame; at most
   `most`. A content-length above max_body is ignored. */
struct stomp_ends_wanted {
    size_t every, most;
    uint64_t max_body;
};

/* Returns 0, or -1 without memory. Call stomp_ends_free afterwards in either case. */
int stomp_frame_ends(struct stomp_ends *ends, const struct stomp_ends_wanted *wanted, const uint8_t *data, size_t len);
void stomp_ends_free(struct stomp_ends *ends);

#endif
