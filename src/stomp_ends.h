/* Where frames end, by a light parse that checks nothing else. No Python: runs without the GIL.

   A frame is: EOLs, a head up to the first empty line, a body. The first content-length in the head counts if it is a
   number and the octet behind so many is NUL; otherwise the body goes to the first NUL. So the ends are those of every
   frame that is valid in 1.0, 1.1 or 1.2, and behind a malformed one this is where to go on. */
#ifndef STOMP_ENDS_H
#define STOMP_ENDS_H

#include <stddef.h>
#include <stdint.h>

struct stomp_ends {
    int64_t *ends; /* octets, ascending */
    size_t count, room;
};

/* Which ends are given: those at least `every` octets behind the one given before, and that of the last whole frame; at
   most `most`. A content-length above max_body is not believed. */
struct stomp_ends_wanted {
    size_t every, most;
    uint64_t max_body;
};

/* 0, or -1 for want of memory. Call stomp_ends_free afterwards, in any case. */
int stomp_frame_ends(struct stomp_ends *ends, const struct stomp_ends_wanted *wanted, const uint8_t *data, size_t len);
void stomp_ends_free(struct stomp_ends *ends);

#endif
