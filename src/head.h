/* Lines of a head: the full rules, and the steps of fast paths. */
#ifndef STOMP_HEAD_H
#define STOMP_HEAD_H

#include <string.h>

#include "simd.h"
#include "stomp.h"
#include "text.h"

/* The full rules of single lines and of the gap before a frame, for scan.c alone. */

#define STOMP_NONE SIZE_MAX
enum { STOMP_GAP, STOMP_COMMAND_LINE, STOMP_HEADER_LINES }; /* phases */
enum { STOMP_LINE_TAKEN = 0, STOMP_LINE_BLANK = -1 };       /* verdicts beside an enum stomp_error */
enum { STOMP_GO_ON = -1 };                                  /* beside enum stomp_outcome: go on */

/* Skip EOLs. Returns STOMP_GO_ON if a frame begins at s->skip, or else an outcome. */
int stomp_scan_gap(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t len);

/* Read the current line, whose LF is at `lf`. s->colon and s->rare are set. The order of the checks is specified: the
   first violation counts. */
int stomp_take_line(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t lf);

/* Return the error for a NUL at `at`, inside the current line. */
int stomp_nul_in_line(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t at);

/* Does [s->line, end), the incomplete current line, exceed a limit already? */
int stomp_check_unfinished(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end);

static inline int stomp_bad(struct stomp_scan *s, int error, size_t at)
{
    s->error = error;
    s->at = at;
    return error;
}

static inline int stomp_is_content_length(const uint8_t *name)
{
    return !memcmp(name, "content-length", 14);
}

/* ======== lines by masks of blocks ======== */

/* The steps of a walk over the lines of a head by masks of blocks, for those who walk: scan.c and select.c. */

static const struct stomp_isa stomp_plain = {stomp_masks_plain, stomp_equal_plain, stomp_at_least_plain};

/* May lines be taken from masks? Only where a line that is left is an error, nearly always: else a walk would begin
   anew, and look at all lines behind it again, for each such line. */
static inline int stomp_is_regular(const struct stomp_rules *rules)
{
    return !(rules->flags & (STOMP_IRREGULAR | STOMP_KEEPS_BAD_UTF8 | STOMP_KEEPS_BAD_ESCAPES));
}

/* Two bytes at once. */
static inline int stomp_are(const uint8_t *at, const char *two)
{
    uint16_t x, y;
    memcpy(&x, at, 2);
    memcpy(&y, two, 2);
    return x == y;
}

/* Read the command line if it is known, short and permitted. 16 bytes can be read. `crlf`: may it end in CR LF?
   Returns the next line, or 0. */
static STOMP_INLINE size_t stomp_fast_command(struct stomp_scan *s, const struct stomp_rules *rules,
                                              const uint8_t *data, uint32_t crlf)
{
    const struct stomp_command_slot *slot = stomp_command_slot(data);
    if (STOMP_UNLIKELY(!slot))
        return 0;
    const size_t len = slot->len;
    size_t lf = len;
    if (STOMP_UNLIKELY(data[lf] != '\n')) {
        if (!crlf || !stomp_are(data + lf, "\r\n"))
            return 0;
        s->marks |= STOMP_CR_ENDS;
        lf++;
    }
    if (STOMP_UNLIKELY(!(rules->commands & slot->bit)) || STOMP_UNLIKELY(len > rules->max_command_line))
        return 0;
    s->command = slot->command;
    s->command_len = len;
    s->first = lf + 1;
    s->level = rules->escapes;
    if (STOMP_UNLIKELY(slot->bit & STOMP_UNESCAPED))
        s->level = 0;
    return lf + 1;
}

/* Read the first content-length of a head, whose colon is at `colon` and whose line ends at `last` or before. Returns
   0 to leave it to the full rules. Nothing behind `last` is read, whatever was seen there before: somebody else may
   write the data meanwhile. */
static STOMP_INLINE int stomp_fast_length(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                                          size_t colon, size_t last)
{
    const uint8_t *const value = data + colon + 1, *const end = data + last, *text = value;
    unsigned n = 0, digit;
    for (; text < end && (digit = *text - (unsigned)'0') <= 9; text++)
        n = n * 10 + digit;
    if (STOMP_UNLIKELY(*text != '\n') && !(text < end && stomp_are(text, "\r\n") && rules->flags & STOMP_CRLF))
        return 0;
    if ((size_t)(text - value) - 1 >= 9 || n > rules->max_body)
        return 0;
    if (n && !(STOMP_WITH_BODY >> s->command & 1)
        && (rules->flags & STOMP_SKIPS_IDLE_LENGTH || !stomp_takes_body(rules, s->command)))
        return 0;
    s->marks |= STOMP_HAS_LENGTH;
    s->length = n;
    return 1;
}

/* The lines of a block, as bits. */
struct stomp_block_lines {
    struct stomp_masks m;
    uint64_t starts; /* of lines */
    uint64_t names;  /* the starts, and that of the block if it begins inside a name */
    uint64_t first;  /* the first colon of each line, or its end */
    uint64_t stop;   /* a place in each line that is blank or malformed */
    uint64_t below;  /* all before the first of those */
};

/* Find the lines of the block at `at`. at_start: does it begin with a line? in_name: or inside a name? */
static STOMP_INLINE struct stomp_block_lines stomp_find_lines(const struct stomp_isa *isa, const uint8_t *at,
                                                              uint64_t at_start, uint64_t in_name)
{
    struct stomp_block_lines b;
    b.m = isa->masks(at);
    b.starts = b.m.lf << 1 | at_start;
    /* In the sum a carry runs from each start through the bytes of a name, and stops at the first colon or LF. */
    const uint64_t either = b.m.lf | b.m.colon;
    b.names = b.starts | in_name;
    b.first = (b.names + ~either) & either;
    b.stop = b.first & (b.m.lf | b.starts);
    b.below = ~b.stop & (b.stop - 1);
    return b;
}

/* The state of a walk between two blocks. */
struct stomp_walk {
    uint32_t *to; /* colons and line ends in turn */
    size_t length;
    uint64_t at_start, in_name; /* of the next block, see stomp_find_lines() */
    uint64_t starts, more_colons;
};

/* Note the first content-length among the lines of the block at `base`. Its name may begin in the block before. */
static STOMP_INLINE void stomp_note_length(struct stomp_walk *k, const uint8_t *data, size_t base,
                                           const struct stomp_block_lines *b)
{
    /* the colons behind names of 14 bytes */
    uint64_t names = (b->starts << 14 | k->starts >> 50) & b->first & b->below;
    for (; STOMP_UNLIKELY(names); names &= names - 1) {
        const size_t colon = base + stomp_low_bit64(names);
        if (!k->length && stomp_is_content_length(data + colon - 14))
            k->length = colon;
    }
}

/* Skip the escapes \\c and the bytes above 127 among the rare bytes of the block at `at`. Returns the rest. */
static STOMP_INLINE uint64_t stomp_skip_texts(struct stomp_scan *s, const struct stomp_isa *isa, const uint8_t *at,
                                              uint64_t rare)
{
    while (STOMP_UNLIKELY(rare)) {
        const uint8_t *c = at + stomp_low_bit64(rare);
        if (STOMP_LIKELY(stomp_are(c, "\\c") && s->level)) {
            s->marks |= STOMP_ESCAPED;
            rare &= rare - 1;
        } else if (*c > 127) {
            s->marks |= STOMP_NON_ASCII;
            rare &= ~isa->at_least(at, 0x80);
        } else {
            break;
        }
    }
    return rare;
}

/* Is the first line that stops a walk a blank one? */
static STOMP_INLINE int stomp_stops_blank(const struct stomp_block_lines *b)
{
    return (b->stop & (0 - b->stop) & b->m.lf & b->starts) != 0;
}

/* Note how the next block begins. */
static STOMP_INLINE void stomp_end_block(struct stomp_walk *k, const struct stomp_block_lines *b)
{
    k->at_start = b->m.lf >> 63;
    k->in_name = b->names + ~(b->m.lf | b->m.colon) < b->names;
}

/* Is a head that was read in full blocks UTF-8? 0 also if that is not known. */
static STOMP_INLINE int stomp_head_is_utf8(const struct stomp_scan *s, const uint8_t *data, const struct stomp_isa *isa)
{
    const size_t size = s->head - s->first;
    return stomp_utf8_blocks(isa, data + s->first, size) == size;
}

#ifdef STOMP_AVX2
static const struct stomp_isa stomp_avx2 = {stomp_masks_avx2, stomp_equal_avx2, stomp_at_least_avx2};

/* The same. The command line is before the lines. */
STOMP_FOR_AVX2 static STOMP_INLINE int stomp_head_is_utf8_avx2(const struct stomp_scan *s, const uint8_t *data)
{
    return stomp_is_utf8_avx2(data + s->first, s->head - s->first);
}
#endif

#endif
