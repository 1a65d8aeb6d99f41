#include "stomp_lines.h"

#include "stomp_command.h"
#include "stomp_memory.h"
#include "stomp_text.h"

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

/* The current line, of which [line, end) is available, must be blank, since the limit of headers is reached. Return 0 while it
   may still be: a blank legacy line has any number of spaces and CRs. */
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
static int take_length(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t value, size_t end)
{
    size_t i = value, last = end;
    uint64_t n = 0;
    while (i < end && ((data[i] == ' ' && rules->flags & STOMP_PADS_SPACE) || (data[i] == '\t' && rules->flags & STOMP_PADS_TAB)))
        i++;
    while (end > i && ((data[end - 1] == ' ' && rules->flags & STOMP_PADS_SPACE) || (data[end - 1] == '\t' && rules->flags & STOMP_PADS_TAB)))
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
    if (n && !stomp_takes_body(rules, s->command))
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
    if (rules->flags & STOMP_KEEPS_BAD_ESCAPES) {
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

/* Read the header line [s->line, end), of which [s->line, kept) is left without the spaces and CRs at the end of a legacy
   line. */
static int take_entry(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end, size_t kept)
{
    struct stomp_header at = {s->line, s->colon, s->colon + 1, kept};
    if (s->colon != STOMP_NONE)
        trim(&at, rules, data);
    if (s->colon == STOMP_NONE || at.colon == at.name || at.value > at.end) { /* the last: data that changes while it is read */
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
    if (at.colon - at.name == 14 && !(s->marks & STOMP_HAS_LENGTH) && is_content_length(data + at.name, rules->flags & STOMP_LEGACY)
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
