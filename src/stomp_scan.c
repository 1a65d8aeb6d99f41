#include "stomp_scan.h"

#include <string.h>

#include "stomp_command.h"
#include "stomp_mask.h"
#include "stomp_memory.h"
#include "stomp_text.h"
#include "stomp_tricks.h"
#include "stomp_utf8.h"

#define NONE SIZE_MAX
enum { GAP, COMMAND, HEADERS };
enum { LINE_TAKEN = 0, LINE_BLANK = -1 }; /* results of a line checker beside an enum stomp_error */

void stomp_scan_free(struct stomp_scan *scan)
{
    if (scan->lines != scan->few)
        stomp_release(scan->lines);
    stomp_release(scan->starts);
    scan->starts = NULL;
    scan->lines = scan->few;
    scan->room = STOMP_INLINE_LINES;
}

static int bad(struct stomp_scan *s, int error, size_t at)
{
    s->error = error;
    s->at = at;
    return error;
}

static int has_crlf(const struct stomp_rules *rules, const uint8_t *data, size_t line, size_t end)
{
    return (rules->flags & STOMP_CRLF) && end > line && data[end - 1] == '\r';
}

static size_t line_limit(const struct stomp_scan *s, const struct stomp_rules *rules)
{
    return s->phase == COMMAND ? rules->max_command_line : rules->max_header_line;
}

static int too_long(struct stomp_scan *s, const struct stomp_rules *rules)
{
    int error = s->phase == COMMAND ? STOMP_LIMIT_COMMAND_LINE : STOMP_LIMIT_HEADER_LINE;
    return bad(s, error, s->line + line_limit(s, rules));
}

static int full(const struct stomp_scan *s, const struct stomp_rules *rules)
{
    return s->phase == HEADERS && s->count + s->skipped == rules->max_headers;
}

/* The current line, of which [line, end) is available, must be blank, since the limit of headers is reached. Return 0 while it
   may still be: a blank legacy line has any number of spaces and CRs. */
static int refuse_header(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end)
{
    size_t at = s->blank > s->line ? s->blank : s->line, limit = rules->max_header_line;
    if (!(rules->flags & STOMP_LEGACY))
        return bad(s, STOMP_LIMIT_HEADERS, s->line);
    while (at < end && (data[at] == ' ' || data[at] == '\r'))
        at++;
    s->blank = at;
    if (at == end)
        return 0;
    if (at - s->line > limit && !(at - s->line == limit + 1 && data[at - 1] == '\r')) /* it was too long already */
        return too_long(s, rules);
    return bad(s, STOMP_LIMIT_HEADERS, s->line);
}

/* The error for a NUL at `at`, inside the current line. */
static int nul_in_line(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t at)
{
    if (full(s, rules) && at > s->line && refuse_header(s, rules, data, at))
        return s->error;
    if (at - s->line > line_limit(s, rules))
        return too_long(s, rules);
    return bad(s, STOMP_UNEXPECTED_NUL, at);
}

/* Does [line, end), the incomplete current line, exceed a limit already? */
static int check_unfinished(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end)
{
    size_t len = end - s->line, limit = line_limit(s, rules);
    int may_end = has_crlf(rules, data, s->line, end);
    if (full(s, rules) && len && !(len == 1 && may_end) && refuse_header(s, rules, data, end))
        return s->error;
    if (len > limit && !(len == limit + 1 && may_end))
        return too_long(s, rules);
    return 0;
}

static inline uint8_t upper(uint8_t c)
{
    return c >= 'a' && c <= 'z' ? c - 32 : c;
}

static int is_extra(const struct stomp_rules *rules, const uint8_t *text, size_t len)
{
    const int fold = (rules->flags & STOMP_LEGACY) != 0;
    for (size_t i = 0; i < rules->extra_count; i++) {
        const uint8_t *name = rules->extra[i].octets;
        size_t same = 0;
        if (rules->extra[i].len != len)
            continue;
        while (same < len && name[same] == (fold ? upper(text[same]) : text[same]))
            same++;
        if (same == len)
            return 1;
    }
    return 0;
}

/* Read the command line [0, end), with its LF at end. */
static int take_command(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end)
{
    uint8_t folded[16];
    if (has_crlf(rules, data, 0, end)) {
        end--;
        s->marks |= STOMP_CR_ENDS;
    }
    if (end > rules->max_command_line)
        return too_long(s, rules);
    if (rules->flags & STOMP_LEGACY) {
        while (end && (data[end - 1] == ' ' || data[end - 1] == '\r'))
            end--;
        s->marks |= STOMP_CHANGED;
        for (size_t i = 0; i < end && i < sizeof folded; i++)
            folded[i] = upper(data[i]);
    }
    const uint8_t *text = rules->flags & STOMP_LEGACY && end <= sizeof folded ? folded : data;
    s->command = stomp_command_of(text, end);
    s->command_len = end;
    s->level = s->command < STOMP_COMMANDS && (STOMP_UNESCAPED >> s->command & 1) ? 0 : rules->escapes;
    if (s->command < STOMP_COMMANDS && (rules->commands >> s->command & 1))
        return LINE_TAKEN;
    if ((rules->flags & STOMP_ANY_COMMAND) || is_extra(rules, text, end))
        return LINE_TAKEN;
    return bad(s, STOMP_UNKNOWN_COMMAND, 0);
}

static int take_any_length(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t value, size_t end)
{
    size_t i = value, last = end;
    uint64_t n = 0;
    while (i < end && ((data[i] == ' ' && rules->flags & STOMP_PADS_SPACE) || (data[i] == '\t' && rules->flags & STOMP_PADS_TAB)))
        i++;
    while (end > i && ((data[end - 1] == ' ' && rules->flags & STOMP_PADS_SPACE) || (data[end - 1] == '\t' && rules->flags & STOMP_PADS_TAB)))
        end--;
    if (i == end)
        return bad(s, STOMP_BAD_CONTENT_LENGTH, value);
    if (i != value || end != last)
        s->marks |= STOMP_ODD;
    for (; i < end; i++) {
        unsigned digit = data[i] - (unsigned)'0';
        if (digit > 9)
            return bad(s, STOMP_BAD_CONTENT_LENGTH, value);
        n = n > (UINT64_MAX - 9) / 10 ? UINT64_MAX : n * 10 + digit; /* saturates */
    }
    s->marks |= STOMP_HAS_LENGTH;
    s->length = n;
    if (n && !stomp_takes_body(rules, s->command))
        return bad(s, STOMP_BODY_NOT_ALLOWED, value);
    return n > rules->max_body ? bad(s, STOMP_LIMIT_BODY, value) : LINE_TAKEN;
}

/* Read a content-length of a few digits; leave anything else to take_any_length. */
static inline int take_length(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t value, size_t end)
{
    unsigned n = 0, digit;
    if (STOMP_NO_QUICK_LENGTH || end - value - 1 >= 9)
        return take_any_length(s, rules, data, value, end);
    for (size_t i = value; i < end; i++) {
        if ((digit = data[i] - (unsigned)'0') > 9)
            return take_any_length(s, rules, data, value, end);
        n = n * 10 + digit;
    }
    if (n > rules->max_body || (n && !stomp_takes_body(rules, s->command)))
        return take_any_length(s, rules, data, value, end);
    s->marks |= STOMP_HAS_LENGTH;
    s->length = n;
    return LINE_TAKEN;
}

static int more_room(struct stomp_scan *s)
{
    struct stomp_line *lines = stomp_alloc(sizeof *lines * 2 * s->room);
    struct stomp_start *starts = s->starts ? stomp_resize(s->starts, sizeof *starts * 2 * s->room) : NULL;
    if (starts)
        s->starts = starts;
    if (!lines || (s->starts && !starts)) {
        stomp_release(lines);
        return bad(s, STOMP_NO_MEMORY, s->line);
    }
    memcpy(lines, s->lines, sizeof *lines * s->count);
    if (s->lines != s->few)
        stomp_release(s->lines);
    s->lines = lines;
    s->room *= 2;
    return 0;
}

static int keep(struct stomp_scan *s, size_t name, size_t colon, size_t value, size_t end)
{
    if (s->count == s->room && more_room(s))
        return s->error;
    if (s->starts) {
        s->starts[s->count].name = (uint32_t)name;
        s->starts[s->count].value = (uint32_t)value;
    }
    s->lines[s->count].colon = (uint32_t)colon;
    s->lines[s->count++].end = (uint32_t)end;
    return LINE_TAKEN;
}

static int is_content_length(const uint8_t *name, int fold)
{
    static const char want[] = "content-length";
    if (!fold)
        return !memcmp(name, want, 14);
    for (int i = 0; i < 14; i++)
        if ((name[i] >= 'A' && name[i] <= 'Z' ? name[i] + 32 : name[i]) != want[i])
            return 0;
    return 1;
}

/* Check UTF-8 of a header line of `len` bytes. */
static int check_utf8(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *line, size_t len)
{
    if (stomp_is_ascii(line, len))
        return 0;
    s->marks |= STOMP_NON_ASCII;
    size_t at = stomp_bad_utf8(line, len);
    if (at == len)
        return 0;
    s->marks |= STOMP_ODD;
    return rules->flags & STOMP_KEEPS_BAD_UTF8 ? 0 : bad(s, STOMP_INVALID_UTF8, s->line + at);
}

/* Check UTF-8 and escapes of a header line [line, end) with rare bytes. */
static int check_rare(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end)
{
    const uint8_t *line = data + s->line;
    size_t len = end - s->line, colon = s->colon - s->line, at;
    if (check_utf8(s, rules, line, len))
        return s->error;
    s->marks |= memchr(line, '\r', len) ? STOMP_ODD : 0;
    if (!memchr(line, '\\', len))
        return 0;
    if (!s->level) {
        s->marks |= STOMP_ODD; /* other versions would read this backslash as an escape */
        return 0;
    }
    s->marks |= STOMP_ESCAPED;
    if (rules->flags & STOMP_KEEPS_BAD_ESCAPES) {
        s->marks |= STOMP_ODD;
        return 0;
    }
    at = stomp_bad_escape(line, colon, rules->escapes);
    if (at < colon)
        return bad(s, STOMP_BAD_ESCAPE, s->line + at);
    at = stomp_bad_escape(line + colon + 1, len - colon - 1, rules->escapes);
    return at < len - colon - 1 ? bad(s, STOMP_BAD_ESCAPE, s->colon + 1 + at) : 0;
}

/* Read a header line with its LF at lf. The order of the checks is specified: the first violation counts. The fast path of
   stomp_scan_head skips this only for lines that pass all checks. */
static int take_line(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t lf)
{
    size_t name = s->line, end = lf - (size_t)has_crlf(rules, data, s->line, lf);
    if (end == name)
        return LINE_BLANK;
    if (full(s, rules) && refuse_header(s, rules, data, lf))
        return s->error;
    if (end - name > rules->max_header_line)
        return too_long(s, rules);
    if (rules->flags & STOMP_LEGACY) {
        while (end > name && (data[end - 1] == ' ' || data[end - 1] == '\r'))
            end--;
        if (end == name)
            return LINE_BLANK;
    }
    s->marks |= end == lf ? 0 : STOMP_CR_ENDS;
    size_t colon = s->colon, value = colon + 1;
    if (colon != NONE && rules->flags & STOMP_LEGACY)
        while (value < end && data[value] == ' ')
            value++;
    if (colon != NONE && rules->flags & STOMP_TRIMS_HEADERS) {
        while (name < colon && data[name] == ' ')
            name++;
        while (colon > name && data[colon - 1] == ' ')
            colon--;
        while (value < end && data[value] == ' ')
            value++;
        while (end > value && data[end - 1] == ' ')
            end--;
        s->marks |= STOMP_CHANGED;
    }
    if (colon == NONE || colon == name) {
        s->marks |= STOMP_CHANGED;
        s->skipped++;
        return rules->flags & STOMP_SKIPS_BAD_LINES ? LINE_TAKEN : bad(s, STOMP_BAD_HEADER_LINE, s->line);
    }
    if (rules->flags & STOMP_LEGACY)
        for (size_t i = value; i < end; i++)
            if (data[i] < 32)
                return bad(s, STOMP_BAD_HEADER_LINE, s->line);
    if (s->rare && check_rare(s, rules, data, lf - (size_t)has_crlf(rules, data, s->line, lf)))
        return s->error;
    if (colon - name == 14 && !(s->marks & STOMP_HAS_LENGTH) && is_content_length(data + name, rules->flags & STOMP_LEGACY)
        && take_length(s, rules, data, value, end))
        return s->error;
    return keep(s, name, colon, value, end);
}

/* Skip EOLs. Returns -1 if a frame begins at `skip`, or else an outcome. */
static int scan_gap(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t len)
{
    size_t at = 0, next;
    for (; at < len; at = next) {
        uint8_t c = data[at];
        next = at + 1;
        if (c == '\r' && (rules->flags & STOMP_CRLF) && !(rules->flags & STOMP_LEGACY)) {
            if (next == len)
                break;
            if (data[next] != '\n')
                goto frame;
            next++;
        } else if ((c == ' ' || c == '\r') && rules->flags & STOMP_LEGACY) {
            while (next < len && (data[next] == ' ' || data[next] == '\r'))
                next++;
            if (next < len && data[next] != '\n')
                goto frame;
            if (next - at > rules->max_command_line + (data[next - 1] == '\r'))
                goto frame; /* which refuses the line */
            if (next == len)
                break;
            next++;
        } else if (c == 0 && rules->flags & STOMP_SKIPS_NUL) {
            continue;
        } else if (c == 0) {
            s->skip = at;
            bad(s, STOMP_UNEXPECTED_NUL, 0);
            return STOMP_BAD;
        } else if (c != '\n') {
            goto frame;
        }
        if (rules->report_beats) {
            s->skip = next;
            return STOMP_BEAT;
        }
    }
    s->skip = at;
    return STOMP_MORE;
frame:
    s->skip = at;
    return -1;
}

/* Begin a frame by rules that need `starts`, or after one by such rules. */
static STOMP_NOINLINE int begin_irregular(struct stomp_scan *s, const struct stomp_rules *rules)
{
    int irregular = (rules->flags & STOMP_IRREGULAR) != 0;
    s->marks = rules->flags & (STOMP_LEGACY | STOMP_TRIMS_HEADERS) ? STOMP_CHANGED : 0;
    if (irregular == (s->starts != NULL))
        return 0;
    stomp_release(s->starts);
    s->starts = NULL;
    if (irregular && !(s->starts = stomp_alloc(sizeof *s->starts * s->room)))
        return bad(s, STOMP_NO_MEMORY, 0);
    return 0;
}

static inline int begin_frame(struct stomp_scan *s, const struct stomp_rules *rules)
{
    s->phase = COMMAND;
    s->line = s->blank = s->skipped = s->utf8 = 0;
    s->count = 0;
    s->marks = 0;
    return STOMP_UNLIKELY(rules->flags & STOMP_IRREGULAR || s->starts) ? begin_irregular(s, rules) : 0;
}

/* Read the line [s->line, end), with its LF at `end`, by the full rules. */
static int take_any_line(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end)
{
    const uint8_t *nul = s->rare ? memchr(data + s->line, 0, end - s->line) : NULL;
    if (nul)
        return nul_in_line(s, rules, data, (size_t)(nul - data));
    if (s->phase == HEADERS)
        return take_line(s, rules, data, end);
    int verdict = take_command(s, rules, data, end);
    s->first = end + 1;
    s->phase = HEADERS;
    return verdict;
}

/* Read a command line [0, end) without rare bytes, with its LF at lf. Returns 1 for a known command; 0 for the full rules. */
static inline int known_command(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end, size_t lf)
{
    int command = command_of(data, end);
    if (command == STOMP_COMMANDS || !(rules->commands >> command & 1) || end > rules->max_command_line)
        return 0;
    s->command = command;
    s->command_len = end;
    s->first = lf + 1;
    s->level = STOMP_UNESCAPED >> command & 1 ? 0 : rules->escapes;
    s->phase = HEADERS;
    return 1;
}

/* Return the end of the lines that fit without checking limits or memory. */
static inline struct stomp_line *lines_room(const struct stomp_scan *s, const struct stomp_rules *rules)
{
    size_t most = rules->max_headers - s->skipped;
    return s->lines + (most < s->room ? most : s->room);
}

/* Check UTF-8 from `at`, where a character begins, to `window`, an LF or the end of 32 bytes, in blocks of 64 bytes: so most
   lines are checked at once. *high: which of the 32 bytes are above 127. Returns 0 to leave it to the full rules. */
static STOMP_INLINE int check_window(struct stomp_scan *s, const struct stomp_isa *isa, const uint8_t *data, size_t at, size_t window,
                                     size_t len, uint32_t *high)
{
    size_t from = s->utf8 > at ? s->utf8 : at;
    if (STOMP_NO_UTF8_BLOCKS || len - at < STOMP_BLOCK)
        return 0;
    *high = (uint32_t)isa->at_least(data + at, 0x80);
    while (from <= window) {
        if (len - from < STOMP_BLOCK)
            return 0;
        const uint64_t lf = isa->equal(data + from, '\n'), line = stomp_up_to(lf);
        uint64_t cut, bad = stomp_utf8_errors(isa, data + from, isa->at_least(data + from, 0x80), &cut);
        cut &= line;
        if (bad & line & stomp_up_to(cut))
            return 0;
        from += cut ? stomp_low_bit64(cut) : lf ? stomp_low_bit64(lf) + 1 : STOMP_BLOCK;
    }
    s->utf8 = from;
    s->marks |= STOMP_NON_ASCII;
    return 1;
}

static const struct stomp_isa plain = {stomp_equal_plain, stomp_at_least_plain};
#ifdef STOMP_AVX2
static const struct stomp_isa avx2 = {stomp_equal_avx2, stomp_at_least_avx2};
#endif

#define STOMP_TARGET
#define STOMP_SCAN_HEAD scan_head
#define STOMP_RARE rare_octets
#define STOMP_WANTED
#define STOMP_MASKS(data) stomp_masks(data)
#define STOMP_TAIL stomp_tail
#define STOMP_ISA plain
#define STOMP_RARE_TEXT rare_text
#include "stomp_lines.h"
#undef STOMP_TARGET
#undef STOMP_SCAN_HEAD
#undef STOMP_RARE
#undef STOMP_WANTED
#undef STOMP_MASKS
#undef STOMP_TAIL
#undef STOMP_ISA
#undef STOMP_RARE_TEXT

#ifdef STOMP_AVX2
#define STOMP_TARGET __attribute__((target("avx2,bmi")))
#define STOMP_SCAN_HEAD scan_head_avx2
#define STOMP_RARE rare_octets_avx2
#define STOMP_WANTED const struct stomp_wanted_avx2 wanted = stomp_load_avx2();
#define STOMP_MASKS(data) stomp_masks_avx2(&wanted, data)
#define STOMP_TAIL stomp_tail_avx2
#define STOMP_ISA avx2
#define STOMP_RARE_TEXT rare_text_avx2
#include "stomp_lines.h"
#endif

void stomp_scan_init(struct stomp_scan *scan)
{
    memset(scan, 0, sizeof *scan);
    scan->lines = scan->few;
    scan->room = STOMP_INLINE_LINES;
    scan->scan_head = scan_head;
#ifdef STOMP_AVX2
    if (stomp_has_avx2())
        scan->scan_head = scan_head_avx2;
#endif
}
