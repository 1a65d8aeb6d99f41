/* Bytes as bit masks, by SIMD. */
#ifndef STOMP_SIMD_H
#define STOMP_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The instruction sets for bit masks of bytes. Each x86-64 has SSE2 and each arm64 NEON; elsewhere plain C computes
   the same masks. */

#if defined(STOMP_NO_SIMD) /* to test plain C */
#elif defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#ifndef STOMP_NO_AVX2 /* to test SSE2 alone */
#define STOMP_AVX2 1  /* chosen at run time */
#endif
#define STOMP_SSE2 1
#elif defined(_M_X64)
#include <emmintrin.h>
#define STOMP_SSE2 1
#elif defined(_M_ARM64) && !defined(__clang__)
#include <arm64_neon.h>
#define STOMP_NEON 1
#elif defined(__ARM_NEON) && defined(__aarch64__) && !defined(__AARCH64EB__)
#include <arm_neon.h>
#define STOMP_NEON 1
#endif
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#endif

#if defined(__GNUC__)
#define STOMP_NOINLINE __attribute__((noinline, unused))
#define STOMP_INLINE inline __attribute__((always_inline))
#define STOMP_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define STOMP_LIKELY(x) __builtin_expect(!!(x), 1)
#else
#define STOMP_NOINLINE
#define STOMP_INLINE inline
#define STOMP_UNLIKELY(x) (x)
#define STOMP_LIKELY(x) (x)
#endif

static inline unsigned stomp_low_bit(uint32_t x)
{
#if defined(_MSC_VER) && !defined(__clang__)
    unsigned long at;
    _BitScanForward(&at, x);
    return (unsigned)at;
#else
    return (unsigned)__builtin_ctz(x);
#endif
}

static inline unsigned stomp_low_bit64(uint64_t x)
{
#if defined(__GNUC__)
    return (unsigned)__builtin_ctzll(x);
#else
    return (uint32_t)x ? stomp_low_bit((uint32_t)x) : 32 + stomp_low_bit((uint32_t)(x >> 32));
#endif
}

#if defined(STOMP_NEON)
static inline uint32_t stomp_bits(uint8x16_t a, uint8x16_t b)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t bit = vld1q_u8(bits);
    uint8x16_t sum = vpaddq_u8(vandq_u8(a, bit), vandq_u8(b, bit));
    sum = vpaddq_u8(sum, sum);
    sum = vpaddq_u8(sum, sum);
    return vgetq_lane_u32(vreinterpretq_u32_u8(sum), 0);
}
#endif

#if defined(STOMP_AVX2)
static inline int stomp_has_avx2(void)
{
    static int known; /* 1 no, 2 yes; all threads find the same */
    if (!known)
        known = 1 + (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi"));
    return known == 2;
}
#endif

/* ======== blocks ======== */

/* Blocks of 64 bytes as bit masks: bit i is byte i. For each instruction set there are three functions, which turn 64
   bytes into masks; what works on masks is written once, and inlined with the functions of one instruction set. */

#define STOMP_BLOCK 64 /* bytes */

/* rare: NUL, CR, backslash, above 127. */
struct stomp_masks {
    uint64_t lf, colon, rare;
};

struct stomp_isa {
    struct stomp_masks (*masks)(const uint8_t *data);
    uint64_t (*equal)(const uint8_t *data, uint8_t c);
    uint64_t (*at_least)(const uint8_t *data, uint8_t c); /* the bytes that are not below c, which is above 127 */
};

/* All bits up to the lowest bit of x, or all bits if x is 0. */
static inline uint64_t stomp_up_to(uint64_t x)
{
    return x ^ (x - 1);
}

#if defined(STOMP_SSE2)
static inline uint64_t stomp_bits_sse2(__m128i a, __m128i b, __m128i c, __m128i d)
{
    const uint32_t low = (uint32_t)_mm_movemask_epi8(a) | (uint32_t)_mm_movemask_epi8(b) << 16;
    const uint32_t high = (uint32_t)_mm_movemask_epi8(c) | (uint32_t)_mm_movemask_epi8(d) << 16;
    return low | (uint64_t)high << 32;
}

static inline __m128i stomp_block_sse2(const uint8_t *data)
{
    return _mm_loadu_si128((const __m128i *)(const void *)data);
}

static inline uint64_t stomp_equal_plain(const uint8_t *data, uint8_t c)
{
    const __m128i wanted = _mm_set1_epi8((char)c);
    return stomp_bits_sse2(
        _mm_cmpeq_epi8(stomp_block_sse2(data), wanted), _mm_cmpeq_epi8(stomp_block_sse2(data + 16), wanted),
        _mm_cmpeq_epi8(stomp_block_sse2(data + 32), wanted), _mm_cmpeq_epi8(stomp_block_sse2(data + 48), wanted));
}

static inline __m128i stomp_reaches_sse2(__m128i x, __m128i least)
{
    return _mm_cmpeq_epi8(_mm_max_epu8(x, least), x);
}

static inline uint64_t stomp_at_least_plain(const uint8_t *data, uint8_t c)
{
    const __m128i least = _mm_set1_epi8((char)c);
    return stomp_bits_sse2(
        stomp_reaches_sse2(stomp_block_sse2(data), least), stomp_reaches_sse2(stomp_block_sse2(data + 16), least),
        stomp_reaches_sse2(stomp_block_sse2(data + 32), least), stomp_reaches_sse2(stomp_block_sse2(data + 48), least));
}

static inline struct stomp_masks stomp_masks_plain(const uint8_t *data)
{
    const __m128i cr = _mm_set1_epi8('\r'), slash = _mm_set1_epi8('\\'), zero = _mm_setzero_si128();
    __m128i rare[4];
    for (int i = 0; i < 4; i++) {
        const __m128i x = stomp_block_sse2(data + 16 * i);
        const __m128i outer = _mm_or_si128(_mm_cmpeq_epi8(x, zero), x);
        rare[i] = _mm_or_si128(outer, _mm_or_si128(_mm_cmpeq_epi8(x, cr), _mm_cmpeq_epi8(x, slash)));
    }
    const struct stomp_masks m = {stomp_equal_plain(data, '\n'), stomp_equal_plain(data, ':'),
                                  stomp_bits_sse2(rare[0], rare[1], rare[2], rare[3])};
    return m;
}
#elif defined(STOMP_NEON)
static inline uint64_t stomp_bits_neon(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t bit = vld1q_u8(bits);
    const uint8x16_t low = vpaddq_u8(vandq_u8(a, bit), vandq_u8(b, bit)),
                     high = vpaddq_u8(vandq_u8(c, bit), vandq_u8(d, bit));
    const uint8x16_t all = vpaddq_u8(low, high);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(all, all)), 0);
}

static inline uint64_t stomp_equal_plain(const uint8_t *data, uint8_t c)
{
    const uint8x16_t wanted = vdupq_n_u8(c);
    return stomp_bits_neon(vceqq_u8(vld1q_u8(data), wanted), vceqq_u8(vld1q_u8(data + 16), wanted),
                           vceqq_u8(vld1q_u8(data + 32), wanted), vceqq_u8(vld1q_u8(data + 48), wanted));
}

static inline uint64_t stomp_at_least_plain(const uint8_t *data, uint8_t c)
{
    const uint8x16_t least = vdupq_n_u8(c);
    return stomp_bits_neon(vcgeq_u8(vld1q_u8(data), least), vcgeq_u8(vld1q_u8(data + 16), least),
                           vcgeq_u8(vld1q_u8(data + 32), least), vcgeq_u8(vld1q_u8(data + 48), least));
}

static inline uint8x16_t stomp_rare_neon(const uint8_t *data)
{
    const uint8x16_t x = vld1q_u8(data);
    const uint8x16_t outer = vorrq_u8(vceqq_u8(x, vdupq_n_u8(0)), vcgeq_u8(x, vdupq_n_u8(0x80)));
    return vorrq_u8(outer, vorrq_u8(vceqq_u8(x, vdupq_n_u8('\r')), vceqq_u8(x, vdupq_n_u8('\\'))));
}

static inline struct stomp_masks stomp_masks_plain(const uint8_t *data)
{
    const struct stomp_masks m = {stomp_equal_plain(data, '\n'), stomp_equal_plain(data, ':'),
                                  stomp_bits_neon(stomp_rare_neon(data), stomp_rare_neon(data + 16),
                                                  stomp_rare_neon(data + 32), stomp_rare_neon(data + 48))};
    return m;
}
#else
#define STOMP_OF_8(c) ((uint64_t)(c) * 0x0101010101010101u)
#define STOMP_TOPS STOMP_OF_8(0x80)

/* Eight bytes with the first one lowest, on any machine. Compilers make one load of it. */
static inline uint64_t stomp_load_8(const uint8_t *data)
{
    uint64_t x = 0;
    for (unsigned i = 0; i < 8; i++)
        x |= (uint64_t)data[i] << (8 * i);
    return x;
}

/* The highest bit of each byte that is zero. */
static inline uint64_t stomp_zeros_8(uint64_t x)
{
    return ~(((x & ~STOMP_TOPS) + ~STOMP_TOPS) | x) & STOMP_TOPS;
}

/* The highest bits of eight bytes as the bits [i, i + 8). */
static inline uint64_t stomp_bits_8(uint64_t tops, unsigned i)
{
    return ((tops >> 7) * 0x0102040810204080u >> 56) << i;
}

static inline uint64_t stomp_equal_plain(const uint8_t *data, uint8_t c)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < STOMP_BLOCK; i += 8)
        bits |= stomp_bits_8(stomp_zeros_8(stomp_load_8(data + i) ^ STOMP_OF_8(c)), i);
    return bits;
}

static inline uint64_t stomp_at_least_plain(const uint8_t *data, uint8_t c)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < STOMP_BLOCK; i += 8) {
        const uint64_t x = stomp_load_8(data + i);
        bits |= stomp_bits_8(((x & ~STOMP_TOPS) + STOMP_OF_8(0x100 - c)) & x & STOMP_TOPS, i);
    }
    return bits;
}

static inline struct stomp_masks stomp_masks_plain(const uint8_t *data)
{
    const uint64_t outer = stomp_equal_plain(data, 0) | stomp_at_least_plain(data, 0x80);
    const struct stomp_masks m = {stomp_equal_plain(data, '\n'), stomp_equal_plain(data, ':'),
                                  outer | stomp_equal_plain(data, '\r') | stomp_equal_plain(data, '\\')};
    return m;
}
#endif

#if defined(STOMP_AVX2)
#define STOMP_FOR_AVX2 __attribute__((target("avx2,bmi")))

STOMP_FOR_AVX2 static inline uint64_t stomp_bits_avx2(__m256i a, __m256i b)
{
    return (uint32_t)_mm256_movemask_epi8(a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(b) << 32;
}

STOMP_FOR_AVX2 static inline __m256i stomp_block_avx2(const uint8_t *data)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)data);
}

STOMP_FOR_AVX2 static inline uint64_t stomp_equal_avx2(const uint8_t *data, uint8_t c)
{
    const __m256i wanted = _mm256_set1_epi8((char)c);
    return stomp_bits_avx2(_mm256_cmpeq_epi8(stomp_block_avx2(data), wanted),
                           _mm256_cmpeq_epi8(stomp_block_avx2(data + 32), wanted));
}

STOMP_FOR_AVX2 static inline uint64_t stomp_at_least_avx2(const uint8_t *data, uint8_t c)
{
    const __m256i least = _mm256_set1_epi8((char)c), a = stomp_block_avx2(data), b = stomp_block_avx2(data + 32);
    return stomp_bits_avx2(_mm256_cmpeq_epi8(_mm256_max_epu8(a, least), a),
                           _mm256_cmpeq_epi8(_mm256_max_epu8(b, least), b));
}

/* The bytes above 127, and those that are at the index of their own low half in `octets`: one shuffle finds several
   bytes. */
STOMP_FOR_AVX2 static inline __m256i stomp_among_avx2(__m256i octets, __m256i x)
{
    return _mm256_or_si256(_mm256_cmpeq_epi8(_mm256_shuffle_epi8(octets, x), x), x);
}

/* LF, colon, and `octets` of the rare bytes, for stomp_masks_avx2. In another file, so that the compiler reads them
   and does not build them for each head. */
extern const uint8_t stomp_octets[3][32];

STOMP_FOR_AVX2 static inline struct stomp_masks stomp_masks_avx2(const uint8_t *data)
{
    const __m256i a = stomp_block_avx2(data), b = stomp_block_avx2(data + 32), lf = stomp_block_avx2(stomp_octets[0]);
    const __m256i colon = stomp_block_avx2(stomp_octets[1]), rare = stomp_block_avx2(stomp_octets[2]);
    const struct stomp_masks m = {stomp_bits_avx2(_mm256_cmpeq_epi8(a, lf), _mm256_cmpeq_epi8(b, lf)),
                                  stomp_bits_avx2(_mm256_cmpeq_epi8(a, colon), _mm256_cmpeq_epi8(b, colon)),
                                  stomp_bits_avx2(stomp_among_avx2(rare, a), stomp_among_avx2(rare, b))};
    return m;
}
#endif

/* Return the bytes [from, len) of data, at most 64, followed by spaces: a block in `room`, of twice its size. Nothing
   outside the data is read. */
static inline const uint8_t *stomp_last_block(const uint8_t *data, size_t from, size_t len,
                                              uint8_t room[2 * STOMP_BLOCK])
{
    if (len >= STOMP_BLOCK) { /* copies of a fixed size need no call */
        memcpy(room, data + len - STOMP_BLOCK, STOMP_BLOCK);
        memset(room + STOMP_BLOCK, ' ', STOMP_BLOCK);
        return room + STOMP_BLOCK - (len - from);
    }
    memset(room, ' ', STOMP_BLOCK);
    memcpy(room, data + from, len - from);
    return room;
}

#endif
