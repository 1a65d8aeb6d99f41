/* Where frames end, by a light parse. */
#include <string.h>

#include "simd.h"
#include "stomp.h"

#define NONE SIZE_MAX
#define WINDOW 64

/* Bit i: byte i is a NUL, or an LF before LF, CR or 'c', so that a head or a relevant line may follow. Reads WINDOW +
   1 bytes. */
typedef uint64_t marker(const uint8_t *data);

#if defined(STOMP_SSE2)
static inline uint64_t marks(const uint8_t *data)
{
    uint64_t bits = 0;
    for (int i = 0; i < WINDOW; i += 16) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(data + i));
        const __m128i next = _mm_loadu_si128((const __m128i *)(const void *)(data + i + 1));
        __m128i any =
            _mm_or_si128(_mm_cmpeq_epi8(next, _mm_set1_epi8('\n')), _mm_cmpeq_epi8(next, _mm_set1_epi8('\r')));
        any = _mm_or_si128(any, _mm_cmpeq_epi8(next, _mm_set1_epi8('c')));
        any = _mm_and_si128(any, _mm_cmpeq_epi8(x, _mm_set1_epi8('\n')));
        any = _mm_or_si128(any, _mm_cmpeq_epi8(x, _mm_setzero_si128()));
        bits |= (uint64_t)(uint32_t)_mm_movemask_epi8(any) << i;
    }
    return bits;
}
#elif defined(STOMP_NEON)
static inline uint8x16_t marks_16(const uint8_t *data)
{
    const uint8x16_t x = vld1q_u8(data), next = vld1q_u8(data + 1);
    uint8x16_t any = vorrq_u8(vceqq_u8(next, vdupq_n_u8('\n')), vceqq_u8(next, vdupq_n_u8('\r')));
    any = vandq_u8(vorrq_u8(any, vceqq_u8(next, vdupq_n_u8('c'))), vceqq_u8(x, vdupq_n_u8('\n')));
    return vorrq_u8(any, vceqq_u8(x, vdupq_n_u8(0)));
}

static inline uint64_t marks(const uint8_t *data)
{
    return stomp_bits(marks_16(data), marks_16(data + 16))
        | (uint64_t)stomp_bits(marks_16(data + 32), marks_16(data + 48)) << 32;
}
#else
static inline uint64_t marks(const uint8_t *data)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < WINDOW; i++) {
        int counts = data[i + 1] == '\n' || data[i + 1] == '\r' || data[i + 1] == 'c';
        bits |= (uint64_t)(!data[i] || (data[i] == '\n' && counts)) << i;
    }
    return bits;
}
#endif

#if defined(STOMP_AVX2)
__attribute__((target("avx2"))) static inline uint64_t marks_avx2(const uint8_t *data)
{
    /* At index c & 15 is c, for each byte c that may follow: one comparison finds all of them. */
    const __m256i follows = _mm256_setr_epi8(0, 0, 0, 'c', 0, 0, 0, 0, 0, 0, '\n', 0, 0, '\r', 0, 0, 0, 0, 0, 'c', 0, 0,
                                             0, 0, 0, 0, '\n', 0, 0, '\r', 0, 0);
    const __m256i lf = _mm256_set1_epi8('\n'), zero = _mm256_setzero_si256();
    uint32_t bits[2];
    for (int i = 0; i < 2; i++) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(data + 32 * i));
        const __m256i next = _mm256_loadu_si256((const __m256i *)(const void *)(data + 32 * i + 1));
        const __m256i any =
            _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_shuffle_epi8(follows, next), next), _mm256_cmpeq_epi8(x, lf));
        bits[i] = (uint32_t)_mm256_movemask_epi8(_mm256_or_si256(any, _mm256_cmpeq_epi8(x, zero)));
    }
    return bits[0] | (uint64_t)bits[1] << 32;
}
#endif

/* The same for the last bytes, from a copy that is padded with harmless bytes. */
static STOMP_NOINLINE uint64_t marks_of_tail(const uint8_t *data, size_t len)
{
    uint8_t tail[WINDOW + 1];
    memset(tail, ' ', sizeof tail);
    memcpy(tail, data, len);
    return marks(tail);
}

/* Return the number in [text, end), or UINT64_MAX if it is not a number or above max. */
static uint64_t length_of(const uint8_t *text, const uint8_t *end, uint64_t max)
{
    uint64_t n = 0;
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    while (end > text && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (text == end)
        return UINT64_MAX;
    for (; text < end; text++) {
        if (*text < '0' || *text > '9')
            return UINT64_MAX;
        n = n > (UINT64_MAX - 9) / 10 ? UINT64_MAX : n * 10 + (uint64_t)(*text - '0'); /* saturates */
    }
    return n > max ? UINT64_MAX : n;
}

/* Is the line at `line` content-length? If so, return 1 and set *length as length_of does. */
static STOMP_NOINLINE int take_length(const uint8_t *data, size_t line, size_t len, uint64_t max, uint64_t *length)
{
    static const char name[] = "content-length:";
    const size_t size = sizeof name - 1;
    if (len - line < size || memcmp(data + line, name, size) != 0)
        return 0;
    const uint8_t *text = data + line + size, *end = memchr(text, '\n', len - line - size);
    if (!end) /* then the head is incomplete too */
        return 1;
    *length = length_of(text, end > text && end[-1] == '\r' ? end - 1 : end, max);
    return 1;
}

/* Return the index of the body after the head at `at`, and set *length to its length or UINT64_MAX. A NUL in the head
   ends the frame: then set *nul, and return the index after it. NONE: incomplete. */
static STOMP_INLINE size_t head_end(const uint8_t *data, size_t at, size_t len, uint64_t max, uint64_t *length,
                                    int *nul, marker *marks_of)
{
    int known = 0;
    *nul = 0;
    *length = UINT64_MAX;
    for (; at < len; at += WINDOW) {
        uint64_t bits = len - at > WINDOW ? marks_of(data + at) : marks_of_tail(data + at, len - at);
        for (; bits; bits &= bits - 1) {
            size_t i = at + stomp_low_bit64(bits);
            if (!data[i]) {
                *nul = 1;
                return i + 1;
            }
            if (i + 1 == len) /* it was a NUL a moment ago */
                continue;
            if (data[i + 1] == '\n')
                return i + 2;
            if (data[i + 1] == '\r') {
                if (i + 2 < len && data[i + 2] == '\n')
                    return i + 3;
            } else if (!known && len - i > 9 && data[i + 9] == 'l') { /* not content-type */
                known = take_length(data, i + 1, len, max, length);
            }
        }
    }
    return NONE;
}

/* Return the end of the frame at `at`, or after the EOLs there; NONE: incomplete. */
static STOMP_INLINE size_t frame_end(const uint8_t *data, size_t at, size_t len, uint64_t max_body, marker *marks_of)
{
    uint64_t length;
    int nul;
    while (at < len && (data[at] == '\n' || (data[at] == '\r' && at + 1 < len && data[at + 1] == '\n')))
        at++;
    size_t body = head_end(data, at, len, max_body, &length, &nul, marks_of);
    if (nul || body == NONE)
        return body;
    if (length != UINT64_MAX) {
        if (length >= len - body)
            return NONE;
        if (!data[body + length])
            return body + (size_t)length + 1;
    }
    const uint8_t *found = memchr(data + body, 0, len - body);
    return found ? (size_t)(found - data) + 1 : NONE;
}

static int give(struct stomp_ends *ends, size_t end)
{
    if (ends->count == ends->room) {
        size_t room = 2 * ends->room + 64;
        int64_t *larger = stomp_resize(ends->ends, room * sizeof *larger);
        if (!larger)
            return -1;
        ends->ends = larger;
        ends->room = room;
    }
    ends->ends[ends->count++] = (int64_t)end;
    return 0;
}

/* Inlined once for each instruction set. */
static STOMP_INLINE int find_ends(struct stomp_ends *ends, const struct stomp_ends_wanted *wanted, const uint8_t *data,
                                  size_t len, marker *marks_of)
{
    size_t last = 0, before = 0, end;
    while (ends->count < wanted->most) {
        end = frame_end(data, before, len, wanted->max_body, marks_of);
        if (end == NONE)
            return before > last ? give(ends, before) : 0;
        before = end;
        if (end - last < wanted->every)
            continue;
        if (give(ends, end) < 0)
            return -1;
        last = end;
    }
    return 0;
}

#if defined(STOMP_AVX2)
__attribute__((target("avx2,bmi"))) static int
find_ends_avx2(struct stomp_ends *ends, const struct stomp_ends_wanted *wanted, const uint8_t *data, size_t len)
{
    return find_ends(ends, wanted, data, len, marks_avx2);
}
#endif

int stomp_frame_ends(struct stomp_ends *ends, const struct stomp_ends_wanted *wanted, const uint8_t *data, size_t len)
{
    memset(ends, 0, sizeof *ends);
#if defined(STOMP_AVX2)
    if (stomp_has_avx2())
        return find_ends_avx2(ends, wanted, data, len);
#endif
    return find_ends(ends, wanted, data, len, marks);
}

void stomp_ends_free(struct stomp_ends *ends)
{
    stomp_release(ends->ends);
    memset(ends, 0, sizeof *ends);
}
