/* Columns, and what they are selected by. */
#ifndef STOMP_COLUMNS_H
#define STOMP_COLUMNS_H

#include <string.h>

#include "stomp.h"

/* Frames as columns in Arrow's memory layout, without an object for each frame. It uses no Python and runs without
   the GIL.

   Each row is a frame: the chosen ones of command, headers (a map), body, offset, length and error, then a column for
   each wanted name. Frames that do not meet the conditions are skipped. A malformed frame always makes a row, the
   last one, with its error. Invariant: memory grows with the bytes received, never by a number in them. */

/* The structs of https://arrow.apache.org/docs/format/CDataInterface.html; their layout is fixed. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_NULLABLE 2
struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};
struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};
#endif

struct stomp_columns {
    struct stomp_column command, keys, values, body, error, *extra;
    struct stomp_buffer entries, offset, length; /* int32 map offsets; int64; int32 */
    const struct stomp_name *names;              /* wanted headers, extra_count of them */
    size_t extra_count;
    int wanted; /* enum stomp_column_bit */
    int64_t rows, headers;
    size_t consumed; /* bytes */
    int bad;         /* enum stomp_error of the last row, or STOMP_OK */
};

/* Read frames up to the end of data, an incomplete frame or a malformed one. wanted->names must outlive the columns.
   Returns 0, or -1 without memory. Call stomp_columns_free afterwards in either case. */
int stomp_columns_parse(struct stomp_columns *columns, const struct stomp_rules *rules,
                        const struct stomp_wanted *wanted, const uint8_t *data, size_t len);
void stomp_columns_free(struct stomp_columns *columns);

/* Move the columns into an Arrow array, or describe them. Returns 0, or -1 without memory. */
int stomp_columns_array(struct stomp_columns *columns, struct ArrowArray *out);
int stomp_columns_schema(const struct stomp_columns *columns, struct ArrowSchema *out);

/* Return the public name of an error kind. */
const char *stomp_error_name(int error);

/* ======== wanted headers and conditions ======== */

/* The look-up of wanted headers and conditions in the head of a frame. Texts are as columns show them: unescaped,
   folded to lower or upper case by rules that do so, and UTF-8, with U+FFFD for each invalid byte. */


/* Make room for `need` bytes in all. Returns 0, or -1 without memory. */
static inline int stomp_grow_to(struct stomp_buffer *b, size_t need)
{
    if (b->room && b->room >= need)
        return 0;
    const size_t room = need ? need : 1;
    uint8_t *data = stomp_resize(b->data, room);
    if (!data)
        return -1;
    b->data = data;
    b->room = room;
    return 0;
}

/* The same with double the room, so that growing step by step does not copy everything each time. */
static inline int stomp_grow(struct stomp_buffer *b, size_t need)
{
    if (b->room && b->room >= need)
        return 0;
    return need > SIZE_MAX / 4 ? stomp_grow_to(b, need) : stomp_grow_to(b, 2 * need + 4096);
}

/* How the headers of a frame are converted to the texts of columns. */
enum stomp_text_kind {
    STOMP_TEXT_PLAIN,   /* unchanged, and contiguous */
    STOMP_TEXT_ESCAPED, /* contiguous, with escapes */
    STOMP_TEXT_ANY,     /* perhaps trimmed, folded or not UTF-8 */
};

/* The current frame. */
struct stomp_text {
    const struct stomp_scan *scan;
    const struct stomp_rules *rules;
    const uint8_t *frame;
    enum stomp_text_kind kind;
    struct stomp_buffer scratch;
};

static inline void stomp_text_at(struct stomp_text *text, const uint8_t *frame)
{
    const int marks = text->scan->marks;
    text->frame = frame;
    text->kind = marks & STOMP_ESCAPED ? STOMP_TEXT_ESCAPED : STOMP_TEXT_PLAIN;
    if (text->scan->starts || (marks & STOMP_NON_ASCII && text->rules->flags & STOMP_KEEPS_BAD_UTF8))
        text->kind = STOMP_TEXT_ANY;
}

/* Return the text of *len bytes at `from` as columns show it, valid until the next call. NULL: no memory. */
const uint8_t *stomp_text_made(struct stomp_text *text, size_t from, size_t *len, int is_name);
static inline const uint8_t *stomp_text_of(struct stomp_text *text, size_t from, size_t *len, int is_name)
{
    const uint8_t *octets = text->frame + from;
    if (text->kind == STOMP_TEXT_PLAIN || (text->kind == STOMP_TEXT_ESCAPED && !memchr(octets, '\\', *len)))
        return octets;
    return stomp_text_made(text, from, len, is_name);
}

const uint8_t *stomp_command_text(struct stomp_text *text, size_t *len);

/* A wanted header: its value in the current frame; end is 0 if it is missing. */
struct stomp_slot {
    struct stomp_name name;
    size_t value, end;
    uint32_t next; /* next slot with the same hash, counted from 1; 0: none */
};

/* The wanted headers: a slot for each name, in a hash table. */
struct stomp_finder {
    struct stomp_slot *slots;
    uint32_t count;
    uint32_t *of;  /* the slot of each column's name, then of each condition */
    int escapable; /* some name contains a character that is escaped on the wire */
    uint32_t heads[64];
};

/* Returns 0, or -1 without memory. Call stomp_finder_free afterwards in either case. */
int stomp_finder_init(struct stomp_finder *finder, const struct stomp_wanted *wanted);
void stomp_finder_free(struct stomp_finder *finder);

/* Look up all names in the frame. Returns 0, or -1 without memory. */
int stomp_look_up(struct stomp_finder *finder, struct stomp_text *text);

/* Does a text, as columns show it, meet the condition? */
int stomp_text_holds(const struct stomp_condition *condition, const uint8_t *text, size_t len);

/* Does the frame of the last look-up meet all conditions? Returns 1, 0, or -1 without memory. */
int stomp_where_holds(const struct stomp_wanted *wanted, const struct stomp_finder *finder, struct stomp_text *text);

/* Of the last *count entries in the columns, from `first` on, keep the first of each key. */
int stomp_drop_repeats(struct stomp_column *keys, struct stomp_column *values, size_t first, size_t *count,
                       struct stomp_buffer *scratch);

/* ======== frames that make no row ======== */

/* Frames that make no row, told by one header before their heads are taken apart: usual frames, which are checked as
   the scan does, but whose lines are not kept. Invariant: without it only the speed changes. */

#define STOMP_LONGEST_PAUSE 64 /* frames */

struct stomp_prefilter {
    const struct stomp_condition *by; /* NULL: no condition is fit */
    size_t most;                      /* a head with as many bytes is within all limits of lines */
    uint32_t pause, next_pause;       /* frames without a try: now, and after the next try in vain */
    size_t (*pass)(const struct stomp_prefilter *, struct stomp_scan *, const struct stomp_rules *, const uint8_t *,
                   size_t);
};

void stomp_prefilter_init(struct stomp_prefilter *prefilter, const struct stomp_rules *rules,
                          const struct stomp_wanted *wanted);

/* Pass over the frames at data that are usual and fail the condition. The scan has to be between two frames. Returns
   the bytes of those frames. Where most frames are others, it is tried seldom. */
static inline size_t stomp_prefilter_pass(struct stomp_prefilter *prefilter, struct stomp_scan *scan,
                                          const struct stomp_rules *rules, const uint8_t *data, size_t len)
{
    if (!prefilter->by || (prefilter->pause && prefilter->pause--))
        return 0;
    const size_t passed = prefilter->pass(prefilter, scan, rules, data, len);
    prefilter->next_pause = passed                    ? 0
        : prefilter->next_pause < STOMP_LONGEST_PAUSE ? 2 * prefilter->next_pause + 1
                                                      : STOMP_LONGEST_PAUSE;
    prefilter->pause = prefilter->next_pause;
    return passed;
}

#endif
