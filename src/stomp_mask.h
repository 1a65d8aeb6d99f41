/* Masks of the line ends, colons and rare bytes among 32 bytes. Each x86-64 has SSE2 and each arm64 NEON; elsewhere plain C
   computes the same masks. */
#ifndef STOMP_MASK_H
#define STOMP_MASK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

/* Bit i is byte i. rare: NUL, CR, backslash, above 127. */
struct stomp_masks {
    uint32_t lf, colon, rare;
};

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
    return (uint32_t)x ? stomp_low_bit((uint32_t)x) : 32 + stomp_low_bit((uint32_t)(x >> 32));
}

#if defined(STOMP_SSE2)
static inline struct stomp_masks stomp_masks(const uint8_t *data)
{
    struct stomp_masks m = {0, 0, 0};
    const __m128i lf = _mm_set1_epi8('\n'), colon = _mm_set1_epi8(':'), cr = _mm_set1_epi8('\r'),
                  slash = _mm_set1_epi8('\\'), zero = _mm_setzero_si128();
    for (int i = 0; i < 2; i++) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(data + 16 * i));
        const __m128i odd = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(x, zero), x),
                                         _mm_or_si128(_mm_cmpeq_epi8(x, cr), _mm_cmpeq_epi8(x, slash)));
        m.lf |= (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, lf)) << (16 * i);
        m.colon |= (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, colon)) << (16 * i);
        m.rare |= (uint32_t)_mm_movemask_epi8(odd) << (16 * i);
    }
    return m;
}
#elif defined(STOMP_NEON)
static inline uint32_t stomp_bits(uint8x16_t a, uint8x16_t b)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t bit = vld1q_u8(bits);
    uint8x16_t sum = vpaddq_u8(vandq_u8(a, bit), vandq_u8(b, bit));
    sum = vpaddq_u8(sum, sum);
    sum = vpaddq_u8(sum, sum);
    return vgetq_lane_u32(vreinterpretq_u32_u8(sum), 0);
}

static inline uint8x16_t stomp_rare_16(uint8x16_t x)
{
    uint8x16_t a = vorrq_u8(vceqq_u8(x, vdupq_n_u8(0)), vceqq_u8(x, vdupq_n_u8('\r')));
    return vorrq_u8(a, vorrq_u8(vceqq_u8(x, vdupq_n_u8('\\')), vcgeq_u8(x, vdupq_n_u8(128))));
}

static inline struct stomp_masks stomp_masks(const uint8_t *data)
{
    struct stomp_masks m;
    const uint8x16_t a = vld1q_u8(data), b = vld1q_u8(data + 16);
    const uint8x16_t lf = vdupq_n_u8('\n'), colon = vdupq_n_u8(':');
    m.lf = stomp_bits(vceqq_u8(a, lf), vceqq_u8(b, lf));
    m.colon = stomp_bits(vceqq_u8(a, colon), vceqq_u8(b, colon));
    m.rare = stomp_bits(stomp_rare_16(a), stomp_rare_16(b));
    return m;
}
#else
static inline struct stomp_masks stomp_masks(const uint8_t *data)
{
    struct stomp_masks m = {0, 0, 0};
    for (unsigned i = 0; i < 32; i++) {
        uint8_t c = data[i];
        m.lf |= (uint32_t)(c == '\n') << i;
        m.colon |= (uint32_t)(c == ':') << i;
        m.rare |= (uint32_t)(c == 0 || c == '\r' || c == '\\' || c > 127) << i;
    }
    return m;
}
#endif

#if defined(STOMP_AVX2)
/* LF, colon, CR, backslash, 32 times each. In another file, so that the compiler loads them once for each head and does not
   build them for each window. */
extern const uint8_t stomp_octets[4][32];

struct stomp_wanted_avx2 {
    __m256i lf, colon, cr, slash;
};

__attribute__((target("avx2"))) static inline struct stomp_wanted_avx2 stomp_load_avx2(void)
{
    const __m256i *octets = (const __m256i *)(const void *)stomp_octets;
    struct stomp_wanted_avx2 w = {_mm256_loadu_si256(octets), _mm256_loadu_si256(octets + 1), _mm256_loadu_si256(octets + 2),
                                  _mm256_loadu_si256(octets + 3)};
    return w;
}

__attribute__((target("avx2"))) static inline struct stomp_masks stomp_masks_avx2(const struct stomp_wanted_avx2 *w, const uint8_t *data)
{
    struct stomp_masks m;
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)data);
    const __m256i odd = _mm256_or_si256(_mm256_or_si256(_mm256_cmpeq_epi8(x, _mm256_setzero_si256()), x),
                                        _mm256_or_si256(_mm256_cmpeq_epi8(x, w->cr), _mm256_cmpeq_epi8(x, w->slash)));
    m.lf = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, w->lf));
    m.colon = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, w->colon));
    m.rare = (uint32_t)_mm256_movemask_epi8(odd);
    return m;
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

/* Fewer than 32 bytes, from a copy that is padded with harmless bytes, so that nothing after them is read. */
static STOMP_NOINLINE struct stomp_masks stomp_tail(const uint8_t *data, size_t len)
{
    uint8_t tail[32];
    memset(tail, ' ', 32);
    memcpy(tail, data, len);
    return stomp_masks(tail);
}

#if defined(STOMP_AVX2)
__attribute__((target("avx2"))) static STOMP_NOINLINE struct stomp_masks stomp_tail_avx2(const uint8_t *data, size_t len)
{
    uint8_t tail[32];
    memset(tail, ' ', 32);
    memcpy(tail, data, len);
    const struct stomp_wanted_avx2 wanted = stomp_load_avx2();
    return stomp_masks_avx2(&wanted, tail);
}
#endif

#endif
