#include "stomp_text.h"

#include <string.h>

#define TIMES_8(c) c, c, c, c, c, c, c, c
#define TIMES_32(c) {TIMES_8(c), TIMES_8(c), TIMES_8(c), TIMES_8(c)}
extern const uint8_t stomp_octets[4][32]; /* see stomp_mask.h */
const uint8_t stomp_octets[4][32] = {TIMES_32('\n'), TIMES_32(':'), TIMES_32('\r'), TIMES_32('\\')};

int stomp_escape_of(uint8_t c, int level)
{
    switch (c) {
    case 'n': return level ? '\n' : -1;
    case 'c': return level ? ':' : -1;
    case '\\': return level ? '\\' : -1;
    case 'r': return level == 2 ? '\r' : -1;
    default: return -1;
    }
}

size_t stomp_bad_escape(const uint8_t *text, size_t len, int level)
{
    size_t i = 0;
    while (i < len) {
        const uint8_t *hit = memchr(text + i, '\\', len - i);
        if (!hit)
            return len;
        i = (size_t)(hit - text);
        if (i + 1 == len || stomp_escape_of(text[i + 1], level) < 0)
            return i;
        i += 2;
    }
    return len;
}

size_t stomp_unescape(uint8_t *out, const uint8_t *text, size_t len, int level)
{
    const uint8_t *end = text + len;
    uint8_t *to = out;
    while (text < end) {
        if (*text != '\\') {
            const uint8_t *hit = memchr(text, '\\', (size_t)(end - text));
            size_t run = (size_t)((hit ? hit : end) - text);
            memmove(to, text, run);
            to += run;
            text += run;
            continue;
        }
        int meant = text + 1 < end ? stomp_escape_of(text[1], level) : -1;
        *to++ = meant >= 0 ? (uint8_t)meant : '\\';
        text += meant >= 0 ? 2 : 1;
    }
    return (size_t)(to - out);
}

/* Is some octet of the word one that a writer must look at: below 32, ':', '\'? Octets above 127 may make it say yes
   without need, never no where it is yes. */
static inline uint64_t special_in(uint64_t x)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t colon = x ^ (ones * ':'), slash = x ^ (ones * '\\');
    uint64_t low = x - ones * 32;
    return (low | (colon - ones) | (slash - ones)) & ~x & tops;
}

static size_t write_slowly(uint8_t *out, const uint8_t *text, size_t len, int mode, int is_name)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        uint8_t c = text[i];
        uint8_t letter = 0;
        if (c == 0)
            return STOMP_REFUSED;
        if (mode <= STOMP_WRITE_1_1) {
            letter = c == '\n' ? 'n' : c == ':' ? 'c' : c == '\\' ? '\\' : c == '\r' && mode == STOMP_WRITE_1_2 ? 'r' : 0;
        } else if (c == '\n' || (c == '\r' && mode != STOMP_WRITE_1_0) || (c == ':' && is_name)
                   || (c < 32 && mode == STOMP_WRITE_LEGACY)) {
            return STOMP_REFUSED;
        }
        if (letter) {
            out[n++] = '\\';
            out[n++] = letter;
        } else {
            out[n++] = c;
        }
    }
    return n;
}

size_t stomp_write_text(uint8_t *out, const uint8_t *text, size_t len, int mode, int is_name)
{
    uint64_t word, last;
    uint32_t half, half_last;
    if (len >= 8) {
        size_t i = 0;
        for (; i + 8 <= len; i += 8) {
            memcpy(&word, text + i, 8);
            if (special_in(word))
                return write_slowly(out, text, len, mode, is_name);
            memcpy(out + i, &word, 8);
        }
        memcpy(&last, text + len - 8, 8);
        if (special_in(last))
            return write_slowly(out, text, len, mode, is_name);
        memcpy(out + len - 8, &last, 8);
        return len;
    }
    if (len >= 4) {
        memcpy(&half, text, 4);
        memcpy(&half_last, text + len - 4, 4);
        if (special_in(half | (uint64_t)half_last << 32))
            return write_slowly(out, text, len, mode, is_name);
        memcpy(out, &half, 4);
        memcpy(out + len - 4, &half_last, 4);
        return len;
    }
    return write_slowly(out, text, len, mode, is_name);
}

/* How many octets the well-formed sequence at text has, or 0. */
static inline size_t sequence(const uint8_t *text, size_t len)
{
    uint8_t a = text[0];
    if (a < 0x80)
        return 1;
    if (a < 0xc2 || len < 2 || (text[1] & 0xc0) != 0x80)
        return 0;
    if (a < 0xe0)
        return 2;
    if (len < 3 || (text[2] & 0xc0) != 0x80)
        return 0;
    if (a < 0xf0) /* no overlong forms, no surrogates */
        return (a == 0xe0 && text[1] < 0xa0) || (a == 0xed && text[1] > 0x9f) ? 0 : 3;
    if (a > 0xf4 || len < 4 || (text[3] & 0xc0) != 0x80)
        return 0;
    return (a == 0xf0 && text[1] < 0x90) || (a == 0xf4 && text[1] > 0x8f) ? 0 : 4;
}

size_t stomp_bad_utf8(const uint8_t *text, size_t len)
{
    size_t i = 0;
    while (i < len) {
        uint64_t word;
        if (len - i >= 8) {
            memcpy(&word, text + i, 8);
            if (!(word & 0x8080808080808080u)) {
                i += 8;
                continue;
            }
        }
        size_t n = sequence(text + i, len - i);
        if (!n)
            return i;
        i += n;
    }
    return len;
}
