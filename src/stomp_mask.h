/* The instruction sets for bit masks of bytes. Each x86-64 has SSE2 and each arm64 NEON; elsewhere plain C computes the same
   masks. */
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

#endif
