/* Header text: the UTF-8 check, escapes, and how lines are written. */
#ifndef STOMP_TEXT_H
#define STOMP_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "simd.h"

/* Header text: escapes both ways, and the UTF-8 check. No Python, no allocation, no reads out of bounds. */

/* Return the byte that backslash + c stands for at this level (1: STOMP 1.1, 2: STOMP 1.2), or -1. */
int stomp_escape_of(uint8_t c, int level);

/* Return the index of the first backslash in text that does not start an escape, or len. */
size_t stomp_bad_escape(const uint8_t *text, size_t len, int level);

/* Unescape into out, which has room for len bytes and does not overlap text, and return the length. It is one pass
   from left to right; a backslash that does not start an escape stays (S12-ESC-08). */
size_t stomp_unescape(uint8_t *out, const uint8_t *text, size_t len, int level);

static inline int stomp_is_ascii(const uint8_t *text, size_t len)
{
    uint64_t word, all = 0;
    if (len < 8) {
        for (size_t i = 0; i < len; i++)
            all |= text[i];
        return all < 128;
    }
    for (size_t i = 0; i + 8 < len; i += 8) {
        memcpy(&word, text + i, 8);
        all |= word;
    }
    memcpy(&word, text + len - 8, 8);
    return !((all | word) & 0x8080808080808080u);
}

/* Return the index of the first ill-formed UTF-8 sequence, as Python's decoders report it, or len. */
size_t stomp_bad_utf8(const uint8_t *text, size_t len);

/* Are the bytes UTF-8 with so many characters, or units of UTF-16, as Java and JavaScript count? */
int stomp_counts_characters(const uint8_t *text, size_t len, uint64_t count);

/* ======== UTF-8 by blocks ======== */

/* Find what is not UTF-8 in a block that begins with a character, and whose bytes `high` are above 127. Bit i of the
   result: byte i neither begins nor continues a character. *cut: the first byte of a character that ends behind the
   block, as a bit, or 0; bits above that one mean nothing. */
static STOMP_INLINE uint64_t stomp_utf8_errors(const struct stomp_isa *isa, const uint8_t *at, uint64_t high,
                                               uint64_t *cut)
{
    const uint64_t lead = isa->at_least(at, 0xc0), three = isa->at_least(at, 0xe0);
    uint64_t wanted = lead << 1, bad = lead & ~isa->at_least(at, 0xc2);
    *cut = lead & (uint64_t)1 << 63;
    if (three) { /* no overlong forms, no surrogates */
        const uint64_t four = isa->at_least(at, 0xf0), upper = isa->at_least(at, 0xa0);
        bad |= (isa->equal(at, 0xe0) << 1 & ~upper) | (isa->equal(at, 0xed) << 1 & upper);
        wanted |= three << 2;
        *cut |= three & (uint64_t)3 << 62;
        if (four) {
            const uint64_t not_first = isa->at_least(at, 0x90);
            bad |= isa->at_least(at, 0xf5) | (isa->equal(at, 0xf0) << 1 & ~not_first);
            bad |= isa->equal(at, 0xf4) << 1 & not_first;
            wanted |= four << 3;
            *cut |= four & (uint64_t)7 << 61;
        }
    }
    return bad | (wanted ^ (high & ~lead));
}

/* Return the index of a character at or before the first ill-formed sequence, or len. */
static STOMP_INLINE size_t stomp_utf8_blocks(const struct stomp_isa *isa, const uint8_t *text, size_t len)
{
    uint8_t padded[2 * STOMP_BLOCK];
    size_t i = 0;
    while (i < len) {
        const uint8_t *at = len - i < STOMP_BLOCK ? stomp_last_block(text, i, len, padded) : text + i;
        const uint64_t high = isa->at_least(at, 0x80);
        uint64_t cut = 0;
        if (high && stomp_utf8_errors(isa, at, high, &cut) & stomp_up_to(cut))
            return i;
        i += cut ? stomp_low_bit64(cut) : STOMP_BLOCK;
    }
    return len;
}

#if defined(STOMP_AVX2)
/* What is wrong with two bytes in a row. A row of stomp_utf8_tables has all errors that a half byte permits; those
   that three half bytes permit together are found. */
enum stomp_utf8_pair {
    STOMP_UTF8_ENDS_EARLY = 1 << 0, /* a lead, then no continuation */
    STOMP_UTF8_NO_LEAD = 1 << 1,    /* ASCII, then a continuation */
    STOMP_UTF8_LONG_2 = 1 << 2,     /* overlong forms of 2, 3 and 4 bytes */
    STOMP_UTF8_LONG_3 = 1 << 3,
    STOMP_UTF8_LONG_4 = 1 << 4,   /* F0, or a lead above F4, then 80 to 8F */
    STOMP_UTF8_SURROGATE = 1 << 5,
    STOMP_UTF8_ABOVE = 1 << 6,    /* F4 or more, then 90 or more */
    STOMP_UTF8_TWO_MORE = 1 << 7, /* two continuations, which is right behind longer leads */
};

/* By the high and the low half of the first byte, and the high half of the second. In another file, as stomp_octets. */
extern const uint8_t stomp_utf8_tables[3][32];

STOMP_FOR_AVX2 static inline __m256i stomp_high_halves_avx2(__m256i x)
{
    return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
}

/* Find the bytes among 32 that, with up to three before them, are not UTF-8: those are not 0. */
STOMP_FOR_AVX2 static inline __m256i stomp_utf8_errors_avx2(const uint8_t *at)
{
    const __m256i x = stomp_block_avx2(at), before = stomp_block_avx2(at - 1);
    const __m256i first = _mm256_shuffle_epi8(stomp_block_avx2(stomp_utf8_tables[0]), stomp_high_halves_avx2(before));
    const __m256i low = _mm256_and_si256(before, _mm256_set1_epi8(15));
    const __m256i second = _mm256_shuffle_epi8(stomp_block_avx2(stomp_utf8_tables[1]), low);
    const __m256i third = _mm256_shuffle_epi8(stomp_block_avx2(stomp_utf8_tables[2]), stomp_high_halves_avx2(x));
    const __m256i pairs = _mm256_and_si256(_mm256_and_si256(first, second), third);
    /* The highest bit: a second or third continuation is due. */
    const __m256i of_3 = _mm256_subs_epu8(stomp_block_avx2(at - 2), _mm256_set1_epi8(0xe0 - 0x80));
    const __m256i of_4 = _mm256_subs_epu8(stomp_block_avx2(at - 3), _mm256_set1_epi8(0xf0 - 0x80));
    const __m256i due = _mm256_and_si256(_mm256_or_si256(of_3, of_4), _mm256_set1_epi8((char)0x80));
    return _mm256_xor_si256(pairs, due);
}

/* Is a text UTF-8? It ends with ASCII, and is not empty. Three bytes of ASCII before it can be read, and full blocks
   of 32 bytes from its first byte on. */
STOMP_FOR_AVX2 static inline int stomp_is_utf8_avx2(const uint8_t *text, size_t len)
{
    __m256i bad = _mm256_setzero_si256();
    const uint8_t *last = text + ((len - 1) & ~(size_t)31);
    for (const uint8_t *at = text; at != last; at += 32)
        bad = _mm256_or_si256(bad, stomp_utf8_errors_avx2(at));
    const __m256i good = _mm256_cmpeq_epi8(stomp_utf8_errors_avx2(last), _mm256_setzero_si256());
    const uint32_t bits = ~(uint32_t)_mm256_movemask_epi8(good) << (-len & 31); /* those behind the text are dropped */
    return _mm256_testz_si256(bad, bad) && !bits;
}
#endif

/* ======== writing ======== */

/* The writer of header text. Inline, since each name and value passes here. No Python, no allocation. */

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
    const __m128i any =
        _mm_or_si128(low, _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8(':')), _mm_cmpeq_epi8(x, _mm_set1_epi8('\\'))));
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
    uint8x16_t any =
        vorrq_u8(vcltq_u8(x, vdupq_n_u8(32)), vorrq_u8(vceqq_u8(x, vdupq_n_u8(':')), vceqq_u8(x, vdupq_n_u8('\\'))));
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

/* Write a header name or value. out has room for 2 * len + 16 bytes, which may all be written. NUL is always refused,
   and so is a colon in a name that cannot be escaped. Returns the length written, or STOMP_REFUSED. */
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
