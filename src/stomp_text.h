/* Header text: escapes both ways, and the UTF-8 check. No Python, no allocation, no reads out of bounds. */
#ifndef STOMP_TEXT_H
#define STOMP_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Return the byte that backslash + c stands for at this level (1: STOMP 1.1, 2: STOMP 1.2), or -1. */
int stomp_escape_of(uint8_t c, int level);

/* Return the index of the first backslash in text that does not start an escape, or len. */
size_t stomp_bad_escape(const uint8_t *text, size_t len, int level);

/* Unescape into out, which has room for len bytes and does not overlap text, and return the length. It is one pass from left to
   right; a backslash that does not start an escape stays (S12-ESC-08). */
size_t stomp_unescape(uint8_t *out, const uint8_t *text, size_t len, int level);

static inline int stomp_is_ascii(const uint8_t *text, size_t len)
{
    uint8_t all = 0;
    for (size_t i = 0; i < len; i++)
        all |= text[i];
    return all < 0x80;
}

/* Return the index of the first ill-formed UTF-8 sequence, as Python's decoders report it, or len. */
size_t stomp_bad_utf8(const uint8_t *text, size_t len);

#endif
