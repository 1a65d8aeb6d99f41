/* The scanner of heads: commands, the full rules of lines, and the fast paths over masks of 64 bytes. */
#include <string.h>

#include "head.h"

/* ======== commands ======== */

const char *const stomp_command_names[STOMP_COMMANDS] = {
    "SEND",  "MESSAGE", "ERROR", "ACK",     "NACK",  "RECEIPT",   "SUBSCRIBE",  "UNSUBSCRIBE",
    "BEGIN", "COMMIT",  "ABORT", "CONNECT", "STOMP", "CONNECTED", "DISCONNECT",
};

const struct stomp_command_slot stomp_command_slots[32] = {
    [1] = {"COMMIT", "\xff\xff\xff\xff\xff\xff", 1u << STOMP_COMMIT, 6, STOMP_COMMIT},
    [3] = {"BEGIN", "\xff\xff\xff\xff\xff", 1u << STOMP_BEGIN, 5, STOMP_BEGIN},
    [5] = {"RECEIPT", "\xff\xff\xff\xff\xff\xff\xff", 1u << STOMP_RECEIPT, 7, STOMP_RECEIPT},
    [6] = {"ACK", "\xff\xff\xff", 1u << STOMP_ACK, 3, STOMP_ACK},
    [7] = {"ABORT", "\xff\xff\xff\xff\xff", 1u << STOMP_ABORT, 5, STOMP_ABORT},
    [10] = {"UNSUBSCRIBE", "", 0, 11, STOMP_UNSUBSCRIBE},
    [14] = {"SUBSCRIBE", "", 0, 9, STOMP_SUBSCRIBE},
    [16] = {"STOMP", "\xff\xff\xff\xff\xff", 1u << STOMP_STOMP, 5, STOMP_STOMP},
    [17] = {"NACK", "\xff\xff\xff\xff", 1u << STOMP_NACK, 4, STOMP_NACK},
    [18] = {"SEND", "\xff\xff\xff\xff", 1u << STOMP_SEND, 4, STOMP_SEND},
    [21] = {"DISCONNECT", "", 0, 10, STOMP_DISCONNECT},
    [26] = {"CONNECT", "\xff\xff\xff\xff\xff\xff\xff", 1u << STOMP_CONNECT, 7, STOMP_CONNECT},
    [27] = {"CONNECTED", "", 0, 9, STOMP_CONNECTED},
    [29] = {"ERROR", "\xff\xff\xff\xff\xff", 1u << STOMP_ERROR, 5, STOMP_ERROR},
    [30] = {"MESSAGE", "\xff\xff\xff\xff\xff\xff\xff", 1u << STOMP_MESSAGE, 7, STOMP_MESSAGE},
};

/* Compare 3 to 16 bytes by two loads, which may overlap: faster than a call. */
static inline int same_octets(const uint8_t *a, const char *b, size_t len)
{
    if (len >= 8) {
        uint64_t x[2], y[2];
        memcpy(x, a, 8);
        memcpy(x + 1, a + len - 8, 8);
        memcpy(y, b, 8);
        memcpy(y + 1, b + len - 8, 8);
        return !((x[0] ^ y[0]) | (x[1] ^ y[1]));
    }
    if (len >= 4) {
        uint32_t x[2], y[2];
        memcpy(x, a, 4);
        memcpy(x + 1, a + len - 4, 4);
        memcpy(y, b, 4);
        memcpy(y + 1, b + len - 4, 4);
        return !((x[0] ^ y[0]) | (x[1] ^ y[1]));
    }
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

int stomp_command_of(const uint8_t *text, size_t len)
{
    if (len < 3)
        return STOMP_COMMANDS;
    const struct stomp_command_slot *slot =
        &stomp_command_slots[stomp_command_hash(text[0] | text[1] << 8 | text[2] << 16)];
    for (int i = 0; i < 2 && slot < stomp_command_slots + 32; i++, slot++)
        if (slot->len == len && same_octets(text, slot->text, len))
            return slot->command;
    return STOMP_COMMANDS;
}

/* ======== the full rules of lines ======== */

static int has_crlf(const struct stomp_rules *rules, const uint8_t *data, size_t line, size_t end)
{
    return (rules->flags & STOMP_CRLF) && end > line && data[end - 1] == '\r';
}

static size_t line_limit(const struct stomp_scan *s, const struct stomp_rules *rules)
{
    return s->phase == STOMP_COMMAND_LINE ? rules->max_command_line : rules->max_header_line;
}

static int too_long(struct stomp_scan *s, const struct stomp_rules *rules)
{
    int error = s->phase == STOMP_COMMAND_LINE ? STOMP_LIMIT_COMMAND_LINE : STOMP_LIMIT_HEADER_LINE;
    return stomp_bad(s, error, s->line + line_limit(s, rules));
}

static int full(const struct stomp_scan *s, const struct stomp_rules *rules)
{
    return s->phase == STOMP_HEADER_LINES && s->count + s->skipped == rules->max_headers;
}

/* The current line, of which [line, end) is available, must be blank, since the limit of headers is reached. Return 0
   while it may still be: a blank legacy line has any number of spaces and CRs. */
static int refuse_header(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end)
{
    size_t at = s->blank > s->line ? s->blank : s->line, limit = rules->max_header_line;
    if (!(rules->flags & STOMP_LEGACY))
        return stomp_bad(s, STOMP_LIMIT_HEADERS, s->line);
    while (at < end && (data[at] == ' ' || data[at] == '\r'))
        at++;
    s->blank = at;
    if (at == end)
        return 0;
    if (at - s->line > limit && !(at - s->line == limit + 1 && data[at - 1] == '\r')) /* it was too long already */
        return too_long(s, rules);
    return stomp_bad(s, STOMP_LIMIT_HEADERS, s->line);
}

int stomp_nul_in_line(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t at)
{
    if (full(s, rules) && at > s->line && refuse_header(s, rules, data, at))
        return s->error;
    if (at - s->line > line_limit(s, rules))
        return too_long(s, rules);
    return stomp_bad(s, STOMP_UNEXPECTED_NUL, at);
}

int stomp_check_unfinished(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end)
{
    size_t len = end - s->line, limit = line_limit(s, rules);
    int may_end = has_crlf(rules, data, s->line, end);
    if (full(s, rules) && len && !(len == 1 && may_end) && refuse_header(s, rules, data, end))
        return s->error;
    if (len > limit && !(len == limit + 1 && may_end))
        return too_long(s, rules);
    return 0;
}

/* Return the index behind the EOL at `at`; 0: a frame begins there; STOMP_NONE: the data ends inside it. */
static size_t skip_eol(const struct stomp_rules *rules, const uint8_t *data, size_t at, size_t len)
{
    const int legacy = (rules->flags & STOMP_LEGACY) != 0;
    size_t next = at + 1;
    if (data[at] == '\n')
        return next;
    if (data[at] == '\r' && rules->flags & STOMP_CRLF && !legacy)
        return next == len ? STOMP_NONE : data[next] == '\n' ? next + 1 : 0;
    if (!legacy || (data[at] != ' ' && data[at] != '\r'))
        return 0;
    while (next < len && (data[next] == ' ' || data[next] == '\r'))
        next++;
    if (next < len && data[next] != '\n')
        return 0;
    if (next - at > rules->max_command_line + (data[next - 1] == '\r'))
        return 0; /* the frame's command line, which is too long */
    return next == len ? STOMP_NONE : next + 1;
}

int stomp_scan_gap(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t len)
{
    size_t next;
    for (s->skip = 0; s->skip < len; s->skip = next) {
        if (!data[s->skip]) {
            next = s->skip + 1;
            if (rules->flags & STOMP_SKIPS_NUL)
                continue;
            stomp_bad(s, STOMP_UNEXPECTED_NUL, 0);
            return STOMP_BAD;
        }
        next = skip_eol(rules, data, s->skip, len);
        if (!next)
            return STOMP_GO_ON;
        if (next == STOMP_NONE)
            return STOMP_MORE;
        if (rules->report_beats) {
            s->skip = next;
            return STOMP_BEAT;
        }
    }
    return STOMP_MORE;
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
    end -= (size_t)has_crlf(rules, data, 0, end);
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
        return STOMP_LINE_TAKEN;
    if ((rules->flags & STOMP_ANY_COMMAND) || is_extra(rules, text, end))
        return STOMP_LINE_TAKEN;
    return stomp_bad(s, STOMP_UNKNOWN_COMMAND, 0);
}

/* Read any content-length [value, end). Returns 0 or an error. */
static int take_length(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t value,
                       size_t end)
{
    size_t i = value, last = end;
    uint64_t n = 0;
    while (
        i < end
        && ((data[i] == ' ' && rules->flags & STOMP_PADS_SPACE) || (data[i] == '\t' && rules->flags & STOMP_PADS_TAB)))
        i++;
    while (end > i
           && ((data[end - 1] == ' ' && rules->flags & STOMP_PADS_SPACE)
               || (data[end - 1] == '\t' && rules->flags & STOMP_PADS_TAB)))
        end--;
    if (i == end)
        return stomp_bad(s, STOMP_BAD_CONTENT_LENGTH, value);
    if (i != value || end != last)
        s->marks |= STOMP_ODD;
    for (; i < end; i++) {
        unsigned digit = data[i] - (unsigned)'0';
        if (digit > 9)
            return stomp_bad(s, STOMP_BAD_CONTENT_LENGTH, value);
        n = n > (UINT64_MAX - 9) / 10 ? UINT64_MAX : n * 10 + digit; /* saturates */
    }
    s->marks |= STOMP_HAS_LENGTH;
    s->length = n;
    if (n && rules->flags & STOMP_SKIPS_IDLE_LENGTH && n <= rules->max_body
        && !(s->command < STOMP_COMMANDS && STOMP_WITH_BODY >> s->command & 1)) {
        s->marks |= STOMP_IDLE | STOMP_ODD;
        s->idle = n;
        s->length = 0;
        return STOMP_LINE_TAKEN;
    }
    if (n && !(rules->flags & STOMP_SKIPS_IDLE_LENGTH) && !stomp_takes_body(rules, s->command))
        return stomp_bad(s, STOMP_BODY_NOT_ALLOWED, value);
    return n > rules->max_body ? stomp_bad(s, STOMP_LIMIT_BODY, value) : STOMP_LINE_TAKEN;
}

static int more_room(struct stomp_scan *s)
{
    struct stomp_line *lines = stomp_alloc(sizeof *lines * (2 * s->room + STOMP_SPARE_LINES));
    struct stomp_start *starts = s->starts ? stomp_resize(s->starts, sizeof *starts * 2 * s->room) : NULL;
    if (starts)
        s->starts = starts;
    if (!lines || (s->starts && !starts)) {
        stomp_release(lines);
        return stomp_bad(s, STOMP_NO_MEMORY, s->line);
    }
    memcpy(lines, s->lines, sizeof *lines * s->count);
    if (s->lines != s->few)
        stomp_release(s->lines);
    s->lines = lines;
    s->room *= 2;
    return 0;
}

static int keep(struct stomp_scan *s, const struct stomp_header *at)
{
    if (s->count == s->room && more_room(s))
        return s->error;
    if (s->starts) {
        s->starts[s->count].name = (uint32_t)at->name;
        s->starts[s->count].value = (uint32_t)at->value;
    }
    s->lines[s->count].colon = (uint32_t)at->colon;
    s->lines[s->count++].end = (uint32_t)at->end;
    return STOMP_LINE_TAKEN;
}

static int is_content_length(const uint8_t *name, int fold)
{
    static const char want[] = "content-length";
    if (!fold)
        return stomp_is_content_length(name);
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
    return rules->flags & STOMP_KEEPS_BAD_UTF8 ? 0 : stomp_bad(s, STOMP_INVALID_UTF8, s->line + at);
}

static int is_of_login(const uint8_t *name, size_t len)
{
    return (len == 5 && !memcmp(name, "login", 5)) || (len == 8 && !memcmp(name, "passcode", 8))
        || (len == 9 && !memcmp(name, "client-id", 9));
}

/* Check the bytes above 127, CRs and backslashes of a header line [s->line, end). */
static int check_rare(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end)
{
    const uint8_t *line = data + s->line;
    size_t len = end - s->line, colon = s->colon - s->line;
    if (check_utf8(s, rules, line, len))
        return s->error;
    s->marks |= memchr(line, '\r', len) ? STOMP_ODD : 0;
    if (!memchr(line, '\\', len))
        return 0;
    s->marks |= s->level ? STOMP_ESCAPED : STOMP_ODD; /* other versions would read this backslash as an escape */
    if (!s->level)
        return 0;
    if (rules->flags & STOMP_KEEPS_BAD_ESCAPES
        || (rules->flags & STOMP_KEEPS_LOGIN_ESCAPES && is_of_login(line, colon))) {
        s->marks |= STOMP_ODD;
        return 0;
    }
    size_t at = stomp_bad_escape(line, colon, rules->escapes);
    if (at < colon)
        return stomp_bad(s, STOMP_BAD_ESCAPE, s->line + at);
    at = stomp_bad_escape(line + colon + 1, len - colon - 1, rules->escapes);
    return at < len - colon - 1 ? stomp_bad(s, STOMP_BAD_ESCAPE, s->colon + 1 + at) : 0;
}

/* Skip the spaces that the rules ignore around name and value. */
static void trim(struct stomp_header *at, const struct stomp_rules *rules, const uint8_t *data)
{
    if (rules->flags & (STOMP_LEGACY | STOMP_TRIMS_HEADERS))
        while (at->value < at->end && data[at->value] == ' ')
            at->value++;
    if (!(rules->flags & STOMP_TRIMS_HEADERS))
        return;
    while (at->name < at->colon && data[at->name] == ' ')
        at->name++;
    while (at->colon > at->name && data[at->colon - 1] == ' ')
        at->colon--;
    while (at->end > at->value && data[at->end - 1] == ' ')
        at->end--;
}

/* Read the header line [s->line, end), of which [s->line, kept) is left without the spaces and CRs at the end of a
   legacy line. */
static int take_entry(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end,
                      size_t kept)
{
    struct stomp_header at = {s->line, s->colon, s->colon + 1, kept};
    if (s->colon != STOMP_NONE)
        trim(&at, rules, data);
    if (s->colon == STOMP_NONE || at.colon == at.name
        || at.value > at.end) { /* the last: data that changes while it is read */
        s->marks |= STOMP_CHANGED;
        s->skipped++;
        return rules->flags & STOMP_SKIPS_BAD_LINES ? STOMP_LINE_TAKEN : stomp_bad(s, STOMP_BAD_HEADER_LINE, s->line);
    }
    if (rules->flags & STOMP_LEGACY)
        for (size_t i = at.value; i < at.end; i++)
            if (data[i] < 32)
                return stomp_bad(s, STOMP_BAD_HEADER_LINE, s->line);
    if (s->rare && check_rare(s, rules, data, end))
        return s->error;
    if (at.colon - at.name == 14 && !(s->marks & STOMP_HAS_LENGTH)
        && is_content_length(data + at.name, rules->flags & STOMP_LEGACY)
        && take_length(s, rules, data, at.value, at.end))
        return s->error;
    return keep(s, &at);
}

static int take_header(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t lf)
{
    size_t end = lf - (size_t)has_crlf(rules, data, s->line, lf), kept = end;
    if (end == s->line)
        return STOMP_LINE_BLANK;
    if (full(s, rules) && refuse_header(s, rules, data, lf))
        return s->error;
    if (end - s->line > rules->max_header_line)
        return too_long(s, rules);
    if (rules->flags & STOMP_LEGACY) {
        while (kept > s->line && (data[kept - 1] == ' ' || data[kept - 1] == '\r'))
            kept--;
        if (kept == s->line)
            return STOMP_LINE_BLANK;
    }
    return take_entry(s, rules, data, end, kept);
}

int stomp_take_line(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t lf)
{
    const uint8_t *nul = s->rare ? memchr(data + s->line, 0, lf - s->line) : NULL;
    if (nul)
        return stomp_nul_in_line(s, rules, data, (size_t)(nul - data));
    s->marks |= has_crlf(rules, data, s->line, lf) ? STOMP_CR_ENDS : 0;
    if (s->phase == STOMP_HEADER_LINES)
        return take_header(s, rules, data, lf);
    int verdict = take_command(s, rules, data, lf);
    s->first = lf + 1;
    s->phase = STOMP_HEADER_LINES;
    return verdict;
}

/* ======== the scan ======== */

/* The lines of a head are read in three ways, the fast paths first:
   - fast_head() reads a usual head at once, from masks of blocks of 64 bytes;
   - walk() takes from such masks all lines that the full rules would take unchanged, from any line on;
   - any_lines() finds the lines one by one, and stomp_take_line() reads them by the full rules.
   Invariant: without the first two only the speed changes. */

void stomp_scan_free(struct stomp_scan *scan)
{
    if (scan->lines != scan->few)
        stomp_release(scan->lines);
    stomp_release(scan->starts);
    scan->starts = NULL;
    scan->lines = scan->few;
    scan->room = STOMP_INLINE_LINES;
}

/* ---- the beginning of a frame ---- */

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
        return stomp_bad(s, STOMP_NO_MEMORY, 0);
    return 0;
}

static inline int begin_frame(struct stomp_scan *s, const struct stomp_rules *rules)
{
    s->skipped = 0;
    s->count = 0;
    s->marks = 0;
    return STOMP_UNLIKELY(rules->flags & STOMP_IRREGULAR || s->starts) ? begin_irregular(s, rules) : 0;
}

/* Skip the EOLs before a frame, and begin it. Returns STOMP_GO_ON or an outcome. */
static int begin(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t len)
{
    const int outcome = stomp_scan_gap(s, rules, data, len);
    return outcome == STOMP_GO_ON && begin_frame(s, rules) ? STOMP_BAD : outcome;
}

/* Leave the lines from `line` on, the first of which has the number `count`, to the full rules. */
static STOMP_NOINLINE int leave(struct stomp_scan *s, int phase, uint32_t count, size_t line)
{
    s->phase = phase;
    s->count = count;
    s->pos = s->line = line;
    s->blank = 0;
    s->colon = STOMP_NONE;
    s->rare = 0;
    return 0;
}

/* Return the number of lines that fit without checking limits or memory. */
static inline uint32_t lines_room(const struct stomp_scan *s, const struct stomp_rules *rules)
{
    return rules->max_headers < s->room ? (uint32_t)rules->max_headers : s->room;
}

/* ---- the walk ---- */

/* Check the rare bytes of header lines, and set the marks; UTF-8 is left to settle(). `rare` are bits of the block at
   `at`; the data ends at `end`. Returns the first byte that is left to the full rules, as a bit, or 0. */
static STOMP_NOINLINE uint64_t check_rare_bits(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *at,
                                               const uint8_t *end, uint64_t rare)
{
    const uint64_t high = rare & stomp_at_least_plain(at, 0x80);
    int marks = high ? STOMP_NON_ASCII : 0;
    uint64_t left = 0;
    for (rare ^= high; rare && !left; rare &= rare - 1) {
        const uint8_t *c = at + stomp_low_bit64(rare);
        if (c + 1 == end) {
            left = rare;
        } else if (*c == '\r') {
            marks |= c[1] == '\n' && rules->flags & STOMP_CRLF ? STOMP_CR_ENDS : STOMP_ODD;
        } else if (*c == '\\' && !s->level) {
            marks |= STOMP_ODD; /* other versions would read it as an escape */
        } else if (*c == '\\') {
            marks |= STOMP_ESCAPED;
            if (c[1] == '\\' && rare & (rare - 1))
                rare &= rare - 1; /* the second one of a pair */
            else if (c[1] != 'c' && c[1] != 'n' && !(c[1] == 'r' && s->level == 2))
                left = rare;
        } else {
            left = rare;
        }
    }
    s->marks |= marks;
    return left & (0 - left);
}

/* What walk() found. */
struct walked {
    size_t start;    /* the first line that it took */
    uint32_t before; /* the lines before that one */
    uint32_t count;  /* all lines, with their LF as their end */
    size_t length;   /* the colon of content-length, or 0 */
    size_t blank;    /* the LF of the blank line, or 0 */
};

/* Drop the last lines, until `at` is not before the line behind the kept ones. Returns that line. */
static size_t drop_lines(const struct stomp_scan *s, struct walked *w, size_t at)
{
    for (;; w->count--, w->blank = 0) {
        const size_t line = w->count > w->before ? s->lines[w->count - 1].end + (size_t)1 : w->start;
        if (at >= line)
            return line;
    }
}

/* Finish a walk with bytes above 127 or CRs at line ends, or which did not reach the blank line. Returns 1 at the end
   of the head, or 0 to go on by the full rules. */
static STOMP_NOINLINE int settle(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                                 struct walked w)
{
    const uint32_t most = lines_room(s, rules);
    if (w.count > most) {
        w.count = most;
        w.blank = 0;
    }
    size_t line = drop_lines(s, &w, STOMP_NONE);
    if (s->marks & STOMP_NON_ASCII) {
        const size_t good = stomp_bad_utf8(data + w.start, line - w.start);
        line = drop_lines(s, &w, good < line - w.start ? w.start + good : line);
    }
    if (w.length && w.length < line && !stomp_fast_length(s, rules, data, w.length, line - 1))
        line = drop_lines(s, &w, w.length);
    if (s->marks & STOMP_CR_ENDS)
        for (struct stomp_line *at = s->lines + w.before; at < s->lines + w.count; at++)
            at->end -=
                data[at->end - 1] == '\r' && at->end - 1 != at->colon; /* a CR may have been the colon a moment ago */
    if (!w.blank)
        return leave(s, STOMP_HEADER_LINES, w.count, line);
    s->count = w.count;
    s->head = w.blank + 1;
    return 1;
}

/* Is [line, lf] a CR LF that ends a line? */
static STOMP_INLINE int is_crlf(const struct stomp_rules *rules, const uint8_t *data, size_t line, size_t lf)
{
    return lf == line + 1 && stomp_are(data + line, "\r\n") && rules->flags & STOMP_CRLF;
}

/* Write the offsets of some bits of the block at `base`. Returns the place behind them. */
static STOMP_INLINE uint32_t *put_offsets(uint32_t *to, size_t base, uint64_t bits)
{
    while (bits) {
        to[0] = (uint32_t)(base + stomp_low_bit64(bits));
        bits &= bits - 1;
        if (!bits)
            return to + 1;
        to[1] = (uint32_t)(base + stomp_low_bit64(bits));
        bits &= bits - 1;
        to += 2;
    }
    return to;
}

/* Skip the usual ones among the rare bytes of header lines, set their marks, and return the others: \\c, CR LF, and
   bytes above 127, which settle() checks. `rare` are bits of the block at `at`. */
static STOMP_INLINE uint64_t skip_usual(struct stomp_scan *s, const struct stomp_rules *rules,
                                        const struct stomp_isa *isa, const uint8_t *at, uint64_t rare)
{
    while (STOMP_UNLIKELY(rare)) {
        const uint8_t *c = at + stomp_low_bit64(rare);
        uint64_t usual = rare & (0 - rare);
        if (STOMP_LIKELY(stomp_are(c, "\\c") && s->level)) {
            s->marks |= STOMP_ESCAPED;
        } else if (stomp_are(c, "\r\n") && rules->flags & STOMP_CRLF) {
            s->marks |= STOMP_CR_ENDS;
        } else if (*c > 127) {
            s->marks |= STOMP_NON_ASCII;
            usual = isa->at_least(at, 0x80);
        } else {
            break;
        }
        rare &= ~usual;
    }
    return rare;
}

/* Take the lines of the block at `base` that are below its first odd place. */
static STOMP_INLINE void take_block(struct stomp_walk *k, const uint8_t *data, size_t base,
                                    const struct stomp_block_lines *b)
{
    k->more_colons |= b->m.colon & ~b->first & b->below;
    stomp_note_length(k, data, base, b);
    k->starts = b->starts;
    k->to = put_offsets(k->to, base, (b->first | b->m.lf) & b->below);
}

/* Take the lines from s->line on up to the blank line or the first one that is left to the full rules. Returns 1 at
   the end of the head, or 0 to go on by the full rules. */
static STOMP_INLINE int walk(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t len,
                             const struct stomp_isa *isa)
{
    uint8_t padded[2 * STOMP_BLOCK];
    const size_t start = s->line;
    const uint32_t old = s->count;
    /* In [start, most) no line is too long. */
    const size_t most = len - start < rules->max_header_line ? len : start + rules->max_header_line;
    uint32_t *const lines = &s->lines->colon;
    const uint32_t *const end = lines + 2 * (size_t)lines_room(s, rules);
    struct stomp_walk k = {lines + 2 * (size_t)old, 0, 1, 0, 0, 0};
    size_t blank = 0;
    for (size_t base = start; base < most; base += STOMP_BLOCK) {
        const uint8_t *at = data + base;
        if (most - base <= STOMP_BLOCK) {
            if (most != len)
                break;
            at = stomp_last_block(data, base, len, padded);
        }
        struct stomp_block_lines b = stomp_find_lines(isa, at, k.at_start, k.in_name);
        const uint64_t rare = skip_usual(s, rules, isa, at, b.m.rare & b.below);
        if (rare) {
            const uint64_t left = check_rare_bits(s, rules, at, at + (len - base), rare);
            b.stop |= left;
            b.below &= left - 1; /* all bits if left is 0 */
        }
        take_block(&k, data, base, &b);
        if (b.stop) {
            const size_t lf = base + stomp_low_bit64(b.stop);
            const size_t line = k.to > lines + 2 * (size_t)old ? k.to[-1] + (size_t)1 : start;
            blank = stomp_stops_blank(&b) || is_crlf(rules, data, line, lf) ? lf : 0;
        }
        if (b.stop || k.to > end)
            break;
        stomp_end_block(&k, &b);
    }
    s->marks |= k.more_colons ? STOMP_ODD : 0;
    const struct walked w = {start, old, (uint32_t)((size_t)(k.to - lines) / 2),
                             s->marks & STOMP_HAS_LENGTH ? 0 : k.length, blank};
    return settle(s, rules, data, w);
}

/* ---- the full rules ---- */

/* Note the first colon and the rare bytes `rare` of the current line in the block at `base`, of which `line` are the
   bits. */
static inline void note_line(struct stomp_scan *s, size_t base, const struct stomp_masks *m, uint64_t line,
                             uint64_t rare)
{
    uint64_t colons = m->colon & line;
    s->rare |= rare != 0;
    if (colons && s->colon == STOMP_NONE) {
        s->colon = base + stomp_low_bit64(colons);
        colons &= colons - 1;
    }
    s->marks |= colons && s->phase == STOMP_HEADER_LINES ? STOMP_ODD : 0;
}

/* Take the line whose LF is the first one of the block at `base`. Returns STOMP_MORE, or how the scan ends. */
static inline int next_line(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t base,
                            struct stomp_masks *m)
{
    const uint64_t line = stomp_up_to(m->lf);
    const size_t lf = base + stomp_low_bit64(m->lf);
    uint64_t rare = m->rare & line;
    if (rare && lf > s->line && data[lf - 1] == '\r' && rules->flags & STOMP_CRLF)
        rare &= line >> 2; /* that one is not rare */
    note_line(s, base, m, line, rare);
    const int verdict = stomp_take_line(s, rules, data, lf);
    if (verdict) {
        s->head = lf + 1;
        s->phase = STOMP_GAP;
        return verdict == STOMP_LINE_BLANK ? STOMP_HEAD : STOMP_BAD;
    }
    s->line = lf + 1;
    s->colon = STOMP_NONE;
    s->rare = 0;
    m->lf &= ~line;
    m->colon &= ~line;
    m->rare &= ~line;
    return STOMP_MORE;
}

/* Is there a NUL in the current line, in data that is read up to `end`? Sets the error. */
static STOMP_NOINLINE int has_nul(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                                  size_t end)
{
    const size_t from = s->line > s->pos ? s->line : s->pos;
    const uint8_t *nul = memchr(data + from, 0, end - from);
    return nul && stomp_nul_in_line(s, rules, data, (size_t)(nul - data));
}

/* Read lines from s->pos on by the full rules: one if `one`, or else all. Returns STOMP_GO_ON or an outcome. */
static STOMP_INLINE int any_lines(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                                  size_t len, const struct stomp_isa *isa, int one)
{
    uint8_t padded[2 * STOMP_BLOCK];
    while (s->pos < len) {
        const size_t base = s->pos, end = len - base < STOMP_BLOCK ? len : base + STOMP_BLOCK;
        struct stomp_masks m =
            isa->masks(len - base < STOMP_BLOCK ? stomp_last_block(data, base, len, padded) : data + base);
        while (m.lf) {
            const int outcome = next_line(s, rules, data, base, &m);
            if (outcome != STOMP_MORE)
                return outcome;
            if (one) {
                s->pos = s->line;
                return STOMP_GO_ON;
            }
        }
        note_line(s, base, &m, ~(uint64_t)0, m.rare);
        if (m.rare && has_nul(s, rules, data, end))
            return STOMP_BAD;
        s->pos = end;
    }
    return stomp_check_unfinished(s, rules, data, len) ? STOMP_BAD : STOMP_MORE;
}

/* ---- the scan ---- */

/* Go on with a frame that was begun. */
static STOMP_INLINE int go_on(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t len,
                              const struct stomp_isa *isa)
{
    const int regular = stomp_is_regular(rules);
    int outcome = STOMP_GO_ON;
    while (outcome == STOMP_GO_ON) {
        if (regular && s->phase == STOMP_COMMAND_LINE && !s->pos && len >= 16) {
            const size_t line = stomp_fast_command(s, rules, data, rules->flags & STOMP_CRLF);
            if (line)
                leave(s, STOMP_HEADER_LINES, 0, line);
        }
        if (regular && s->phase == STOMP_HEADER_LINES && s->pos == s->line && walk(s, rules, data, len, isa)) {
            s->phase = STOMP_GAP;
            return STOMP_HEAD;
        }
        outcome = any_lines(s, rules, data, len, isa, regular);
    }
    return outcome;
}

/* Scan any head. */
static STOMP_INLINE int scan_any(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t len,
                                 const struct stomp_isa *isa)
{
    s->skip = 0;
    if (s->phase == STOMP_GAP) {
        const int outcome = begin(s, rules, data, len);
        if (outcome != STOMP_GO_ON)
            return outcome;
        leave(s, STOMP_COMMAND_LINE, 0, 0);
    }
    return go_on(s, rules, data + s->skip, len - s->skip, isa);
}

/* Go on behind fast_head, which took `count` lines. `length`: see struct walked. */
static STOMP_INLINE int scan_rest(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                                  size_t len, uint32_t count, size_t length, const struct stomp_isa *isa)
{
    const int too_long = count && s->lines[count - 1].end >= rules->max_header_line; /* one of them, perhaps */
    const struct walked w = {s->first, 0, too_long ? 0 : count, length, 0};
    s->skipped = 0;
    settle(s, rules, data, w);
    return go_on(s, rules, data, len, isa);
}

typedef int any_scan(struct stomp_scan *, const struct stomp_rules *, const uint8_t *, size_t);
typedef int rest_scan(struct stomp_scan *, const struct stomp_rules *, const uint8_t *, size_t, uint32_t, size_t);
typedef int utf8_end(struct stomp_scan *, const struct stomp_rules *, const uint8_t *, size_t, size_t);

/* Scan a usual head: from its first byte to its end, with full blocks, and \\c and UTF-8 as the only rare bytes. It
   calls nothing: all else is left to `any` and, behind the lines that it took, to `rest` or `utf8`. Invariant:
   without it only the speed changes. */
static STOMP_INLINE int fast_head(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                                  size_t len, const struct stomp_isa *isa, any_scan *any, rest_scan *rest,
                                  utf8_end *utf8)
{
    size_t skip = 0;
    if (STOMP_UNLIKELY(s->phase != STOMP_GAP) || len <= STOMP_BLOCK + 1 || !stomp_is_regular(rules) || s->starts)
        return any(s, rules, data, len);
    if (data[0] <= ' ') {
        if (data[0] != '\n' || data[1] <= ' ' || rules->report_beats)
            return any(s, rules, data, len);
        skip = 1; /* the EOL that most brokers write after a frame */
        data++;
        len--;
    }
    size_t base = stomp_fast_command(s, rules, data, 0);
    if (STOMP_UNLIKELY(!base))
        return any(s, rules, data - skip, len + skip);
    s->skip = skip;
    s->marks = 0;
    uint32_t *const lines = &s->lines->colon;
    const uint32_t *const end = lines + 2 * (size_t)lines_room(s, rules);
    struct stomp_walk k = {lines, 0, 1, 0, 0, 0};
    for (; STOMP_LIKELY(base < len - STOMP_BLOCK); base += STOMP_BLOCK) {
        const struct stomp_block_lines b = stomp_find_lines(isa, data + base, k.at_start, k.in_name);
        if (STOMP_UNLIKELY(stomp_skip_texts(s, isa, data + base, b.m.rare & b.below)))
            break;
        take_block(&k, data, base, &b);
        if (b.stop && stomp_stops_blank(&b)) {
            const size_t blank = base + stomp_low_bit64(b.stop);
            if (k.to > end || blank > rules->max_header_line
                || (k.length && !stomp_fast_length(s, rules, data, k.length, blank)))
                break;
            if (STOMP_UNLIKELY(k.more_colons))
                s->marks |= STOMP_ODD;
            s->count = (uint32_t)((size_t)((uint8_t *)k.to - (uint8_t *)lines) / sizeof *s->lines);
            s->head = blank + 1;
            return STOMP_UNLIKELY(s->marks & STOMP_NON_ASCII) ? utf8(s, rules, data, len, k.length) : STOMP_HEAD;
        }
        if (STOMP_UNLIKELY(b.stop) || STOMP_UNLIKELY(k.to > end))
            break;
        stomp_end_block(&k, &b);
    }
    s->marks |= k.more_colons ? STOMP_ODD : 0;
    return rest(s, rules, data, len, base > rules->max_header_line ? 0 : (uint32_t)((size_t)(k.to - lines) / 2),
                k.length);
}

static STOMP_NOINLINE int scan_any_plain(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                                         size_t len)
{
    return scan_any(s, rules, data, len, &stomp_plain);
}

static STOMP_NOINLINE int scan_rest_plain(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                                          size_t len, uint32_t count, size_t length)
{
    return scan_rest(s, rules, data, len, count, length, &stomp_plain);
}

static STOMP_NOINLINE int utf8_plain(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                                     size_t len, size_t length)
{
    return stomp_head_is_utf8(s, data, &stomp_plain) ? STOMP_HEAD
                                                     : scan_rest(s, rules, data, len, s->count, length, &stomp_plain);
}

static int scan_plain(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t len)
{
    return fast_head(s, rules, data, len, &stomp_plain, scan_any_plain, scan_rest_plain, utf8_plain);
}

#ifdef STOMP_AVX2
STOMP_FOR_AVX2 static STOMP_NOINLINE int scan_any_avx2(struct stomp_scan *s, const struct stomp_rules *rules,
                                                       const uint8_t *data, size_t len)
{
    return scan_any(s, rules, data, len, &stomp_avx2);
}

STOMP_FOR_AVX2 static STOMP_NOINLINE int scan_rest_avx2(struct stomp_scan *s, const struct stomp_rules *rules,
                                                        const uint8_t *data, size_t len, uint32_t count, size_t length)
{
    return scan_rest(s, rules, data, len, count, length, &stomp_avx2);
}

STOMP_FOR_AVX2 static STOMP_NOINLINE int utf8_avx2(struct stomp_scan *s, const struct stomp_rules *rules,
                                                   const uint8_t *data, size_t len, size_t length)
{
    return stomp_head_is_utf8_avx2(s, data) ? STOMP_HEAD
                                            : scan_rest(s, rules, data, len, s->count, length, &stomp_avx2);
}

STOMP_FOR_AVX2 static int scan_avx2(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data,
                                    size_t len)
{
    return fast_head(s, rules, data, len, &stomp_avx2, scan_any_avx2, scan_rest_avx2, utf8_avx2);
}
#endif

int stomp_mend_body(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *body, size_t len,
                    size_t *size)
{
    const uint64_t length = scan->marks & STOMP_IDLE ? scan->idle : scan->length;
    if (!(scan->marks & STOMP_HAS_LENGTH) || !len)
        return -1;
    if (scan->marks & STOMP_IDLE && !stomp_takes_body(rules, scan->command)) {
        *size = 0;
        return STOMP_BODY_NOT_ALLOWED;
    }
    if (len < length)
        return -1;
    *size = (size_t)length;
    if (len > length && !body[length])
        return STOMP_OK;
    const int mends = (rules->flags & STOMP_MENDS_LENGTH) != 0;
    const enum stomp_wrong wrong = mends ? stomp_wrong_length(body, length) : STOMP_WRONG;
    if (wrong == STOMP_COUNTS_NUL) {
        *size = (size_t)length - 1;
        return STOMP_OK;
    }
    if (len == length)
        return -1;
    if (wrong == STOMP_WRONG)
        return STOMP_MISSING_NULL;
    const uint64_t most = STOMP_MOST_BYTES(length, rules->max_body);
    const uint8_t *nul = memchr(body, 0, len > most ? (size_t)most + 1 : len);
    if (!nul)
        return len > most ? STOMP_MISSING_NULL : -1;
    if (!stomp_counts_characters(body, (size_t)(nul - body), length))
        return STOMP_MISSING_NULL;
    *size = (size_t)(nul - body);
    return STOMP_OK;
}

void stomp_scan_init(struct stomp_scan *scan)
{
    memset(scan, 0, sizeof *scan);
    scan->lines = scan->few;
    scan->room = STOMP_INLINE_LINES;
    scan->scan_head = scan_plain;
#ifdef STOMP_AVX2
    if (stomp_has_avx2())
        scan->scan_head = scan_avx2;
#endif
}
