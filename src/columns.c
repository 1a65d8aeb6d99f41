/* Columns: rows, and their hand-over to Arrow. */
#include "columns.h"

#include <string.h>

#include "simd.h"
#include "text.h"

#define MOST ((size_t)INT32_MAX) /* bytes per call: offsets have 32 bits */
#define ROWS 256                 /* initial room for rows */

const char *stomp_error_name(int error)
{
    static const char *const names[] = {
        "", "unknown-command", "bad-header-line", "bad-escape", "invalid-utf8", "unexpected-nul", "bad-content-length",
        "missing-null", "body-not-allowed", "truncated", "limit-exceeded", "limit-exceeded", "limit-exceeded",
        "limit-exceeded", "unencodable", "",
    };
    return names[error];
}

struct reading {
    struct stomp_columns *out;
    const struct stomp_rules *rules;
    const struct stomp_wanted *wanted;
    struct stomp_text text; /* of the current frame */
    struct stomp_finder finder;
    struct stomp_prefilter prefilter;
    size_t len; /* of the data */
    int64_t rows_room;
};

/* ---- room ---- */

/* Make room for more rows. New offsets, numbers and bits are 0. */
static int more_rows(struct reading *r, size_t room)
{
    struct stomp_columns *out = r->out;
    const size_t old = (size_t)r->rows_room;
    struct {
        struct stomp_buffer *buffer;
        size_t size;
        int bit;
    } fixed[] = {
        {&out->command.offsets, 4, STOMP_COLUMN_COMMAND}, {&out->entries, 4, STOMP_COLUMN_HEADERS},
        {&out->body.offsets, 4, STOMP_COLUMN_BODY},       {&out->offset, 8, STOMP_COLUMN_OFFSET},
        {&out->length, 4, STOMP_COLUMN_LENGTH},
    };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (out->wanted & fixed[i].bit && stomp_grow(fixed[i].buffer, fixed[i].size * (room + 1)) < 0)
            return -1;
    for (size_t i = 0; i < out->extra_count; i++) {
        struct stomp_column *c = &out->extra[i];
        if (stomp_grow(&c->offsets, 4 * (room + 1)) < 0 || stomp_grow(&c->valid, room / 8) < 0)
            return -1;
        memset(c->valid.data + old / 8, 0, (room - old) / 8);
    }
    r->rows_room = (int64_t)room;
    return 0;
}

/* There are more rows than expected after `done` bytes of the data. Make room for the rest at the rate so far, since
   buffers that grow step by step are copied again and again. */
static int expect_more(struct reading *r, size_t done)
{
    struct stomp_columns *out = r->out;
    const double times = 1.1 * (double)r->len / (double)done;
    const size_t rows = (size_t)((double)out->rows * (times > 2 ? times : 2));
    struct stomp_buffer *texts[] = {&out->command.data, &out->keys.data,   &out->keys.offsets,
                                    &out->values.data,  &out->values.offsets, &out->body.data};
    out->keys.offsets.len = out->values.offsets.len = 4 * ((size_t)out->headers + 1);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i]->len && stomp_grow_to(texts[i], (size_t)((double)texts[i]->len * times)) < 0)
            return -1;
    for (size_t i = 0; i < out->extra_count; i++)
        if (stomp_grow_to(&out->extra[i].data, (size_t)((double)out->extra[i].data.len * times)) < 0)
            return -1;
    return more_rows(r, (rows | 7) + 1);
}

static inline int32_t *int32s(const struct stomp_buffer *b)
{
    return (int32_t *)(void *)b->data;
}

static inline int64_t *int64s(const struct stomp_buffer *b)
{
    return (int64_t *)(void *)b->data;
}

/* Arrow needs each buffer, with its first offset, even if there are no rows. */
static int start(struct reading *r)
{
    struct stomp_columns *out = r->out;
    struct stomp_column *texts[] = {&out->command, &out->keys, &out->values, &out->body};
    if (more_rows(r, ROWS) < 0)
        return -1;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (stomp_grow(&texts[i]->data, 0) < 0 || stomp_grow(&texts[i]->offsets, 4) < 0)
            return -1;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        int32s(&texts[i]->offsets)[0] = 0;
    for (size_t i = 0; i < out->extra_count; i++) {
        if (stomp_grow(&out->extra[i].data, 0) < 0)
            return -1;
        int32s(&out->extra[i].offsets)[0] = 0;
    }
    if (out->wanted & STOMP_COLUMN_HEADERS)
        int32s(&out->entries)[0] = 0;
    return 0;
}

/* ---- rows ---- */

/* End the row with the present contents of the columns. */
static int end_row(struct reading *r, size_t offset, size_t length)
{
    struct stomp_columns *out = r->out;
    int64_t row = out->rows;
    if (out->wanted & STOMP_COLUMN_COMMAND)
        int32s(&out->command.offsets)[row + 1] = (int32_t)out->command.data.len;
    if (out->wanted & STOMP_COLUMN_HEADERS)
        int32s(&out->entries)[row + 1] = (int32_t)out->headers;
    if (out->wanted & STOMP_COLUMN_BODY)
        int32s(&out->body.offsets)[row + 1] = (int32_t)out->body.data.len;
    if (out->wanted & STOMP_COLUMN_OFFSET)
        int64s(&out->offset)[row] = (int64_t)offset;
    if (out->wanted & STOMP_COLUMN_LENGTH)
        int32s(&out->length)[row] = (int32_t)length;
    for (size_t i = 0; i < out->extra_count; i++)
        int32s(&out->extra[i].offsets)[row + 1] = (int32_t)out->extra[i].data.len;
    return ++out->rows == r->rows_room ? expect_more(r, offset + length) : 0;
}

static int put_bad(struct reading *r, size_t offset, size_t length, int error)
{
    r->out->bad = error;
    r->out->consumed = offset;
    for (size_t i = 0; i < r->out->extra_count; i++)
        r->out->extra[i].nulls++;
    return end_row(r, offset, length);
}

static inline int put(struct stomp_buffer *b, const uint8_t *octets, size_t len)
{
    if (stomp_grow(b, b->len + len) < 0)
        return -1;
    memcpy(b->data + b->len, octets, len);
    b->len += len;
    return 0;
}

/* Append a name or value of the frame to the data of a column. */
static inline int put_text(struct reading *r, struct stomp_column *c, size_t from, size_t to, int is_name)
{
    size_t len = to - from;
    const uint8_t *text = stomp_text_of(&r->text, from, &len, is_name);
    return text ? put(&c->data, text, len) : -1;
}

static int put_names(struct reading *r)
{
    int64_t row = r->out->rows;
    for (size_t i = 0; i < r->out->extra_count; i++) {
        struct stomp_column *c = &r->out->extra[i];
        const struct stomp_slot *found = &r->finder.slots[r->finder.of[i]];
        if (!found->end) {
            c->nulls++;
        } else {
            c->valid.data[row / 8] |= (uint8_t)(1 << (row % 8));
            if (put_text(r, c, found->value, found->end, 0) < 0)
                return -1;
        }
    }
    return 0;
}

/* Returns the number of bytes written, at most len. */
static STOMP_INLINE size_t put_unescaped(uint8_t *to, const uint8_t *text, size_t len, int escapes)
{
    if (escapes && memchr(text, '\\', len))
        return stomp_unescape(to, text, len, escapes);
    memcpy(to, text, len);
    return len;
}

/* Append the entries of a frame with contiguous lines. There is room for all. */
static STOMP_INLINE void put_regular_entries(struct reading *r, int escapes)
{
    struct stomp_columns *out = r->out;
    const struct stomp_line *line = r->text.scan->lines, *last = line + r->text.scan->count;
    const uint8_t *frame = r->text.frame;
    const int cr = r->text.scan->marks & STOMP_CR_ENDS;
    uint8_t *keys = out->keys.data.data, *values = out->values.data.data;
    uint8_t *key = keys + out->keys.data.len, *value = values + out->values.data.len;
    int32_t *key_end = int32s(&out->keys.offsets) + out->headers,
            *value_end = int32s(&out->values.offsets) + out->headers;
    size_t name = r->text.scan->first;
    for (; line != last; line++) {
        size_t colon = line->colon, end = line->end;
        key += put_unescaped(key, frame + name, colon - name, escapes);
        *++key_end = (int32_t)(key - keys);
        value += put_unescaped(value, frame + colon + 1, end - colon - 1, escapes);
        *++value_end = (int32_t)(value - values);
        name = end + 1 + (cr && frame[end] == '\r');
    }
    out->keys.data.len = (size_t)(key - keys);
    out->values.data.len = (size_t)(value - values);
}

static int put_any_entries(struct reading *r)
{
    struct stomp_columns *out = r->out;
    int32_t *key_ends = int32s(&out->keys.offsets) + out->headers + 1;
    int32_t *value_ends = int32s(&out->values.offsets) + out->headers + 1;
    size_t from = 0;
    for (uint32_t i = 0; i < r->text.scan->count; i++) {
        struct stomp_header line;
        from = stomp_header_of(r->text.scan, r->text.frame, i, from, &line);
        if (put_text(r, &out->keys, line.name, line.colon, 1) < 0
            || put_text(r, &out->values, line.value, line.end, 0) < 0)
            return -1;
        key_ends[i] = (int32_t)out->keys.data.len;
        value_ends[i] = (int32_t)out->values.data.len;
    }
    return 0;
}

static int put_headers(struct reading *r)
{
    struct stomp_columns *out = r->out;
    size_t count = r->text.scan->count, head = r->text.scan->head, before = (size_t)out->headers;
    if (stomp_grow(&out->keys.offsets, 4 * (before + count + 1)) < 0
        || stomp_grow(&out->values.offsets, 4 * (before + count + 1)) < 0
        || stomp_grow(&out->keys.data, out->keys.data.len + head) < 0
        || stomp_grow(&out->values.data, out->values.data.len + head) < 0)
        return -1;
    if (r->text.kind == STOMP_TEXT_PLAIN)
        put_regular_entries(r, 0);
    else if (r->text.kind == STOMP_TEXT_ESCAPED)
        put_regular_entries(r, r->rules->escapes);
    else if (put_any_entries(r) < 0)
        return -1;
    if (!r->wanted->repeats && count > 1
        && stomp_drop_repeats(&out->keys, &out->values, before, &count, &r->text.scratch) < 0)
        return -1;
    out->headers += (int64_t)count;
    return 0;
}

/* Append the row of the current frame if it meets the conditions. */
static int put_frame(struct reading *r, size_t offset, const uint8_t *body, size_t size)
{
    struct stomp_columns *out = r->out;
    size_t length = r->text.scan->head + size + 1;
    if (r->finder.count && stomp_look_up(&r->finder, &r->text) < 0)
        return -1;
    if (r->wanted->where_count) {
        int holds = stomp_where_holds(r->wanted, &r->finder, &r->text);
        if (holds <= 0)
            return holds;
    }
    if (out->wanted & STOMP_COLUMN_COMMAND) {
        size_t len;
        const uint8_t *text = stomp_command_text(&r->text, &len);
        if (!text || put(&out->command.data, text, len) < 0)
            return -1;
    }
    if (out->wanted & STOMP_COLUMN_HEADERS && put_headers(r) < 0)
        return -1;
    if (out->wanted & STOMP_COLUMN_BODY && put(&out->body.data, body, size) < 0)
        return -1;
    return put_names(r) < 0 ? -1 : end_row(r, offset, length);
}

/* ---- frames ---- */

static int read_frames(struct reading *r, struct stomp_scan *scan, const uint8_t *data, size_t len)
{
    struct stomp_columns *out = r->out;
    size_t at = 0, size;
    for (int mended = 0;;) {
        if (mended && at < len && !stomp_may_follow(r->rules, data[at]))
            return put_bad(r, at, 0, STOMP_MISSING_NULL);
        at += stomp_prefilter_pass(&r->prefilter, scan, r->rules, data + at, len - at);
        int outcome = stomp_scan_head(scan, r->rules, data + at, len - at);
        at += scan->skip;
        if (outcome == STOMP_BAD)
            return scan->error == STOMP_NO_MEMORY ? -1 : put_bad(r, at, scan->at, scan->error);
        out->consumed = at;
        if (outcome != STOMP_HEAD)
            return 0;
        const uint8_t *body = data + at + scan->head;
        int error = stomp_find_body(scan, r->rules, body, len - at - scan->head, &size);
        mended = error && r->rules->flags & (STOMP_MENDS_LENGTH | STOMP_SKIPS_IDLE_LENGTH)
            && (error < 0 || error == STOMP_MISSING_NULL);
        if (mended)
            error = stomp_mend_body(scan, r->rules, body, len - at - scan->head, &size);
        if (error < 0)
            return 0;
        if (error)
            return put_bad(r, at, scan->head + size, error);
        mended = mended && (size != scan->idle || !(scan->marks & STOMP_IDLE));
        stomp_text_at(&r->text, data + at);
        if (put_frame(r, at, body, size) < 0)
            return -1;
        at += scan->head + size + 1;
    }
}

/* Set the sizes of the buffers that were filled by index. */
static void set_lengths(struct stomp_columns *out)
{
    size_t rows = (size_t)out->rows;
    out->command.offsets.len = out->entries.len = out->body.offsets.len = 4 * (rows + 1);
    out->offset.len = 8 * rows;
    out->length.len = 4 * rows;
    out->keys.offsets.len = out->values.offsets.len = 4 * ((size_t)out->headers + 1);
    for (size_t i = 0; i < out->extra_count; i++) {
        out->extra[i].offsets.len = 4 * (rows + 1);
        out->extra[i].valid.len = (rows + 7) / 8;
    }
}

/* Only the last row can have an error, so this column is made at the end. */
static int put_errors(struct stomp_columns *out)
{
    const char *name = stomp_error_name(out->bad);
    size_t rows = (size_t)out->rows;
    struct stomp_column *c = &out->error;
    if (!(out->wanted & STOMP_COLUMN_ERROR))
        return 0;
    c->offsets.data = stomp_alloc_zeroed(rows + 1, 4);
    c->valid.data = stomp_alloc_zeroed(rows / 8 + 1, 1);
    if (!c->offsets.data || !c->valid.data || stomp_grow(&c->data, strlen(name)) < 0)
        return -1;
    c->offsets.len = 4 * (rows + 1);
    c->valid.len = (rows + 7) / 8;
    c->data.len = strlen(name);
    memcpy(c->data.data, name, c->data.len);
    c->nulls = out->rows;
    if (out->bad) {
        int32s(&c->offsets)[rows] = (int32_t)c->data.len;
        c->valid.data[(rows - 1) / 8] |= (uint8_t)(1 << ((rows - 1) % 8));
        c->nulls--;
    }
    return 0;
}

int stomp_columns_parse(struct stomp_columns *columns, const struct stomp_rules *rules,
                        const struct stomp_wanted *wanted, const uint8_t *data, size_t len)
{
    struct stomp_scan scan;
    size_t most = rules->flags & STOMP_KEEPS_BAD_UTF8 ? MOST / 3 : MOST; /* U+FFFD has three bytes in UTF-8 */
    struct reading r = {.out = columns, .rules = rules, .wanted = wanted, .len = len < most ? len : most};
    memset(columns, 0, sizeof *columns);
    columns->names = wanted->names;
    columns->wanted = wanted->columns;
    columns->extra = stomp_alloc_zeroed(wanted->names_count + 1, sizeof *columns->extra);
    columns->extra_count = columns->extra ? wanted->names_count : 0;
    stomp_scan_init(&scan);
    stomp_prefilter_init(&r.prefilter, rules, wanted);
    r.text.scan = &scan;
    r.text.rules = rules;
    int failed = stomp_finder_init(&r.finder, wanted) < 0 || !columns->extra || start(&r) < 0;
    if (!failed) {
        failed = read_frames(&r, &scan, data, r.len) < 0 || put_errors(columns) < 0;
        set_lengths(columns);
    }
    stomp_finder_free(&r.finder);
    stomp_release(r.text.scratch.data);
    stomp_scan_free(&scan);
    return failed ? -1 : 0;
}

static void free_column(struct stomp_column *c)
{
    stomp_release(c->offsets.data);
    stomp_release(c->data.data);
    stomp_release(c->valid.data);
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
    stomp_release(columns->extra);
    stomp_release(columns->entries.data);
    stomp_release(columns->offset.data);
    stomp_release(columns->length.data);
    memset(columns, 0, sizeof *columns);
}

/* ======== Arrow ======== */

/* The export of columns through the Arrow C data interface: each node owns its buffers and children. */

#define BUFFERS 3

static void release_array(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release)
            array->children[i]->release(array->children[i]);
        stomp_release(array->children[i]);
    }
    for (int64_t i = 0; array->buffers && i < array->n_buffers; i++)
        stomp_release((void *)(uintptr_t)array->buffers[i]);
    stomp_release(array->children);
    stomp_release((void *)array->buffers);
    array->release = NULL;
}

/* Make a node with room for its children, which are empty and marked as released. */
static int make_array(struct ArrowArray *array, int64_t length, int64_t buffers, int64_t children)
{
    memset(array, 0, sizeof *array);
    array->length = length;
    array->n_buffers = buffers;
    array->buffers = stomp_alloc_zeroed(BUFFERS, sizeof *array->buffers);
    array->children = stomp_alloc_zeroed((size_t)children + 1, sizeof *array->children);
    array->release = release_array;
    if (!array->buffers || !array->children)
        return -1;
    for (; array->n_children < children; array->n_children++)
        if (!(array->children[array->n_children] = stomp_alloc_zeroed(1, sizeof **array->children)))
            return -1;
    return 0;
}

/* ---- the nodes, without buffers: everything that can fail ---- */

static int make_map(struct ArrowArray *array, const struct stomp_columns *c)
{
    if (make_array(array, c->rows, 2, 1) < 0 || make_array(array->children[0], c->headers, 1, 2) < 0)
        return -1;
    struct ArrowArray **entry = array->children[0]->children;
    return make_array(entry[0], c->headers, 3, 0) < 0 ? -1 : make_array(entry[1], c->headers, 3, 0);
}

static int64_t columns_of(const struct stomp_columns *c)
{
    int64_t count = (int64_t)c->extra_count;
    for (int bit = 1; bit < STOMP_COLUMNS; bit <<= 1)
        count += (c->wanted & bit) != 0;
    return count;
}

static int make_column(struct ArrowArray *array, const struct stomp_columns *c, int bit)
{
    switch (bit) {
    case STOMP_COLUMN_HEADERS: return make_map(array, c);
    case STOMP_COLUMN_OFFSET:
    case STOMP_COLUMN_LENGTH: return make_array(array, c->rows, 2, 0);
    default: return make_array(array, c->rows, 3, 0);
    }
}

static int make_columns(struct ArrowArray *out, const struct stomp_columns *c)
{
    int64_t at = 0;
    if (make_array(out, c->rows, 1, columns_of(c)) < 0)
        return -1;
    for (int bit = 1; bit < STOMP_COLUMNS; bit <<= 1)
        if (c->wanted & bit && make_column(out->children[at++], c, bit) < 0)
            return -1;
    for (; at < out->n_children; at++)
        if (make_array(out->children[at], c->rows, 3, 0) < 0)
            return -1;
    return 0;
}

/* ---- the buffers, which move into the nodes ---- */

static const void *take(struct stomp_buffer *buffer)
{
    const void *data = buffer->data;
    buffer->data = NULL;
    return data;
}

static void move_text(struct ArrowArray *array, struct stomp_column *c)
{
    array->null_count = c->nulls;
    array->buffers[0] = take(&c->valid);
    array->buffers[1] = take(&c->offsets);
    array->buffers[2] = take(&c->data);
}

static void move_map(struct ArrowArray *array, struct stomp_columns *c)
{
    struct ArrowArray **entry = array->children[0]->children;
    array->buffers[1] = take(&c->entries);
    move_text(entry[0], &c->keys);
    move_text(entry[1], &c->values);
}

static void move_column(struct ArrowArray *array, struct stomp_columns *c, int bit)
{
    switch (bit) {
    case STOMP_COLUMN_COMMAND: move_text(array, &c->command); break;
    case STOMP_COLUMN_HEADERS: move_map(array, c); break;
    case STOMP_COLUMN_BODY: move_text(array, &c->body); break;
    case STOMP_COLUMN_OFFSET: array->buffers[1] = take(&c->offset); break;
    case STOMP_COLUMN_LENGTH: array->buffers[1] = take(&c->length); break;
    default: move_text(array, &c->error);
    }
}

int stomp_columns_array(struct stomp_columns *c, struct ArrowArray *out)
{
    int64_t at = 0;
    if (make_columns(out, c) < 0) {
        release_array(out);
        return -1;
    }
    for (int bit = 1; bit < STOMP_COLUMNS; bit <<= 1)
        if (c->wanted & bit)
            move_column(out->children[at++], c, bit);
    for (size_t i = 0; i < c->extra_count; i++)
        move_text(out->children[at++], &c->extra[i]);
    return 0;
}

/* ---- the schema ---- */

static void release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->release)
            schema->children[i]->release(schema->children[i]);
        stomp_release(schema->children[i]);
    }
    stomp_release(schema->children);
    stomp_release(schema->private_data); /* the name */
    schema->release = NULL;
}

static int make_schema(struct ArrowSchema *schema, const char *format, const char *name, size_t len, int64_t flags,
                       int64_t children)
{
    memset(schema, 0, sizeof *schema);
    char *copy = stomp_alloc(len + 1);
    schema->private_data = copy;
    schema->children = stomp_alloc_zeroed((size_t)children + 1, sizeof *schema->children);
    schema->release = release_schema;
    if (!copy || !schema->children)
        return -1;
    memcpy(copy, name, len);
    copy[len] = 0;
    schema->name = copy;
    schema->format = format;
    schema->flags = flags;
    for (; schema->n_children < children; schema->n_children++)
        if (!(schema->children[schema->n_children] = stomp_alloc_zeroed(1, sizeof **schema->children)))
            return -1;
    return 0;
}

static int leaf(struct ArrowSchema *schema, const char *format, const char *name, int64_t flags)
{
    return make_schema(schema, format, name, strlen(name), flags, 0);
}

static int map_schema(struct ArrowSchema *map)
{
    if (make_schema(map, "+m", "headers", 7, 0, 1) < 0 || make_schema(map->children[0], "+s", "entries", 7, 0, 2) < 0)
        return -1;
    struct ArrowSchema **entry = map->children[0]->children;
    return leaf(entry[0], "u", "key", 0) < 0 ? -1 : leaf(entry[1], "u", "value", ARROW_FLAG_NULLABLE);
}

static int column_schema(struct ArrowSchema *schema, int bit)
{
    switch (bit) {
    case STOMP_COLUMN_COMMAND: return leaf(schema, "u", "command", 0);
    case STOMP_COLUMN_HEADERS: return map_schema(schema);
    case STOMP_COLUMN_BODY: return leaf(schema, "z", "body", 0);
    case STOMP_COLUMN_OFFSET: return leaf(schema, "l", "offset", 0);
    case STOMP_COLUMN_LENGTH: return leaf(schema, "i", "length", 0);
    default: return leaf(schema, "u", "error", ARROW_FLAG_NULLABLE);
    }
}

int stomp_columns_schema(const struct stomp_columns *c, struct ArrowSchema *out)
{
    int64_t at = 0;
    if (make_schema(out, "+s", "", 0, 0, columns_of(c)) < 0)
        goto fail;
    for (int bit = 1; bit < STOMP_COLUMNS; bit <<= 1)
        if (c->wanted & bit && column_schema(out->children[at++], bit) < 0)
            goto fail;
    for (size_t i = 0; i < c->extra_count; i++)
        if (make_schema(out->children[at++], "u", (const char *)c->names[i].octets, c->names[i].len,
                        ARROW_FLAG_NULLABLE, 0)
            < 0)
            goto fail;
    return 0;
fail:
    release_schema(out);
    return -1;
}
