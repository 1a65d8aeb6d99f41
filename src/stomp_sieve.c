#include "stomp_sieve.h"

#include "stomp_body.h"
#include "stomp_select.h"
#include "stomp_walk.h"

#define LONGEST (STOMP_BLOCK - 1) /* bytes of the name: it may begin in the block before its colon */

/* Is this the name of the condition? */
static STOMP_INLINE int is_name(const struct stomp_name *name, const uint8_t *text)
{
    uint64_t a, b, c, d;
    if (name->len < 8 || name->len > 16)
        return !memcmp(text, name->octets, name->len);
    memcpy(&a, text, 8);
    memcpy(&b, name->octets, 8);
    memcpy(&c, text + name->len - 8, 8);
    memcpy(&d, name->octets + name->len - 8, 8);
    return !((a ^ b) | (c ^ d));
}

/* Does the condition hold for the first header that has its name? `names` are the colons behind names of its length in the block at
   `base`. -1: none has it; 0: no; 1: yes, or that is not known. */
static STOMP_INLINE int holds(const struct stomp_condition *by, const uint8_t *data, size_t len, size_t base, uint64_t names,
                              const struct stomp_masks *m)
{
    for (; STOMP_UNLIKELY(names); names &= names - 1) {
        const uint64_t behind = ~stomp_up_to(names), lf = m->lf & behind;
        const uint8_t *value = data + base + stomp_low_bit64(names) + 1;
        if (!is_name(&by->name, value - 1 - by->name.len))
            continue;
        const uint8_t *end = STOMP_LIKELY(lf) ? data + base + stomp_low_bit64(lf) : memchr(value, '\n', (size_t)(data + len - value));
        if (STOMP_UNLIKELY(!end))
            return 1;
        const size_t size = (size_t)(end - value);
        if (STOMP_UNLIKELY(!lf || m->rare & behind & stomp_up_to(lf)) && memchr(value, '\\', size))
            return 1;
        if (by->count == 1 && !by->is_prefix && by->values->len != size)
            return 0;
        return stomp_text_holds(by, value, size);
    }
    return -1;
}

/* Walk over a head, as quick_head() of stomp_scan.c. Returns whether it is one of a frame to be passed over, if it is UTF-8. */
static STOMP_INLINE int walk(const struct stomp_sieve *sieve, struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                             size_t len, const struct stomp_isa *isa)
{
    const struct stomp_condition *by = sieve->by;
    const size_t name = by->name.len;
    struct stomp_walk k = {NULL, 0, 1, 0, 0, 0};
    int found = -1;
    size_t base = stomp_quick_command(s, rules, data, 0);
    s->marks = 0;
    for (; STOMP_LIKELY(base && base < len - STOMP_BLOCK); base += STOMP_BLOCK) {
        const struct stomp_block_lines b = stomp_find_lines(isa, data + base, k.at_start, k.in_name);
        if (STOMP_UNLIKELY(stomp_skip_texts(s, isa, data + base, b.m.rare & b.below)))
            return 0;
        stomp_note_length(&k, data, base, &b);
        const uint64_t names = (b.starts << name | k.starts >> (STOMP_BLOCK - name)) & b.first & b.below;
        if (found && (found = holds(by, data, len, base, names, &b.m)) > 0)
            return 0;
        if (b.stop) {
            const size_t blank = base + stomp_low_bit64(b.stop);
            s->head = blank + 1;
            return b.stop & (0 - b.stop) & b.m.lf & b.starts && blank <= sieve->most
                && (!k.length || stomp_quick_length(s, rules, data, k.length, blank));
        }
        k.starts = b.starts;
        stomp_end_block(&k, &b);
    }
    return 0;
}

typedef int utf8_end(const struct stomp_scan *, const uint8_t *);

/* The same as stomp_sieve_pass(), without pauses. */
static STOMP_INLINE size_t pass(const struct stomp_sieve *sieve, struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                                size_t len, const struct stomp_isa *isa, utf8_end *is_utf8)
{
    size_t at = 0, size;
    while (len - at > STOMP_BLOCK + 1) {
        const size_t from = at + (data[at] == '\n'); /* the EOL that most brokers write after a frame */
        if (data[from] <= ' ' || !walk(sieve, s, rules, data + from, len - from, isa))
            break;
        if (STOMP_UNLIKELY(s->marks & STOMP_NON_ASCII) && !is_utf8(s, data + from))
            break;
        const size_t body = from + s->head;
        if (stomp_find_body(s, rules, data + body, len - body, &size))
            break;
        at = body + size + 1;
    }
    return at;
}

static STOMP_NOINLINE int is_utf8_plain(const struct stomp_scan *s, const uint8_t *data)
{
    return stomp_head_is_utf8(s, data, &stomp_plain);
}

static size_t pass_plain(const struct stomp_sieve *sieve, struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                         size_t len)
{
    return pass(sieve, s, rules, data, len, &stomp_plain, is_utf8_plain);
}

#ifdef STOMP_AVX2
STOMP_FOR_AVX2 static STOMP_NOINLINE int is_utf8_avx2(const struct stomp_scan *s, const uint8_t *data)
{
    return stomp_head_is_utf8_avx2(s, data);
}

STOMP_FOR_AVX2 static size_t pass_avx2(const struct stomp_sieve *sieve, struct stomp_scan *s, const struct stomp_rules *rules,
                                       const uint8_t *data, size_t len)
{
    return pass(sieve, s, rules, data, len, &stomp_avx2, is_utf8_avx2);
}
#endif

/* Can the name be compared with the bytes of a head? */
static int is_fit(const struct stomp_condition *condition)
{
    const struct stomp_name *name = &condition->name;
    if (condition->of_command || !name->len || name->len > LONGEST)
        return 0;
    for (size_t i = 0; i < name->len; i++)
        if (name->octets[i] == ':' || name->octets[i] == '\\' || name->octets[i] == '\n' || name->octets[i] == '\r')
            return 0;
    return 1;
}

void stomp_sieve_init(struct stomp_sieve *sieve, const struct stomp_rules *rules, const struct stomp_wanted *wanted)
{
    const size_t lines = rules->max_headers < SIZE_MAX / 3 ? 3 * rules->max_headers : SIZE_MAX; /* the shortest are a:LF */
    memset(sieve, 0, sizeof *sieve);
    if (stomp_is_quick(rules) && !rules->report_beats)
        for (size_t i = 0; i < wanted->where_count && !sieve->by; i++)
            sieve->by = is_fit(&wanted->where[i]) ? &wanted->where[i] : NULL;
    sieve->most = lines < rules->max_header_line ? lines : rules->max_header_line;
    sieve->pass = pass_plain;
#ifdef STOMP_AVX2
    if (stomp_has_avx2())
        sieve->pass = pass_avx2;
#endif
}
