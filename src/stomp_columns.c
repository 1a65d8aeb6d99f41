#include "stomp_columns.h"

#include <stdlib.h>
#include <string.h>

#include "stomp_text.h"

#define MOST ((size_t)INT32_MAX) /* octets a call: offsets are 32 bits */

const char *stomp_error_name(int error)
{
    static const char *const names[] = {
        "", "unknown-command", "bad-header-line", "bad-escape", "invalid-utf8", "unexpected-nul", "bad-content-length",
        "missing-null", "body-not-allowed", "truncated", "limit-exceeded", "limit-exceeded", "limit-exceeded",
        "limit-exceeded", "unencodable", "",
    };
    return names[error];
}

/* ---- buffers ---- */

/* Room for `more` octets and 16 to spare, so that short texts can be copied 16 octets at once. */
static inline int reserve(struct stomp_buffer *b, size_t more)
{
    if (b->room - b->len >= more + 16 && b->room)
        return 0;
    size_t room = 2 * (b->len + more) + 4096;
    uint8_t *data = realloc(b->data, room);
    if (!data)
        return -1;
    b->data = data;
    b->room = room;
    return 0;
}

static inline int put(struct stomp_buffer *b, const uint8_t *octets, size_t len, const uint8_t *last)
{
    if (reserve(b, len) < 0)
        return -1;
    if (len <= 16 && octets + 16 <= last)
        memcpy(b->data + b->len, octets, 16);
    else
        memcpy(b->data + b->len, octets, len);
    b->len += len;
    return 0;
}

static inline int put_int32(struct stomp_buffer *b, size_t n)
{
    int32_t as_int = (int32_t)n;
    if (reserve(b, 4) < 0)
        return -1;
    memcpy(b->data + b->len, &as_int, 4);
    b->len += 4;
    return 0;
}

static int put_valid(struct stomp_column *c, int64_t row, int valid)
{
    if (row % 8 == 0) {
        if (reserve(&c->valid, 1) < 0)
            return -1;
        c->valid.data[c->valid.len++] = 0;
    }
    c->valid.data[row / 8] |= (uint8_t)(valid << (row % 8));
    c->nulls += !valid;
    return 0;
}

static inline int end_item(struct stomp_column *c)
{
    return put_int32(&c->offsets, c->data.len);
}

/* ---- text ---- */

struct reading {
    struct stomp_columns *out;
    const struct stomp_rules *rules;
    const struct stomp_scan *scan;
    const uint8_t *frame, *last; /* the frame's first octet; the end of the data */
};

/* Replace what is no UTF-8 from `from` on by U+FFFD, an octet at a time (Arrow's text is always UTF-8). */
static int repair(struct stomp_buffer *b, size_t from)
{
    size_t len = b->len - from, at = stomp_bad_utf8(b->data + from, len);
    if (at == len)
        return 0;
    uint8_t *copy = malloc(len);
    if (!copy)
        return -1;
    memcpy(copy, b->data + from, len);
    b->len = from;
    int failed = 0;
    for (size_t i = 0; i < len && !failed; i = at < len ? at + 1 : len) {
        at = i + stomp_bad_utf8(copy + i, len - i);
        failed = put(b, copy + i, at - i, copy + i) < 0;
        if (!failed && at < len)
            failed = put(b, (const uint8_t *)"\xef\xbf\xbd", 3, NULL) < 0;
    }
    free(copy);
    return failed ? -1 : 0;
}

/* One name or value of the frame, unescaped, at the end of the column's data. */
static inline int put_text(const struct reading *r, struct stomp_column *c, size_t from, size_t to)
{
    const uint8_t *text = r->frame + from;
    size_t len = to - from;
    if (!(r->scan->marks & STOMP_ESCAPED) && !(r->scan->marks & STOMP_NON_ASCII && r->rules->flags & STOMP_KEEPS_BAD_UTF8))
        return put(&c->data, text, len, r->last) < 0 ? -1 : end_item(c);
    size_t before = c->data.len;
    if (reserve(&c->data, len) < 0)
        return -1;
    c->data.len += stomp_unescape(c->data.data + before, text, len, r->scan->marks & STOMP_ESCAPED ? r->rules->escapes : 0);
    if (r->rules->flags & STOMP_KEEPS_BAD_UTF8 && repair(&c->data, before) < 0)
        return -1;
    return end_item(c);
}

static void fold(struct stomp_column *c, size_t from)
{
    for (size_t i = from; i < c->data.len; i++)
        if (c->data.data[i] >= 'A' && c->data.data[i] <= 'Z')
            c->data.data[i] += 32;
}

static int put_command(const struct reading *r)
{
    struct stomp_column *c = &r->out->command;
    const char *known = r->scan->command < STOMP_COMMANDS ? stomp_command_names[r->scan->command] : NULL;
    size_t before = c->data.len;
    if (known)
        return put(&c->data, (const uint8_t *)known, strlen(known), NULL) < 0 ? -1 : end_item(c);
    if (put(&c->data, r->frame, r->scan->command_len, r->last) < 0)
        return -1;
    if (r->rules->flags & STOMP_LEGACY)
        for (size_t i = before; i < c->data.len; i++)
            if (c->data.data[i] >= 'a' && c->data.data[i] <= 'z')
                c->data.data[i] -= 32;
    return repair(&c->data, before) < 0 ? -1 : end_item(c);
}

/* The first header called by each wanted name, found among the entries just written from `first` on. */
static int put_wanted(struct stomp_columns *out, int64_t first)
{
    const int32_t *keys = (const int32_t *)(const void *)out->keys.offsets.data;
    const int32_t *values = (const int32_t *)(const void *)out->values.offsets.data;
    for (size_t n = 0; n < out->extra_count; n++) {
        const struct stomp_name *want = &out->names[n];
        struct stomp_column *c = &out->extra[n];
        int64_t i = first;
        while (i < out->headers
               && ((size_t)(keys[i + 1] - keys[i]) != want->len || memcmp(out->keys.data.data + keys[i], want->octets, want->len)))
            i++;
        int found = i < out->headers;
        if (found && put(&c->data, out->values.data.data + values[i], (size_t)(values[i + 1] - values[i]), NULL) < 0)
            return -1;
        if (end_item(c) < 0 || put_valid(c, out->rows, found) < 0)
            return -1;
    }
    return 0;
}

static int put_headers(const struct reading *r)
{
    struct stomp_columns *out = r->out;
    int64_t first = out->headers;
    struct stomp_header line;
    size_t from = 0;
    for (uint32_t i = 0; i < r->scan->count; i++) {
        from = stomp_header_of(r->scan, r->frame, i, from, &line);
        size_t before = out->keys.data.len;
        if (put_text(r, &out->keys, line.name, line.colon) < 0 || put_text(r, &out->values, line.value, line.end) < 0)
            return -1;
        if (r->rules->flags & STOMP_LEGACY)
            fold(&out->keys, before);
    }
    out->headers += r->scan->count;
    return put_int32(&out->entries, (size_t)out->headers) < 0 ? -1 : put_wanted(out, first);
}

/* What every row has: where it stands, and what is wrong with it. */
static int put_place(struct stomp_columns *out, size_t offset, size_t length, int error)
{
    const char *name = stomp_error_name(error);
    int64_t at = (int64_t)offset;
    if (reserve(&out->offset, 8) < 0 || put_int32(&out->length, length) < 0)
        return -1;
    memcpy(out->offset.data + out->offset.len, &at, 8);
    out->offset.len += 8;
    if (put(&out->error.data, (const uint8_t *)name, strlen(name), NULL) < 0 || end_item(&out->error) < 0
        || put_valid(&out->error, out->rows, error != STOMP_OK) < 0)
        return -1;
    out->rows++;
    return 0;
}

static int put_bad(struct stomp_columns *out, size_t offset, size_t length, int error)
{
    out->bad = error;
    out->consumed = offset;
    if (end_item(&out->command) < 0 || put_int32(&out->entries, (size_t)out->headers) < 0 || end_item(&out->body) < 0)
        return -1;
    return put_wanted(out, out->headers) < 0 ? -1 : put_place(out, offset, length, error);
}

/* ---- frames ---- */

/* The body at `body` of len octets that are there. *used: its octets and the NUL. An enum stomp_error, or -1: not all there. */
static int find_body(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *body, size_t len, size_t *size)
{
    if (scan->marks & STOMP_HAS_LENGTH) {
        if (len <= scan->length)
            return -1;
        *size = (size_t)scan->length;
        return body[*size] ? STOMP_MISSING_NULL : STOMP_OK;
    }
    size_t most = len > rules->max_body ? (size_t)rules->max_body + 1 : len;
    if (len && body[0] && !stomp_takes_body(rules, scan->command)) {
        *size = 0;
        return STOMP_BODY_NOT_ALLOWED;
    }
    const uint8_t *nul = most ? memchr(body, 0, most) : NULL;
    *size = nul ? (size_t)(nul - body) : (size_t)rules->max_body;
    return nul ? STOMP_OK : len > rules->max_body ? STOMP_LIMIT_BODY : -1;
}

static int start(struct stomp_columns *out)
{
    struct stomp_column *all[] = {&out->command, &out->keys, &out->values, &out->body, &out->error};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (put_int32(&all[i]->offsets, 0) < 0 || reserve(&all[i]->data, 0) < 0)
            return -1;
    for (size_t i = 0; i < out->extra_count; i++)
        if (put_int32(&out->extra[i].offsets, 0) < 0 || reserve(&out->extra[i].data, 0) < 0 || reserve(&out->extra[i].valid, 0) < 0)
            return -1;
    return put_int32(&out->entries, 0) < 0 || reserve(&out->offset, 0) < 0 || reserve(&out->length, 0) < 0
            || reserve(&out->error.valid, 0) < 0
        ? -1
        : 0;
}

static int read_frames(struct reading *r, struct stomp_scan *scan, const uint8_t *data, size_t len)
{
    struct stomp_columns *out = r->out;
    size_t at = 0, size;
    for (;;) {
        int outcome = stomp_scan_head(scan, r->rules, data + at, len - at);
        at += scan->skip;
        if (outcome == STOMP_BAD)
            return scan->error == STOMP_NO_MEMORY ? -1 : put_bad(out, at, scan->at, scan->error);
        out->consumed = at;
        if (outcome != STOMP_HEAD)
            return 0;
        const uint8_t *body = data + at + scan->head;
        int error = find_body(scan, r->rules, body, len - at - scan->head, &size);
        if (error < 0)
            return 0;
        if (error)
            return put_bad(out, at, scan->head + size, error);
        r->frame = data + at;
        if (put_command(r) < 0 || put_headers(r) < 0 || put(&out->body.data, body, size, r->last) < 0 || end_item(&out->body) < 0
            || put_place(out, at, scan->head + size + 1, STOMP_OK) < 0)
            return -1;
        at += scan->head + size + 1;
    }
}

int stomp_columns_parse(struct stomp_columns *columns, const struct stomp_rules *rules, const uint8_t *data, size_t len,
                        const struct stomp_name *names, size_t names_count)
{
    struct stomp_scan scan;
    struct reading r = {columns, rules, &scan, NULL, NULL};
    size_t most = rules->flags & STOMP_KEEPS_BAD_UTF8 ? MOST / 3 : MOST; /* U+FFFD takes three octets */
    memset(columns, 0, sizeof *columns);
    columns->names = names;
    columns->extra = calloc(names_count + 1, sizeof *columns->extra);
    if (!columns->extra)
        return -1;
    columns->extra_count = names_count;
    if (start(columns) < 0)
        return -1;
    if (len > most)
        len = most;
    r.last = data + len;
    stomp_scan_init(&scan);
    int failed = read_frames(&r, &scan, data, len);
    stomp_scan_free(&scan);
    return failed;
}

static void free_column(struct stomp_column *c)
{
    free(c->offsets.data);
    free(c->data.data);
    free(c->valid.data);
    memset(c, 0, sizeof *c);
}

void stomp_columns_free(struct stomp_columns *columns)
{
    free_column(&columns->command);
    free_column(&columns->keys);
    free_column(&columns->values);
    free_column(&columns->body);
    free_column(&columns->error);
    for (size_t i = 0; i < columns->extra_count; i++)
        free_column(&columns->extra[i]);
    free(columns->extra);
    free(columns->entries.data);
    free(columns->offset.data);
    free(columns->length.data);
    memset(columns, 0, sizeof *columns);
}
