/* Header text: escapes both ways, and the UTF-8 check. No Python, no allocation, no reads out of bounds. */
#ifndef STOMP_TEXT_H
#define STOMP_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* The octet that backslash + c stands for at this level (1: STOMP 1.1, 2: STOMP 1.2), or -1. */
int stomp_escape_of(uint8_t c, int level);

/* The first backslash in [text, text + len) that starts no escape, or len. */
size_t stomp_bad_escape(const uint8_t *text, size_t len, int level);

/* Unescape into out, which has room for len octets and may be text itself; returns the length.
   One pass from left to right; a backslash that starts no escape stays (S12-ESC-08). */
size_t stomp_unescape(uint8_t *out, const uint8_t *text, size_t len, int level);

/* The first octet of the first ill-formed UTF-8 sequence, or len (as the decoders of Python count it). */
size_t stomp_bad_utf8(const uint8_t *text, size_t len);

#endif
