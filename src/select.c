/* Wanted headers and conditions, and the prefilter of frames that make no row. */
#include "columns.h"
#include "head.h"

#define FEW 16 /* entries that are compared pairwise */

/* ---- text ---- */

/* Replace each byte that is not UTF-8 by U+FFFD, since Arrow's text is UTF-8. */
static int repair(struct stomp_buffer *b)
{
    size_t len = b->len, at = stomp_bad_utf8(b->data, len), to = 0;
    if (at == len)
        return 0;
    if (stomp_grow(b, 4 * len) < 0)
        return -1;
    uint8_t *copy = b->data + 3 * len;
    memcpy(copy, b->data, len);
    for (size_t i = 0; i < len; i = at + 1) {
        at = i + stomp_bad_utf8(copy + i, len - i);
        memmove(b->data + to, copy + i, at - i);
        to += at - i;
        if (at < len) {
            memcpy(b->data + to, "\xef\xbf\xbd", 3);
            to += 3;
        }
    }
    b->len = to;
    return 0;
}

const uint8_t *stomp_text_made(struct stomp_text *text, size_t from, size_t *len, int is_name)
{
    struct stomp_buffer *b = &text->scratch;
    const uint32_t flags = text->rules->flags;
    if (stomp_grow(b, *len) < 0)
        return NULL;
    b->len =
        stomp_unescape(b->data, text->frame + from, *len, text->scan->marks & STOMP_ESCAPED ? text->rules->escapes : 0);
    if (flags & STOMP_KEEPS_BAD_UTF8 && repair(b) < 0)
        return NULL;
    if (flags & STOMP_LEGACY && is_name)
        for (size_t i = 0; i < b->len; i++)
            b->data[i] += b->data[i] >= 'A' && b->data[i] <= 'Z' ? 32 : 0;
    *len = b->len;
    return b->data;
}

const uint8_t *stomp_command_text(struct stomp_text *text, size_t *len)
{
    struct stomp_buffer *b = &text->scratch;
    const struct stomp_scan *scan = text->scan;
    *len = scan->command_len;
    if (scan->command < STOMP_COMMANDS)
        return text->rules->flags & STOMP_LEGACY ? (const uint8_t *)stomp_command_names[scan->command] : text->frame;
    if (stomp_grow(b, scan->command_len) < 0)
        return NULL;
    memcpy(b->data, text->frame, scan->command_len);
    b->len = scan->command_len;
    if (text->rules->flags & STOMP_LEGACY)
        for (size_t i = 0; i < b->len; i++)
            b->data[i] -= b->data[i] >= 'a' && b->data[i] <= 'z' ? 32 : 0;
    if (repair(b) < 0)
        return NULL;
    *len = b->len;
    return b->data;
}

/* ---- wanted names ---- */

static inline uint32_t hash_of(const uint8_t *name, size_t len)
{
    return (uint32_t)(len + 8 * name[len - 1]) & 63;
}

static inline int is_called(const struct stomp_slot *slot, const uint8_t *name, size_t len)
{
    return slot->name.len == len && !memcmp(slot->name.octets, name, len);
}

/* Return the slot of a name, a new one for a new name. */
static uint32_t slot_of(struct stomp_finder *finder, const struct stomp_name *name)
{
    uint32_t *head = &finder->heads[name->len ? hash_of(name->octets, name->len) : 0];
    for (uint32_t k = *head; k; k = finder->slots[k - 1].next)
        if (is_called(&finder->slots[k - 1], name->octets, name->len))
            return k - 1;
    for (size_t i = 0; i < name->len; i++)
        finder->escapable |=
            name->octets[i] == ':' || name->octets[i] == '\\' || name->octets[i] == '\n' || name->octets[i] == '\r';
    finder->slots[finder->count].name = *name;
    finder->slots[finder->count].next = *head;
    return (*head = ++finder->count) - 1;
}

int stomp_finder_init(struct stomp_finder *finder, const struct stomp_wanted *wanted)
{
    size_t most = wanted->names_count + wanted->where_count;
    memset(finder, 0, sizeof *finder);
    finder->slots = stomp_alloc_zeroed(most + 1, sizeof *finder->slots);
    finder->of = stomp_alloc_zeroed(most + 1, sizeof *finder->of);
    if (!finder->slots || !finder->of)
        return -1;
    for (size_t i = 0; i < wanted->names_count; i++)
        finder->of[i] = slot_of(finder, &wanted->names[i]);
    for (size_t i = 0; i < wanted->where_count; i++)
        if (!wanted->where[i].of_command)
            finder->of[wanted->names_count + i] = slot_of(finder, &wanted->where[i].name);
    return 0;
}

void stomp_finder_free(struct stomp_finder *finder)
{
    stomp_release(finder->slots);
    stomp_release(finder->of);
}

/* Fill the slot of a header of the frame, if it has one. Returns how many slots are still empty. */
static STOMP_NOINLINE uint32_t fill(struct stomp_finder *finder, uint32_t k, const uint8_t *name, size_t len,
                                    size_t value, size_t end, uint32_t empty)
{
    for (; k; k = finder->slots[k - 1].next) {
        struct stomp_slot *slot = &finder->slots[k - 1];
        if (slot->end || !is_called(slot, name, len))
            continue;
        slot->value = value;
        slot->end = end;
        return empty - 1;
    }
    return empty;
}

/* Fill slots from a head with contiguous lines. */
static STOMP_INLINE int look_up_regular(struct stomp_finder *finder, struct stomp_text *text, int escaped)
{
    const struct stomp_line *line = text->scan->lines, *last = line + text->scan->count;
    const uint8_t *frame = text->frame;
    const int cr = text->scan->marks & STOMP_CR_ENDS;
    size_t from = text->scan->first;
    uint32_t k, empty = finder->count;
    for (; line != last && empty; line++) {
        size_t colon = line->colon, end = line->end, len = colon - from;
        const uint8_t *name = frame + from;
        if (escaped && !(name = stomp_text_of(text, from, &len, 1)))
            return -1;
        if ((k = finder->heads[hash_of(name, len)]))
            empty = fill(finder, k, name, len, colon + 1, end, empty);
        from = end + 1 + (cr && frame[end] == '\r');
    }
    return 0;
}

static int look_up_any(struct stomp_finder *finder, struct stomp_text *text)
{
    uint32_t empty = finder->count;
    size_t from = 0;
    for (uint32_t i = 0; i < text->scan->count && empty; i++) {
        struct stomp_header line;
        from = stomp_header_of(text->scan, text->frame, i, from, &line);
        size_t len = line.colon - line.name;
        const uint8_t *name = stomp_text_of(text, line.name, &len, 1);
        if (!name)
            return -1;
        empty = fill(finder, finder->heads[hash_of(name, len)], name, len, line.value, line.end, empty);
    }
    return 0;
}

int stomp_look_up(struct stomp_finder *finder, struct stomp_text *text)
{
    for (uint32_t k = 0; k < finder->count; k++)
        finder->slots[k].end = 0;
    switch (text->kind) {
    case STOMP_TEXT_PLAIN: return look_up_regular(finder, text, 0);
    case STOMP_TEXT_ESCAPED: return look_up_regular(finder, text, finder->escapable);
    default: return look_up_any(finder, text);
    }
}

/* ---- conditions ---- */

static int compare(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    size_t both = a_len < b_len ? a_len : b_len;
    int order = both ? memcmp(a, b, both) : 0;
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

/* Decide by the greatest value that is not greater than the text. */
int stomp_text_holds(const struct stomp_condition *condition, const uint8_t *text, size_t len)
{
    size_t low = 0, high = condition->count;
    if (high == 1) /* nothing to search */
        low = high;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct stomp_name *value = &condition->values[middle];
        if (compare(value->octets, value->len, text, len) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (!low)
        return 0;
    const struct stomp_name *value = &condition->values[low - 1];
    return (condition->is_prefix ? value->len <= len : value->len == len) && !memcmp(value->octets, text, value->len);
}

int stomp_where_holds(const struct stomp_wanted *wanted, const struct stomp_finder *finder, struct stomp_text *text)
{
    for (size_t i = 0; i < wanted->where_count; i++) {
        const struct stomp_condition *condition = &wanted->where[i];
        const struct stomp_slot *slot = &finder->slots[finder->of[wanted->names_count + i]];
        size_t len = slot->end - slot->value;
        if (!condition->of_command && !slot->end)
            return 0;
        const uint8_t *value =
            condition->of_command ? stomp_command_text(text, &len) : stomp_text_of(text, slot->value, &len, 0);
        if (!value)
            return -1;
        if (!stomp_text_holds(condition, value, len))
            return 0;
    }
    return 1;
}

/* ---- repeated headers ---- */

struct keys {
    const uint8_t *data;
    const int32_t *offsets;
};

static inline int same_key(const struct keys *k, size_t a, size_t b)
{
    int32_t len = k->offsets[a + 1] - k->offsets[a];
    return len == k->offsets[b + 1] - k->offsets[b]
        && !memcmp(k->data + k->offsets[a], k->data + k->offsets[b], (size_t)len);
}

static inline int in_order(const struct keys *k, uint32_t a, uint32_t b)
{
    int32_t a_len = k->offsets[a + 1] - k->offsets[a], b_len = k->offsets[b + 1] - k->offsets[b];
    if (a_len != b_len)
        return a_len < b_len;
    return memcmp(k->data + k->offsets[a], k->data + k->offsets[b], (size_t)a_len) <= 0;
}

/* Sort 0 to count - 1 by key, stably: merge from `order` to `other` and back. Returns the sorted array. */
static uint32_t *sorted(const struct keys *k, size_t count, uint32_t *order, uint32_t *other)
{
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t run = 1; run < count; run *= 2) {
        for (size_t left = 0; left < count; left += 2 * run) {
            size_t middle = left + run < count ? left + run : count,
                   right = middle + run < count ? middle + run : count;
            size_t a = left, b = middle;
            for (size_t i = left; i < right; i++)
                other[i] = b == right || (a < middle && in_order(k, order[a], order[b])) ? order[a++] : order[b++];
        }
        uint32_t *swap = order;
        order = other;
        other = swap;
    }
    return order;
}

/* Mark repeated entries, and return their number. `order` has room for twice the count. */
static size_t mark_repeats(const struct keys *k, size_t count, uint8_t *repeated, uint32_t *order)
{
    size_t found = 0;
    memset(repeated, 0, count);
    if (count <= FEW) {
        for (size_t i = 1; i < count; i++)
            for (size_t j = 0; j < i && !repeated[i]; j++)
                found += repeated[i] = (uint8_t)same_key(k, j, i);
        return found;
    }
    order = sorted(k, count, order, order + count);
    for (size_t i = 1; i < count; i++)
        found += repeated[order[i]] = (uint8_t)same_key(k, order[i - 1], order[i]);
    return found;
}

/* Close the gaps of repeated entries. Returns how many entries remain. */
static size_t close_gaps(struct stomp_column *c, size_t first, size_t count, const uint8_t *repeated)
{
    int32_t *offsets = (int32_t *)(void *)c->offsets.data + first;
    int32_t to = offsets[0], from = offsets[0];
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t end = offsets[i + 1], len = end - from;
        if (!repeated[i]) {
            memmove(c->data.data + to, c->data.data + from, (size_t)len);
            to += len;
            offsets[++kept] = to;
        }
        from = end;
    }
    c->data.len = (size_t)to;
    return kept;
}

int stomp_drop_repeats(struct stomp_column *keys, struct stomp_column *values, size_t first, size_t *count,
                       struct stomp_buffer *scratch)
{
    struct keys k = {keys->data.data, (const int32_t *)(const void *)keys->offsets.data + first};
    size_t n = *count;
    if (stomp_grow(scratch, n * (2 * sizeof(uint32_t) + 1)) < 0)
        return -1;
    uint8_t *repeated = scratch->data + 2 * sizeof(uint32_t) * n;
    if (!mark_repeats(&k, n, repeated, (uint32_t *)(void *)scratch->data))
        return 0;
    close_gaps(keys, first, n, repeated);
    *count = close_gaps(values, first, n, repeated);
    return 0;
}

/* ======== frames that make no row ======== */

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

/* Does the condition hold for the first header that has its name? `names` are the colons behind names of its length
   in the block at `base`. -1: none has it; 0: no; 1: yes, or that is not known. */
static STOMP_INLINE int holds(const struct stomp_condition *by, const uint8_t *data, size_t len, size_t base,
                              uint64_t names, const struct stomp_masks *m)
{
    for (; STOMP_UNLIKELY(names); names &= names - 1) {
        const uint64_t behind = ~stomp_up_to(names), lf = m->lf & behind;
        const uint8_t *value = data + base + stomp_low_bit64(names) + 1;
        if (!is_name(&by->name, value - 1 - by->name.len))
            continue;
        const uint8_t *end =
            STOMP_LIKELY(lf) ? data + base + stomp_low_bit64(lf) : memchr(value, '\n', (size_t)(data + len - value));
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

/* Walk over a head, as fast_head() of scan.c. Returns whether its frame is to be passed over, if it is UTF-8. */
static STOMP_INLINE int walk(const struct stomp_prefilter *prefilter, struct stomp_scan *s,
                             const struct stomp_rules *rules, const uint8_t *data, size_t len,
                             const struct stomp_isa *isa)
{
    const struct stomp_condition *by = prefilter->by;
    const size_t name = by->name.len;
    struct stomp_walk k = {NULL, 0, 1, 0, 0, 0};
    int found = -1;
    size_t base = stomp_fast_command(s, rules, data, 0);
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
            return stomp_stops_blank(&b) && blank <= prefilter->most
                && (!k.length || stomp_fast_length(s, rules, data, k.length, blank));
        }
        k.starts = b.starts;
        stomp_end_block(&k, &b);
    }
    return 0;
}

typedef int utf8_end(const struct stomp_scan *, const uint8_t *);

/* The same as stomp_prefilter_pass(), without pauses. */
static STOMP_INLINE size_t pass(const struct stomp_prefilter *prefilter, struct stomp_scan *s,
                                const struct stomp_rules *rules, const uint8_t *data, size_t len,
                                const struct stomp_isa *isa, utf8_end *is_utf8)
{
    size_t at = 0, size;
    while (len - at > STOMP_BLOCK + 1) {
        const size_t from = at + (data[at] == '\n'); /* the EOL that most brokers write after a frame */
        if (data[from] <= ' ' || !walk(prefilter, s, rules, data + from, len - from, isa))
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

static size_t pass_plain(const struct stomp_prefilter *prefilter, struct stomp_scan *s, const struct stomp_rules *rules,
                         const uint8_t *data, size_t len)
{
    return pass(prefilter, s, rules, data, len, &stomp_plain, is_utf8_plain);
}

#ifdef STOMP_AVX2
STOMP_FOR_AVX2 static STOMP_NOINLINE int is_utf8_avx2(const struct stomp_scan *s, const uint8_t *data)
{
    return stomp_head_is_utf8_avx2(s, data);
}

STOMP_FOR_AVX2 static size_t pass_avx2(const struct stomp_prefilter *prefilter, struct stomp_scan *s,
                                       const struct stomp_rules *rules, const uint8_t *data, size_t len)
{
    return pass(prefilter, s, rules, data, len, &stomp_avx2, is_utf8_avx2);
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

void stomp_prefilter_init(struct stomp_prefilter *prefilter, const struct stomp_rules *rules,
                          const struct stomp_wanted *wanted)
{
    /* The shortest lines are a:LF. */
    const size_t lines = rules->max_headers < SIZE_MAX / 3 ? 3 * rules->max_headers : SIZE_MAX;
    memset(prefilter, 0, sizeof *prefilter);
    if (stomp_is_regular(rules) && !rules->report_beats)
        for (size_t i = 0; i < wanted->where_count && !prefilter->by; i++)
            prefilter->by = is_fit(&wanted->where[i]) ? &wanted->where[i] : NULL;
    prefilter->most = lines < rules->max_header_line ? lines : rules->max_header_line;
    prefilter->pass = pass_plain;
#ifdef STOMP_AVX2
    if (stomp_has_avx2())
        prefilter->pass = pass_avx2;
#endif
}
