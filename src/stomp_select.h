/* Which frames and headers are wanted, looked up in the head of one frame. Texts are as columns show them: unescaped, in
   lower or upper case where the rules fold them, and UTF-8, with U+FFFD for each octet that is none. No Python. */
#ifndef STOMP_SELECT_H
#define STOMP_SELECT_H

#include <string.h>

#include "stomp_memory.h"
#include "stomp_scan.h"
#include "stomp_wanted.h"

#define STOMP_SPARE 32 /* octets that every buffer has behind what it must hold, so that short texts are copied at once */

/* Room for `need` octets in all. 0, or -1 for want of memory. */
static inline int stomp_grow_to(struct stomp_buffer *b, size_t need)
{
    if (b->room && b->room - STOMP_SPARE >= need)
        return 0;
    uint8_t *data = stomp_resize(b->data, need + STOMP_SPARE);
    if (!data)
        return -1;
    b->data = data;
    b->room = need + STOMP_SPARE;
    return 0;
}

/* The same, and as much again, so that growing step by step does not copy all each time. */
static inline int stomp_grow(struct stomp_buffer *b, size_t need)
{
    if (b->room && b->room - STOMP_SPARE >= need)
        return 0;
    return stomp_grow_to(b, 2 * need + 4096);
}

/* Copy len octets to where there are STOMP_SPARE to spare; `roomy`: there are as many readable ones behind the first. */
static inline void stomp_copy(uint8_t *to, const uint8_t *octets, size_t len, int roomy)
{
    if (roomy && len <= STOMP_SPARE)
        memcpy(to, octets, STOMP_SPARE);
    else
        memcpy(to, octets, len);
}

/* How the headers of a frame become what is shown. */
enum stomp_text_kind {
    STOMP_TEXT_PLAIN,   /* they are shown as they came, and stand one behind the other */
    STOMP_TEXT_ESCAPED, /* the same, but for escapes */
    STOMP_TEXT_ANY,     /* they may be trimmed, folded or no UTF-8 */
};

/* The frame at hand. */
struct stomp_text {
    const struct stomp_scan *scan;
    const struct stomp_rules *rules;
    const uint8_t *frame;
    enum stomp_text_kind kind;
    int roomy; /* there are STOMP_SPARE octets of data behind its head */
    struct stomp_buffer scratch;
};

static inline void stomp_text_at(struct stomp_text *text, const uint8_t *frame, const uint8_t *last)
{
    const int marks = text->scan->marks;
    text->frame = frame;
    text->kind = marks & STOMP_ESCAPED ? STOMP_TEXT_ESCAPED : STOMP_TEXT_PLAIN;
    if (text->scan->starts || (marks & STOMP_NON_ASCII && text->rules->flags & STOMP_KEEPS_BAD_UTF8))
        text->kind = STOMP_TEXT_ANY;
    text->roomy = (size_t)(last - frame) - text->scan->head >= STOMP_SPARE;
}

/* The text of *len octets at `from`, as it is shown; good until the next call. NULL for want of memory. */
const uint8_t *stomp_text_made(struct stomp_text *text, size_t from, size_t *len, int is_name);
static inline const uint8_t *stomp_text_of(struct stomp_text *text, size_t from, size_t *len, int is_name)
{
    const uint8_t *octets = text->frame + from;
    if (text->kind == STOMP_TEXT_PLAIN || (text->kind == STOMP_TEXT_ESCAPED && !memchr(octets, '\\', *len)))
        return octets;
    return stomp_text_made(text, from, len, is_name);
}

const uint8_t *stomp_command_text(struct stomp_text *text, size_t *len);

/* A wanted header: its value in the frame at hand; end is 0 where there is none. */
struct stomp_slot {
    struct stomp_name name;
    size_t value, end;
    uint32_t next; /* slot with the same hash, counted from 1; 0: no more */
};

/* The wanted headers: a slot for each name, found by hash. */
struct stomp_finder {
    struct stomp_slot *slots;
    uint32_t count;
    uint32_t *of;  /* slot of each column's name, then of each condition */
    int escapable; /* some name holds what is escaped on the wire; all others are never written with escapes */
    uint32_t heads[64];
};

/* 0, or -1 for want of memory. Call stomp_finder_free afterwards, in any case. */
int stomp_finder_init(struct stomp_finder *finder, const struct stomp_wanted *wanted);
void stomp_finder_free(struct stomp_finder *finder);

/* Look up all of them in the frame. 0, or -1 for want of memory. */
int stomp_look_up(struct stomp_finder *finder, struct stomp_text *text);

/* Do all conditions hold for the frame that was looked up? 1, 0, or -1 for want of memory. */
int stomp_where_holds(const struct stomp_wanted *wanted, const struct stomp_finder *finder, struct stomp_text *text);

/* Of the *count entries from `first` on, the last in the columns: keep only the first of each key. */
int stomp_drop_repeats(struct stomp_column *keys, struct stomp_column *values, size_t first, size_t *count, struct stomp_buffer *scratch);

#endif
