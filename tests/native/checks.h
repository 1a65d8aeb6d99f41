/* What the C tests share: the dialects, memory between pages that must not be touched, reading a whole stream with the
   scanner in pieces of any size, as text that compares, and checking columns against it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "columns.h"
#include "stomp.h"
#include "text.h"

#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                             \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- dialects ---- */

/* Those of stompcodec/spec.py as rules for the scanner; test_native.py compares the two. An input begins with four octets
   that choose among them: rules_of_input. */
enum { V1_2, V1_1, V1_0, LEGACY, NONE_YET, VERSIONS };

#define BIT(command) (1u << (command))
#define COMMANDS_1_0                                                                                                   \
    (BIT(STOMP_CONNECT) | BIT(STOMP_SEND) | BIT(STOMP_SUBSCRIBE) | BIT(STOMP_UNSUBSCRIBE) | BIT(STOMP_BEGIN)           \
     | BIT(STOMP_COMMIT) | BIT(STOMP_ABORT) | BIT(STOMP_ACK) | BIT(STOMP_DISCONNECT) | BIT(STOMP_CONNECTED)            \
     | BIT(STOMP_MESSAGE) | BIT(STOMP_RECEIPT) | BIT(STOMP_ERROR))
#define COMMANDS_1_1 (COMMANDS_1_0 | BIT(STOMP_NACK) | BIT(STOMP_STOMP))

struct limits {
    size_t max_command_line, max_header_line, max_headers;
    uint64_t max_body;
};
static const struct limits default_limits = {256, 65536, 1000, 100u << 20};

/* Those of spec.LENIENCIES. */
enum { STRICT, SERVER, LENIENT, LENIENCIES };

static inline struct stomp_rules rules_of(int version, int lenient, struct limits limits)
{
    struct stomp_rules rules = {0};
    rules.commands = version == V1_0 || version == LEGACY ? COMMANDS_1_0 : COMMANDS_1_1;
    rules.escapes = version == V1_2 || version == NONE_YET ? 2 : version == V1_1 ? 1 : 0;
    rules.flags = version == V1_1 || version == V1_0 ? 0 : STOMP_CRLF;
    if (version == V1_0 || version == LEGACY)
        rules.flags |= STOMP_ANY_BODY | STOMP_PADS_SPACE;
    if (version == LEGACY)
        rules.flags |= STOMP_LEGACY;
    if (lenient)
        rules.flags |= STOMP_SKIPS_IDLE_LENGTH;
    if (lenient == SERVER && version == NONE_YET)
        rules.flags |= STOMP_KEEPS_LOGIN_ESCAPES;
    if (lenient == LENIENT) {
        rules.flags |= STOMP_MENDS_LENGTH;
        rules.flags |= STOMP_CRLF | STOMP_ANY_BODY | STOMP_ANY_COMMAND | STOMP_KEEPS_BAD_ESCAPES | STOMP_KEEPS_BAD_UTF8;
        rules.flags |= STOMP_SKIPS_BAD_LINES | STOMP_SKIPS_NUL | STOMP_PADS_SPACE | STOMP_PADS_TAB;
        if (version == V1_0)
            rules.flags |= STOMP_TRIMS_HEADERS;
    }
    rules.max_command_line = limits.max_command_line;
    rules.max_header_line = limits.max_header_line;
    rules.max_headers = limits.max_headers;
    rules.max_body = limits.max_body;
    return rules;
}

#define INPUT_HEAD 4

/* The rules that the first octets of an input choose. */
static inline struct stomp_rules rules_of_input(const uint8_t input[INPUT_HEAD])
{
    static const struct limits limits[8] = {
        {7, 24, 3, 12}, {4, 8, 1, 0},  {0, 0, 0, 1},         {16, 64, 2, 100},
        {9, 17, 40, 5}, {64, 16, 8, 3000}, {300, 150, 70, 70000}, {256, 65536, 1000, 100u << 20},
    };
    static const struct stomp_name extra[] = {{(const uint8_t *)"PING", 4}, {(const uint8_t *)"caf\xc3\xa9", 5}};
    struct stomp_rules rules = rules_of(input[0] % 5, input[0] / 5 % 2 ? LENIENT : STRICT, limits[input[1] % 8]);
    rules.flags &= ~(uint32_t)(STOMP_MENDS_LENGTH | STOMP_SKIPS_IDLE_LENGTH); /* the scanner reads no bodies */
    rules.report_beats = input[0] / 10 % 2;
    rules.extra = extra;
    rules.extra_count = input[0] / 20 % 2 ? 2 : 0;
    return rules;
}

/* ---- memory with a page before and behind it that must not be touched ---- */

/* Reading one octet too many ends the program. A Python bytes object hides that mistake, for it owns a NUL to spare. */
/* [first, last): whole pages that may be used, at least `size` octets. */
struct guarded {
    uint8_t *first, *last;
};

static inline struct guarded make_guarded(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (size + page - 1) / page * page;
    uint8_t *pages = mmap(NULL, room + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(pages != MAP_FAILED);
    MUST(mprotect(pages, page, PROT_NONE) == 0 && mprotect(pages + page + room, page, PROT_NONE) == 0);
    return (struct guarded){pages + page, pages + page + room};
}

static struct guarded guarded;

/* The octets right before the guard page. Some that lie before them are set to what was never sent. */
static inline const uint8_t *place_before_guard(const uint8_t *data, size_t len)
{
    size_t room = (size_t)(guarded.last - guarded.first);
    MUST(len <= room);
    memset(guarded.last - (len + 64 < room ? len + 64 : room), '\n', len + 64 < room ? 64 : room - len);
    if (len)
        memcpy(guarded.last - len, data, len);
    return guarded.last - len;
}

/* The octets right behind a guard page. */
static inline const uint8_t *place_behind_guard(const uint8_t *data, size_t len)
{
    size_t room = (size_t)(guarded.last - guarded.first);
    MUST(len <= room);
    if (len)
        memcpy(guarded.first, data, len);
    memset(guarded.first + len, '\n', room - len < 64 ? room - len : 64);
    return guarded.first;
}

/* ---- what a stream holds ---- */

#define INPUT_MOST 4096 /* octets of a stream: more only takes time */
#define TEXT_MOST (4 * INPUT_MOST)

/* What a stream holds, in words: "~" an EOL between frames, "{SEND}{name=value}[body]" a frame,
   "!unexpected-nul@12" what is wrong and where. A frame that is not whole is left out. */
struct trace {
    char text[TEXT_MOST];
    size_t len;
    uint64_t frames, headers;
    size_t frame_end; /* behind the last whole frame */
    int error;        /* enum stomp_error */
    size_t at;        /* of the error, from the start of the stream */
};

static inline void say(struct trace *trace, const void *octets, size_t len)
{
    MUST(len < TEXT_MOST - trace->len);
    memcpy(trace->text + trace->len, octets, len);
    trace->len += len;
}

static inline void say_word(struct trace *trace, const char *word)
{
    say(trace, word, strlen(word));
}

/* Text with ASCII letters folded: by +1 to upper case, by -1 to lower case. */
static inline void say_folded(struct trace *trace, const uint8_t *octets, size_t len, int fold)
{
    size_t from = trace->len;
    say(trace, octets, len);
    for (size_t i = from; i < trace->len; i++) {
        char *c = &trace->text[i];
        if (fold > 0 && *c >= 'a' && *c <= 'z')
            *c -= 32;
        if (fold < 0 && *c >= 'A' && *c <= 'Z')
            *c += 32;
    }
}

/* ---- one head ---- */

/* What the marks promise of one header. They may depend on the cuts, as long as they promise no more than is true: where
   nothing is odd, a writer of any version that has these escapes would write the very same octets. */
static inline void check_marks(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *octets, size_t len, int is_name)
{
    static uint8_t text[INPUT_MOST], written[2 * INPUT_MOST + 16];
    int escaped = scan->marks & STOMP_ESCAPED, level = escaped ? rules->escapes : 0;
    int has_escapes = rules->escapes && !(scan->command < STOMP_COMMANDS && (STOMP_UNESCAPED >> scan->command & 1));
    for (size_t i = 0; i < len; i++)
        MUST((octets[i] < 128 || scan->marks & STOMP_NON_ASCII) && (octets[i] != '\\' || !has_escapes || escaped));
    size_t plain = stomp_unescape(text, octets, len, level);
    for (int mode = STOMP_WRITE_1_2; mode < STOMP_WRITE_LEGACY && !(scan->marks & STOMP_ODD); mode++)
        if (!level || mode == STOMP_WRITE_1_2 || (mode == STOMP_WRITE_1_1 && level == 1))
            MUST(stomp_write_text(written, text, plain, mode, is_name) == len && !memcmp(written, octets, len));
}

static inline void say_head(struct trace *trace, const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *frame)
{
    static uint8_t text[INPUT_MOST];
    int level = scan->marks & STOMP_ESCAPED ? rules->escapes : 0, legacy = (rules->flags & STOMP_LEGACY) != 0;
    size_t last = scan->command_len, from = 0;
    MUST(scan->command_len <= scan->head && scan->command_len <= rules->max_command_line && scan->count <= rules->max_headers);
    say_word(trace, "{");
    say_folded(trace, frame, scan->command_len, legacy);
    for (uint32_t i = 0; i < scan->count; i++) {
        struct stomp_header at;
        from = stomp_header_of(scan, frame, i, from, &at);
        MUST(last < at.name && at.name < at.colon && at.colon < at.value && at.value <= at.end && at.end < scan->head);
        MUST(at.end - at.name <= rules->max_header_line);
        MUST(scan->marks & (STOMP_CHANGED | STOMP_CR_ENDS) || (at.name == last + 1 && at.value == at.colon + 1));
        check_marks(scan, rules, frame + at.name, at.colon - at.name, 1);
        check_marks(scan, rules, frame + at.value, at.end - at.value, 0);
        say_word(trace, "}{");
        say_folded(trace, text, stomp_unescape(text, frame + at.name, at.colon - at.name, level), -legacy);
        say_word(trace, "=");
        say(trace, text, stomp_unescape(text, frame + at.value, at.end - at.value, level));
        last = at.end;
    }
    say_word(trace, "}");
    trace->headers += scan->count;
}

/* How many octets a body takes with its NUL, 0 if not all of it is there, or SIZE_MAX with the error in *trace. */
static inline size_t body_size(struct trace *trace, const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *body, size_t len)
{
    int takes = stomp_takes_body(rules, scan->command);
    if (scan->marks & STOMP_HAS_LENGTH) {
        MUST(scan->length <= rules->max_body && (takes || !scan->length));
        if (len <= scan->length)
            return 0;
        trace->error = body[scan->length] ? STOMP_MISSING_NULL : STOMP_OK;
        trace->at = (size_t)scan->length;
        return trace->error ? SIZE_MAX : (size_t)scan->length + 1;
    }
    for (size_t i = 0; i < len; i++) {
        if (body[i] == 0)
            return i + 1;
        if (!takes || i == rules->max_body) {
            trace->error = takes ? STOMP_LIMIT_BODY : STOMP_BODY_NOT_ALLOWED;
            trace->at = i;
            return SIZE_MAX;
        }
    }
    return 0;
}

/* ---- a stream ---- */

/* How a stream is cut: a first piece, then equal ones, or random ones where there is a seed. 0 stands for all the rest. */
struct cuts {
    size_t first, each;
    uint32_t seed;
};

static inline size_t next_piece(struct cuts *cuts)
{
    static const size_t sizes[16] = {1, 1, 1, 2, 3, 5, 8, 13, 31, 63, 64, 65, 127, 200, 1000, 4000};
    size_t first = cuts->first;
    cuts->first = 0;
    if (first || !cuts->seed)
        return first ? first : cuts->each;
    cuts->seed = cuts->seed * 1103515245u + 12345u;
    return sizes[cuts->seed >> 16 & 15];
}

/* Put octets where reading one too many is noticed; they stay until the next call. */
typedef const uint8_t *placer(const uint8_t *data, size_t len);

static inline void read_stream(struct trace *trace, const struct stomp_rules *rules, const uint8_t *data, size_t len, struct cuts cuts,
                               placer *place)
{
    struct stomp_scan scan;
    size_t from = 0, to = 0, size; /* [from, to) is there and unread */
    size_t whole = 0;              /* of the text: what whole frames gave */
    int in_body = 0;
    trace->len = trace->frames = trace->headers = trace->frame_end = trace->at = 0;
    trace->error = STOMP_OK;
    stomp_scan_init(&scan);
    for (;;) {
        const uint8_t *here = place(data + from, to - from);
        int outcome = STOMP_MORE;
        size = 0;
        if (!in_body) {
            outcome = stomp_scan_head(&scan, rules, here, to - from);
            MUST(scan.skip <= to - from && (outcome != STOMP_BEAT || (rules->report_beats && scan.skip)));
            from += scan.skip;
            here += scan.skip;
        }
        if (outcome == STOMP_BEAT) {
            say_word(trace, "~");
            whole = trace->len;
            continue;
        }
        if (outcome == STOMP_BAD) {
            MUST(scan.error != STOMP_OK && scan.error < STOMP_UNENCODABLE && scan.at <= to - from);
            trace->error = scan.error;
            trace->at = from + scan.at;
        } else if (outcome == STOMP_HEAD) {
            MUST(scan.head >= 2 && scan.head <= to - from);
            say_head(trace, &scan, rules, here);
            in_body = 1;
        }
        if (in_body && (size = body_size(trace, &scan, rules, here + scan.head, to - from - scan.head)) == SIZE_MAX) {
            trace->at += from + scan.head;
        } else if (size) {
            say_word(trace, "[");
            say(trace, here + scan.head, size - 1);
            say_word(trace, "]");
            from = trace->frame_end = from + scan.head + size;
            whole = trace->len;
            trace->frames++;
            in_body = 0;
            continue;
        }
        if (trace->error || to == len)
            break;
        size = next_piece(&cuts);
        to = size && size < len - to ? to + size : len;
    }
    trace->len = whole;
    if (trace->error) {
        char words[64];
        snprintf(words, sizeof words, "!%s@%zu", stomp_error_name(trace->error), trace->at);
        say_word(trace, words);
    }
    stomp_scan_free(&scan);
}

static inline int same_trace(const struct trace *a, const struct trace *b)
{
    return a->len == b->len && !memcmp(a->text, b->text, a->len) && a->error == b->error && a->at == b->at;
}

/* ---- columns ---- */

static inline void check_offsets(const struct stomp_buffer *offsets, int64_t items, size_t size)
{
    const int32_t *at = (const int32_t *)(const void *)offsets->data;
    MUST(offsets->len == 4 * ((size_t)items + 1) && at[0] == 0 && (size_t)at[items] == size);
    for (int64_t i = 0; i < items; i++)
        MUST(at[i] <= at[i + 1]);
}

static inline void check_text_column(const struct stomp_column *column, int64_t items)
{
    check_offsets(&column->offsets, items, column->data.len);
    MUST(stomp_bad_utf8(column->data.data, column->data.len) == column->data.len);
}

/* The columns of a stream, whose trace is given, are well-formed and agree with it. */
static inline void check_columns(const struct stomp_columns *columns, const uint8_t *data, size_t len, const struct trace *trace)
{
    const struct stomp_column *texts[] = {&columns->command, &columns->error, &columns->extra[0], &columns->extra[1]};
    MUST(columns->extra_count == 2 && columns->bad == trace->error);
    MUST((uint64_t)columns->rows == trace->frames + (trace->error != STOMP_OK));
    MUST(columns->consumed <= len && columns->consumed >= trace->frame_end);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check_text_column(texts[i], columns->rows);
    check_text_column(&columns->keys, columns->headers);
    check_text_column(&columns->values, columns->headers);
    check_offsets(&columns->body.offsets, columns->rows, columns->body.data.len);
    check_offsets(&columns->entries, columns->rows, (size_t)columns->headers);
    for (int64_t row = 0; row < columns->rows; row++) {
        int64_t offset = ((const int64_t *)(const void *)columns->offset.data)[row];
        int32_t length = ((const int32_t *)(const void *)columns->length.data)[row];
        int bad = trace->error && row == columns->rows - 1;
        MUST(offset >= 0 && length >= 0 && (size_t)offset + (size_t)length <= len);
        MUST(bad || (length >= 3 && data[offset + length - 1] == 0));
        MUST(!bad || (size_t)offset + (size_t)length == trace->at);
    }
}
