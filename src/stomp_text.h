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

/* How stomp_write_text treats special octets. */
enum stomp_write_mode {
    STOMP_WRITE_1_2,     /* escape CR LF : \ */
    STOMP_WRITE_1_1,     /* escape LF : \ ; CR goes raw */
    STOMP_WRITE_1_0,     /* no escapes: LF is refused, CR goes raw */
    STOMP_WRITE_CONNECT, /* no escapes: CR and LF are refused */
    STOMP_WRITE_LEGACY   /* no escapes: octets below 32 are refused */
};
#define STOMP_REFUSED SIZE_MAX

/* Write a header name or value. out has room for 2 * len + 16 octets. NUL is always refused, and a colon in a name
   where there is no escape for it. Returns the length written, or STOMP_REFUSED. */
size_t stomp_write_text(uint8_t *out, const uint8_t *text, size_t len, int mode, int is_name);

/* The first octet of the first ill-formed UTF-8 sequence, or len (as the decoders of Python count it). */
size_t stomp_bad_utf8(const uint8_t *text, size_t len);

#endif
