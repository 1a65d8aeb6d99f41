/* Many frames as columns in Arrow's memory layout, without an object a frame. No Python: runs without the GIL.

   A row is a frame: command, headers (a map), body, offset, length, error, as far as they are wanted, then one column a
   wanted name. Frames that do not fulfil the conditions are passed over. A malformed frame always makes a row, the last
   one, which says so. What grows, grows by octets that came. */
#ifndef STOMP_COLUMNS_H
#define STOMP_COLUMNS_H

#include "stomp_wanted.h"

/* https://arrow.apache.org/docs/format/CDataInterface.html, whose layout is part of the agreement. */
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
    size_t consumed; /* octets */
    int bad;         /* enum stomp_error of the last row, or STOMP_OK */
};

/* Read frames from data until its end, an unfinished frame or a malformed one. wanted->names must outlive the columns.
   0, or -1 for want of memory. Call stomp_columns_free afterwards, in any case. */
int stomp_columns_parse(struct stomp_columns *columns, const struct stomp_rules *rules, const struct stomp_wanted *wanted,
                        const uint8_t *data, size_t len);
void stomp_columns_free(struct stomp_columns *columns);

/* Move the columns into an Arrow array, or describe them. 0, or -1 for want of memory. */
int stomp_columns_array(struct stomp_columns *columns, struct ArrowArray *out);
int stomp_columns_schema(const struct stomp_columns *columns, struct ArrowSchema *out);

/* The public name of an error kind. */
const char *stomp_error_name(int error);

#endif
