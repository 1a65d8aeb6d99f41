/* Frames as columns in Arrow's memory layout, without an object for each frame. It uses no Python and runs without the GIL.

   Each row is a frame: the chosen ones of command, headers (a map), body, offset, length and error, then a column for each
   wanted name. Frames that do not meet the conditions are skipped. A malformed frame always makes a row, the last one, with
   its error. Invariant: memory grows with the bytes received, never by a number in them. */
#ifndef STOMP_COLUMNS_H
#define STOMP_COLUMNS_H

#include "stomp_wanted.h"

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
int stomp_columns_parse(struct stomp_columns *columns, const struct stomp_rules *rules, const struct stomp_wanted *wanted,
                        const uint8_t *data, size_t len);
void stomp_columns_free(struct stomp_columns *columns);

/* Move the columns into an Arrow array, or describe them. Returns 0, or -1 without memory. */
int stomp_columns_array(struct stomp_columns *columns, struct ArrowArray *out);
int stomp_columns_schema(const struct stomp_columns *columns, struct ArrowSchema *out);

/* Return the public name of an error kind. */
const char *stomp_error_name(int error);

#endif
