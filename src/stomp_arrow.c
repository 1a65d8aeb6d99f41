/* The export of columns through the Arrow C data interface: each node owns its buffers and children. */
#include <string.h>

#include "stomp_columns.h"
#include "stomp_memory.h"

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

static int make_schema(struct ArrowSchema *schema, const char *format, const char *name, size_t len, int64_t flags, int64_t children)
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
        if (make_schema(out->children[at++], "u", (const char *)c->names[i].octets, c->names[i].len, ARROW_FLAG_NULLABLE, 0) < 0)
            goto fail;
    return 0;
fail:
    release_schema(out);
    return -1;
}
