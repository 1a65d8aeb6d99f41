/* The body of a frame whose data is all in one place. */
#ifndef STOMP_BODY_H
#define STOMP_BODY_H

#include <string.h>

#include "stomp_head.h"

/* Find the body at `body`, with len bytes available. *size: its bytes, without the NUL. Returns an enum stomp_error; -1: incomplete. */
static inline int stomp_find_body(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *body, size_t len,
                                  size_t *size)
{
    if (scan->marks & STOMP_HAS_LENGTH) {
        if (len <= scan->length)
            return -1;
        *size = (size_t)scan->length;
        return body[*size] ? STOMP_MISSING_NULL : STOMP_OK;
    }
    size_t most = len > rules->max_body ? (size_t)rules->max_body + 1 : len;
    if (len && body[0] && !stomp_takes_body(rules, scan->command)) {
        *size = 0;
        return STOMP_BODY_NOT_ALLOWED;
    }
    const uint8_t *nul = most ? memchr(body, 0, most) : NULL;
    *size = nul ? (size_t)(nul - body) : (size_t)rules->max_body;
    return nul ? STOMP_OK : len > rules->max_body ? STOMP_LIMIT_BODY : -1;
}

#endif
