/* The writer of header text. Inline, since each name and value passes here. No Python, no allocation. */
#ifndef STOMP_WRITE_H
#define STOMP_WRITE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "stomp_mask.h"

/* The treatment of special bytes. */
enum stomp_write_mode {
    STOMP_WRITE_1_2,     /* escape CR LF : \ */
    STOMP_WRITE_1_1,     /* escape LF : \ ; CR is written raw */
    STOMP_WRITE_1_0,     /* no escapes: LF is refused, CR is written raw */
    STOMP_WRITE_CONNECT, /* no escapes: CR and LF are refused */
    STOMP_WRITE_LEGACY   /* no escapes: bytes below 32 are refused */
};
#define STOMP_REFUSED SIZE_MAX

/* The same as stomp_write_text below, for texts with special bytes. */
size_t stomp_write_escaped(uint8_t *out, const uint8_t *text, size_t len, int mode, int is_name);

/* Does the word contain a special byte: below 32, ':' or '\'? Bytes above 127 may cause false positives, never false
   negatives. */
static inline uint64_t stomp_special_8(uint64_t x)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t colon = x ^ (ones * ':'), slash = x ^ (ones * '\\');
    uint64_t low = x - ones * 32;
    return (low | (colon - ones) | (slash - ones)) & ~x & tops;
}

/* Copy 16 bytes. Return a bit for each special one. */
#if defined(STOMP_SSE2)
static inline uint32_t stomp_special_bits(__m128i x)
{
    const __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(31)), x);
    const __m128i any = _mm_or_si128(low, _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8(':')), _mm_cmpeq_epi8(x, _mm_set1_epi8('\\'))));
    return (uint32_t)_mm_movemask_epi8(any);
}

static inline uint32_t stomp_copy_16(uint8_t *out, const uint8_t *text)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)text);
    _mm_storeu_si128((__m128i *)(void *)out, x);
    return stomp_special_bits(x);
}
#elif defined(STOMP_NEON)
static inline uint32_t stomp_copy_16(uint8_t *out, const uint8_t *text)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t x = vld1q_u8(text);
    uint8x16_t any = vorrq_u8(vcltq_u8(x, vdupq_n_u8(32)), vorrq_u8(vceqq_u8(x, vdupq_n_u8(':')), vceqq_u8(x, vdupq_n_u8('\\'))));
    vst1q_u8(out, x);
    any = vandq_u8(any, vld1q_u8(bits));
    return (uint32_t)vaddv_u8(vget_low_u8(any)) | (uint32_t)vaddv_u8(vget_high_u8(any)) << 8;
}
#else
static inline uint32_t stomp_copy_16(uint8_t *out, const uint8_t *text)
{
    uint64_t x[2];
    uint32_t bits = 0;
    memcpy(x, text, 16);
    memcpy(out, x, 16);
    if (!(stomp_special_8(x[0]) | stomp_special_8(x[1])))
        return 0;
    for (unsigned i = 0; i < 16; i++)
        bits |= (uint32_t)(text[i] < 32 || text[i] == ':' || text[i] == '\\') << i;
    return bits;
}
#endif

/* Copy 8 to 15 bytes, as two words that overlap. Is one of them special? */
#if defined(STOMP_SSE2)
static inline uint64_t stomp_copy_8(uint8_t *out, const uint8_t *text, size_t len)
{
    const __m128i first = _mm_loadl_epi64((const __m128i *)(const void *)text);
    const __m128i last = _mm_loadl_epi64((const __m128i *)(const void *)(text + len - 8));
    _mm_storel_epi64((__m128i *)(void *)out, first);
    _mm_storel_epi64((__m128i *)(void *)(out + len - 8), last);
    return stomp_special_bits(_mm_unpacklo_epi64(first, last));
}
#else
static inline uint64_t stomp_copy_8(uint8_t *out, const uint8_t *text, size_t len)
{
    uint64_t first, last;
    memcpy(&first, text, 8);
    memcpy(&last, text + len - 8, 8);
    memcpy(out, &first, 8);
    memcpy(out + len - 8, &last, 8);
    return stomp_special_8(first) | stomp_special_8(last);
}
#endif

/* Write a header name or value. out has room for 2 * len + 16 bytes, which may all be written. NUL is always refused, and so is a colon in a name
   that cannot be escaped. Returns the length written, or STOMP_REFUSED. */
static STOMP_INLINE size_t stomp_write_text(uint8_t *out, const uint8_t *text, size_t len, int mode, int is_name)
{
    if (len >= 16) {
        size_t i = 0;
        uint32_t special = 0;
        for (; i + 16 < len; i += 16)
            special |= stomp_copy_16(out + i, text + i);
        special |= stomp_copy_16(out + len - 16, text + len - 16);
        if (STOMP_LIKELY(!special))
            return len;
    } else if (len >= 8) {
        if (STOMP_LIKELY(!stomp_copy_8(out, text, len)))
            return len;
    } else if (len >= 4) {
        uint32_t half, last;
        memcpy(&half, text, 4);
        memcpy(&last, text + len - 4, 4);
        memcpy(out, &half, 4);
        memcpy(out + len - 4, &last, 4);
        if (STOMP_LIKELY(!stomp_special_8(half | (uint64_t)last << 32)))
            return len;
    } else if (len) {
        uint8_t first = text[0], middle = text[len / 2], last = text[len - 1];
        out[0] = first;
        out[len / 2] = middle;
        out[len - 1] = last;
        if (STOMP_LIKELY(!stomp_special_8(0x2020202020000000u | first | (uint64_t)middle << 8 | (uint64_t)last << 16)))
            return len;
    } else {
        return 0;
    }
    return stomp_write_escaped(out, text, len, mode, is_name);
}

#endif
