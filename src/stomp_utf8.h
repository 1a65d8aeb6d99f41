/* UTF-8 by blocks. */
#ifndef STOMP_UTF8_H
#define STOMP_UTF8_H

#include "stomp_block.h"

/* Find what is not UTF-8 in a block that begins with a character, and whose bytes `high` are above 127. Bit i of the result: byte
   i neither begins nor continues a character. *cut: the first byte of a character that ends behind the block, as a bit, or 0;
   bits above that one mean nothing. */
static STOMP_INLINE uint64_t stomp_utf8_errors(const struct stomp_isa *isa, const uint8_t *at, uint64_t high, uint64_t *cut)
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
/* What is wrong with two bytes in a row. A row of stomp_utf8_tables has all errors that a half byte permits; those that three
   half bytes permit together are found. */
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

/* Is a text UTF-8? It ends with ASCII, and is not empty. Three bytes of ASCII before it can be read, and full blocks of 32 bytes
   from its first byte on. */
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

#endif
