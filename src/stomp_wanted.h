/* The choice of columns, headers and frames, and the buffers of columns. */
#ifndef STOMP_WANTED_H
#define STOMP_WANTED_H

#include "stomp_rules.h"

struct stomp_buffer {
    uint8_t *data;
    size_t len, room;
};

/* Offsets and bytes of a text or binary column; valid has a bit for each row of a nullable one. */
struct stomp_column {
    struct stomp_buffer offsets, data, valid;
    int64_t nulls;
};

/* The columns before those of single headers, in order, as bits. */
enum stomp_column_bit {
    STOMP_COLUMN_COMMAND = 1 << 0,
    STOMP_COLUMN_HEADERS = 1 << 1,
    STOMP_COLUMN_BODY = 1 << 2,
    STOMP_COLUMN_OFFSET = 1 << 3,
    STOMP_COLUMN_LENGTH = 1 << 4,
    STOMP_COLUMN_ERROR = 1 << 5,
    STOMP_COLUMNS = (1 << 6) - 1 /* all */
};

/* A condition on the command or a header, as columns show it: it equals a value, or begins with one. */
struct stomp_condition {
    struct stomp_name name;
    int of_command, is_prefix;
    const struct stomp_name *values; /* ascending; no prefix begins with another */
    size_t count;
};

struct stomp_wanted {
    int columns;                    /* enum stomp_column_bit */
    int repeats;                    /* 0: only the first entry of a repeated header */
    const struct stomp_name *names; /* headers with a column of their own */
    size_t names_count;
    const struct stomp_condition *where; /* all must hold */
    size_t where_count;
};

#endif
