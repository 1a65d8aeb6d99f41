/* Many frames as columns in Arrow's memory layout, without an object a frame. No Python: runs without the GIL.

   A row is a frame: command, headers (a map), body, offset, length, error, as far as they are wanted, then one column a
   wanted name. Frames that do not fulfil the conditions are passed over. A malformed frame always makes a row, the last
   one, which says so. What grows, grows by octets that came. */
#ifndef STOMP_COLUMNS_H
#define STOMP_COLUMNS_H

#include "stomp_scan.h"

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

struct stomp_buffer {
    uint8_t *data;
    size_t len, room;
};

/* Offsets and octets of a text or binary column; valid holds a bit a row where nulls are allowed. */
struct stomp_column {
    struct stomp_buffer offsets, data, valid;
    int64_t nulls;
};

/* The columns before those of single headers, in their order: bits. */
enum stomp_column_bit {
    STOMP_COLUMN_COMMAND = 1 << 0,
    STOMP_COLUMN_HEADERS = 1 << 1,
    STOMP_COLUMN_BODY = 1 << 2,
    STOMP_COLUMN_OFFSET = 1 << 3,
    STOMP_COLUMN_LENGTH = 1 << 4,
    STOMP_COLUMN_ERROR = 1 << 5,
    STOMP_COLUMNS = (1 << 6) - 1 /* all of them */
};

/* What the command, or the first header of this name, must be, or begin with: as text in a column. */
struct stomp_condition {
    struct stomp_name name;
    int of_command, is_prefix;
    const struct stomp_name *values; /* ascending; no prefix begins with another one */
    size_t count;
};

struct stomp_wanted {
    int columns;                    /* enum stomp_column_bit */
    int repeats;                    /* 0: of a repeated header only the first entry */
    const struct stomp_name *names; /* headers with a column of their own */
    size_t names_count;
    const struct stomp_condition *where; /* all must hold */
    size_t where_count;
};

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
