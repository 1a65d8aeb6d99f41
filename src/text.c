/* Header text: UTF-8, and escapes both ways. */
#include "text.h"

#include <string.h>

#if defined(STOMP_AVX2)
#define TIMES_8(c) c, c, c, c, c, c, c, c
#define TIMES_32(c) {TIMES_8(c), TIMES_8(c), TIMES_8(c), TIMES_8(c)}
const uint8_t stomp_octets[3][32] = {TIMES_32('\n'), TIMES_32(':'), {[12] = '\\', '\r', [28] = '\\', '\r'}};

#define PAIR (STOMP_UTF8_ENDS_EARLY | STOMP_UTF8_NO_LEAD | STOMP_UTF8_TWO_MORE) /* no matter what the low half is */
#define HIGHEST (PAIR | STOMP_UTF8_ABOVE | STOMP_UTF8_LONG_4)
#define CONTINUED (STOMP_UTF8_NO_LEAD | STOMP_UTF8_LONG_2 | STOMP_UTF8_TWO_MORE)
#define LEAD_OF_4 (STOMP_UTF8_ENDS_EARLY | STOMP_UTF8_LONG_4 | STOMP_UTF8_ABOVE)
#define TWICE(...) {__VA_ARGS__, __VA_ARGS__}
const uint8_t stomp_utf8_tables[3][32] = {
    TWICE(TIMES_8(STOMP_UTF8_NO_LEAD), STOMP_UTF8_TWO_MORE, STOMP_UTF8_TWO_MORE, STOMP_UTF8_TWO_MORE,
          STOMP_UTF8_TWO_MORE, STOMP_UTF8_ENDS_EARLY | STOMP_UTF8_LONG_2, STOMP_UTF8_ENDS_EARLY,
          STOMP_UTF8_ENDS_EARLY | STOMP_UTF8_LONG_3 | STOMP_UTF8_SURROGATE, LEAD_OF_4),
    TWICE(PAIR | STOMP_UTF8_LONG_2 | STOMP_UTF8_LONG_3 | STOMP_UTF8_LONG_4, PAIR | STOMP_UTF8_LONG_2, PAIR, PAIR,
          PAIR | STOMP_UTF8_ABOVE, TIMES_8(HIGHEST), HIGHEST | STOMP_UTF8_SURROGATE, HIGHEST, HIGHEST),
    TWICE(TIMES_8(STOMP_UTF8_ENDS_EARLY), CONTINUED | STOMP_UTF8_LONG_3 | STOMP_UTF8_LONG_4,
          CONTINUED | STOMP_UTF8_LONG_3 | STOMP_UTF8_ABOVE, CONTINUED | STOMP_UTF8_SURROGATE | STOMP_UTF8_ABOVE,
          CONTINUED | STOMP_UTF8_SURROGATE | STOMP_UTF8_ABOVE, STOMP_UTF8_ENDS_EARLY, STOMP_UTF8_ENDS_EARLY,
          STOMP_UTF8_ENDS_EARLY, STOMP_UTF8_ENDS_EARLY),
};
#endif

static const struct stomp_isa isa = {stomp_masks_plain, stomp_equal_plain, stomp_at_least_plain};

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

/* Read one byte or escape at *text. */
static inline uint8_t next_octet(const uint8_t **text, const uint8_t *end, int level)
{
    const uint8_t c = *(*text)++;
    const int plain = c == '\\' && *text < end ? stomp_escape_of(**text, level) : -1;
    *text += plain >= 0;
    return plain >= 0 ? (uint8_t)plain : c;
}

size_t stomp_unescape(uint8_t *out, const uint8_t *text, size_t len, int level)
{
    const uint8_t *end = text + len;
    uint8_t *to = out;
    while (text < end) {
        const uint8_t *hit = memchr(text, '\\', (size_t)(end - text));
        const size_t run = (size_t)((hit ? hit : end) - text);
        memcpy(to, text, run);
        to += run;
        text += run;
        if (hit)
            *to++ = next_octet(&text, end, level);
    }
    return (size_t)(to - out);
}

/* Return the length of the well-formed sequence at text, or 0. */
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
    size_t i = stomp_utf8_blocks(&isa, text, len), n;
    while (i < len && (n = sequence(text + i, len - i)))
        i += n;
    return i;
}

int stomp_counts_characters(const uint8_t *text, size_t len, uint64_t count)
{
    uint64_t characters = 0, units = 0;
    if (stomp_bad_utf8(text, len) != len)
        return 0;
    for (size_t i = 0; i < len; i++) {
        characters += (text[i] & 0xc0) != 0x80;
        units += text[i] >= 0xf0; /* those of the first count, and a second one for each of these */
    }
    return count == characters || count == characters + units;
}

/* ======== writing ======== */

/* How a special byte is written: 0 unchanged, -1 not at all, else by a backslash and this letter. */
static int letter_of(uint8_t c, int mode, int is_name)
{
    if (c == 0)
        return -1;
    if (mode <= STOMP_WRITE_1_1)
        return c == '\n' ? 'n' : c == ':' ? 'c' : c == '\\' ? '\\' : c == '\r' && mode == STOMP_WRITE_1_2 ? 'r' : 0;
    if (c == '\n' || (c == '\r' && mode != STOMP_WRITE_1_0) || (c == ':' && is_name)
        || (c < 32 && mode == STOMP_WRITE_LEGACY))
        return -1;
    return 0;
}

size_t stomp_write_escaped(uint8_t *out, const uint8_t *text, size_t len, int mode, int is_name)
{
    uint8_t *to = out;
    for (size_t i = 0; i < len; i += 16) {
        const size_t many = len - i < 16 ? len - i : 16;
        uint8_t part[32] = "                "; /* so that 16 bytes can be copied from each byte of the text on */
        memcpy(part, text + i, many);
        for (uint32_t bits = stomp_copy_16(to, part); bits; bits &= bits - 1) {
            const unsigned at = stomp_low_bit(bits);
            const int letter = letter_of(part[at], mode, is_name);
            if (letter < 0)
                return STOMP_REFUSED;
            if (!letter)
                continue;
            to[at] = '\\';
            to++; /* from here on, all bytes of the part are one place further */
            to[at] = (uint8_t)letter;
            memcpy(to + at + 1, part + at + 1, 16);
        }
        to += many;
    }
    return (size_t)(to - out);
}
